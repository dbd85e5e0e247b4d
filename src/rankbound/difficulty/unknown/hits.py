"""Ranges of measures that count relevant documents: every number of relevant documents among the unknown ones.

For a given number the value is largest if the first unknown documents are relevant, and smallest if the last ones are.
So the numerators are prefix sums of what each further document adds, and the denominators are those of the numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from rankbound.measures import LabelCounts, Measure, is_defined, parse_measure, values
from rankbound.measures.additive import Additive, Binary
from rankbound.measures.discounts import CONSTANT
from rankbound.measures.precision_sum import PrecisionSum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.unknown.ranking import Labels, UnknownRanking
    from rankbound.measures.definition import Definition

_TICKS = 2.0**54


def counts_hits(definition: Definition) -> bool:
    """Whether the sums over hits have a closed form here."""
    if isinstance(definition, PrecisionSum):
        return True
    return isinstance(definition, Binary) and (has_fixed_cut(definition) or definition.discount is CONSTANT)


def has_fixed_cut(definition: Definition) -> bool:
    """Whether the ranks that an additive measure looks at do not depend on labels."""
    return isinstance(definition, Additive) and type(definition).cut is Additive.cut


def ends_by_hits(
    ranking: UnknownRanking, measure: Measure, grades: Labels, others: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Smallest and largest value of each query, and where the measure may not be defined.

    ``others`` are documents of unknown label that the run did not return: the last to be relevant for the largest
    value, and the first for the smallest.
    """
    definition = measure.definition
    other = np.zeros(len(ranking), dtype=np.int64) if others is None else others
    most = (ranking.unknown_counts + other) * (grades[-1] >= measure.rel)
    starts = np.concatenate(([0], np.cumsum(most + 1)))
    query = np.repeat(np.arange(len(ranking)), most + 1)
    number = np.arange(starts[-1]) - starts[query]
    denominator, table = divide_by_hits(ranking, measure, query, number, other)
    ends = []
    for sign in (-1, 1):
        if others is None:
            own = number
        elif sign < 0:
            own = np.maximum(number - other[query], 0)
        else:
            own = np.minimum(number, ranking.unknown_counts[query])
        if isinstance(definition, PrecisionSum) or has_fixed_cut(definition):
            numerator = _sums_of_hits(ranking, measure, query, own, sign)
        else:
            cut = np.minimum(cast(Additive, definition).cut(measure, table), ranking.depths[query])
            numerator = _hits_above(ranking, measure, query, own, cut, sign)
        ends.append(merge_values(numerator / denominator, starts, sign))
    return ends[0], ends[1], np.isnan(denominator[starts[:-1]])


def divide_by_hits(
    ranking: UnknownRanking,
    measure: Measure,
    query: NDArray[np.int64],
    number: NDArray[np.int64],
    others: NDArray[np.int64] | int = 0,
) -> tuple[NDArray[np.float64], LabelCounts]:
    """The divisor with ``number`` relevant unknown documents of ``query``, and the counts of its labels.

    NaN where the measure is not defined. ``others`` are documents that the run did not return.
    """
    definition = measure.definition
    counts = ranking.ranked.counts
    label = max(1, math.ceil(measure.rel))
    depths = ranking.depths if getattr(definition, "depends_on_returned", False) else counts.depths
    relevant = counts.relevant(measure.rel)[query] + number
    table = replace(LabelCounts.binary((counts.sizes + others)[query], relevant, label), depths=depths[query])
    below = definition.divisor if isinstance(definition, PrecisionSum) else cast(Additive, definition).normalizer
    denominator = below(measure, table)
    denominator[~(is_defined(table, measure) & (denominator > 0))] = np.nan
    return denominator, table


def merge_values(value: NDArray[np.float64], starts: NDArray[np.int64], sign: int) -> NDArray[np.float64]:
    """The smallest (``sign=-1``) or largest value of each group; NaN where all are NaN."""
    reduce = np.fmax.reduceat if sign > 0 else np.fmin.reduceat
    return np.asarray(reduce(value, starts[:-1])) if len(value) else np.zeros(0)


def _sums_of_hits(
    ranking: UnknownRanking, measure: Measure, query: NDArray[np.int64], number: NDArray[np.int64], sign: int
) -> NDArray[np.float64]:
    """The sum of a measure if the first or last ``number`` unknown documents of ``query`` are relevant."""
    known = sums_with_known_hits(ranking, measure)
    if isinstance(measure.definition, PrecisionSum):
        gains = precision_gains(ranking, measure, sign)
    else:
        gains = ranking.weights(measure, ranking.unknown)
    begins = ranking.unknown_starts[:-1] + np.arange(len(ranking))
    return np.asarray(known[query] + _cumulated(ranking, gains, sign)[begins[query] + number])


def sums_with_known_hits(ranking: UnknownRanking, measure: Measure) -> NDArray[np.float64]:
    """The sum of a measure of each query if no unknown document is relevant."""
    if isinstance(measure.definition, PrecisionSum):
        return values(ranking.ranked, _sum_of_precisions(measure))
    hits = (ranking.labels >= measure.rel) & ~ranking.is_unknown
    return ranking.sum(ranking.weights(measure) * hits)


