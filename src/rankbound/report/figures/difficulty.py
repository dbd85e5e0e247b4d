"""Figures of difficulty: what any ranking of a query could score, and how bounding uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty import QUERY_TYPES
from rankbound.report.figures.panels import color, grid, highlight, placed, tips
from rankbound.report.figures.theme import PALETTE, alt

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "bounded_losses",
    "distributions",
    "expected_histogram",
    "expected_losses",
    "lower_bounds",
    "query_map",
    "smooth_distributions",
]

_SPOKEN = {"nDCG": "nDCG loss", "AP": "AP loss", "U": "U, the loss behind nRBP"}


def _lines(table: pl.DataFrame, by: str, legend: str, *, mark: dict[str, Any] | None = None, **encoding: Any) -> Any:
    """A line for each value of the column ``by``, one of which can be picked out in the legend."""
    chosen, opacity = highlight(by)
    colors = color(table, by, legend)
    return alt.Chart().mark_line(**(mark or {})).encode(color=colors, opacity=opacity, **encoding).add_params(chosen)


def lower_bounds(table: pl.DataFrame) -> Any:
    """Worst score over the share of relevant items: takes `analysis.curves.lower_bounds`."""
    line = _lines(
        table,
        "items",
        "items in the query",
        x=alt.X("share:Q", title="relevant items (share of the query)", axis=alt.Axis(format="%")),
        y=alt.Y("worst:Q", title="worst possible score", scale=alt.Scale(domain=[0, 1])),
        tooltip=tips(measure="measure *", items="items #", share="share relevant", worst="worst score"),
        mark={"point": alt.OverlayMarkDef(size=12)},
    )
    return grid([line], table, column="measure", size=(280, 200))


def expected_losses(table: pl.DataFrame) -> Any:
    """Expected loss of a random order over the relevant items: takes `analysis.curves.expectation_curves`."""
    line = _lines(
        table,
        "ratio",
        "others per relevant item (NSR)",
        x=alt.X("relevant:Q", title="relevant items in the query"),
        y=alt.Y("expected:Q", title="expected loss", scale=alt.Scale(zero=False)),
        tooltip=tips(loss="loss *", ratio="NSR #", relevant="relevant items #", expected="expected loss"),
    )
    return grid([line], _with_loss(table), column="loss", size=(220, 180), independent=["y"])


def bounded_losses(table: pl.DataFrame) -> Any:
    """Bounded loss over the unbounded one: takes `analysis.curves.bounded_losses`."""
    line = _lines(
        table,
        "instance",
        "query (N items, P relevant)",
        x=alt.X("loss:Q", title="unbounded loss", scale=alt.Scale(zero=False)),
        y=alt.Y("bounded:Q", title="bounded loss", scale=alt.Scale(zero=False)),
        tooltip=tips(instance="query *", loss="unbounded loss", bounded="bounded loss"),
    )
    table = _with_loss(table, "base")
    return grid([line], table, row="group", column="base", size=(200, 150), independent=["x", "y"])


def smooth_distributions(table: pl.DataFrame) -> Any:
    """A distribution and its smooth forms: takes `analysis.curves.smooth_distributions`."""
    line = _distribution_lines(
        table,
        "distribution",
        "distribution, or smooth distribution of gain a",
        tooltip=tips(distribution="distribution *", score="score", share="probability of at most that"),
        strokeDash=alt.condition(alt.datum.distribution == "exact", alt.value([1, 0]), alt.value([5, 2])),
    )
    return grid([line], table, row="instance", column="measure", size=(200, 150), independent=["x"])


def distributions(table: pl.DataFrame) -> Any:
    """Smooth distributions of several instances: takes `analysis.curves.distribution_curves`."""
    line = _distribution_lines(
        table,
        "instance",
        "query (N items, P relevant)",
        tooltip=tips(instance="query *", score="score", share="probability of at most that"),
    )
    return grid([line], table, row="group", column="measure", size=(200, 150), independent=["x"])


def _distribution_lines(table: pl.DataFrame, by: str, legend: str, **more: Any) -> Any:
    return _lines(
        table,
        by,
        legend,
        x=alt.X("score:Q", title="score of a random order", scale=alt.Scale(zero=False)),
        y=alt.Y("share:Q", title="probability of at most that", scale=alt.Scale(domain=[0, 1])),
        **more,
    )


def expected_histogram(table: pl.DataFrame, measure: str) -> Any:
    """How many queries a random order scores so much on: takes `analysis.curves.expected_histogram`."""
    bar = (
        alt.Chart()
        .mark_bar(color=PALETTE[0])
        .encode(
            x=alt.X("low:Q", bin="binned", title=f"expected {measure} of a random order"),
            x2="high:Q",
            y=alt.Y("queries:Q", title="queries"),
            tooltip=tips(low="from", high="to", queries="queries #", share="share of the queries"),
        )
    )
    return grid([bar], placed(table), column="place", size=(230, 170), independent=["y"])


def query_map(table: pl.DataFrame, measure: str) -> Any:
    """Mean score over the systems against that of a random order: takes `analysis.query_sets.query_map`, thinned."""
    chosen = alt.selection_point(fields=["type"], bind="legend")
    both = table.select("value", "expected")
    ends = [float(np.floor(10 * both.to_numpy().min()) / 10), float(np.ceil(10 * both.to_numpy().max()) / 10)]
    scale = alt.Scale(domain=ends, zero=False)
    diagonal = (
        alt.Chart(alt.Data(values=[{"at": end} for end in ends]))
        .mark_line(color="currentColor", strokeWidth=1, strokeDash=[4, 3], opacity=0.5)
        .encode(x=alt.X("at:Q", scale=scale), y=alt.Y("at:Q", scale=scale))
    )
    point = (
        alt.Chart()
        .mark_point(size=22)
        .encode(
            x=alt.X("expected:Q", title=f"expected {measure} of a random order", scale=scale),
            y=alt.Y("value:Q", title=f"mean {measure} of the systems", scale=scale),
            color=alt.Color(
                "type:N",
                title="type of query",
                scale=alt.Scale(domain=list(QUERY_TYPES), range=[PALETTE[i] for i in (2, 6, 4, 1, 5)]),
            ),
            shape=alt.Shape("type:N", title="type of query", scale=alt.Scale(domain=list(QUERY_TYPES))),
            opacity=alt.condition(chosen, alt.value(0.65), alt.value(0.06)),
            tooltip=tips(
                qid="query *",
                type="type *",
                value="mean of the systems",
                expected="random order",
                items="items #",
                relevant="relevant #",
            ),
        )
        .add_params(chosen)
    )
    return grid([diagonal, point], placed(table), column="place", size=(230, 230))


def _with_loss(table: pl.DataFrame, name: str = "loss") -> pl.DataFrame:
    import polars as pl

    return table.with_columns(pl.col("measure").replace(_SPOKEN).alias(name))
