"""Splits: LETOR's rotation of folds, folds within users, Monte Carlo splits, and random parts.

Random splits depend on the seed and on the content of the data, not on the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError

__all__ = ["Fold", "letor_folds", "monte_carlo", "random_parts", "user_folds"]

Part = TypeVar("Part")


@dataclass(frozen=True)
class Fold(Generic[Part]):
    """Data for training, for model selection (None if the split has no such part), and for testing."""

    train: Part
    validation: Part | None
    test: Part


def letor_folds(parts: Sequence[Part]) -> list[Fold[tuple[Part, ...]]]:
    """Return LETOR's rotation: all but two consecutive parts train, the next one validates, the last one tests.

    >>> letor_folds(["S1", "S2", "S3", "S4", "S5"])[1]
    Fold(train=('S2', 'S3', 'S4'), validation=('S5',), test=('S1',))
    """
    count = len(parts)
    if count < 3:
        raise ArgumentError(f"parts must be at least 3, got {count}")
    rotations = [tuple(parts[(first + step) % count] for step in range(count)) for first in range(count)]
    return [Fold(rotation[:-2], rotation[-2:-1], rotation[-1:]) for rotation in rotations]


def user_folds(interactions: Interactions, folds: int = 5, seed: int = 0) -> NDArray[np.int64]:
    """Return the fold of each interaction; the folds of a user differ in size by at most one.

    >>> table = Interactions.from_columns([1] * 6 + [2] * 4, [1, 2, 3, 4, 5, 6, 1, 2, 3, 4])
    >>> fold = user_folds(table, folds=2, seed=7)
    >>> [int((fold[table.users == user] == 0).sum()) for user in (0, 1)]
    [3, 2]
    """
    if folds < 2:
        raise ArgumentError(f"folds must be at least 2, got {folds}")
    rng = np.random.default_rng(seed)
    rank = _random_rank(interactions, rng)
    first = rng.integers(0, folds, len(interactions.user_names))  # so that the larger folds of users are random, too
    fold: NDArray[np.int64] = (rank + first[interactions.users]) % folds
    return fold


def monte_carlo(
    interactions: Interactions, repeats: int = 3, test_fraction: float = 0.2, seed: int = 0
) -> list[NDArray[np.bool_]]:
    """Return one mask of the test interactions for each of several independent random splits.

    A user with n interactions has round(test_fraction * n) of them in each test set.
    """
    if not 0 < test_fraction < 1:
        raise ArgumentError(f"test_fraction must lie between 0 and 1, got {test_fraction}")
    for_test = np.rint(interactions.per_user * test_fraction)[interactions.users]
    streams = np.random.SeedSequence(seed).spawn(repeats)
    return [_random_rank(interactions, np.random.default_rng(stream)) < for_test for stream in streams]


def random_parts(names: Any, parts: int | Sequence[float], seed: int = 0) -> NDArray[np.int64]:
    """Assign distinct names (of queries, of persons) to random parts and return the part of each name.

    ``parts`` is a number of equal parts or the fraction of each part. The assignment does not depend on the order of
    the names.

    >>> np.bincount(random_parts(range(10), (0.6, 0.2, 0.2))).tolist()
    [6, 2, 2]
    """
    fractions = np.full(parts, 1 / parts) if isinstance(parts, int) else np.asarray(parts, dtype=np.float64)
    if len(fractions) == 0 or (fractions <= 0).any() or abs(fractions.sum() - 1) > 1e-9:
        raise ArgumentError(f"parts must be a positive number or fractions that add up to 1, got {parts}")
    distinct, index = np.unique(np.asarray(names), return_inverse=True)
    if len(distinct) != len(index):
        raise ArgumentError("names must be distinct")
    ends = np.rint(np.cumsum(fractions) * len(distinct))
    in_order = np.searchsorted(ends, np.arange(len(distinct)), side="right")
    part: NDArray[np.int64] = np.random.default_rng(seed).permutation(in_order)[index]
    return part


def _random_rank(interactions: Interactions, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the rank of each interaction in a random order of its user's interactions."""
    order = np.lexsort((rng.random(len(interactions)), interactions.users))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - interactions.offsets[interactions.users]
    return rank
