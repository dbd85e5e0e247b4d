"""Ranges of the difference of two runs over the labels of the documents that either returned without a judgment.

Both runs are about the same documents, so the labels move them together and the range is narrower than that of two
independent ranges. For an additive measure whose normalizer both share, the difference is

    (sum over documents of gain * (w_A - w_B)) / Z,

w the discounts of the document's ranks. Without a normalizer, or with one that no label changes, every document adds
its own smallest and largest part. With one that counts labels, the documents are sorted by w_A - w_B, and the numbers
per grade are found as for one run (`rankbound.difficulty.unknown.ratios`). For other measures the difference of the two
ranges is a bound, which `DifferenceRange.is_exact` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rankbound.difficulty.unknown.hits import precision_gains
from rankbound.difficulty.unknown.ranges import (
    LabelRange,
    check_range,
    ideal_levels,
    range_of_ranking,
    range_with_others,
)
from rankbound.difficulty.unknown.ranking import Labels, UnknownRanking, check_grades, grades_of
from rankbound.difficulty.unknown.ratios import Ratio, best_ratios
from rankbound.errors import ArgumentError, MeasureError
from rankbound.measures import LabelCounts, Measure, is_defined, parse_measure
from rankbound.measures.additive import Additive, Binary
from rankbound.measures.discounts import Discounted
from rankbound.measures.precision_sum import PrecisionSum
from rankbound.protocol import TIES

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import ArrayLike, NDArray

    from rankbound.lists import Lists

_MOST_ENTRIES = 1_000_000  # documents of pairs of runs that are compared at a time
_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class DifferenceRange:
    """Smallest and largest difference, pairs x queries: the second run of the pair minus the first.

    ``is_exact`` says whether some labels attain both ends; else they are bounds. NaN where the measure is never
    defined; ``may_be_empty`` marks queries for which it is not defined by some of the labels.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    may_be_empty: NDArray[np.bool_]
    is_exact: bool

    @property
    def is_decided(self) -> NDArray[np.bool_]:
        """Whether the sign of the difference is the same whatever the labels are."""
        return have_one_sign(self.low, self.high) & ~self.may_be_empty


def have_one_sign(low: ArrayLike, high: ArrayLike) -> NDArray[np.bool_]:
    """Whether all differences of a range have the same sign, or the range is one number.

    >>> have_one_sign([0.1, -0.1, 0.0], [0.2, 0.1, 0.0]).tolist()
    [True, False, True]
    """
    low, high = np.asarray(low), np.asarray(high)
    return np.asarray((low > _TOLERANCE) | (high < -_TOLERANCE) | (high - low <= _TOLERANCE))


def difference_ranges(
    runs: Sequence[Lists],
    measure: str | Measure,
    *,
    pairs: Sequence[tuple[int, int]] | None = None,
    ties: str = TIES[0],
    depth: int | None = None,
    grades: ArrayLike | None = None,
) -> DifferenceRange:
    """The range of the difference by one measure for pairs of runs, all pairs by default.

    ``runs`` are `Lists` of the same queries in the same order, with ids of their documents.

    >>> from rankbound import Lists
    >>> qrels = {"q": {"a": 1, "b": 0}}
    >>> one, two = ({"q": {"a": 3.0, "x": 2.0}}, {"q": {"x": 3.0, "b": 2.0, "a": 1.0}})  # x has no judgment
    >>> found = difference_ranges([Lists.from_dicts(qrels, run) for run in (one, two)], "P@2")
    >>> found.low.tolist(), found.high.tolist(), found.is_decided.tolist()  # x is in both first ranks
    ([[-0.5]], [[-0.5]], [[True]])
    """
    chosen = list(_all_pairs(len(runs)) if pairs is None else pairs)
    return RunsWithUnknown(runs, ties=ties, depth=depth, grades=grades).differences(parse_measure(measure), chosen)


def check_difference(measure: Measure) -> None:
    """Raise MeasureError if there is no range of differences of the measure."""
    check_range(measure)
    if measure.definition.range_form(measure) == "exchange":
        raise MeasureError(f"{measure} has no range of differences: it depends on documents that a run lacks, too")


def _all_pairs(runs: int) -> list[tuple[int, int]]:
    return [(first, second) for first in range(runs) for second in range(first + 1, runs)]


