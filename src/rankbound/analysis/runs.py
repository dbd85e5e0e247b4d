"""Runs on one yardstick: the same queries, the same candidates, and so the same difficulty for every run.

What a random ranker scores depends on the candidates of a query. Runs that are to be compared are therefore measured
against the same three numbers: the candidates are all documents that were judged or that any of the runs returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty import Difficulty, difficulty_of, get_bounding, query_types
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import EMPTY, Evaluation, to_frame
from rankbound.lists import Lists
from rankbound.measures import LabelCounts, Measure, Ranked, is_defined, parse_measure, values

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["SharedQueries", "difference", "is_lower_better", "share_evaluations", "share_lists", "share_runs"]


_ROUNDING = 1e-12  # differences smaller than this are the noise of floating-point sums, and count as none


def difference(value: NDArray[np.float64], baseline: NDArray[np.float64]) -> NDArray[np.float64]:
    """Value minus baseline, exactly 0 where the two differ by rounding only."""
    d = value - baseline
    return np.where(np.abs(d) < _ROUNDING, 0.0, d)


def is_lower_better(measure: str | Measure) -> bool:
    """Plain and over its expectation a measure keeps its direction; all other boundings turn it upwards."""
    measure = parse_measure(measure)
    return measure.info.lower_is_better and measure.bounding in ("none", "expectation")


def types_of(
    measure: Measure,
    value: NDArray[np.float64],
    expected: NDArray[np.float64],
    best: NDArray[np.float64],
    worst: NDArray[np.float64],
    *,
    share: float = 0.1,
) -> NDArray[Any]:
    """`query_types` by values of a plain measure, turned so that 0 is nothing and higher is better."""
    if measure.info.lower_is_better:
        value, expected, best = worst - value, worst - expected, worst - best
    else:
        value, expected, best = (part - measure.info.floor for part in (value, expected, best))
    return query_types(value, expected, best, share=share)


@dataclass(frozen=True, eq=False)
class SharedQueries:
    """Values of several runs on the queries that all of them have.

    ``values[measure]`` is runs x queries, NaN where a query does not count for the measure. ``types[measure]`` names
    each query's type ("" where it does not count); measures whose difficulty is unknown are not in it. ``left_out``
    counts the queries that some runs have and others lack.
    """

    query_ids: Any
    values: Mapping[str, NDArray[np.float64]]
    types: Mapping[str, NDArray[np.str_]]
    left_out: int

    def counted(self, measure: str) -> NDArray[np.bool_]:
        """Queries that count for the measure in every run."""
        return _finite_in_all(self.values[measure])


def share_runs(
    qrels: Any,
    runs: Sequence[Any],
    measures: Iterable[str | Measure],
    *,
    ties: str = "average",
    empty: str = "skip",
    missing: str = "ignore",
    judged_only: bool = False,
    depth: int | None = None,
) -> SharedQueries:
    """Evaluate runs (paths, dicts, frames) against judgments; the policies are those of `rankbound.evaluate`."""
    from rankbound.data.judged import from_frames

    judged, *returned = _alike([to_frame(qrels, "label"), *(to_frame(run, "score") for run in runs)])
    have = [set(frame["qid"].unique()) for frame in returned]
    known = set(judged["qid"].unique())
    common = known.intersection(*have) if missing == "ignore" else known
    if not common:
        raise DataError("the judgments and the runs have no query in common")
    left_out = len(known.intersection(set().union(*have)) - common)
    judged, *returned = (frame.filter(frame["qid"].is_in(list(common))) for frame in (judged, *returned))
    if not judged_only:  # there, only judged documents are candidates
        judged = _with_returned_documents(judged, returned)
    lists = [from_frames(judged, run, missing=missing, judged_only=judged_only) for run in returned]
    return replace(share_lists(lists, measures, ties=ties, empty=empty, depth=depth), left_out=left_out)


def share_lists(
    runs: Sequence[Lists],
    measures: Iterable[str | Measure],
    *,
    ties: str = "average",
    empty: str = "skip",
    depth: int | None = None,
) -> SharedQueries:
    """Evaluate scored lists, one for each run, on the queries that all of them have.

    The lists of a query are taken as they are: where they hold different candidates, each run keeps its own difficulty,
    and the types of queries come from the mean over the runs.
    """
    if empty not in EMPTY:
        raise ArgumentError(f"empty must be one of {', '.join(EMPTY)}, got {empty!r}")
    query_ids, places, left_out = _align([lists.query_ids for lists in runs])
    rankings = [Ranked(lists, ties, depth) for lists in runs]
    counts = [ranking.counts for ranking in rankings]
    plain: dict[Measure, _PlainValues] = {}
    result: dict[str, NDArray[np.float64]] = {}
    types: dict[str, NDArray[np.str_]] = {}
    for name, measure in _named_measures(measures).items():
        base = measure.plain
        if base not in plain:
            plain[base] = _PlainValues(base, rankings, counts, places)
        result[name] = plain[base].bounded(measure, empty)
        types[name] = plain[base].types(_finite_in_all(result[name]))
    return SharedQueries(query_ids, result, types, left_out)


def share_evaluations(runs: Sequence[Evaluation], measures: Iterable[str | Measure] | None) -> SharedQueries:
    """Take the values of evaluations as they are, on the queries that all of them have.

    Types of queries need the plain measure and its bounds in every evaluation: ``evaluate(..., bounds=True)``.
    """
    if measures is None:
        names = [name for name in runs[0].measures if all(name in run.values for run in runs)]
    else:
        names = list(_named_measures(measures))
    for run in runs:
        if not names or any(name not in run.values for name in names):
            asked = ", ".join(names or runs[0].measures)
            raise ArgumentError(f"every evaluation must have {asked}; one has {', '.join(run.values)}")
    query_ids, places, left_out = _align([run.query_ids for run in runs])
    result: dict[str, NDArray[np.float64]] = {}
    types: dict[str, NDArray[np.str_]] = {}
    for name in names:
        result[name] = np.stack([run.values[name][place] for run, place in zip(runs, places, strict=True)])
        known = _plain_values_and_bounds(runs, parse_measure(name).plain, places)
        if known is not None:
            counted = _finite_in_all(result[name]) & np.isfinite(known[0])
            types[name] = _types(parse_measure(name), counted, *known)
    return SharedQueries(query_ids, result, types, left_out)


def _plain_values_and_bounds(
    runs: Sequence[Evaluation], measure: Measure, places: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64] | None:
    """Value, expected, best, worst of each query, mean over the runs; None where an evaluation does not know them."""
    found = []
    for run, place in zip(runs, places, strict=True):
        key = next((name for name in run.bounds if parse_measure(name) == measure), None)
        if key is None:
            return None
        three = run.bounds[key]
        found.append([part[place] for part in (run.values[key], three.expected, three.best, three.worst)])
    return np.asarray(np.mean(found, axis=0))


class _PlainValues:
    """One plain measure of every run on the shared queries, with what its boundings need."""

    def __init__(
        self,
        measure: Measure,
        rankings: Sequence[Ranked],
        counts: Sequence[LabelCounts],
        places: Sequence[NDArray[np.int64]],
    ) -> None:
        self._measure, self._places = measure, places
        self._values = [values(ranking, measure) for ranking in rankings]
        self._difficulty: list[Difficulty] = [difficulty_of(measure, count) for count in counts]
        self._nothing = [~is_defined(count, measure) for count in counts]

    def bounded(self, measure: Measure, empty: str) -> NDArray[np.float64]:
        """Runs x queries of the plain measure or of a bounding of it."""
        bounding = get_bounding(measure.bounding)
        stand_in = {"skip": np.nan, "zero": 0.0, "one": 1.0}[empty]
        rows = []
        for value, difficulty, nothing, place in zip(
            self._values, self._difficulty, self._nothing, self._places, strict=True
        ):
            bounded = bounding.apply(value, difficulty)[0]
            rows.append(np.where(nothing | ~bounding.defined(difficulty), stand_in, bounded)[place])
        return np.stack(rows)

    def types(self, counted: NDArray[np.bool_]) -> NDArray[np.str_]:
        """Types of the queries by the mean over the runs."""
        found = [
            [part[place] for part in (value, difficulty.expected, difficulty.best, difficulty.worst)]
            for value, difficulty, place in zip(self._values, self._difficulty, self._places, strict=True)
        ]
        return _types(self._measure, counted, *np.mean(found, axis=0))


def _finite_in_all(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(rows).all(axis=0))


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
        result[counted] = types_of(measure, *(part[counted] for part in (value, expected, best, worst)))
    return result


# ---- the same queries and candidates ---------------------------------------------------------------------------------


def _named_measures(measures: Iterable[str | Measure]) -> dict[str, Measure]:
    names = [measures] if isinstance(measures, (str, Measure)) else list(measures)
    if not names:
        raise ArgumentError("measures must name at least one measure, got none")
    return {str(name): parse_measure(name) for name in names}


def _align(query_ids: Sequence[Any]) -> tuple[list[Any], list[NDArray[np.int64]], int]:
    """The queries that all have, in the first one's order; where each has them; how many only some have."""
    named = [np.asarray(ids).tolist() for ids in query_ids]
    if all(ids == named[0] for ids in named[1:]):
        return named[0], [np.arange(len(named[0]))] * len(named), 0
    place_of = [{name: place for place, name in enumerate(ids)} for ids in named]
    common = [name for name in named[0] if all(name in places for places in place_of)]
    if not common:
        raise DataError(f"the runs have no query in common (their first queries are {[ids[:1] for ids in named]})")
    places = [np.array([where[name] for name in common]) for where in place_of]
    return common, places, len(set().union(*place_of)) - len(common)


def _alike(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """The frames with query and document ids of one type: as they are where they agree, else as text."""
    import polars as pl

    for name in ("qid", "docid"):
        if any(frame[name].null_count() for frame in frames):
            raise DataError(f"column {name!r} must have no empty entries")
        if len({frame[name].dtype for frame in frames}) > 1:
            frames = [frame.with_columns(pl.col(name).cast(pl.String)) for frame in frames]
    return frames


def _with_returned_documents(judged: pl.DataFrame, returned: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The judgments, with every document that a run returned and nobody judged as label 0."""
    import polars as pl

    documents = pl.concat([run.select("qid", "docid") for run in returned]).unique(maintain_order=True)
    unjudged = documents.join(judged, on=["qid", "docid"], how="anti")
    zero = pl.lit(0).cast(judged["label"].dtype).alias("label")
    return pl.concat([judged.select("qid", "docid", "label"), unjudged.select("qid", "docid", zero)])
