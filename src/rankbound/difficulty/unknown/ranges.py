"""Ranges over unknown labels: the smallest and largest value of a measure, whatever the unjudged documents are.

`rankbound.difficulty.bounds` bounds a measure over the rankings of known labels; here the ranking is known and the
labels of the documents that a run returned without a judgment are not. They can have any of the grades. Unjudged
documents that were not returned count as label 0, as in trec_eval.

For fixed numbers of documents per label, the value is largest with the highest labels at the first unknown ranks, and
smallest with them at the last (every exchange of two unknown documents moves it one way). What is left are the numbers:

==========  ==========================================================================================================
form        smallest and largest value
==========  ==========================================================================================================
rises       all unknown documents have label 0, or the highest grade: DCG, P, RBP, ERR, RR, Success, SP
largest     all have one grade, or all but the last have label 0: RBP(gain='graded')
hits        every number of relevant documents (`rankbound.difficulty.unknown.hits`): R, nRBP, Rprec, AP, set measures
ideal       numbers per grade, by `rankbound.difficulty.unknown.ratios`: nDCG, LetorNDCG, normalized measures of yours
exchange    every combination of numbers, one by one: IPrec, measures of pairs, normalized measures with candidates
constant    the value
==========  ==========================================================================================================
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rankbound.difficulty.run_values import RunValues
from rankbound.difficulty.unknown.hits import counts_hits, ends_by_hits, merge_values
from rankbound.difficulty.unknown.ranking import Labels, UnknownRanking, check_grades, grades_of
from rankbound.difficulty.unknown.ratios import Ratio, best_ratios
from rankbound.errors import MeasureError
from rankbound.lists import Lists
from rankbound.measures import Measure, is_defined, parse_measures, values
from rankbound.measures.additive import Additive
from rankbound.protocol import TIES, Protocol

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_MOST_DOCUMENTS = 20_000_000  # of rankings that are gone through one by one


@dataclass(frozen=True, slots=True, eq=False)
class LabelRange:
    """Smallest and largest value of each query over all labels of its unjudged documents.

    They are those of the labels for which the measure is defined, NaN where it never is; ``may_be_empty`` marks queries
    for which it is not defined by some of the labels.

    >>> lists = Lists.from_dicts({"q": {"a": 1}}, {"q": {"x": 3.0, "a": 2.0}})  # x has no judgment
    >>> label_ranges(lists, ["RR", "R@1"])["RR"]
    LabelRange(low=array([0.5]), high=array([1.]), may_be_empty=array([False]))
    >>> label_ranges(lists, ["RR", "R@1"])["R@1"].high.tolist()
    [0.5]
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    may_be_empty: NDArray[np.bool_]


def label_ranges(
    lists: Lists,
    measures: Any,
    *,
    ties: str = TIES[0],
    depth: int | None = None,
    grades: ArrayLike | None = None,
    candidates: str = "judged",
    plain: Callable[[Measure], NDArray[np.float64]] | None = None,
) -> dict[str, LabelRange]:
    """Smallest and largest value of measures for each query, over the labels of returned documents without a judgment.

    Parameters
    ----------
    lists:
        Lists with scores, as `Lists.from_dicts` and the readers create them; ``lists.judged`` says what has a judgment.
    measures:
        Names of measures, or the result of `rankbound.measures.parse_measures`.
    ties, depth, candidates:
        As in `rankbound.evaluate`. Documents below the depth count as not returned.
    grades:
        The labels that a document can have; 0 is always among them. By default those of the judgments.
    plain:
        Values of measures by the judgments alone, if they are known already (`RunValues.plain`).

    Raises
    ------
    MeasureError
        For a measure that has no exact range: Bpref and infAP, which read judgments in their own way,
        ``AP(div='retrieved')``, standardized measures, measures of another form, and normalized measures unless
        ``lists.candidates`` says which documents they are about. With the judged documents as candidates a normalized
        measure takes documents without a judgment out of the run.
    """
    requested: Mapping[str, Measure] = measures if isinstance(measures, Mapping) else parse_measures(measures)
    for measure in requested.values():
        check_range(measure, has_candidates=lists.candidates is not None)
    chosen = grades_of(lists.labels) if grades is None else check_grades(grades)
    ranking = UnknownRanking(lists, ties, depth, plain)
    return {name: range_of_ranking(ranking, lists, measure, chosen, candidates) for name, measure in requested.items()}


