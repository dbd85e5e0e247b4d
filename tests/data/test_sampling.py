"""Negative items and pairs of faces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.data.interactions import Interactions
from rankbound.data.loading import load_set
from rankbound.data.preparation import prepare_movielens
from rankbound.data.sampling import UserLists, age_pairs, align_interactions, sample_lists
from rankbound.data.splits import monte_carlo, user_folds
from rankbound.data.synthetic import synthetic_interactions
from rankbound.errors import ArgumentError, DataError
from tests.tiers import examples

ITEMS = 40
rows_of_users = st.dictionaries(
    st.integers(0, 8), st.sets(st.integers(0, ITEMS - 1), min_size=3, max_size=9), min_size=1, max_size=6
)


def table_of(rows: list[tuple[int, int]]) -> Interactions:
    """Interactions over all ITEMS items: a last user chooses every one of them and is then left out."""
    everything = [(99, item) for item in range(ITEMS)]
    table = Interactions.from_columns(*zip(*(rows + everything), strict=True))
    return table.rows(table.user_names[table.users] != 99)


def contents(lists: UserLists, label: int | None = None) -> set[tuple[int, int]]:
    """Pairs of user and item, of one label or all."""
    users = lists.users[lists.lists.query_of_item]
    chosen = np.ones(len(users), bool) if label is None else lists.lists.labels == label
    return set(zip(users[chosen].tolist(), lists.items[chosen].tolist(), strict=True))


@given(
    chosen=rows_of_users, ratio=st.integers(0, 2), test_ratio=st.integers(0, 2), seed=st.integers(0, 99), data=st.data()
)
@examples(80)
def test_honest_lists_share_nothing_and_keep_the_ratio(
    chosen: dict[int, set[int]], ratio: int, test_ratio: int, seed: int, data: st.DataObject
) -> None:
    rows = [(user, item) for user, items in chosen.items() for item in sorted(items)]

    def sample(rows: list[tuple[int, int]]) -> tuple[UserLists, UserLists, Interactions, np.ndarray]:
        table = table_of(rows)
        test = monte_carlo(table, repeats=1, test_fraction=0.34, seed=seed)[0]
        lists = sample_lists(table.rows(~test), table.rows(test), train_ratio=ratio, test_ratio=test_ratio, seed=seed)
        return *lists, table, test

    train, test, table, for_test = sample(rows)
    assert not contents(train) & contents(test)
    positives = set(zip(table.users.tolist(), table.items.tolist(), strict=True))
    assert contents(train, 1) | contents(test, 1) == positives
    assert not (contents(train, 0) | contents(test, 0)) & positives
    for part, wanted, mask in ((train, ratio, ~for_test), (test, test_ratio, for_test)):
        hits = np.bincount(table.users[mask], minlength=len(table.user_names))[part.users]
        np.testing.assert_array_equal(part.lists.sizes, hits * (1 + wanted))
        assert len(contents(part)) == len(part.items)
    again = sample(data.draw(st.permutations(rows)))
    for one, other in zip((train, test), again[:2], strict=True):
        np.testing.assert_array_equal(one.items, other.items)
        np.testing.assert_array_equal(one.lists.labels, other.lists.labels)


def test_published_protocol_lets_test_positives_be_training_negatives() -> None:
    table = table_of([(user, item) for user in range(5) for item in range(12)])
    test = monte_carlo(table, repeats=1, test_fraction=0.5, seed=0)[0]
    train_lists, test_lists = sample_lists(
        table.rows(~test), table.rows(test), train_ratio=5, test_ratio=1, protocol="published", seed=1
    )
    assert contents(train_lists, 0) & contents(test_lists, 1)
    assert not contents(train_lists, 0) & contents(train_lists, 1)
    positives = set(zip(table.users.tolist(), table.items.tolist(), strict=True))
    assert not contents(test_lists, 0) & positives


def test_negatives_are_drawn_uniformly() -> None:
    table = table_of([(user, item) for user in range(400) if user != 99 for item in (0, 1, 2, 3)])
    drawn = np.zeros(ITEMS)
    for seed in range(20):
        lists, _ = sample_lists(table, table.rows(np.zeros(len(table), bool)), train_ratio=2, seed=seed)
        drawn += np.bincount(lists.items[lists.lists.labels == 0], minlength=ITEMS)
    assert drawn[:4].sum() == 0
    expected = drawn.sum() / (ITEMS - 4)
    chi_square = ((drawn[4:] - expected) ** 2 / expected).sum()
    assert chi_square < 70  # 35 degrees of freedom; the probability of more is below 0.001


def test_every_item_left_can_be_asked_for_and_not_one_more() -> None:
    table = table_of([(1, item) for item in range(8)])
    none = table.rows(np.zeros(len(table), bool))
    lists, _ = sample_lists(table, none, train_ratio=4)
    assert lists.items.tolist() == list(range(ITEMS))
    with pytest.raises(DataError, match=r"user 1 needs 40 negative items \(ratio 5\), but only 32 are left"):
        sample_lists(table, none, train_ratio=5, too_few="raise")


def test_a_user_with_too_few_other_items_gets_all_of_them_with_a_note() -> None:
    table = table_of([(1, item) for item in range(8)] + [(2, 0)])
    lists, nothing = sample_lists(table, table.rows(np.zeros(len(table), bool)), train_ratio=5)
    assert lists.notes == (
        "1 user has too few other items for 5 negatives per positive: user 1 gets 32 in place of 40",
    )
    assert nothing.notes == ()
    assert contents(lists, 0) >= {(0, item) for item in range(8, ITEMS)}
    assert lists.lists.sizes.tolist() == [ITEMS, 1 + 5]


@given(chosen=rows_of_users, ratio=st.sampled_from([1, 3, 10, 1000]), test_ratio=st.sampled_from([1, 5, 1000]),
       seed=st.integers(0, 99), protocol=st.sampled_from(["honest", "published"]))  # fmt: skip
@examples(60)
def test_any_ratio_can_be_sampled(
    chosen: dict[int, set[int]], ratio: int, test_ratio: int, seed: int, protocol: str
) -> None:
    table = table_of([(user, item) for user, items in chosen.items() for item in sorted(items)])
    is_test = monte_carlo(table, repeats=1, test_fraction=0.34, seed=seed)[0]
    parts = table.rows(~is_test), table.rows(is_test)
    train, test = sample_lists(*parts, train_ratio=ratio, test_ratio=test_ratio, protocol=protocol, seed=seed)
    for user in range(len(table.user_names)):
        positives = int((table.users == user).sum())
        hits = [int((part.users == user).sum()) for part in parts]
        wanted = [hits[0] * ratio, hits[1] * test_ratio]
        got = [sum(pair[0] == user for pair in contents(part, 0)) for part in (train, test)]
        if protocol == "published":
            assert got == [min(wanted[0], ITEMS - hits[0]), min(wanted[1], ITEMS - positives)]
        elif sum(wanted) <= ITEMS - positives:
            assert got == wanted
        else:  # every item is used, in proportion
            assert sum(got) == ITEMS - positives
            assert abs(got[0] - (ITEMS - positives) * wanted[0] / sum(wanted)) <= 1
    if protocol == "honest":
        assert not contents(train) & contents(test)


def test_the_number_of_negatives_is_limited_with_a_note() -> None:
    table = table_of([(user, item) for user in range(10) for item in range(4)])
    none = table.rows(np.zeros(len(table), bool))
    lists, _ = sample_lists(table, none, train_ratio=5, max_negatives=100)
    assert lists.notes == ("5 negatives per positive are 200 items, of which 50% are sampled",)
    assert lists.lists.sizes.tolist() == [4 + 10] * 10
    with pytest.raises(DataError, match="the ratio 5 needs 200 negative items, but max_negatives is 100"):
        sample_lists(table, none, train_ratio=5, max_negatives=100, too_few="raise")


def test_wrong_arguments_are_named() -> None:
    table = table_of([(1, 1)])
    with pytest.raises(ArgumentError, match='protocol must be "honest" or "published", got'):
        sample_lists(table, table, protocol="other")
    with pytest.raises(ArgumentError, match='too_few must be "cap" or "raise", got'):
        sample_lists(table, table, too_few="other")
    with pytest.raises(ArgumentError, match="max_negatives must be at least 1, got 0"):
        sample_lists(table, table, max_negatives=0)
    with pytest.raises(ArgumentError, match="a ratio of negatives must be a finite number of at least 0, got -1"):
        sample_lists(table, table, train_ratio=-1)
    with pytest.raises(DataError, match="train and test must share their users and items"):
        sample_lists(table, table.compact())


def test_tables_of_separate_files_are_aligned_by_name() -> None:
    train = Interactions.from_columns(["b", "a"], ["x", "z"])
    test = Interactions.from_columns(["b", "c"], ["y", "x"])
    one, other = align_interactions(train, test)
    assert one.user_names.tolist() == other.user_names.tolist() == ["a", "b", "c"]
    assert one.item_names[one.items].tolist() == ["z", "x"]
    assert other.user_names[other.users].tolist() == ["b", "c"]


@given(seed=st.integers(0, 99), gap=st.integers(1, 30), count=st.integers(1, 40), data=st.data())
@examples(60)
def test_age_pairs_keep_the_gap_and_do_not_depend_on_the_order(
    seed: int, gap: int, count: int, data: st.DataObject
) -> None:
    ages = np.random.default_rng(seed).integers(2, 81, 30)
    pairs, older = age_pairs(ages, np.arange(30), count, gap, seed)
    assert (np.abs(ages[pairs[:, 0]] - ages[pairs[:, 1]]) >= gap).all()
    np.testing.assert_array_equal(older, ages[pairs[:, 0]] > ages[pairs[:, 1]])
    assert len({tuple(sorted(pair)) for pair in pairs.tolist()}) == count
    order = np.array(data.draw(st.permutations(range(30))))
    again, _ = age_pairs(ages[order], order, count, gap, seed)
    np.testing.assert_array_equal(order[again], pairs)


def test_impossible_pairs_are_refused() -> None:
    with pytest.raises(DataError, match="count must be at most 2, the pairs at least 10 years apart, got 3"):
        age_pairs([1, 5, 20], [1, 2, 3], count=3, min_gap=10)
    with pytest.raises(ArgumentError, match="min_gap must be at least 1, got 0"):
        age_pairs([1, 5], [1, 2], count=1, min_gap=0)
    with pytest.raises(ArgumentError, match="ids must be distinct, one for each row"):
        age_pairs([1, 5], [1, 1], count=1)


def test_a_constant_order_of_items_says_nothing_about_labels() -> None:
    table = synthetic_interactions(users=100, items=300, seed=1)
    lists, _ = sample_lists(table, table.rows(np.zeros(len(table), bool)), train_ratio=1, seed=2)
    rank = np.arange(len(lists.items)) - np.repeat(lists.lists.offsets[:-1], lists.lists.sizes)
    relative = rank / np.repeat(lists.lists.sizes, lists.lists.sizes)
    assert abs(relative[lists.lists.labels == 1].mean() - 0.5) < 0.05


@pytest.mark.real_data
@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_thesis_lists_of_movielens(data_dir: Path, ratio: int) -> None:
    kept = prepare_movielens(load_set("ml-latest-small"))
    fold = user_folds(kept, folds=5, seed=0)
    train, test = sample_lists(kept.rows(fold != 0), kept.rows(fold == 0), train_ratio=ratio, seed=0)
    assert len(train.lists) == len(test.lists) == 412
    for part in (train, test):
        hits = np.add.reduceat(part.lists.labels, part.lists.offsets[:-1])
        np.testing.assert_array_equal(part.lists.sizes, hits * (1 + ratio))
    assert np.add.reduceat(test.lists.labels, test.lists.offsets[:-1]).min() >= 5
    assert not contents(train) & contents(test)
