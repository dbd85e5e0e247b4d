"""rankbound data split: files that can be read again, one JSON object, and nothing written for bad input."""

from __future__ import annotations

import polars as pl
import pytest

from rankbound.data.ratings import read_ratings

RATINGS = "userId,movieId,rating,timestamp\n" + "".join(
    f"u{user},00{item},{1 + (user + item) % 5},{100 * user + item}\n" for user in range(6) for item in range(10)
)


@pytest.fixture
def ratings(tmp_path, monkeypatch):
    """A file of ratings in the working folder, whose item ids look like numbers but are text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ratings.csv").write_text(RATINGS)
    return tmp_path


def refused(cli, *arguments):
    answer = cli(*arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    return answer.err


def test_parts_partition_the_interactions_and_keep_the_ids(ratings, cli):
    answer = cli("data", "split", "ratings.csv", "-o", "split", "--validation", "0.2", "--json").json
    parts = {part: read_ratings(about["file"]) for part, about in answer["parts"].items()}
    assert {part: len(table) for part, table in parts.items()} == {"train": 36, "validation": 12, "test": 12}
    assert {part: about["interactions"] for part, about in answer["parts"].items()} == {
        part: len(table) for part, table in parts.items()
    }
    rows = sorted(row for table in parts.values() for row in table.to_frame().rows())
    assert rows == sorted(read_ratings("ratings.csv").to_frame().rows())
    assert rows[0] == ("u0", "000", 1.0, 0)


def test_ratings_are_dropped_before_the_core_is_taken(ratings, cli):
    only = ("--min-rating", "4", "--k-core", "2")
    answer = cli("data", "split", "ratings.csv", "-o", "split", *only, "--json").json
    assert answer["read"] == 60
    kept = [(user, item) for user in range(6) for item in range(10) if 1 + (user + item) % 5 >= 4]
    assert answer["kept"] == len(kept)  # each item has at least two of them, each user four
    assert pl.read_csv("split/train.csv")["rating"].min() >= 4


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_latest_interaction_of_each_user_is_left_out(ratings, cli, form):
    cli("data", "split", "ratings.csv", "-o", "split", "--by", "leave-one-out", "--format", form)
    test = read_ratings(f"split/test.{form}")
    assert test.to_frame().select("user", "item").rows() == [(f"u{user}", "009") for user in range(6)]


def test_the_table_shows_files_and_counts(ratings, cli):
    shown = cli("data", "split", "ratings.csv", "-o", "split", "--by", "time").out
    assert "split/test.csv" in shown
    assert "60 of 60 interactions, split by time" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.csv",), "none.csv: cannot be read: No such file or directory"),
        (("mq2008",), "mq2008 must be a data set of interactions"),
        (("ratings.csv", "--test", "1.5"), "test must lie between 0 and 1, got 1.5"),
        (("ratings.csv", "--validation", "0.9"), "validation must be at least 0 and less than 1 - test, got 0.9"),
        (("ratings.csv", "--k-core", "50"), "no interaction is left if users need 50 interactions and items 50"),
        (("ratings.csv", "--min-rating", "9"), "at least one row"),
        (("ratings.csv", "--seed", "-1"), "--seed must not be negative, got -1"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(ratings, cli, arguments, message):
    assert message in refused(cli, "data", "split", *arguments, "-o", "split")
    assert [path.name for path in ratings.iterdir()] == ["ratings.csv"]


def test_the_file_that_is_read_is_not_overwritten(ratings, cli):
    (ratings / "train.csv").write_text(RATINGS)
    assert "train.csv" in refused(cli, "data", "split", "train.csv", "-o", ".")
    assert (ratings / "train.csv").read_text() == RATINGS
