"""Values of measures from parts of a ranking: its first items, or the ranks of its relevant items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.bounding import get_bounding
from rankbound.difficulty.ties import bounded_values
from rankbound.measures import LabelCounts, Ranked, values
from rankbound.measures.additive import Additive
from rankbound.measures.cascade import Cascade
from rankbound.measures.pairwise import Pairwise
from rankbound.measures.precision_sum import PrecisionSum
from rankbound.measures.ranked import TiedBlocks
from rankbound.models.recommenders.top_items import relevant_ranks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import Difficulty
    from rankbound.measures.measure import Measure

_SMALL_CUTOFF = 100  # up to which selecting the first items is faster than sorting all


def needs_first_ranks_only(measure: Measure) -> bool:
    """Whether the value depends on nothing but the items down to a small cutoff, their ties, and the label counts.

    >>> from rankbound.measures.measure import parse_measure
    >>> [needs_first_ranks_only(parse_measure(name)) for name in ("nDCG@10", "EM(AP@10)", "AP", "DB(P@5)")]
    [True, True, False, False]
    """
    if measure.cutoff is None or measure.cutoff > _SMALL_CUTOFF or isinstance(measure.plain.definition, Pairwise):
        return False
    return needs_relevant_ranks_only(measure)


def needs_relevant_ranks_only(measure: Measure) -> bool:
    """Whether the value depends on nothing but the ranks of the relevant items, their ties, and the label counts.

    >>> from rankbound.measures.measure import parse_measure
    >>> [needs_relevant_ranks_only(parse_measure(name)) for name in ("nDCG", "EM(AP)", "DB(AP)", "bpref")]
    [True, True, False, False]
    """
    definition, bounding = measure.plain.definition, measure.bounding
    if bounding != "none" and not get_bounding(bounding).affine:
        return False  # it is averaged over the orders of ties, for which the whole query counts
    if isinstance(definition, Additive):
        return not definition.depends_on_returned
    return isinstance(definition, (Cascade, PrecisionSum, Pairwise))


def ranked_first_items(
    labels: NDArray[np.number], scores: NDArray[np.floating], offsets: NDArray[np.int64], counts: LabelCounts
) -> Ranked:
    """Return the first items of queries, in ranked order, as a ranking; ``counts`` are those of the whole queries."""
    return Ranked(labels, offsets, keys=scores, known_counts=counts)


def ranked_by_relevant_items(
    scores: NDArray[np.floating],
    labels: NDArray[np.int8],
    rows: NDArray[np.int64],
    items: NDArray[Any],
    counts: LabelCounts,
) -> Ranked:
    """Return the rankings of a block [queries, items] with the labels 1, 0 and, for items that are left out, others.

    ``rows`` and ``items`` are the cells with label 1. Only these are sorted.
    """
    relevant = scores[rows, items]
    order = np.lexsort((relevant, rows))
    rows, relevant = rows[order], relevant[order]
    starts = np.searchsorted(rows, np.arange(len(scores) + 1))
    above, equal = relevant_ranks(scores, labels, relevant, starts)
    offsets = np.concatenate(([0], np.cumsum(counts.sizes)))
    same = np.zeros(len(rows), bool)  # as the relevant item before
    same[1:] = (rows[1:] == rows[:-1]) & (relevant[1:] == relevant[:-1])
    first = np.flatnonzero(~same)  # of the relevant items with one score
    group = np.cumsum(~same) - 1
    among = np.diff(np.append(first, len(rows)))
    # the relevant items of a group come first in its block, because the order in a block does not matter
    start = offsets[rows[first]] + above[first] + (starts[rows[first] + 1] - first - among)
    ranked_labels = np.zeros(offsets[-1], np.int32)
    ranked_labels[start[group] + np.arange(len(rows)) - first[group]] = 1
    mixed = np.flatnonzero(equal[first] > 0)
    tied = None
    if len(mixed):
        mixed = mixed[np.argsort(start[mixed], kind="stable")]
        size = among[mixed] + equal[first[mixed]]
        block = np.repeat(np.arange(len(mixed)), size)
        within = np.arange(len(block)) - np.repeat(np.cumsum(size) - size, size)
        tied = TiedBlocks(rows[first[mixed]], start[mixed], size, start[mixed][block] + within, block)
    return Ranked(ranked_labels, offsets, known_counts=counts, known_ties=tied)


def value_of_ranking(measure: Measure, ranked: Ranked, difficulty: Difficulty | None) -> NDArray[np.float64]:
    """Return the value of each query, with the bounding of the measure, for which ``difficulty`` is needed."""
    value = values(ranked, measure.plain)
    if measure.bounding == "none":
        return value
    assert difficulty is not None, "a bounding needs the difficulty of the queries"
    return bounded_values(get_bounding(measure.bounding), measure.plain, ranked, value, difficulty)
