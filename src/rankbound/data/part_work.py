"""Work on tables in parts, in this process or by the workers of a Dask cluster: open, plan, shuffle, compute."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.data import part_plans, table_parts
from rankbound.data.part_plans import Task
from rankbound.data.table_parts import Part, Survey, Table
from rankbound.errors import ArgumentError, DataError
from rankbound.io import Progress, report_progress
from rankbound.parallel import check_versions, open_client, results_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["PartWork", "Plan", "check_source", "is_in_parts", "open_work"]


def is_in_parts(source: Any) -> bool:
    """Whether a source is a table in parts: a pattern or folder of parquet files, or a Dask DataFrame."""
    return table_parts.is_pattern(source) or is_dask_frame(source)


def is_dask_frame(source: Any) -> bool:
    """Whether the source is a Dask DataFrame; Dask is not imported."""
    kind = type(source)
    return kind.__module__.split(".")[0].startswith("dask") and hasattr(kind, "to_parquet")


@dataclass(frozen=True)
class Plan:
    """The tables, which may have been shuffled, and the tasks into which they are divided."""

    run: Table
    qrels: Table | None
    tasks: list[Task]
    missing: int = 0
    """Judged queries that the run lacks and that no task counts."""
    shuffled: str = ""
    """Why the tables were shuffled, if they were."""


@dataclass
class PartWork:
    """Workers, and the folder that they share for shuffled tables."""

    client: Client | None
    is_local: bool
    stack: ExitStack
    scratch: str | PathLike[str] | None
    part_rows: int
    progress: Progress

    def results(self, what: str, function: Callable[[Task], Any], tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        """Index and result of each task, in any order; the progress is reported in rows."""
        rows = [_rows_of(task.run or task.judgments) for task in tasks]
        done = 0
        for index, result in results_of(self.client, function, tasks, Task.describe):
            done += rows[index]
            self.progress(what, done, sum(rows))
            yield index, result

    def ordered_results(self, what: str, function: Callable[[Any], Any], items: Sequence[Part]) -> list[Any]:
        """Results in the order of the items."""
        found: dict[int, Any] = {}
        total, done = sum(map(_rows_of, items)), 0
        for index, result in results_of(self.client, function, items, _describe_part):
            done += _rows_of(items[index])
            self.progress(what, done, total)
            found[index] = result
        return [found[index] for index in range(len(items))]

    def folder(self) -> str:
        """A folder that all workers see; it is removed at the end."""
        if self.scratch is None and not self.is_local:
            raise ArgumentError(
                "scratch must be a folder that every worker can read and write, because the tables must be written "
                "again for these workers; got None"
            )
        try:
            if self.scratch is not None:
                Path(self.scratch).mkdir(parents=True, exist_ok=True)
            return self.stack.enter_context(tempfile.TemporaryDirectory(prefix="rankbound-", dir=self.scratch))
        except OSError as error:
            raise DataError(f"{self.scratch}: cannot be written: {error.strerror}") from error

    def open(self, source: Any, columns: tuple[str, ...], candidate: str | None) -> Table:
        """The table of a path, a pattern, a folder, or a Dask DataFrame, which is written to files first."""
        if is_dask_frame(source):
            folder = self.folder()
            source.to_parquet(folder, write_index=False)
            source = folder
        if not self.is_local:
            source = Path(source).absolute()
        return table_parts.open_table(source, columns, candidate)

    def first_query(self, table: Table) -> Any:
        """The first query of a table."""
        path = next(path for path, rows in table.files if rows)
        return table_parts.read_part(table, (table_parts.Rows(path, 0, 1),), ("qid",))["qid"][0]

    def surveys(self, table: Table, hashes: bool) -> list[Survey]:
        """Parts of whole queries, with what is known about them."""
        look = partial(table_parts.survey, table, hashes=hashes)
        return table_parts.whole_queries(self.ordered_results("planning", look, table.ranges(self.part_rows)))

    def plan_scored(self, table: Table, shuffle: bool) -> Plan:
        """The plan for a table of labels and scores."""
        surveys = self.surveys(table, hashes=False)
        if not part_plans.is_ordered(surveys):
            surveys = self.surveys(table, hashes=True)
            if split := part_plans.find_split(surveys):
                reason = _reason(table, split, shuffle)
                ((table, parts),) = self.shuffled([table])
                return Plan(table, None, [Task(n, part) for n, part in enumerate(parts) if part], 0, reason)
        return Plan(table, None, [Task(number, found.part) for number, found in enumerate(surveys)])

    def plan(self, qrels: Table, run: Table, shuffle: bool, keep_missing: bool) -> Plan:
        """The plan for judgments and a run."""
        tables = (qrels, run)
        judged, ranked = (self.surveys(table, hashes=False) for table in tables)
        if part_plans.is_ordered(judged) and part_plans.is_ordered(ranked):
            return Plan(run, qrels, part_plans.ordered_tasks(judged, ranked))
        judged, ranked = (self.surveys(table, hashes=True) for table in tables)
        reason = ""
        for table, surveys in zip(tables, (judged, ranked), strict=True):
            if split := part_plans.find_split(surveys):
                reason = _reason(table, split, shuffle)
                break
        else:
            tasks, missing, reads = part_plans.aligned_tasks(judged, ranked, keep_missing)
            if not (shuffle and part_plans.is_scattered(reads, len(judged))):
                return Plan(run, qrels, tasks, 0 if keep_missing else missing)
            reason = f"{qrels.name} and {run.name} have their queries in different orders"
        (qrels, parts_q), (run, parts_r) = self.shuffled([qrels, run])
        tasks = [
            Task(number, ranked_part, judged_part, all_judgments=True)
            for number, (judged_part, ranked_part) in enumerate(zip(parts_q, parts_r, strict=True))
            if judged_part or ranked_part
        ]
        return Plan(run, qrels, tasks, 0, reason)

    def shuffled(self, tables: list[Table]) -> list[tuple[Table, list[Part]]]:
        """The tables, written again with the rows of each query in one part; the parts of all tables correspond."""
        buckets = math.ceil(max(table.rows for table in tables) / self.part_rows)
        result = []
        for table in tables:
            ranges, folder = table.ranges(self.part_rows), self.folder()
            paths = [f"{folder}/{number:09d}.parquet" for number in range(len(ranges))]
            write = partial(_shuffle_part, table, buckets, dict(zip(ranges, paths, strict=True)))
            counts = self.ordered_results("shuffling", write, ranges)
            parts = part_plans.bucket_parts(paths, counts)
            result.append((part_plans.shuffled_table(table, paths, counts), parts))
        return result


def _shuffle_part(table: Table, buckets: int, paths: Mapping[Part, str], part: Part) -> list[int]:
    return part_plans.shuffle_part(table, part, buckets, paths[part])


def _reason(table: Table, split: part_plans.SplitQuery, shuffle: bool) -> str:
    message = part_plans.split_message(table, split)
    if not shuffle:
        raise DataError(f"{message}: sort the table by query, or allow shuffling")
    return message


def check_source(source: Any) -> None:
    """Raise ArgumentError unless the source is a parquet file, or a table in parts."""
    is_path = isinstance(source, (str, PathLike))
    if not is_dask_frame(source) and not (is_path and str(source).rstrip("/").endswith(".parquet")):
        raise ArgumentError(
            "tables in parts must be parquet files or Dask DataFrames, both judgments and run, got "
            f"{source if is_path else type(source).__name__}"
        )


def _rows_of(part: Part) -> int:
    return sum(rows.count for rows in part)


def _describe_part(part: Part) -> str:
    return Task(0, part).describe()


@contextmanager
def open_work(
    cluster: Any, scratch: Any = None, part_rows: int | None = None, progress: Progress | None = None
) -> Iterator[PartWork]:
    """Workers for tables in parts: this process if ``cluster`` is None; see `rankbound.evaluate`.

    ``progress`` is called with rows; None reports them to whoever watches (`rankbound.io.watched_progress`).
    """
    rows = table_parts.ROWS if part_rows is None else part_rows
    if rows < 1:
        raise ArgumentError(f"part_rows must be at least 1, got {rows}")
    with ExitStack() as stack:
        client, is_local = stack.enter_context(_workers(cluster))
        yield PartWork(client, is_local, stack, scratch, rows, progress or report_progress)


@contextmanager
def _workers(cluster: Any) -> Iterator[tuple[Client | None, bool]]:
    """A client, or None for this process, and whether its workers are on this machine."""
    if cluster is None:
        yield None, True
    elif isinstance(cluster, str):
        with open_client(cluster) as (client, is_local):
            check_versions(client)
            yield client, is_local
    elif hasattr(cluster, "submit") and hasattr(cluster, "scheduler_info"):
        check_versions(cluster)
        yield cluster, False
    else:
        raise ArgumentError(
            f"cluster must be local:N, the address of a scheduler, or a client of Dask, got {type(cluster).__name__}"
        )
