"""Tables that do not fit memory: parquet files read a few million rows at a time, always whole queries.

The rows of a query must stand together, as they do in every run that was written query by query. Memory is that of one
chunk (and of the judgments, where they come apart from the run), whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rankbound.data.frames import find_columns, lists_from_frame, plain_type, polars_explained
from rankbound.data.judged import from_frames
from rankbound.errors import DataError
from rankbound.lists import Lists

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ROWS", "queries_of", "run_chunks", "scored_chunks"]

ROWS = 4_000_000  # read at once


def scored_chunks(path: str | PathLike[str], rows: int | None = None) -> Iterator[Lists]:
    """Scored lists from a table with a row per item: qid, label and score."""
    for frame, _ in _whole_queries(path, ("qid", "label", "score"), rows):
        yield lists_from_frame(frame)


def run_chunks(
    qrels: pl.DataFrame,
    path: str | PathLike[str],
    *,
    missing: str = "ignore",
    judged_only: bool = False,
    rows: int | None = None,
) -> Iterator[Lists]:
    """Lists from judgments in memory and a run in a file: qid, docid and score; see `rankbound.data.judged`."""
    import polars as pl

    unseen, some = qrels, False
    for run, is_last in _whole_queries(path, ("qid", "docid", "score"), rows):
        if run["qid"].dtype != qrels["qid"].dtype:
            unseen, run = (frame.with_columns(pl.col("qid").cast(pl.String)) for frame in (unseen, run))
        here = unseen["qid"].is_in(run["qid"].unique().implode())
        mine, unseen = unseen.filter(here), unseen.filter(~here)
        if is_last and missing == "zero":
            mine = pl.concat((mine, unseen))
        if here.any() or (is_last and not some):  # a run that shares no query with the judgments is refused there
            some = True
            yield from_frames(mine if here.any() else unseen, run, missing=missing, judged_only=judged_only)


def queries_of(path: str | PathLike[str]) -> pl.Series:
    """The queries of a file."""
    with polars_explained(path):
        return _columns(path, ("qid",)).unique().collect()["qid"]


def _whole_queries(
    path: str | PathLike[str], columns: tuple[str, ...], rows: int | None
) -> Iterator[tuple[pl.DataFrame, bool]]:
    """Frames that cut the table between queries, and whether each is the last."""
    import polars as pl

    rows = rows or ROWS
    with polars_explained(path):
        table = _columns(path, columns)
        total = int(table.select(pl.len()).collect().item())
        left, seen = None, list[NDArray[np.uint64]]()
        for start in range(0, max(total, 1), rows):
            frame = table.slice(start, rows).collect()
            if frame["qid"].null_count():
                raise DataError(
                    f"{path}: column 'qid' must be filled in every row, got {frame['qid'].null_count()} empty"
                )
            frame = frame if left is None else pl.concat((left, frame))
            is_last = start + rows >= total
            cut = len(frame) if is_last else _last_start(frame["qid"])
            left, frame = frame[cut:], frame[:cut]
            if len(frame) or is_last:
                _check_new(path, frame["qid"], seen)
                yield frame, is_last


def _columns(path: str | PathLike[str], columns: tuple[str, ...]) -> pl.LazyFrame:
    """The columns of a file under our names, not yet read."""
    import polars as pl

    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    table = pl.scan_parquet(Path(path))
    schema = table.collect_schema()
    theirs = find_columns(schema.names(), {}, required=columns)
    return table.select(
        [pl.col(theirs[name]).cast(plain_type(name, schema[theirs[name]])).alias(name) for name in columns]
    )


def _last_start(qid: pl.Series) -> int:
    """Where the last query begins: it may go on in the next chunk."""
    others = (qid != qid[-1]).arg_true()
    return int(others[-1]) + 1 if len(others) else 0


def _check_new(path: str | PathLike[str], qid: pl.Series, seen: list[NDArray[np.uint64]]) -> None:
    """Refuse a query that had come to its end before.

    ``seen`` holds sorted hashes of the queries so far, in runs each longer than the next: one that is not is merged
    with it, so that a file of n queries costs O(n log n), however many chunks it comes in.
    """
    names = qid.unique()
    hashes = names.hash().to_numpy()
    order = np.argsort(hashes)
    new = hashes[order]
    for run in seen:
        again = run[np.searchsorted(run, new).clip(max=len(run) - 1)] == new
        if again.any():
            name = names[int(order[np.argmax(again)])]
            raise DataError(f"{path}: the rows of query {name!r} do not stand together: sort the table by query")
    while seen and len(seen[-1]) <= len(new):
        new = np.sort(np.concatenate((seen.pop(), new)), kind="stable")  # merges what is sorted already
    seen.append(new)
