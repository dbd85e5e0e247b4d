"""Bpref: binary preference, a measure of judged documents alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.average_precision import MEAN
from rankbound.measures.combinatorics import distinct_columns, log_choose, log_factorials, ratio
from rankbound.measures.definition import REL, BoundsTuple, Walked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked

__all__ = ["Bpref"]


class Bpref(Walked):
    """Bpref = (1/P) sum over relevant documents of 1 - min(n, P) / min(N, P).

    P is the number of relevant documents, N that of the documents judged not relevant, and n how many of these stand
    above. Documents without judgment are passed over. The worst value is 0 (1 if N = 0), the best 1. In a random order
    that ranks everything, n is uniform on 0..N, so the expected value is 1 - sum over n of min(n, M) / ((N + 1) M) with
    M = min(N, P).
    """

    name = "Bpref"
    summary = "binary preference: judged non-relevant documents above relevant ones"
    formula = "(1/P) sum over relevant documents of 1 - min(judged non-relevant above, P) / min(N, P)"
    citation = "Buckley & Voorhees, Retrieval evaluation with incomplete information, SIGIR 2004"
    parameters = {"rel": REL, "mean": MEAN}
    aliases = {"gm_bpref": {"mean": "geometric"}}
    cutoff = "none"
    reads_negative_labels = True

    def aggregate(self, measure: Measure) -> str:
        """Arithmetic or geometric mean."""
        return "geometric" if measure["mean"] == "geometric" else "mean"

    def is_binary(self, measure: Measure) -> bool:
        """Always."""
        return True

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The mean over the orders of ties, in closed form where every document is judged.

        In a block of ties with o other documents, below b others, the number of others above a relevant document is
        uniform on b..b + o.
        """
        if ranked.tied is None:
            return super().values(measure, ranked)
        across = np.isin(np.arange(len(ranked)), ranked.ties_across_depth[0])
        rest = ranked.query_has_gaps | across
        closed = self._values_of_ties(measure, ranked)
        return np.where(rest, super().values(measure, ranked), closed) if rest.any() else closed

    def _values_of_ties(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        assert ranked.tied is not None
        tied, relevant = ranked.tied, ranked.labels >= measure.rel
        query, rank = ranked.locate(np.arange(len(relevant)))
        running = np.concatenate(([0], np.cumsum(~relevant)))
        total_relevant = ranked.counts.relevant(measure.rel)
        most = np.minimum(ranked.sizes - total_relevant, total_relevant)
        above = running[:-1] - running[ranked.offsets[query]]
        seen = relevant & (rank <= ranked.depths[query])
        seen[tied.items] = False
        term = 1 - ratio(np.minimum(above, most[query]), most[query])
        total = ranked.sum(query[seen], term[seen])
        others = tied.sum(~relevant)
        above_block, most_of_block = above[tied.start], most[tied.query]
        below_most = np.clip(most_of_block - above_block, 0, others + 1)  # numbers of others that are less than most
        mean = below_most * above_block + below_most * (below_most - 1) / 2 + (others + 1 - below_most) * most_of_block
        fraction = 1 - ratio(mean / (others + 1), most_of_block)
        ranked_block = tied.start - ranked.offsets[tied.query] < ranked.depths[tied.query]
        total += ranked.sum(tied.query, np.where(ranked_block, (tied.size - others) * fraction, 0.0))
        return ratio(total, total_relevant)

    def values_in_order(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The sum over the relevant documents that were returned."""
        relevant = ranked.labels >= measure.rel
        other = ranked.judged & (ranked.raw_labels >= 0) & ~relevant
        query, rank = ranked.locate(np.arange(len(relevant)))
        running = np.concatenate(([0], np.cumsum(other)))
        above = running[:-1] - running[ranked.offsets[query]]
        total_relevant = ranked.counts.relevant(measure.rel)
        total_other = running[ranked.offsets[1:]] - running[ranked.offsets[:-1]]
        worst = np.minimum(total_other, total_relevant)[query]
        term = 1 - ratio(np.minimum(above, total_relevant[query]), worst)
        seen = relevant & (rank <= ranked.depths[query])
        return ratio(ranked.sum(query[seen], term[seen]), total_relevant)

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """All other documents above the relevant ones, the mean over all orders, and none of them above."""
        relevant = counts.sum(counts.counts * (levels > 0)).astype(np.int64)
        others, depths = counts.sizes - relevant, counts.depths
        best = ratio(np.minimum(relevant, depths), relevant)
        cases, which = distinct_columns(relevant, others, depths)
        expected = np.array([_expected(*case) for case in cases.T.tolist()])
        return np.where(others > 0, 0.0, best), expected[which] if len(which) else np.zeros(0), best

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """M - min(n, M) for a relevant document, where M = min(N, P): a whole number."""
        if case.labels[level] <= 0:
            return 0.0
        most = min(case.relevant, case.n - case.relevant)
        above = sum(seen for label, seen in zip(case.labels, so_far, strict=True) if label <= 0)
        return most - np.minimum(above, most) if most else 1.0

    def scale_and_shift(self, case: Any, so_far: Any) -> tuple[Any, Any]:
        """One over M P."""
        most = max(1, min(case.relevant, case.n - case.relevant))
        return (1 / (most * case.relevant) if case.relevant else 0.0), 0.0

    def total_range(self, case: Any) -> tuple[float, float, float]:
        """Totals are whole numbers from 0 to M P."""
        most = max(1, min(case.relevant, case.n - case.relevant))
        return 0.0, float(most * min(case.relevant, case.ranks)), 1.0

    def has_loss(self, measure: Measure) -> bool:
        """The pairs that it counts are cut off at P, which no kernel does."""
        return False


def _expected(relevant: int, others: int, depth: int) -> float:
    """Mean over all orders of which the first ``depth`` ranks count."""
    most, n = min(relevant, others), relevant + others
    if relevant == 0 or depth == 0:
        return 0.0
    if most == 0:
        return min(depth, relevant) / relevant
    if depth >= n:  # the number of others above a relevant document is uniform on 0..others
        return 1 - (most * (most + 1) / 2 + (others - most) * most) / ((others + 1) * most)
    # a relevant document stands at rank r with probability relevant / n, and then above ~ hypergeometric(r - 1)
    rank = np.arange(1, depth + 1)[:, None]
    above = np.arange(min(others, depth - 1) + 1)[None, :]
    hits = rank - 1 - above  # relevant documents above it
    possible = (hits >= 0) & (hits <= relevant - 1)
    table = log_factorials(n)
    hits = np.where(possible, hits, 0)
    log_probability = (
        log_choose(table, others, above) + log_choose(table, relevant - 1, hits) - log_choose(table, n - 1, rank - 1)
    )
    probability = np.where(possible, np.exp(log_probability), 0.0)
    return float((probability * (1 - np.minimum(above, most) / most)).sum() / n)
