"""Tables larger than memory, parquet files or TREC runs, read chunk by chunk, always complete queries.

The rows of a query must be adjacent, as they are in every run that was written query by query; `SplitQueryError` names
a query whose rows are not. The memory is that of one chunk, and of the judgments where they are not part of the table,
whatever the size of the file. `shuffled_run` writes a run again, divided by query, to a temporary folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rankbound.data.candidates import CandidateSource
from rankbound.data.frames import check_mark, find_columns, id_text, lists_from_frame, plain_type, polars_explained
from rankbound.data.judged import from_frames
from rankbound.data.part_work import open_work
from rankbound.data.table_parts import read_part
from rankbound.data.trec import run_frames
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Coverage, Lists

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ROWS", "RunChunks", "SplitQueryError", "scored_chunks", "shuffled_run"]

ROWS = 1_000_000  # read at once


class SplitQueryError(DataError):
    """Rows of a query are not adjacent; ``reason`` says which."""

    def __init__(self, path: str | PathLike[str], query: Any) -> None:
        self.reason = f"the rows of query {query!r} are not adjacent"
        super().__init__(f"{path}: {self.reason}: sort the table by query")


def scored_chunks(
    path: str | PathLike[str], rows: int | None = None, candidates: CandidateSource | None = None
) -> Iterator[Lists]:
    """Yield scored lists from a table with one row per item and the columns qid, label and score.

    The source of candidates may name a further column, which says which rows are candidates.
    """
    column = None if candidates is None else candidates.column
    if candidates is not None and candidates.table is not None:
        raise ArgumentError("a table of labels and scores has no documents; candidates must be a rule or column:NAME")
    for frame, _ in _complete_queries(path, _parquet_frames(path, ("qid", "label", "score"), rows, column)):
        yield lists_from_frame(frame, candidate=None if column is None else "candidate")


class RunChunks:
    """Iterate over the Lists of judgments in memory and a run with the columns qid, docid and score.

    Parameters
    ----------
    qrels:
        Judgments with the columns qid, docid and label.
    path:
        The parquet file of the run, or the name of the run if there are ``frames``.
    missing, judged_only, candidates:
        See `rankbound.data.judged`.
    rows:
        Rows of the parquet file to read at once.
    frames:
        Frames with the rows of the run, such as those of `run_frames` and `shuffled_run`.

    Attributes
    ----------
    coverage:
        How far judgments and run cover each other; known when the iteration has ended. (The Lists of a chunk know the
        coverage of that chunk only.)
    """

    def __init__(
        self,
        qrels: pl.DataFrame,
        path: str | PathLike[str],
        *,
        missing: str = "ignore",
        judged_only: bool = False,
        rows: int | None = None,
        candidates: CandidateSource | None = None,
        frames: Iterable[pl.DataFrame] | None = None,
    ) -> None:
        self._qrels, self._candidates = (candidates or CandidateSource()).take_column(qrels)
        self._path = path
        parquet = ("qid", "docid", "score")
        self._frames = _parquet_frames(path, parquet, rows) if frames is None else _with_last(frames)
        self._missing, self._judged_only = missing, judged_only
        self.coverage = Coverage()

    def __iter__(self) -> Iterator[Lists]:
        import polars as pl

        unseen, returned, shared, coverage = self._qrels, 0, 0, Coverage()
        for run, is_last in _complete_queries(self._path, self._frames):
            if run["qid"].dtype != unseen["qid"].dtype:
                unseen, run = (frame.with_columns(id_text(frame["qid"])) for frame in (unseen, run))
            queries = run["qid"].unique()
            is_here = unseen["qid"].is_in(queries.implode())
            judged, unseen = unseen.filter(is_here), unseen.filter(~is_here)
            returned, shared = returned + len(queries), shared + judged["qid"].n_unique()
            if is_last and (self._missing == "zero" or not shared):  # without a shared query, from_frames raises
                judged = pl.concat((judged, unseen))
            if len(judged):
                source = self._candidates.of_queries(judged["qid"].unique())
                lists = from_frames(
                    judged, run, missing=self._missing, judged_only=self._judged_only, disjoint=shared > 0,
                    candidates=source,
                )  # fmt: skip
                assert lists.coverage is not None
                coverage += lists.coverage
                yield lists
        missing = self._qrels["qid"].n_unique() - shared
        self.coverage = replace(coverage, missing_queries=missing, unjudged_queries=returned - shared)


@contextmanager
def shuffled_run(
    path: str | PathLike[str], scratch: str | PathLike[str] | None = None
) -> Iterator[Iterator[pl.DataFrame]]:
    """Yield the rows of a TREC run in frames of complete queries, whatever their order in the file.

    The rows are written to a temporary folder in ``scratch``, which needs about twice the disk space of the compressed
    run and disappears at the end.
    """
    with open_work(None, scratch) as work:
        folder = Path(work.folder())
        for number, frame in enumerate(run_frames(path)):
            frame.write_parquet(folder / f"{number:09d}.parquet")
        table = work.open(folder / "*.parquet", ("qid", "docid", "score"), None)
        ((table, parts),) = work.shuffled([table])
        yield (read_part(table, part).sort("qid", maintain_order=True) for part in parts if part)


def _complete_queries(
    path: str | PathLike[str], frames: Iterable[tuple[pl.DataFrame, bool]]
) -> Iterator[tuple[pl.DataFrame, bool]]:
    """Yield frames that divide the table between queries, and whether each is the last, from any frames of its rows."""
    import polars as pl

    left, seen = None, list[NDArray[np.uint64]]()
    for read, is_last in frames:
        frame = read if left is None else pl.concat((left, read))
        cut = len(frame) if is_last else _last_start(frame["qid"])
        left, frame = frame[cut:], frame[:cut]
        if len(frame) or is_last:
            _check_new(path, frame["qid"], seen)
            yield frame, is_last


def _with_last(frames: Iterable[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, bool]]:
    """Yield each frame, and whether it is the last."""
    before = None
    for frame in frames:
        if before is not None:
            yield before, False
        before = frame
    if before is not None:
        yield before, True


def _parquet_frames(
    path: str | PathLike[str], columns: tuple[str, ...], rows: int | None, candidate: str | None = None
) -> Iterator[tuple[pl.DataFrame, bool]]:
    """Yield some rows of a parquet file at a time, and whether they are the last; an empty frame if there are none."""
    import polars as pl

    rows = rows or ROWS
    with polars_explained(path):
        table = _columns(path, columns, candidate)
        total = int(table.select(pl.len()).collect().item())
        for start in range(0, max(total, 1), rows):
            frame = table.slice(start, rows).collect()
            if empty := frame["qid"].null_count():
                raise DataError(f"{path}: column 'qid' must be filled in every row, got {empty} empty")
            yield frame, start + rows >= total


def _columns(path: str | PathLike[str], columns: tuple[str, ...], candidate: str | None) -> pl.LazyFrame:
    """Return the columns of a file under rankbound's names, not yet read."""
    import polars as pl

    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    table = pl.scan_parquet(Path(path))
    schema = table.collect_schema()
    theirs = find_columns(schema.names(), {}, required=columns)
    chosen = [pl.col(theirs[name]).cast(plain_type(name, schema[theirs[name]])).alias(name) for name in columns]
    if candidate is not None:
        check_mark(candidate, schema)
        chosen.append(pl.col(candidate).alias("candidate"))
    return table.select(chosen)


def _last_start(qid: pl.Series) -> int:
    """Return the row at which the last query begins, which may continue in the next chunk."""
    others = (qid != qid[-1]).arg_true()
    return int(others[-1]) + 1 if len(others) else 0


def _check_new(path: str | PathLike[str], qid: pl.Series, seen: list[NDArray[np.uint64]]) -> None:
    """Raise DataError for a query that already ended in an earlier chunk.

    ``seen`` holds sorted hashes of the earlier queries, in arrays each longer than the next: an array that is not is
    merged with its successor, so that n queries cost O(n log n), however many chunks there are.
    """
    names = qid.unique()
    hashes = names.hash().to_numpy()
    order = np.argsort(hashes)
    new = hashes[order]
    for run in seen:
        again = run[np.searchsorted(run, new).clip(max=len(run) - 1)] == new
        if again.any():
            name = names[int(order[np.argmax(again)])]
            raise SplitQueryError(path, name)
    while seen and len(seen[-1]) <= len(new):
        new = np.sort(np.concatenate((seen.pop(), new)), kind="stable")  # merges two sorted arrays
    seen.append(new)
