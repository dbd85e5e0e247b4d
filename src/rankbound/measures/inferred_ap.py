"""infAP: average precision inferred from a random sample of judgments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.combinatorics import distinct_columns, ratio
from rankbound.measures.definition import REL, BoundsTuple, Walked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked

__all__ = ["InferredAP"]

_EPSILON = 0.00001  # of trec_eval: keeps the inferred precision defined above the first judged documents


class InferredAP(Walked):
    """infAP = (1/P) sum over relevant documents of the precision at their rank, inferred from the judged sample above.

    At rank r with R relevant, N judged non-relevant and S pooled but unjudged documents (label -1) above, the precision
    is 1/r + (r-1)/r * (R + N + S)/(r - 1) * (R + e)/(R + N + 2 e). With complete judgments this is average precision up
    to e = 0.00001: bounds and distribution are those of complete judgments.
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

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The mean over the orders of ties, in closed form where every document is judged: precision is linear."""
        hits = ranked.hits(measure.rel)
        precision = hits.probability * _precision(hits.rank, hits.nth - 1)
        total = ranked.sum_of_hits(hits, precision, ranked.cut(None))
        closed = ratio(total, ranked.counts.relevant(measure.rel))
        gaps = ranked.query_has_gaps
        return np.where(gaps, super().values(measure, ranked), closed) if gaps.any() else closed

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

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """Relevant documents last, anywhere, and first."""
        relevant = counts.sum(counts.counts * (levels > 0)).astype(np.int64)
        cases, which = distinct_columns(relevant, counts.sizes - relevant, counts.depths)
        bounds = np.array([_bounds(*case) for case in cases.T.tolist()]).reshape(-1, 3)[which]
        return bounds[:, 0], bounds[:, 1], bounds[:, 2]

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """The precision at this rank, for a relevant document."""
        return _precision(rank, so_far[level]) if case.labels[level] > 0 else 0.0

    def scale_and_shift(self, case: Any, so_far: Any) -> tuple[Any, Any]:
        """One over the number of relevant documents."""
        return (1 / case.relevant if case.relevant else 0.0), 0.0

    def has_loss(self, measure: Measure) -> bool:
        """The loss of AP serves the purpose."""
        return False


def _precision(rank: Any, hits: Any) -> Any:
    """The inferred precision below so many relevant documents, where every document is judged."""
    return 1 / rank + (rank - 1) / rank * (hits + _EPSILON) / (rank - 1 + 2 * _EPSILON)


def _bounds(relevant: int, others: int, depth: int) -> tuple[float, float, float]:
    """Worst, expected and best value of rankings of which the first ``depth`` ranks count."""
    if relevant == 0:
        return 0.0, 0.0, 0.0
    n = relevant + others
    rank = np.arange(1, depth + 1)
    nth = np.arange(relevant)
    expected = _precision(rank, (rank - 1) * (relevant - 1) / max(n - 1, 1)).sum() / n
    last, first = nth[: max(depth - others, 0)], nth[:depth]
    return (
        float(_precision(others + 1 + last, last).sum() / relevant),
        float(expected),
        float(_precision(1 + first, first).sum() / relevant),
    )
