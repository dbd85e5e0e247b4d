"""Queries by what a random order would score: expected values, types, and the sets that meta-evaluation looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rankbound.difficulty import bounds_of, query_types
from rankbound.difficulty.bounds import MOST_ITEMS
from rankbound.errors import DataError
from rankbound.evaluation.score_tables import QUERY, check_scores, measures_of
from rankbound.measures import LabelCounts, Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUERY_SETS = ("all", "uninformative", "ideal")
BOUNDS = ("worst", "expected", "best")
_NEAR = 1e-6  # so near its ends UL2 says nothing of E but rounding
_DULL = ("uninformative", "hard", "easy")


def bound_column(bound: str, measure: str) -> str:
    """Name of the column, next to that of a measure, that has its worst, expected or best value on each query.

    A column ``complete ...`` has the value of each system read as a complete ranking of the candidates.
    """
    return f"{bound} {measure}"


def is_bound_column(name: str) -> bool:
    """Whether a column holds bounds of a measure.

    >>> is_bound_column("expected nDCG@10"), is_bound_column("nDCG@10")
    (True, False)
    """
    return name.partition(" ")[0] in BOUNDS and " " in name


def expected_scores(table: pl.DataFrame, measure: str) -> pl.DataFrame:
    """What a random order scores on each query: the query's columns, items, relevant, value, expected, best, worst.

    ``value`` is the mean over the systems, of complete rankings of the candidates if the table has them. Bounds are
    those of the table's own columns (`bound_column`), if it has them. For binary labels they follow from the numbers of
    items and relevant items. With graded labels nDCG depends on all labels, which a score table does not hold; there
    ``expected`` is recovered from a bounded column of the same measure, if the table has one: EB gives x / E, UL1 and
    UL2 of a measure whose best is 1 can be solved for E too. ``worst`` is then still that of binary labels.
    """
    check_scores(table)
    plain = parse_measure(measure).plain
    known = [name for name in measures_of(table) if parse_measure(name).plain == plain]
    own = next((name for name in known if parse_measure(name) == plain), None)
    if own is None:
        raise DataError(f"query types need the plain measure {plain}; the table has {', '.join(measures_of(table))}")
    # solved row by row: UL1 and UL2 are not linear, so their means over seeds would not do
    solved = [_solved(parse_measure(name), pl.col(own), pl.col(name)) for name in known]
    nothing = pl.lit(None, dtype=pl.Float64)
    stored = {part: pl.col(name) if (name := bound_column(part, own)) in table.columns else nothing for part in BOUNDS}
    stored["expected"] = pl.coalesce(stored["expected"], *solved, nothing)
    complete = bound_column("complete", own)
    value = pl.col(complete if complete in table.columns else own).alias("value")
    rows = table.filter(pl.col(own).is_finite()).with_columns(**stored).with_columns(value)
    if rows.is_empty():
        raise DataError(f"no query counts for {own}")
    queries = (
        rows.group_by(*QUERY, "system", maintain_order=True)
        .agg(pl.col("items", "relevant").max(), pl.col("value", *BOUNDS).mean())
        .group_by(*QUERY, maintain_order=True)
        .agg(pl.col("items", "relevant").max(), pl.col("value", *BOUNDS).mean())
    )
    binary = zip(BOUNDS, _bounds(plain, queries), strict=True)
    return queries.with_columns(pl.col(part).fill_null(pl.Series(values)) for part, values in binary)


def query_map(table: pl.DataFrame, measure: str, *, quota: float | None = None) -> pl.DataFrame:
    """`expected_scores` with the ``type`` of each query; queries of one data set and variant are typed together.

    Without a ``quota``, types are those of the table's own column ``type``, if it has one.
    """
    scores = expected_scores(table, measure)
    if quota is None and "type" in table.columns:
        return scores.join(_own_types(table), on=list(QUERY), how="left", nulls_equal=True, maintain_order="left")
    return _typed(scores, parse_measure(measure), quota)


def types_of(
    measure: Measure,
    value: NDArray[np.float64],
    expected: NDArray[np.float64],
    best: NDArray[np.float64],
    worst: NDArray[np.float64],
    *,
    quota: float | None = None,
) -> NDArray[Any]:
    """`query_types` by values of a plain measure."""
    return query_types(value, expected, best, worst, quota=quota, floor=measure.definition.floor)


def type_queries(table: pl.DataFrame, measures: Sequence[str], *, quota: float | None = None) -> pl.DataFrame:
    """Each query with its ``type``, by the mean of several plain measures over the systems.

    Queries that do not count for any of the measures are left out. Without a ``quota``, types are those of the table's
    own column ``type``, if it has one.
    """
    check_scores(table)
    if quota is None and "type" in table.columns:
        return _own_types(table)
    plain = [name for name in measures if parse_measure(name).bounding == "none"] or list(measures)
    scores = (
        pl.concat([expected_scores(table, name) for name in plain])
        .group_by(*QUERY, maintain_order=True)
        .agg(pl.col("value", "expected", "best", "worst").mean())
    )
    return _typed(scores, parse_measure(plain[0]), quota).select(*QUERY, "type")


def in_query_set(types: pl.Series, query_set: str) -> NDArray[np.bool_]:
    """Which queries of these types belong to one of `QUERY_SETS`; hard and easy queries are uninformative ones."""
    if query_set == "all":
        return np.ones(len(types), dtype=bool)
    members = _DULL if query_set == "uninformative" else (query_set,)
    return types.is_in(members).fill_null(value=False).to_numpy()


def _own_types(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("type").is_not_null()).select(*QUERY, "type").unique(QUERY, maintain_order=True)


def _typed(scores: pl.DataFrame, measure: Measure, quota: float | None) -> pl.DataFrame:
    parts = []
    for _, part in scores.group_by("data", "variant", maintain_order=True):
        values = (part[name].to_numpy() for name in ("value", "expected", "best", "worst"))
        parts.append(part.with_columns(pl.Series("type", types_of(measure, *values, quota=quota))))
    return pl.concat(parts)


def _solved(measure: Measure, x: pl.Expr, bounded: pl.Expr) -> pl.Expr:
    """E from a value and its bounded value, null where the two do not tell."""
    nothing = pl.lit(None, dtype=pl.Float64)
    if measure.bounding == "expectation":
        return pl.when(bounded > 0).then(x / bounded).otherwise(nothing)
    if measure.definition.is_binary(measure) or not measure.definition.is_normalized(measure):
        return nothing  # binary measures follow from items and relevant; below, the best value is taken to be 1
    if measure.bounding == "UL1":  # x^2 / (x + E)
        return pl.when(bounded > 0).then(x**2 / bounded - x).otherwise(nothing)
    if measure.bounding == "UL2":  # (x - E) / (1 - E) from E on, (x - E) / E below
        above = (x - bounded) / (1 - bounded)
        return (
            pl.when((bounded >= 0) & (bounded < 1 - _NEAR))
            .then(above)
            .when((bounded < 0) & (bounded > _NEAR - 1))
            .then(x / (1 + bounded))
            .otherwise(nothing)
        )
    return nothing


def _bounds(measure: Measure, queries: pl.DataFrame) -> tuple[NDArray[np.float64], ...]:
    """Worst, expected, best of binary queries; many share (items, relevant), so each case is computed once."""
    sizes = np.stack([queries["items"].to_numpy(), queries["relevant"].to_numpy()])
    if (sizes < 0).any() or (sizes[1] > sizes[0]).any() or (sizes > MOST_ITEMS).any():
        raise DataError(f"relevant must lie between 0 and items, which are at most {MOST_ITEMS:,}; got others")
    cases, back = np.unique(sizes, axis=1, return_inverse=True)
    bounds = bounds_of(measure, LabelCounts.binary(cases[0], cases[1], label=max(1, int(np.ceil(measure.rel)))))
    return tuple(np.asarray(part)[back.ravel()] for part in (bounds.worst, bounds.expected, bounds.best))
