"""Figures of difficulty: the possible scores of a query, and how bounding uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty import QUERY_TYPES
from rankbound.report.figures.panels import color, grid, highlight, tips, with_panel
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

_LOSS_NAMES = {"nDCG": "nDCG loss", "AP": "AP loss", "U": "U, the loss behind nRBP"}


def _lines(table: pl.DataFrame, by: str, legend: str, *, mark: dict[str, Any] | None = None, **encoding: Any) -> Any:
    """A line for each value of the column ``by``; clicking the legend highlights one."""
    selection, opacity = highlight(by)
    colors = color(table, by, legend)
    return alt.Chart().mark_line(**(mark or {})).encode(color=colors, opacity=opacity, **encoding).add_params(selection)


def lower_bounds(table: pl.DataFrame) -> Any:
    """Worst score by the fraction of relevant items: takes `analysis.curves.lower_bounds`."""
    line = _lines(
        table,
        "items",
        "items in the query",
        x=alt.X("fraction:Q", title="relevant items (fraction of the query)", axis=alt.Axis(format="%")),
        y=alt.Y("worst:Q", title="worst possible score", scale=alt.Scale(domain=[0, 1])),
        tooltip=tips(measure="measure *", items="items #", fraction="fraction relevant", worst="worst score"),
        mark={"point": alt.OverlayMarkDef(size=12)},
    )
    return grid([line], table, column="measure", size=(280, 200))


def expected_losses(table: pl.DataFrame) -> Any:
    """Expected loss of a random ranking by the number of relevant items: takes `analysis.curves.expectation_curves`."""
    line = _lines(
        table,
        "ratio",
        "irrelevant items per relevant one (NSR)",
        x=alt.X("relevant:Q", title="relevant items in the query"),
        y=alt.Y("expected:Q", title="expected loss", scale=alt.Scale(zero=False)),
        tooltip=tips(loss="loss *", ratio="NSR #", relevant="relevant items #", expected="expected loss"),
    )
    return grid([line], _with_loss(table), column="loss", size=(220, 180), independent=["y"])


def bounded_losses(table: pl.DataFrame) -> Any:
    """Bounded loss against the unbounded one: takes `analysis.curves.bounded_losses`."""
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
        "exact, or smooth with gain a",
        tooltip=tips(distribution="distribution *", score="score", fraction="probability of at most this"),
        strokeDash=alt.condition(alt.datum.distribution == "exact", alt.value([1, 0]), alt.value([5, 2])),
    )
    return grid([line], table, row="instance", column="measure", size=(200, 150), independent=["x"])


def distributions(table: pl.DataFrame) -> Any:
    """Smooth distributions of several instances: takes `analysis.curves.distribution_curves`."""
    line = _distribution_lines(
        table,
        "instance",
        "query (N items, P relevant)",
        tooltip=tips(instance="query *", score="score", fraction="probability of at most this"),
    )
    return grid([line], table, row="group", column="measure", size=(200, 150), independent=["x"])


def _distribution_lines(table: pl.DataFrame, by: str, legend: str, **more: Any) -> Any:
    return _lines(
        table,
        by,
        legend,
        x=alt.X("score:Q", title="score of a random ranking", scale=alt.Scale(zero=False)),
        y=alt.Y("fraction:Q", title="probability of at most this", scale=alt.Scale(domain=[0, 1])),
        **more,
    )


def expected_histogram(table: pl.DataFrame, measure: str) -> Any:
    """Queries by the expected score of a random ranking: takes `analysis.curves.expected_histogram`."""
    bar = (
        alt.Chart()
        .mark_bar(color=PALETTE[0])
        .encode(
            x=alt.X("low:Q", bin="binned", title=[f"expected {measure}", "of a random ranking"]),
            x2="high:Q",
            y=alt.Y("queries:Q", title="queries"),
            tooltip=tips(low="from", high="to", queries="queries #", fraction="fraction of the queries"),
        )
    )
    return grid([bar], with_panel(table), column="panel", size=(230, 170), independent=["y"])


def query_map(table: pl.DataFrame, measure: str, *, title: str | None = None) -> Any:
    """Mean score of the systems against that of a random ranking: takes `analysis.query_sets.query_map`, thinned.

    ``title`` is that of the vertical axis where the table is about a single run, which needs no column ``items`` and
    ``relevant``.
    """
    counts = {name: f"{name} #" for name in ("items", "relevant") if name in table.columns}
    selection = alt.selection_point(fields=["type"], bind="legend")
    both = table.select("value", "expected")
    ends = [float(np.floor(10 * both.to_numpy().min()) / 10), float(np.ceil(10 * both.to_numpy().max()) / 10)]
    scale = alt.Scale(domain=ends, zero=False)
    present = set(table["type"])
    colors = {kind: PALETTE[i] for kind, i in zip(QUERY_TYPES, (2, 6, 4, 1, 5, 3, 7), strict=True)}
    colors = {kind: color for kind, color in colors.items() if kind in present}
    diagonal = (
        alt.Chart(alt.Data(values=[{"at": end} for end in ends]))
        .mark_line(color="currentColor", strokeWidth=1, strokeDash=[4, 3], opacity=0.5)
        .encode(x=alt.X("at:Q", scale=scale), y=alt.Y("at:Q", scale=scale))
    )
    point = (
        alt.Chart()
        .mark_point(size=22)
        .encode(
            x=alt.X("expected:Q", title=[f"expected {measure}", "of a random ranking"], scale=scale),
            y=alt.Y("value:Q", title=title or f"mean {measure} of the systems", scale=scale),
            color=alt.Color(
                "type:N",
                title="type of query",
                scale=alt.Scale(domain=list(colors), range=list(colors.values())),
            ),
            shape=alt.Shape("type:N", title="type of query", scale=alt.Scale(domain=list(colors))),
            opacity=alt.condition(selection, alt.value(0.65), alt.value(0.06)),
            tooltip=tips(
                qid="query *",
                type="type *",
                value="mean of the systems" if title is None else "value",
                expected="random ranking",
                **counts,
            ),
        )
        .add_params(selection)
    )
    return grid([diagonal, point], with_panel(table), column="panel", size=(230, 230))


def _with_loss(table: pl.DataFrame, name: str = "loss") -> pl.DataFrame:
    import polars as pl

    return table.with_columns(pl.col("measure").replace(_LOSS_NAMES).alias(name))
