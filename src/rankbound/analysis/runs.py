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
from rankbound.analysis.scores import QueryDifficulty, ScoreMatrix
from rankbound.data.candidates import read_candidates
from rankbound.data.frames import with_equal_id_types
from rankbound.data.sources import to_frame
from rankbound.difficulty import Difficulty
from rankbound.difficulty.run_values import RunValues
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import EMPTY, Evaluation, judged_coverage, references_of
from rankbound.lists import Coverage, Lists
from rankbound.measures import LabelCounts, Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.standardization import ReferenceScores

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
    type_quota: float | None = None,
    references: Any = None,
    against_random: bool = False,
) -> ScoreMatrix:
    """Evaluate runs (paths, dicts, frames) on the queries that all of them have.

    The policies are those of `rankbound.evaluate`, and ``type_quota`` is the quota of `rankbound.query_types`. The runs
    are evaluated one after the other, so that memory holds the documents of one run at a time.
    """
    from rankbound.data.judged import from_frames

    source = read_candidates(candidates, judged_outside)
    judgments, source = source.take_column(to_frame(qrels, "label", column=source.column))
    requested = _named_measures(measures)
    reference_scores = references_of(
        judgments, references, requested, ties=ties, missing=missing, judged_only=judged_only, depth=depth
    )
    judged, *returned = with_equal_id_types([judgments, *(to_frame(run, "score") for run in runs)])
    have = [set(frame["qid"].unique()) for frame in returned]
    known = set(judged["qid"].unique())
    common = known.intersection(*have) if missing == "ignore" else known
    if not common:
        raise DataError("the judgments and the runs have no query in common")
    in_any = known.intersection(set().union(*have))
    left_out, never_returned = len(in_any - common), len(known - in_any)
    judged, *returned = (frame.filter(frame["qid"].is_in(list(common))) for frame in (judged, *returned))
    source = source.of_queries(judged["qid"].unique())

    def lists() -> Iterable[Lists]:
        return (
            from_frames(
                judged, run, missing=missing, judged_only=judged_only,
                candidates=source,
            )
            for run in returned
        )  # fmt: skip

    matrix = _align_rankings(
        lists(), requested, _names(names, len(runs)), ties=ties, empty=empty, depth=depth, data=data,
        candidates=source.rule, same_candidates=source.rule != "returned", left_out=left_out, type_quota=type_quota,
        references=reference_scores, against_random=against_random,
    )  # fmt: skip
    coverage = [
        replace(
            coverage,
            missing_queries=len(known - queries),
            unjudged_queries=len(queries - known),
            shared_queries=len(known & queries),
        )
        for coverage, queries in zip(matrix.coverage, have, strict=True)
    ]
    return replace(
        matrix,
        candidates=source.name,
        coverage=tuple(coverage),
        never_returned=never_returned,
    )


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
    type_quota: float | None = None,
    references: Any = None,
    against_random: bool = False,
) -> ScoreMatrix:
    """Evaluate scored lists, one for each run, on the queries that all of them have.

    Where the runs have different candidates, the values of each run are normalized by its own bounds, types and
    expected values come from the mean over the runs, and the numbers of items and relevant items are those of the
    first run.
    """
    requested = _named_measures(measures)
    return _align_rankings(
        runs, requested, _names(names, len(runs)), ties=ties, empty=empty, depth=depth, data=data,
        candidates=candidates, same_candidates=False, left_out=None, type_quota=type_quota,
        references=references_of(None, references, requested, ties=ties, depth=depth), against_random=against_random,
    )  # fmt: skip


