"""p-values of rankings against random rankings of the same candidates, from their null distributions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.bounding import Bounding, Difficulty
from rankbound.difficulty.ties import bounded_values
from rankbound.measures import Measure, Ranked, is_defined, values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import NullDistributions

SMALLEST_P = 1e-15  # smaller ones are beyond the precision of sums of probabilities
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class PValues:
    """For each query, how often a random ranking does at least as well, or at least as badly, as a run.

    Attributes
    ----------
    better:
        P(a random ranking scores at least as well as the run): the p-value of "no better than random". Where the run
        ties documents, this is the mean over the orders of the ties.
    worse:
        P(a random ranking scores at most as well as the run): the p-value of "no worse than random", likewise.
    smallest:
        The p-value of the best ranking. It is the smallest that the query can have.
    choice:
        Whether some rankings of the candidates are better than others. All p-values of other queries are 1.
    gain:
        Value of the run minus the mean over all rankings, reversed where lower is better: positive is better.
    """

    better: NDArray[np.float64]
    worse: NDArray[np.float64]
    smallest: NDArray[np.float64]
    choice: NDArray[np.bool_]
    gain: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.better)

    @property
    def mid(self) -> NDArray[np.float64]:
        """Mid-p-values of "no better than random": P(a random ranking scores better) + P(it scores the same) / 2.

        With ``better`` and ``worse`` this is (1 + better - worse) / 2, for means over ties as well.
        """
        return np.where(self.choice, np.clip((1 + self.better - self.worse) / 2, SMALLEST_P, 1.0), 1.0)

    def take(self, queries: NDArray[Any]) -> PValues:
        """The p-values of some queries, given by their indices or a mask."""
        return PValues(*(getattr(self, field.name)[queries] for field in fields(self)))


def p_values_of(
    ranking: Ranked, measure: Measure, difficulty: Difficulty, value: NDArray[np.float64] | None = None
) -> PValues:
    """p-values of complete rankings of the candidates by a plain measure; ``value`` is theirs, where it is known.

    A single order has P(X >= x), where X is the score of a random ranking and x its own (P(X <= x) where lower is
    better). Under the hypothesis that the ranking is random, such a p-value is at most a with a probability of at most
    a. Where the distribution was sampled, it is (1 + number of samples that reach x) / (1 + number of samples).
    p-values from closed forms and enumeration are exact. Others of at least 1e-6 have a relative error of at most 2 %,
    with the exceptions that `rankbound.distribution` names, and the resolution is added to them: 1e-8 where the
    distribution is approximate, 1e-10 where it is from a dynamic program.

    Documents with the same score have no order. The p-value is then the mean over the orders of the ties, exact or from
    draws as `rankbound.difficulty.ties` says. The p-value of the mean score would not do: if one of 100 documents is
    relevant, a constant scorer has a P@1 of 0.01 in the mean, which only 1 % of the rankings reach. The mean of the
    p-values of a constant scorer is at least 1/2.

    >>> from rankbound.difficulty import difficulty_of
    >>> from rankbound.lists import Lists
    >>> from rankbound.measures import parse_measure, rank
    >>> lists = Lists([1, 0, 0, 0, 1, 0, 0, 0], [0, 4, 8], scores=[4, 3, 2, 1, 0, 0, 0, 0])
    >>> ranking, measure = rank(lists), parse_measure("RR")
    >>> p = p_values_of(ranking, measure, difficulty_of(measure, ranking.counts))
    >>> p.better.tolist(), p.mid.tolist()  # 1/4; (1/4 + 2/4 + 3/4 + 1) / 4
    ([0.25, 0.625], [0.125, 0.5])
    """
    value = values(ranking, measure) if value is None else value
    null, lower = difficulty.precise_distribution(), difficulty.lower_is_better
    better, worse = (bounded_values(tail, measure, ranking, value, difficulty) for tail in (_BETTER, _WORSE))
    smallest = _tail(null, difficulty.best, at_most=lower)
    choice = difficulty.informative & is_defined(ranking.counts, measure)
    gain = (value - difficulty.expected) * (-1 if lower else 1)
    better, worse, smallest = (np.where(choice, np.clip(p, SMALLEST_P, 1.0), 1.0) for p in (better, worse, smallest))
    return PValues(better, worse, smallest, choice, np.where(choice & (np.abs(gain) > _ROUNDING), gain, 0.0))


def _tail(null: NullDistributions, x: NDArray[np.float64], *, at_most: bool) -> NDArray[np.float64]:
    """P(X <= x) or P(X >= x) of a random ranking, increased by the resolution of its distribution.

    Where X was sampled, x counts as a further sample.
    """
    p = null.cdf(x) if at_most else null.survival(x)
    return np.asarray((p + null.resolution) / (1 + null.resolution))


def _tail_of(*, better: bool) -> Bounding:
    """A p-value as a function of the value, which is averaged over ties as normalizations are."""

    def apply(
        x: NDArray[np.float64], difficulty: Difficulty, smooth: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        p = _tail(difficulty.precise_distribution(), x, at_most=better == difficulty.lower_is_better)
        return p, np.zeros(len(p))

    return Bounding("p-value", False, lambda difficulty: difficulty.informative, apply, needs_distribution=True)


_BETTER, _WORSE = _tail_of(better=True), _tail_of(better=False)
