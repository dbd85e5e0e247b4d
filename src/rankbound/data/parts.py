"""Divide tables larger than memory into parts of whole queries, for this process or for the workers of a cluster.

A table whose rows of a query are adjacent is cut between queries. If judgments and run are both sorted by query id, the
cuts of the run divide the judgments as well. Otherwise polars writes the tables again to a scratch folder, divided by
the hash of the query id, so that the rows of a query, wherever they were, are in one part.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from rankbound.data import large
from rankbound.data.frames import id_text, polars_failures
from rankbound.data.large import Rows, SeenQueries, Table, is_dask_frame, look_up, open_table, row_count, whole_queries
from rankbound.errors import ArgumentError, DataError
from rankbound.io import locked_file, report_progress
from rankbound.parallel import open_workers, results_of

if TYPE_CHECKING:
    import polars as pl

    from distributed import Client

Result = TypeVar("Result")

_PREFIX, _LOCK = "rankbound-", "in-use"
_FILES = 256  # that polars writes at the same time, which takes about 3 MB each
_LOOKUPS = 4  # parts of judgments that every part of the run may look through


class SplitQueryError(DataError):
    """Rows of a query are not adjacent; ``reason`` says which."""

    def __init__(self, path: str | PathLike[str], reason: str) -> None:
        self.reason = reason
        super().__init__(f"{path}: {reason}: sort the table by query, or allow shuffling")


class Part(NamedTuple):
    """The rows of a run, or of a scored table, to evaluate together, and their judgments."""

    name: str
    """For messages."""
    run: tuple[Rows, ...]
    judgments: tuple[Rows, ...] | None = None
    """None where the judgments are looked up by the queries of the run."""

    @property
    def rows(self) -> int:
        """Rows of both tables, for the display of progress."""
        return sum(rows.length for rows in (*self.run, *(self.judgments or ())))


class _Queries(NamedTuple):
    """How the queries of a table lie in it."""

    ascending: bool
    ends: list[int]
    """The rows at which parts of whole queries end."""
    firsts: list[Any]
    """The first query of each part."""
    split: str
    """Which query has rows that are not adjacent."""


def _survey(table: Table) -> _Queries:
    seen, end, last, ascending = SeenQueries(), 0, None, True
    ends, firsts = list[int](), list[Any]()
    for frame in whole_queries(table.read_queries()):
        qid = frame["qid"]
        if (again := seen.add(qid)) is not None:
            return _Queries(False, [], [], _describe_split(table, again))
        ascending = ascending and qid.is_sorted() and (last is None or last <= qid[0])
        last, end = qid[-1], end + len(qid)
        ends.append(end)
        firsts.append(qid[0])
    return _Queries(ascending, ends, firsts, "")


def _describe_split(table: Table, query: Any) -> str:
    """Where rows of a query are, between which there are others."""
    done, last = 0, np.empty(0, np.int64)
    for rows in table.ranges():
        qid = table.read((rows,), ("qid",))["qid"]
        at = np.concatenate((last, done + (qid == query).arg_true().to_numpy().astype(np.int64)))
        if len(gaps := np.flatnonzero(np.diff(at) > 1)):
            ends = (table.rows_between(row, row + 1)[0] for row in at[gaps[0] :][:2].tolist())
            first, second = (f"{end.path} (row {end.start + 1:,})" for end in ends)
            return f"the rows of query {query!r} are split over {first} and {second}"
        done, last = done + rows.length, at[-1:]
    return f"the rows of query {query!r} are not adjacent"


def _rows_before(table: Table, queries: list[Any]) -> list[int] | None:
    """How many rows of a table lie before each of some ascending queries; None if the table is not sorted."""
    import polars as pl

    last, before = None, np.zeros(len(queries), np.int64)
    for frame in table.read_queries():
        qid = frame["qid"]
        if not qid.is_sorted() or (last is not None and last > qid[0]):
            return None
        last = qid[-1]
        if queries:
            before += np.asarray(qid.search_sorted(pl.Series(queries, dtype=qid.dtype), side="left"), np.int64)
    return [int(rows) for rows in before]


class Tables(NamedTuple):
    """A run, or a table of labels and scores, and its judgments, in memory or not."""

    run: Table
    judgments: Table | pl.DataFrame | None

    def read(self, part: Part) -> tuple[pl.DataFrame | None, pl.DataFrame]:
        """The judgments and the rows of a part."""
        run = self.run.read(part.run)
        if self.judgments is None:
            return None, run
        if part.judgments is None:
            return look_up(self.judgments, run["qid"].unique()), run
        assert isinstance(self.judgments, Table)
        return self.judgments.read(part.judgments), run


class Division(NamedTuple):
    """Tables in parts of whole queries."""

    tables: Tables
    parts: list[Part]
    shuffled: str = ""
    """Why the tables were shuffled, if they were."""


def divide(tables: Tables, *, shuffle: bool, folder: Callable[[], str]) -> Division:
    """Divide a run and its judgments, or a table of labels and scores, into parts of whole queries.

    ``folder`` is called for an empty folder if the tables must be written again; without ``shuffle`` they are not, and
    DataError names a query whose rows are not adjacent.
    """
    run, judgments = tables = _with_equal_ids(*tables)
    found = _survey(run)
    if found.split:
        if not shuffle:
            raise SplitQueryError(run.name, found.split)
        return _shuffled(tables, found.split, folder())
    if not isinstance(judgments, Table):
        return Division(tables, _adjacent_parts(run, found.ends))
    starts = _rows_before(judgments, found.firsts[1:]) if found.ascending else None
    if starts is not None:
        return Division(tables, _adjacent_parts(run, found.ends, judgments, starts))
    if shuffle and judgments.rows > _LOOKUPS * large.ROWS:
        return _shuffled(tables, f"{judgments.name} and {run.name} are not both sorted by query", folder())
    return Division(tables, _adjacent_parts(run, found.ends))


def _with_equal_ids(run: Table, judgments: Table | pl.DataFrame | None) -> Tables:
    """Both with their query ids as text, if these have different types."""
    if judgments is None:
        return Tables(run, judgments)
    if isinstance(judgments, Table):
        if judgments.types[0] == run.types[0]:
            return Tables(run, judgments)
        return Tables(replace(run, text_ids=True), replace(judgments, text_ids=True))
    if str(judgments["qid"].dtype) == run.types[0]:
        return Tables(run, judgments)
    return Tables(replace(run, text_ids=True), judgments.with_columns(id_text(judgments["qid"])))


def _adjacent_parts(
    run: Table, ends: list[int], judgments: Table | None = None, starts: list[int] | None = None
) -> list[Part]:
    """Parts between rows of the run, and between rows of the judgments if these are sorted as well."""
    parts = []
    edges = [0, *(starts or []), 0 if judgments is None else judgments.rows]
    for number, (start, end) in enumerate(pairwise([0, *ends])):
        rows = run.rows_between(start, end)
        judged = None if judgments is None else judgments.rows_between(edges[number], edges[number + 1])
        name = f"{rows[0].path}, rows {rows[0].start + 1:,} to {rows[0].start + rows[0].length:,}"
        parts.append(Part(name, rows, judged))
    return parts


def _shuffled(tables: Tables, reason: str, folder: str) -> Division:
    """Tables that are written again, divided by query."""
    run, judgments = tables
    sources = [run, judgments] if isinstance(judgments, Table) else [run]
    buckets = min(_FILES, math.ceil(max(table.rows for table in sources) / large.ROWS))
    written = [_write_by_query(table, buckets, f"{folder}/{number}") for number, table in enumerate(sources)]
    (ranked, returned), judged = written[0], [None] * buckets
    if isinstance(judgments, Table):
        judgments, judged = written[1]
    parts = [Part(run.name, *pair) for pair in zip(returned, judged, strict=True) if pair[0] or pair[1]]
    return Division(Tables(ranked, judgments), parts, reason)


def _write_by_query(table: Table, buckets: int, folder: str) -> tuple[Table, list[Any]]:
    """Write a table again, divided by the hashes of the query ids: the new table, and the rows of each bucket."""
    import polars as pl

    report_progress("shuffling", 0, table.rows)
    for rows in table.ranges():  # which polars would not check
        table.read((rows,), tuple(name for name in table.columns if name != "docid"))
    try:
        table.scan().sink_parquet(
            pl.PartitionBy(folder, key={"bucket": pl.col("qid").hash() % buckets}, include_key=False),
            mkdir=True,
            engine="streaming",
        )
    except polars_failures() as error:
        raise not_written(folder, error) from error
    report_progress("shuffling", table.rows, table.rows)
    found = [sorted(map(str, Path(folder, f"bucket={bucket}").glob("*.parquet"))) for bucket in range(buckets)]
    ranges = [tuple(Rows(path, 0, row_count(path)) for path in paths) for paths in found]
    files = tuple((rows.path, rows.length) for bucket in ranges for rows in bucket)
    marked = None if table.candidate is None else "candidate"
    return replace(table, files=files, candidate=marked, text_ids=False), ranges


def not_written(path: str | PathLike[str], error: BaseException) -> DataError:
    """The error for a file that polars could not write."""
    text = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), type(error).__name__)
    return DataError(f"{path}: cannot be written: {text}")


class Work:
    """Workers, and a folder that they share for tables that are written again."""

    def __init__(self, client: Client | None, is_local: bool, scratch: str | PathLike[str] | None) -> None:
        self.client, self._is_local, self._scratch = client, is_local, scratch
        self._stack = ExitStack()

    def folder(self) -> str:
        """A new folder that all workers see; it is removed at the end."""
        if self._scratch is None and not self._is_local:
            raise ArgumentError(
                "scratch must be a folder that every worker can read and write, because the tables must be written "
                "again for these workers; got None"
            )
        return self._stack.enter_context(scratch_folder(self._scratch))

    def open(self, source: Any, columns: tuple[str, ...], candidate: str | None = None) -> Table:
        """The table of a path, a pattern, a folder, or a Dask DataFrame, which is written to files first."""
        if is_dask_frame(source):
            folder = f"{self.folder()}/table.parquet"
            source.to_parquet(folder, write_index=False)
            source = folder
        elif not self._is_local and isinstance(source, (str, PathLike)):
            source = Path(source).absolute()
        return open_table(source, columns, candidate)

    def results(self, what: str, function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """The results of a function for all parts, in their order; the progress is reported in rows."""
        found: dict[int, Result] = {}
        done, total = 0, sum(part.rows for part in parts)
        for index, result in results_of(self.client, function, parts, lambda part: part.name):
            done += parts[index].rows
            report_progress(what, done, total)
            found[index] = result
        return [found[index] for index in range(len(parts))]


@contextmanager
def open_work(cluster: Any = None, scratch: str | PathLike[str] | None = None) -> Iterator[Work]:
    """The workers of a cluster, see `rankbound.evaluate`; this process if it is None."""
    with open_workers(cluster) as (client, is_local):
        work = Work(client, is_local, scratch)
        with work._stack:
            yield work


def _remove_abandoned(lock: Path) -> None:
    """Remove the folder of a lock that nobody holds; others' folders, which may hold anything, are not looked at."""
    if hasattr(os, "getuid") and lock.parent.lstat().st_uid != os.getuid():
        return
    with locked_file(lock, "is writing"):
        shutil.rmtree(lock.parent, ignore_errors=True)


@contextmanager
def scratch_folder(scratch: str | PathLike[str] | None) -> Iterator[str]:
    """A new folder in ``scratch``, or among temporary files; it is removed at the end.

    Folders that killed processes left there are removed as well.
    """
    parent = Path(tempfile.gettempdir() if scratch is None else scratch)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
            with suppress(DataError, OSError):
                _remove_abandoned(lock)
        folder = tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent)  # hidden until it is locked
    except OSError as error:
        raise DataError(f"{parent}: cannot be written: {error.strerror}") from error
    visible = Path(folder).with_name(Path(folder).name[1:])
    try:
        with ExitStack() as stack:
            with suppress(OSError):  # some network file systems have no locks
                stack.enter_context(locked_file(f"{folder}/{_LOCK}", "is writing"))
            Path(folder).rename(visible)
            yield str(visible)
    finally:
        for path in (folder, visible):
            shutil.rmtree(path, ignore_errors=True)
