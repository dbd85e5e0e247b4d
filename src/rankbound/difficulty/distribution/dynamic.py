"""Distributions by a dynamic program over ranks: mass moves over (counts so far, total on a grid).

A total that falls between two grid points is split between them so that its mean stays exact. Everything is a sum of
positive numbers, so even the far tails are right relative to their size. Each split adds up to a quarter of a squared
grid step to the variance; where that would add up, over hundreds of items, `spectral` takes over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import merged
from rankbound.difficulty.distribution.case import Case
from rankbound.difficulty.distribution.walk import Walk, transition

__all__ = ["RESCALE", "Points", "dynamic", "dynamic_work"]

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
RESCALE = 32  # ranks after which numbers that have grown are brought back into range
_MANY_STATES = 100_000  # states times ranks, from which states far from their mean are left out
_SMALLEST_SIZE = 1e-250  # product of the probabilities to stay in a state
_MOST_SHIFTS = 100  # points by which the mean is put right
_ROW_COST = 2_000  # moving one state by its own shift costs about as much as this many grid points in a block
_LATTICE = 16_384  # whole-number totals are kept point by point up to this many points


def dynamic_work(case: Case, grid: int) -> float:
    """Approximate number of grid points that the program would update."""
    walk = Walk.of(case)
    states = float(np.prod([float(size) for size in walk.shape])) * len(walk.ranks)
    if states > _MANY_STATES:
        states = float(sum(math.prod(part.stop - part.start for part in band) for band in walk.near_bands()))
    return states * len(walk.axes) * (grid / 3 + (0 if case.rank_weights is not None else _ROW_COST))


def dynamic(case: Case, grid: int) -> Points:
    """The distribution on about ``grid`` points."""
    walk = Walk.of(case)
    # in short lists all states are visited, so that the far tails keep their digits
    few = math.prod(walk.shape) * len(walk.ranks) <= _MANY_STATES
    bands = [walk.band(filled) for filled in range(len(walk.ranks))] if few else walk.near_bands()
    if case.rank_weights is not None:
        return _weighted_sums(walk, bands, grid)
    return _stateful_sums(walk, bands, grid)


def _weighted_sums(walk: Walk, bands: list[tuple[slice, ...]], grid: int) -> Points:
    case = walk.case
    weight, gains, common = walk.weights()
    scale, _ = case.value(case.counts)
    worst, _, best = case.bounds
    step = (best - worst) / scale / (grid - 1)
    reach = np.array(_reach(weight, gains, np.array(walk.shape) - 1)) / step
    lean = np.minimum(np.arange(len(weight) + 1), sum(walk.shape)) + 2  # a split leans over by up to a point per item
    below, above = (reach[0] - lean).astype(np.int64), (reach[1] + lean).astype(np.int64)
    spare = int(np.abs(gains).max(initial=0.0) * weight.max() / step) + 2  # blocks move as a whole, empty rows too
    zero = spare - int(below.min())  # column of total 0
    mass = np.zeros((*walk.shape, zero + int(above.max()) + spare + 1))
    mass[(0,) * len(gains) + (zero,)] = 1.0
    odds, (final, factor) = walk.odds(), walk.weight_of_counts()
    for filled, (each, band) in enumerate(zip(weight, bands, strict=True)):
        left, right = zero + int(below[filled]) + 2, zero + int(above[filled]) - 1
        block = mass[(*band, slice(left, right))]
        label_probabilities = None if case.random else walk.probabilities(filled, band)
        moves = []
        for axis, level in enumerate(walk.axes):
            x = gains[axis] * each / step
            k = int(np.floor(x))
            label_probability = odds[axis] if label_probabilities is None else label_probabilities[level][..., None]
            moves.append((axis, k, block * (label_probability * (1 - (x - k))), block * (label_probability * (x - k))))
        if label_probabilities is not None:
            block *= label_probabilities[walk.base][..., None]
        elif filled % RESCALE == RESCALE - 1:
            moves = [(axis, k, lower * factor**RESCALE, upper * factor**RESCALE) for axis, k, lower, upper in moves]
            mass *= factor**RESCALE
        for axis, k, lower, upper in moves:
            source, target = transition(walk, band, axis)
            goal = mass[(*target, slice(left + k, right + k))]
            goal += lower[source]
            goal = mass[(*target, slice(left + k + 1, right + k + 1))]
            goal += upper[source]
    if case.random:
        mass *= (final * factor ** (len(weight) % RESCALE))[..., None]
    total = mass.reshape(-1, mass.shape[-1]).sum(axis=0)
    points = (np.arange(len(total)) - zero) * step
    return settle((points + common) * scale, total, worst, best)


def _reach(
    weight: NDArray[np.float64], gains: NDArray[np.float64], most: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and greatest total after 0, 1, ..., all steps, whatever the order; weights rise or fall throughout."""
    running = np.concatenate(([0.0], np.cumsum(weight)))
    steps = np.arange(len(running))
    rising = len(weight) > 1 and weight[0] < weight[-1]
    low, high = np.zeros(len(running)), np.zeros(len(running))
    for each, count in zip(gains, most, strict=True):
        items = np.minimum(steps, count)
        heaviest = running - running[steps - items] if rising else running[items]
        if each < 0:
            low += each * heaviest
        else:
            high += each * heaviest
    return low, high


