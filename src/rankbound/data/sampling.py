"""Negative items for users, and pairs of faces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists

__all__ = ["UserLists", "age_pairs", "aligned", "sample_lists"]

_ROUNDS = 8  # of drawing at random before the few users with hardly an item left are served one by one


@dataclass(frozen=True, eq=False)
class UserLists:
    """Lists of users: ``users`` has the code of the user of each list, ``items`` the code of the item of each row."""

    lists: Lists
    users: NDArray[np.int32]
    items: NDArray[np.int32]


def sample_lists(
    train: Interactions,
    test: Interactions,
    *,
    train_ratio: float = 1,
    test_ratio: float | None = None,
    protocol: str = "honest",
    seed: int = 0,
) -> tuple[UserLists, UserLists]:
    """Lists for training and testing: each user's positive items and, for each of these, ``ratio`` negative ones.

    Negatives are drawn uniformly and without repetition. Items stand in the order of their codes, so that the order of
    a list says nothing about its labels.

    Parameters
    ----------
    train, test:
        Positive interactions with shared codes: rows of one table, or two tables after `aligned`.
    train_ratio, test_ratio:
        Negatives per positive (NSR), rounded down to whole items; the test ratio is the training ratio unless given.
    protocol:
        "honest": no test item of a user, positive or negative, is in the user's training list. "published", as in "New
        insights into metric optimization": training negatives are anything but training positives, so test positives
        may be among them, and test negatives are anything but positives.
    """
    if protocol not in ("honest", "published"):
        raise ArgumentError(f'protocol must be "honest" or "published", got {protocol!r}')
    if len(train.user_names) != len(test.user_names) or len(train.item_names) != len(test.item_names):
        raise DataError("train and test must share their users and items; see rankbound.data.aligned")
    train_stream, test_stream = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    train_keys, test_keys = _keys(train), _keys(test)
    positives = _merged(train_keys, test_keys)
    honest = protocol == "honest"
    train_negatives = _draw(train, train_ratio, positives if honest else train_keys, train_stream)
    forbidden = _merged(positives, train_negatives) if honest else positives
    test_negatives = _draw(test, train_ratio if test_ratio is None else test_ratio, forbidden, test_stream)
    return _user_lists(train, train_keys, train_negatives), _user_lists(test, test_keys, test_negatives)


def aligned(*tables: Interactions) -> tuple[Interactions, ...]:
    """Tables that were read from separate files, with codes for the users and items of all of them."""
    users = np.unique(np.concatenate([table.user_names for table in tables]))
    items = np.unique(np.concatenate([table.item_names for table in tables]))
    return tuple(
        Interactions(
            np.searchsorted(users, table.user_names).astype(np.int32)[table.users],
            np.searchsorted(items, table.item_names).astype(np.int32)[table.items],
            users,
            items,
            table.ratings,
            table.timestamps,
            table.notes,
        )
        for table in tables
    )


def age_pairs(
    ages: ArrayLike, ids: ArrayLike, count: int, min_gap: int = 1, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Distinct pairs of rows whose ages lie at least ``min_gap`` apart, and for each whether the first is the older.

    ``ids`` are the distinct names of the rows; the persons that make up the pairs do not depend on the order of rows.

    >>> pairs, first_is_older = age_pairs([30, 2, 65], ["a", "b", "c"], count=2, min_gap=20)
    >>> len(pairs)
    2
    """
    years, names = np.asarray(ages).astype(np.int64), np.asarray(ids)
    if min_gap < 1:
        raise ArgumentError(f"min_gap must be at least 1, got {min_gap}")
    if len(np.unique(names)) != len(years):
        raise ArgumentError("ids must name every row, each with its own name")
    row = np.argsort(names)  # from here on, persons by name
    years = years[row]
    ranked = np.sort(years)
    possible = int((np.searchsorted(ranked, ranked - min_gap, side="right")).sum())
    if count > possible:
        raise DataError(f"only {possible} pairs lie at least {min_gap} years apart, {count} were asked for")
    rng, people = np.random.default_rng(seed), len(years)
    found = np.zeros(0, np.int64)
    while len(found) < count:
        first, second = np.sort(rng.integers(0, people, (2, 2 * (count - len(found)) + 64)), axis=0)
        wide = np.abs(years[first] - years[second]) >= min_gap
        fresh = np.unique((first * people + second)[wide])
        fresh = fresh[~np.isin(fresh, found)]
        found = np.concatenate((found, rng.permutation(fresh)[: count - len(found)]))
    pairs = np.stack((found // people, found % people), axis=1)
    swapped = rng.random(count) < 0.5
    pairs[swapped] = pairs[swapped, ::-1]
    older = (years[pairs[:, 0]] > years[pairs[:, 1]]).astype(np.int32)
    return row[pairs], older


def _keys(interactions: Interactions) -> NDArray[np.int64]:
    """One sorted number per interaction: user * items + item."""
    return interactions.users.astype(np.int64) * len(interactions.item_names) + interactions.items


def _draw(
    positives: Interactions, ratio: float, forbidden: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Keys of negatives, floor(ratio * positives) for each user, none of them forbidden.

    All users draw at once and what is forbidden or was drawn before is thrown back. No item is preferred in this, so
    every set of allowed items is equally likely.
    """
    if not np.isfinite(ratio) or ratio < 0:
        raise ArgumentError(f"a ratio of negatives must be a number from 0 on, got {ratio}")
    items = len(positives.item_names)
    wanted = np.floor(positives.per_user * ratio + 1e-9).astype(np.int64)
    taken_per_user = np.bincount(forbidden // items, minlength=len(wanted))
    short = np.flatnonzero((wanted > items - taken_per_user) & (wanted > 0))
    if len(short):
        user = short[0]
        left = items - taken_per_user[user]
        name = positives.user_names[user]
        raise DataError(f"user {name} needs {wanted[user]} negative items (ratio {ratio:g}) and only {left} are left")
    found, missing = np.zeros(0, np.int64), wanted.copy()
    for _ in range(_ROUNDS):
        users = np.repeat(np.arange(len(missing)), missing)
        drawn = _merged(users * items + rng.integers(0, items, len(users)))
        drawn = drawn[~(_among(drawn, forbidden) | _among(drawn, found))]
        missing -= np.bincount(drawn // items, minlength=len(missing))
        found = _merged(found, drawn)
    rest = [found]
    for user in np.flatnonzero(missing).tolist():
        own = [_of_user(keys, user, items) for keys in (forbidden, found)]
        left = np.setdiff1d(np.arange(items), np.concatenate(own))
        rest.append(user * items + rng.choice(left, missing[user], replace=False))
    return _merged(*rest)


def _merged(*keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """All distinct keys, sorted; np.unique's hash table takes many times as long on arrays that are nearly sorted."""
    together = np.sort(np.concatenate(keys), kind="stable")
    return together[np.diff(together, prepend=-1) > 0]


def _among(keys: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which keys are among others; both sorted."""
    if len(others) == 0:
        return np.zeros(len(keys), dtype=bool)
    at = np.minimum(np.searchsorted(others, keys), len(others) - 1)
    found: NDArray[np.bool_] = others[at] == keys
    return found


def _of_user(keys: NDArray[np.int64], user: int, items: int) -> NDArray[np.int64]:
    start, end = np.searchsorted(keys, (user * items, (user + 1) * items))
    return keys[start:end] - user * items


def _user_lists(table: Interactions, positives: NDArray[np.int64], negatives: NDArray[np.int64]) -> UserLists:
    keys = np.concatenate((positives, negatives))
    order = np.argsort(keys)
    labels = np.repeat(np.array([1, 0], np.int32), (len(positives), len(negatives)))[order]
    user, item = np.divmod(keys[order], len(table.item_names))
    users, starts = np.unique(user, return_index=True)
    lists = Lists(labels, np.append(starts, len(user)), None, table.item_names[item], table.user_names[users])
    return UserLists(lists, users.astype(np.int32), item.astype(np.int32))
