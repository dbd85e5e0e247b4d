"""Distributions of long lists from their characteristic function E exp(i t T).

The characteristic function of a smooth distribution vanishes at high frequencies, so a few of them are enough.

The dynamic program of `dynamic` is run with exp(i t growth) instead of moves over a grid: one number per
state and frequency, no splitting, and as many frequencies as the distribution has detail: some dozens where a grid has
thousands of points. What comes back is exact but for the frequencies that are left out: about 1e-11 in absolute terms,
so tails below are lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.case import Case
from rankbound.difficulty.distribution.dynamic import RESCALE, Points
from rankbound.difficulty.distribution.walk import Walk, transition

MANY_ARRANGEMENTS = (
    50.0  # log: the finest detail of a distribution of A arrangements has amplitude A^(-1/2), here 1e-11
)
_VANISHED = 1e-12
_ROUGH = 1e-8  # far more than that
_HIGH = np.array([0.5, 0.7071, 1.3819])  # incommensurable frequencies, relative to half of those of a grid
_POINTS = 16_384  # at least, so that one of them holds little of the tail beyond it
_BLOCK = 36  # frequencies that go together; the states of a block stay in the processor's cache
_TOGETHER = 8  # ranks whose turns are made together, fewer where there are many states


def spectral(case: Case, grid: int) -> Points | None:
    """The distribution on at least ``grid`` points, or None if it is too rough for this method."""
    definition = case.measure.definition
    if case.log_arrangements < MANY_ARRANGEMENTS or definition.scale_varies(case.measure):
        return None
    worst, _, best = sorted(case.bounds)
    base = (
        2 * np.pi / ((best - worst) * (1 + 1 / grid))
    )  # the distribution repeats with this period; its ends carry no weight
    pairs = definition.closed_form(case.measure) == "wrong pairs" and case.random and case.ranks == case.n
    transform = _transform_of_pairs if pairs else _transform_of_sums
    if _is_rough(case, base * grid / 8 * _HIGH):
        return None
    parts: list[NDArray[np.complex128]] = []
    for start in range(0, grid // 4, _BLOCK):
        t = base * np.arange(start, start + _BLOCK, dtype=np.float64)
        # the first block also checks a few incommensurable high frequencies: the transform must have vanished there
        high = base * grid / 8 * (_HIGH[:0] if start else _HIGH)
        part = transform(case, t, high)
        if not start and np.abs(part[_BLOCK:]).max() > _VANISHED:
            return None
        parts.append(part[:_BLOCK] * np.exp(-1j * t * worst))
        if np.abs(part[_BLOCK - 8 : _BLOCK]).max() < _VANISHED:
            transformed = np.concatenate(parts).conj()
            spread = np.count_nonzero(np.fft.irfft(transformed, grid) > 1e-17)
            points = max(grid, _POINTS) * (1 << max(0, int(np.ceil(np.log2(grid / spread)))))
            scores = worst + (best - worst) * (1 + 1 / grid) / points * np.arange(points, dtype=np.float64)
            return _cleaned(scores, np.fft.irfft(transformed, points))
    return None


def _is_rough(case: Case, high: NDArray[np.float64]) -> bool:
    """Whether the transform does not vanish at high frequencies even if the levels are drawn independently."""
    if case.rank_weights is None or not case.random:
        return False
    t = high * float(np.ravel(case.value(case.counts)[0])[0])
    fractions = np.array(case.counts) / case.n
    factors = np.exp(1j * np.multiply.outer(np.multiply.outer(t, case.rank_weights), np.array(case.labels))) @ fractions
    return bool(np.abs(factors.prod(axis=1)).max() > _ROUGH)


def _cleaned(scores: NDArray[np.float64], mass: NDArray[np.float64]) -> Points:
    """The bulk, without the rounding noise on both sides of it."""
    noise = max(4 * float(-mass.min()), 1e-19)
    real = np.flatnonzero(mass > noise)
    bulk = slice(real[0], real[-1] + 1)
    mass = np.maximum(mass[bulk], 0.0)
    return scores[bulk], mass / mass.sum()


def _transform_of_pairs(case: Case, t: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.complex128]:
    """E exp(i t value) of the wrong pairs: a ratio of products of sines, from the Gaussian multinomial."""
    t = np.concatenate((t, high))
    scale, shift = case.value(case.counts)
    half = np.abs(t * scale) / 2
    size = np.ones(len(t))
    few_first = sorted(case.counts)
    before = few_first[-1]
    for count in few_first[:-1]:
        for j in range(1, count + 1):
            size *= np.sinc((before + j) * half / np.pi) / np.sinc(j * half / np.pi)
        before += count
    pairs = (case.n**2 - sum(count * count for count in case.counts)) / 2
    middle = shift + scale * pairs / 2  # the distribution is symmetric about its middle
    return np.asarray(size * np.exp(1j * t * middle))


def _transform_of_sums(case: Case, t: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.complex128]:
    """E exp(i t value): the dynamic program over counts, one column per frequency (evenly spaced ones first).

    In a random order mass moves by odds alone (`Walk.weight_of_counts`): two operations per state and rank.
    """
    walk = Walk.of(case)
    scale, shift = case.value(walk.counts(len(walk.ranks), walk.everything))
    even = len(t)
    t = np.concatenate((t, high)) * float(scale)
    odds, (final, factor) = walk.odds(), walk.weight_of_counts()
    if not case.random:
        odds = [1.0] * len(odds)
    bands = walk.near_bands()
    f = np.zeros((*walk.shape, len(t)), dtype=np.complex128)
    f[(0,) * (f.ndim - 1)] = 1.0
    common = 0.0
    turns = _Turns(walk, bands, t, even, odds)
    if case.rank_weights is not None:
        weight, gains, common = walk.weights()
    for filled, band in enumerate(bands):
        block = f[band]
        label_probabilities = None if case.random else walk.probabilities(filled, band)
        moves = []
        for axis, level in enumerate(walk.axes):
            if case.rank_weights is not None:
                turn = odds[axis] * _unit((gains[axis] * weight[filled]) * t)
            else:
                turn = turns(filled, axis)
            if label_probabilities is not None:
                turn = turn * label_probabilities[level][..., None]
            moves.append((axis, block * turn))
        if label_probabilities is not None:
            block *= label_probabilities[walk.base][..., None]
        for axis, moved in moves:
            source, target = transition(walk, band, axis)
            goal = f[target]
            goal += moved[source]
        if label_probabilities is None and filled % RESCALE == RESCALE - 1:
            f *= factor**RESCALE
    if case.random:
        f *= (final * factor ** (len(walk.ranks) % RESCALE))[..., None]
    if np.ndim(shift):
        f *= _unit(t * (np.asarray(shift) / scale)[..., None])
    else:
        common += float(shift / scale)
    total: NDArray[np.complex128] = f.reshape(-1, len(t)).sum(axis=0) * np.exp(1j * common * t)
    return total


class _Turns:
    """odds * exp(i t growth) where the growth depends on the state, for some ranks at a time to save calls.

    The first ``even`` frequencies are evenly spaced: they come by doubling, with one multiplication each.
    """

    def __init__(
        self, walk: Walk, bands: list[tuple[slice, ...]], t: NDArray[np.float64], even: int, odds: list[float]
    ) -> None:
        self.walk, self.bands, self.t, self.even, self.odds = walk, bands, t, even, odds
        self.together = max(1, min(_TOGETHER, 8_000 // int(np.prod(walk.shape))))
        self.ready: dict[int, NDArray[np.complex128]] = {}

    def __call__(self, filled: int, axis: int) -> NDArray[np.complex128]:
        """For the states of the band at this rank."""
        first = filled - filled % self.together
        together = self.bands[first : first + self.together]
        union = tuple(
            slice(min(part.start for part in parts), max(part.stop for part in parts))
            for parts in zip(*together, strict=True)
        )
        if filled == first:
            self.ready[axis] = self._make(np.arange(first, first + len(together)), union, axis)
        inside = tuple(
            slice(part.start - whole.start, part.stop - whole.start)
            for part, whole in zip(self.bands[filled], union, strict=True)
        )
        here: Any = (slice(None), filled - first, *inside)
        return np.moveaxis(self.ready[axis][here], 0, -1)

    def _make(self, filled: NDArray[np.int64], band: tuple[slice, ...], axis: int) -> NDArray[np.complex128]:
        t, even, odds = self.t, self.even, self.odds[axis]
        filled = filled.reshape(-1, *(1,) * len(band))
        so_far = self.walk.counts(filled, band)
        growth = np.asarray(self.walk.case.growth(filled + 1, self.walk.axes[axis], so_far))
        growth = np.broadcast_to(growth, (len(filled), *(part.stop - part.start for part in band)))
        turn = np.empty((len(t), *growth.shape), dtype=np.complex128)
        turn[0] = odds * _unit(t[0] * growth)
        turn[even:] = odds * _unit(t[even:].reshape(-1, *(1,) * growth.ndim) * growth)
        leap = _unit((t[1] - t[0]) * growth)
        done = 1
        while done < even:
            more = min(done, even - done)
            np.multiply(turn[:more], leap, out=turn[done : done + more])
            leap = leap * leap
            done += more
        return turn


def _unit(angle: NDArray[np.float64]) -> NDArray[np.complex128]:
    """exp(i angle); real sines and cosines are several times faster than a complex exponential."""
    unit = np.empty(angle.shape, dtype=np.complex128)
    np.cos(angle, out=unit.real)
    np.sin(angle, out=unit.imag)
    return unit
