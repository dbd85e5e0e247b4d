"""Negative items of users, drawn anew in every epoch by a kernel.

The items of a user are a function of seed, epoch and user: each user has a random stream of its own (SplitMix64), so
that they depend neither on the batch that the user is in nor on the number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import prange

from rankbound.arrays import read_only
from rankbound.losses.compiling import helper, kernel, running

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["draw_candidates", "keep_best_negatives"]

_BLOCKS = 16  # of users that threads share; each block marks the items of one user at a time
_GOLDEN, _MIX1, _MIX2 = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@helper
def _mixed(state: Any) -> Any:
    """The output function of SplitMix64 (Steele, Lea & Flood, Fast splittable pseudorandom number generators)."""
    z = state
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


@helper
def _below(state: Any, bound: int) -> Any:
    """An integer from 0 to bound - 1; the 32 upper bits are scaled, with a bias below bound / 2^32."""
    return np.int64(((_mixed(state) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@kernel
def _draw(
    users: Any, starts: Any, items: Any, offsets: Any, counts: Any, seed: Any, catalog: int, popular: bool, lists: Any
) -> None:
    users_per_block = (len(users) + _BLOCKS - 1) // _BLOCKS
    for block in prange(_BLOCKS):
        marked = np.zeros(catalog, np.uint8)
        for a in range(block * users_per_block, min((block + 1) * users_per_block, len(users))):
            user = users[a]
            lo, hi, count = starts[user], starts[user + 1], counts[a]
            at = offsets[a]
            for r in range(lo, hi):
                marked[items[r]] = 1
                lists[at] = items[r]
                at += 1
            others = catalog - (hi - lo)
            state = _mixed(seed + np.uint64(user) * _GOLDEN)
            if popular or 2 * count <= others:  # draw until there are enough that are new
                first = at
                while at - first < count:
                    state += _GOLDEN
                    item = items[_below(state, len(items))] if popular else _below(state, catalog)
                    if marked[item] == 0:
                        marked[item] = 1
                        lists[at] = item
                        at += 1
                for r in range(first, at):
                    marked[lists[r]] = 0
            else:  # selection sampling: item by item, with the probability that is left (Knuth, algorithm S)
                missing, left = count, others
                for item in range(catalog):
                    if marked[item] == 0:
                        state += _GOLDEN
                        if _below(state, left) < missing:
                            lists[at] = item
                            at += 1
                            missing -= 1
                        left -= 1
            for r in range(lo, hi):
                marked[items[r]] = 0


def draw_candidates(
    users: NDArray[np.int32], starts: NDArray[np.int64], items: NDArray[np.int32], counts: NDArray[np.int64],
    catalog: int, seed: int, *, popular: bool = False,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:  # fmt: skip
    """Return lists of each user's positive items followed by so many distinct negative items, and their offsets.

    ``starts`` and ``items`` are the positive items of all users. ``popular`` draws in proportion to the number of
    interactions of an item, otherwise all items that are not positive are equally likely. A count must be at most the
    number of such items, with ``popular`` at most half of the number of items that have an interaction of others.

    >>> starts, items = np.array([0, 2]), np.array([1, 3], np.int32)
    >>> lists, offsets = draw_candidates(np.array([0], np.int32), starts, items, np.array([2]), 4, seed=5)
    >>> lists[:2].tolist(), sorted(lists[2:].tolist()), offsets.tolist()
    ([1, 3], [0, 2], [0, 4])
    """
    offsets = np.concatenate(([0], np.cumsum(starts[users + 1] - starts[users] + counts)))
    lists = np.empty(offsets[-1], np.int32)
    with running(10 * len(lists)):
        _draw(users, starts, read_only(items), offsets, counts, np.uint64(seed), catalog, popular, lists)
    return lists, offsets


@kernel
def _keep_best(scores: Any, offsets: Any, positives: Any, kept_offsets: Any, candidates: int, chosen: Any) -> None:
    for a in prange(len(positives)):
        lo, at = offsets[a], kept_offsets[a]
        for r in range(lo, lo + positives[a]):
            chosen[at] = r
            at += 1
        first = lo + positives[a]
        while at < kept_offsets[a + 1]:
            best = first
            for r in range(first + 1, min(first + candidates, offsets[a + 1])):
                if scores[r] > scores[best]:
                    best = r
            chosen[at] = best
            at += 1
            first += candidates


def keep_best_negatives(
    scores: NDArray[np.float32], offsets: NDArray[np.int64], positives: NDArray[np.int64], candidates: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of all positives and of the best of every ``candidates`` negatives, and their new offsets."""
    negatives = np.diff(offsets) - positives
    kept = np.concatenate(([0], np.cumsum(positives + -(-negatives // candidates))))
    chosen = np.empty(kept[-1], np.int64)
    with running(len(scores)):
        _keep_best(scores, offsets, positives, kept, candidates, chosen)
    return chosen, kept
