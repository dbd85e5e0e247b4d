"""Sample negative items for users, and pairs of faces."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankbound.data.interactions import Interactions, Names
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists

_ROUNDS = 8  # of drawing for all users at once; the few users with hardly any item left follow one by one
_MANY = 20  # a user who needs at least 1 / _MANY of all items is sampled alone where some have too few items


@dataclass(frozen=True, eq=False)
class UserLists:
    """One list per user, with the code of the user of each list and the code of the item of each row.

    ``notes`` say for whom there were too few items to sample from.
    """

    lists: Lists
    users: NDArray[np.int32]
    items: NDArray[np.int32]
    notes: tuple[str, ...] = ()


def sample_lists(
    train: Interactions,
    test: Interactions,
    *,
    train_ratio: float = 1,
    test_ratio: float | None = None,
    protocol: str = "honest",
    seed: int = 0,
    too_few: str = "cap",
    max_negatives: int = 20_000_000,
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
    too_few:
        What happens if a user has fewer other items than the ratio requires. "cap": the lists get the items that there
        are, divided in proportion between training and testing where one item cannot be in both, and a note says so.
        "raise": a DataError names the user.
    max_negatives:
        The most negatives in all lists for training, and the same for testing. Where the ratio requires more, all users
        get proportionally fewer, with a note, or a DataError is raised, as ``too_few`` says.
    """
    if too_few not in ("cap", "raise"):
        raise ArgumentError(f'too_few must be "cap" or "raise", got {too_few!r}')
    if max_negatives < 1:
        raise ArgumentError(f"max_negatives must be at least 1, got {max_negatives}")
    if protocol not in ("honest", "published"):
        raise ArgumentError(f'protocol must be "honest" or "published", got {protocol!r}')
    if len(train.user_names) != len(test.user_names) or len(train.item_names) != len(test.item_names):
        raise DataError("train and test must share their users and items; see rankbound.data.align_interactions")
    train_stream, test_stream = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    train_keys, test_keys = pair_keys(train), pair_keys(test)
    positives = _merge_keys(train_keys, test_keys)
    honest = protocol == "honest"
    ratios = (train_ratio, train_ratio if test_ratio is None else test_ratio)
    wanted = [_count_wanted(table, ratio) for table, ratio in zip((train, test), ratios, strict=True)]
    taken = (positives if honest else train_keys, positives)
    left = [len(train.item_names) - _per_user(keys, train) for keys in taken]
    notes: list[tuple[str, ...]] = []
    for part, (possible, ratio) in enumerate(zip(_count_possible(wanted, left, shared=honest), ratios, strict=True)):
        if too_few == "raise":
            _refuse_too_few(train.user_names, wanted[part], possible, ratio, max_negatives)
        wanted[part], note = _cap_negatives(train.user_names, wanted[part], possible, ratio, max_negatives)
        notes.append(note)
    train_negatives = _draw(train, wanted[0], taken[0], train_stream, by_user=bool(notes[0]))
    forbidden = _merge_keys(positives, train_negatives) if honest else positives
    test_negatives = _draw(test, wanted[1], forbidden, test_stream, by_user=bool(notes[1]))
    return (
        _user_lists(train, train_keys, train_negatives, notes[0]),
        _user_lists(test, test_keys, test_negatives, notes[1]),
    )


