"""Distributions of sums of level * weight(rank) on full rankings, precise in their tails by exponential tilting.

The total is that of the first m ranks plus that of the others, the tail. Given the counts c on the first ranks, the
first total has the same characteristic function for all queries with these levels (see `count_vectors`). The other is
nearly normal, because its weights are small and similar. With z = t + i u,

    E exp(z total) = sum over c of P(c) E[exp(z first) | c] exp(K_c(z)),   K_c(z) = log E[exp(z tail) | c].

K_c is expanded about t: its derivatives up to the fourth give an Edgeworth expansion. For t = 0 they are the cumulants
of a linear permutation statistic, and the inverse Fourier transform is the distribution, with an absolute error. Its
tails need other tilts t: the distribution with probabilities times exp(t x) / E exp(t X) has its center in the tail,
and what is inverted there is right relative to the tail. A few tilts on each side cover probabilities down to 1e-7
(`precise`), and where two of them meet, they have to agree.

For t other than 0, K_c comes from a `saddlepoint`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import condensed
from rankbound.difficulty.distribution.branching import is_branched
from rankbound.difficulty.distribution.case import Case
from rankbound.difficulty.distribution.dynamic import Points
from rankbound.difficulty.distribution.saddlepoint import FREQUENCIES, Query, Tail, log_sum, ranking_of

_HEAVIEST = 1.5e-3  # probability that a point may have
_LEAST_POINTS, _MOST_POINTS = 512, 1 << 16
LEAST_TAIL = 4  # ranks after the first ones; the fourth cumulant is not defined for fewer
_MOST_FREQUENCIES = 512
_VANISHED = 1e-5  # where the characteristic function is this small, its inversion stops
_SETTLED = 2e-3  # most that the third and fourth derivatives may change the distribution function
_SETTLED_IN_MIDDLE, _SETTLED_IN_TAIL = 0.012, 0.05  # the same, in all, where tilts check each other
_UNLIKELY = 1e-8  # counts with less than this probability are left out
_AGREEING = 4e-3  # log of the ratio of densities where two tilts meet
_COMPLETE = 2e-3  # most that all probabilities may differ from 1
_WIDTH = 20.0  # standard deviations that the grid of a tilt covers
_FINE = 0.008  # mass of a point relative to what lies beyond it


def has_smooth_tails(case: Case) -> bool:
    """Whether tails can be precise: where a cutoff or small weights leave few documents that count, they have steps."""
    return case.ranks == case.n and not is_branched(case, _UNLIKELY)


def sums_of_weights(cases: Sequence[Case], precise: bool) -> list[Points | None]:
    """Distributions of cases that differ in their counts only; None where the expansion is not accurate enough.

    Without ``precise``, and where tails are not smooth, there is no tilt but 0: the distribution function has an error
    of at most 2e-3, and tails may be wrong by a factor.
    """
    ranking = ranking_of(cases[0])
    probabilities = ranking.first.vectors.probabilities(np.array([case.counts for case in cases]))
    invert = _inverted_with_tilts if precise and has_smooth_tails(cases[0]) else _inverted_without_tilt
    return [invert(Query(case, ranking, row)) for case, row in zip(cases, probabilities, strict=True)]


# ---- inversion -------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """The distribution from one tilt: its center, points of a grid, less the expected total, and their masses."""

    center: float
    spacing: float
    points: NDArray[np.float64]
    mass: NDArray[np.float64]


def _inverted_without_tilt(query: Query) -> Points | None:
    part = _invert(query, 0, query.derivatives(), 2 * _SETTLED)
    return None if part is None else _place(query, part.points, part.mass)


def _inverted_with_tilts(query: Query) -> Points | None:
    with np.errstate(all="ignore"):  # the greatest tilts may have no saddlepoint
        tail = Tail(query)
    parts = []
    for chosen in tail.choose_tilts():
        knot = int(tail.knots[chosen])
        part = _invert(query, knot, tail.derivatives(chosen), _SETTLED_IN_TAIL if knot else _SETTLED_IN_MIDDLE)
        if part is None:
            return None
        parts.append(part)
    joined = _join(parts)
    return None if joined is None else _place(query, *joined)


def _invert(query: Query, knot: int, derivatives: list[NDArray[np.float64]], most_change: float) -> _Part | None:
    """Invert the transform along t + i u, where t is the tilt of the knot.

    None if the Edgeworth expansion changes more than ``most_change`` of the distribution.
    """
    ranking = query.ranking
    tilt = float(ranking.first.tilts(np.array([knot]))[0])
    logs = query.log_probability + derivatives[0] + ranking.first.logs(np.array([knot]))[query.possible, 0]
    log_transform = float(log_sum(logs[:, None])[0])
    kept = np.flatnonzero(logs > log_transform + math.log(_UNLIKELY))
    weight = np.exp((query.log_probability + derivatives[0])[kept] - log_transform)
    transforms = _transform(query, knot, query.possible[kept], weight, [each[kept] for each in derivatives[1:]])
    if transforms is None:
        return None
    normal, expanded = (each / transforms[1][0].real for each in transforms)
    change = np.fft.irfft((expanded - normal).conj(), 2 * len(normal))
    if not np.ptp(np.cumsum(change)) < most_change:
        return None
    thin = max(1, int(ranking.period / (_WIDTH * _find_spread(ranking.period, expanded)))) if knot else 1
    period, expanded = ranking.period / thin, expanded[::thin]
    center = float(np.angle(transforms[1][1])) * ranking.period / (2 * np.pi)
    points = _number_of_points(period, expanded, tilt)
    mass = np.fft.irfft(expanded.conj(), points)
    while knot == 0 and mass.max() > _HEAVIEST and points < _MOST_POINTS:  # it has more than one peak
        points *= 2
        mass = np.fft.irfft(expanded.conj(), points)
    if knot == 0 and mass.max() > _HEAVIEST:
        return None
    spacing = period / points
    index = np.arange(points) + (round(center / spacing) - points // 2)
    mass = mass[index % points]
    real = np.flatnonzero(mass > max(4 * float(-mass.min()), 1e-19))
    bulk = slice(real[0], real[-1] + 1)
    x = np.asarray(index[bulk] * spacing, dtype=np.float64)
    mass = np.maximum(mass[bulk], 0.0) * np.exp(log_transform + math.log(transforms[1][0].real) - tilt * x)
    return _Part(center, spacing, x, mass)


def _find_spread(period: float, transform: NDArray[np.complex128]) -> float:
    """The standard deviation: 1 - |transform| = variance u^2 / 2 for small u."""
    return max(math.sqrt(max(float(2 - 2 * np.abs(transform[1])), 0.0)) * period / (2 * np.pi), 1e-6 * period)


def _number_of_points(period: float, transform: NDArray[np.complex128], tilt: float) -> int:
    """So many that a point has little of the middle, and of what lies beyond it in the tail."""
    spread = _find_spread(period, transform)
    points = int(np.clip(0.5 * period / (spread * _HEAVIEST), _LEAST_POINTS, _MOST_POINTS // 4)) if tilt == 0 else 0
    points = max(points, min(int(period * abs(tilt) / _FINE), _MOST_POINTS))
    return max(64 * math.ceil(points / 64), 2 * len(transform))


def _transform(
    query: Query,
    knot: int,
    rows: NDArray[np.int64],
    weight: NDArray[np.float64],
    derivatives: list[NDArray[np.float64]],
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]] | None:
    """The transform with a normal tail and with an Edgeworth expansion of it, up to where it vanishes."""
    first, second, third, fourth = derivatives
    first_ranks, doublings = query.ranking.first, query.ranking.doublings
    weighted = weight * np.stack((np.ones(len(rows)), third / 6, fourth / 24, third**2 / 72))
    parts: list[tuple[NDArray[np.complex128], NDArray[np.complex128]]] = []
    for block in range(_MOST_FREQUENCIES // FREQUENCIES):
        u = first_ranks.frequencies(doublings, block)
        normal = _powers(first * u[0], first * (2 * np.pi / query.ranking.period))
        normal *= np.exp(np.multiply.outer(second / -2, u**2))
        normal *= first_ranks.block(knot, doublings, block)[rows]
        sums = np.einsum("kc,ct->kt", weighted, normal.view(np.float64)).view(np.complex128)  # too small for threads
        parts.append((sums[0], sums[0] - 1j * u**3 * sums[1] + u**4 * sums[2] - u**6 * sums[3]))
        if all(np.abs(part[-8:]).max() < _VANISHED * abs(parts[0][1][0]) for part in parts[-1]):
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    return None


def _powers(start: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.complex128]:
    """exp(i (start + k step)) for k = 0, 1, ..., by multiplication: that is faster than sines and cosines."""
    powers = np.empty((len(start), FREQUENCIES), dtype=np.complex128)
    powers[:, 0] = np.exp(1j * start)
    leap, done = np.exp(1j * step)[:, None], 1
    while done < FREQUENCIES:
        np.multiply(powers[:, :done], leap, out=powers[:, done : 2 * done])
        leap = leap * leap
        done *= 2
    return powers


def _join(parts: Sequence[_Part]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The points of all tilts, each where its center is the nearest; None where tilts do not agree."""
    middle = min(range(len(parts)), key=lambda index: abs(parts[index].center))
    factors = np.ones(len(parts))
    for inner, outer in [(i - 1, i) for i in range(middle + 1, len(parts))] + [
        (i + 1, i) for i in range(middle - 1, -1, -1)
    ]:
        ratio = _compare(parts[inner], parts[outer])
        if not abs(ratio) < _AGREEING:
            return None
        factors[outer] = factors[inner] * math.exp(ratio)
    cuts = [-np.inf, *((a.center + b.center) / 2 for a, b in pairwise(parts)), np.inf]
    points, mass = [], []
    for part, factor, (low, high) in zip(parts, factors, pairwise(cuts), strict=True):
        left, right = (np.clip(part.points + side * part.spacing / 2, low, high) for side in (-1, 1))  # of cells
        inside = right > left
        points.append((left + right)[inside] / 2)
        mass.append((part.mass * factor / part.spacing * (right - left))[inside])
    joined = np.concatenate(mass)
    return (np.concatenate(points), joined) if abs(joined.sum() - 1) < _COMPLETE else None


def _compare(inner: _Part, outer: _Part) -> float:
    """Mean log of the ratio of two densities half-way between their centers."""
    x = inner.center + (outer.center - inner.center) * np.linspace(0.35, 0.65, 61)
    densities = [np.interp(x, part.points, part.mass / part.spacing, left=0.0, right=0.0) for part in (inner, outer)]
    if not min(density.min() for density in densities) > 0:
        return math.inf
    return float(np.log(densities[0] / densities[1]).mean())


def _place(query: Query, points: NDArray[np.float64], mass: NDArray[np.float64]) -> Points:
    """The distribution between worst and best, with the exact mean."""
    worst, expected, best = query.case.bounds
    scores = (points + query.expected) * query.scale + query.shift
    inside = np.flatnonzero((scores > worst) & (scores < best) & (mass > 0))
    scores, mass = scores[inside], mass[inside] / mass[inside].sum()
    scores = np.clip(scores + (expected - float(scores @ mass)), worst, best)
    least = math.exp(-query.case.log_arrangements)  # worst and best are possible, too
    scores, mass = np.concatenate(([worst], scores, [best])), np.concatenate(([least], mass, [least]))
    return condensed(scores, mass)
