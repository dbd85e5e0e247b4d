"""Bring judgments and runs into one form, whatever they come as: paths, dicts, frames."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from rankbound.data import frames, judged, trec
from rankbound.data.candidates import CandidateSource
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists, check_dicts

if TYPE_CHECKING:
    import polars as pl

__all__ = ["is_parquet", "to_frame", "to_lists"]


def to_lists(
    qrels: Any,
    run: Any,
    *,
    missing: str = "ignore",
    judged_only: bool = False,
    keep_ids: bool = True,
    candidates: CandidateSource | None = None,
) -> Lists:
    """Bring judgments and a run together, whatever they come as."""
    source = candidates or CandidateSource()
    policy: dict[str, Any] = {"missing": missing, "judged_only": judged_only}
    if source.is_rule and isinstance(qrels, Mapping) and isinstance(run, Mapping):
        return Lists.from_dicts(qrels, run, keep_ids=keep_ids, **policy)
    if source.column is None and _is_trec(qrels) and _is_trec(run):
        return trec.lists_from_trec(qrels, run, candidates=source, **policy)
    judgments, source = source.take_column(to_frame(qrels, "label", column=source.column))
    return judged.from_frames(judgments, to_frame(run, "score"), candidates=source, **policy)


def is_parquet(source: Any) -> bool:
    """Whether the source is the path of a parquet file."""
    return isinstance(source, (str, PathLike)) and str(source).endswith(".parquet")


def _is_trec(source: Any) -> bool:
    return isinstance(source, (str, PathLike)) and not str(source).endswith((".parquet", ".csv", ".tsv"))


def to_frame(source: Any, number: str, column: str | None = None) -> pl.DataFrame:
    """A frame with qid, docid and ``number`` (label or score): from a dict, a TREC file, or any frame.

    ``column`` names a further column, which marks candidates; the result has it as ``candidate``.
    """
    import polars as pl

    if column is not None and (isinstance(source, Mapping) or _is_trec(source)):
        raise ArgumentError(f"candidates='column:{column}' needs judgments in a frame, a csv or a parquet file")
    if isinstance(source, Mapping):
        check_dicts(**{f"a dict of {number}s": source})
        rows = [(q, d, value) for q, documents in source.items() for d, value in documents.items()]
        try:
            return pl.DataFrame(rows, schema=["qid", "docid", number], orient="row")
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise DataError(f"a dict of {number}s must have ids and numbers of one kind each, got: {error}") from error
    if _is_trec(source):
        return trec.read_qrels(source) if number == "label" else trec.read_run(source)
    frame = frames.as_polars(source)
    table = frames.rename_columns(frame, {}, required=("qid", "docid", number))
    if column is None:
        return table
    frames.check_mark(column, frame.schema)
    return table.with_columns(frame[column].fill_null(value=False).alias("candidate"))
