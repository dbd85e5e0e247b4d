"""Evaluate tables in many parts, in this process or by the workers of a Dask cluster, with the same numbers.

A part holds whole queries. `evaluate_part`, a pure function, evaluates one and returns its `EvaluationSummary`; the
summaries are added, which gives the same bits for every division of the queries and every order of the parts.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.data import part_plans, table_parts
from rankbound.data.candidates import CandidateSource
from rankbound.data.frames import lists_from_frame
from rankbound.data.judged import from_frames, nothing_in_common
from rankbound.data.part_plans import Task
from rankbound.data.table_parts import Part, Survey, Table
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.lists import evaluate_lists
from rankbound.evaluation.result import Evaluation, concatenated
from rankbound.evaluation.summary import EvaluationSummary
from rankbound.io import atomic_write
from rankbound.lists import Coverage, Lists
from rankbound.measures import Measure, parse_measures
from rankbound.parallel import check_versions, open_client, results_of

if TYPE_CHECKING:
    import polars as pl

    from distributed import Client

__all__ = ["Progress", "Settings", "evaluate_frames", "evaluate_parts", "is_in_parts"]

Progress = Callable[[str, int, int], None]
"""Called with what is done ("planning", "shuffling", "evaluating"), and the rows that are done and all rows."""


def is_in_parts(source: Any) -> bool:
    """Whether a source is a table in parts: a pattern or folder of parquet files, or a Dask DataFrame."""
    return table_parts.is_pattern(source) or is_dask_frame(source)


def is_dask_frame(source: Any) -> bool:
    """Whether the source is a Dask DataFrame; Dask is not imported."""
    kind = type(source)
    return kind.__module__.split(".")[0].startswith("dask") and hasattr(kind, "to_parquet")


@dataclass(frozen=True)
class Settings:
    """How each part is evaluated: the options of `rankbound.evaluate`."""

    measures: tuple[str, ...]
    ties: str = "average"
    empty: str = "skip"
    missing: str = "ignore"
    judged_only: bool = False
    depth: int | None = None
    bounds: bool = False
    candidates: CandidateSource = CandidateSource()  # noqa: RUF009  # immutable


def evaluate_frames(qrels: pl.DataFrame | None, run: pl.DataFrame, settings: Settings) -> Evaluation:
    """Evaluate a partition of whole queries: judgments and a run, or a scored table if ``qrels`` is None.

    Either may have queries that the other lacks, even all of them: these are counted in the coverage.
    """
    if qrels is None:
        marked = "candidate" if settings.candidates.column is not None else None
        lists: Lists | None = lists_from_frame(run, candidate=marked) if len(run) else None
        coverage = Coverage()
    else:
        judged, source = settings.candidates.take_column(qrels)
        lists, coverage = _joined(judged, run, source, settings)
    if lists is None or len(lists) == 0:
        return Evaluation([], {}, {}, coverage=coverage)
    return evaluate_lists(
        lists, parse_measures(list(settings.measures)), ties=settings.ties, empty=settings.empty, depth=settings.depth,
        bounds=settings.bounds, candidates=settings.candidates.rule,
    )  # fmt: skip


def _joined(
    judged: pl.DataFrame, run: pl.DataFrame, source: CandidateSource, settings: Settings
) -> tuple[Lists | None, Coverage]:
    if len(judged) == 0:
        return None, Coverage(unjudged_queries=run["qid"].n_unique())
    if len(run) == 0 and settings.missing == "ignore":
        return None, Coverage(missing_queries=judged["qid"].n_unique())
    lists = from_frames(
        judged, run, missing=settings.missing, judged_only=settings.judged_only, disjoint=True,
        candidates=source.of_queries(judged["qid"].unique()),
    )  # fmt: skip
    assert lists.coverage is not None
    return lists, lists.coverage


@dataclass(frozen=True)
class _Job:
    """What every task of an evaluation shares."""

    settings: Settings
    run: Table
    qrels: Table | None = None
    folder: str | None = None
    """Where the values of each query are written, one file per task."""

    def evaluate_part(self, task: Task) -> EvaluationSummary:
        """Summarize the queries of a task, and write their values if there is a folder for them."""
        result = self.evaluate_values(task)
        if self.folder is not None and result.queries:
            with atomic_write(Path(self.folder) / f"{task.number:09d}.parquet", durable=False) as temporary:
                result.per_query.write_parquet(temporary)
        return result.summary

    def evaluate_values(self, task: Task) -> Evaluation:
        """Evaluate the queries of a task."""
        if self.qrels is None:
            qrels, run = None, table_parts.read_part(self.run, task.run)
        else:
            qrels, run = part_plans.read_task(task, self.qrels, self.run)
        try:
            return evaluate_frames(qrels, run, self.settings)
        except DataError as error:
            raise DataError(f"{task.describe()}: {error}") from error


def evaluate_parts(
    qrels: Any,
    run: Any,
    measures: Mapping[str, Measure],
    *,
    candidates: CandidateSource,
    cluster: Any = None,
    shuffle: bool = True,
    per_query: str | PathLike[str] | None = None,
    scratch: str | PathLike[str] | None = None,
    part_rows: int = table_parts.ROWS,
    progress: Progress | None = None,
    keep_values: bool = False,
    **options: Any,
) -> Evaluation | EvaluationSummary:
    """`rankbound.evaluate` of tables in parts; ``run`` is None for a table with labels and scores.

    With ``keep_values`` the result is an `Evaluation`, for which the values of all queries are held in memory.
    """
    if candidates.table is not None and run is None:
        raise ArgumentError("a table of labels and scores has no documents; candidates must be a rule or column:NAME")
    if part_rows < 1:
        raise ArgumentError(f"part_rows must be at least 1, got {part_rows}")
    if per_query is not None and not str(per_query).endswith(".parquet"):
        raise ArgumentError(f"per_query must be the path of a .parquet file, got {str(per_query)!r}")
    settings = Settings(tuple(measures), candidates=candidates, **options)
    with ExitStack() as stack:
        client, is_local = stack.enter_context(_workers(cluster))
        work = _Work(client, is_local, stack, scratch, part_rows, progress or (lambda *_: None))
        for source in (qrels,) if run is None else (qrels, run):
            _check_source(source)
        columns = ("qid", "docid", "score") if run is not None else ("qid", "label", "score")
        table = work.open(qrels if run is None else run, columns, candidates.column if run is None else None)
        judgments = None if run is None else work.open(qrels, ("qid", "docid", "label"), candidates.column)
        if judgments is not None and judgments.types[0] != table.types[0]:
            judgments, table = replace(judgments, text_ids=True), replace(table, text_ids=True)
        if table.rows == 0 or (judgments is not None and judgments.rows == 0):
            raise DataError(f"{(judgments or table).name}: there are no queries to evaluate")
        plan = work.plan_scored(table, shuffle) if judgments is None else work.plan(judgments, table, shuffle, settings)
        folder = None if per_query is None else stack.enter_context(_folder_beside(Path(per_query)))
        job = _Job(settings, plan.run, plan.qrels, folder)
        coverage, kept, summary = Coverage(missing_queries=plan.missing), [], EvaluationSummary()
        function = job.evaluate_values if keep_values else job.evaluate_part
        for part in work.results("evaluating", function, plan.tasks, Task.describe, _rows_of_task):
            coverage = coverage + part.coverage
            if keep_values:
                kept += [part] if part.queries else []
            else:
                summary = summary + part
        if judgments is not None and coverage.shared_queries == 0:
            raise nothing_in_common(*(work.first_query(source) for source in (judgments, table)))
        if folder is not None and per_query is not None:
            _write_per_query(Path(folder), Path(per_query))
    policy = {"candidates": candidates.name, "ties": settings.ties, "empty": settings.empty,
              "missing": settings.missing}  # fmt: skip
    if plan.shuffled:
        policy["shuffled"] = plan.shuffled
    if keep_values:
        return replace(concatenated(kept), coverage=coverage, policy=policy)
    return replace(
        summary, coverage=coverage, policy=policy, per_query_path=None if per_query is None else str(per_query)
    )


@dataclass(frozen=True)
class _Plan:
    run: Table
    qrels: Table | None
    tasks: list[Task]
    missing: int = 0
    """Judged queries that the run lacks and that no task counts."""
    shuffled: str = ""
    """Why the tables were shuffled, if they were."""


@dataclass
class _Work:
    """Workers, and the folder that they share for shuffled tables."""

    client: Client | None
    is_local: bool
    stack: ExitStack
    scratch: str | PathLike[str] | None
    part_rows: int
    progress: Progress

    def results(
        self, what: str, function: Callable[[Any], Any], items: Sequence[Any], describe: Callable[[Any], str],
        rows_of: Callable[[Any], int],
    ) -> Iterator[Any]:  # fmt: skip
        """Results in any order; the progress is reported in rows."""
        total, done = sum(map(rows_of, items)), 0
        for index, result in results_of(self.client, function, items, describe):
            done += rows_of(items[index])
            self.progress(what, done, total)
            yield result

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

    def plan_scored(self, table: Table, shuffle: bool) -> _Plan:
        """The plan for a table of labels and scores."""
        surveys = self.surveys(table, hashes=False)
        if not part_plans.is_ordered(surveys):
            surveys = self.surveys(table, hashes=True)
            if split := part_plans.find_split(surveys):
                reason = _reason(table, split, shuffle)
                ((table, parts),) = self.shuffled([table])
                return _Plan(table, None, [Task(n, part) for n, part in enumerate(parts) if part], 0, reason)
        return _Plan(table, None, [Task(number, found.part) for number, found in enumerate(surveys)])

    def plan(self, qrels: Table, run: Table, shuffle: bool, settings: Settings) -> _Plan:
        """The plan for judgments and a run."""
        tables = (qrels, run)
        judged, ranked = (self.surveys(table, hashes=False) for table in tables)
        if part_plans.is_ordered(judged) and part_plans.is_ordered(ranked):
            return _Plan(run, qrels, part_plans.ordered_tasks(judged, ranked))
        judged, ranked = (self.surveys(table, hashes=True) for table in tables)
        reason = ""
        for table, surveys in zip(tables, (judged, ranked), strict=True):
            if split := part_plans.find_split(surveys):
                reason = _reason(table, split, shuffle)
                break
        else:
            keep = settings.missing == "zero"
            tasks, missing, reads = part_plans.aligned_tasks(judged, ranked, keep)
            if not (shuffle and part_plans.is_scattered(reads, len(judged))):
                return _Plan(run, qrels, tasks, 0 if keep else missing)
            reason = f"{qrels.name} and {run.name} have their queries in different orders"
        (qrels, parts_q), (run, parts_r) = self.shuffled([qrels, run])
        tasks = [
            Task(number, ranked_part, judged_part, all_judgments=True)
            for number, (judged_part, ranked_part) in enumerate(zip(parts_q, parts_r, strict=True))
            if judged_part or ranked_part
        ]
        return _Plan(run, qrels, tasks, 0, reason)

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


def _check_source(source: Any) -> None:
    is_path = isinstance(source, (str, PathLike))
    if not is_dask_frame(source) and not (is_path and str(source).rstrip("/").endswith(".parquet")):
        raise ArgumentError(
            "tables in parts must be parquet files or Dask DataFrames, both judgments and run, got "
            f"{source if is_path else type(source).__name__}"
        )


def _rows_of(part: Part) -> int:
    return sum(rows.count for rows in part)


def _rows_of_task(task: Task) -> int:
    return _rows_of(task.run or task.judgments)


def _describe_part(part: Part) -> str:
    return Task(0, part).describe()


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


@contextmanager
def _folder_beside(path: Path) -> Iterator[str]:
    """A temporary folder in the folder of a file that is to be written, for the files of the parts."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent.absolute())
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_per_query(folder: Path, path: Path) -> None:
    """Write the values of all parts as one file, in the order of the parts, without holding them in memory."""
    import polars as pl

    scan = pl.scan_parquet(folder / "*.parquet")
    with atomic_write(path) as temporary:
        scan.sink_parquet(temporary)
