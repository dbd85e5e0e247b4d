"""Bpref: binary preference, a measure of judged documents alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.average_precision import MEAN
from rankbound.measures.combinatorics import log_choose, log_factorials
from rankbound.measures.definition import REL, BoundsTuple
from rankbound.measures.judgments import JudgmentMeasure, TiedGroups, count_of_level, counts_of_levels
from rankbound.measures.label_counts import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class Bpref(JudgmentMeasure):
    """Bpref = (1/P) sum over relevant documents of 1 - min(n, P) / min(N, P).

    P is the number of relevant documents, N that of the documents judged not relevant, and n how many of these stand
    above. Documents without judgment and those with labels below 0 are passed over. The worst value is 0 (1 if N = 0),
    the best 1. In a random order that ranks everything, n is uniform on 0..N, so the expected value is
    1 - sum over n of min(n, M) / ((N + 1) M) with M = min(N, P).
    """

    name = "Bpref"
    summary = "binary preference: judged non-relevant documents above relevant ones"
    formula = "(1/P) sum over relevant documents of 1 - min(judged non-relevant above, P) / min(N, P)"
    citation = "Buckley & Voorhees, Retrieval evaluation with incomplete information, SIGIR 2004"
    parameters = {"rel": REL, "mean": MEAN}
    aliases = {"gm_bpref": {"mean": "geometric"}}

    def aggregate(self, measure: Measure) -> str:
        """Arithmetic or geometric mean."""
        return "geometric" if measure["mean"] == "geometric" else "mean"

    def mean_sums(self, groups: TiedGroups) -> NDArray[np.float64]:
        """Visible relevant documents, less the mean over orders of the sum of min(n, M) / M."""
        most = np.minimum(groups.whole.other, groups.whole.relevant)
        visible = ratio(groups.inside.relevant * groups.visible, groups.size)
        counted = visible * np.minimum(groups.above.other, most)
        counted += _counted_inside(groups, np.maximum(most - groups.above.other, 0))
        return visible - ratio(counted, most)

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """All other documents above the relevant ones, the mean over all orders, and none of them above."""
        kinds = counts_of_levels(counts, levels)
        best = ratio(np.minimum(kinds.relevant, counts.depths), kinds.relevant)
        seen_last = np.clip(counts.depths - kinds.pooled, 0, kinds.relevant)
        worst = np.where(kinds.other > 0, 0.0, ratio(seen_last, kinds.relevant))
        return worst, self.expected_values(counts, kinds), best

    def without_passed_over(self, counts: dict[float, int], depth: int) -> tuple[dict[float, int], int]:
        """Where every document is ranked, those with labels below 0 are passed over."""
        if depth < sum(counts.values()):
            return counts, depth
        counts = {level: count for level, count in counts.items() if level >= 0}
        return counts, sum(counts.values())

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """M - min(n, M) for a relevant document, where M = min(N, P): a whole number."""
        if case.labels[level] <= 0:
            return 0.0
        most = _most(case)
        return most - np.minimum(count_of_level(case, so_far, 0), most) if most else 1.0

    def scale_and_shift(self, case: Any, so_far: Any) -> tuple[Any, Any]:
        """One over M P."""
        return (1 / (max(1, _most(case)) * case.relevant) if case.relevant else 0.0), 0.0

    def total_range(self, case: Any) -> tuple[float, float, float]:
        """Totals are whole numbers from 0 to M P."""
        return 0.0, float(max(1, _most(case)) * min(case.relevant, case.ranks)), 1.0


def _most(case: Any) -> int:
    """M = min(N, P)."""
    return int(min(case.relevant, count_of_level(case, case.counts, 0)))


def _counted_inside(groups: TiedGroups, most: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum over the visible relevant documents of each group of the mean of min(others of the group above, most).

    If the whole group is visible, the number of others above a relevant document is uniform on 0..others.
    """
    others = groups.inside.other
    below = np.clip(most, 0, others + 1)  # numbers of others that are less than most
    mean = (below * (below - 1) / 2 + (others + 1 - below) * most) / (others + 1)
    counted = groups.inside.relevant * mean
    cut = np.flatnonzero((groups.visible < groups.size) & (groups.inside.relevant > 0))
    if len(cut):
        size, visible = groups.size[cut], groups.visible[cut]
        total = _counted_at_ranks(size - 1, others[cut], visible, np.minimum(most, others)[cut])
        counted[cut] = groups.inside.relevant[cut] / size * total
    return np.asarray(counted)


def _counted_at_ranks(
    size: NDArray[np.int64], others: NDArray[np.int64], ranks: NDArray[np.int64], most: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum over the ranks t of the mean of min(a_t, most), a_t the others among the first t - 1 of ``size`` documents.

    From one rank to the next the mean grows by the probability that an other document follows of which fewer than
    ``most`` are above: others / size if J, the rank of the most-th of the remaining others among the remaining
    documents, is larger. So the sum is others / size times the mean of the pairs of ranks less those from J on.
    """
    pairs = ranks * (ranks - 1) / 2
    inside = np.flatnonzero((most < others) & (most > 0))
    pairs[most == 0] = 0.0
    if len(inside):
        length = np.maximum(ranks[inside] - 2, 0)
        owner = np.repeat(inside, length)
        j = np.arange(1, len(owner) + 1) - np.repeat(np.cumsum(length) - length, length)
        table = log_factorials(int(size.max()))
        rest, left, c = size[owner] - 1, others[owner] - 1, most[owner]
        possible = (j >= c) & (rest - j >= left - c)
        owner, j, rest, left, c = (each[possible] for each in (owner, j, rest, left, c))
        log_probability = (
            log_choose(table, j - 1, c - 1) + log_choose(table, rest - j, left - c) - log_choose(table, rest, left)
        )
        later = (ranks[owner] - 1 - j) * (ranks[owner] - j) / 2
        pairs -= np.bincount(owner, np.exp(log_probability) * later, minlength=len(size))
    return ratio(others * pairs, size)
