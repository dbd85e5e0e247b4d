"""Distributions from orders that are drawn with a preference for high or for low values, and weighted.

A sample of N orders says nothing of probabilities below 1/N. So most orders are drawn from other distributions: at rank
r, a document of level l is drawn with a probability in proportion to the documents left with this level, times
exp(t g_l c_r). Here g_l is what a document of the level adds at rank 1, and c_r how much more the value depends on what
stands at rank r than on what stands later, from a first sample. The product of the ratios of probabilities is the
weight of an order. The parameter t, the tilt, is positive for the upper tail and negative for the lower one. Each tilt
serves the scores around the median of its orders, where it is most precise: with 40,000 orders the standard error is
about 0.6 % of the tail, down to probabilities of 1e-7. Source: importance sampling by exponential tilting, Siegmund
1976.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import condensed, merged, sampling_work
from rankbound.difficulty.distribution.case import Case

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
_ORDERS, _ORDERS_OF_MIDDLE = 40_000, 80_000  # for each tilt, and without one
_PILOT, _TRIAL = 20_000, 2_000  # orders that find c_r, and the median of a tilt
_CHUNK = 10_000  # orders drawn together
_TILTS = 0.8 * 1.3 ** np.arange(18)  # that are considered, in standard deviations of the value
_STEP, _RAREST = 4.0, 1e-7  # ratio of the tails of neighboring tilts, and the tail at which they end
_SINGLE_RANKS, _GROUPS = 12, 20  # ranks with a c_r of their own, and groups of the others
_USUAL_TILTS, _MOST_LEVELS = 12, 12
_MOST_WORK = 1.6e10  # orders times ranks times levels
_MOST_RANKS = 1_000  # the first sample keeps the level at each rank


class _Orders(NamedTuple):
    """Values of some orders and their weights, whose mean is 1; ``beyond`` is the direction of the tail."""

    values: NDArray[np.float64]
    weights: NDArray[np.float64]


def has_weighted_samples(case: Case) -> bool:
    """Whether orders can be drawn rank by rank, and fast enough."""
    if not case.random or not case.measure.definition.has_walk or len(case.labels) > _MOST_LEVELS:
        return False
    if case.measure.definition.decisive_ranks(case) > _MOST_RANKS:
        return False
    return (_ORDERS_OF_MIDDLE + _USUAL_TILTS * _ORDERS) * sampling_work(case) <= _MOST_WORK


def of_weighted_samples(case: Case, seed: int = 0) -> Points:
    """Scores and probabilities from orders of some tilts, those of each between its neighbors."""
    rng = np.random.default_rng(seed)
    sampler = _Sampler(case, rng)
    low, high = (_find_tilts(sampler, sign) for sign in (-1, 1))
    tilts = np.array([*(tilt for _, tilt in reversed(low)), 0.0, *(tilt for _, tilt in high)])
    medians = np.array([*(median for median, _ in reversed(low)), sampler.median, *(median for median, _ in high)])
    ends = np.concatenate(([-np.inf], (medians[1:] + medians[:-1]) / 2, [np.inf]))
    scores, mass = [], []
    for tilt, start, end in zip(tilts, ends[:-1], ends[1:], strict=True):
        orders = sampler.draw(tilt, _ORDERS if tilt else _ORDERS_OF_MIDDLE)
        chosen = (orders.values >= start) & (orders.values < end)
        scores.append(orders.values[chosen])
        mass.append(orders.weights[chosen] / len(chosen))
    values, weights = merged(np.concatenate(scores), np.concatenate(mass))
    return condensed(values, _with_mean(values, weights, case.bounds[1]))


def _with_mean(values: NDArray[np.float64], weights: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Probabilities with the mean that the closed form has: a tilt far smaller than the error of the sample."""
    centered = values - mean
    tilt = 0.0
    probabilities: NDArray[np.float64] = weights / weights.sum()
    for _ in range(20):
        error = float(probabilities @ centered)
        if abs(error) <= 1e-15 * np.abs(values).max():
            break
        tilt -= error / float(probabilities @ centered**2 - error**2)  # Newton's method
        probabilities = weights * np.exp(tilt * centered)
        probabilities /= probabilities.sum()
    return probabilities


