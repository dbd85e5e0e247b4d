"""Negative items of users, drawn anew in every epoch.

The items of a user are a function of seed, epoch and user: each user has a random stream of its own (SplitMix64), so
that they depend neither on the batch that the user is in nor on the number of threads. See ``kernels/negatives.cpp``;
without compiled kernels, NumPy draws the same items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.kernels import ARRAY, INTEGER, Arguments, kernel, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN, _MIX1, _MIX2 = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


# ---- drawing ---------------------------------------------------------------------------------------------------------


class _DrawNegatives(Arguments):
    _fields_ = (
        ("seed", INTEGER),
        ("catalog", INTEGER),
        ("popular", INTEGER),
        ("interactions", INTEGER),
        ("users", ARRAY),
        ("starts", ARRAY),
        ("items", ARRAY),
        ("offsets", ARRAY),
        ("counts", ARRAY),
        ("lists", ARRAY),
    )


def draw_candidates(
    users: NDArray[np.int32],
    starts: NDArray[np.int64],
    items: NDArray[np.int32],
    counts: NDArray[np.int64],
    catalog: int,
    seed: int,
    *,
    popular: bool = False,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
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
    function = kernel("draw_negatives", _DrawNegatives)
    if function is None:
        for at, user in enumerate(users):
            own = items[starts[user] : starts[user + 1]]
            drawn = _draw(int(user), own, int(counts[at]), catalog, seed, items if popular else None)
            lists[offsets[at] : offsets[at + 1]] = np.concatenate((own, drawn))
        return lists, offsets
    arguments = _DrawNegatives(
        seed=int(seed),
        catalog=catalog,
        popular=popular,
        interactions=len(items),
        users=np.ascontiguousarray(users, np.int32),
        starts=np.ascontiguousarray(starts, np.int64),
        items=np.ascontiguousarray(items, np.int32),
        offsets=offsets,
        counts=np.ascontiguousarray(counts, np.int64),
        lists=lists,
    )
    run(function, arguments, len(users), 10 * len(lists))
    return lists, offsets


def _draw(
    user: int, positives: NDArray[np.int32], count: int, catalog: int, seed: int, popular: NDArray[np.int32] | None
) -> NDArray[Any]:
    """Draw the negatives of a user as the kernel does; ``popular`` are the items to draw from, or None."""
    with np.errstate(over="ignore"):
        state = _mix(np.uint64(seed) + np.uint64(user) * _GOLDEN)
        left = catalog - len(positives)
        if popular is None and 2 * count > left:  # selection sampling
            others = np.setdiff1d(np.arange(catalog), positives)
            chosen: list[int] = []
            bounds = np.arange(left, 0, -1, dtype=np.uint64)
            below = (_mix(state + _GOLDEN * np.arange(1, left + 1, dtype=np.uint64)) >> np.uint64(32)) * bounds
            for item, number in zip(others.tolist(), (below >> np.uint64(32)).tolist(), strict=True):
                if number < count - len(chosen):
                    chosen.append(item)
            return np.array(chosen, np.int32)
        bound, size = catalog if popular is None else len(popular), 2 * count + 16
        while True:  # until so many draws hold enough new items
            numbers = _mix(state + _GOLDEN * np.arange(1, size + 1, dtype=np.uint64)) >> np.uint64(32)
            items = (numbers * np.uint64(bound) >> np.uint64(32)).astype(np.int64)
            items = items if popular is None else popular[items]
            first = np.sort(np.unique(items, return_index=True)[1])
            new = items[first][~np.isin(items[first], positives)]
            if len(new) >= count:
                return np.asarray(new[:count])
            size *= 2


def _mix(z: Any) -> Any:
    """The output function of SplitMix64 (Steele, Lea & Flood, Fast splittable pseudorandom number generators)."""
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


# ---- hard negatives --------------------------------------------------------------------------------------------------


class _KeepBest(Arguments):
    _fields_ = (
        ("candidates", INTEGER),
        ("scores", ARRAY),
        ("offsets", ARRAY),
        ("positives", ARRAY),
        ("kept", ARRAY),
        ("chosen", ARRAY),
    )


def keep_best_negatives(
    scores: NDArray[np.float32], offsets: NDArray[np.int64], positives: NDArray[np.int64], candidates: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of all positives and of the best of every ``candidates`` negatives, and their new offsets."""
    groups = -(-(np.diff(offsets) - positives) // candidates)
    kept = np.concatenate(([0], np.cumsum(positives + groups)))
    function = kernel("keep_best", _KeepBest)
    if function is None:
        chosen: list[int] = []
        for low, high, count in zip(offsets[:-1].tolist(), offsets[1:].tolist(), positives.tolist(), strict=True):
            chosen += range(low, low + count)
            for start in range(low + count, high, candidates):
                chosen.append(start + int(np.argmax(scores[start : min(start + candidates, high)])))
        return np.array(chosen, np.int64), kept
    rows = np.empty(kept[-1], np.int64)
    arguments = _KeepBest(
        candidates=candidates,
        scores=np.ascontiguousarray(scores, np.float32),
        offsets=np.ascontiguousarray(offsets, np.int64),
        positives=np.ascontiguousarray(positives, np.int64),
        kept=kept,
        chosen=rows,
    )
    run(function, arguments, len(positives), len(scores))
    return rows, kept
