"""Files with unusual ids, line ends, bytes and numbers: the right value, or one line with file and line and code 2."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import polars as pl
import pytest

from rankbound.cli.main import run as command

from . import reader_inputs as inputs

MEASURE = "AP"
BOM = b"\xef\xbb\xbf"


class Evaluated:
    """Call ``rankbound evaluate`` in this process and assert the class of the outcome."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def gives(self, data: inputs.Data, qrels: Path, run: Path) -> None:
        """The mean is that of the data."""
        code = command(["evaluate", str(qrels), str(run), "-m", MEASURE, "--json"])
        out, err = self._capsys.readouterr()
        assert code == 0, err
        mean = json.loads(out)["mean"][MEASURE]
        assert mean == pytest.approx(inputs.mean_average_precision(data), abs=1e-12), err

    def refuses(self, file: str, line: int | None, qrels: Path, run: Path) -> None:
        """One line that names the file and, unless it is None, the line."""
        code = command(["evaluate", str(qrels), str(run), "-m", MEASURE, "--json"])
        out, err = self._capsys.readouterr()
        assert (code, out) == (2, ""), err
        where = re.escape(file) + (f":{line}: " if line is not None else r"(:\d+)?: ")
        assert re.fullmatch(rf"rankbound: .*{where}.*, got .*\n", err), err
        assert "Traceback" not in err
        assert err.isprintable() or err[:-1].isprintable()


@pytest.fixture
def evaluated(capsys: pytest.CaptureFixture[str]) -> Evaluated:
    return Evaluated(capsys)


def data_of(family: str, seed: int, queries: str | None = None) -> inputs.Data:
    names = inputs.IDS[family].split(" ")
    return inputs.generate(seed, inputs.IDS[queries or family].split(" ")[:5], names)


# ---- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_form", inputs.FORMATS["run"])
@pytest.mark.parametrize("qrels_form", inputs.FORMATS["qrels"])
@pytest.mark.parametrize("family", inputs.IDS)
def test_ids_stay_text(family: str, qrels_form: str, run_form: str, tmp_path: Path, evaluated: Evaluated) -> None:
    data = data_of(family, seed=hash_of(family, qrels_form, run_form))
    paths = (inputs.write(tmp_path, data.qrels, "qrels", qrels_form), inputs.write(tmp_path, data.run, "run", run_form))
    evaluated.gives(data, *paths)


@pytest.mark.parametrize("kind", [pl.Int64, pl.Int32, pl.UInt64, pl.Float64, pl.Categorical])
@pytest.mark.parametrize("other", ["trec", "csv", "tsv", "parquet"])
@pytest.mark.parametrize("side", ["qrels", "run"])
def test_integers_of_parquet_files_are_their_digits(
    side: str, other: str, kind: type[pl.DataType], tmp_path: Path, evaluated: Evaluated
) -> None:
    """7 of a parquet file is 7 of a text, and neither 007 nor 7.0."""
    names = ["7", "70", "700", "17", "0"]
    data = inputs.generate(hash_of(side, other, str(kind)), names, names)
    tables = {"qrels": data.qrels, "run": data.run}
    paths = {name: inputs.write(tmp_path, table, name, other) for name, table in tables.items()}
    inputs.write(tmp_path, tables[side], side, "parquet")
    paths[side] = tmp_path / f"{side}.parquet"
    frame = pl.read_parquet(paths[side])
    if kind != pl.Categorical:
        frame = frame.with_columns(pl.col("qid", "docid").cast(pl.Int64))
    frame.with_columns(pl.col("qid", "docid").cast(kind)).write_parquet(paths[side])
    evaluated.gives(data, paths["qrels"], paths["run"])


