"""The transform of the total of the last ranks, given the counts on the first ones: cumulants and saddlepoints.

This is K_c(t) of `tilted`. For t other than 0 it comes from a saddlepoint. Draw the level of each rank independently,
P(level l at rank r) proportional to exp(a_l + t g_l w_r), with the a_l for which the expected counts are those that are
left after c. By Skovgaard (Saddlepoint expansions for conditional distributions, 1987),

    K_c(t) = sum over r of log sum over l of exp(a_l + t g_l w_r) - sum over l of a_l c_l - log det(C) / 2

less the same for t = 0, where C is the covariance of the counts. As a function of c it is nearly quadratic: -a is its
gradient, and -C^-1, less the same for t = 0, its second derivative. So it is computed for one vector of counts for each
of some t, and interpolated in t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.case import Case
from rankbound.difficulty.distribution.count_vectors import count_vectors, number_of_vectors

_FEW_VECTORS = 1_100
_MOST_RANKS = 16  # of the first ranks
FREQUENCIES = 64  # whose transforms are computed together
_REACH = 7.0  # standard deviations of the tail that fit into the period of the characteristic function
_DEPTHS = (1.7, 3.2, 4.7)  # signed roots of the log-likelihood ratio of the tilts: about standard normal quantiles
_KNOTS, _FINEST_KNOT = 4, 32.0  # tilts that are considered for each doubling, and 1 / (the least t times the range)
_LEAST_TILT, _DOUBLINGS = 0.3, 8  # the least t in standard deviations, and the doublings from it to the greatest
_STENCIL = 7  # knots of the polynomial that gives derivatives
_BINS = 24  # of the weights of the last ranks
_NEWTON_STEPS, _NEWTON_ERROR, _LONGEST_STEP, _RIDGE = 40, 1e-9, 2.0, 1e-9
_KEPT = 0.2  # part of the expected counts that is left where the first ranks take all documents of a level
_MOST_BLOCKS = 160  # of transforms, up to 1 MB each
_LEAST_TRANSFORM = 1e-300


def first_ranks(levels: int) -> int:
    """The number m of first ranks."""
    ranks = 1
    while ranks < _MOST_RANKS and number_of_vectors(levels, ranks + 1) <= _FEW_VECTORS:
        ranks += 1
    return ranks


# ---- what queries have in common -------------------------------------------------------------------------------------


class _FirstRanks:
    """Transforms E[exp(z total) | c] of the total of the first ranks, shared by all queries with these levels."""

    def __init__(self, gains: tuple[float, ...], weights: tuple[float, ...]) -> None:
        self.vectors = count_vectors(len(gains), len(weights))
        self.gains, self.weights = gains, weights
        self.range = (gains[0] - gains[-1]) * sum(weights)
        self.known: dict[int, NDArray[np.float64]] = {}
        self.blocks: dict[tuple[int, int, int], NDArray[np.complex128]] = {}

    def tilts(self, knots: NDArray[np.int64]) -> NDArray[np.float64]:
        """The tilts of knots: all queries take theirs from these, so that they have transforms in common."""
        return np.asarray(np.sign(knots) * 2.0 ** (np.abs(knots) / _KNOTS) / (_FINEST_KNOT * self.range))

    def logs(self, knots: NDArray[np.int64]) -> NDArray[np.float64]:
        """log E[exp(t total) | c] at the tilts of the knots, a column for each."""
        new = np.array([knot for knot in knots.tolist() if knot not in self.known], dtype=np.int64)
        for start in range(0, len(new), FREQUENCIES):
            these = new[start : start + FREQUENCIES]
            logs = np.log(np.maximum(self._transforms(self.tilts(these)).real, _LEAST_TRANSFORM))
            self.known.update(zip(these.tolist(), logs.T, strict=True))
        return np.stack([self.known[knot] for knot in knots.tolist()], axis=1)

    def block(self, knot: int, doublings: int, block: int) -> NDArray[np.complex128]:
        """E[exp((t + i u) total) | c] at a block of frequencies u, a column for each."""
        key = knot, doublings, block
        known = self.blocks.pop(key, None)
        if known is None:
            tilt = float(self.tilts(np.array([knot]))[0])
            known = self._transforms(tilt + 1j * self.frequencies(doublings, block))
        self.blocks[key] = known  # the last to be removed
        while len(self.blocks) > _MOST_BLOCKS:
            self.blocks.pop(next(iter(self.blocks)))
        return known

    def frequencies(self, doublings: int, block: int) -> NDArray[np.float64]:
        """The frequencies of a block: multiples of 2 pi over the period."""
        first = block * FREQUENCIES
        return 2 * np.pi / (self.range * 2.0**doublings) * np.arange(first, first + FREQUENCIES, dtype=np.float64)

    def _transforms(self, z: NDArray[Any]) -> NDArray[np.complex128]:
        def grow(rank: int, level: int, so_far: list[Any]) -> float:
            return self.gains[level] * self.weights[rank - 1]

        return self.vectors.transforms(grow, len(z), lambda added: np.exp(np.multiply.outer(added, z)))


@lru_cache(maxsize=8)
def _first_ranks_of(gains: tuple[float, ...], weights: tuple[float, ...]) -> _FirstRanks:
    return _FirstRanks(gains, weights)


class Ranking:
    """The levels and the weights of the ranks of some queries of the same size.

    Gains are levels less the middle of the greatest and the least one. This moves the total of all orders by the same
    ``offset`` and keeps its exponentials in range.
    """

    def __init__(self, labels: tuple[float, ...], weights: NDArray[np.float64]) -> None:
        middle = (labels[0] + labels[-1]) / 2
        self.gains = np.array(labels) - middle
        self.offset = middle * float(weights.sum())
        self.ranks, self.n = first_ranks(len(labels)), len(weights)
        self.first = _first_ranks_of(tuple(self.gains.tolist()), tuple(weights[: self.ranks].tolist()))
        tail = weights[self.ranks :]
        self.mean_weight = float(tail.mean())
        self.deviations = [float(((tail - self.mean_weight) ** power).sum()) for power in (2, 3, 4)]
        self.spread_of_weights = math.sqrt(float(((weights - weights.mean()) ** 2).sum()))
        self.tail_weights, self.sizes = _binned(tail - self.mean_weight)
        first = float(weights[: self.ranks].sum())
        needed = first - self.ranks * self.mean_weight + _REACH * math.sqrt(self.deviations[0])
        self.doublings = max(0, math.ceil(math.log2(needed / first)))
        self.period = self.first.range * 2.0**self.doublings


def ranking_of(case: Case) -> Ranking:
    """The levels of a case and the weights of all its ranks."""
    weights = np.zeros(case.n)
    weights[: case.ranks] = case.rank_weights
    return Ranking(case.labels, weights)


def _binned(weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fewer weights with their numbers: those of each bin are replaced by two that keep the mean and the variance."""
    width = float(np.ptp(weights)) / _BINS
    if len(weights) <= 2 * _BINS or width == 0:
        return weights, np.ones(len(weights))
    bins = np.minimum(((weights - weights.min()) / width).astype(np.int64), _BINS - 1)
    size = np.bincount(bins, minlength=_BINS).astype(np.float64)
    used = np.flatnonzero(size)
    mean = np.bincount(bins, weights, minlength=_BINS)[used] / size[used]
    variance = np.bincount(bins, weights**2, minlength=_BINS)[used] / size[used] - mean**2
    spread = np.sqrt(np.maximum(variance, 0.0))
    return np.concatenate((mean - spread, mean + spread)), np.tile(size[used] / 2, 2)


