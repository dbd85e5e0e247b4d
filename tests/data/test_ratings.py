"""Ratings and choices in the formats they come in."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.data import interactions
from rankbound.data.interactions import Interactions
from rankbound.data.ratings import read_ratings
from rankbound.errors import ArgumentError, DataError, FileFormatError
from tests.tiers import examples


def triples(table: Interactions) -> list[tuple[object, object, float | None]]:
    ratings = [None] * len(table) if table.ratings is None else table.ratings.tolist()
    return list(
        zip(table.user_names[table.users].tolist(), table.item_names[table.items].tolist(), ratings, strict=True)
    )


WANTED = [(1, 10, 4.0), (1, 20, 2.5), (2, 10, 5.0)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ratings.csv", "userId,movieId,rating,timestamp\r\n2,10,5.0,7\r\n1,20,2.5,8\r\n1,10,4.0,9\r\n"),
        ("u.data", "2\t10\t5\t7\n1\t20\t2.5\t8\n1\t10\t4\t9\n"),
        ("ratings.dat", "2::10::5::7\n1::20::2.5::8\n1::10::4::9\n"),
        (
            "x.inter",
            "user_id:token\titem_id:token\trating:float\ttimestamp:float\n2\t10\t5\t7\n1\t20\t2.5\t8\n1\t10\t4\t9\n",
        ),
        ("split.csv", "user,item,rating,user_id,item_id\n2,10,5,0,0\n1,20,2.5,1,1\n1,10,4,1,0\n"),
        ("plain.csv", "2,10,5.0,7\n1,20,2.5,8\n1,10,4.0,9\n"),
        ("blank.csv", "\r\nuser,item,rating\r\n\r\n2,10,5\r\n1,20,2.5\r\n\r\n1,10,4\r\n\r\n"),
        ("open.dat", "2::10::5::7\n1::20::2.5::8\n1::10::4::9"),
    ],
)
def test_ratings_of_every_format_give_the_same_table(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    table = read_ratings(path)
    assert triples(table) == WANTED
    packed = tmp_path / (name + ".gz")
    packed.write_bytes(gzip.compress(text.encode()))
    assert triples(read_ratings(packed)) == WANTED


def test_parquet_and_csv_with_unusual_columns_are_read_by_name(tmp_path: Path) -> None:
    frame = pl.DataFrame({"who": [2, 1, 1], "what": [10, 20, 10], "stars": [5.0, 2.5, 4.0]})
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_csv(tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        form = "auto" if name.endswith("parquet") else "table"
        assert triples(read_ratings(tmp_path / name, form, user="who", item="what")) == WANTED
    with pytest.raises(
        FileFormatError, match=r"t\.parquet:1: the header must have a column for the user, got the columns"
    ):
        read_ratings(tmp_path / "t.parquet")
    with pytest.raises(FileFormatError, match=r"t\.csv:1: the item column must be in the header, got 'nothing'"):
        read_ratings(tmp_path / "t.csv", "table", user="who", item="nothing")


def test_amazon_csv_is_told_by_the_length_of_product_ids(tmp_path: Path) -> None:
    path = tmp_path / "Sports.csv"
    path.write_text("0000031852,A1KLRMWW2FWPL4,4.0,1297468800\nB000000001,A1KLRMWW2FWPL4,2.0,1297468801\n")
    table = read_ratings(path)
    assert triples(table) == [("A1KLRMWW2FWPL4", "0000031852", 4.0), ("A1KLRMWW2FWPL4", "B000000001", 2.0)]
    path.write_text("A1KLRMWW2FWPL4,0000031852,4.0,1297468800\n")
    assert triples(read_ratings(path)) == [("A1KLRMWW2FWPL4", "0000031852", 4.0)]


def test_citeulike_lines_count_their_items(tmp_path: Path) -> None:
    path = tmp_path / "users.dat"
    path.write_text("2 7 3\n0\n1 7\n")
    table = read_ratings(path)
    assert triples(table) == [(0, 3, None), (0, 7, None), (2, 7, None)]
    path.write_text("2 7 3\n3 7\n")
    with pytest.raises(
        FileFormatError, match=r"users\.dat:2: a line must begin with the number of its items, got 3 before 1"
    ):
        read_ratings(path)


def test_sequences_keep_the_order_of_choice_as_time(tmp_path: Path) -> None:
    path = tmp_path / "Home.txt"
    path.write_text("1 392 5902 14 17589\r\n2 615 14 8298 1\r\n")
    table = read_ratings(path)
    assert table.item_names[table.items[table.users == 0]].tolist() == [14, 392, 5902, 17589]
    assert table.timestamps is not None
    assert table.timestamps[table.users == 0].tolist() == [2, 0, 1, 3]


def test_trust_files_allow_blanks_comments_and_a_third_column(tmp_path: Path) -> None:
    path = tmp_path / "trust_data.txt"
    path.write_text("# who whom\n 22605 42915 1\n22605\t5052\n\n1 2 1\n")
    assert triples(read_ratings(path, "trust")) == [(1, 2, None), (22605, 5052, None), (22605, 42915, None)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("u.data", "1\t2\t3\t4\n1\t2\t3\n", r"u\.data:2: expected 4 fields, got 3"),
        ("u.data", "1\t2\t3\t4\n1\t2\t3\t4\t5\n", r"u\.data:2: expected 4 fields, got 5"),
        ("u.data", "1\t2\t3\t4\n1\t2\tx\t4\n", r"u\.data:2: the rating must be a finite number, got 'x'"),
        ("u.data", "1\t2\t3\t4\n1\t2\tinf\t4\n", r"u\.data:2: the rating must be a finite number, got 'inf'"),
        ("r.csv", "userId,movieId,rating\n1,2,3\n,5,6\n", r"r\.csv:3: the user must not be empty, got ',5,6'"),
        ("r.csv", "userId,title\n1,2\n", r"r\.csv:1: the header must have a column for the item"),
        ("r.csv", "userId,movieId\n", r"r\.csv: has no interaction"),
        ("r.csv", "", r"r\.csv: has no line of data"),
        ("t.txt", "1 2\n3\n", r"t\.txt:2: expected 2 fields, got 1"),
        ("s.txt", "1 2 3 4 5\n3\n", r"s\.txt:2: a line must have a user and an item, got '3'"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_ratings(path)


@pytest.mark.parametrize(
    "text", ["user item rating\nu1 i1 5\n", "userId  movieId\nu1 i1\n", "user_id item_id rating timestamp\na b 1 2\n"]
)
def test_a_header_with_spaces_is_refused(tmp_path: Path, text: str) -> None:
    """The words of the header became a user and an item, and ratings were dropped."""
    (tmp_path / "ratings.txt").write_text(text)
    with pytest.raises(FileFormatError, match=r"ratings\.txt:1: a header is for tables with commas or tabs"):
        read_ratings(tmp_path / "ratings.txt")


def test_unknown_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"form must be auto or one of table, u\.data"):
        read_ratings(tmp_path / "x", "nonsense")


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"x\.parquet: cannot be read"):
        read_ratings(path)


def test_repeated_pairs_keep_the_latest_and_leave_a_note() -> None:
    table = Interactions.from_columns([1, 1, 1], [5, 5, 6], [2.0, 4.0, 1.0], [20, 10, 5])
    assert triples(table) == [(1, 5, 2.0), (1, 6, 1.0)]
    assert table.notes == ("1 repeated pairs of user and item were dropped",)


def test_names_in_a_text_file_are_numbers_only_if_all_are_written_as_numbers(tmp_path: Path) -> None:
    for names, kept in ((("10", "9"), [9, 10]), (("10", "09"), ["09", "10"])):
        (tmp_path / "ratings.csv").write_text("user,item\n" + "".join(f"{name},a\n" for name in names))
        assert read_ratings(tmp_path / "ratings.csv").user_names.tolist() == kept


def test_names_of_typed_columns_keep_their_type() -> None:
    assert Interactions.from_columns(["10", "9"], [10.0, 9.0]).user_names.tolist() == ["10", "9"]
    assert Interactions.from_columns(["10", "9"], [10.0, 9.0]).item_names.tolist() == [9, 10]


def test_columns_must_have_one_length_and_no_gaps() -> None:
    with pytest.raises(DataError, match="rating must have one entry per user, 2, got 1"):
        Interactions.from_columns([1, 2], [1, 2], rating=[3.0])
    with pytest.raises(DataError, match="every interaction must name its item, got 1 without one"):
        Interactions.from_columns([1, 2], [1, None])


pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60, unique=True)


@given(pairs=pairs, as_text=st.booleans(), data=st.data())
@examples(80)
def test_table_does_not_depend_on_the_order_of_rows(
    pairs: list[tuple[int, int]], as_text: bool, data: st.DataObject
) -> None:
    def table(rows: list[tuple[int, int]]) -> Interactions:
        kind = (lambda value: f"n{value}") if as_text else int
        return Interactions.from_columns([kind(u) for u, _ in rows], [kind(i) for _, i in rows])

    one, other = table(pairs), table(data.draw(st.permutations(pairs)))
    for name in ("users", "items", "user_names", "item_names"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert sorted(triples(one)) == triples(one)
    assert len(one) == len(pairs)


def test_repeats_are_found_across_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    user, item, rating = rng.integers(0, 4, 200), rng.integers(0, 9, 200), rng.integers(1, 6, 200).astype(float)
    monkeypatch.setattr(interactions, "_STEP", 7)
    table = Interactions.from_columns(user, item, rating)
    best: dict[tuple[int, int], float] = {}
    for u, i, r in zip(user.tolist(), item.tolist(), rating.tolist(), strict=True):
        best[u, i] = max(r, best.get((u, i), 0))
    assert triples(table) == [(u, i, r) for (u, i), r in sorted(best.items())]