def align_interactions(*tables: Interactions) -> tuple[Interactions, ...]:
    """Return tables that were read from separate files with common codes for the users and items of all of them."""
    users = np.unique(np.concatenate([table.user_names for table in tables]))
    items = np.unique(np.concatenate([table.item_names for table in tables]))
    return tuple(
        replace(
            table,
            users=np.searchsorted(users, table.user_names).astype(np.int32)[table.users],
            items=np.searchsorted(items, table.item_names).astype(np.int32)[table.items],
            user_names=users,
            item_names=items,
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


def _per_user(keys: NDArray[np.int64], table: Interactions) -> NDArray[np.int64]:
    return np.bincount(keys // max(1, len(table.item_names)), minlength=len(table.user_names))


def _count_wanted(positives: Interactions, ratio: float) -> NDArray[np.int64]:
    """Return floor(ratio * positives), the number of negatives that each user should have."""
    if not np.isfinite(ratio) or ratio < 0:
        raise ArgumentError(f"a ratio of negatives must be a finite number of at least 0, got {ratio}")
    wanted: NDArray[np.int64] = np.floor(positives.per_user * ratio + 1e-9).astype(np.int64)
    return wanted


def _count_possible(
    wanted: list[NDArray[np.int64]], left: list[NDArray[np.int64]], *, shared: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many negatives users can have for training and testing, in proportion where both share the items."""
    if not shared:
        return np.minimum(wanted[0], left[0]), np.minimum(wanted[1], left[1])
    both = wanted[0] + wanted[1]
    fits = both <= left[0]
    for_train = np.where(fits, wanted[0], np.floor(left[0] * (wanted[0] / np.maximum(both, 1)) + 1e-9).astype(np.int64))
    return for_train, np.where(fits, wanted[1], np.minimum(left[0] - for_train, wanted[1]))


def _refuse_too_few(
    names: Names, wanted: NDArray[np.int64], possible: NDArray[np.int64], ratio: float, limit: int
) -> None:
    short = np.flatnonzero(possible < wanted)
    if len(short):
        user = short[0]
        needed = f"user {names[user]} needs {wanted[user]} negative items (ratio {ratio:g})"
        raise DataError(f"{needed}, but only {possible[user]} are left")
    if wanted.sum() > limit:
        raise DataError(f"the ratio {ratio:g} needs {wanted.sum():,} negative items, but max_negatives is {limit:,}")


def _cap_negatives(
    names: Names, wanted: NDArray[np.int64], possible: NDArray[np.int64], ratio: float, limit: int
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return how many negatives users get, and notes on those who get fewer than they should."""
    notes = []
    short = np.flatnonzero(possible < wanted)
    if len(short):
        user = short[0]
        users = "1 user has" if len(short) == 1 else f"{len(short):,} users have"
        first = f"user {names[user]} gets {possible[user]:,} in place of {wanted[user]:,}"
        notes.append(f"{users} too few other items for {ratio:g} negatives per positive: {first}")
    total = int(possible.sum())
    if total > limit:
        possible = np.floor(possible * (limit / total)).astype(np.int64)
        notes.append(f"{ratio:g} negatives per positive are {total:,} items, of which {limit / total:.0%} are sampled")
    return possible, tuple(notes)


def _draw(
    positives: Interactions,
    wanted: NDArray[np.int64],
    forbidden: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    by_user: bool,
) -> NDArray[np.int64]:
    """Return keys of ``wanted`` negatives for each user, none of them forbidden.

    Items are sampled for all users at once, and those that are forbidden or were sampled before are rejected. Rejection
    prefers no item, so every set of allowed items is equally likely. With ``by_user``, users who need many of the items
    are sampled one by one, which is faster for them.
    """
    items = len(positives.item_names)
    one_by_one = wanted * _MANY >= items if by_user else np.zeros(len(wanted), dtype=bool)
    sampled, missing = np.zeros(0, np.int64), np.where(one_by_one, 0, wanted)
    for _ in range(_ROUNDS):
        users = np.repeat(np.arange(len(missing)), missing)
        drawn = _merge_keys(users * items + rng.integers(0, items, len(users)))
        drawn = drawn[~(is_among(drawn, forbidden) | is_among(drawn, sampled))]
        missing -= np.bincount(drawn // items, minlength=len(missing))
        sampled = _merge_keys(sampled, drawn)
    missing[one_by_one] = wanted[one_by_one]
    rest = [sampled]
    for user in np.flatnonzero(missing).tolist():
        is_left = np.ones(items, dtype=bool)
        for keys in (forbidden, sampled):
            is_left[_of_user(keys, user, items)] = False
        rest.append(user * items + rng.choice(np.flatnonzero(is_left), missing[user], replace=False))
    return _merge_keys(*rest)


def _merge_keys(*keys: NDArray[np.int64]) -> NDArray[np.int64]:
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


def _user_lists(
    table: Interactions, positives: NDArray[np.int64], negatives: NDArray[np.int64], notes: tuple[str, ...]
) -> UserLists:
    keys = np.concatenate((positives, negatives))
    order = np.argsort(keys)
    labels = np.repeat(np.array([1, 0], np.int32), (len(positives), len(negatives)))[order]
    user, item = np.divmod(keys[order], len(table.item_names))
    users, starts = np.unique(user, return_index=True)
    lists = Lists(labels, np.append(starts, len(user)), None, table.item_names[item], table.user_names[users])
    return UserLists(lists, users.astype(np.int32), item.astype(np.int32), notes)
