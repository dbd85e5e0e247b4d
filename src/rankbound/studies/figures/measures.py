"""Figures of measures and systems over several trials: agreement, discriminative power, marginal means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from rankbound.report.figures.panels import color, grid, highlight, mark, order_of, tips
from rankbound.report.figures.systems import height_of, system_axis
from rankbound.report.figures.theme import DIVERGING, PALETTE, SEQUENTIAL, SHORT_LABEL, Chart, alt

if TYPE_CHECKING:
    from collections.abc import Sequence

_SETS = ("all", "uninformative", "ideal")
_UNITS = {
    "significant fraction": "significant pairs (fraction)",
    "conflict fraction": "conflicts with the base measure (fraction)",
    "PAD": "absolute difference (%)",
    "Kendall tau": "Kendall's tau with the base measure",
}


def measure_agreement(table: pl.DataFrame) -> Chart:
    """Kendall's tau between the rankings by two measures: takes `studies.meta_evaluation.tau_between_measures`."""
    names = order_of(table, "first")
    base = alt.Chart(table).encode(
        x=alt.X("first:N", title=None, sort=names, axis=alt.Axis(labelAngle=-40)),
        y=alt.Y("second:N", title=None, sort=names),
        tooltip=tips(first="measure *", second="and *", tau="Kendall's tau"),
    )
    cell = base.mark_rect().encode(
        color=alt.Color("tau:Q", title="Kendall's tau", scale=alt.Scale(scheme=DIVERGING, domain=[-1, 1], reverse=True))
    )
    dark = "isValid(datum.tau) && abs(datum.tau) > 0.6"
    text = base.mark_text(fontSize=10).encode(
        text=alt.Text("tau:Q", format=".2f"), color=alt.condition(dark, alt.value("white"), alt.value("black"))
    )
    return (cell + text).properties(width=max(120, 40 * len(names)), height=max(80, 28 * len(names)))


def asl_curves(table: pl.DataFrame) -> Chart:
    """Achieved significance levels of all pairs of systems: takes `studies.meta_evaluation.asl_curves`."""
    selection, opacity = highlight("measure")
    line = (
        mark("line", point=alt.OverlayMarkDef(size=18))
        .encode(
            x=alt.X("position:Q", title="pairs of systems, largest level first", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("level:Q", title="achieved significance level", scale=alt.Scale(type="sqrt", domain=[0, 1])),
            color=color(table, "measure", "measure"),
            opacity=opacity,
            tooltip=tips(measure="measure *", pair="pair *", level="achieved level", position="position #"),
        )
        .add_params(selection)
    )
    level = mark(
        "rule", alt.Data(values=[{"level": 0.05}]), color="currentColor", strokeDash=[4, 3], opacity=0.7
    ).encode(y="level:Q")
    return grid([level, line], table, size=(460, 260))


def meta_evaluation(table: pl.DataFrame) -> Chart:
    """Fractions of significant and conflicting pairs, PAD and tau by set of queries: takes `meta_evaluation`."""
    table = table.filter(pl.col("quantity").is_in(list(_UNITS)))
    table = table.sort(pl.col("quantity").replace_strict({name: rank for rank, name in enumerate(_UNITS)}))
    table = table.with_columns(pl.col("quantity").replace(_UNITS).alias("what"))
    return _bars(table, "set", _SETS, "queries", row="data", column="what")


def swap_rates(table: pl.DataFrame) -> Chart:
    """Swap rates between data sets, and between uninformative and ideal queries: takes `meta_evaluation`."""
    rates = table.filter(pl.col("quantity") == "swap rate")
    between = pl.col("set").str.contains("|", literal=True)
    charts = []
    if len(across := rates.filter(~between)):
        across = across.with_columns(pl.col("data").str.replace(" | ", " and ", literal=True).alias("what"))
        charts.append(_bars(across, "set", _SETS, "queries", column="what"))
    if len(within := rates.filter(between)):
        within = within.with_columns(pl.lit("uninformative and ideal queries").alias("what"))
        charts.append(_bars(within, "data", order_of(within, "data"), "data set", column="what"))
    return alt.hconcat(*charts).resolve_scale(color="independent", y="independent", yOffset="independent")


def _bars(
    table: pl.DataFrame, by: str, order: Sequence[str], legend: str, *, column: str, row: str | None = None
) -> Chart:
    names = [name for name in order if name in set(table[by])]
    selection, opacity = highlight(by)
    bar = (
        mark("bar")
        .encode(
            y=alt.Y("measure:N", title=None, sort=order_of(table, "measure")),
            yOffset=alt.YOffset(f"{by}:N", sort=names),
            x=alt.X("value:Q", title=None if row else "fraction of pairs that swap"),
            color=alt.Color(
                f"{by}:N", title=legend, sort=names, scale=alt.Scale(domain=names, range=list(PALETTE[: len(names)]))
            ),
            opacity=opacity,
            tooltip=tips(measure="measure *", versus="compared with *", data="data *", set="queries *", value="value"),
        )
        .add_params(selection)
    )
    size = (180, max(50, 12 * len(names) * table["measure"].n_unique()))
    return grid([bar], table, row=row, column=column, size=size, independent=["x"])


def best_counts(table: pl.DataFrame) -> Chart:
    """How often each system is the best by each measure: takes `studies.marginal_means.best_counts`."""
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


def marginal_means(table: pl.DataFrame, by_data: bool = False) -> Chart:
    """Marginal means: thick lines are 95 % confidence intervals, thin ones 95 % prediction intervals.

    Takes `studies.marginal_means.system_marginal_means`; ``by_data`` makes a column of panels for each data set.
    """
    y = system_axis(table)
    title = "standardized score (SD)"
    prediction = mark("rule", strokeWidth=1, opacity=0.7).encode(
        y=y, x=alt.X("pi_low:Q", title=title), x2="pi_high:Q", color=alt.value(PALETTE[0])
    )
    confidence = mark("rule", strokeWidth=5, opacity=0.55).encode(
        y=y, x=alt.X("ci_low:Q", title=title), x2="ci_high:Q", color=alt.value(PALETTE[0])
    )
    point = mark("point", size=44, color=PALETTE[1], opacity=1).encode(
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
    layers = [prediction, confidence, point]
    if by_data:
        table = table.rename({"data_label": "panel"})
        return grid(layers, table, row="measure", column="panel", size=(190, height_of(table)))
    return grid(layers, table, column="measure", size=(210, height_of(table)))
