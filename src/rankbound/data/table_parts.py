"""Tables in many parquet files, and tables larger than memory: parts of whole queries, and how to read them.

A *part* is a tuple of row ranges of files. `survey` reads the query ids of a range, and nothing else; from the surveys
of all ranges the parts are cut between queries (`whole_queries`), so that no reader needs to know its neighbors. The
files of a table are one table, in order of their names: a query may end in the file after that in which it begins.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rankbound.data.frames import check_mark, find_columns, id_text, plain_type, polars_explained
from rankbound.errors import DataError

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "ROWS",
    "Part",
    "Rows",
    "Survey",
    "Table",
    "files_of",
    "is_pattern",
    "open_table",
    "query_hashes",
    "read_part",
    "row_count",
    "survey",
    "whole_queries",
]

ROWS = 1_000_000  # of a part


@dataclass(frozen=True, slots=True)
class Rows:
    """A range of rows of one file."""

    path: str
    start: int
    count: int


Part = tuple[Rows, ...]


@dataclass(frozen=True)
class Table:
    """The files of a table, with their numbers of rows, and the columns that are read from them."""

    name: str
    files: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    types: tuple[str, ...]
    candidate: str | None = None
    text_ids: bool = False
    """Whether query ids are compared as text, because the ids of another table have another type."""

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(rows for _, rows in self.files)

    def ranges(self, rows: int) -> list[Part]:
        """The table in ranges of about so many rows, none of which is in more than one file."""
        return [
            (Rows(path, start, min(rows, total - start)),)
            for path, total in self.files
            for start in range(0, total, rows)
        ]


def is_pattern(source: Any) -> bool:
    """Whether the source is a pattern that names parquet files, such as ``run-*.parquet``, or a folder of them."""
    if not isinstance(source, (str, PathLike)):
        return False
    text = fspath(source)
    if str(text).endswith(".parquet"):
        return (glob.has_magic(str(text)) and not Path(text).exists()) or Path(text).is_dir()
    return False


def files_of(source: str | PathLike[str]) -> list[str]:
    """The files that a path, a folder or a pattern names, in order of their names; DataError if there are none."""
    text = str(fspath(source))
    if Path(text).is_file():
        return [text]
    pattern = str(Path(glob.escape(text)) / "*.parquet") if Path(text).is_dir() else text
    files = sorted(path for path in glob.glob(pattern) if Path(path).is_file())  # noqa: PTH207  # a whole pattern
    if not files:
        raise DataError(f"{text}: no such file" if pattern == text else f"{text}: is a folder without parquet files")
    return files


def open_table(source: str | PathLike[str], columns: tuple[str, ...], candidate: str | None = None) -> Table:
    """Find the files of a table and check that they have the same types in all columns; no row is read."""
    import polars as pl

    files: list[tuple[str, int]] = []
    first: dict[str, str] | None = None
    for path in files_of(source):
        with polars_explained(path):
            scan = _columns(path, columns, candidate)
            types = {name: str(kind) for name, kind in scan.collect_schema().items()}
            files.append((path, int(scan.select(pl.len()).collect().item())))
        if first is None:
            first = types
        for name, kind in types.items():
            if kind != first[name]:
                raise DataError(
                    f"{path}: column {name!r} must have the same type in all files, got {kind} here and {first[name]} "
                    f"in {files[0][0]}"
                )
    assert first is not None
    return Table(str(fspath(source)), tuple(files), columns, tuple(first[name] for name in columns), candidate)


def row_count(path: str | PathLike[str]) -> int:
    """The number of rows of a parquet file, from its metadata; DataError if there is no such file."""
    import polars as pl

    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    with polars_explained(path):
        return int(pl.scan_parquet(Path(path), glob=False).select(pl.len()).collect().item())


def _columns(path: str, columns: tuple[str, ...], candidate: str | None) -> pl.LazyFrame:
    """The columns of a file under rankbound's names, not yet read."""
    import polars as pl

    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    table = pl.scan_parquet(Path(path), glob=False)
    schema = table.collect_schema()
    try:
        theirs = find_columns(schema.names(), {}, required=columns)
        chosen = [pl.col(theirs[name]).cast(plain_type(name, schema[theirs[name]])).alias(name) for name in columns]
        if candidate is not None:
            check_mark(candidate, schema)
            chosen.append(pl.col(candidate).fill_null(value=False).alias("candidate"))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return table.select(chosen)


