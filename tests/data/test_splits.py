"""Folds: nothing leaks, the seed decides, the order of rows does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbound.data.interactions import Interactions
from rankbound.data.loading import load_fold
from rankbound.data.splits import letor_folds, monte_carlo, random_parts, user_folds
from rankbound.errors import ArgumentError

pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), min_size=1, max_size=120, unique=True)
seeds = st.integers(0, 2**32)


def table_of(rows: list[tuple[int, int]]) -> Interactions:
    return Interactions.from_columns([user for user, _ in rows], [item for _, item in rows])


def test_letor_rotation() -> None:
    parts = ["S1", "S2", "S3", "S4", "S5"]
    folds = letor_folds(parts)
    assert [fold.test for fold in folds] == [("S5",), ("S1",), ("S2",), ("S3",), ("S4",)]
    assert [fold.validation for fold in folds] == [("S4",), ("S5",), ("S1",), ("S2",), ("S3",)]
    assert folds[3].train == ("S4", "S5", "S1")
    with pytest.raises(ArgumentError, match="parts must be at least 3, got 2"):
        letor_folds(parts[:2])


@given(rows=pairs, folds=st.integers(2, 6), seed=seeds, data=st.data())
@settings(max_examples=80, deadline=None)
def test_user_folds_partition_every_user_evenly(
    rows: list[tuple[int, int]], folds: int, seed: int, data: st.DataObject
) -> None:
    table = table_of(rows)
    fold = user_folds(table, folds, seed)
    assert ((fold >= 0) & (fold < folds)).all()
    for user in range(len(table.user_names)):
        sizes = np.bincount(fold[table.users == user], minlength=folds)
        assert np.ptp(sizes) <= 1
    again = table_of(data.draw(st.permutations(rows)))
    np.testing.assert_array_equal(user_folds(again, folds, seed), fold)


@given(rows=pairs, fraction=st.floats(0.05, 0.95), seed=seeds, data=st.data())
@settings(max_examples=80, deadline=None)
def test_monte_carlo_tests_the_same_share_of_every_user(
    rows: list[tuple[int, int]], fraction: float, seed: int, data: st.DataObject
) -> None:
    table = table_of(rows)
    splits = monte_carlo(table, repeats=2, test_fraction=fraction, seed=seed)
    for test in splits:
        np.testing.assert_array_equal(
            np.bincount(table.users[test], minlength=len(table.user_names)), np.rint(table.per_user * fraction)
        )
    again = table_of(data.draw(st.permutations(rows)))
    for one, other in zip(splits, monte_carlo(again, repeats=2, test_fraction=fraction, seed=seed), strict=True):
        np.testing.assert_array_equal(one, other)


def test_seeds_and_repeats_differ() -> None:
    table = table_of([(user, item) for user in range(5) for item in range(30)])
    first, second = monte_carlo(table, repeats=2, seed=1)
    assert (first != second).any()
    assert (user_folds(table, 5, 1) != user_folds(table, 5, 2)).any()
    np.testing.assert_array_equal(monte_carlo(table, repeats=5, seed=1)[1], second)


@given(names=st.lists(st.integers(0, 1000), min_size=1, max_size=60, unique=True), parts=st.integers(1, 5), seed=seeds)
@settings(max_examples=80, deadline=None)
def test_deal_gives_even_parts_whatever_the_order(names: list[int], parts: int, seed: int) -> None:
    part = random_parts(names, parts, seed)
    assert np.ptp(np.bincount(part, minlength=parts)) <= 1
    np.testing.assert_array_equal(random_parts(names[::-1], parts, seed), part[::-1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: user_folds(table_of([(1, 1)]), 1), "folds must be at least 2, got 1"),
        (
            lambda: monte_carlo(table_of([(1, 1)]), test_fraction=1.5),
            r"test_fraction must lie between 0 and 1, got 1\.5",
        ),
        (lambda: random_parts([1, 2], (0.5, 0.4)), "fractions that add up to 1"),
        (lambda: random_parts([1, 1], 2), "names must be distinct"),
    ],
)
def test_wrong_arguments_are_named(call: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()  # type: ignore[operator]


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "letter"), [("mq2008", "S"), ("mq2007-agg", "A"), ("ohsumed", "S")])
def test_folds_of_letor_sets_hold_the_queries_of_their_parts(data_dir: Path, name: str, letter: str) -> None:
    from rankbound.data.letor import read_letor

    inner = "QueryLevelNorm/" if name == "ohsumed" else ""
    parts = [read_letor(data_dir / name / f"{inner}{letter}{k}.txt.gz") for k in range(1, 6)]
    for number, (train, validation, test) in enumerate(
        [((0, 1, 2), 3, 4), ((1, 2, 3), 4, 0), ((2, 3, 4), 0, 1), ((3, 4, 0), 1, 2), ((4, 0, 1), 2, 3)], start=1
    ):
        fold = load_fold(name, number)
        np.testing.assert_array_equal(fold.train.lists.qids, np.concatenate([parts[k].lists.qids for k in train]))
        np.testing.assert_array_equal(fold.validation.lists.qids, parts[validation].lists.qids)
        np.testing.assert_array_equal(fold.test.features, parts[test].features)
