"""Scores of every system on every query, lined up: what the page, its words and its tables are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.analysis.query_sets import query_map
from rankbound.analysis.score_tables import measures_of, place, query_scores
from rankbound.difficulty import QUERY_TYPES
from rankbound.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl
    from numpy.typing import NDArray

__all__ = ["QUERY_TYPE_CODES", "LinedUp", "line_up"]

_QUERY = ("data", "variant", "qid")
QUERY_TYPE_CODES = ("", *QUERY_TYPES)  # a query's type as a number: its place here


@dataclass(frozen=True, eq=False)
class LinedUp:
    """One row per query of each data set; ``values[measure]`` is systems x queries, NaN where there is no value.

    ``types`` and ``expected``, the value of a random order, are those of ``lead``, the first measure, without its
    bounding.
    """

    data_sets: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]  # data and variant of each data set
    data: NDArray[np.int64]  # place in data_sets, one per query
    qids: tuple[str, ...]
    items: NDArray[np.int64]
    relevant: NDArray[np.int64]
    types: NDArray[np.str_]  # "" where unknown
    expected: NDArray[np.float64]
    systems: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures, in the order of the table."""
        return tuple(self.values)

    @property
    def lead(self) -> str:
        """The measure that words and types of queries are about."""
        return self.measures[0]

    def __len__(self) -> int:
        return len(self.qids)


def line_up(table: pl.DataFrame) -> LinedUp:
    """Line up a score table: one row per trial and query, a column per measure.

    Repeats of a query with other seeds, and in other folds, are averaged: the query is what was drawn at random.

    Optional columns say what the table's numbers alone cannot: ``type``, the query's type, and ``expected``, what a
    random order scores by the first measure without its bounding. Where they are missing, both come from the numbers
    of items and relevant items.
    """
    import polars as pl

    measures = measures_of(table)
    if not measures:
        raise DataError(f"the score table has no column that is a measure; its columns are {', '.join(table.columns)}")
    of_folds = query_scores(table, measures).group_by(*_QUERY, "system", maintain_order=True)
    scores = of_folds.agg(pl.col("items", "relevant").max(), pl.col(*measures).mean())
    queries = scores.select(*_QUERY, "items", "relevant").unique(_QUERY, keep="first", maintain_order=True)
    queries = queries.join(_known(table, measures[0]), on=list(_QUERY), how="left", nulls_equal=True)
    data_sets, data = _codes(queries.select(place())["place"])
    rows = np.argsort(data, kind="stable")  # the data sets one after the other
    queries, data = queries[rows], data[rows]
    numbered = queries.select(*_QUERY).with_row_index("column")
    scores = scores.join(numbered, on=list(_QUERY), how="left", nulls_equal=True, maintain_order="left")
    systems, system = _codes(scores["system"])
    values = {}
    for name in measures:
        values[name] = np.full((len(systems), len(queries)), np.nan)
        values[name][system, scores["column"].to_numpy()] = scores[name].fill_null(float("nan")).to_numpy()
    sources = tuple(queries[np.unique(data, return_index=True)[1]].select("data", "variant").rows())
    items, relevant = (queries[name].fill_null(0).cast(pl.Int64).to_numpy() for name in ("items", "relevant"))
    types = queries["type"].fill_null("").to_numpy().astype(np.str_)
    expected = queries["expected"].fill_null(float("nan")).to_numpy()
    qids = tuple(queries["qid"].cast(pl.String))
    return LinedUp(data_sets, sources, data, qids, items, relevant, types, expected, systems, values)


def _known(table: pl.DataFrame, lead: str) -> pl.DataFrame:
    """Type and expected value of each query: as the table says, else worked out."""
    import polars as pl

    given = [name for name in ("type", "expected") if name in table.columns]
    if len(given) == 2:
        return table.select(*_QUERY, *given).unique(_QUERY, keep="first", maintain_order=True)
    try:
        known = query_map(table, lead).select(*_QUERY, "type", "expected")
    except DataError:  # the plain measure is not in the table, or no query counts for it
        nothing = (pl.lit(None, pl.String).alias("type"), pl.lit(None, pl.Float64).alias("expected"))
        known = table.select(*_QUERY, *nothing)
    return known.unique(_QUERY, keep="first", maintain_order=True)


def _codes(names: pl.Series) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    """The different names in order of appearance, and the place of each."""
    different = names.unique(maintain_order=True).to_list()
    codes = names.replace_strict(different, list(range(len(different))))
    return tuple(different), codes.to_numpy().astype(np.int64)
