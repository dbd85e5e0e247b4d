"""Tables larger than memory: one or many parquet files that are read as one table, some rows at a time."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankbound.data.frames import check_mark, find_columns, plain_type, polars_explained
from rankbound.errors import ArgumentError, DataError
from rankbound.io import report_progress

if TYPE_CHECKING:
    import polars as pl

ROWS = 1_000_000  # of a part


class Rows(NamedTuple):
    """A range of rows of one file."""

    path: str
    start: int
    length: int


@dataclass(frozen=True)
class Table:
    """The files of a table, with their numbers of rows, and the columns that are read from them."""

    name: str
    files: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    types: tuple[str, ...]
    candidate: str | None = None
    text_ids: bool = False
    """Whether query ids are compared as text, because the ids of the other table have another type."""

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(rows for _, rows in self.files)

    def scan(self) -> pl.LazyFrame:
        """The table, not yet read; its numbers are not checked."""
        import polars as pl

        return pl.concat([self._scan_file(path) for path, _ in self.files])

    def _scan_file(self, path: str) -> pl.LazyFrame:
        scan = _columns(path, self.columns, self.candidate)
        return scan.with_columns(id_text_of(scan.collect_schema()["qid"])) if self.text_ids else scan

    def ranges(self) -> Iterator[Rows]:
        """The table in ranges of about `ROWS` rows, none of which is in more than one file."""
        for path, total in self.files:
            for start in range(0, total, ROWS):
                yield Rows(path, start, min(ROWS, total - start))

    def rows_between(self, start: int, end: int) -> tuple[Rows, ...]:
        """The files' rows of a range of the table's rows."""
        found, before = [], 0
        for path, total in self.files:
            first, last = max(start - before, 0), min(end - before, total)
            if first < last:
                found.append(Rows(path, first, last - first))
            before += total
        return tuple(found)

    def read(self, ranges: Iterable[Rows], columns: tuple[str, ...] | None = None) -> pl.DataFrame:
        """Read ranges of rows; some of the table's columns, or all. DataError names the file that cannot be read."""
        import polars as pl

        frames = []
        for rows in ranges:
            with polars_explained(rows.path):
                scan = self._scan_file(rows.path)
                frame = (scan if columns is None else scan.select(columns)).slice(rows.start, rows.length).collect()
            _check(frame, rows)
            frames.append(frame)
        return pl.concat(frames) if frames else self._scan_file(self.files[0][0]).head(0).collect()

    def read_queries(self) -> Iterator[pl.DataFrame]:
        """Yield the column qid, some rows at a time."""
        done = 0
        for rows in self.ranges():
            yield self.read((rows,), ("qid",))
            done += rows.length
            report_progress("planning", done, self.rows)

    def first_query(self) -> Any:
        """The first query of the table."""
        return self.read(self.rows_between(0, 1), ("qid",))["qid"][0]


def _check(frame: pl.DataFrame, rows: Rows) -> None:
    """Raise DataError for rows that are missing, queries without a name, and labels or scores that are no numbers."""
    if len(frame) != rows.length:
        raise DataError(f"{rows.path}: has changed while it was read")
    if "qid" in frame.columns and (empty := frame["qid"].null_count()):
        raise DataError(f"{rows.path}: column 'qid' must be filled in every row, got {empty} empty")
    for name in {"label", "score"} & set(frame.columns):
        column = frame[name]
        if not column.dtype.is_numeric():
            raise DataError(f"{rows.path}: column {name!r} must hold numbers, got {column.dtype}")
        if column.dtype.is_float() and not column.is_finite().all():
            at = int((~column.is_finite()).arg_true()[0])
            row = rows.start + at + 1
            raise DataError(f"{rows.path}: column {name!r} must hold finite numbers, got {column[at]} in row {row}")


def id_text_of(kind: pl.DataType) -> pl.Expr:
    """Query ids of a type as text, as `rankbound.data.frames.id_text` has it."""
    import polars as pl

    text = pl.col("qid").cast(pl.String)
    return text.str.strip_suffix(".0") if kind.is_float() else text


def is_in_parts(source: Any) -> bool:
    """Whether a source is a table in parts: a pattern or folder of parquet files, or a DataFrame of Dask or Spark."""
    if is_dask_frame(source) or is_spark_frame(source):
        return True
    if not isinstance(source, (str, PathLike)) or not str(source).endswith(".parquet"):
        return False
    text = str(fspath(source))
    return (glob.has_magic(text) and not Path(text).exists()) or Path(text).is_dir()


