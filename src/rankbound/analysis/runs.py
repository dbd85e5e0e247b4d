"""Runs, scored lists and evaluations, aligned on the same queries: every function here returns a `ScoreMatrix`.

What a random ranking scores depends on the candidates of a query. They are a property of the query (see
`rankbound.difficulty.candidates`), so that a run has the same values here as in `rankbound.evaluate`, whatever it is
compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.analysis.query_sets import types_of
from rankbound.analysis.scores import ScoreMatrix
from rankbound.data.candidates import describe_candidates, read_candidates
from rankbound.difficulty import Difficulty
from rankbound.difficulty.run_values import RunValues
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import EMPTY, Evaluation, to_frame
from rankbound.lists import Lists
from rankbound.measures import LabelCounts, Measure, parse_measure

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["align_evaluations", "align_lists", "align_runs"]


def align_runs(
    qrels: Any,
    runs: Sequence[Any],
    measures: Iterable[str | Measure],
    *,
    names: Sequence[str] | None = None,
    data: str = "",
    ties: str = "average",
    empty: str = "skip",
    missing: str = "ignore",
    judged_only: bool = False,
    depth: int | None = None,
    candidates: Any = "judged",
    judged_outside: str = "error",
) -> ScoreMatrix:
    """Evaluate runs (paths, dicts, frames) on the queries that all of them have.

    The policies are those of `rankbound.evaluate`. The runs are evaluated one after the other, so that memory holds the
    documents of one run at a time.
    """
    from rankbound.data.judged import from_frames

    source = read_candidates(candidates, judged_outside)
    judgments, source = source.take_column(to_frame(qrels, "label", column=source.column))
    judged, *returned = _alike([judgments, *(to_frame(run, "score") for run in runs)])
    have = [set(frame["qid"].unique()) for frame in returned]
    known = set(judged["qid"].unique())
    common = known.intersection(*have) if missing == "ignore" else known
    if not common:
        raise DataError("the judgments and the runs have no query in common")
    left_out = len(known.intersection(set().union(*have)) - common)
    judged, *returned = (frame.filter(frame["qid"].is_in(list(common))) for frame in (judged, *returned))
    source = source.of_queries(judged["qid"].unique())

    def lists() -> Iterable[Lists]:
        return (
            from_frames(
                judged, run, missing=missing, judged_only=judged_only,
                candidates=source.table, judged_outside=source.judged_outside,
            )
            for run in returned
        )  # fmt: skip

    matrix = _align_rankings(
        lists(), measures, _names(names, len(runs)), ties=ties, empty=empty, depth=depth, data=data,
        candidates=source.rule, same_candidates=source.rule != "returned", left_out=left_out,
    )  # fmt: skip
    return replace(matrix, candidates=describe_candidates(candidates))


def align_lists(
    runs: Sequence[Lists],
    measures: Iterable[str | Measure],
    *,
    names: Sequence[str] | None = None,
    data: str = "",
    ties: str = "average",
    empty: str = "skip",
    depth: int | None = None,
    candidates: str = "judged",
) -> ScoreMatrix:
    """Evaluate scored lists, one for each run, on the queries that all of them have.

    Where the runs have different candidates, the values of each run are normalized by its own bounds, types and
    expected values come from the mean over the runs, and the numbers of items and relevant items are those of the
    first run.
    """
    return _align_rankings(
        runs, measures, _names(names, len(runs)), ties=ties, empty=empty, depth=depth, data=data,
        candidates=candidates, same_candidates=False, left_out=None,
    )  # fmt: skip


def align_evaluations(
    runs: Sequence[Evaluation],
    measures: Iterable[str | Measure] | None,
    *,
    names: Sequence[str] | None = None,
    data: str = "",
) -> ScoreMatrix:
    """Take the values of evaluations as they are, on the queries that all of them have.

    Types of queries need the plain measure and its bounds in every evaluation: ``evaluate(..., bounds=True)``.
    """
    if measures is None:
        chosen = [name for name in runs[0].measures if all(name in run.values for run in runs)]
    else:
        chosen = list(_named_measures(measures))
    for run in runs:
        if not chosen or any(name not in run.values for name in chosen):
            required = ", ".join(chosen or runs[0].measures)
            raise ArgumentError(f"every evaluation must have {required}; one has {', '.join(run.values)}")
    query_ids, indices, left_out = _common_queries([run.query_ids for run in runs])
    result: dict[str, NDArray[np.float64]] = {}
    types: dict[str, NDArray[np.str_]] = {}
    expected: dict[str, NDArray[np.float64]] = {}
    for name in chosen:
        result[name] = np.stack([run.values[name][index] for run, index in zip(runs, indices, strict=True)])
        known = _plain_values_and_bounds(runs, parse_measure(name).plain, indices)
        if known is not None:
            counted = np.asarray(np.isfinite(result[name]).all(axis=0) & np.isfinite(known[0]))
            types[name] = _types(parse_measure(name), counted, *known)
            expected[name] = known[1]
    used = {run.candidates for run in runs}
    return ScoreMatrix(
        _names(names, len(runs)),
        tuple(query_ids),
        result,
        types,
        expected,
        sources=((data, ""),),
        left_out=left_out,
        candidates=used.pop() if len(used) == 1 else "different",
    )


# ---- values and difficulty -------------------------------------------------------------------------------------------


def _plain_values_and_bounds(
    runs: Sequence[Evaluation], measure: Measure, indices: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64] | None:
    """Value, expected, best and worst of each query, averaged over the runs; None where an evaluation lacks them."""
    known = []
    for run, index in zip(runs, indices, strict=True):
        key = next((name for name in run.bounds if parse_measure(name) == measure), None)
        if key is None:
            return None
        bounds = run.bounds[key]
        value = run.complete.get(key, run.values[key])
        known.append([array[index] for array in (value, bounds.expected, bounds.best, bounds.worst)])
    return np.asarray(np.mean(known, axis=0))


def _align_rankings(
    runs: Iterable[Lists],
    measures: Iterable[str | Measure],
    names: tuple[str, ...],
    *,
    ties: str,
    empty: str,
    depth: int | None,
    data: str,
    candidates: str,
    same_candidates: bool,
    left_out: int | None,
) -> ScoreMatrix:
    """The matrix of scored lists, which may be a generator; with ``same_candidates`` difficulty is computed once."""
    if empty not in EMPTY:
        raise ArgumentError(f"empty must be one of {', '.join(EMPTY)}, got {empty!r}")
    requested = _named_measures(measures)
    plain = list(dict.fromkeys(measure.plain for measure in requested.values()))
    evaluated: list[_Run] = []
    for lists in runs:
        known = evaluated[0] if same_candidates and evaluated else None
        evaluated.append(_Run(lists, requested.values(), plain, empty, known, ties, depth, candidates))
    query_ids, indices, unshared = _common_queries([run.query_ids for run in evaluated])
    result, types, expected = {}, {}, {}
    means: dict[Measure, NDArray[np.float64]] = {
        base: np.asarray(
            np.mean([run.value_and_bounds(base, index) for run, index in zip(evaluated, indices, strict=True)], axis=0)
        )
        for base in plain
    }
    for name, measure in requested.items():
        rows = [run.values[measure][index] for run, index in zip(evaluated, indices, strict=True)]
        result[name] = np.stack(rows)
        counted = np.asarray(np.isfinite(result[name]).all(axis=0))
        types[name] = _types(measure.plain, counted, *means[measure.plain])
        expected[name] = means[measure.plain][1]
    counts, first = evaluated[0].counts, indices[0]
    return ScoreMatrix(
        names,
        tuple(query_ids),
        result,
        types,
        expected,
        counts.sizes[first],
        counts.relevant(1)[first],
        sources=((data, ""),),
        left_out=unshared if left_out is None else left_out,
        candidates=candidates,
    )


class _Run:
    """The values of one run, with the difficulty of its queries; the ranking itself is not kept."""

    def __init__(
        self,
        lists: Lists,
        measures: Iterable[Measure],
        plain: Sequence[Measure],
        empty: str,
        same: _Run | None,
        ties: str,
        depth: int | None,
        candidates: str,
    ) -> None:
        self.query_ids = lists.query_ids
        # queries may come in another order in another run, and then its difficulty does not fit
        if same is not None and not np.array_equal(np.asarray(same.query_ids), np.asarray(self.query_ids)):
            same = None
        self.difficulties: dict[Measure, Difficulty] = {} if same is None else same.difficulties
        run = RunValues(lists, ties=ties, depth=depth, candidates=candidates, difficulties=self.difficulties)
        stand_in = {"skip": np.nan, "zero": 0.0, "one": 1.0}[empty]
        self.values = {measure: np.where(run.has_value(measure), run.value(measure), stand_in) for measure in measures}
        self.complete = {measure: run.complete(measure) for measure in plain}
        for measure in plain:
            run.difficulty(measure)
        self.counts: LabelCounts = run.counts if same is None else same.counts

    def value_and_bounds(self, measure: Measure, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Value, expected, best and worst of a plain measure on some queries."""
        difficulty = self.difficulties[measure]
        arrays = (self.complete[measure], difficulty.expected, difficulty.best, difficulty.worst)
        return np.stack([array[index] for array in arrays])


