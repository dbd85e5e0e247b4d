"""Figures of difficulty: what random rankings of the queries score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.difficulty import QUERY_TYPES
from rankbound.report.figures.panels import diagonal, grid, mark, tips, with_panel
from rankbound.report.figures.theme import PALETTE, Chart, alt

if TYPE_CHECKING:
    import polars as pl


def expected_histogram(table: pl.DataFrame, measure: str) -> Chart:
    """Queries by the expected score of a random ranking: takes `catalog.expected_histogram`."""
    bar = mark("bar", color=PALETTE[0]).encode(
        x=alt.X("low:Q", bin="binned", title=[f"expected {measure}", "of a random ranking"]),
        x2="high:Q",
        y=alt.Y("queries:Q", title="queries"),
        tooltip=tips(low="from", high="to", queries="queries #", fraction="fraction of the queries"),
    )
    return grid([bar], with_panel(table), column="panel", size=(230, 170), independent=["y"])


def query_map(table: pl.DataFrame, measure: str, *, title: str | None = None) -> Chart:
    """Mean score of the systems against that of a random ranking: takes `evaluation.query_sets.query_map`, thinned.

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
    point = (
        mark("point", size=22)
        .encode(
            x=alt.X("expected:Q", title=[f"expected {measure}", "of a random ranking"], scale=scale),
            y=alt.Y("value:Q", title=title or f"mean {measure} of the systems", scale=scale),
            color=alt.Color(
                "type:N", title="type of query", scale=alt.Scale(domain=list(colors), range=list(colors.values()))
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
    return grid([diagonal(ends, scale), point], with_panel(table), column="panel", size=(230, 230))
