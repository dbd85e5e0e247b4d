"""Sample negative items for users, and pairs of faces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists

__all__ = ["UserLists", "age_pairs", "align_interactions", "is_among", "pair_keys", "sample_lists"]

_ROUNDS = 8  # of drawing for all users at once; the few users with hardly any item left follow one by one


@dataclass(frozen=True, eq=False)
class UserLists:
    """One list per user, with the code of the user of each list and the code of the item of each row."""

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
    """Create lists for training and testing: each user's positive items and ``ratio`` negative items for each of them.

    Negatives are sampled uniformly without replacement. The items of a list are sorted by code, so that their order
    reveals nothing about the labels.

    Parameters
    ----------
    train, test:
        Positive interactions with shared codes: rows of one table, or two tables after `align_interactions`.
    train_ratio, test_ratio:
        Negatives per positive (negative sampling ratio), rounded down to integers; ``test_ratio`` defaults to
        ``train_ratio``.
    protocol:
        "honest": no test item of a user, positive or negative, is in the user's training list. "published", as Li,
        Urbano and Hanjalic do in "New Insights into Metric Optimization for Ranking-based Recommendation": training
        negatives are all items but the training positives, so test positives can be among them, and test negatives are
        all items but the positives.
    seed:
        Seed of the sampling.
    """
    if protocol not in ("honest", "published"):
        raise ArgumentError(f'protocol must be "honest" or "published", got {protocol!r}')
    if len(train.user_names) != len(test.user_names) or len(train.item_names) != len(test.item_names):
        raise DataError("train and test must share their users and items; see rankbound.data.align_interactions")
    train_stream, test_stream = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    train_keys, test_keys = pair_keys(train), pair_keys(test)
    positives = _merged(train_keys, test_keys)
    honest = protocol == "honest"
    train_negatives = _draw(train, train_ratio, positives if honest else train_keys, train_stream)
    forbidden = _merged(positives, train_negatives) if honest else positives
    test_negatives = _draw(test, train_ratio if test_ratio is None else test_ratio, forbidden, test_stream)
    return _user_lists(train, train_keys, train_negatives), _user_lists(test, test_keys, test_negatives)


def align_interactions(*tables: Interactions) -> tuple[Interactions, ...]:
    """Return tables that were read from separate files with common codes for the users and items of all of them."""
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
    """Sample distinct pairs of rows whose ages differ by at least ``min_gap``; return also whether the first is older.

    ``ids`` are the distinct names of the rows. The sampled pairs of persons do not depend on the order of rows.

    >>> pairs, first_is_older = age_pairs([30, 2, 65], ["a", "b", "c"], count=2, min_gap=20)
    >>> len(pairs)
    2
    """
    years, names = np.asarray(ages).astype(np.int64), np.asarray(ids)
    if min_gap < 1:
        raise ArgumentError(f"min_gap must be at least 1, got {min_gap}")
    if len(np.unique(names)) != len(years):
        raise ArgumentError("ids must be distinct, one for each row")
    row = np.argsort(names)  # from here on, persons are sorted by name
    years = years[row]
    ranked = np.sort(years)
    possible = int((np.searchsorted(ranked, ranked - min_gap, side="right")).sum())
    if count > possible:
        raise DataError(f"count must be at most {possible}, the pairs at least {min_gap} years apart, got {count}")
    rng, people = np.random.default_rng(seed), len(years)
    sampled = np.zeros(0, np.int64)
    while len(sampled) < count:
        first, second = np.sort(rng.integers(0, people, (2, 2 * (count - len(sampled)) + 64)), axis=0)
        wide = np.abs(years[first] - years[second]) >= min_gap
        fresh = np.unique((first * people + second)[wide])
        fresh = fresh[~np.isin(fresh, sampled)]
        sampled = np.concatenate((sampled, rng.permutation(fresh)[: count - len(sampled)]))
    pairs = np.stack((sampled // people, sampled % people), axis=1)
    swapped = rng.random(count) < 0.5
    pairs[swapped] = pairs[swapped, ::-1]
    older = (years[pairs[:, 0]] > years[pairs[:, 1]]).astype(np.int32)
    return row[pairs], older


def pair_keys(interactions: Interactions) -> NDArray[np.int64]:
    """Return one sorted number per interaction: user * items + item."""
    return interactions.users.astype(np.int64) * len(interactions.item_names) + interactions.items


def _draw(
    positives: Interactions, ratio: float, forbidden: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return keys of floor(ratio * positives) negatives for each user, none of them forbidden.

    Items are sampled for all users at once, and those that are forbidden or were sampled before are rejected. Rejection
    prefers no item, so every set of allowed items is equally likely.
    """
    if not np.isfinite(ratio) or ratio < 0:
        raise ArgumentError(f"a ratio of negatives must be a finite number of at least 0, got {ratio}")
    items = len(positives.item_names)
    wanted = np.floor(positives.per_user * ratio + 1e-9).astype(np.int64)
    taken_per_user = np.bincount(forbidden // items, minlength=len(wanted))
    short = np.flatnonzero((wanted > items - taken_per_user) & (wanted > 0))
    if len(short):
        user = short[0]
        left = items - taken_per_user[user]
        name = positives.user_names[user]
        raise DataError(f"user {name} needs {wanted[user]} negative items (ratio {ratio:g}), but only {left} are left")
    sampled, missing = np.zeros(0, np.int64), wanted.copy()
    for _ in range(_ROUNDS):
        users = np.repeat(np.arange(len(missing)), missing)
        drawn = _merged(users * items + rng.integers(0, items, len(users)))
        drawn = drawn[~(is_among(drawn, forbidden) | is_among(drawn, sampled))]
        missing -= np.bincount(drawn // items, minlength=len(missing))
        sampled = _merged(sampled, drawn)
    rest = [sampled]
    for user in np.flatnonzero(missing).tolist():
        own = [_of_user(keys, user, items) for keys in (forbidden, sampled)]
        left = np.setdiff1d(np.arange(items), np.concatenate(own))
        rest.append(user * items + rng.choice(left, missing[user], replace=False))
    return _merged(*rest)


def _merged(*keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all distinct keys, sorted; np.unique takes many times as long on arrays that are nearly sorted."""
    together = np.sort(np.concatenate(keys), kind="stable")
    return together[np.diff(together, prepend=-1) > 0]


def is_among(keys: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which keys are among others, which are sorted."""
    if len(others) == 0:
        return np.zeros(len(keys), dtype=bool)
    index = np.minimum(np.searchsorted(others, keys), len(others) - 1)
    is_among: NDArray[np.bool_] = others[index] == keys
    return is_among


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
