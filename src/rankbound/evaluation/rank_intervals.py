"""Intervals of ranks: between which ranks each of many systems lies, whatever the noise of the queries.

All pairs of systems are tested and corrected together. A system is then better than those that it beats significantly
and worse than those that beat it: its rank lies between 1 + (systems that beat it) and the number of systems minus
(systems that it beats). Where the correction bounds the probability of any false rejection (Holm, Bonferroni), all true
ranks lie in their intervals at once with at least the policy's confidence, because a rank is outside of its interval
only if a test rejects falsely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankbound.evaluation.inference import Inference, pair_statistics
from rankbound.evaluation.scores import is_lower_better

if TYPE_CHECKING:
    from rankbound.evaluation.scores import ScoreMatrix


@dataclass(frozen=True, slots=True)
class RankInterval:
    """A system with its mean, its rank by the mean, and the interval of its rank; ranks begin at 1, the best."""

    system: str
    mean: float
    rank: int
    low: int
    high: int

    @property
    def may_be_first(self) -> bool:
        """Whether no system beats it significantly: it is not separable from the best."""
        return self.low == 1


def rank_intervals(scores: ScoreMatrix, measure: str, policy: Inference | None = None) -> tuple[RankInterval, ...]:
    """The rank of each system by one measure with its interval, the best first.

    >>> from rankbound.evaluation.scores import ScoreMatrix
    >>> values = np.array([[0.9, 0.8, 0.9, 0.7, 0.9], [0.8, 0.9, 0.9, 0.8, 0.8], [0.1, 0.2, 0.1, 0.0, 0.2]])
    >>> scores = ScoreMatrix(("a", "b", "c"), tuple("12345"), {"AP": values})
    >>> [(row.system, row.low, row.high) for row in rank_intervals(scores, "AP")]
    [('b', 1, 2), ('a', 1, 2), ('c', 3, 3)]
    """
    tests = policy or Inference()
    means = scores.means(measure)
    quality = -means if is_lower_better(measure) else means
    count = len(scores.systems)
    first, second = np.triu_indices(count, k=1)
    p = tests.correct(pair_statistics(scores, measure, 0, second, first, tests.p_values))
    significant = p < tests.alpha
    first_is_better = quality[first] > quality[second]
    winner, loser = np.where(first_is_better, first, second), np.where(first_is_better, second, first)
    beaten_by = np.bincount(loser[significant], minlength=count)
    beats = np.bincount(winner[significant], minlength=count)
    order = np.argsort(-quality, kind="stable")
    return tuple(
        RankInterval(scores.systems[i], float(means[i]), rank, int(1 + beaten_by[i]), int(count - beats[i]))
        for rank, i in enumerate(order.tolist(), start=1)
    )
