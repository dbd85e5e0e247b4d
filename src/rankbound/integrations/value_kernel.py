"""Values of measures that are sums over relevant items, by counting the items above each of them instead of sorting.

Counting the items with a higher or an equal score is a loop without branches, which processors execute on several
scores at once. For lists of a few hundred items this is several times faster than a sort. With a cutoff k, the items
that cannot be among the first k are dropped before, see `rankbound.models.top_kernel`.

With a items above an item and m items tied with it (itself included), its rank is a + 1 to a + m, each as likely:

==============  ======================================================================================================
structure       what an item adds to the sum of its query
==============  ======================================================================================================
additive        gain times the mean discount of these ranks, 0 beyond the cutoff
precision sum   mean over t = 1..m of (b + 1 + (t - 1)(h - 1)/(m - 1)) / (a + t), b relevant items above and h tied
first hit       only the highest: sum over t of P(the first of h relevant among m items is the t-th) d(a + t)
==============  ======================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import read_only
from rankbound.losses.compiling import block_kernel, helper, ranges, threads_for
from rankbound.losses.workers import run_blocks
from rankbound.measures.additive import Additive
from rankbound.measures.cascade import FirstHit
from rankbound.measures.combinatorics import ratio
from rankbound.measures.precision_sum import PrecisionSum
from rankbound.models.top_kernel import score_of_first

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists
    from rankbound.measures import LabelCounts, Measure

__all__ = ["RankSums"]

_ADDITIVE, _PRECISIONS, _FIRST_HIT = range(3)
_RELEVANT = 1 << 32  # one relevant item in a sum that counts all items in its lower half
_STEP = 16  # scores that the counting loop takes at once; others are filled up with items that count nothing
_SMALL_CUTOFF = 100  # up to which items are dropped before the others are counted
_MOST_PAIRS = 400  # pairs of a relevant and any item, per item, from which on sorting is faster


@helper
def _share(form: int, above: int, tied: int, hits_above: int, hits_tied: int, seen: int, table: Any) -> float:
    """What an item at these ranks adds, for a gain of 1."""
    total, ranked = 0.0, min(tied, seen - above)
    if form == _FIRST_HIT:
        probability = hits_tied / tied
        for step in range(min(ranked, tied - hits_tied + 1)):
            total += probability * table[above + step]
            probability *= (tied - step - hits_tied) / max(tied - step - 1, 1)
        return total
    if form == _ADDITIVE:
        for rank in range(above, above + ranked):
            total += table[rank]
        return total / tied
    slope = (hits_tied - 1) / max(tied - 1, 1)
    for step in range(ranked):
        total += (hits_above + 1 + step * slope) / (above + step + 1)
    return total / tied


@helper
def _stand(score: float, scores: Any, marks: Any, padded: int) -> tuple[int, int, int, int]:
    """Count the items above a score and tied with it, then the relevant ones among both."""
    above, tied = 0, 0
    for other in range(padded):
        above += marks[other] if scores[other] > score else 0
        tied += marks[other] if scores[other] == score else 0
    return above % _RELEVANT, tied % _RELEVANT, above // _RELEVANT, tied // _RELEVANT


@block_kernel
def _sums(
    block: Any, scores: Any, gains: Any, offsets: Any, cut: Any, k: int, form: int, table: Any, longest: int, sums: Any
) -> None:
    """Sum per query; ``k`` is 0 if no item is to be dropped, ``cut`` holds the ranks of each query that count."""
    largest, seen_scores, marks = np.empty(2 * k), np.empty(longest + _STEP), np.empty(longest + _STEP, np.int64)
    hit_scores, hit_gains = np.empty(longest), np.empty(longest)
    kept = np.empty(longest, np.int64)
    for query in range(block[0], block[1]):
        first, last = offsets[query], offsets[query + 1]
        is_cut = k > 0 and last - first > 2 * k
        limit = score_of_first(scores[first:last], k, largest) if is_cut else 0.0
        size = last - first
        if is_cut:
            size = 0
            for item in range(first, last):
                kept[size] = item
                size += scores[item] >= limit
        hits = 0
        for position in range(size):
            item = kept[position] if is_cut else first + position
            score, gain = scores[item], gains[item]
            seen_scores[position], marks[position] = score, 1 + _RELEVANT * (gain != 0)
            hit_scores[hits], hit_gains[hits] = score, gain
            hits += gain != 0
        padded = (size + _STEP - 1) // _STEP * _STEP
        for item in range(size, padded):
            seen_scores[item], marks[item] = 0.0, 0
        total, share_at_limit = 0.0, -1.0
        if form == _FIRST_HIT and hits > 0:
            hit_scores[0], hits = np.max(hit_scores[:hits]), 1
        for hit in range(hits):
            score = hit_scores[hit]
            is_at_limit = is_cut and score == limit
            share = share_at_limit
            if not is_at_limit or share_at_limit < 0:  # many items may tie at the limit
                above, tied, hits_above, hits_tied = _stand(score, seen_scores, marks, padded)
                share = _share(form, above, tied, hits_above, hits_tied, cut[query], table)
            if is_at_limit:
                share_at_limit = share
            total += hit_gains[hit] * share
        sums[query] = total


class RankSums:
    """A measure on queries whose items are scored many times; all items are ranked, and labels are not negative.

    >>> from rankbound.lists import Lists
    >>> from rankbound.measures import LabelCounts, parse_measure
    >>> lists = Lists([1, 0, 0, 1, 1], [0, 2, 5])
    >>> average_precision = RankSums.of(parse_measure("AP"), lists, LabelCounts.from_lists(lists))
    >>> average_precision.values(np.array([0.1, 0.9, 0.3, 0.2, 0.1])).round(4)  # (1/2 + 2/3) / 2 in the second query
    array([0.5   , 0.5833])
    """

    def __init__(self, measure: Measure, lists: Lists, counts: LabelCounts, form: int) -> None:
        definition: Any = measure.definition
        is_binary = form != _ADDITIVE or definition.is_binary(measure)
        labels = lists.labels
        gains = labels >= measure.rel if is_binary else np.where(labels > 0, definition.gains(measure, labels), 0.0)
        self._gains, self._offsets = gains.astype(np.float64), lists.offsets
        cut = definition.cut(measure, counts) if form == _ADDITIVE else counts.cut(measure.cutoff)
        self._cut = np.minimum(cut, lists.sizes).astype(np.int64)
        self._longest, self._form = int(lists.sizes.max(initial=0)), form
        self._k = measure.cutoff if measure.cutoff is not None and measure.cutoff <= _SMALL_CUTOFF else 0
        self._table, self._divisor = np.ones(1), None
        if form == _PRECISIONS:
            self._divisor = definition.divisor(measure, counts)
        else:
            self._table = definition.discount.table(max(self._longest, 1), definition.discount_parameter(measure))
        if form == _ADDITIVE:
            self._divisor = definition.normalizer(measure, counts)

    @classmethod
    def of(cls, measure: Measure, lists: Lists, counts: LabelCounts) -> RankSums | None:
        """Make it for a measure without bounding; None if the measure is no such sum, or if a sort would be faster."""
        form = _form_of(measure)
        if form is None:
            return None
        sums = cls(measure, lists, counts, form)
        if sums._k == 0 and form != _FIRST_HIT:
            relevant = np.add.reduceat(np.append(sums._gains != 0, False), lists.offsets[:-1], dtype=np.int64)
            if (np.where(lists.sizes > 0, relevant, 0) * lists.sizes).sum() > _MOST_PAIRS * len(lists.labels):
                return None
        return sums

    def values(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value of each query; orders of ties are averaged."""
        queries = len(self._offsets) - 1
        sums = np.empty(queries)
        run_blocks(
            _sums, ranges(queries, threads_for(4 * len(scores)), 1),
            read_only(scores), self._gains, read_only(self._offsets), self._cut,
            self._k, self._form, read_only(self._table), self._longest, sums,
        )  # fmt: skip
        return sums if self._divisor is None else ratio(sums, self._divisor)


def _form_of(measure: Measure) -> int | None:
    definition = measure.definition
    if isinstance(definition, Additive) and type(definition).values is Additive.values:
        return None if definition.depends_on_returned else _ADDITIVE
    if isinstance(definition, FirstHit) and type(definition).values is FirstHit.values:
        return _FIRST_HIT
    if isinstance(definition, PrecisionSum) and dict(measure.settings).get("div") != "retrieved":
        return _PRECISIONS
    return None