@dataclass(frozen=True, eq=False)
class _Documents:
    """Unknown documents of a run that matter: codes of query and document in ascending order, and their weights."""

    codes: NDArray[np.int64]
    weights: NDArray[np.float64]


class RunsWithUnknown:
    """Several runs on the same queries, with their documents of unknown label."""

    def __init__(
        self,
        runs: Sequence[Lists],
        *,
        ties: str = TIES[0],
        depth: int | None = None,
        grades: ArrayLike | None = None,
    ) -> None:
        if len(runs) < 2:
            raise ArgumentError(f"runs must be at least two, got {len(runs)}")
        names = np.asarray(runs[0].query_ids).tolist()
        for run in runs:
            if run.ids is None:
                raise ArgumentError("runs must carry ids of their documents")
            if np.asarray(run.query_ids).tolist() != names:
                raise ArgumentError("runs must have the same queries in the same order")
        self.lists, self.ties, self.depth = list(runs), ties, depth
        self.grades = grades_of([run.labels for run in runs]) if grades is None else check_grades(grades)
        self.rankings = [UnknownRanking(run, ties, depth) for run in runs]
        self.ids, codes = _document_codes(runs, self.rankings)
        self.span = max(len(self.ids), 1)
        self.codes = [
            ranking.unknown_query * self.span + code for ranking, code in zip(self.rankings, codes, strict=True)
        ]
        self._ranges: dict[Measure, list[LabelRange]] = {}

    @property
    def queries(self) -> int:
        """Number of queries."""
        return len(self.rankings[0])

    def name_of(self, code: int) -> tuple[Any, Any]:
        """The ids of query and document of a code."""
        return np.asarray(self.lists[0].query_ids).tolist()[code // self.span], self.ids[code % self.span]

    def values_with_zero(self, measure: Measure) -> NDArray[np.float64]:
        """Values of each run with label 0 for all documents without a judgment, runs x queries; 0 if not defined."""
        return np.stack([ranking.values_with_zero(measure) for ranking in self.rankings])

    def ranges(self, measure: Measure) -> list[LabelRange]:
        """Bounds of each run over the labels of the documents that any of the runs returned without a judgment."""
        if measure not in self._ranges:
            every = np.unique(np.concatenate(self.codes))
            number = np.bincount(every // self.span, minlength=self.queries)
            self._ranges[measure] = [
                range_with_others(ranking, run, measure, self.grades, number - ranking.unknown_counts)
                for run, ranking in zip(self.lists, self.rankings, strict=True)
            ]
        return self._ranges[measure]

    def ranges_of_each(self, measure: Measure) -> list[LabelRange]:
        """The range of each run over the labels of its own documents."""
        return [
            range_of_ranking(ranking, run, measure, self.grades)
            for run, ranking in zip(self.lists, self.rankings, strict=True)
        ]

    def differences(self, measure: Measure, pairs: Sequence[tuple[int, int]]) -> DifferenceRange:
        """The range of the second run minus the first, for each of the pairs."""
        check_difference(measure)
        if not _is_shared(measure):
            return self._differences_of_ranges(measure, pairs)
        documents = [self._documents(run, measure) for run in range(len(self.lists))]
        known = np.stack([_known_sums(ranking, measure) for ranking in self.rankings])
        low, high, empty = (np.empty((len(pairs), self.queries), dtype=kind) for kind in (float, float, bool))
        step = max(1, _MOST_ENTRIES // max(1, 2 * max(len(d.codes) for d in documents)))
        for start in range(0, len(pairs), step):
            part = pairs[start : start + step]
            rows = slice(start, start + step)
            low[rows], high[rows], empty[rows] = self._shared_differences(measure, part, documents, known)
        return DifferenceRange(low, high, empty, is_exact=True)

    def effects(self, measure: Measure) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """By how much the label of each unknown document can change the value of each run: codes, documents x runs.

        Normalizers are those of the known labels. Exact for additive measures, else that of a first look: the gain of
        the highest grade at the document's rank, whatever the others are.
        """
        columns = [_effects_of_run(ranking, measure, self.grades) for ranking in self.rankings]
        codes = [np.zeros(0, dtype=np.int64)]
        codes += [code[effect != 0] for code, effect in zip(self.codes, columns, strict=True)]
        every = np.unique(np.concatenate(codes))
        table = np.zeros((len(every), len(self.rankings)))
        for run, (code, effect) in enumerate(zip(self.codes, columns, strict=True)):
            table[np.searchsorted(every, code[effect != 0]), run] = effect[effect != 0]
        return every, table

    def _differences_of_ranges(self, measure: Measure, pairs: Sequence[tuple[int, int]]) -> DifferenceRange:
        ranges = self.ranges(measure)
        first, second = np.array(pairs).T
        low, high, empty = (np.stack([getattr(r, name) for r in ranges]) for name in ("low", "high", "may_be_empty"))
        return DifferenceRange(
            low[second] - high[first], high[second] - low[first], empty[first] | empty[second], is_exact=False
        )

    def _documents(self, run: int, measure: Measure) -> _Documents:
        """The documents with a weight, and so many others per query that a normalizer cannot count more of them."""
        ranking, codes = self.rankings[run], self.codes[run]
        weights = ranking.weights(measure, ranking.unknown)
        if measure.cutoff is not None:
            query = ranking.unknown_query
            unseen = weights == 0
            before = np.cumsum(unseen) - unseen
            nth = before - before[ranking.unknown_starts[query]] if len(query) else before
            kept = ~unseen | (nth < 2 * measure.cutoff)  # half of them at most have a weight in another run
            codes, weights = codes[kept], weights[kept]
        order = np.argsort(codes, kind="stable")
        return _Documents(codes[order], weights[order])

    def _shared_differences(
        self,
        measure: Measure,
        pairs: Sequence[tuple[int, int]],
        documents: Sequence[_Documents],
        known: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Ends of the ranges, and where the measure may not be defined, pairs x queries."""
        span = self.span * self.queries
        key = np.concatenate([documents[run].codes + row * span for row, pair in enumerate(pairs) for run in pair])
        weight = np.concatenate(
            [sign * documents[run].weights for pair in pairs for run, sign in zip(pair, (-1, 1), strict=True)]
        )
        keys, which = np.unique(key, return_inverse=True)
        delta = np.bincount(which, weight, minlength=len(keys)).astype(np.float64)
        row = keys // self.span  # of (pair, query)
        first, second = np.array(pairs).T
        base = (known[second] - known[first]).ravel()
        shape = (len(pairs), self.queries)
        definition = cast(Additive, measure.definition)
        counts = self.rankings[0].ranked.counts
        every = np.tile(np.arange(self.queries), len(pairs))
        gains = definition.levels(measure, self.grades)
        rises = definition.range_form(measure) == "rises"
        number = np.bincount(row, minlength=len(base))
        empty = ~is_defined(counts, measure)[every]
        if rises:
            normalizer = definition.normalizer(measure, counts)[every]
            least = gains[np.searchsorted(gains, 0.0, side="right")] if gains[-1] > 0 else np.nan
            ends = []
            for sign in (-1, 1):
                end = base + gains[-1] * np.bincount(row, np.where(sign * delta > 0, delta, 0.0), minlength=len(base))
                alone = np.full(len(base), -np.inf)  # where nothing else is relevant, one document must be
                np.maximum.at(alone, row, sign * delta)
                alone = np.where((number > 0) & (alone < 0), sign * least * alone, end)
                ends.append(np.where(empty, np.where(number > 0, alone + 0 * least, np.nan), end) / normalizer)
            return ends[0].reshape(shape), ends[1].reshape(shape), empty.reshape(shape)
        ends = []
        for sign in (-1, 1):
            order = np.lexsort((-sign * delta, row))
            table = _prefix_sums(row[order], delta[order], len(base))
            if isinstance(definition, Binary):
                ends.append(_best_of_hits(measure, counts.take(every), base, table, number, sign, gains[-1] > 0))
            else:
                steps, levels, sums, fixed = ideal_levels(self.rankings[0], measure, self.grades, table.shape[1])
                rows = tuple((grade, gap, at_least[every]) for grade, gap, at_least in levels)
                ends.append(best_ratios(Ratio(base, fixed[every], table, number, steps, rows, sums), sign))
        return ends[0].reshape(shape), ends[1].reshape(shape), empty.reshape(shape)


def _is_shared(measure: Measure) -> bool:
    """Whether both runs have the same normalizer and sums that are additive in documents."""
    definition = measure.definition
    form = definition.range_form(measure)
    if not isinstance(definition, Additive) or definition.depends_on_returned or form not in ("rises", "hits", "ideal"):
        return False
    return type(definition).cut is Additive.cut and float(definition.levels(measure, np.zeros(1, dtype=int))[0]) == 0


def _effects_of_run(ranking: UnknownRanking, measure: Measure, grades: Labels) -> NDArray[np.float64]:
    definition = measure.definition
    counts = ranking.ranked.counts
    top = float(definition.levels(measure, grades[-1:])[0])
    if isinstance(definition, PrecisionSum):
        below = definition.divisor(measure, counts)
        effect = precision_gains(ranking, measure, 1) * (top > 0)
    elif isinstance(definition, Discounted):
        below = definition.normalizer(measure, counts) if isinstance(definition, Additive) else np.ones(len(counts))
        effect = ranking.weights(measure, ranking.unknown) * top
    else:
        raise MeasureError(f"{measure} has no effect of single documents")
    return np.asarray(effect / np.where(below > 0, below, 1.0)[ranking.unknown_query])


def _known_sums(ranking: UnknownRanking, measure: Measure) -> NDArray[np.float64]:
    """The numerator of each query without its unknown documents."""
    gains = measure.definition.levels(measure, ranking.labels)
    terms = np.where(ranking.is_unknown, 0.0, gains * ranking.weights(measure))
    return ranking.sum(terms)


def _prefix_sums(row: NDArray[np.int64], values: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    """Sums of the first 0, 1, 2, ... values of each row; rows come one after the other."""
    number = np.bincount(row, minlength=rows)
    table = np.zeros((rows, int(number.max(initial=0)) + 1))
    table[row, np.arange(1, len(row) + 1) - (np.cumsum(number) - number)[row]] = values
    return np.asarray(np.cumsum(table, axis=1))


def _best_of_hits(
    measure: Measure,
    counts: LabelCounts,
    base: NDArray[np.float64],
    table: NDArray[np.float64],
    number: NDArray[np.int64],
    sign: int,
    can_be_relevant: bool,
) -> NDArray[np.float64]:
    """The best of the ratios for all numbers of relevant documents."""
    definition = cast(Additive, measure.definition)
    known = counts.relevant(measure.rel)
    label = max(1, int(np.ceil(measure.rel)))
    best = np.full(len(base), np.nan)
    for c in range(table.shape[1] if can_be_relevant else 1):
        some = replace(LabelCounts.binary(counts.sizes + c, known + c, label), depths=counts.depths)
        below = definition.normalizer(measure, some)
        allowed = (c <= number) & is_defined(some, measure) & (below > 0)
        value = np.where(allowed, (base + table[:, c]) / np.where(allowed, below, 1.0), np.nan)
        best = np.fmax(best, value) if sign > 0 else np.fmin(best, value)
    return best


def _document_codes(
    runs: Sequence[Lists], rankings: Sequence[UnknownRanking]
) -> tuple[pl.Series, list[NDArray[np.int64]]]:
    """The ids of all unknown documents, and for each run the numbers of its own among them, in ranked order."""
    import polars as pl

    parts = []
    for lists, ranking in zip(runs, rankings, strict=True):
        position = ranking.position[ranking.unknown]
        ids = lists.ids[position]
        if not isinstance(ids, pl.Series):
            ids = pl.Series([str(name) for name in ids] if ids.dtype == object else ids, dtype=None)
        parts.append(ids)
    if len({part.dtype for part in parts}) > 1:
        parts = [part.cast(pl.String) for part in parts]
    every = pl.concat([part.rechunk() for part in parts])
    distinct = every.unique(maintain_order=True)
    lookup = pl.DataFrame({"id": distinct, "code": np.arange(len(distinct))})
    codes = pl.DataFrame({"id": every}).join(lookup, on="id", how="left", maintain_order="left")["code"].to_numpy()
    ends = np.cumsum([len(part) for part in parts])
    return distinct, list(np.split(codes, ends[:-1]))
