"""The distribution of a query with two or three relevant documents from all sets of ranks that they may take.

The i-th relevant document at rank r adds f_i(r) to the total, because i - 1 relevant ones and r - i others are above
it. So the total is f_1(r_1) + f_2(r_2) + ... over r_1 < r_2 < ..., and all sets of ranks are equally likely.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import merged
from rankbound.difficulty.distribution.case import Case

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
_MOST_HITS = 3
_MOST_SETS = 12_000_000
_MOST_KEPT = 100_000  # sets of ranks whose totals are kept one by one
_CELLS = 1 << 18  # of the grid otherwise


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