def _types(
    measure: Measure,
    counted: NDArray[np.bool_],
    value: NDArray[np.float64],
    expected: NDArray[np.float64],
    best: NDArray[np.float64],
    worst: NDArray[np.float64],
) -> NDArray[np.str_]:
    """Types of the counted queries, "" elsewhere."""
    result = np.full(len(value), "", dtype="<U13")
    if counted.any():
        result[counted] = types_of(measure, *(array[counted] for array in (value, expected, best, worst)))
    return result


# ---- the same queries and candidates ---------------------------------------------------------------------------------


def _names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    return tuple(f"run {number}" for number in range(1, count + 1)) if names is None else tuple(names)


def _named_measures(measures: Iterable[str | Measure]) -> dict[str, Measure]:
    names = [measures] if isinstance(measures, (str, Measure)) else list(measures)
    if not names:
        raise ArgumentError("measures must name at least one measure, got none")
    return {str(name): parse_measure(name) for name in names}


def _common_queries(query_ids: Sequence[Any]) -> tuple[list[Any], list[NDArray[np.int64]], int]:
    """The queries that all runs have, in the first one's order; their indices in each run; how many only some have."""
    named = [np.asarray(ids).tolist() for ids in query_ids]
    if all(ids == named[0] for ids in named[1:]):
        return named[0], [np.arange(len(named[0]))] * len(named), 0
    index_of = [{name: index for index, name in enumerate(ids)} for ids in named]
    common = [name for name in named[0] if all(name in known for known in index_of)]
    if not common:
        raise DataError(f"the runs have no query in common (their first queries are {[ids[:1] for ids in named]})")
    indices = [np.array([known[name] for name in common]) for known in index_of]
    return common, indices, len(set().union(*index_of)) - len(common)


def _alike(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """The frames with query and document ids of one type: unchanged where they agree, else as text."""
    import polars as pl

    for name in ("qid", "docid"):
        if any(frame[name].null_count() for frame in frames):
            raise DataError(f"column {name!r} must have no empty entries")
        if len({frame[name].dtype for frame in frames}) > 1:
            frames = [frame.with_columns(pl.col(name).cast(pl.String)) for frame in frames]
    return frames
