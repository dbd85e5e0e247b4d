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
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.measures.combinatorics import ratio
from rankbound.measures.definition import BoundsTuple, Discounted
from rankbound.measures.discounts import CONSTANT, Discount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked

__all__ = ["Additive", "Binary"]


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
        return counts.cut(measure.cutoff)

    def ideal(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The sum of the best order of all documents at hand, whatever the depth of a run."""
        cut = counts.sizes if measure.cutoff is None else np.minimum(counts.sizes, measure.cutoff)
        return self._sum_in_order(measure, counts, self._gains(measure, counts, gains), counts.best_ends, cut)

    def _gains(self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None) -> NDArray[np.float64]:
        return self.levels(measure, counts.values) if gains is None else gains

    def _sum_in_order(
        self,
        measure: Measure,
        counts: LabelCounts,
        gains: NDArray[np.float64],
        ends: NDArray[np.int64],
        cut: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Sum per query when runs of equal gain fill the ranks up to ``ends``."""
        sums, limit = self.discount.sums(cut, self.discount_parameter(measure)), cut[counts.query_of_run]
        end = np.minimum(ends, limit)
        start = np.minimum(ends - counts.counts, limit)
        return counts.sum(gains * (sums(end) - sums(start)))

    # ---- what the structure gives ------------------------------------------------------------------------------------

    def levels(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """The gains."""
        return self.gains(measure, labels)

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Sum of gains times discounts over the normalizer; tied documents share their mean gain."""
        parameter = self.discount_parameter(measure)
        if self.is_binary(measure):
            hits, cut = ranked.hits(measure.rel), ranked.depths
            if measure.cutoff is not None or type(self).cut is not Additive.cut:
                cut = np.minimum(self.cut(measure, ranked.counts), ranked.depths)
            terms = hits.probability
            if self.discount is not CONSTANT:
                terms = terms * self.discount.table(int(hits.rank.max(initial=0)), parameter)[hits.rank - 1]
            total = ranked.sum_of_hits(hits, terms, cut)
        else:
            query, rank, gain = ranked.weights(lambda labels: self.gains(measure, labels), measure.cutoff)
            total = ranked.sum(query, gain * self.discount.table(int(rank.max(initial=0)), parameter)[rank - 1])
        counts = ranked.returned_counts if self.depends_on_returned else ranked.counts
        return ratio(total, self.normalizer(measure, counts))

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """Ascending gains, mean gain times the sum of discounts, descending gains; each over the normalizer."""
        cut, normalizer = self.cut(measure, counts, levels), self.normalizer(measure, counts, levels)
        worst = self._sum_in_order(measure, counts, levels, counts.worst_ends, cut)
        best = self._sum_in_order(measure, counts, levels, counts.best_ends, cut)
        mean_gain = ratio(counts.sum(levels * counts.counts), counts.sizes)
        expected = mean_gain * self.discount.sums(cut, self.discount_parameter(measure))(cut)
        return ratio(worst, normalizer), ratio(expected, normalizer), ratio(best, normalizer)

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

    def relevant(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.int64]:
        """Relevant documents of each query."""
        if gains is None:
            return counts.relevant(measure.rel)
        return counts.sum(counts.counts * (gains > 0)).astype(np.int64)

    def closed_form(self, measure: Measure) -> str:
        """With a constant discount the value counts the relevant documents among the first ranks."""
        return "hit count" if self.discount is CONSTANT else ""
