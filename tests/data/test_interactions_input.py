"""Interactions from files, tables, sparse matrices and columns: the same table from each, and errors that help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

import pandas as pd
import pyarrow as pa

from rankbound.data import Interactions, as_interactions
from rankbound.data.interaction_sources import find_codes, recode_interactions, weighted_interactions
from rankbound.errors import ArgumentError, DataError, RankboundError

USERS, ITEMS, RATINGS, TIMES = ["bo", "al", "bo", "é 1"], ["007", "x", "8", "8"], [4.0, 2.5, 1.0, 3.0], [5, 9, 2, 4]
COLUMNS = {"user": USERS, "item": ITEMS, "rating": RATINGS, "timestamp": TIMES}


def rows(table: Interactions) -> list[tuple[Any, ...]]:
    columns = [table.user_names[table.users], table.item_names[table.items]]
    columns += [column for column in (table.ratings, table.timestamps) if column is not None]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def forms(folder: Path) -> dict[str, Any]:
    frame = pl.DataFrame(COLUMNS)
    frame.write_csv(folder / "table.csv")
    frame.write_csv(folder / "table.tsv", separator="\t")
    frame.write_parquet(folder / "table.parquet")
    return {
        "csv": folder / "table.csv",
        "csv as text": str(folder / "table.csv"),
        "tsv": folder / "table.tsv",
        "parquet": folder / "table.parquet",
        "polars": frame,
        "lazy polars": frame.lazy(),
        "pandas": pd.DataFrame(COLUMNS),
        "arrow": pa.table(COLUMNS),
        "dict": COLUMNS,
        "tuple": (USERS, ITEMS, RATINGS, TIMES),
        "arrays": tuple(np.array(column) for column in COLUMNS.values()),
        "objects": tuple(np.array(column, dtype=object) for column in COLUMNS.values()),
        "series": tuple(pd.Series(column) for column in COLUMNS.values()),
        "interactions": Interactions.from_columns(**COLUMNS),
    }


def test_every_form_gives_the_same_table(tmp_path: Path) -> None:
    expected = sorted(zip(USERS, ITEMS, RATINGS, TIMES, strict=True))
    for name, data in forms(tmp_path).items():
        assert rows(as_interactions(data)) == expected, name


def test_a_sparse_matrix_has_numbers_as_ids_and_keeps_empty_rows() -> None:
    dense = np.array([[0, 2, 0], [0, 0, 0], [1, 0, 5]])
    for matrix in (sp.csr_array(dense), sp.csc_matrix(dense), sp.coo_array(dense)):
        table = as_interactions(matrix)
        assert rows(table) == [(0, 1, 2.0), (2, 0, 1.0), (2, 2, 5.0)]
        assert (table.user_names.tolist(), table.item_names.tolist()) == ([0, 1, 2], [0, 1, 2])
    assert as_interactions(sp.csr_array(dense > 0)).ratings is None
    twice = sp.coo_array((np.array([1.0, 2.0, 0.0]), (np.array([0, 0, 1]), np.array([1, 1, 0]))), shape=(2, 2))
    assert rows(as_interactions(twice)) == [(0, 1, 3.0)]


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (["7", "10"], ["10", "7"]),
        (["007", "7"], ["007", "7"]),
        ([10, 7], [7, 10]),
        (np.array([10, 7], np.uint8), [7, 10]),
        ([10.0, 7.0], [7, 10]),
        (pd.Series([10, 7], dtype="Int64"), [7, 10]),
        (pd.Series(["7", "10"], dtype="category"), ["10", "7"]),
    ],
)
def test_ids_keep_their_type(ids: Any, kept: list[Any]) -> None:
    assert as_interactions((ids, ["a", "b"])).user_names.tolist() == kept
    assert as_interactions(pl.DataFrame({"user": ["a", "b"], "item": list(ids)})).item_names.tolist() == kept


def test_text_that_looks_like_numbers_stays_text_in_typed_files_and_with_leading_zeros(tmp_path: Path) -> None:
    pl.DataFrame({"user": ["7", "10"], "item": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    assert as_interactions(tmp_path / "a.parquet").user_names.tolist() == ["10", "7"]
    (tmp_path / "a.csv").write_text("user,item\n007,1\n10,2\n")
    table = as_interactions(tmp_path / "a.csv")
    assert (table.user_names.tolist(), table.item_names.tolist()) == (["007", "10"], [1, 2])


events = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=30
)


@given(events=events)
@examples(60)
def test_of_repeated_pairs_the_latest_and_then_the_best_is_kept_with_a_note(events: list[tuple[int, ...]]) -> None:
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for user, item, rating, time in events:
        best[user, item] = max(best.get((user, item), (-1, -1)), (time, rating))
    table = as_interactions(tuple(zip(*events, strict=True)))
    assert rows(table) == sorted((user, item, float(r), t) for (user, item), (t, r) in best.items())
    dropped = len(events) - len(best)
    assert table.notes == ((f"{dropped} repeated pairs of user and item were dropped",) if dropped else ())


@given(events=events)
@examples(60)
def test_weights_are_those_of_the_rows_that_are_kept(events: list[tuple[int, ...]]) -> None:
    users, items, _, times = zip(*events, strict=True)
    ratings = np.arange(len(events))[::-1].astype(float)  # distinct: the kept row is the only one with its rating
    table, weights = weighted_interactions((users, items, ratings, times), 1 + ratings * 3)
    assert weights is not None
    np.testing.assert_array_equal(weights, 1 + 3 * np.asarray(table.ratings))
    again, same = weighted_interactions(table, weights)
    assert again is table
    np.testing.assert_array_equal(same, weights)


def test_names_of_columns_can_be_given(tmp_path: Path) -> None:
    frame = pl.DataFrame({"who": ["a"], "what": ["b"], "stars": [3.0], "when": [7]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_csv(tmp_path / "t.tsv", separator="\t")
    frame.write_parquet(tmp_path / "t.parquet")
    named = {"user": "who", "item": "what", "rating": "stars", "timestamp": "when"}
    for data in (frame, frame.to_pandas(), tmp_path / "t.csv", tmp_path / "t.tsv", tmp_path / "t.parquet"):
        assert rows(as_interactions(data, **named)) == [("a", "b", 3.0, 7)]


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (pl.DataFrame({"a": [1], "item": [1]}), {}, "a column for the user, got the columns a, item; name it"),
        (pl.DataFrame({"a": [1], "b": [1]}), {"user": "c"}, "the user column must .* got 'c'; the columns are a, b"),
        (pl.DataFrame({"user": [], "item": []}), {}, "at least one row, got an empty table"),
        (sp.csr_array((2, 2)), {}, "at least one entry, got an empty matrix"),
        (([1, None], [1, 2]), {}, "must name its user, got 1 without one"),
        ((["a", ""], [1, 2]), {}, "must name its user, got 1 without one"),
        (pd.DataFrame({"user": [1.0, np.nan], "item": [1, 2]}), {}, "must name its user, got 1 without one"),
        (pd.DataFrame({"user": ["a", None], "item": [1, 2]}), {}, "must name its user, got 1 without one"),
        ((pd.Series([1, None], dtype="Int64"), [1, 2]), {}, "must name its user, got 1 without one"),
        (([1, 2], [1]), {}, "item must have one entry per user, 2, got 1"),
        (([1, "a"], [1, 2]), {}, "must consist of names and numbers"),
        (([[1], [2]], [1, 2]), {}, "every user must be named by text or a number"),
        ((np.ones((2, 2)), [1, 2]), {}, "expected one dimension"),
        (([1, 2], [1, 2], [np.nan, 1.0]), {}, "every rating must be a finite number"),
        (([1],), {}, "columns of users and items, ratings and timestamps, got 1"),
        (3, {}, "must be a path, a frame, a sparse matrix, .* got int"),
        (None, {}, "must be a path, a frame, a sparse matrix, .* got NoneType"),
        ({"user": [1], "item": [1, 2]}, {}, "columns of one length"),
        (sp.csr_array([[np.nan]]), {}, "every rating must be a finite number"),
    ],
)  # fmt: skip
def test_errors_name_the_rule_and_what_came(data: Any, options: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_interactions(data, **options)


@pytest.mark.parametrize(
    "thing",
    [None, 3, "", "no such file.csv", [], [1, 2], (), {}, {"q": 3}, {"user": None, "item": None}, np.zeros(3), object(),
     np.zeros((2, 2)), pl.DataFrame(), pd.DataFrame(), pl.Series([1]), pd.Series([1]), sp.coo_array((0, 0)), b"user",
     ("ab", 3), (iter([1]), None), {"user", "item"}, sp.csr_array([[1 + 1j]]),
     pd.DataFrame({"user": [{}], "item": [1]})],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_table_is_refused(thing: Any) -> None:
    with pytest.raises(RankboundError):
        as_interactions(thing)


def test_names_of_columns_need_columns_with_names() -> None:
    for data in (sp.csr_array([[1]]), ([1], [2]), Interactions.from_columns([1], [2])):
        with pytest.raises(ArgumentError, match="user must be None unless"):
            as_interactions(data, user="who")


def test_a_file_without_a_known_header_lists_its_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("who,what,stars\na,b,3\n")
    with pytest.raises(DataError, match=r"t.csv:1: .* got the columns who, what, stars; name it with user="):
        as_interactions(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"t.csv:1: the user column .* got 'whom'; the columns are who, what, stars"):
        as_interactions(tmp_path / "t.csv", user="whom")


def test_weights_must_fit_the_rows() -> None:
    with pytest.raises(DataError, match="one entry per interaction, 2, got shape"):
        weighted_interactions(([1, 2], [1, 2]), [1.0])
    with pytest.raises(DataError, match="must not be zero for all"):
        weighted_interactions(([1, 2], [1, 2]), [0.0, 0.0])
    with pytest.raises(DataError, match="finite and not negative"):
        weighted_interactions(([1, 2], [1, 2]), [1.0, -1.0])
    with pytest.raises(ArgumentError, match="a table in memory"):
        weighted_interactions(sp.csr_array([[1]]), [1.0])


# ---- ids of other tables ---------------------------------------------------------------------------------------------


@given(
    names=st.sets(st.integers(0, 20), min_size=1), ids=st.lists(st.integers(-2, 25), max_size=30), text=st.booleans()
)
@examples(60)
def test_codes_are_found_whether_ids_are_text_or_numbers(names: set[int], ids: list[int], text: bool) -> None:
    known = sorted(names)
    expected = [known.index(name) if name in names else -1 for name in ids]
    series = pl.Series(ids, dtype=pl.Int64)
    assert find_codes(np.array(known), series.cast(pl.String) if text else series).tolist() == expected
    as_text = sorted(map(str, known))
    expected = [as_text.index(str(name)) if name in names else -1 for name in ids]
    assert find_codes(np.array(as_text), series).tolist() == expected


def test_held_out_interactions_get_the_codes_of_training() -> None:
    held_out = as_interactions((["10", "7", "7", "9"], ["b", "c", "a", "a"], [1.0, 2.0, 3.0, 4.0]))
    table = recode_interactions(held_out, np.array([7, 10]), np.array(["a", "b"]))
    assert rows(table) == [(7, "a", 3.0), (10, "b", 1.0)]
    assert table.notes[-1].startswith("2 interactions of users or items that are not in the training data")
