"""Walk: the states of a dynamic program that fills one rank after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.case import Case, Counts
from rankbound.measures.combinatorics import log_factorials

_TAIL = 39.0  # -log of a probability that has no weight in double precision
_LEAST_WEIGHT = 1e-12  # ranks that together weigh less than this are left out (RBP in long lists)


@dataclass(frozen=True, slots=True)
class Walk:
    """The order in which ranks are filled, and the states in between.

    The commonest label needs no counter: its count is what the others leave. ``axes`` are the labels with a counter.
    """

    case: Case
    axes: tuple[int, ...]
    base: int
    ranks: tuple[int, ...]
    shape: tuple[int, ...]  # states: one more than the most that can be seen of each counted label

    @classmethod
    def of(cls, case: Case) -> Walk:
        """In a random order sums of weights may take the ranks in any order: light ones first keep totals close."""
        base = int(np.argmax(case.counts))
        if case.rank_weights is None:
            base = len(case.counts) - 1  # the lowest label, which never adds anything
        axes = tuple(level for level in range(len(case.counts)) if level != base)
        ranks = range(1, case.measure.definition.decisive_ranks(case) + 1)
        if case.rank_weights is not None:
            rest = np.cumsum(case.rank_weights[::-1])[::-1]
            ranks = range(1, int(np.count_nonzero(rest > _LEAST_WEIGHT * rest[:1])) + 1)
            if case.random:
                ranks = ranks[::-1]
        shape = tuple(min(case.counts[level], len(ranks)) + 1 for level in axes)
        return cls(case, axes, base, tuple(ranks), shape)

    @property
    def everything(self) -> tuple[slice, ...]:
        """The band of all states."""
        return tuple(slice(0, states) for states in self.shape)

    def band(self, filled: int) -> tuple[slice, ...]:
        """States that can be reached after so many items."""
        left = self.case.n - filled
        return tuple(
            slice(max(0, self.case.counts[level] - left), min(filled, size - 1) + 1)
            for level, size in zip(self.axes, self.shape, strict=True)
        )

    def near_bands(self) -> list[tuple[slice, ...]]:
        """For each rank the states that matter: those within reach, and in a random order near their mean.

        By Bernstein's inequality, counts further from their mean than sqrt(2 c variance) + 2 c / 3 have a probability
        of at most 2 exp(-c).
        """
        case = self.case
        bands = [self.band(filled) for filled in range(len(self.ranks))]
        if not case.random:
            return bands
        filled = np.arange(len(bands))
        left = (case.n - filled) / max(case.n - 1, 1)
        narrow = []
        for axis, level in enumerate(self.axes):
            fraction = case.counts[level] / case.n
            mean, variance = filled * fraction, filled * fraction * (1 - fraction) * left
            spread = np.sqrt(2 * _TAIL * variance) + 2 * _TAIL / 3
            lows, highs = (mean - spread).astype(int).tolist(), (mean + spread).astype(int).tolist()
            narrow.append(
                [
                    slice(max(band[axis].start, low), min(band[axis].stop, high + 2))
                    for band, low, high in zip(bands, lows, highs, strict=True)
                ]
            )
        return list(zip(*narrow, strict=True))

    def counts(self, filled: Any, band: tuple[slice, ...]) -> list[Any]:
        """Counts so far per label in every state of the band, as arrays that broadcast."""
        so_far: list[Any] = [0] * len(self.case.counts)
        for axis, level in enumerate(self.axes):
            after = (1,) * (len(band) - 1 - axis)
            so_far[level] = np.arange(band[axis].start, band[axis].stop).reshape(-1, *after)
        so_far[self.base] = filled - sum(so_far)
        return so_far

    def possible(self, so_far: Counts) -> NDArray[np.bool_]:
        """Whether there are as many items of each label as the counts say."""
        fits = [(seen >= 0) & (seen <= count) for count, seen in zip(self.case.counts, so_far, strict=True)]
        return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*fits)))

    def odds(self) -> list[float]:
        """Frequency of each counted label over that of the commonest; see `weight_of_counts`."""
        return [self.case.counts[level] / self.case.counts[self.base] for level in self.axes]

    def weight_of_counts(self) -> tuple[NDArray[np.float64], float]:
        """Probability of an arrangement by its final counts, over the product of the odds of its labels; a factor
        per rank.

        In a random order all arrangements with the same counts have the same probability. So a program may move mass by
        the odds alone, as if items were drawn independently, and weigh the final counts: weight * factor^ranks. The
        factor, the fraction of the commonest label, is separate: it is applied rank by rank to keep numbers in range.
        """
        case, seen = self.case, len(self.ranks)
        lf = log_factorials(case.n)
        so_far = self.counts(seen, self.everything)
        possible = self.possible(so_far)
        log_weight = np.full(self.shape, lf[case.n - seen] - lf[case.n])
        for count, each in zip(case.counts, so_far, strict=True):
            each = np.clip(each, 0, count)
            log_weight = log_weight + lf[count] - lf[count - each] - each * np.log(count / case.n)
        return np.where(possible, np.exp(np.where(possible, log_weight, 0.0)), 0.0), case.counts[self.base] / case.n

    def probabilities(self, filled: int, band: tuple[slice, ...]) -> list[NDArray[np.float64]]:
        """Probability that each label comes next, in every state of the band; 0 in states that cannot be reached."""
        return [
            np.asarray(label_probability)
            for label_probability in self.case.probabilities(filled, self.counts(filled, band))
        ]

    def weights(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Weight per step, gain of each counted label over the base, and the total that all orders have in common."""
        case = self.case
        assert case.rank_weights is not None
        weight = case.rank_weights[np.array(self.ranks, dtype=np.int64) - 1]
        base = case.labels[self.base]
        gains = np.array([case.labels[level] - base for level in self.axes])
        common = base * float(case.rank_weights.sum())
        if len(self.ranks) == case.n:  # every item gets a rank, so each of them gets at least the least weight
            least = float(weight.min())
            common += least * float(sum(w * case.counts[level] for w, level in zip(gains, self.axes, strict=True)))
            weight = weight - least
        return weight, gains, common


def transition(walk: Walk, band: tuple[slice, ...], axis: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The states of the band that can take one more item of a label, and the states that they lead to."""
    stop = min(band[axis].stop + 1, walk.shape[axis])
    start = band[axis].start
    full = (slice(None),) * len(band)
    source = (*full[:axis], slice(0, stop - start - 1))
    return source, (*band[:axis], slice(start + 1, stop), *band[axis + 1 :])
