"""infAP: average precision inferred from a random sample of judgments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.combinatorics import ratio
from rankbound.measures.definition import REL, Definition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked

__all__ = ["InferredAP"]

_EPSILON = 0.00001  # of trec_eval: keeps the inferred precision defined above the first judged documents


class InferredAP(Definition):
    """infAP = (1/P) sum over relevant documents of the precision at their rank, inferred from the judged sample above.

    At rank r with R relevant, N judged non-relevant and S pooled but unjudged documents (label -1) above, the precision
    is 1/r + (r-1)/r * (R + N + S)/(r - 1) * (R + e)/(R + N + 2 e). With complete judgments this is average precision up
    to e = 0.00001. The expected value and the distribution come from enumerated or sampled orders.
    """

    name = "infAP"
    summary = "average precision inferred from sampled judgments; label -1 marks pooled documents outside the sample"
    formula = "(1/P) sum over relevant documents of 1/r + (R + N + S)/r * (R + e)/(R + N + 2 e)"
    citation = "Yilmaz & Aslam, Estimating average precision with incomplete and imperfect judgments, CIKM 2006"
    parameters = {"rel": REL}
    cutoff = "none"
    reads_negative_labels = True

    def is_binary(self, measure: Measure) -> bool:
        """Always."""
        return True

    def values_in_order(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The sum over the relevant documents that were returned."""
        relevant = ranked.labels >= measure.rel
        pooled = ranked.judged
        other = pooled & (ranked.raw_labels >= 0) & ~relevant
        query, rank = ranked.locate(np.arange(len(relevant)))

        def above(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
            running = np.concatenate(([0], np.cumsum(mask)))
            return np.asarray(running[:-1] - running[ranked.offsets[query]])

        hits, sampled = above(relevant), above(relevant | other)
        inferred = above(pooled) / rank * (hits + _EPSILON) / (sampled + 2 * _EPSILON)
        precision = np.where(rank > 1, 1 / rank + inferred, 1.0)
        seen = relevant & (rank <= ranked.depths[query])
        return ratio(ranked.sum(query[seen], precision[seen]), ranked.counts.relevant(measure.rel))