def _find_tilts(sampler: _Sampler, sign: int) -> list[tuple[float, float]]:
    """Medians and tilts whose tails fall by a factor from one to the next, down to the rarest."""
    found: list[tuple[float, float]] = []
    last, median_before = 0.5, sampler.median
    for size in _TILTS:
        tilt = sign * float(size) / sampler.deviation
        orders = sampler.draw(tilt, _TRIAL)
        median = float(np.median(orders.values))
        tail = float((orders.weights * (sign * orders.values >= sign * median)).mean())
        if tail < last / _STEP and sign * median > sign * median_before:
            found.append((median, tilt))
            last, median_before = tail, median
        if tail < _RAREST:
            break
    return found


class _Sampler:
    """Draws orders of a case."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.case, self.rng = case, rng
        self.ranks = case.measure.definition.decisive_ranks(case)
        none = [0] * len(case.counts)
        self.gains = np.array([float(case.growth(1, level, none)) for level in range(len(case.counts))])
        self.influence = np.zeros(self.ranks)
        levels: list[NDArray[np.int64]] = []
        values = self.draw(0.0, _PILOT, levels).values
        self.median, self.deviation = float(np.median(values)), float(values.std())
        self.influence = self._influence(values, levels)

    def _influence(self, values: NDArray[np.float64], levels: list[NDArray[np.int64]]) -> NDArray[np.float64]:
        """Regression of the value on the gain at each rank, in the mean over groups of later ranks."""
        centered = values - values.mean()
        fractions = np.array(self.case.counts) / self.case.n
        variance = float(fractions @ self.gains**2 - (fractions @ self.gains) ** 2)
        slopes = np.array([float(centered @ self.gains[level]) for level in levels]) / (len(values) * variance)
        first = np.unique(np.geomspace(_SINGLE_RANKS, max(self.ranks, _SINGLE_RANKS), _GROUPS).astype(np.int64))
        starts = np.concatenate((np.arange(min(_SINGLE_RANKS, self.ranks)), first[first < self.ranks]))
        starts = np.unique(starts)
        sizes = np.diff(starts, append=self.ranks)
        smooth = np.repeat(np.add.reduceat(slopes, starts) / sizes, sizes)
        seen = np.cumsum(smooth)
        unseen = -seen[-1]  # slopes sum to 0 over all ranks
        later = (seen[-1] - seen + unseen) / np.maximum(self.case.n - np.arange(1, self.ranks + 1), 1)
        return np.asarray(smooth - later)

    def draw(self, tilt: float, size: int, levels: list[NDArray[np.int64]] | None = None) -> _Orders:
        """Orders of a tilt; ``levels`` receives their levels by rank."""
        if levels is not None or size <= _CHUNK:
            return self._draw(tilt, size, levels)
        parts = [self._draw(tilt, min(_CHUNK, size - start)) for start in range(0, size, _CHUNK)]
        return _Orders(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _draw(self, tilt: float, size: int, levels: list[NDArray[np.int64]] | None = None) -> _Orders:
        case = self.case
        counts = np.array(case.counts, dtype=np.float64)[:, None]
        left = np.repeat(counts, size, axis=1)
        total, weights = np.zeros(size), np.ones(size)
        for rank in range(1, self.ranks + 1):
            factor = np.exp(tilt * (self.gains - self.gains[-1]) * self.influence[rank - 1])
            sums = list(itertools.accumulate(row * each for row, each in zip(left, factor, strict=True)))
            point = self.rng.random(size) * sums[-1]
            drawn = np.add.reduce([point >= below for below in sums[:-1]], dtype=np.int64)
            weights *= sums[-1]
            weights /= factor[drawn] * (case.n - rank + 1)
            is_drawn = [drawn == level for level in range(len(counts))]
            for level, chosen in enumerate(map(np.flatnonzero, is_drawn)):
                if len(chosen) and (self.gains[level] or case.rank_weights is None):
                    total[chosen] += case.growth(rank, level, counts - left[:, chosen])
            for row, mask in zip(left, is_drawn, strict=True):
                row -= mask
            if levels is not None:
                levels.append(drawn)
        scale, shift = case.value(counts - left)
        return _Orders(np.broadcast_to(total * scale + shift, total.shape), weights)
