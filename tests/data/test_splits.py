"""Folds: nothing leaks, the seed decides, the order of rows does not."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.data.interactions import Interactions
from rankbound.data.loading import load_fold
from rankbound.data.ratings import read_ratings
from rankbound.data.splits import (
    SPLITS,
    Fold,
    k_core,
    letor_folds,
    monte_carlo,
    random_parts,
    split_interactions,
    user_folds,
    write_split,
)
from rankbound.errors import ArgumentError, DataError
from tests.tiers import examples

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
@examples(80)
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
@examples(80)
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
@examples(80)
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


# ---- splits of interactions ------------------------------------------------------------------------------------------


def fail(error: Exception) -> None:
    raise error


def rows_of(table: Interactions) -> list[tuple[object, ...]]:
    return table.to_frame().rows()


timed = st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 20)), st.integers(0, 15), min_size=3, max_size=60)


@given(rows=timed, by=st.sampled_from(SPLITS), validation=st.sampled_from([0.0, 0.2]), seed=seeds, data=st.data())
@examples(80)
def test_a_split_is_a_partition_that_the_order_of_rows_does_not_change(
    rows: dict[tuple[int, int], int], by: str, validation: float, seed: int, data: st.DataObject
) -> None:
    def split(order: list[tuple[int, int]]) -> Fold[Interactions] | str:
        columns = zip(*((user, item, rows[user, item]) for user, item in order), strict=True)
        user, item, time = columns
        table = Interactions.from_columns(user, item, timestamp=time)
        try:
            return split_interactions(table, by, validation=validation, seed=seed)
        except DataError as error:
            return str(error)

    fold, again = split(list(rows)), split(data.draw(st.permutations(list(rows))))
    if isinstance(fold, str):
        assert fold == again
        return
    assert not isinstance(again, str)
    parts = [part for part in (fold.train, fold.validation, fold.test) if part is not None]
    assert len(parts) == 2 + (validation > 0)
    everything = sorted(row for part in parts for row in rows_of(part))
    assert everything == sorted((user, item, time) for (user, item), time in rows.items())
    assert rows_of(fold.test) == rows_of(again.test)
    assert rows_of(fold.train) == rows_of(again.train)
    held_out = fold.test.per_user + (0 if fold.validation is None else fold.validation.per_user)
    total = fold.train.per_user + held_out
    if by == "time":
        times = [part.timestamps for part in parts if len(part)]
        assert all(before.max() < after.min() for before, after in itertools.pairwise(times))
    elif by == "user":
        np.testing.assert_array_equal(fold.test.per_user, np.minimum(np.rint(0.2 * total), total - 1))
        assert (fold.train.per_user >= 1).all()
    else:
        np.testing.assert_array_equal(held_out, np.where(total > len(parts) - 1, len(parts) - 1, 0))
        for user in np.flatnonzero(held_out):
            of_user = [part.timestamps[part.users == user] for part in parts]
            assert all(before.max() <= after.min() for before, after in itertools.pairwise(of_user))


def test_seeds_of_splits_differ_and_leave_one_out_needs_no_times() -> None:
    table = table_of([(user, item) for user in range(20) for item in range(10)])
    for by in ("user", "leave-one-out"):
        one, other = (split_interactions(table, by, seed=seed).test for seed in (1, 2))
        assert rows_of(one) != rows_of(other)
        assert one.per_user.tolist() == [2 if by == "user" else 1] * 20


def test_the_latest_interactions_are_for_testing() -> None:
    table = Interactions.from_columns(range(10), range(10), timestamp=[3, 1, 2, 5, 5, 5, 9, 9, 8, 7])
    fold = split_interactions(table, "time", test=0.2, validation=0.2)
    assert fold.test.timestamps.tolist() == [9, 9]
    assert fold.validation.timestamps.tolist() == [8, 7]
    wide = split_interactions(table, "time", test=0.6)  # 6 of 10 would divide those at time 5, which stay together
    assert sorted(wide.test.timestamps.tolist()) == [5, 5, 5, 7, 8, 9, 9]


@given(rows=pairs, users=st.integers(1, 4), items=st.integers(1, 3))
@examples(80)
def test_a_k_core_is_what_removal_one_by_one_leaves(rows: list[tuple[int, int]], users: int, items: int) -> None:
    left = set(rows)
    while True:
        few = [(u, i) for u, i in left if sum(u == v for v, _ in left) < users or sum(i == j for _, j in left) < items]
        if not few:
            break
        left.discard(few[0])
        left -= {(u, i) for u, i in left if (u == few[0][0] and sum(u == v for v, _ in left) < users)}
    if not left:
        with pytest.raises(DataError, match=f"no interaction is left if users need {users} interactions and items"):
            k_core(table_of(rows), users, items)
        return
    core = k_core(table_of(rows), users, items)
    assert set(rows_of(core)) == left
    assert core.per_user.min() >= users


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_of_a_split_have_the_ids_that_were_read(tmp_path: Path, form: str) -> None:
    users, items = ["007", "a,b", 'quo"te', "=1+1"] * 3, [1, 2, 3, 4, 2, 3, 4, 1, 3, 4, 1, 2]
    table = Interactions.from_columns(users, items, rating=[0.1] * 12, timestamp=range(12))
    fold = split_interactions(table, "leave-one-out", validation=0.1)
    paths = write_split(fold, tmp_path / "new" / "folder", form)
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(
        f"{part}.{form}" for part in ("train", "validation", "test")
    )
    for part, path in paths.items():
        assert rows_of(read_ratings(path)) == rows_of(getattr(fold, part).compact())


def test_a_folder_does_not_mix_two_splits(tmp_path: Path) -> None:
    table = table_of([(user, item) for user in range(3) for item in range(10)])
    write_split(split_interactions(table, validation=0.1), tmp_path)
    before = (tmp_path / "train.csv").read_bytes()
    with pytest.raises(ArgumentError, match=r"validation\.csv: belongs to another split"):
        write_split(split_interactions(table, seed=1), tmp_path)
    assert (tmp_path / "train.csv").read_bytes() == before


def test_a_failure_leaves_no_file_of_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of([(user, item) for user in range(3) for item in range(10)])
    fold = split_interactions(table)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(
        fold.test.__class__, "to_frame", lambda table: fail(full) if table is fold.test else pl.DataFrame()
    )
    with pytest.raises(DataError, match="No space left on device"):
        write_split(fold, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda t: split_interactions(t, "item"),
            ArgumentError,
            "by must be one of user, time, leave-one-out, got 'it",
        ),
        (lambda t: split_interactions(t, test=0), ArgumentError, "test must lie between 0 and 1, got 0"),
        (lambda t: split_interactions(t, test=0.5, validation=0.5), ArgumentError, "less than 1 - test, got 0.5"),
        (lambda t: split_interactions(t, "time"), DataError, "needs timestamps"),
        (lambda t: split_interactions(t), DataError, "no user has enough interactions to hold out a fraction of 0.2"),
        (lambda t: split_interactions(t.rows(t.users < 0)), DataError, "at least one row"),
        (lambda t: k_core(t, users=0), ArgumentError, "users must be at least 1, got 0"),
        (
            lambda t: write_split(Fold(t, None, t), "x", "json"),
            ArgumentError,
            "form must be csv or parquet, got 'json'",
        ),
    ],
)
def test_wrong_splits_are_named(call: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(table_of([(1, 1), (2, 1)]))  # type: ignore[operator]


def test_one_time_cannot_be_split() -> None:
    table = Interactions.from_columns(range(5), range(5), timestamp=[7] * 5)
    with pytest.raises(DataError, match="at different times"):
        split_interactions(table, "time")


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
