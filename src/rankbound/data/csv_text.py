"""Read csv and tsv files whose ids stay what the file says: 007, 7 and 7.0 are three documents.

A column of ids becomes integers only if every entry is the plain form of one, without leading zeros or a sign before 0,
so that integers and text agree whenever they are compared as text. Files may be compressed, begin with a byte-order
mark, and have any line ends. After a failure, the file is read again row by row to find the line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.text_chunks import CONTROL, StrPath, has_controls, is_plain_number, read_text
from rankbound.errors import DataError, FileFormatError

if TYPE_CHECKING:
    import polars as pl

_COMPRESSED = (".gz", ".zst")
_AT_ONCE = 1 << 16  # bytes, so that intermediate arrays stay in the cache of the processor


def base_name(path: StrPath) -> str:
    """Return a path in lower case without the ending of a compressed file.

    >>> base_name("Run.CSV.gz")
    'run.csv'
    """
    name = str(path).lower()
    return next((name.removesuffix(ending) for ending in _COMPRESSED if name.endswith(ending)), name)


def is_csv(path: StrPath) -> bool:
    """Whether a path names a csv or tsv file, compressed or not."""
    return base_name(path).endswith((".csv", ".tsv"))


def read_csv(path: StrPath, ids: Collection[str], numbers: Collection[str]) -> pl.DataFrame:
    """Read a file with a header; ``ids`` and ``numbers`` are names that such columns may have.

    Raises FileFormatError for two columns with the same of these names, for control characters in ids, and for rows
    that do not fit the header.
    """
    import polars as pl

    raw = read_text(path)
    if raw.endswith(b"\n\n"):  # polars takes an empty line as a row of empty entries
        raw = raw.rstrip(b"\n") + b"\n"
    header = next(_rows(path, raw[: raw.find(b"\n") + 1 or len(raw)]), (1, []))[1]
    for name in header:
        if header.count(name) > 1 and (name in ids or name in numbers):
            raise FileFormatError(
                path, 1, "a column must occur once in the header", f"got {name!r} {header.count(name)} times"
            )
    as_text = {name: pl.String for name in header if name in ids}
    as_numbers = {name: pl.Float64 for name in header if name in numbers}
    attempts: list[dict[str, Any]] = [{}, as_text, as_text | as_numbers]
    for overrides in attempts:
        try:
            table = pl.read_csv(raw, separator=_separator(path), schema_overrides=overrides)
        except pl.exceptions.ComputeError:
            if overrides is attempts[-1]:
                _refuse_row(path, raw, header, as_numbers)
                raise
            continue
        kinds = {table.schema[name] for name in as_text if name in table.schema}
        if kinds <= {pl.Int64, pl.String} and (pl.Int64 not in kinds or not _may_have_unusual_integers(raw)):
            break
    if pl.String in kinds and has_controls(raw):
        refuse_entry(path, as_text, lambda entry: bool(CONTROL.search(entry)), "must have no control characters")
    return table.with_columns(_as_numbers(table[name]) for name in as_numbers if table.schema[name] == pl.String)


def _as_numbers(column: pl.Series) -> pl.Series:
    """A column of text as numbers, if each entry is one that polars does not recognize, such as +2."""
    import polars as pl

    if any(map(is_no_number, column.drop_nulls())):
        return column
    return pl.Series(column.name, [float(entry) if entry else None for entry in column], pl.Float64)


def refuse_entry(path: StrPath, columns: Collection[str], is_wrong: Callable[[str], bool], rule: str) -> None:
    """Raise FileFormatError for the first entry of some columns that is wrong; return if there is none."""
    rows = _rows(path, read_text(path))
    header = next(rows, (1, []))[1]
    places = [(header.index(name), name) for name in columns if name in header]
    for line, row in rows:
        for at, name in places:
            if at < len(row) and is_wrong(row[at]):
                raise FileFormatError(path, line, f"{name} {rule}", f"got {row[at][:60]!r}")


def _refuse_row(path: StrPath, raw: bytes, header: list[str], numbers: Collection[str]) -> None:
    """Raise FileFormatError for the first row with more fields than the header or with a word in place of a number."""
    refuse_entry(path, numbers, is_no_number, "must be a number")
    for line, row in _rows(path, raw):
        if len(row) > len(header):
            rule = f"a row must have the {len(header)} fields of the header"
            raise FileFormatError(path, line, rule, f"got {len(row)}: {','.join(row)[:100]!r}")


def is_no_number(entry: str) -> bool:
    """Whether a filled entry is not a finite number."""
    try:
        return bool(entry) and not (is_plain_number(entry) and abs(float(entry)) < float("inf"))
    except ValueError:
        return True


def _rows(path: StrPath, raw: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, with the line on which each begins."""
    reader = csv.reader(io.StringIO(raw.decode("utf-8", "replace"), newline=""), delimiter=_separator(path))
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{line}: cannot be read: {error}") from None


def _separator(path: StrPath) -> str:
    return "\t" if base_name(path).endswith(".tsv") else ","


def _may_have_unusual_integers(raw: bytes) -> bool:
    """Whether an entry may begin with a space or a plus, or with a zero that another character than a dot follows.

    Integers of such entries have lost what distinguishes them. False only if no entry is of this kind.
    """
    marks = [ord(mark) for mark in (" ", "\t", "+") if mark.encode() in raw]
    has_minus = b"-" in raw
    data = np.frombuffer(raw, np.uint8)
    for at in range(0, len(data), _AT_ONCE):
        part = data[at : at + _AT_ONCE + 2]
        before, here, after = part[:-2], part[1:-1], part[2:]
        begins = before < ord(".")  # after a separator, a line end, a quote or a sign
        is_zero = here == ord("0")
        is_zero &= begins
        if (is_zero & (after >= ord("0"))).any() or any((begins & (here == mark)).any() for mark in marks):
            return True
        if has_minus and (is_zero & (before == ord("-")) & (after < ord("."))).any():
            return True
    return False
