"""Folds: LETOR's rotation, user by user, Monte Carlo, and at random by name.

Everything drawn depends on the seed and on the content: the same rows in another order give the same split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError

__all__ = ["Fold", "deal", "letor_folds", "monte_carlo", "user_folds"]

Part = TypeVar("Part")


@dataclass(frozen=True)
class Fold(Generic[Part]):
    """What to train on, what to choose a model by (if the data keep such a part), and what to test on."""

    train: Part
    validation: Part | None
    test: Part


def letor_folds(parts: Sequence[Part]) -> list[Fold[tuple[Part, ...]]]:
    """LETOR's rotation: all but two consecutive parts train, the next validates, the one after it tests.

    >>> letor_folds(["S1", "S2", "S3", "S4", "S5"])[1]
    Fold(train=('S2', 'S3', 'S4'), validation=('S5',), test=('S1',))
    """
    count = len(parts)
    if count < 3:
        raise ArgumentError(f"parts must be at least 3, got {count}")
    turned = [tuple(parts[(first + step) % count] for step in range(count)) for first in range(count)]
    return [Fold(turn[:-2], turn[-2:-1], turn[-1:]) for turn in turned]


def user_folds(interactions: Interactions, folds: int = 5, seed: int = 0) -> NDArray[np.int64]:
    """The fold of each interaction; within each user the folds differ in size by at most one.

    >>> table = Interactions.from_columns([1] * 6 + [2] * 4, [1, 2, 3, 4, 5, 6, 1, 2, 3, 4])
    >>> fold = user_folds(table, folds=2, seed=7)
    >>> [int((fold[table.users == user] == 0).sum()) for user in (0, 1)]
    [3, 2]
    """
    if folds < 2:
        raise ArgumentError(f"folds must be at least 2, got {folds}")
    rng = np.random.default_rng(seed)
    place = _shuffled_place(interactions, rng)
    first = rng.integers(
        0, folds, len(interactions.user_names)
    )  # which folds get the larger share is left to probability
    fold: NDArray[np.int64] = (place + first[interactions.users]) % folds
    return fold


def monte_carlo(
    interactions: Interactions, repeats: int = 3, test_share: float = 0.2, seed: int = 0
) -> list[NDArray[np.bool_]]:
    """Independent random splits by user: for each repeat, which interactions are for testing.

    A user with n interactions has round(test_share * n) of them in each test set.
    """
    if not 0 < test_share < 1:
        raise ArgumentError(f"test_share must lie between 0 and 1, got {test_share}")
    for_test = np.rint(interactions.per_user * test_share)[interactions.users]
    streams = np.random.SeedSequence(seed).spawn(repeats)
    return [_shuffled_place(interactions, np.random.default_rng(stream)) < for_test for stream in streams]


def deal(names: Any, parts: int | Sequence[float], seed: int = 0) -> NDArray[np.int64]:
    """The part that each of some distinct names (of queries, of persons) falls into, at random.

    ``parts`` is a number of equal parts or the share of each.

    >>> deal(["c", "a", "b", "d"], 2, seed=1)[[1, 2, 0, 3]].tolist() == deal(["a", "b", "c", "d"], 2, seed=1).tolist()
    True
    >>> np.bincount(deal(range(10), (0.6, 0.2, 0.2))).tolist()
    [6, 2, 2]
    """
    shares = np.full(parts, 1 / parts) if isinstance(parts, int) else np.asarray(parts, dtype=np.float64)
    if len(shares) == 0 or (shares <= 0).any() or abs(shares.sum() - 1) > 1e-9:
        raise ArgumentError(f"parts must be a positive number or shares that add up to 1, got {parts}")
    distinct, place = np.unique(np.asarray(names), return_inverse=True)
    if len(distinct) != len(place):
        raise ArgumentError("names must be distinct")
    ends = np.rint(np.cumsum(shares) * len(distinct))
    part_of_place = np.searchsorted(ends, np.arange(len(distinct)), side="right")
    part: NDArray[np.int64] = np.random.default_rng(seed).permutation(part_of_place)[place]
    return part


def _shuffled_place(interactions: Interactions, rng: np.random.Generator) -> NDArray[np.int64]:
    """Each interaction's place in a random order of its user's interactions."""
    order = np.lexsort((rng.random(len(interactions)), interactions.users))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - interactions.offsets[interactions.users]
    return place
