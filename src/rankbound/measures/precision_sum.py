"""Precision sums: the precisions at the ranks of relevant documents, summed and divided. AP and SP.

With N documents, P relevant, H_m = 1 + 1/2 + ... + 1/m, c the ranks that are seen and D the divisor:

=========  ===========================================================================================================
value      x = (1/D) sum over relevant documents at ranks r <= c of (relevant documents down to r) / r
best       (1/D) min(c, P)
worst      relevant documents last: (1/D) sum over ranks r from N-P+1 to c of (r - (N - P)) / r
expected   (1/D) (P/N) [H_c + (P - 1)/(N - 1) (c - H_c)]
growth     (relevant documents so far + 1) / r for a relevant document
smooth     (1 + H) / R, H the smooth number of relevant documents above and R the smooth rank
swap       with n(r) relevant documents and A(r) = sum of 1/rank over relevant documents down to rank r, over D:
           other j above relevant i: (n(r_j) + 1)/r_j - n(r_i)/r_i + A(r_i - 1) - A(r_j);
           relevant i above other j: n(r_j)/r_j - n(r_i)/r_i - A(r_j) + A(r_i)
=========  ===========================================================================================================
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.combinatorics import harmonic_numbers
from rankbound.measures.definition import BoundsTuple, Walked
from rankbound.measures.label_counts import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked


class PrecisionSum(Walked):
    """A measure that sums precisions at the ranks of relevant documents."""

    @abstractmethod
    def divisor(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """What the sum of each query is divided by; ``levels`` has one number per run of ``counts``."""

    def relevant(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> NDArray[np.int64]:
        """Relevant documents of each query."""
        if levels is None:
            return counts.relevant(measure.rel)
        return counts.sum(counts.counts * (levels > 0)).astype(np.int64)

    def is_binary(self, measure: Measure) -> bool:
        """Always."""
        return True

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The sum of precisions over the divisor; in a tie the mean over its orders."""
        return ratio(self.precision_sums(measure, ranked), self.divisor(measure, ranked.counts))

    def precision_sums(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Sum over the relevant documents within the cutoff of the precision at their ranks."""
        hits = ranked.hits(measure.rel)
        return ranked.sum_of_hits(hits, hits.probability * hits.nth / hits.rank, ranked.cut(measure.cutoff))

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """The closed forms of the table above."""
        worst, expected, best = self.sum_bounds(measure, counts, levels)
        divisor = self.divisor(measure, counts, levels)
        return ratio(worst, divisor), ratio(expected, divisor), ratio(best, divisor)

    def sum_bounds(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """Worst, expected and best sum of precisions."""
        n, p, c = counts.sizes, self.relevant(measure, counts, levels), counts.cut(measure.cutoff)
        most, least = np.minimum(c, p), np.maximum(c - (n - p), 0)  # relevant documents that are seen
        h = harmonic_numbers(int(n.max(initial=0)))
        worst = least - (n - p) * np.where(least > 0, h[c] - h[n - p], 0.0)
        if (
            measure["variant"] == "published"
        ):  # takes precision and relevance at a rank as independent, and k as the top
            k = n if measure.cutoff is None else np.full(len(counts), measure.cutoff)
            return worst, k * ratio(p, n) ** 2, k
        expected = ratio(p, n) * (h[c] + ratio(p - 1, n - 1) * (c - h[c]))
        return worst, expected, most

    def range_form(self, measure: Measure) -> str:
        """A relevant document adds its precision, and raises those below it."""
        return "hits"

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """The precision at this rank, for a relevant document."""
        return (so_far[level] + 1) / rank if case.labels[level] > 0 else 0.0

    def scale_and_shift(self, case: Any, so_far: Any) -> tuple[Any, Any]:
        """One over the divisor."""
        divisor = float(self.divisor(case.measure, case.label_counts, np.array(case.labels))[0])
        return (1 / divisor if divisor > 0 else 0.0), 0.0
