"""Runs, scored lists and evaluations, aligned on the same queries: every function here returns a `ScoreMatrix`.

What a random ranking scores depends on the candidates of a query. They are a property of the query (see
`rankbound.difficulty.candidates`), so that a run has the same values here as in `rankbound.evaluate`, whatever it is
compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankbound.data.candidates import read_candidates
from rankbound.data.frames import with_equal_id_types
from rankbound.data.judged import from_frames
from rankbound.data.sources import queries_without_documents, to_frame
from rankbound.difficulty import Difficulty
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.lists import evaluate_lists
from rankbound.evaluation.query_sets import types_of
from rankbound.evaluation.references import references_of
from rankbound.evaluation.result import Evaluation
from rankbound.evaluation.scores import QueryDifficulty, ScoreMatrix
from rankbound.lists import Coverage, Lists
from rankbound.measures import Measure, parse_measure
from rankbound.protocol import MISSING, Protocol

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.difficulty.p_values import PValues


class _SharedQueries(NamedTuple):
    """Judgments and runs as frames of the queries that all of them have, with query ids of one type.

    ``nothing`` has the queries for which each run says that it returned no document. ``known`` are all judged queries,
    ``have`` the queries of each run, and ``common`` those that the frames are about.
    """

    judged: pl.DataFrame
    returned: list[pl.DataFrame]
    nothing: list[list[str]]
    known: set[Any]
    have: list[set[Any]]
    common: set[Any]

    def lists(self, missing: str, **options: Any) -> Iterator[Lists]:
        """The lists of each run, made one after the other."""
        for run, more in zip(self.returned, self.nothing, strict=True):
            yield from_frames(self.judged, run, missing=missing, returned_nothing=more, **options)


def _read_shared_queries(judgments: pl.DataFrame, runs: Sequence[Any], missing: str) -> _SharedQueries:
    """Read runs, and leave out the queries that not all of them have; all judged ones stay for ``missing="zero"``."""
    judged, *returned = with_equal_id_types([judgments, *(to_frame(run, "score") for run in runs)])
    known = set(judged["qid"].unique())
    nothing = [queries_without_documents(run) for run in runs]
    have = [
        set(frame["qid"].unique()) | known.intersection(more) for frame, more in zip(returned, nothing, strict=True)
    ]
    common = known.intersection(*have) if missing == "ignore" else known
    if not common:
        raise DataError("the judgments and the runs have no query in common")
    judged, *returned = (frame.filter(frame["qid"].is_in(list(common))) for frame in (judged, *returned))
    return _SharedQueries(judged, returned, nothing, known, have, common)


def lists_on_shared_queries(qrels: Any, runs: Sequence[Any], missing: str = MISSING[0]) -> list[Lists]:
    """Judgments with each run, as Lists of the queries that `align_runs` compares."""
    return list(_read_shared_queries(to_frame(qrels, "label"), runs, missing).lists(missing))


def align_runs(
    qrels: Any,
    runs: Sequence[Any],
    measures: Iterable[str | Measure] | Mapping[str, Measure],
    protocol: Protocol = Protocol(),  # noqa: B008  # immutable
    *,
    names: Sequence[str] | None = None,
    data: str = "",
    type_quota: float | None = None,
    against_random: bool = False,
) -> ScoreMatrix:
    """Evaluate runs (paths, dicts, frames) on the queries that all of them have.

    ``type_quota`` is the quota of `rankbound.query_types`. The runs are evaluated one after the other, so that memory
    holds the documents of one run at a time.
    """
    missing = protocol.missing
    source = read_candidates(protocol.candidates, protocol.judged_outside)
    judgments, source = source.take_column(to_frame(qrels, "label", column=source.column))
    requested = _named_measures(measures)
    resolved = replace(protocol, candidates=source, references=references_of(judgments, requested, protocol))
    shared = _read_shared_queries(judgments, runs, missing)
    in_any = shared.known.intersection(set().union(*shared.have))
    source = source.of_queries(shared.judged["qid"].unique())
    resolved = replace(resolved, candidates=source)
    lists = shared.lists(missing, judged_only=protocol.judged_only, candidates=source)
    matrix = align_evaluations(
        _evaluate_each(lists, requested, resolved, against_random=against_random, share=source.rule != "returned"),
        requested,
        names=names,
        data=data,
        type_quota=type_quota,
    )
    if resolved.references is not None:
        resolved.references.check_covers(list(matrix.query_ids))
    coverage = [
        replace(
            coverage,
            missing_queries=len(shared.known - queries),
            unjudged_queries=len(queries - shared.known),
            shared_queries=len(shared.known & queries),
        )
        for coverage, queries in zip(matrix.coverage, shared.have, strict=True)
    ]
    return replace(
        matrix,
        left_out=len(in_any - shared.common),
        candidates=source.name,
        protocol=replace(resolved, candidates=source.name),
        coverage=tuple(coverage),
        never_returned=len(shared.known - in_any),
        standardized_by="" if resolved.references is None else resolved.references.describe(),
    )


def align_lists(
    runs: Sequence[Lists],
    measures: Iterable[str | Measure],
    protocol: Protocol = Protocol(),  # noqa: B008  # immutable
    *,
    names: Sequence[str] | None = None,
    data: str = "",
    type_quota: float | None = None,
    against_random: bool = False,
) -> ScoreMatrix:
    """Evaluate scored lists, one for each run, on the queries that all of them have.

    Where the runs have different candidates, the values of each run are normalized by its own bounds, types and
    expected values come from the mean over the runs, and the numbers of items and relevant items are those of the
    first run.
    """
    requested = _named_measures(measures)
    resolved = replace(protocol, references=references_of(None, requested, protocol))
    evaluated = _evaluate_each(runs, requested, resolved, against_random=against_random, share=False)
    matrix = align_evaluations(evaluated, requested, names=names, type_quota=type_quota, data=data)
    if resolved.references is None:
        return matrix
    resolved.references.check_covers(list(matrix.query_ids))
    return replace(matrix, standardized_by=resolved.references.describe())


def _evaluate_each(
    runs: Iterable[Lists], requested: Mapping[str, Measure], protocol: Protocol, *, against_random: bool, share: bool
) -> list[Evaluation]:
    """Evaluate runs with all that a score matrix shows; p-values against random rankings by the first measure alone.

    With ``share``, runs with the same queries have the same candidates, and their difficulty is computed once.
    """
    plain = {str(measure.plain): measure.plain for measure in requested.values()}
    lead = dict([next(iter(plain.items()))]) if against_random else {}
    results: list[Evaluation] = []
    known: dict[Measure, Difficulty] = {}
    for lists in runs:
        # queries may come in another order in another run, and then its difficulty does not fit
        is_same = share and (not results or np.array_equal(results[0].query_ids, lists.query_ids))
        difficulties = known if is_same else {}
        result = evaluate_lists(lists, {**plain, **requested}, protocol, bounds=True, difficulties=difficulties)
        if lead:
            tested = evaluate_lists(lists, lead, protocol, against_random=True, difficulties=difficulties)
            result = replace(result, p_values=tested.p_values)
        results.append(result)
    return results


def align_evaluations(
    runs: Sequence[Evaluation],
    measures: Iterable[str | Measure] | Mapping[str, Measure] | None,
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
    first = runs[0]
    used = {run.candidates for run in runs}
    protocols = [run.protocol for run in runs]
    is_one = all(protocol is protocols[0] or protocol.describe() == protocols[0].describe() for protocol in protocols)
    coverage = tuple(run.coverage for run in runs)
    return ScoreMatrix(
        _names(names, len(runs)),
        tuple(query_ids),
        result,
        difficulty,
        items=first.items[indices[0]] if first.items is not None else None,
        relevant=first.relevant[indices[0]] if first.relevant is not None else None,
        sources=((data, ""),),
        type_quota=type_quota,
        left_out=left_out,
        p_values=_p_values(runs, indices, chosen[0]),
        candidates=used.pop() if len(used) == 1 else "different",
        protocol=protocols[0] if is_one else None,
        coverage=coverage,
        never_returned=_in_no_run(coverage, [run.queries for run in runs], len(query_ids) + left_out),
    )


def _p_values(runs: Sequence[Evaluation], indices: Sequence[NDArray[np.int64]], lead: str) -> tuple[PValues, ...]:
    """The p-values of all runs by the plain first measure; none if one of them lacks these."""
    plain, found = parse_measure(lead).plain, []
    for run, index in zip(runs, indices, strict=True):
        key = next((name for name in run.p_values if parse_measure(name) == plain), None)
        if key is None:
            return ()
        found.append(run.p_values[key].take(index))
    return tuple(found)


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


def run_names(runs: Sequence[Any]) -> tuple[str, ...]:
    """What to call runs: files by their names, by their paths where names are not enough, others by number.

    >>> run_names(["runs/a.txt", "runs/b.txt"]), run_names(["x/run.txt", "y/run.txt"]), run_names([{}, {}])
    (('a.txt', 'b.txt'), ('x/run.txt', 'y/run.txt'), ('run 1', 'run 2'))
    """
    paths = [str(run) if isinstance(run, (str, PathLike)) else None for run in runs]
    names = [f"run {i}" if path is None else Path(path).name for i, path in enumerate(paths, start=1)]
    if len(set(names)) < len(names):  # files of one name in different folders
        names = [path or name for path, name in zip(paths, names, strict=True)]
    return tuple(name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, start=1))


def _named_measures(measures: Iterable[str | Measure] | Mapping[str, Measure]) -> dict[str, Measure]:
    if isinstance(measures, Mapping):
        return dict(measures)
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
