"""TREC files against `line.split()`, on rows that are damaged at random, whichever way they are read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
import zstandard

import rankbound as rb
from rankbound.cli.main import run as command
from rankbound.data import sources, trec
from rankbound.data.candidates import read_candidates
from rankbound.errors import DataError

FIELDS = {"run": 6, "qrels": 4}
PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


def row_of(side: str, query: int, document: int, rng: random.Random) -> list[str]:
    """The fields of a good row; ids are digits often, so that a shifted row has numbers in all columns."""
    ids = [str(query), rng.choice([f"d{document}", str(document)])]
    if side == "qrels":
        return [ids[0], "0", ids[1], str(rng.randint(0, 3))]
    return [ids[0], "Q0", ids[1], str(document + 1), f"{rng.random():.3f}", rng.choice(["tag", "7"])]


def damaged(fields: list[str], rng: random.Random) -> str:
    """The row with one kind of damage, or of white space that is no damage."""
    at = rng.randrange(len(fields))
    blank = [*fields[:at], "", *fields[at + 1 :]]
    kinds = [
        " ".join(fields[:at] + fields[at + 1 :]),
        " ".join(blank),
        "\t".join(blank),
        "".join(field + rng.choice([" ", "  ", "\t", " \t "]) for field in fields),
        "".join(rng.choice([" ", "\t"]) + field for field in fields),
        " ".join([*fields[:at], fields[at], *fields[at:]]),
        " ".join(fields) + " " * rng.randint(1, 3),
        rng.choice(["# ", "#", "  # "]) + " ".join(fields[: rng.randint(1, len(fields))]),
        rng.choice(["", " ", "\t"]),
    ]
    return rng.choice(kinds)


def text_of(side: str, seed: int) -> str:
    """Rows of which none to two are damaged."""
    rng = random.Random(seed)
    rows = [row_of(side, query, document, rng) for query in range(3) for document in range(rng.randint(1, 5))]
    lines = [" ".join(row) for row in rows]
    for at in rng.sample(range(len(rows)), rng.randint(0, 2)):
        lines[at] = damaged(rows[at], rng)
    return "\n".join(lines) + rng.choice(["\n", ""])


def read_plainly(side: str, text: str) -> list[tuple[str, str, float]] | int:
    """The rows, or the number of the first line that is none."""
    rows: dict[tuple[str, str], float] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) < FIELDS[side] or (len(fields) > FIELDS[side] and (side == "qrels" or not is_rank(fields[3]))):
            return number
        query, document, value = fields[0], fields[2], fields[3 if side == "qrels" else 4]
        if not is_number(side, value) or (query, document) in rows:
            return number
        rows[query, document] = float(value)
    return [(*key, value) for key, value in rows.items()]


def is_rank(text: str) -> bool:
    return text.lstrip("+-").isdigit()


def is_number(side: str, text: str) -> bool:
    try:
        return bool([int(text) if side == "qrels" else float(text)])
    except ValueError:
        return False


def read_whole(side: str, path: Path) -> list[tuple[str, str, float]]:
    return (trec.read_qrels(path) if side == "qrels" else trec.read_run(path)).rows()


def read_chunks(side: str, path: Path) -> list[tuple[str, str, float]]:
    with mock.patch.object(trec, "_AT_ONCE", 30):
        frames = [*trec.run_frames(path)]
    return list(pl.concat(frames).rows())


READERS = {"run": (read_whole, read_chunks), "qrels": (read_whole,)}


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("side", FIELDS)
def test_damaged_rows_are_read_as_split_says_or_refused_with_their_line(
    side: str, packing: str, tmp_path: Path
) -> None:
    path, refused = tmp_path / f"file.txt{packing}", 0
    for seed in range(200):
        text = text_of(side, seed)
        path.write_bytes(PACKED[packing](text.encode()))
        expected = read_plainly(side, text)
        for reader in READERS[side]:
            if isinstance(expected, list) and expected:
                assert reader(side, path) == expected, text
                continue
            if reader is read_chunks and only_repeated(text, expected):
                continue  # run_frames leaves documents that occur twice to what combines the frames
            refused += 1
            with pytest.raises(DataError) as error:
                reader(side, path)
            line = f":{expected}: " if isinstance(expected, int) else ": expected lines of"
            assert str(error.value).startswith(f"{path}{line}"), text
    assert refused > 40


def only_repeated(text: str, line: list[Any] | int) -> bool:
    """Whether the line is refused for its document alone."""
    return isinstance(line, int) and isinstance(read_plainly("run", text.split("\n")[line - 1]), list)


@pytest.mark.parametrize(
    ("side", "row", "count"),
    [
        ("run", "q1 Q0 a  1 0.9", 5),
        ("run", "q3 Q0 7 1.0 0.5 ", 5),
        ("run", "q1 Q0 my document 1 0.9 tag", 7),
        ("qrels", "05  c 1", 3),
        ("qrels", "05 0 c 1 ", 4),
        ("qrels", "05 0 my document 1", 5),
    ],
)
@pytest.mark.parametrize("rows", [1, 5000])
def test_a_row_without_a_field_is_refused_at_any_length_of_the_file(
    side: str, row: str, count: int, rows: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by the command; polars looks at the first rows of a file more closely than at later ones."""
    good = {"run": "q{} Q0 a 1 0.5 tag\n", "qrels": "q{} 0 a 1\n"}
    files = {}
    for name, line in good.items():
        files[name] = tmp_path / name
        files[name].write_text("".join(line.format(query) for query in range(rows)))
    with files[side].open("a") as stream:
        stream.write(row + "\n")
    assert command(["evaluate", str(files["qrels"]), str(files["run"]), "-m", "AP"]) == (0 if count == 4 else 2)
    if count != 4:
        rule = {"run": "6 fields (qid q0 docid rank score tag)", "qrels": "4 fields (qid iteration docid label)"}[side]
        shown = " ".join(row.split())  # commands print messages with single spaces
        message = f"{files[side]}:{rows + 1}: expected {rule}, got {count}: {shown!r}"
        assert message in capsys.readouterr().err


