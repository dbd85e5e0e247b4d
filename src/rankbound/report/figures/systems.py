"""Figures of systems: their means, over cutoffs, and beside published ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.report.figures.panels import color, grid, highlight, mark, order_of, tips, with_panel
from rankbound.report.figures.theme import PALETTE, SHORT_LABEL, Chart, alt

if TYPE_CHECKING:
    import polars as pl

_LINE = 17  # height of one system's row


def cutoff_curves(table: pl.DataFrame, measure: str) -> Chart:
    """Mean of a measure by cutoff, with a band for its 95 % interval.

    Takes `catalog.cutoff_curves`; a column ``case`` (the loss) makes a row of panels for each.
    """
    selection, opacity = highlight("system")
    table = with_panel(table)
    x = alt.X("k:Q", title="cutoff k (ranks)", axis=alt.Axis(tickMinStep=1))
    systems = color(table, "system", "system")
    band = mark("area", opacity=0.1).encode(
        x=x, y=alt.Y("ci_low:Q", title=f"mean {measure}@k", scale=alt.Scale(zero=False)), y2="ci_high:Q", color=systems
    )
    line = (
        mark("line", point=alt.OverlayMarkDef(size=18))
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


def system_means(table: pl.DataFrame) -> Chart:
    """Mean of each system with its 95 % interval: columns data, variant, measure, system, mean, ci_low, ci_high."""
    table = with_panel(table)
    y = system_axis(table)
    interval = (
        mark("rule", strokeWidth=2)
        .encode(y=y, x=alt.X("ci_low:Q", title="mean over queries", scale=alt.Scale(zero=False)), x2="ci_high:Q")
        .encode(color=alt.value(PALETTE[0]))
    )
    point = mark("point", size=46, color=PALETTE[0], opacity=1).encode(
        y=y,
        x="mean:Q",
        tooltip=tips(
            system="system *", measure="measure *", mean="mean", ci_low="95 % from", ci_high="to", queries="queries #"
        ),
    )
    return grid(
        [*_label_whiskers(table, y), interval, point],
        table,
        row="measure",
        column="panel",
        size=(190, height_of(table)),
        independent=["x"],
    )


def _label_whiskers(table: pl.DataFrame, y: alt.Y) -> list[Chart]:
    """Thin lines with ends for what the labels of unjudged documents leave open; none if nothing is known about it."""
    if "label_low" not in table.columns:
        return []
    known = alt.Chart().transform_filter("isValid(datum.label_low)")
    tip = tips(system="system *", measure="measure *", label_low="whatever the labels from", label_high="to")
    line = known.mark_rule(strokeWidth=1, color=PALETTE[1]).encode(y=y, x="label_low:Q", x2="label_high:Q", tooltip=tip)
    ends = [
        known.mark_tick(thickness=1, size=9, color=PALETTE[1]).encode(y=y, x=f"{name}:Q")
        for name in ("label_low", "label_high")
    ]
    return [line, *ends]


def published_and_ours(table: pl.DataFrame) -> Chart:
    """Our numbers against published ones; they agree on the dashed line.

    Columns: setting, data, measure, published, ours, difference, ci_low, ci_high.
    """
    selection, opacity = highlight("data")
    scale = alt.Scale(zero=False)
    data = color(table, "data", "data set")
    x = alt.X("published:Q", title="published", scale=scale)
    diagonal = mark("line", color="currentColor", strokeWidth=1, strokeDash=[4, 3], opacity=0.5).encode(
        x=x, y=alt.Y("published:Q", title="ours", scale=scale)
    )
    interval = mark("rule", strokeWidth=1.5).encode(
        x=x, y=alt.Y("ci_low:Q", title="ours", scale=scale), y2="ci_high:Q", color=data, opacity=opacity
    )
    point = (
        mark("point", size=40)
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


def system_axis(table: pl.DataFrame) -> alt.Y:
    """A vertical axis with a row for each system."""
    return alt.Y("system:N", title=None, sort=order_of(table, "system"), axis=alt.Axis(labelExpr=SHORT_LABEL))


def height_of(table: pl.DataFrame) -> int:
    """Height of a panel with a row for each system."""
    return max(40, _LINE * table["system"].n_unique())
