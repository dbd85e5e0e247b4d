"""Evaluate tables in many parts, in this process or by the workers of a Dask cluster, with the same numbers.

A part holds whole queries. `evaluate_part`, a pure function, evaluates one and returns its `EvaluationSummary`; the
summaries are added, which gives the same bits for every division of the queries and every order of the parts.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.data import part_plans, table_parts
from rankbound.data.candidates import CandidateSource
from rankbound.data.frames import lists_from_frame
from rankbound.data.judged import from_frames, nothing_in_common
from rankbound.data.part_plans import Task
from rankbound.data.part_work import check_source, open_work
from rankbound.data.table_parts import Table
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.lists import evaluate_lists
from rankbound.evaluation.result import Evaluation, concatenated
from rankbound.evaluation.summary import EvaluationSummary
from rankbound.io import Progress, atomic_write
from rankbound.lists import Coverage, Lists
from rankbound.measures import Measure, parse_measures

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Settings", "evaluate_frames", "evaluate_parts"]


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
    part_rows: int | None = None,
    progress: Progress | None = None,
    keep_values: bool = False,
    **options: Any,
) -> Evaluation | EvaluationSummary:
    """`rankbound.evaluate` of tables in parts; ``run`` is None for a table with labels and scores.

    With ``keep_values`` the result is an `Evaluation`, for which the values of all queries are held in memory.
    """
    if candidates.table is not None and run is None:
        raise ArgumentError("a table of labels and scores has no documents; candidates must be a rule or column:NAME")
    if per_query is not None and not str(per_query).endswith(".parquet"):
        raise ArgumentError(f"per_query must be the path of a .parquet file, got {str(per_query)!r}")
    settings = Settings(tuple(measures), candidates=candidates, **options)
    with ExitStack() as stack:
        for source in (qrels,) if run is None else (qrels, run):
            check_source(source)
        work = stack.enter_context(open_work(cluster, scratch, part_rows, progress))
        columns = ("qid", "docid", "score") if run is not None else ("qid", "label", "score")
        table = work.open(qrels if run is None else run, columns, candidates.column if run is None else None)
        judgments = None if run is None else work.open(qrels, ("qid", "docid", "label"), candidates.column)
        if judgments is not None and judgments.types[0] != table.types[0]:
            judgments, table = replace(judgments, text_ids=True), replace(table, text_ids=True)
        if table.rows == 0 or (judgments is not None and judgments.rows == 0):
            raise DataError(f"{(judgments or table).name}: there are no queries to evaluate")
        plan = (
            work.plan_scored(table, shuffle)
            if judgments is None
            else work.plan(judgments, table, shuffle, settings.missing == "zero")
        )
        folder = None if per_query is None else stack.enter_context(_folder_beside(Path(per_query)))
        job = _Job(settings, plan.run, plan.qrels, folder)
        coverages, summary = dict[int, Coverage](), EvaluationSummary()
        kept: dict[int, Evaluation] = {}
        function = job.evaluate_values if keep_values else job.evaluate_part
        for index, part in work.results("evaluating", function, plan.tasks):
            coverages[index] = part.coverage
            if not keep_values:
                summary = summary + part
            elif part.queries:
                kept[index] = part
        in_order = [coverages[index] for index in sorted(coverages)]  # whose first document ids a warning names
        coverage = sum(in_order, Coverage(missing_queries=plan.missing))
        if judgments is not None and coverage.shared_queries == 0:
            raise nothing_in_common(*(work.first_query(source) for source in (judgments, table)))
        if folder is not None and per_query is not None:
            _write_per_query(Path(folder), Path(per_query))
    policy = {"candidates": candidates.name, "ties": settings.ties, "empty": settings.empty,
              "missing": settings.missing}  # fmt: skip
    if plan.shuffled:
        policy["shuffled"] = plan.shuffled
    if keep_values:
        return replace(concatenated([kept[index] for index in sorted(kept)]), coverage=coverage, policy=policy)
    return replace(
        summary, coverage=coverage, policy=policy, per_query_path=None if per_query is None else str(per_query)
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