def _stateful_sums(walk: Walk, bands: list[tuple[slice, ...]], grid: int) -> Points:
    """Sums whose growth depends on the counts so far: every state moves by its own shift."""
    case = walk.case
    low, high, unit = case.measure.definition.total_range(case)
    step = unit if 0 < (high - low) < _LATTICE * unit else (high - low) / (grid - 1)
    columns = round((high - low) / step) + len(walk.ranks) + 3
    mass = np.zeros((*walk.shape, columns))
    index = np.arange(mass.size // columns).reshape(walk.shape)  # states counted through
    rows = list(mass.reshape(-1, columns))
    rows[0][0] = 1.0
    left, right = [columns] * len(rows), [0] * len(rows)  # columns in use, per state
    left[0], right[0] = 0, 1
    all_moves, size, stay = _moves(walk, step)
    for filled, band in enumerate(bands):
        now: Any = (filled, *band)
        states = index[band].ravel().tolist()
        staying = None if stay is None else stay[now].ravel().tolist()
        moves = []
        for ahead, shifts, splits in all_moves:
            split = splits[now].reshape(-1, 2)
            moves.append((ahead, shifts[now].ravel().tolist(), split, (split.sum(axis=1) > 0).tolist()))
        # highest states first: a state then passes on its mass before it receives any
        for at in range(len(states) - 1, -1, -1):
            state = states[at]
            a, b = left[state], right[state]
            if a >= b:
                continue
            for ahead, shift, split, possible in moves:
                if possible[at]:
                    start, end, goal = a + shift[at], b + shift[at] + 1, state + ahead
                    row = rows[goal][start:end]
                    row += np.correlate(rows[state][a:b], split[at], "full")  # in[i] * (1 - part) + in[i - 1] * part
                    if start < left[goal]:
                        left[goal] = start
                    if end > right[goal]:
                        right[goal] = end
            if staying is not None:
                rows[state][a:b] *= staying[at]
    so_far = walk.counts(len(walk.ranks), walk.everything)
    mass *= np.where(walk.possible(so_far), size[-1], 0.0)[..., None]
    scale, shift = case.value(so_far)
    worst, _, best = sorted(case.bounds)
    points = low + np.arange(columns) * step
    if np.ndim(scale) == 0 and np.ndim(shift) == 0:
        return settle(points * scale + shift, mass.reshape(-1, columns).sum(axis=0), worst, best)
    scores = np.asarray(scale)[..., None] * points + np.asarray(shift)[..., None]
    real = mass > 0
    scores, each = np.broadcast_to(scores, mass.shape)[real], mass[real]
    return merged(scores, each) if step == unit else _on_grid(scores, each, worst, best, grid)


def _moves(
    walk: Walk, step: float
) -> tuple[list[tuple[int, NDArray[np.int64], NDArray[np.float64]]], NDArray[np.float64], NDArray[np.float64] | None]:
    """Moves at every rank from every state, what a row's numbers stand for before each rank, and None.

    A row is not multiplied by the probability to stay at each rank; it stands for its numbers times the product of
    these probabilities, and what moves to another row is scaled by the quotient of the two products. Where the products
    leave the range of floating-point numbers, rows stand for their numbers, and the probabilities to stay are returned.
    """
    case = walk.case
    filled = np.arange(len(walk.ranks)).reshape(-1, *(1,) * len(walk.shape))
    so_far = walk.counts(filled, walk.everything)
    shape = (len(walk.ranks), *walk.shape)
    possible = walk.possible(so_far)
    label_probabilities = [
        np.where(possible, label_probability, 0.0) for label_probability in case.probabilities(filled, so_far)
    ]
    base = label_probabilities[walk.base]
    staying = np.where(base > 0, base, 1.0)  # rows that nothing stays in are not used again
    size: NDArray[np.float64] = np.cumprod(np.concatenate((np.ones((1, *walk.shape)), staying)), axis=0)
    stay: NDArray[np.float64] | None = None
    if size.min() < _SMALLEST_SIZE:
        size, stay = np.ones(size.shape), base
    moves = []
    for axis, level in enumerate(walk.axes):
        x = np.broadcast_to(case.growth(filled + 1, level, so_far) / step, shape)
        k = np.floor(x + 1e-9)
        part = np.maximum(x - k, 0.0)
        goal = np.roll(size[1:], -1, axis=axis + 1)  # the row of one more; nothing moves on from the last one
        label_probability = label_probabilities[level] * size[:-1] / goal
        moves.append(
            (
                int(np.prod(walk.shape[axis + 1 :])),
                k.astype(np.int64),
                np.stack((label_probability * part, label_probability * (1 - part)), -1),
            )
        )
    return moves, size, stay


def _on_grid(scores: NDArray[np.float64], mass: NDArray[np.float64], worst: float, best: float, grid: int) -> Points:
    """Mass at any scores, split between the points of an even grid."""
    at = (scores - worst) / (best - worst) * (grid - 1)
    k = np.floor(at).astype(np.int64)
    first = int(k.min())
    total = np.zeros(int(k.max()) - first + 2)
    total += np.bincount(k - first, mass * (1 - (at - k)), minlength=len(total))
    total += np.bincount(k - first + 1, mass * (at - k), minlength=len(total))
    points = worst + (np.arange(len(total)) + first) * (best - worst) / (grid - 1)
    return settle(points, total, worst, best)


def settle(scores: NDArray[np.float64], mass: NDArray[np.float64], worst: float, best: float) -> Points:
    """Mass on the points between worst and best: what leaned over an end goes onto it, then the mean is put right.

    Moving a fraction e of the mass by one point to the left or right moves the mean by e points and leaves it positive.
    """
    if scores[0] > scores[-1]:
        scores, mass = scores[::-1], mass[::-1]
    real = np.flatnonzero(mass > 0)
    scores, mass = scores[real[0] : real[-1] + 1], mass[real[0] : real[-1] + 1] / mass[real].sum()
    mean = float(scores @ mass)
    scores, mass = merged(np.clip(scores, worst, best), mass)
    gap = mean - float(scores @ mass)
    for _ in range(_MOST_SHIFTS if len(scores) > 1 else 0):
        moved = np.zeros_like(mass)
        if gap > 0:
            moved[1:], moved[-1] = mass[:-1], mass[-1] + mass[-2]
        else:
            moved[:-1], moved[0] = mass[1:], mass[0] + mass[1]
        shift = float(scores @ moved) - float(scores @ mass)
        if abs(shift) > abs(gap):
            mass = mass + (gap / shift) * (moved - mass)
            break
        mass, gap = moved, gap - shift
    real = np.flatnonzero(mass > 0)
    return scores[real], mass[real]
