"""Figures of systems: their means, how often each is best, and their marginal means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankbound.report.figures.panels import color, grid, highlight, order_of, tips, with_panel
from rankbound.report.figures.theme import PALETTE, SEQUENTIAL, SHORT_LABEL, alt

if TYPE_CHECKING:
    import polars as pl

__all__ = ["best_counts", "cutoff_curves", "marginal_means", "published_and_ours", "system_means"]

_LINE = 17  # height of one system's row


def cutoff_curves(table: pl.DataFrame, measure: str) -> Any:
    """Mean of a measure by cutoff, with a band for its 95 % interval.

    Takes `analysis.curves.cutoff_curves`; a column ``case`` (the loss) makes a row of panels for each.
    """
    selection, opacity = highlight("system")
    table = with_panel(table)
    x = alt.X("k:Q", title="cutoff k (ranks)", axis=alt.Axis(tickMinStep=1))
    systems = color(table, "system", "system")
    band = (
        alt.Chart()
        .mark_area(opacity=0.1)
        .encode(
            x=x,
            y=alt.Y("ci_low:Q", title=f"mean {measure}@k", scale=alt.Scale(zero=False)),
            y2="ci_high:Q",
            color=systems,
        )
    )
    line = (
        alt.Chart()
        .mark_line(point=alt.OverlayMarkDef(size=18))
        .encode(
            x=x,
            y="mean:Q",
            color=systems,
            opacity=opacity,
            tooltip=tips(
                system="system *", k="k #", mean="mean", ci_low="95 % from", ci_high="to", queries="queries #"
            ),
        )
        .add_params(selection)
    )
    row = "case" if "case" in table.columns else None
    return grid([band, line], table, row=row, column="panel", size=(210, 160), independent=["y"])


def system_means(table: pl.DataFrame) -> Any:
    """Mean of each system with its 95 % interval: columns data, variant, measure, system, mean, ci_low, ci_high."""
    table = with_panel(table)
    y = _systems(table)
    interval = (
        alt.Chart()
        .mark_rule(strokeWidth=2)
        .encode(y=y, x=alt.X("ci_low:Q", title="mean over queries", scale=alt.Scale(zero=False)), x2="ci_high:Q")
        .encode(color=alt.value(PALETTE[0]))
    )
    point = (
        alt.Chart()
        .mark_point(size=46, color=PALETTE[0], opacity=1)
        .encode(
            y=y,
            x="mean:Q",
            tooltip=tips(
                system="system *",
                measure="measure *",
                mean="mean",
                ci_low="95 % from",
                ci_high="to",
                queries="queries #",
            ),
        )
    )
    return grid([interval, point], table, row="measure", column="panel", size=(190, _height(table)), independent=["x"])


def best_counts(table: pl.DataFrame) -> Any:
    """How often each system is the best by each measure: takes `analysis.marginal_means.best_counts`."""
    most = int(table["count"].max() or 0)  # type: ignore[arg-type]
    base = alt.Chart(table).encode(
        x=alt.X(
            "system:N",
            title="system",
            sort=order_of(table, "system"),
            axis=alt.Axis(labelAngle=-40, labelExpr=SHORT_LABEL),
        ),
        y=alt.Y("measure:N", title="measure", sort=order_of(table, "measure")),
        tooltip=tips(system="system *", measure="by *", count="times the best #", cases="of #"),
    )
    cell = base.mark_rect().encode(
        color=alt.Color("count:Q", title="times the best", scale=alt.Scale(scheme=SEQUENTIAL, domainMin=0))
    )
    text = base.mark_text(fontSize=12).encode(
        text="count:Q", color=alt.condition(alt.datum.count > most / 2, alt.value("white"), alt.value("black"))
    )
    return (cell + text).properties(
        width=44 * table["system"].n_unique(), height=max(60, 26 * table["measure"].n_unique())
    )


def marginal_means(table: pl.DataFrame, *, by_data: bool = False) -> Any:
    """Marginal means: thick lines are 95 % confidence intervals, thin ones 95 % prediction intervals.

    Takes `analysis.marginal_means.system_marginal_means`; ``by_data`` makes a column of panels for each data set.
    """
    y = _systems(table)
    title = "standardized score (SD)"
    prediction = (
        alt.Chart()
        .mark_rule(strokeWidth=1, opacity=0.7)
        .encode(y=y, x=alt.X("pi_low:Q", title=title), x2="pi_high:Q", color=alt.value(PALETTE[0]))
    )
    confidence = (
        alt.Chart()
        .mark_rule(strokeWidth=5, opacity=0.55)
        .encode(y=y, x=alt.X("ci_low:Q", title=title), x2="ci_high:Q", color=alt.value(PALETTE[0]))
    )
    point = (
        alt.Chart()
        .mark_point(size=44, color=PALETTE[1], opacity=1)
        .encode(
            y=y,
            x=alt.X("mean:Q", title=title),
            tooltip=tips(
                system="system *",
                measure="measure *",
                mean="marginal mean",
                ci_low="95 % confidence from",
                ci_high="to ",
                pi_low="95 % prediction from",
                pi_high="to",
            ),
        )
    )
    layers = [prediction, confidence, point]
    if by_data:
        table = table.rename({"data_label": "panel"})
        return grid(layers, table, row="measure", column="panel", size=(190, _height(table)))
    return grid(layers, table, column="measure", size=(210, _height(table)))


def published_and_ours(table: pl.DataFrame) -> Any:
    """Our numbers against published ones; they agree on the dashed line.

    Columns: setting, data, measure, published, ours, difference, ci_low, ci_high.
    """
    selection, opacity = highlight("data")
    scale = alt.Scale(zero=False)
    data = color(table, "data", "data set")
    x = alt.X("published:Q", title="published", scale=scale)
    diagonal = (
        alt.Chart()
        .mark_line(color="currentColor", strokeWidth=1, strokeDash=[4, 3], opacity=0.5)
        .encode(x=x, y=alt.Y("published:Q", title="ours", scale=scale))
    )
    interval = (
        alt.Chart()
        .mark_rule(strokeWidth=1.5)
        .encode(x=x, y=alt.Y("ci_low:Q", title="ours", scale=scale), y2="ci_high:Q", color=data, opacity=opacity)
    )
    point = (
        alt.Chart()
        .mark_point(size=40)
        .encode(
            x=x,
            y=alt.Y("ours:Q", title="ours", scale=scale),
            color=data,
            opacity=opacity,
            tooltip=tips(
                setting="setting *",
                measure="measure *",
                published="published",
                ours="ours",
                difference="ours - published",
                ci_low="95 % from",
                ci_high="to",
            ),
        )
        .add_params(selection)
    )
    return grid([diagonal, interval, point], table, column="measure", size=(220, 220), independent=["x", "y"])


def _systems(table: pl.DataFrame) -> Any:
    return alt.Y("system:N", title=None, sort=order_of(table, "system"), axis=alt.Axis(labelExpr=SHORT_LABEL))


def _height(table: pl.DataFrame) -> int:
    return max(40, _LINE * table["system"].n_unique())