def _cumulated(ranking: UnknownRanking, gains: NDArray[np.float64], sign: int) -> NDArray[np.float64]:
    """Sums of the gains of the first (``sign=1``) or last 0, 1, ... unknown documents, query after query."""
    number, query, nth = ranking.unknown_counts, ranking.unknown_query, ranking.unknown_nth
    at = nth if sign > 0 else number[query] - 1 - nth
    begins = ranking.unknown_starts[:-1] + np.arange(len(number))
    result = np.zeros(len(gains) + len(number))
    result[begins[query] + 1 + at] = gains
    width = int(number.max(initial=0)) + 1
    if len(number) * width > 4 * len(result) + 1_000_000:  # queries of very different lengths
        for begin, size in zip(begins.tolist(), (number + 1).tolist(), strict=True):
            result[begin : begin + size] = np.cumsum(result[begin : begin + size])
        return result
    rows = np.arange(width) <= number[:, None]  # a sum per query: no rounding passes from one query to the next
    padded = np.zeros(rows.shape)
    padded[rows] = result
    return np.asarray(np.cumsum(padded, axis=1)[rows])


def _sum_of_precisions(measure: Measure) -> Measure:
    """The measure without its divisor."""
    return replace(parse_measure(f"SP(rel={measure.rel!r})"), cutoff=measure.cutoff)


def precision_gains(ranking: UnknownRanking, measure: Measure, sign: int) -> NDArray[np.float64]:
    """By how much the sum of precisions grows with each unknown document that becomes relevant, in their order.

    Over the orders of ties the sum is that of a(block) over the relevant documents, plus for every pair of them
    a(block of the later one), or b(block) within a block, with a the mean of 1/rank over the block and b that of
    1/max(rank, rank) over its pairs; ranks beyond the cutoff count 0. The first unknown documents become relevant
    before the others, or (``sign=-1``) after them, or (``sign=0``) each of them alone.
    """
    cut = ranking.depths if measure.cutoff is None else np.minimum(ranking.depths, measure.cutoff)
    inverse = np.where(ranking.rank <= cut[ranking.query], 1.0 / ranking.rank, 0.0)
    hit = (ranking.labels >= measure.rel) & ~ranking.is_unknown
    query, nth = ranking.unknown_query, ranking.unknown_nth
    raising = hit if sign >= 0 else hit | ranking.is_unknown  # documents below that a relevant one raises
    if not ranking.has_ties:
        at, end = ranking.unknown, ranking.offsets[1:][query]
        hits = _count_before(hit)
        above = hits[at] - hits[ranking.offsets[:-1]][query]
        relevant = above + nth if sign > 0 else above  # those above are relevant already
        return np.asarray(inverse[at] * (1 + relevant) + _sums_after(inverse * raising, at, end))
    first_of_block = ranking.rank == ranking.above + 1
    block = np.cumsum(first_of_block) - 1
    blocks = int(block[-1]) + 1
    size = np.bincount(block, minlength=blocks)
    single = np.bincount(block, inverse, minlength=blocks) / size
    within = ranking.rank - 1 - ranking.above
    pair = np.bincount(block, inverse * within, minlength=blocks) * 2 / np.maximum(size * (size - 1), 1)
    at, block_of_query = block[ranking.unknown], _count_before(first_of_block)[ranking.offsets]
    hits, unknown = (
        _count_before(np.bincount(block[chosen], minlength=blocks)) for chosen in (hit, ranking.is_unknown)
    )
    above, inside = hits[at] - hits[block_of_query[:-1]][query], hits[at + 1] - hits[at]
    below = _sums_after(single * np.bincount(block[raising], minlength=blocks), at, block_of_query[1:][query])
    if sign > 0:
        nth_above = unknown[at] - ranking.unknown_starts[query]
        above, inside = above + nth_above, inside + nth - nth_above
    elif sign < 0:
        inside = inside + unknown[at + 1] - ranking.unknown_starts[query] - nth - 1  # and the others of the block below
    return np.asarray(single[at] * (1 + above) + pair[at] * inside + below)


def _count_before(numbers: Labels) -> NDArray[np.int64]:
    """Sums of the first 0, 1, 2, ... numbers."""
    result = np.zeros(len(numbers) + 1, dtype=np.int64)
    np.cumsum(numbers, out=result[1:])
    return result


def _sums_after(terms: NDArray[np.float64], at: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums of terms after ``at`` up to ``end``.

    They are summed as integers, in units of 2^-54, so that a sum does not depend on the queries that come before. The
    integers wrap around, but not their differences.
    """
    ticks = _count_before(np.rint(terms * _TICKS).astype(np.int64))
    return np.asarray((ticks[end] - ticks[at + 1]) / _TICKS)


def _hits_above(
    ranking: UnknownRanking,
    measure: Measure,
    query: NDArray[np.int64],
    number: NDArray[np.int64],
    cut: NDArray[np.int64],
    sign: int,
) -> NDArray[np.float64]:
    """Relevant documents among the first ``cut`` ranks if the first or last ``number`` unknown ones are relevant."""
    hit = (ranking.labels >= measure.rel) & ~ranking.is_unknown
    hits = np.concatenate(([0], np.cumsum(hit)))
    unknown = np.concatenate(([0], np.cumsum(ranking.is_unknown)))
    first = ranking.offsets[query]
    item = np.clip(first + cut - 1, first, None)  # the last document that is seen
    above, size = ranking.above[np.minimum(item, len(hit) - 1)], ranking.size[np.minimum(item, len(hit) - 1)]
    begin, end = first + above, first + above + size  # its block

    def relevant(position: NDArray[np.int64]) -> NDArray[np.int64]:
        passed = unknown[position] - unknown[first]
        chosen = np.minimum(passed, number) if sign > 0 else passed - (ranking.unknown_counts[query] - number)
        return np.asarray(hits[position] - hits[first] + np.maximum(chosen, 0))

    before = relevant(begin)
    seen = before + (relevant(end) - before) * (cut - above) / size
    return np.where(cut > 0, seen, 0.0)