def range_of_mean(found: LabelRange, empty: str = "skip") -> tuple[float, float]:
    """Smallest and largest mean over queries; NaN where no labels give a query a value.

    ``empty`` is that of `rankbound.Protocol`. With "skip", a query counts only by labels for which the measure is
    defined; the mean over the others is smallest with the queries that lower it, and largest with those that raise it.

    >>> one = LabelRange(np.array([0.2, 0.1]), np.array([0.4, 0.9]), np.array([False, True]))
    >>> range_of_mean(one), range_of_mean(one, "zero")  # without the second query 0.2 to 0.4
    ((0.15000000000000002, 0.65), (0.1, 0.65))
    """
    if empty != "skip":
        ends = range_with_stand_in(found, empty)
        return (math.fsum(ends.low) / len(ends.low), math.fsum(ends.high) / len(ends.high))
    sides = []
    for sign, value in ((1, found.low), (-1, found.high)):
        always = value[~found.may_be_empty & ~np.isnan(value)]
        sometimes = np.sort(sign * value[found.may_be_empty & ~np.isnan(value)])
        sums = math.fsum(always) + sign * np.concatenate(([0.0], np.cumsum(sometimes)))
        number = len(always) + np.arange(len(sums))
        means = sums[number > 0] / number[number > 0]
        sides.append(sign * float(np.min(sign * means)) if len(means) else math.nan)
    return sides[0], sides[1]


def range_with_stand_in(found: LabelRange, empty: str) -> LabelRange:
    """The range with 0 or 1 where the measure may not be defined, as ``empty`` says; as it is for "skip"."""
    if empty == "skip":
        return found
    stand_in = 1.0 if empty == "one" else 0.0
    low = np.where(found.may_be_empty, np.fmin(found.low, stand_in), found.low)
    high = np.where(found.may_be_empty, np.fmax(found.high, stand_in), found.high)
    return LabelRange(low, high, found.may_be_empty)


def check_range(measure: Measure, *, has_candidates: bool = False) -> None:
    """Raise MeasureError if the measure has no exact range over unknown labels."""
    if measure.is_standardized:
        raise MeasureError(f"{measure} has no range over unknown labels: those of its reference runs are unknown, too")
    if not measure.definition.range_form(measure):
        raise MeasureError(f"{measure.plain} has no exact range over unknown labels; leave it out, or unjudged='zero'")
    if measure.bounding != "none" and not has_candidates:
        raise MeasureError(
            f"{measure} takes documents without a judgment out of the run; its range over their labels needs "
            "candidates that list documents"
        )


def range_with_others(
    ranking: UnknownRanking, lists: Lists, measure: Measure, grades: Labels, others: NDArray[np.int64]
) -> LabelRange:
    """A range that also holds if so ``others`` documents of each query, which the run lacks, have unknown labels."""
    definition = measure.definition
    if definition.range_form(measure) == "hits" and counts_hits(definition):
        return LabelRange(*ends_by_hits(ranking, measure, grades, others))
    found = range_of_ranking(ranking, lists, measure, grades)
    low, high = found.low, found.high
    if definition.range_form(measure) == "largest":  # a higher label elsewhere makes all others smaller
        low = np.where(others > 0, 0.0, low)
    alone = found.may_be_empty & (others > 0) & (grades[-1] >= measure.rel)  # only one of the others is relevant
    low, high = np.where(alone, np.fmin(low, 0.0), low), np.where(alone, np.fmax(high, 0.0), high)
    return LabelRange(low, high, found.may_be_empty)


def range_of_ranking(
    ranking: UnknownRanking, lists: Lists, measure: Measure, grades: Labels, candidates: str = "judged"
) -> LabelRange:
    """The range of one measure; ``ranking`` is that of the lists, and `check_range` has accepted the measure."""
    definition = measure.definition
    form = definition.range_form(measure)
    if measure.bounding != "none":
        return _range_by_exchange(lists, measure, grades, ranking, candidates)
    if form == "constant" or len(ranking.unknown) == 0:
        value = np.where(is_defined(ranking.judgments.counts, measure), ranking.values_with_zero(measure), np.nan)
        return LabelRange(value, value, np.isnan(value))
    if form in ("rises", "largest"):
        return _range_of_assignments(ranking, lists, measure, grades)
    if form == "hits" and counts_hits(definition):
        return LabelRange(*ends_by_hits(ranking, measure, grades))
    if form == "ideal" and definition.levels(measure, np.zeros(1, dtype=np.int64))[0] == 0:
        return _range_of_ideal(ranking, measure, grades)
    return _range_by_exchange(lists, measure, grades, ranking, candidates)


