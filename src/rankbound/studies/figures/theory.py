"""Figures that depend on no data: the possible scores of a query, and how bounding uses them."""

from __future__ import annotations

from typing import Any

import polars as pl

from rankbound.report.figures.panels import color, grid, highlight, mark, tips
from rankbound.report.figures.theme import Chart, alt

_LOSS_NAMES = {"nDCG": "nDCG loss", "AP": "AP loss", "U": "U, the loss behind nRBP"}


def _lines(table: pl.DataFrame, by: str, legend: str, *, style: dict[str, Any] | None = None, **encoding: Any) -> Chart:
    """A line for each value of the column ``by``; clicking the legend highlights one."""
    selection, opacity = highlight(by)
    colors = color(table, by, legend)
    return mark("line", **(style or {})).encode(color=colors, opacity=opacity, **encoding).add_params(selection)


def lower_bounds(table: pl.DataFrame) -> Chart:
    """Worst score by the fraction of relevant items: takes `studies.curves.lower_bounds`."""
    line = _lines(
        table,
        "items",
        "items in the query",
        x=alt.X("fraction:Q", title="relevant items (fraction of the query)", axis=alt.Axis(format="%")),
        y=alt.Y("worst:Q", title="worst possible score", scale=alt.Scale(domain=[0, 1])),
        tooltip=tips(measure="measure *", items="items #", fraction="fraction relevant", worst="worst score"),
        style={"point": alt.OverlayMarkDef(size=12)},
    )
    return grid([line], table, column="measure", size=(280, 200))


def expected_losses(table: pl.DataFrame) -> Chart:
    """Expected loss of a random ranking by the number of relevant items: takes `studies.curves.expectation_curves`."""
    line = _lines(
        table,
        "ratio",
        "irrelevant items per relevant one (NSR)",
        x=alt.X("relevant:Q", title="relevant items in the query"),
        y=alt.Y("expected:Q", title="expected loss", scale=alt.Scale(zero=False)),
        tooltip=tips(loss="loss *", ratio="NSR #", relevant="relevant items #", expected="expected loss"),
    )
    return grid([line], _with_loss(table), column="loss", size=(220, 180), independent=["y"])


def bounded_losses(table: pl.DataFrame) -> Chart:
    """Bounded loss against the unbounded one: takes `studies.curves.bounded_losses`."""
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


def smooth_distributions(table: pl.DataFrame) -> Chart:
    """A distribution and its smooth forms: takes `studies.curves.smooth_distributions`."""
    line = _distribution_lines(
        table,
        "distribution",
        "exact, or smooth with gain a",
        tooltip=tips(distribution="distribution *", score="score", fraction="probability of at most this"),
        strokeDash=alt.condition(alt.datum.distribution == "exact", alt.value([1, 0]), alt.value([5, 2])),
    )
    return grid([line], table, row="instance", column="measure", size=(200, 150), independent=["x"])


def distributions(table: pl.DataFrame) -> Chart:
    """Smooth distributions of several instances: takes `studies.curves.distribution_curves`."""
    line = _distribution_lines(
        table,
        "instance",
        "query (N items, P relevant)",
        tooltip=tips(instance="query *", score="score", fraction="probability of at most this"),
    )
    return grid([line], table, row="group", column="measure", size=(200, 150), independent=["x"])


def _distribution_lines(table: pl.DataFrame, by: str, legend: str, **more: Any) -> Chart:
    return _lines(
        table,
        by,
        legend,
        x=alt.X("score:Q", title="score of a random ranking", scale=alt.Scale(zero=False)),
        y=alt.Y("fraction:Q", title="probability of at most this", scale=alt.Scale(domain=[0, 1])),
        **more,
    )


def _with_loss(table: pl.DataFrame, name: str = "loss") -> pl.DataFrame:
    return table.with_columns(pl.col("measure").replace(_LOSS_NAMES).alias(name))
