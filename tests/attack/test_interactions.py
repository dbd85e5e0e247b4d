"""Tables of interactions with unusual ids, line ends and numbers: exact parts and recommendations, or one line."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path

import polars as pl
import pytest

from rankbound.cli.main import run

from . import reader_inputs as inputs
from .test_readers import BOM, hash_of

FORMS = ("csv", "tsv", "parquet", "csv.gz", "csv.zst")
Row = tuple[str, str, float]


def generate(family: str, seed: int) -> list[Row]:
    """Distinct pairs of users and items from a family of ids, with ratings; everybody has two items."""
    rng = random.Random(seed)
    names = inputs.IDS[family].split(" ")
    return [(user, item, rng.randint(1, 10) / 2) for user in names[:5] for item in rng.sample(names, rng.randint(2, 6))]


def text_of(rows: list[tuple[object, ...]], separator: str = ",", header: str = "user item rating") -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    writer.writerow(header.split())
    writer.writerows(rows)
    return stream.getvalue()


def write(folder: Path, rows: list[Row], form: str) -> Path:
    kind, _, packing = form.partition(".")
    path = folder / f"ratings.{form}"
    if kind == "parquet":
        pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row").write_parquet(path)
        return path
    text = text_of(rows, "\t" if kind == "tsv" else ",").encode()
    path.write_bytes(inputs.COMPRESSION["." + packing if packing else ""](text))
    return path


def read_rows(path: Path) -> list[Row]:
    frame = pl.read_csv(path, infer_schema=False)
    return [(user, item, float(rating)) for user, item, rating in frame.select("user", "item", "rating").iter_rows()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", inputs.IDS)
def test_the_parts_of_a_split_have_the_ids_of_the_file(family, form, tmp_path, capsys):
    rows = generate(family, hash_of(family, form))
    code = run(["data", "split", str(write(tmp_path, rows, form)), "-o", str(tmp_path / "parts"), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert json.loads(out)["read"] == len(rows)
    parts = [read_rows(tmp_path / "parts" / f"{name}.csv") for name in ("train", "test")]
    assert sorted(parts[0] + parts[1]) == sorted(rows)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", inputs.IDS)
def test_the_most_popular_unseen_items_are_recommended(family, form, tmp_path, capsys):
    """By hand: the items of a user are left out, the others have the number of their users as score."""
    rows = generate(family, hash_of(form, family))
    model, top = str(tmp_path / "model"), str(tmp_path / "top.parquet")
    assert run(["train", str(write(tmp_path, rows, form)), "--model", "Popularity", "-o", model]) == 0
    assert run(["recommend", model, "-k", "100", "-o", top]) == 0
    users_of = {item: {user for user, other, _ in rows if other == item} for item in {item for _, item, _ in rows}}
    expected = {
        (user, item): len(users_of[item]) for user in {u for u, _, _ in rows} for item in users_of
        if user not in users_of[item]
    }  # fmt: skip
    table = pl.read_parquet(top).with_columns(pl.col("user", "item").cast(pl.String))  # integers are their digits
    assert set(table.select("user", "item").rows()) == set(expected)
    for _, group in table.group_by("user"):
        counts = [expected[user, item] for user, item in group.sort("rank").select("user", "item").iter_rows()]
        assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("mark", [b"", BOM])
@pytest.mark.parametrize("end", inputs.LINE_ENDS)
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_change_nothing(end, last, mark, tmp_path, capsys):
    rows = generate("plain", hash_of(end))
    text = text_of(rows).encode().replace(b"\n", inputs.LINE_ENDS[end])
    (tmp_path / "ratings.csv").write_bytes(mark + (text if last else text.rstrip(b"\r\n")))
    assert run(["data", "split", str(tmp_path / "ratings.csv"), "-o", str(tmp_path / "parts"), "--json"]) == 0
    parts = [read_rows(tmp_path / "parts" / f"{name}.csv") for name in ("train", "test")]
    assert sorted(parts[0] + parts[1]) == sorted(rows)


def assert_refused(folder: Path, words: list[str], capsys, at: str) -> None:
    before = sorted(folder.rglob("*"))
    code = run(words)
    out, err = capsys.readouterr()
    assert (code, out, len(err.splitlines())) == (2, "", 1), (code, out, err)
    assert err.startswith("rankbound: ")
    assert at in err
    assert err[:-1].isprintable()
    assert sorted(folder.rglob("*")) == before


COMMANDS = {"split": ["data", "split"], "train": ["train", "--model", "Popularity"]}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("line", [2, 7])
@pytest.mark.parametrize("number", inputs.NUMBERS)
def test_ratings_that_are_no_numbers_are_refused(number, line, command, tmp_path, capsys):
    rows: list[tuple[object, ...]] = [*generate("plain", 5)]
    rows[line - 2] = (*rows[line - 2][:2], inputs.NUMBERS[number])
    (tmp_path / "ratings.csv").write_text(text_of(rows))
    words = [*COMMANDS[command], str(tmp_path / "ratings.csv"), "-o", str(tmp_path / "out")]
    assert_refused(tmp_path, words, capsys, f"ratings.csv:{line}")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("control", ["NUL", "SOH", "escape", "delete"])
def test_control_characters_in_ids_are_refused(control, column, command, tmp_path, capsys):
    rows: list[list[object]] = [list(row) for row in generate("plain", 5)]
    rows[3][column] = f"a{inputs.CONTROLS[control]}b"
    (tmp_path / "ratings.csv").write_text(text_of([tuple(row) for row in rows]))
    words = [*COMMANDS[command], str(tmp_path / "ratings.csv"), "-o", str(tmp_path / "out")]
    assert_refused(tmp_path, words, capsys, "ratings.csv:5")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "header", ["user rating", "item rating", "user user rating", "user item item", "a b c", "user item rating rating"]
)
def test_columns_that_are_missing_or_occur_twice_are_refused(header, command, tmp_path, capsys):
    rows = [("u", "i", "1", "2")[: len(header.split())]] * 3
    (tmp_path / "ratings.csv").write_text(text_of(rows, header=header))
    words = [*COMMANDS[command], str(tmp_path / "ratings.csv"), "-o", str(tmp_path / "out")]
    assert_refused(tmp_path, words, capsys, "ratings.csv")
