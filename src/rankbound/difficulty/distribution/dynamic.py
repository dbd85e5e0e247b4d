"""Distributions by a dynamic program over ranks: mass moves over (counts so far, total on a grid).

A total moves by whole grid steps, and every cell knows the mean of the totals in it. So a value that is alone in its
cell is exact, however coarse the grid, and so is the mean of the distribution. Everything is a sum of positive numbers,
and even the far tails are right relative to their size. The totals of a cell differ by some steps at most; where they
are many and smooth, over hundreds of items, `spectral` takes over.

Mass m whose totals are in the mean f steps above the point of the cell is the complex number m (1 + i e f) with a tiny
e. Adding f to the totals multiplies it by 1 + i e f; what this takes from m is of the order e^2, less than rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import merged
from rankbound.difficulty.distribution.case import Case
from rankbound.difficulty.distribution.count_vectors import FRACTION
from rankbound.difficulty.distribution.walk import Walk, transition

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
RESCALE = 32  # ranks after which numbers that have grown are brought back into range
_MANY_STATES = 100_000  # states times ranks, from which states far from their mean are left out
_SMALLEST_SIZE = 1e-250  # product of the probabilities to stay in a state
_ROW_COST = 2_000  # moving one state by its own shift costs about as much as this many grid points in a block
_LEAST_MASS = 1e-290  # less, times the fraction, is not a floating-point number
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
    lean = np.minimum(np.arange(len(weight) + 1), sum(walk.shape)) + 2  # rounding leans over by half a point per item
    below, above = (reach[0] - lean).astype(np.int64), (reach[1] + lean).astype(np.int64)
    spare = int(np.abs(gains).max(initial=0.0) * weight.max() / step) + 2  # blocks move as a whole, empty rows too
    zero = spare - int(below.min())  # column of total 0
    mass = np.zeros((*walk.shape, zero + int(above.max()) + spare + 1), dtype=np.complex128)
    mass[(0,) * len(gains) + (zero,)] = 1.0
    odds, (final, factor) = walk.odds(), walk.weight_of_counts()
    for filled, (each, band) in enumerate(zip(weight, bands, strict=True)):
        left, right = zero + int(below[filled]), zero + int(above[filled]) + 1
        block = mass[(*band, slice(left, right))]
        label_probabilities = None if case.random else walk.probabilities(filled, band)
        moves = []
        for axis, level in enumerate(walk.axes):
            x = gains[axis] * each / step
            k = round(x)
            label_probability = odds[axis] if label_probabilities is None else label_probabilities[level][..., None]
            moves.append((axis, k, block * (label_probability * complex(1.0, FRACTION * (x - k)))))
        if label_probabilities is not None:
            block *= label_probabilities[walk.base][..., None]
        elif filled % RESCALE == RESCALE - 1:
            moves = [(axis, k, moved * factor**RESCALE) for axis, k, moved in moves]
            mass *= factor**RESCALE
        for axis, k, moved in moves:
            source, target = transition(walk, band, axis)
            goal = mass[(*target, slice(left + k, right + k))]
            goal += moved[source]
    if case.random:
        mass *= (final * factor ** (len(weight) % RESCALE))[..., None]
    total = mass.reshape(-1, mass.shape[-1]).sum(axis=0)
    return _means_of_cells(np.arange(len(total)) - zero + common / step, total, step * scale, 0.0, (worst, best))


def _means_of_cells(points: NDArray[Any], cells: NDArray[np.complex128], scale: Any, shift: Any, ends: Any) -> Points:
    """Scores and probabilities of cells at these points: scale * (point + mean of the fractions) + shift."""
    used = cells.real > _LEAST_MASS
    mass = cells.real[used]
    points, scale, shift = (np.broadcast_to(array, cells.shape)[used] for array in (points, scale, shift))
    scores = (points + cells.imag[used] / (FRACTION * mass)) * scale + shift
    return merged(np.clip(scores, *ends), mass / mass.sum())


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
    lean = 0 if step == unit else len(walk.ranks) // 2 + 2  # rounding leans over by half a point per rank
    columns = round((high - low) / step) + 2 * lean + 3
    mass = np.zeros((*walk.shape, columns), dtype=np.complex128)
    index = np.arange(mass.size // columns).reshape(walk.shape)  # states counted through
    rows = list(mass.reshape(-1, columns))
    rows[0][lean] = 1.0
    left, right = [columns] * len(rows), [0] * len(rows)  # columns in use, per state
    left[0], right[0] = lean, lean + 1
    all_moves, size, stay = _moves(walk, step)
    for filled, band in enumerate(bands):
        now: Any = (filled, *band)
        states = index[band].ravel().tolist()
        staying = None if stay is None else stay[now].ravel().tolist()
        moves = []
        for ahead, shifts, factors in all_moves:
            moves.append((ahead, shifts[now].ravel().tolist(), factors[now].ravel().tolist()))
        # highest states first: a state then passes on its mass before it receives any
        for at in range(len(states) - 1, -1, -1):
            state = states[at]
            a, b = left[state], right[state]
            if a >= b:
                continue
            for ahead, shift, factor in moves:
                if factor[at]:
                    start, end, goal = a + shift[at], b + shift[at], state + ahead
                    row = rows[goal][start:end]
                    row += rows[state][a:b] * factor[at]
                    if start < left[goal]:
                        left[goal] = start
                    if end > right[goal]:
                        right[goal] = end
            if staying is not None:
                rows[state][a:b] *= staying[at]
    so_far = walk.counts(len(walk.ranks), walk.everything)
    mass *= np.where(walk.possible(so_far), size[-1], 0.0)[..., None]
    scale, shift = case.value(so_far)
    worst, _, best = case.bounds
    ends = min(worst, best), max(worst, best)
    points = np.arange(columns) - lean + low / step
    if np.ndim(scale) == 0 and np.ndim(shift) == 0:
        return _means_of_cells(points, mass.reshape(-1, columns).sum(axis=0), step * scale, shift, ends)
    scale, shift = (np.asarray(array)[..., None] for array in (scale, shift))
    return _means_of_cells(points, mass, step * scale, shift, ends)


def _moves(
    walk: Walk, step: float
) -> tuple[
    list[tuple[int, NDArray[np.int64], NDArray[np.complex128]]], NDArray[np.float64], NDArray[np.float64] | None
]:
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
        k = np.rint(x)
        goal = np.roll(size[1:], -1, axis=axis + 1)  # the row of one more; nothing moves on from the last one
        label_probability = label_probabilities[level] * size[:-1] / goal
        moves.append(
            (
                int(np.prod(walk.shape[axis + 1 :])),
                k.astype(np.int64),
                label_probability * (1.0 + 1j * FRACTION * (x - k)),
            )
        )
    return moves, size, stay