def test_a_short_and_a_long_row_do_not_make_up_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    good = "".join(f"q{query} Q0 a 1 0.5 tag\n" for query in range(1000))
    path.write_text(good + "q1 Q0 b 2 0.8\nq1 Q0 c 2 0.8 tag more\n")
    with pytest.raises(DataError, match=r"run\.txt:1001: expected 6 fields .*, got 5: 'q1 Q0 b 2 0\.8'"):
        trec.read_run(path)


def test_words_after_the_tag_are_ignored_as_by_trec_eval(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text("q Q0 a 1 0.5 a tag of words\nq\tQ0\tb\t2\t0.25\ttag  \n")
    assert trec.read_run(path).rows() == [("q", "a", 0.5), ("q", "b", 0.25)]


def test_candidates_are_refused_like_runs_and_judgments(tmp_path: Path) -> None:
    path = tmp_path / "candidates.txt"
    for good, bad in (("q Q0 a 1 1 t", "q Q0 b  1 1"), ("q 0 a 1", "q  b 1"), ("q a", "q ")):
        path.write_text(f"  # comment\n{good}\n{bad}\n")
        with pytest.raises(DataError, match=rf"candidates\.txt:3: expected {len(good.split())} fields"):
            read_candidates(path)


def test_large_runs_are_refused_while_they_are_evaluated(tmp_path: Path) -> None:
    qrels, run = tmp_path / "qrels.txt", tmp_path / "run.txt"
    qrels.write_text("".join(f"q{query} 0 a 1\n" for query in range(40)))
    rows = [f"q{query} Q0 a 1 0.5 tag\n" for query in range(40)]
    rows[33] = "q33 Q0 a  1 0.5\n"
    run.write_text("".join(rows))
    with (
        mock.patch.object(sources, "LARGE_TEXT", 1),
        mock.patch.object(trec, "_AT_ONCE", 50),
        pytest.raises(DataError, match=r"run\.txt:34: expected 6 fields .*, got 5"),
    ):
        rb.evaluate(qrels, run, "AP")


PACKINGS = {
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lambda text: b"\x04\x22\x4d\x18\x64\x40" + text,
    "zip": lambda text: b"PK\x03\x04\x14\x00" + text,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_another_compression_is_named(packing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    qrels, run, csv = tmp_path / "qrels.txt", tmp_path / "run.txt", tmp_path / "run.csv"
    qrels.write_text("q 0 a 1\n")
    run.write_text("q Q0 a 1 0.5 t\n")
    bad = tmp_path / "bad"
    for content, arguments in (
        (run.read_bytes(), ["evaluate", str(qrels), str(bad)]),
        (qrels.read_bytes(), ["evaluate", str(bad), str(run)]),
        (qrels.read_bytes(), ["data", "describe", str(bad)]),
        (qrels.read_bytes(), ["weights", str(bad)]),
    ):
        bad.write_bytes(PACKINGS[packing](content))
        assert command(arguments) == 2
        message = f"{bad}: compression must be gzip or zstandard, got {packing}; decompress the file first"
        assert message in capsys.readouterr().err
    csv.write_bytes(PACKINGS[packing](b"qid,docid,score\nq,a,1\n"))
    assert command(["evaluate", str(qrels), str(csv)]) == 2
    assert f"got {packing}; decompress" in capsys.readouterr().err