@pytest.mark.parametrize("first", [0, 2**31 - 2, 2**53, 2**63 - 3, 2**63 - 1, 2**63, 2**64 - 5])
def test_integers_of_64_bits_are_exact(first: int, tmp_path: Path, evaluated: Evaluated) -> None:
    names = [str(first + i) for i in range(4)]
    data = inputs.generate(first % 97, names, names)
    for side, number in (("qrels", "label"), ("run", "score")):
        inputs.write(tmp_path, data.qrels if side == "qrels" else data.run, side, "parquet")
        frame = pl.read_parquet(tmp_path / f"{side}.parquet")
        assert number in frame.columns
        frame.with_columns(pl.col("qid", "docid").cast(pl.UInt64)).write_parquet(tmp_path / f"{side}.parquet")
    evaluated.gives(data, tmp_path / "qrels.parquet", tmp_path / "run.parquet")


def test_leading_zeros_do_not_match_integers(tmp_path: Path, evaluated: Evaluated) -> None:
    data = inputs.Data({"1": {"7": 1, "8": 0}}, {"1": {"007": 2.0, "7": 1.0}})
    run = inputs.write(tmp_path, data.run, "run", "csv")
    path = tmp_path / "qrels.parquet"
    pl.DataFrame({"qid": [1, 1], "docid": [7, 8], "label": [1, 0]}).write_parquet(path)
    assert inputs.mean_average_precision(data) == 1 / 2
    evaluated.gives(data, path, run)
    evaluated.gives(data, inputs.write(tmp_path, data.qrels, "qrels", "csv"), run)


# ---- line ends, byte-order marks, compression ------------------------------------------------------------------------


def layouts(kind: str, lines: list[str], seed: int) -> dict[str, bytes]:
    """The same rows in other bytes."""
    rows = [line.encode() for line in lines]
    found = {name: end.join(rows) + end for name, end in inputs.LINE_ENDS.items()}
    rng = random.Random(seed)
    found["mixed line ends"] = b"".join(row + rng.choice(list(inputs.LINE_ENDS.values())) for row in rows)
    found["no last line end"] = b"\n".join(rows)
    found["no last line end, CR"] = b"\r".join(rows)
    found["empty lines at the end"] = b"\n".join(rows) + b"\n\n\n"
    if kind in ("trec", "letor"):
        found["comment"] = b"# comment\n" + b"\n".join(rows) + b"\n"
        found["comment with control characters"] = b"# a\0b\x1b[31m\n" + b"\n".join(rows) + b"\n"
        found["comment, CR"] = b"# comment\r" + b"\r".join(rows) + b"\r"
        found["tabs"] = b"\n".join(row.replace(b" ", b"\t") for row in rows) + b"\n"
        found["many spaces"] = b"\n".join(b" " + row.replace(b" ", b" \t ") + b"  " for row in rows) + b"\n"
        found["empty lines"] = b"\n\n".join(rows) + b"\n"
        found["empty lines, CR"] = b"\r\r".join(rows) + b"\r"
    return found


KINDS = [("qrels", kind) for kind in ("trec", "csv", "tsv", "beir", "letor")]
KINDS += [("run", kind) for kind in ("trec", "csv", "tsv")]


@pytest.mark.parametrize(("side", "kind"), KINDS)
@pytest.mark.parametrize(("mark", "packing"), [(b"", ""), (b"", ".gz"), (BOM, ""), (BOM, ".zst")])
def test_layout_changes_nothing(
    side: str, kind: str, mark: bytes, packing: str, tmp_path: Path, evaluated: Evaluated
) -> None:
    data = data_of("plain", hash_of(side, kind, packing), queries="integers")
    if kind == "letor":
        data = inputs.generate(3, ["7", "70", "700"], inputs.IDS["plain"].split())
    tables = {"qrels": data.qrels, "run": data.run}
    other = "run" if side == "qrels" else "qrels"
    paths = {other: inputs.write(tmp_path, tables[other], other, "trec")}
    for name, text in layouts(kind, inputs.LINES[kind](tables[side], side), seed=1).items():
        paths[side] = inputs.write_bytes(tmp_path, side, kind, mark + text, packing)
        try:
            evaluated.gives(data, paths["qrels"], paths["run"])
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_a_row_may_end_at_the_border_of_two_chunks(tmp_path: Path) -> None:
    """A chunk of lines that ends between carriage return and line feed has no empty line after it."""
    from rankbound.data.text_chunks import line_chunks

    path = tmp_path / "text.txt"
    for text in (b"ab\r\ncd\r\n", b"ab\rcd\r", b"a\r\r\nb\n\rc", b"\r", b"\r\n\r\n"):
        path.write_bytes(text)
        expected = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        for size in range(1, 9):
            chunks = list(line_chunks(path, size))
            assert b"".join(part for _, part in chunks) == expected
            assert all(number == 1 + expected[: expected.index(part)].count(b"\n") for number, part in chunks[:1])


