"""Plans: which rows of judgments belong to which rows of a run, where both are tables in many parts.

If both tables are sorted by query id, the first query of each part of the run divides the queries, and judgments are
found by their range. Otherwise hashes of the query ids say which parts hold which queries; these take 8 bytes per query
and table where the plan is made. Where the rows of a query are not adjacent, or the tables have their queries
in very different orders, both are shuffled first: written again, divided by the hashes of the query ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rankbound.data.table_parts import Part, Rows, Survey, Table, empty_frame, query_hashes, read_part
from rankbound.io import atomic_write

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "SplitQuery",
    "Task",
    "aligned_tasks",
    "bucket_parts",
    "find_split",
    "is_ordered",
    "ordered_tasks",
    "read_task",
    "shuffle_part",
    "split_message",
]

_READS = 4  # times that a part of the judgments may be read, on average, before shuffling is faster


@dataclass(frozen=True, eq=False)
class Task:
    """The rows of a run, or of a scored table, to evaluate together, and where their judgments are.

    Of the parts of the judgments, those queries count that are in the part of the run, or that lie between ``low`` and
    ``high`` (which is excluded), or whose hashes are ``only``. None of these is needed if ``all_judgments`` is True.
    """

    number: int
    run: Part
    judgments: Part = ()
    low: Any = None
    high: Any = None
    only: NDArray[np.uint64] | None = None
    by_range: bool = False
    all_judgments: bool = False

    def describe(self) -> str:
        """The rows, for messages."""
        rows = (self.run or self.judgments)[0]
        return f"{rows.path}, rows {rows.start + 1:,} to {rows.start + rows.count:,}"


def read_task(task: Task, qrels: Table, run: Table) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The judgments and the rows of the run of a task."""
    import polars as pl

    ranked = read_part(run, task.run) if task.run else empty_frame(run)
    if not task.judgments:
        return empty_frame(qrels), ranked
    if task.by_range:
        parts = [_rows_between(qrels, rows, task.low, task.high) for rows in task.judgments]
        judged = [read_part(qrels, (rows,)) for rows in parts if rows.count]
        return pl.concat(judged) if judged else empty_frame(qrels), ranked
    judgments = read_part(qrels, task.judgments)
    if task.only is not None:
        judgments = judgments.filter(pl.Series(np.isin(query_hashes(judgments["qid"]), task.only)))
    elif not task.all_judgments:
        judgments = judgments.filter(judgments["qid"].is_in(ranked["qid"].unique().implode()))
    return judgments, ranked


def _rows_between(table: Table, rows: Rows, low: Any, high: Any) -> Rows:
    """The rows of a sorted range whose query ids lie between two."""
    qid = read_part(table, (rows,), ("qid",))["qid"]
    start = 0 if low is None else int(qid.search_sorted(low, side="left"))
    end = len(qid) if high is None else int(qid.search_sorted(high, side="left"))
    return replace(rows, start=rows.start + start, count=max(0, end - start))


# ---- sorted tables ---------------------------------------------------------------------------------------------------


def is_ordered(surveys: Sequence[Survey]) -> bool:
    """Whether the whole table is sorted by query id, in the order of its files."""
    return all(found.ascending for found in surveys) and all(
        before.last < after.first for before, after in pairwise(surveys)
    )


def ordered_tasks(qrels: Sequence[Survey], run: Sequence[Survey]) -> list[Task]:
    """Tasks of sorted tables: each part of the run with the judgments up to the first query of the next part."""
    tasks = []
    for number, found in enumerate(run):
        low = found.first if number else None
        high = run[number + 1].first if number + 1 < len(run) else None
        judgments = tuple(
            rows
            for part in qrels
            if (low is None or part.last >= low) and (high is None or part.first < high)
            for rows in part.part
        )
        tasks.append(Task(number, found.part, judgments, low, high, by_range=True))
    return tasks


# ---- tables that are not sorted --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitQuery:
    """A query whose rows are in two parts of a table that are not adjacent."""

    hash: int
    first: Part
    second: Part