# ---- a query ---------------------------------------------------------------------------------------------------------


class Query:
    """A query: the counts on its first ranks that are possible, and the documents that these leave."""

    def __init__(self, case: Case, ranking: Ranking, probabilities: NDArray[np.float64]) -> None:
        self.case, self.ranking = case, ranking
        self.possible = np.flatnonzero(probabilities > 0)
        self.log_probability = np.log(probabilities[self.possible])
        self.counts = np.array(case.counts)
        self.taken = ranking.first.vectors.last[self.possible]
        self.left = self.counts - self.taken
        self.scale, shift = (float(np.ravel(part)[0]) for part in case.value(case.counts))
        self.shift = shift + ranking.offset * self.scale
        self.expected = (case.bounds[1] - self.shift) / self.scale
        centered = ranking.gains - self.counts @ ranking.gains / case.n
        variance = float(self.counts @ centered**2) / (case.n - 1)
        self.deviation = math.sqrt(variance) * ranking.spread_of_weights

    def mean_of_tail(self) -> NDArray[np.float64]:
        """Expected total of the last ranks if each had their mean weight, less the expected total of all."""
        return np.asarray(self.ranking.mean_weight * (self.left @ self.ranking.gains) - self.expected)

    def derivatives(self) -> list[NDArray[np.float64]]:
        """K_c and its first four derivatives at t = 0, less t times the expected total."""
        mean = self.mean_of_tail()
        return [np.zeros(len(mean)), mean, *find_cumulants(self.ranking.deviations, self.left, self.ranking.gains)]

    def knots(self) -> NDArray[np.int64]:
        """Knots of the tilts that are considered, and 0."""
        least = _LEAST_TILT / self.deviation * _FINEST_KNOT * self.ranking.first.range
        first = max(1, math.floor(_KNOTS * math.log2(max(least, 1.0))))
        knots = np.arange(first, first + _KNOTS * _DOUBLINGS + 1)
        return np.concatenate((-knots[::-1], [0], knots))