def _range_of_assignments(ranking: UnknownRanking, lists: Lists, measure: Measure, grades: Labels) -> LabelRange:
    """The range over a few ways to label the unknown documents.

    Where nothing is relevant without them, the smallest value is that of the last document alone.
    """
    none = np.where(is_defined(ranking.ranked.counts, measure), ranking.values_with_zero(measure), np.nan)
    divides = measure.definition.range_form(measure) == "largest"
    rows = [none, *(defined_values(ranking, measure, grade) for grade in (grades[1:] if divides else grades[-1:]))]
    low, high = np.fmin.reduce(rows), np.fmax.reduce(rows)
    some = np.flatnonzero((np.isnan(none) | divides) & (ranking.unknown_counts > 0))
    if len(some):
        items, offsets = _items_of(lists, some)
        part = UnknownRanking(_lists_of(lists, some, items, offsets, lists.labels[items]), ranking.ties, ranking.depth)
        last = np.zeros(len(part.unknown), dtype=np.int64)
        last[part.unknown_starts[1:] - 1] = 1
        rows = [defined_values(part, measure, last * grade) for grade in grades[1:]]
        low[some], high[some] = np.fmin.reduce([low[some], *rows]), np.fmax.reduce([high[some], *rows])
    return LabelRange(low, high, np.isnan(none))


def defined_values(ranking: UnknownRanking, measure: Measure, labels: Any) -> NDArray[np.float64]:
    """Values with these labels for the unknown documents; NaN where the measure is not defined."""
    ranked = ranking.with_unknown(labels)
    return np.where(is_defined(ranked.counts, measure), values(ranked, measure), np.nan)


# ---- ideal: numbers per grade ----------------------------------------------------------------------------------------


def _range_of_ideal(ranking: UnknownRanking, measure: Measure, grades: Labels) -> LabelRange:
    weights = ranking.weights(measure)
    definition = measure.definition
    gains = definition.levels(measure, ranking.labels)
    known = ranking.sum(np.where(ranking.is_unknown, 0.0, gains * weights))
    unknown_weights = weights[ranking.unknown]
    query, nth = ranking.unknown_query, ranking.unknown_nth
    # for the largest value, a document that no user sees is of use only if without it nothing is relevant;
    # for the smallest, the best order sees no more documents than the cutoff
    first = np.flatnonzero((unknown_weights > 0) | (nth == 0))
    limit = np.inf if measure.cutoff is None else measure.cutoff
    last = np.flatnonzero(ranking.unknown_counts[query] - 1 - nth < limit)
    ends = [
        best_ratios(_ideal_ratio(ranking, measure, grades, known, unknown_weights, kept, sign), sign)
        for sign, kept in ((-1, last), (1, first))
    ]
    return LabelRange(ends[0], ends[1], ~is_defined(ranking.ranked.counts, measure))


def _ideal_ratio(
    ranking: UnknownRanking,
    measure: Measure,
    grades: Labels,
    known: NDArray[np.float64],
    weights: NDArray[np.float64],
    kept: NDArray[np.int64],
    sign: int,
) -> Ratio:
    """The ratio of one run; ``known`` is the numerator without unknown documents.

    The weights of those documents that are ``kept`` come in ranked order, or (``sign=-1``) in reverse.
    """
    query = ranking.unknown_query[kept]
    number = np.bincount(query, minlength=len(ranking))
    ends = np.cumsum(number)[query]
    nth = np.arange(len(kept)) - (ends - number[query]) if sign > 0 else ends - 1 - np.arange(len(kept))
    table = np.zeros((len(ranking), int(number.max(initial=0)) + 1))
    table[query, 1 + nth] = weights[kept]
    steps, levels, sums, fixed = ideal_levels(ranking, measure, grades)
    return Ratio(known, fixed, np.cumsum(table, axis=1, out=table), number, steps, levels, sums)