# ---- damage ----------------------------------------------------------------------------------------------------------


def damaged(lines: list[str], kind: str, column: int, change: str, seed: int, *, whole: bool) -> tuple[bytes, int]:
    """Change one field of one row; return the bytes and the number of the line."""
    rng = random.Random(seed)
    has_header = kind in ("csv", "tsv", "beir")
    at = rng.randrange(1 if has_header else 0, len(lines))
    separator = {"trec": " ", "csv": ",", "tsv": "\t", "beir": "\t", "letor": " "}[kind]
    fields = lines[at].split(separator)
    if whole:
        fields[column] = change
    else:
        cut = rng.randrange(len(fields[column]) + 1) if kind != "letor" else len(fields[column])
        fields[column] = fields[column][:cut] + change + fields[column][cut:]
    lines = [*lines[:at], separator.join(fields), *lines[at + 1 :]]
    end = rng.choice(["\n", "\r\n", "\r"])
    return (end.join(lines) + end).encode(), at + 1


NUMBER_COLUMN = {"trec": {"qrels": 3, "run": 4}, "csv": 2, "tsv": 2, "beir": 2, "letor": 0}
ID_COLUMNS = {"trec": (0, 2), "csv": (0, 1), "tsv": (0, 1), "beir": (0, 1), "letor": (-1,)}


def attack(
    side: str, kind: str, column: int, change: str, seed: int, folder: Path, evaluated: Evaluated, *, whole: bool
) -> None:
    data = inputs.generate(seed, ["7", "70", "700"], inputs.IDS["plain"].split())
    tables = {"qrels": data.qrels, "run": data.run}
    other = "run" if side == "qrels" else "qrels"
    text, line = damaged(inputs.LINES[kind](tables[side], side), kind, column, change, seed, whole=whole)
    paths = {other: inputs.write(folder, tables[other], other, "trec")}
    paths[side] = inputs.write_bytes(folder, side, kind, text)
    file = "test.tsv" if kind == "beir" else paths[side].name
    evaluated.refuses(file, line, paths["qrels"], paths["run"])


@pytest.mark.parametrize(("side", "kind"), KINDS)
@pytest.mark.parametrize("name", inputs.NUMBERS)
def test_numbers_have_ascii_digits_and_are_finite(
    name: str, side: str, kind: str, tmp_path: Path, evaluated: Evaluated
) -> None:
    column = NUMBER_COLUMN[kind]
    at = column[side] if isinstance(column, dict) else column
    for seed in range(2):
        attack(side, kind, at, inputs.NUMBERS[name], seed, tmp_path, evaluated, whole=True)


@pytest.mark.parametrize(("side", "kind"), KINDS)
@pytest.mark.parametrize("name", inputs.CONTROLS)
def test_ids_have_no_control_characters(name: str, side: str, kind: str, tmp_path: Path, evaluated: Evaluated) -> None:
    for seed, column in enumerate(ID_COLUMNS[kind]):
        attack(side, kind, column, inputs.CONTROLS[name], 1 + seed, tmp_path, evaluated, whole=False)