def find_cumulants(
    weights: Sequence[float], left: NDArray[np.int64], levels: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Second to fourth cumulant of sum w_r g_pi(r), a linear permutation statistic, for each row of documents ``left``.

    ``weights`` are the sums of the second to fourth powers of the centered weights: p2, p3, p4. With q the same of the
    levels, the fourth moment is a sum over the ways in which four ranks can coincide, of products of augmented
    monomials such as p2^2 - p4, over falling factorials of the number of ranks.
    """
    n = int(left[0].sum())
    centered = levels - (left @ levels / n)[:, None]
    p2, p3, p4 = weights
    square = left * centered**2
    q2, q3, q4 = square.sum(axis=1), (square * centered).sum(axis=1), (square * centered**2).sum(axis=1)
    pairs = n * (n - 1)
    triples = pairs * (n - 2)
    second = p2 * q2 / (n - 1)
    third = p3 * q3 * n / ((n - 1) * (n - 2))
    fourth = (
        p4 * q4 * (1 / n + 4 / pairs)
        + 3 * (p2**2 - p4) * (q2**2 - q4) / pairs
        + 6 * (2 * p4 - p2**2) * (2 * q4 - q2**2) / triples
        + 9 * (p2**2 - 2 * p4) * (q2**2 - 2 * q4) / (triples * (n - 3))
    )
    return second, third, fourth - 3 * second**2


# ---- the saddlepoint of the tail -------------------------------------------------------------------------------------


class _Saddlepoints(NamedTuple):
    """For each tilt: log of the transform, the a_l of all levels, the covariance of the counts of all but one level."""

    log: NDArray[np.float64]
    a: NDArray[np.float64]
    covariance: NDArray[np.float64]


def _find_saddlepoints(
    ranking: Ranking, tilts: NDArray[np.float64], left: NDArray[np.float64], base: int
) -> _Saddlepoints:
    """Newton's method in the a_l of all levels but the base, for all tilts at once; ``left`` has a row for each."""
    axes = np.delete(np.arange(left.shape[1]), base)
    log_fractions = np.log(left / left.sum(axis=1, keepdims=True))
    gains = ranking.gains - ranking.gains[base]
    fixed = np.multiply.outer(gains, np.multiply.outer(tilts, ranking.tail_weights)) + log_fractions.T[:, :, None]
    a = np.zeros(left.shape)
    ridge = _RIDGE * left[:, axes, None] * np.eye(len(axes))
    for _ in range(_NEWTON_STEPS):
        log, counts, covariance = _find_expected_counts(fixed + a.T[:, :, None], ranking.sizes, axes)
        missing = left[:, axes] - counts
        if not (np.abs(missing) > _NEWTON_ERROR).any():  # the greatest tilts may overflow: NaN
            break
        step = np.linalg.solve(covariance + ridge, missing[..., None])[..., 0]
        a[:, axes] += step * np.minimum(1.0, _LONGEST_STEP / np.maximum(np.abs(step).max(axis=1), 1e-300))[:, None]
    return _Saddlepoints(log, a, covariance)


def _find_expected_counts(
    exponents: NDArray[np.float64], sizes: NDArray[np.float64], axes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """log of the sum of exponentials, expected counts and their covariance where levels are drawn independently.

    ``exponents`` has a layer for each level, a row for each tilt and a column for each rank.
    """
    greatest = exponents.max(axis=0)
    probability = np.exp(exponents - greatest)
    total = probability.sum(axis=0)
    probability = probability[axes] / total
    log = (greatest + np.log(total)) @ sizes
    counts = (probability @ sizes).T
    by_tilt = probability.transpose(1, 0, 2)
    covariance = counts[:, :, None] * np.eye(len(axes)) - (by_tilt * sizes) @ by_tilt.transpose(0, 2, 1)
    return log, counts, covariance


class Tail:
    """K_c(t) of a query at the tilts of its knots, as a quadratic function of the counts that are left."""

    def __init__(self, query: Query) -> None:
        self.query, self.knots = query, query.knots()
        self.tilts = query.ranking.first.tilts(self.knots)
        self.base = int(np.argmax(query.counts))
        left = np.delete(query.left, self.base, axis=1).astype(np.float64)
        squares = (left[:, :, None] * left[:, None, :] / 2).reshape(len(left), -1)
        self.basis = np.concatenate((np.ones((len(left), 1)), left, squares), axis=1)
        self.mean = query.mean_of_tail()
        self.logs = query.log_probability[:, None] + query.ranking.first.logs(self.knots)[query.possible]
        expected = query.counts * (query.ranking.ranks / query.case.n)
        taken = np.tile(expected, (len(self.tilts), 1))
        for _ in range(2):  # about the expected counts, then about those that each tilt makes likely
            self.coefficients = self._expand_about(query.counts - taken)
            weights = self._weigh_counts()
            taken = (1 - _KEPT) * weights.T @ query.taken + _KEPT * expected

    def _expand_about(self, left: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coefficients of the basis for each tilt, from expansions about these counts."""
        found = _find_saddlepoints(self.query.ranking, self.tilts, left, self.base)
        counts = np.delete(left, self.base, axis=1)
        slope = -np.delete(found.a, self.base, axis=1)
        at_0 = counts[:, :, None] * np.eye(counts.shape[1]) - counts[:, :, None] * (
            counts[:, None, :] / left.sum(axis=1)[:, None, None]
        )
        determinants = np.linalg.slogdet(found.covariance)[1] - np.linalg.slogdet(at_0)[1]
        curvature = np.linalg.inv(at_0) - np.linalg.inv(found.covariance)
        value = found.log + (slope * counts).sum(axis=1) - determinants / 2
        curved = (curvature @ counts[..., None])[..., 0]
        constant = value - (slope * counts).sum(axis=1) + (curved * counts).sum(axis=1) / 2
        return np.concatenate((constant[:, None], slope - curved, curvature.reshape(len(left), -1)), axis=1)

    def _weigh_counts(self) -> NDArray[np.float64]:
        """Probability of each vector of counts under each tilt."""
        logs = self.logs + self.basis @ self.coefficients.T + np.multiply.outer(self.mean, self.tilts)
        self.log_transforms = log_sum(logs)
        return np.asarray(np.exp(logs - self.log_transforms))

    def choose_tilts(self) -> list[int]:
        """Which knots have the depths that are wanted, ascending; fewer where the tilts do not reach so deep."""
        depth = self.tilts * np.gradient(self.log_transforms, self.tilts) - self.log_transforms
        middle = len(self.tilts) // 2
        chosen = {middle}
        for side in (np.arange(middle + 1, len(self.tilts)), np.arange(middle)[::-1]):
            ends = np.flatnonzero(~(np.diff(depth[side], prepend=0.0) > 0))
            side = side[: max(ends[0] - _STENCIL // 2, 0)] if len(ends) else side
            for wanted in _DEPTHS if len(side) else ():
                chosen.add(int(side[np.abs(depth[side] - wanted**2 / 2).argmin()]))
        return sorted(chosen)

    def derivatives(self, knot: int) -> list[NDArray[np.float64]]:
        """K_c and its first four derivatives there, less t times the expected total."""
        if self.knots[knot] == 0:
            return self.query.derivatives()
        first = min(max(knot - _STENCIL // 2, 0), len(self.tilts) - _STENCIL)
        x = self.tilts[first : first + _STENCIL] - self.tilts[knot]
        unit = np.abs(x).max()
        powers = np.linalg.solve(np.vander(x / unit, increasing=True), self.coefficients[first : first + _STENCIL])
        found = [self.basis @ powers[order] * (math.factorial(order) / unit**order) for order in range(5)]
        found[0] += self.mean * self.tilts[knot]
        found[1] += self.mean
        found[2] = np.maximum(found[2], 0.0)
        return found


def log_sum(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """log of the sum of exponentials of each column."""
    greatest = logs.max(axis=0)
    return np.asarray(greatest + np.log(np.exp(logs - greatest).sum(axis=0)))
