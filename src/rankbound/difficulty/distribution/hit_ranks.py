"""Distributions from the ranks that the relevant documents may take.

Two or three relevant documents: the i-th of them at rank r adds f_i(r) to the total, because i - 1 relevant ones and
r - i others are above it. So the total is f_1(r_1) + f_2(r_2) + ... over r_1 < r_2 < ..., and all sets of ranks are
equally likely.

Interpolated precision: the value reaches v if the i-th relevant document has a rank of at most i / v, for some i from
the recall level on. A program over ranks and relevant documents so far follows the mass that has not reached v and
collects the mass that does, for all v side by side. Both are sums of positive numbers, so that both tails are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import merged
from rankbound.difficulty.distribution.case import Case
from rankbound.measures.interpolated_precision import InterpolatedPrecision

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
_MOST_HITS = 3
_MOST_SETS = 12_000_000
_MOST_KEPT = 100_000  # sets of ranks whose totals are kept one by one
_CELLS = 1 << 18  # of the grid otherwise
_SCAN, _LEAST_VALUES, _MOST_VALUES = 128, 512, 4_096  # values of an interpolated precision that are followed
_MOST_WORK = 6e8  # values times ranks times relevant documents
_UNLIKELY = 1e-10  # tails that need no value of their own


def has_few_hits(case: Case) -> bool:
    """Whether the sets of ranks of the relevant documents can be enumerated."""
    return (
        case.random
        and len(case.labels) == 2
        and case.labels[1] == 0
        and case.measure.definition.has_walk
        and not case.measure.definition.scale_varies(case.measure)
        and 2 <= case.counts[0] <= _MOST_HITS
        and math.comb(case.n, case.counts[0]) <= _MOST_SETS
    )


def of_few_hits(case: Case) -> Points:
    """Scores and probabilities: one by one, or the means of the cells of a fine grid."""
    added = [_added(case, i) for i in range(case.counts[0])]
    sets = math.comb(case.n, case.counts[0])
    scale, shift = case.value([case.relevant, case.ranks - case.relevant])
    if np.ndim(shift):
        shift = float(np.ravel(shift)[0])
    if sets <= _MOST_KEPT:
        totals = np.concatenate(list(_totals(added)))
        return merged(totals * scale + shift, np.full(sets, 1 / sets), relative=shift == 0)
    least, most = min(map(np.min, added)) * len(added), sum(map(np.max, added))
    count, sums = np.zeros(_CELLS), np.zeros(_CELLS)
    for totals in _totals(added):
        cell = ((totals - least) * ((_CELLS - 1) / (most - least))).astype(np.int64)
        count += np.bincount(cell, minlength=_CELLS)
        sums += np.bincount(cell, totals, minlength=_CELLS)
    used = count > 0
    return merged(sums[used] / count[used] * scale + shift, count[used] / sets, relative=shift == 0)


def _added(case: Case, hits: int) -> NDArray[np.float64]:
    """What a relevant document adds at each rank if so many others are above it."""
    rank = np.arange(1, case.ranks + 1)
    so_far = [np.full(case.ranks, hits), np.maximum(rank - 1 - hits, 0)]
    added = np.zeros(case.n)
    added[: case.ranks] = case.growth(rank, 0, so_far)
    return added


def _totals(added: list[NDArray[np.float64]]) -> Iterator[NDArray[np.float64]]:
    """The totals of all sets of ranks, in parts: those with the same last ranks but two go together."""
    n, first, second = len(added[0]), added[0], added[1]
    above = np.concatenate([np.arange(rank) for rank in range(n)])
    below = np.repeat(np.arange(n), np.arange(n))
    pairs = first[above] + second[below]  # by the rank of the second, so that those above a third one come first
    if len(added) == 2:
        yield pairs
        return
    for rank in range(2, n):
        yield pairs[: rank * (rank - 1) // 2] + added[2][rank]


# ---- interpolated precision ------------------------------------------------------------------------------------------


def is_largest_precision(case: Case) -> bool:
    """Whether the case is an interpolated precision on a list that is short enough to follow its values."""
    return (
        case.random
        and isinstance(case.measure.definition, InterpolatedPrecision)
        and case.ranks * case.relevant * (_SCAN + _LEAST_VALUES) <= _MOST_WORK
    )


def of_largest_precision(case: Case) -> Points:
    """Scores and probabilities; where there are very many values, each that is kept has the mass up to the next."""
    hits, ranks = _attainable_precisions(case)
    most = int(min(_MOST_VALUES, _MOST_WORK / (case.ranks * case.relevant) - _SCAN))
    if len(hits) > most:
        some = np.unique(np.linspace(0, len(hits) - 1, _SCAN).astype(np.int64))
        below, reached = _tails_of_precision(case, hits[some], ranks[some])
        first = some[max(int(np.searchsorted(below, _UNLIKELY)) - 1, 0)]
        last = some[::-1][max(int(np.searchsorted(reached[::-1], _UNLIKELY)) - 1, 0)]
        between = np.linspace(first, last, most - len(some)).astype(np.int64)
        used = np.union1d(some, between)
        hits, ranks = hits[used], ranks[used]
    below, reached = _tails_of_precision(case, hits, ranks)
    upper = -np.diff(reached, append=0.0)
    lower = np.diff(below, append=1.0)
    scores, mass = hits / ranks, np.where(reached < 0.5, upper, lower)
    if below[0] > 0:  # too few relevant documents have a rank
        scores, mass = np.append(0.0, scores), np.append(below[0], mass)
    real = mass > 0
    return scores[real], mass[real]


def _attainable_precisions(case: Case) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The fractions that the value may be, ascending: relevant documents over the rank of the last of them."""
    hits = np.arange(_needed_hits(case), case.relevant + 1)[:, None]
    ranks = np.arange(1, case.ranks + 1)[None, :]
    possible = (hits <= ranks) & (ranks - hits <= case.n - case.relevant)
    hits, ranks = (np.broadcast_to(each, possible.shape)[possible] for each in (hits, ranks))
    divisor = np.gcd(hits, ranks)
    distinct = np.unique(np.stack((hits // divisor, ranks // divisor)), axis=1)
    return tuple(distinct[:, np.argsort(distinct[0] / distinct[1])])


def _needed_hits(case: Case) -> int:
    """How many relevant documents the recall level asks for, at least one."""
    return max(1, math.floor(case.measure.number("recall") * case.relevant + 0.9))


def _tails_of_precision(
    case: Case, hits: NDArray[np.int64], ranks: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(value < h / r) and P(value >= h / r) for some ascending fractions."""
    needed, others = _needed_hits(case), case.n - case.relevant
    mass = np.zeros((case.relevant + 1, len(hits)))  # by the relevant documents so far
    mass[0] = 1.0
    reached = np.zeros(len(hits))
    for rank in range(1, case.ranks + 1):
        first, last = max(0, rank - 1 - others), min(rank - 1, case.relevant)
        so_far = np.arange(first, last + 1)[:, None]
        rows = mass[first : last + 1]
        moved = rows * ((case.relevant - so_far) / (case.n - rank + 1))
        rows *= (others - (rank - 1 - so_far)) / (case.n - rank + 1)
        stops = (so_far + 1 >= needed) & ((so_far + 1) * ranks >= hits * rank)
        reached += np.where(stops, moved, 0.0).sum(axis=0)
        moved[stops] = 0.0
        goal = mass[first + 1 : last + 2]
        goal += moved[: len(goal)]
    return mass.sum(axis=0), reached
