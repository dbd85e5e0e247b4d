"""Cascade measures: a user reads down the list and stops, satisfied, with a probability that the label decides.

With q the stop probability of a label, d the discount of a rank and c the ranks that are seen:

=========  ===========================================================================================================
value      x = sum over ranks r <= c of d(r) q_r prod over i < r of (1 - q_i)
best       stop probabilities in descending order (d never increases); worst: in ascending order
expected   sum over r <= c of d(r) (a_{r-1} - a_r), a_m the mean over all m-subsets of documents of prod (1 - q);
           with q in {0, 1}: sum of d(r) P(the first relevant document stands at r)
growth     d(r) q prod over earlier documents of (1 - q)
smooth     sum_i q_i d(R_i) prod_j (1 - q_j sigma(f_j - f_i)), R the smooth rank
swap       with C(r) the probability to read on after rank r and T(r) the value of the first r ranks, a above b:
           C(a-1) d(a) (q_b - q_a) + (T(b-1) - T(a)) (s - 1) + C(b-1) d(b) (q_a s - q_b), s = (1 - q_b)/(1 - q_a)
=========  ===========================================================================================================

A tied block passes the user on with the product of its (1 - q), whatever its order; inside it the orders are averaged
in the same way as for the expected value.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.measures.combinatorics import (
    distinct_columns,
    first_hit_probabilities,
    mean_products,
    mean_products_of_levels,
    products_work,
)
from rankbound.measures.definition import BoundsTuple
from rankbound.measures.discounts import RECIPROCAL, Discount, Discounted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked

_TICKS = 2.0**54
_NEVER = 400.0
_CERTAIN = 1 - 2.0**-53  # a stop probability of 1 would have a logarithm of minus infinity; the error is 1e-16
_UNREAD = 1e-12  # probability that a user reads on, below which ranks are left out of a distribution
_LONG_WORK, _STEP_WORK = 2e7, 2000  # from here on the levels of a list are used instead of its documents
_MOST_WORK = 2e9  # terms of the expected value of a long list, which take some ten seconds


class Cascade(Discounted):
    """A measure of a user who stops at a document with probability stop(label)."""

    discount: Discount = RECIPROCAL

    @abstractmethod
    def stops(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """Probability that a user who sees a document with this label is satisfied and stops."""

    # ---- what the structure gives ------------------------------------------------------------------------------------

    def levels(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """The stop probabilities."""
        return self.stops(measure, labels)

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The expected discount of the rank at which the user stops; orders of ties are averaged."""
        return self.values_of_stops(measure, ranked, self.stops(measure, ranked.labels))

    def values_of_stops(self, measure: Measure, ranked: Ranked, stop: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value with these probabilities in place of those of the labels."""
        stop = np.minimum(stop, _CERTAIN)
        cut = ranked.cut(measure.cutoff)
        if ranked.tied is None:
            return self._stopping_values(measure, stop, ranked.offsets, cut)
        tied = ranked.tied
        outside = stop.copy()
        outside[tied.items] = 0
        reach = _Reading(stop).reach(tied.start, ranked.offsets[tied.query])
        order = np.argsort(-tied.size, kind="stable")
        width = int(tied.size.max())
        survival = np.ones((len(order), width))
        row = np.argsort(order)[tied.block_of_item]
        survival[row, tied.items - tied.start[tied.block_of_item]] = 1 - stop[tied.items]
        survival.sort(axis=1)  # so that the order of tied items does not matter; unused columns have ones
        average = mean_products(survival, tied.size[order], width)
        rank = (tied.start - ranked.offsets[tied.query])[order, None] + np.arange(1, width + 1)
        visible = (np.arange(width) < tied.size[order, None]) & (rank <= cut[tied.query[order], None])
        inside = _row_sums((average[:, :-1] - average[:, 1:]) * self.discounts(measure, rank) * visible)
        value = self._stopping_values(measure, outside, ranked.offsets, cut, stop)
        return value + ranked.sum(tied.query[order], reach[order] * inside)

    def _stopping_values(
        self,
        measure: Measure,
        stop: NDArray[np.float64],
        offsets: NDArray[np.int64],
        cut: NDArray[np.int64],
        passing: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """sum of d(i) stop_i prod_{j<i} (1 - passing_j) per query; ``passing`` is ``stop`` by default."""
        reading = _Reading(stop if passing is None else passing)
        positions = np.flatnonzero(stop != 0)
        query = np.searchsorted(offsets, positions, side="right") - 1
        rank = positions - offsets[query] + 1
        seen = rank <= cut[query]
        positions, query, rank = positions[seen], query[seen], rank[seen]
        reach = reading.reach(positions, offsets[query])
        table = self.discount.table(int(rank.max(initial=0)), self.discount_parameter(measure))
        terms = stop[positions] * reach * table[rank - 1]
        return np.bincount(query, terms, minlength=len(cut)).astype(np.float64, copy=False)

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """High stop probabilities last, the mean over all orders, high stop probabilities first."""
        cut, stop = counts.cut(measure.cutoff), np.minimum(levels, _CERTAIN)
        offsets = np.concatenate(([0], np.cumsum(counts.sizes)))
        falling = np.repeat(stop, counts.counts)
        mirror = np.repeat(offsets[:-1] + offsets[1:] - 1, counts.sizes) - np.arange(len(falling))
        best = self._stopping_values(measure, falling, offsets, cut)
        worst = self._stopping_values(measure, falling[mirror], offsets, cut)
        is_long = counts.sizes * (cut + _STEP_WORK) > _LONG_WORK
        sizes = np.where(is_long, 0, counts.sizes)
        order = np.argsort(-sizes, kind="stable")
        width, upto = int(sizes.max(initial=0)), int(cut[~is_long].max(initial=0))
        survival = np.ones((len(counts), width))
        survival[np.arange(width) < sizes[:, None]] = 1 - falling[np.repeat(~is_long, counts.sizes)]
        average = mean_products(survival[order], sizes[order], upto)
        seen = np.arange(upto) < cut[order, None]
        table = self.discount.table(upto, self.discount_parameter(measure))
        expected = np.empty(len(counts))
        expected[order] = _row_sums((average[:, :-1] - average[:, 1:]) * table * seen)
        for q in np.flatnonzero(is_long).tolist():
            runs = slice(counts.starts[q], counts.starts[q + 1])
            expected[q] = self._expected_of_long_list(measure, stop[runs], counts.counts[runs], int(cut[q]))
        return worst, expected, best

    def _expected_of_long_list(
        self, measure: Measure, stop: NDArray[np.float64], counts: NDArray[np.int64], cut: int
    ) -> float:
        """The expected value as a sum over the level of the document at rank r, and over r, within 1e-8 of it.

        The documents above r are a random subset of the others, so P(the user stops at r at a document of this level)
        is its fraction times its stop probability times the mean product of r - 1 of the others. This is
        a_{r-1} - a_r without the cancellation.
        """
        survival = 1 - stop
        work = np.count_nonzero(stop) * products_work(survival, counts, cut)
        if work > _MOST_WORK:
            longest = int(counts.sum() * math.sqrt(_MOST_WORK / work))
            raise ArgumentError(
                f"the expected {measure.plain} of {counts.sum():,} documents with {len(counts):,} different labels "
                f"would take too long; choose a cutoff, or a query of at most about {longest:,} documents"
            )
        table = self.discount.table(cut, self.discount_parameter(measure))
        result = 0.0
        for level in np.flatnonzero(stop).tolist():
            others = counts.copy()
            others[level] -= 1
            average = mean_products_of_levels(survival[others > 0], others[others > 0], cut - 1)
            result += float(counts[level] / counts.sum() * stop[level] * (average @ table[: len(average)]))
        return result

    def range_form(self, measure: Measure) -> str:
        """A user who is more likely to stop at a rank gains its discount, which no later rank exceeds."""
        return "rises"

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """Discount times the probability to come this far and stop."""
        if case.labels[level] <= 0:
            return 0.0
        reach = math.prod((1 - stop) ** seen for stop, seen in zip(case.labels, so_far, strict=True))
        return self.discounts(case.measure, rank) * case.labels[level] * reach

    def decisive_ranks(self, case: Any) -> int:
        """Ranks that a user passes with a probability of 1e-12: at most the mean of 1 - q to the power of the rank."""
        if not case.random:
            return int(case.ranks)
        mean = 1 - float(np.dot(case.labels, case.counts)) / max(case.n, 1)
        return min(case.ranks, math.ceil(math.log(_UNREAD) / math.log(mean))) if 0 < mean < 1 else int(case.ranks)

    def is_concentrated(self, measure: Measure) -> bool:
        """Users seldom come far."""
        return True


class _Reading:
    """Probabilities to read on from one item to another, from one running sum that serves all queries.

    The logarithms are summed as integers, in units of 2^-54, so that a probability does not depend on the queries that
    come before. The integers wrap around, but not their differences, down to exp(-400), which is 0 here.
    """

    def __init__(self, stop: NDArray[np.float64]) -> None:
        logs = np.log1p(-stop)
        self._ticks = np.concatenate(([0], np.cumsum(np.rint(logs * _TICKS).astype(np.int64))))
        self._sums = np.concatenate(([0.0], np.cumsum(logs)))

    def reach(self, items: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability of a user at ``starts`` to pass all items before ``items``."""
        logs = (self._ticks[items] - self._ticks[starts]) / _TICKS
        return np.where(self._sums[items] - self._sums[starts] > -_NEVER, np.exp(np.minimum(logs, 0.0)), 0.0)


def _row_sums(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums from left to right, which zeros at the end do not change to the last bit, as NumPy's sums may."""
    return np.cumsum(rows, axis=1)[:, -1] if rows.shape[1] else np.zeros(len(rows))


class FirstHit(Cascade):
    """A cascade whose user stops at the first relevant document: the value is the discount of its rank."""

    def is_binary(self, measure: Measure) -> bool:
        """Always."""
        return True

    def stops(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """1 for relevant documents, 0 for others."""
        return (labels >= measure.rel).astype(np.float64)

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The discount of the rank of the first relevant document, averaged over the orders of its ties."""
        positions, starts = ranked.relevant(measure.rel)
        query = np.flatnonzero(starts[:-1] < starts[1:])
        first = positions[starts[query]]
        rank = first - ranked.offsets[query] + 1
        cut = ranked.cut(measure.cutoff)
        value = np.zeros(len(ranked))
        value[query] = np.where(rank <= cut[query], self.discounts(measure, np.maximum(rank, 1)), 0.0)
        if ranked.tied is not None:
            tied = ranked.tied
            block = np.searchsorted(tied.start, first, side="right") - 1
            inside = (block >= 0) & (first < (tied.start + tied.size)[block])
            query, block = query[inside], block[inside]
            above = tied.start[block] - ranked.offsets[query]
            hits = tied.sum(ranked.labels >= measure.rel)[block].astype(np.int64)
            index, step, probability = first_hit_probabilities(tied.size[block], hits, cut[query] - above)
            terms = probability * self.discounts(measure, above[index] + step)
            value[query] = np.bincount(index, terms, minlength=len(query))
        return value

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """The first relevant document at rank N - P + 1, anywhere, at rank 1."""
        n, cut = counts.sizes, counts.cut(measure.cutoff)
        relevant = counts.sum(counts.counts * (levels > 0)).astype(np.int64)
        # many queries share (N, P, c): the distribution of the first relevant rank is computed once for each
        cases, back = distinct_columns(n, relevant, cut)
        index, rank, probability = first_hit_probabilities(*cases)
        terms = probability * self.discounts(measure, rank)
        expected = np.bincount(index, terms, minlength=cases.shape[1])[back]
        last = n - relevant + 1
        at_last, at_first = self.discounts(measure, np.maximum(last, 1)), self.discounts(measure, np.ones(len(n)))
        worst = np.where((relevant > 0) & (last <= cut), at_last, 0.0)
        return worst, expected, np.where((relevant > 0) & (cut > 0), at_first, 0.0)

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """The discount, if no relevant document came before."""
        if case.labels[level] <= 0:
            return 0.0
        return np.where(so_far[level] == 0, self.discounts(case.measure, rank), 0.0)

    def closed_form(self, measure: Measure) -> str:
        """The rank of the first relevant document has a known distribution."""
        return "first hit"

    def is_concentrated(self, measure: Measure) -> bool:
        """Irrelevant: there is a closed form."""
        return False