def read_part(table: Table, part: Part, columns: tuple[str, ...] | None = None) -> pl.DataFrame:
    """The rows of a part; some of the table's columns, or all. DataError names the file that cannot be read."""
    import polars as pl

    frames = []
    for rows in part:
        with polars_explained(rows.path):
            scan = _columns(rows.path, table.columns, table.candidate)
            if columns is not None:
                scan = scan.select(columns)
            frame = scan.slice(rows.start, rows.count).collect()
        if len(frame) != rows.count:
            raise DataError(f"{rows.path}: has changed while it was read")
        if empty := frame["qid"].null_count():
            raise DataError(f"{rows.path}: column 'qid' must be filled in every row, got {empty} empty")
        for name in {"label", "score"} & set(frame.columns):
            column = frame[name]
            if not column.dtype.is_numeric():
                raise DataError(f"{rows.path}: column {name!r} must hold numbers, got {column.dtype}")
            if column.dtype.is_float() and not column.is_finite().all():
                at = int((~column.is_finite()).arg_true()[0])
                row = rows.start + at + 1
                raise DataError(f"{rows.path}: column {name!r} must hold finite numbers, got {column[at]} in row {row}")
        frames.append(frame)
    frame = pl.concat(frames) if len(frames) != 1 else frames[0]
    return frame.with_columns(id_text(frame["qid"])) if table.text_ids else frame


def empty_frame(table: Table) -> pl.DataFrame:
    """A frame with the columns of a table and no rows."""
    frame = _columns(table.files[0][0], table.columns, table.candidate).head(0).collect()
    return frame.with_columns(id_text(frame["qid"])) if table.text_ids else frame


def query_hashes(qid: pl.Series) -> NDArray[np.uint64]:
    """Hashes of query ids, the same in all processes that have the same version of polars."""
    return qid.hash().to_numpy()


# ---- surveys ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known about the queries of a range of rows."""

    part: Part
    first: Any
    second: Any
    """The query after the first one; None if there is no other."""
    last: Any
    lead: int
    """Rows at the beginning that belong to the first query."""
    ascending: bool
    """Whether the rows are sorted by query id."""
    queries: int
    """Runs of rows of one query: the number of queries where the rows are sorted."""
    first_hash: NDArray[np.uint64]
    hashes: NDArray[np.uint64] | None = None
    """Sorted hashes of the queries of the rows after ``lead``, where they were requested."""

    @property
    def rows(self) -> int:
        """Rows of the range."""
        return sum(rows.count for rows in self.part)


def survey(table: Table, part: Part, hashes: bool) -> Survey:
    """Read the query ids of a range of rows."""
    qid = read_part(table, part, ("qid",))["qid"]
    runs = qid.rle_id()
    queries = int(runs[-1]) + 1
    lead = int((runs == 0).sum())
    return Survey(
        part, qid[0], qid[lead] if queries > 1 else None, qid[-1], lead, qid.is_sorted(), queries,
        query_hashes(qid[:1]), np.unique(query_hashes(qid[lead:])) if hashes else None,
    )  # fmt: skip


def whole_queries(surveys: Sequence[Survey]) -> list[Survey]:
    """The ranges with their ends moved so that no query goes on from one to the next, and ``hashes`` of all queries.

    The first query of a range that is the last one of the range before moves there; ranges that become empty vanish.
    """
    result: list[Survey] = []
    for found in surveys:
        if not result or result[-1].last != found.first:
            known = None if found.hashes is None else np.union1d(found.hashes, found.first_hash)
            result.append(replace(found, hashes=known))
            continue
        moved, left = _split(found.part, found.lead)
        result[-1] = replace(result[-1], part=_joined(result[-1].part, moved))
        if left:
            result.append(replace(found, part=left, first=found.second, queries=found.queries - 1))
    return result


def _split(part: Part, rows: int) -> tuple[Part, Part]:
    """The first rows of a part, and the others."""
    (only,) = part
    head, tail = replace(only, count=rows), replace(only, start=only.start + rows, count=only.count - rows)
    return (head,), (tail,) if tail.count else ()


def _joined(first: Part, second: Part) -> Part:
    """Two parts as one, with adjacent ranges of one file merged."""
    merged = list(first)
    for rows in second:
        if merged and merged[-1].path == rows.path and merged[-1].start + merged[-1].count == rows.start:
            merged[-1] = replace(merged[-1], count=merged[-1].count + rows.count)
        else:
            merged.append(rows)
    return tuple(merged)