def find_split(surveys: Sequence[Survey]) -> SplitQuery | None:
    """A query that is in more than one part, or None; the surveys must have hashes."""
    hashes, owner = _owners(surveys)
    twice = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(twice):
        return None
    at = int(twice[0])
    first, second = sorted((int(owner[at]), int(owner[at + 1])))
    return SplitQuery(int(hashes[at]), surveys[first].part, surveys[second].part)


def split_message(table: Table, split: SplitQuery) -> str:
    """Which query is split over which files."""
    qid = read_part(table, split.first, ("qid",))["qid"]
    name = qid.filter(qid.hash() == split.hash)[0]
    files = [f"{part[0].path} (rows {part[0].start + 1:,} to {part[-1].start + part[-1].count:,})"
             for part in (split.first, split.second)]  # fmt: skip
    return f"the rows of query {name!r} are split over {files[0]} and {files[1]}"


def aligned_tasks(qrels: Sequence[Survey], run: Sequence[Survey], keep_missing: bool) -> tuple[list[Task], int, float]:
    """Tasks of tables in which no query is split, by hashes of the query ids.

    Returns also how many judged queries are not in the run, and how often a part of the judgments is read on average.
    With ``keep_missing`` there are tasks for the judged queries that the run lacks.
    """
    hashes, owner = _owners(qrels)
    tasks, is_ranked, reads = [], np.zeros(len(hashes), dtype=bool), 0
    for number, found in enumerate(run):
        assert found.hashes is not None
        at = np.searchsorted(hashes, found.hashes).clip(max=len(hashes) - 1)
        at = at[hashes[at] == found.hashes]
        is_ranked[at] = True
        parts = np.unique(owner[at]).tolist()
        reads += len(parts)
        tasks.append(Task(number, found.part, tuple(rows for part in parts for rows in qrels[part].part)))
    missing = np.flatnonzero(~is_ranked)
    if keep_missing:
        for part in np.unique(owner[missing]).tolist():
            only = np.sort(hashes[missing[owner[missing] == part]])
            tasks.append(Task(len(tasks), (), qrels[part].part, only=only))
    return tasks, len(missing), reads / len(qrels)


def is_scattered(reads: float, parts: int) -> bool:
    """Whether shuffling is faster than reading the parts of the judgments so often."""
    return parts > _READS and reads > _READS


def _owners(surveys: Sequence[Survey]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The sorted hashes of all queries, and the index of the part that each is in."""
    known = [found.hashes for found in surveys if found.hashes is not None]
    hashes = np.concatenate(known)
    owner = np.repeat(np.arange(len(known)), list(map(len, known)))
    order = np.argsort(hashes, kind="stable")
    return hashes[order], owner[order]


# ---- shuffling -------------------------------------------------------------------------------------------------------


def shuffle_part(table: Table, part: Part, buckets: int, path: str) -> list[int]:
    """Write the rows of a part sorted by the bucket of their query, and return how many are in each bucket."""
    import polars as pl

    frame = read_part(table, part)
    bucket = (query_hashes(frame["qid"]) % np.uint64(buckets)).astype(np.int64)
    counts = np.bincount(bucket, minlength=buckets)
    frame = frame.select(pl.all().gather(np.argsort(bucket, kind="stable")))
    with atomic_write(path, durable=False) as temporary:
        frame.write_parquet(temporary, row_group_size=max(1_000, len(frame) // buckets))
    return [int(count) for count in counts]


def bucket_parts(paths: Sequence[str], counts: Sequence[Sequence[int]]) -> list[Part]:
    """The part of each bucket in the files that `shuffle_part` wrote."""
    starts = np.cumsum(np.asarray(counts, np.int64).reshape(len(paths), -1), axis=1)
    return [
        tuple(
            Rows(path, int(ends[bucket]) - rows[bucket], rows[bucket])
            for path, rows, ends in zip(paths, counts, starts, strict=True)
            if rows[bucket]
        )
        for bucket in range(starts.shape[1])
    ]


def shuffled_table(table: Table, paths: Sequence[str], counts: Sequence[Sequence[int]]) -> Table:
    """The table that the files of `shuffle_part` make up."""
    files = tuple((path, sum(rows)) for path, rows in zip(paths, counts, strict=True))
    marked = None if table.candidate is None else "candidate"
    return replace(table, files=files, candidate=marked, text_ids=False)