@pytest.mark.parametrize(("side", "kind"), [("qrels", "trec"), ("run", "trec"), ("qrels", "letor")])
@pytest.mark.parametrize("name", [*inputs.CONTROLS, "no-break space", "ideographic space", "line separator"])
def test_only_spaces_and_tabs_separate_fields(
    name: str, side: str, kind: str, tmp_path: Path, evaluated: Evaluated
) -> None:
    others = {"no-break space": "\u00a0", "ideographic space": "\u3000", "line separator": "\u2028"}
    separator = (inputs.CONTROLS | others)[name]
    data = inputs.generate(4, ["7", "70", "700"], inputs.IDS["plain"].split())
    tables = {"qrels": data.qrels, "run": data.run}
    other = "run" if side == "qrels" else "qrels"
    lines = inputs.LINES[kind](tables[side], side)
    lines[2] = lines[2].replace(" ", separator, 1)
    paths = {other: inputs.write(tmp_path, tables[other], other, "trec")}
    paths[side] = inputs.write_bytes(tmp_path, side, kind, "\n".join(lines).encode())
    evaluated.refuses(paths[side].name, 3, paths["qrels"], paths["run"])


@pytest.mark.parametrize("entry", ["+2", "+2.5", "+2e0", " 2", "2 "])
@pytest.mark.parametrize("side", ["qrels", "run"])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_numbers_with_a_sign_or_a_space_are_numbers(
    ending: str, side: str, entry: str, tmp_path: Path, evaluated: Evaluated
) -> None:
    data = inputs.Data({"1": {"a": 1, "b": 0}}, {"1": {"a": 2.0, "b": 1.0}})
    tables = {"qrels": data.qrels, "run": data.run}
    paths = {name: inputs.write(tmp_path, table, name, ending) for name, table in tables.items()}
    lines = paths[side].read_text().splitlines()
    separator = "," if ending == "csv" else "\t"
    lines[1] = separator.join([*lines[1].split(separator)[:2], entry])
    paths[side].write_text("\n".join(lines) + "\n")
    evaluated.gives(data, paths["qrels"], paths["run"])


QIDS = ("1e3", "1.", "1.0", "1E0", ".1", "0x1", "1_0", "\uff11", "inf", "nan", "1e", "1-", "9223372036854775808", "")


@pytest.mark.parametrize("qid", QIDS)
@pytest.mark.parametrize("at", [0, 1, 7, 39])
def test_qids_of_letor_are_digits(qid: str, at: int, tmp_path: Path, evaluated: Evaluated) -> None:
    rows = [f"{i % 2} qid:{1 + i // 8} 1:0.5 #docid = d{i}" for i in range(40)]
    rows[at] = f"1 qid:{qid} 1:0.5 #docid = d{at}"
    (tmp_path / "qrels.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "run.txt").write_text("1 Q0 d0 1 1 t\n")
    evaluated.refuses("qrels.txt", at + 1, tmp_path / "qrels.txt", tmp_path / "run.txt")


@pytest.mark.parametrize("name", ["qid", "docid", "label"])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_column_occurs_once(name: str, ending: str, tmp_path: Path, evaluated: Evaluated) -> None:
    separator = "," if ending == "csv" else "\t"
    path, run = tmp_path / f"qrels.{ending}", tmp_path / "run.txt"
    run.write_text("1 Q0 2 1 1 t\n")
    path.write_text(separator.join(("qid", "docid", "label", name)) + "\n" + separator.join("1234") + "\n")
    evaluated.refuses(path.name, 1, path, run)


def test_infinite_labels_of_queries_that_are_not_evaluated(tmp_path: Path, evaluated: Evaluated) -> None:
    run = inputs.write(tmp_path, {"q1": {"a": 2.0}}, "run", "csv")
    qrels = inputs.write(tmp_path, {"q1": {"a": 1}, "q2": {"a": float("inf")}}, "qrels", "csv")
    evaluated.refuses("qrels.csv", 3, qrels, run)
    path = tmp_path / "qrels.parquet"
    pl.DataFrame({"qid": ["q1", "q2"], "docid": ["a", "a"], "label": [1.0, float("inf")]}).write_parquet(path)
    evaluated.refuses("qrels.parquet", None, path, run)


def hash_of(*names: str) -> int:
    """A seed that is the same in every process."""
    return sum(ord(letter) * (at + 1) for at, letter in enumerate(" ".join(names)))