def ideal_levels(
    ranking: UnknownRanking, measure: Measure, grades: Labels, others: int = 0
) -> tuple[
    NDArray[np.float64], tuple[tuple[int, float, NDArray[np.int64]], ...], NDArray[np.float64], NDArray[np.float64]
]:
    """The ``steps``, ``levels``, ``sums`` and ``fixed`` of a `Ratio` that divides by the best order.

    There can be as many as ``others`` documents that this ranking lacks.
    """
    definition = cast(Additive, measure.definition)
    most_seen = int(ranking.sizes.max(initial=0)) + others if measure.cutoff is None else measure.cutoff
    table = definition.discount.table(most_seen, definition.discount_parameter(measure))
    sums = np.concatenate(([0.0], np.cumsum(table)))
    grade_gains = definition.levels(measure, grades)
    counts = ranking.ranked.counts
    run_gains = definition.levels(measure, counts.values)
    levels = np.unique(np.concatenate((grade_gains, run_gains)))
    levels = levels[levels > 0]
    fixed, rows = np.zeros(len(ranking)), []
    lowest_grades = np.searchsorted(grade_gains[1:], levels)  # the lowest grade of at least this gain
    for level, gap, grade in zip(levels, np.diff(levels, prepend=0.0), lowest_grades, strict=True):
        at_least = counts.sum(counts.counts * (run_gains >= level)).astype(np.int64)
        if grade < len(grade_gains) - 1:
            rows.append((int(grade), float(gap), at_least))
        else:  # no unknown document has such a label
            fixed += gap * sums[np.minimum(at_least, len(sums) - 1)]
    return np.diff(grade_gains), tuple(rows), sums, fixed


# ---- exchange: one ranking after the other ---------------------------------------------------------------------------


def _range_by_exchange(
    lists: Lists, measure: Measure, grades: Labels, ranking: UnknownRanking, candidates: str
) -> LabelRange:
    """All combinations of numbers per grade, with the highest labels first and last."""
    unknown = ranking.position[ranking.unknown]
    if measure.bounding != "none" and lists.candidates is not None:
        unknown = unknown[lists.candidates[unknown]]  # others are taken out of the run
    query = np.searchsorted(lists.offsets, unknown, side="right") - 1
    number = np.bincount(query, minlength=len(lists))
    ways = np.array([math.comb(int(u) + len(grades) - 1, len(grades) - 1) for u in number], dtype=np.float64)
    documents = float((2 * ways * lists.sizes).sum())
    if documents > _MOST_DOCUMENTS:
        raise MeasureError(
            f"the range of {measure} goes through {documents:,.0f} documents of possible rankings, more than "
            f"{_MOST_DOCUMENTS:,}; leave documents out by a depth, or leave out the measure"
        )
    patterns = [
        np.array(list(itertools.combinations_with_replacement(grades[::-1], u))).reshape(int(count), u)
        for u, count in zip(number.tolist(), ways, strict=True)
    ]
    rows = np.repeat(np.arange(len(lists)), [2 * len(pattern) for pattern in patterns])
    expanded, starts = _items_of(lists, rows)
    labels = lists.labels[expanded].astype(np.result_type(lists.labels, grades))
    begins = np.concatenate(([0], np.cumsum(number)))
    row_of_query = np.concatenate(([0], np.cumsum([2 * len(pattern) for pattern in patterns])))
    for q in np.flatnonzero(number):
        at = unknown[begins[q] : begins[q + 1]] - lists.offsets[q]
        both = np.concatenate((patterns[q], patterns[q][:, ::-1]))
        labels[starts[row_of_query[q] : row_of_query[q + 1]][:, None] + at] = both
    copies = _lists_of(lists, rows, expanded, starts, labels)
    run = RunValues(copies, Protocol(ties=ranking.ties, depth=ranking.depth, candidates=candidates))
    value = run.of_queries(measure).value
    low, high = (merge_values(value, row_of_query, sign) for sign in (-1, 1))
    return LabelRange(low, high, np.logical_or.reduceat(np.isnan(value), row_of_query[:-1]))


def _items_of(lists: Lists, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The items of these queries, one after the other, and where each begins."""
    sizes = lists.sizes[rows]
    starts = np.concatenate(([0], np.cumsum(sizes)))
    return np.arange(starts[-1]) + np.repeat(lists.offsets[rows] - starts[:-1], sizes), starts


def _lists_of(
    lists: Lists, rows: NDArray[np.int64], items: NDArray[np.int64], offsets: NDArray[np.int64], labels: Labels
) -> Lists:
    """These queries with other labels; ``items`` and ``offsets`` are those of `_items_of`."""
    return Lists(
        labels,
        offsets,
        None if lists.scores is None else lists.scores[items],
        None if lists.ids is None else lists.ids[items],
        None,
        None if lists.depths is None else lists.depths[rows],
        None if lists.judged is None else lists.judged[items],
        None,
        None if lists.candidates is None else lists.candidates[items],
    )