def align_evaluations(
    runs: Sequence[Evaluation],
    measures: Iterable[str | Measure] | None,
    *,
    names: Sequence[str] | None = None,
    data: str = "",
    type_quota: float | None = None,
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
    difficulty: dict[str, QueryDifficulty] = {}
    for name in chosen:
        result[name] = np.stack([run.values[name][index] for run, index in zip(runs, indices, strict=True)])
        measure = parse_measure(name)
        known = _complete_values_and_bounds(runs, measure.plain, indices)
        if known is not None:
            counted = np.isfinite(result[name]).all(axis=0) | _have_no_choice(runs, name, indices)
            counted &= np.isfinite(known).all(axis=(0, 1))
            difficulty[name] = _difficulty(measure.plain, known, counted, type_quota)
    used = {run.candidates for run in runs}
    coverage = tuple(run.coverage for run in runs)
    return ScoreMatrix(
        _names(names, len(runs)),
        tuple(query_ids),
        result,
        difficulty,
        sources=((data, ""),),
        type_quota=type_quota,
        left_out=left_out,
        candidates=used.pop() if len(used) == 1 else "different",
        coverage=coverage,
        never_returned=_in_no_run(coverage, [run.queries for run in runs], len(query_ids) + left_out),
    )


# ---- values and difficulty -------------------------------------------------------------------------------------------


def _have_no_choice(runs: Sequence[Evaluation], name: str, indices: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Queries that have no choice by a measure in every evaluation."""
    result = np.ones(len(indices[0]), dtype=bool)
    for run, index in zip(runs, indices, strict=True):
        result &= run.no_choice[name][index] if name in run.no_choice else False
    return result


def _complete_values_and_bounds(
    runs: Sequence[Evaluation], measure: Measure, indices: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64] | None:
    """Runs x (value, expected, best, worst) x queries; None where an evaluation lacks them."""
    known = []
    for run, index in zip(runs, indices, strict=True):
        key = next((name for name in run.bounds if parse_measure(name) == measure), None)
        if key is None:
            return None
        bounds = run.bounds[key]
        value = run.complete.get(key, run.values[key])
        known.append([array[index] for array in (value, bounds.expected, bounds.best, bounds.worst)])
    return np.asarray(known)


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
    type_quota: float | None,
    references: ReferenceScores | None,
    against_random: bool,
) -> ScoreMatrix:
    """The matrix of scored lists, which may be a generator; with ``same_candidates`` difficulty is computed once."""
    if empty not in EMPTY:
        raise ArgumentError(f"empty must be one of {', '.join(EMPTY)}, got {empty!r}")
    requested = _named_measures(measures)
    plain = list(dict.fromkeys(measure.plain for measure in requested.values()))
    evaluated: list[_Run] = []
    for lists in runs:
        same = evaluated[0] if same_candidates and evaluated else None
        run = _Run(lists, requested.values(), plain, empty, same, ties, depth, candidates, references, against_random)
        evaluated.append(run)
    query_ids, indices, unshared = _common_queries([run.query_ids for run in evaluated])
    if references is not None:
        references.check_covers(query_ids)
    result, difficulty = {}, {}
    known = {
        base: np.stack([run.value_and_bounds(base, index) for run, index in zip(evaluated, indices, strict=True)])
        for base in plain
    }
    for name, measure in requested.items():
        rows = [run.values[measure][index] for run, index in zip(evaluated, indices, strict=True)]
        result[name] = np.stack(rows)
        no_choice = [run.no_choice[measure.plain][index] for run, index in zip(evaluated, indices, strict=True)]
        counted = np.isfinite(result[name]).all(axis=0) | np.all(no_choice, axis=0)
        difficulty[name] = _difficulty(measure.plain, known[measure.plain], counted, type_quota)
    counts, first = evaluated[0].counts, indices[0]
    coverage = tuple(run.coverage for run in evaluated)
    return ScoreMatrix(
        names,
        tuple(query_ids),
        result,
        difficulty,
        counts.sizes[first],
        counts.relevant(1)[first],
        sources=((data, ""),),
        type_quota=type_quota,
        left_out=unshared if left_out is None else left_out,
        candidates=candidates,
        coverage=coverage,
        never_returned=_in_no_run(coverage, [len(run.query_ids) for run in evaluated], len(query_ids) + unshared),
        standardized_by="" if references is None else references.describe(),
        p_values=tuple(
            run.p_values.take(index) for run, index in zip(evaluated, indices, strict=True) if run.p_values is not None
        ),
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
        references: ReferenceScores | None,
        against_random: bool,
    ) -> None:
        self.query_ids = lists.query_ids
        # queries may come in another order in another run, and then its difficulty does not fit
        if same is not None and not np.array_equal(np.asarray(same.query_ids), np.asarray(self.query_ids)):
            same = None
        self.difficulties: dict[Measure, Difficulty] = {} if same is None else same.difficulties
        run = RunValues(
            lists, ties=ties, depth=depth, candidates=candidates, difficulties=self.difficulties, references=references
        )
        self.coverage = judged_coverage(lists, run.plain, plain)
        self.values = {measure: run.value_or(measure, empty) for measure in measures}
        self.complete = {measure: run.complete(measure) for measure in plain}
        self.no_choice = {measure: run.has_no_choice(measure) for measure in plain}
        self.p_values = run.p_values(plain[0]) if against_random else None
        self.counts: LabelCounts = run.counts if same is None else same.counts

    def value_and_bounds(self, measure: Measure, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Value, expected, best and worst of a plain measure on some queries."""
        difficulty = self.difficulties[measure]
        arrays = (self.complete[measure], difficulty.expected, difficulty.best, difficulty.worst)
        return np.stack([array[index] for array in arrays])


def _difficulty(
    measure: Measure, known: NDArray[np.float64], counted: NDArray[np.bool_], type_quota: float | None
) -> QueryDifficulty:
    """Difficulty by a plain measure, from runs x (value, expected, best, worst) x queries; types of counted queries."""
    value, expected, best, worst = known.mean(axis=0)
    types = np.full(len(value), "", dtype="<U13")
    if counted.any():
        bounds = (array[counted] for array in (value, expected, best, worst))
        types[counted] = types_of(measure, *bounds, quota=type_quota)
    return QueryDifficulty(types, expected, worst, best, known[:, 0])


# ---- the same queries and candidates ---------------------------------------------------------------------------------


def _names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    return tuple(f"run {number}" for number in range(1, count + 1)) if names is None else tuple(names)


def _named_measures(measures: Iterable[str | Measure]) -> dict[str, Measure]:
    names = [measures] if isinstance(measures, (str, Measure)) else list(measures)
    if not names:
        raise ArgumentError("measures must name at least one measure, got none")
    return {str(name): parse_measure(name) for name in names}


def _common_queries(query_ids: Sequence[Any]) -> tuple[list[Any], list[NDArray[np.int64]], int]:
    """The queries that all runs have, in order of their ids; their indices in each run; how many only some have.

    In this order signs and samples are drawn for tests and intervals, which therefore do not depend on the order of the
    data. Shorter ids come first: q2 before q10.
    """
    named = [np.asarray(ids).tolist() for ids in query_ids]
    if all(ids == named[0] for ids in named[1:]):
        common, indices, unshared = named[0], [np.arange(len(named[0]))] * len(named), 0
    else:
        index_of = [{name: index for index, name in enumerate(ids)} for ids in named]
        common = [name for name in named[0] if all(name in known for known in index_of)]
        if not common:
            raise DataError(f"the runs have no query in common (their first queries are {[ids[:1] for ids in named]})")
        indices = [np.array([known[name] for name in common]) for known in index_of]
        unshared = len(set().union(*index_of)) - len(common)
    text = np.array([str(name) for name in common], dtype=np.str_)
    order = np.lexsort((text, np.char.str_len(text)))
    return [common[index] for index in order], [index[order] for index in indices], unshared


def _in_no_run(coverage: Sequence[Coverage], evaluated: Sequence[int], in_any: int) -> int | None:
    """How many queries are judged and in no run, if every run was evaluated on its own queries and the same judgments.

    ``evaluated`` has the number of evaluated queries of each run, ``in_any`` that of the queries that any run has.
    """
    judged = {part.judged_queries for part in coverage}
    own = all(part.shared_queries == queries for part, queries in zip(coverage, evaluated, strict=True))
    return judged.pop() - in_any if own and len(judged) == 1 and min(judged) >= in_any else None
