"""Additive measures: gain times discount, summed over the ranks and divided by a normalizer of the query.

N is the number of documents, g the gain of a label, d the discount of a rank, c = min(cutoff, depth, N) the number of
ranks that count, and Z the normalizer (1 for DCG, the ideal DCG for nDCG):

=========  ===========================================================================================================
value      x = (1/Z) sum over ranks r <= c of g(label at r) d(r); over ties the mean gain of the tied block
best       gains in descending order (rearrangement inequality: d never increases)
worst      gains in ascending order
expected   (1/Z) (mean gain of all N documents) * (sum over ranks r <= c of d(r)), because in a random
           ranking every document is equally likely at every rank
growth     g(label) d(r)
smooth     g d(R), R the smooth rank; its derivative in R is g d'(R)
swap       |g_i - g_j| |d(r_i) - d(r_j)| / Z when the documents at ranks r_i and r_j are swapped
=========  ===========================================================================================================
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.measures.definition import BoundsTuple
from rankbound.measures.discounts import CONSTANT, Discount, Discounted
from rankbound.measures.label_counts import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked


class Additive(Discounted):
    """A measure that sums gain(label) * discount(rank); the table above has what follows from them."""

    discount: Discount
    depends_on_returned: ClassVar[bool] = False  # whether the normalizer counts the documents that a run returned

    @abstractmethod
    def gains(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """Gain of each label: 0 or more, and never smaller for a higher label."""

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """What the sum of each query is divided by; 0 where the measure is not defined.

        ``gains`` has one number per run of ``counts``; by default those of the labels.
        """
        return np.ones(len(counts))

    def cut(self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
        """Ranks of each query that count."""
        return counts.depths if measure.cutoff is None else np.minimum(counts.depths, measure.cutoff)

    def ideal(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The sum of the best order of all documents at hand, whatever the depth of a run."""
        cut = counts.sizes if measure.cutoff is None else np.minimum(counts.sizes, measure.cutoff)
        gains = self.levels_of_counts(measure, counts) if gains is None else gains
        sums = self.discount.sums(cut, self.discount_parameter(measure))
        return _sum_in_order(counts, gains, counts.best_ends, cut, sums)

    # ---- what the structure gives ------------------------------------------------------------------------------------

    def levels(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """The gains."""
        return self.gains(measure, labels)

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Sum of gains times discounts over the normalizer; tied documents share their mean gain."""
        query, rank, gain = ranked.weights(partial(self.gains, measure), measure.cutoff)
        table = self.discount.table(int(rank.max(initial=0)), self.discount_parameter(measure))
        return ratio(ranked.sum(query, gain * table[rank - 1]), self._normalizer_of(measure, ranked))

    def _normalizer_of(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """What the value of a ranking is divided by; the label counts keep it."""
        if self.depends_on_returned:
            return self.normalizer(measure, ranked.returned_counts)
        kept = ranked.counts.normalizers
        if measure not in kept:
            kept[measure] = self.normalizer(measure, ranked.counts)
        return kept[measure]

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """Ascending gains, mean gain times the sum of discounts, descending gains; each over the normalizer."""
        cut, best_ends, worst_ends = self.cut(measure, counts, levels), counts.best_ends, counts.worst_ends
        sums = self.discount.sums(cut, self.discount_parameter(measure))
        worst = _sum_in_order(counts, levels, worst_ends, cut, sums)
        best = _sum_in_order(counts, levels, best_ends, cut, sums)
        normalizer = self.normalizer(measure, counts, levels)
        if levels is counts.levels.get(measure):
            counts.normalizers[measure] = normalizer
        expected = ratio(counts.sum(levels * counts.counts), counts.sizes) * sums(cut)
        return ratio(worst, normalizer), ratio(expected, normalizer), ratio(best, normalizer)

    def variance(self, measure: Measure, counts: LabelCounts) -> NDArray[np.float64]:
        """Variance over all orders: s^2 (sum of d^2 - (sum of d)^2 / N) / normalizer^2.

        s^2 is the sample variance of the gains of the N documents, and d are the discounts of the ranks that count.
        """
        gains, cut, sizes = self.levels(measure, counts.values), self.cut(measure, counts), counts.sizes
        parameter = self.discount_parameter(measure)
        mean = ratio(counts.sum(gains * counts.counts), sizes)
        squares = counts.sum(counts.counts * (gains - mean[counts.query_of_run]) ** 2)
        table = self.discount.table(int(cut.max(initial=0)), parameter)
        of_squares = np.concatenate(([0.0], np.cumsum(table**2)))[cut]
        spread = np.maximum(of_squares - ratio(self.discount.sums(cut, parameter)(cut) ** 2, sizes), 0.0)
        return ratio(ratio(squares, sizes - 1) * spread, self.normalizer(measure, counts) ** 2)

    def range_form(self, measure: Measure) -> str:
        """Higher gains never lower a sum; a normalizer needs a form of its own."""
        return "rises" if type(self).normalizer is Additive.normalizer else ""

    def rank_weights(self, measure: Measure, ranks: int) -> NDArray[np.float64]:
        """The discounts."""
        return self.discount.table(ranks, self.discount_parameter(measure))

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """Gain times discount."""
        return case.labels[level] * case.rank_weights[rank - 1]

    def scale_and_shift(self, case: Any, so_far: Any) -> tuple[Any, Any]:
        """One over the normalizer."""
        normalizer: float = case.normalizer
        return (1 / normalizer if normalizer > 0 else 0.0), 0.0

    def is_concentrated(self, measure: Measure) -> bool:
        """As the discount says."""
        return self.discount.concentrated


class Binary(Additive):
    """An additive measure with gain 1 for relevant documents (label >= rel) and 0 for others."""

    def is_binary(self, measure: Measure) -> bool:
        """Always."""
        return True

    def gains(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """1 for relevant documents, 0 for others."""
        return (labels >= measure.rel).astype(np.float64)

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Sum of the discounts of relevant documents over the normalizer; ties share them."""
        if not self.is_binary(measure):
            return super().values(measure, ranked)
        hits, cut = ranked.hits(measure.rel), ranked.depths
        if measure.cutoff is not None or type(self).cut is not Additive.cut:
            cut = np.minimum(self.cut(measure, ranked.counts), ranked.depths)
        terms = hits.probability
        if self.discount is not CONSTANT:
            table = self.discount.table(int(hits.rank.max(initial=0)), self.discount_parameter(measure))
            terms = terms * table[hits.rank - 1]
        return ratio(ranked.sum_of_hits(hits, terms, cut), self._normalizer_of(measure, ranked))

    def relevant(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.int64]:
        """Relevant documents of each query."""
        if gains is None:
            return counts.relevant(measure.rel)
        return counts.sum(counts.counts * (gains > 0)).astype(np.int64)

    def range_form(self, measure: Measure) -> str:
        """Normalizers of binary measures depend on the number of relevant documents alone."""
        return "hits"

    def closed_form(self, measure: Measure) -> str:
        """With a constant discount the value counts the relevant documents among the first ranks."""
        return "hit count" if self.discount is CONSTANT else ""


def _sum_in_order(
    counts: LabelCounts,
    gains: NDArray[np.float64],
    ends: NDArray[np.int64],
    cut: NDArray[np.int64],
    sums: Callable[[NDArray[np.int64]], Any],
) -> NDArray[np.float64]:
    """Sum per query when runs of equal gain fill the ranks up to ``ends``; ``sums`` are those of the discounts."""
    limit = cut[counts.query_of_run]
    end = np.minimum(ends, limit)
    start = np.minimum(ends - counts.counts, limit)
    terms = gains * (sums(end) - sums(start))
    return np.bincount(counts.query_of_run, terms, minlength=len(cut)).astype(np.float64, copy=False)