def is_dask_frame(source: Any) -> bool:
    """Whether the source is a Dask DataFrame; Dask is not imported."""
    kind = type(source)
    return kind.__module__.split(".")[0].startswith("dask") and hasattr(kind, "to_parquet")


def is_spark_frame(source: Any) -> bool:
    """Whether the source is a Spark DataFrame; Spark is not imported."""
    kind = type(source)
    return kind.__module__.startswith("pyspark.sql") and hasattr(kind, "mapInArrow")


def open_table(source: Any, columns: tuple[str, ...], candidate: str | None = None) -> Table:
    """Find the files of a table and check that they have the same types in all columns; no row is read."""
    if not isinstance(source, (str, PathLike)) or not str(source).rstrip("/").endswith(".parquet"):
        given = source if isinstance(source, (str, PathLike)) else type(source).__name__
        raise ArgumentError(
            f"tables in parts must be parquet files or Dask DataFrames, both judgments and run, got {given}"
        )
    files: list[tuple[str, int]] = []
    first: dict[str, str] = {}
    for path in _files_of(str(fspath(source))):
        with polars_explained(path):
            types = {name: str(kind) for name, kind in _columns(path, columns, candidate).collect_schema().items()}
        files.append((path, row_count(path)))
        first = first or types
        for name, kind in types.items():
            if kind != first[name]:
                raise DataError(
                    f"{path}: column {name!r} must have the same type in all files, got {kind} here and {first[name]} "
                    f"in {files[0][0]}"
                )
    return Table(str(fspath(source)), tuple(files), columns, tuple(first[name] for name in columns), candidate)


def _files_of(text: str) -> list[str]:
    """The files that a path, a folder or a pattern names, in order of their names; DataError if there are none."""
    if Path(text).is_file():
        return [text]
    pattern = str(Path(glob.escape(text)) / "*.parquet") if Path(text).is_dir() else text
    files = sorted(path for path in glob.glob(pattern) if Path(path).is_file())  # noqa: PTH207  # a whole pattern
    if not files:
        raise DataError(f"{text}: no such file" if pattern == text else f"{text}: is a folder without parquet files")
    return files


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


def whole_queries(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the rows of some frames so that no query ends in another frame than that in which it begins.

    The rows of each query must be adjacent.
    """
    import polars as pl

    rest = None
    for frame in frames:
        rows = frame if rest is None else pl.concat((rest, frame))
        others = (rows["qid"] != rows["qid"][-1]).arg_true() if len(rows) else rows["qid"]
        start = int(others[-1]) + 1 if len(others) else 0  # of the last query, which may continue
        is_enough = start >= max(1, ROWS // 2)
        if is_enough:
            yield rows[:start]
        rest = rows[start:] if is_enough else rows
    if rest is not None and len(rest):
        yield rest


class SeenQueries:
    """Hashes of query ids, in sorted arrays each longer than the next, so that n ids are looked up in O(n log n)."""

    def __init__(self) -> None:
        self._known: list[NDArray[np.uint64]] = []

    def add(self, qid: pl.Series) -> Any:
        """Add the queries of some rows; return one of them that was added before, or None."""
        names = qid.rle().struct.field("value").unique()  # rle leaves few ids to look up
        hashes = names.hash().to_numpy()
        order = np.argsort(hashes)
        new = hashes[order]
        for known in self._known:
            again = known[np.searchsorted(known, new).clip(max=len(known) - 1)] == new
            if again.any():
                return names[int(order[np.argmax(again)])]
        while self._known and len(self._known[-1]) <= len(new):
            new = np.sort(np.concatenate((self._known.pop(), new)), kind="stable")  # merges two sorted arrays
        self._known.append(new)
        return None


def look_up(judgments: Table | pl.DataFrame, queries: pl.Series, *, others: bool = False) -> pl.DataFrame:
    """The judgments of some queries, or of all ``others``."""
    import polars as pl

    is_chosen = pl.col("qid").is_in(queries.implode())
    chosen = ~is_chosen if others else is_chosen
    if isinstance(judgments, pl.DataFrame):
        return judgments.filter(chosen)
    with polars_explained(judgments.name):
        return judgments.scan().filter(chosen).collect(engine="streaming")
