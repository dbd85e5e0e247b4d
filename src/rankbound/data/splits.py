"""Splits: LETOR's rotation of folds, folds within users, Monte Carlo splits, and random parts; k-cores.

Random splits depend on the seed and on the content of the data, not on the order of rows.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError, DataError
from rankbound.io import atomic_write

SPLITS = ("user", "time", "leave-one-out")

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


def split_interactions(
    interactions: Interactions, by: str = "user", *, test: float = 0.2, validation: float = 0.0, seed: int = 0
) -> Fold[Interactions]:
    """Split interactions for training, validation and testing; users and items keep their codes in all parts.

    Parameters
    ----------
    interactions:
        The table to split.
    by:
        "user": of a user with n interactions, round(test * n) random ones are for testing and round(validation * n) for
        validation, but at least one is for training. "time": the latest interactions of the table are for testing and
        those before them for validation; interactions at one time stay together. Users and items of the test part may
        then be new. "leave-one-out": the latest interaction of each user is for testing and, if ``validation`` is
        positive, the one before for validation; a random one where times are equal or the table has none. A user needs
        an interaction more than are held out, or all are for training.
    test, validation:
        Fractions of the interactions. ``test`` does not matter to "leave-one-out".
    seed:
        Seed of the random choices.

    >>> table = Interactions.from_columns([1, 1, 1, 2, 2], [1, 2, 3, 1, 2], timestamp=[5, 9, 7, 6, 8])
    >>> fold = split_interactions(table, "leave-one-out")
    >>> fold.test.to_frame().rows(), fold.validation, len(fold.train)
    ([(1, 2, 9), (2, 2, 8)], None, 3)
    """
    if by not in SPLITS:
        raise ArgumentError(f"by must be one of {', '.join(SPLITS)}, got {by!r}")
    if not 0 < test < 1:
        raise ArgumentError(f"test must lie between 0 and 1, got {test}")
    if not 0 <= validation < 1 or test + validation >= 1:
        raise ArgumentError(f"validation must be at least 0 and less than 1 - test, got {validation}")
    if len(interactions) == 0:
        raise DataError("interactions must have at least one row to be split, got none")
    if by == "time":
        is_test, is_validation = _latest(interactions, test, validation)
    else:
        is_test, is_validation = _of_each_user(interactions, by == "leave-one-out", test, validation, seed)
    if not is_test.any():
        raise DataError(f"no user has enough interactions to hold out a fraction of {test:g}")
    held_out = interactions.rows(is_validation) if validation else None
    return Fold(interactions.rows(~(is_test | is_validation)), held_out, interactions.rows(is_test))


def k_core(interactions: Interactions, users: int = 5, items: int = 5) -> Interactions:
    """Return the largest part in which users have at least ``users`` and items at least ``items`` interactions.

    Users and items with fewer are removed again and again, until none is left to remove. The rest gets new codes.

    >>> table = Interactions.from_columns([1, 1, 2, 2, 3], [1, 2, 1, 2, 1])
    >>> k_core(table, users=2, items=2)
    Interactions(users=2, items=2, interactions=4)
    """
    for name, least in (("users", users), ("items", items)):
        if least < 1:
            raise ArgumentError(f"{name} must be at least 1, got {least}")
    kept = interactions
    while True:
        per_item = np.bincount(kept.items, minlength=len(kept.item_names))
        stays = (kept.per_user[kept.users] >= users) & (per_item[kept.items] >= items)
        if stays.all():
            break
        kept = kept.rows(stays)
    if len(kept) == 0:
        raise DataError(f"no interaction is left if users need {users} interactions and items {items}")
    return kept.compact()


def write_split(fold: Fold[Interactions], folder: str | PathLike[str], form: str = "csv") -> dict[str, Path]:
    """Write the parts of a split as train, validation and test files, all or none, and return their paths.

    ``form`` is "csv" or "parquet". The columns are user, item and, where there are any, rating and timestamp; ids are
    written as they were read. A folder with the validation file of another split raises ArgumentError if this split has
    none.
    """
    if form not in ("csv", "parquet"):
        raise ArgumentError(f"form must be csv or parquet, got {form!r}")
    parts = {"train": fold.train, "validation": fold.validation, "test": fold.test}
    paths = {part: Path(folder) / f"{part}.{form}" for part, table in parts.items() if table is not None}
    left = Path(folder) / f"validation.{form}"
    if fold.validation is None and left.exists():
        raise ArgumentError(f"{left}: belongs to another split, and this one has no validation part; remove it first")
    with ExitStack() as files:  # renamed when all are written
        for part, path in paths.items():
            temporary = files.enter_context(atomic_write(path))
            temporary.write_bytes(_file_content(parts[part], form))
    return paths


def _file_content(table: Interactions | None, form: str) -> bytes:
    """Return the content of a file, made in memory, because polars reports a full disk in several ways."""
    assert table is not None
    content = io.BytesIO()
    if form == "csv":
        table.to_frame().write_csv(content)
    else:
        table.to_frame().write_parquet(content)
    return content.getvalue()


def _of_each_user(
    table: Interactions, leave_one_out: bool, test: float, validation: float, seed: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of the test and validation interactions of each user."""
    latest_first = None if table.timestamps is None or not leave_one_out else -table.timestamps
    rank = _random_rank(table, np.random.default_rng(seed), latest_first)
    total = table.per_user
    if leave_one_out:
        for_validation = np.full(len(total), int(validation > 0))
        for_test = np.ones(len(total), np.int64)
        enough = total > for_test + for_validation
        for_test, for_validation = for_test * enough, for_validation * enough
    else:
        for_test = np.minimum(np.rint(total * test).astype(np.int64), total - 1)
        for_validation = np.minimum(np.rint(total * validation).astype(np.int64), total - 1 - for_test)
    first, second = for_test[table.users], (for_test + for_validation)[table.users]
    return rank < first, (rank >= first) & (rank < second)


def _latest(table: Interactions, test: float, validation: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of the latest interactions and of those before them; interactions at one time stay together."""
    times = table.timestamps
    if times is None:
        raise DataError('a split by "time" needs timestamps, which the interactions do not have')
    ordered = np.sort(times)
    starts = [ordered[int(np.floor((1 - held_out) * len(ordered) + 1e-9))] for held_out in (test, test + validation)]
    if starts[1] == ordered[0]:
        raise DataError('a split by "time" needs interactions at different times for each part, got too few of them')
    return times >= starts[0], (times >= starts[1]) & (times < starts[0])


def random_parts(names: ArrayLike, parts: int | Sequence[float], seed: int = 0) -> NDArray[np.int64]:
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


def _random_rank(
    interactions: Interactions, rng: np.random.Generator, key: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the rank of each interaction in a random order of its user's interactions, or among those of equal key."""
    keys = (rng.random(len(interactions)), *(() if key is None else (key,)), interactions.users)
    order = np.lexsort(keys)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - interactions.offsets[interactions.users]
    return rank
