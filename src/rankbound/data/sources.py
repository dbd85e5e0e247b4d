"""Bring judgments and runs into one form, whatever they come as.

A source is a path (TREC, csv, parquet, JSON lines, JSON, a BEIR folder, LETOR for its labels, a folder of results for
its run), an id of ir_datasets ("irds:..."), ``{query: {document: number}}``, a table
(`rankbound.data.frames.is_table`), or a ``Qrels`` or ``Run`` of ranx. Objects of other packages are recognized by
their methods; none of these packages is imported here. Judgments can be held-out interactions, too
(`rankbound.data.held_out`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.data import frames, judged, trec
from rankbound.data.candidates import CandidateSource
from rankbound.data.held_out import held_out_judgments, is_held_out
from rankbound.data.ir_datasets import is_ir_dataset, read_ir_dataset
from rankbound.data.json_lines import is_json_lines, read_json_lines
from rankbound.data.letor import is_letor, read_text_judgments
from rankbound.data.result_files import find_run, is_json, is_result_folder, read_json
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists
from rankbound.protocol import MISSING

if TYPE_CHECKING:
    import polars as pl

LARGE_TEXT = 32 << 20  # bytes of a TREC file on disk, compressed or not, from which on it is read in chunks


def to_lists(
    qrels: Any,
    run: Any,
    *,
    missing: str = MISSING[0],
    judged_only: bool = False,
    keep_ids: bool = True,
    candidates: CandidateSource | None = None,
) -> Lists:
    """Bring judgments and a run together, whatever they come as."""
    source = candidates or CandidateSource()
    policy: dict[str, Any] = {"missing": missing, "judged_only": judged_only}
    qrels, run = _opened(qrels, "qrels"), _opened(run, "run")
    if source.is_rule and isinstance(qrels, Mapping) and isinstance(run, Mapping):
        return Lists.from_dicts(qrels, run, keep_ids=keep_ids, **policy)
    if source.column is None and _is_text(qrels) and _is_text(run) and not (_is_folder(qrels) or is_letor(qrels)):
        return trec.lists_from_trec(qrels, run, candidates=source, **policy)
    judgments, source = source.take_column(to_frame(qrels, "label", column=source.column))
    nothing = queries_without_documents(run)
    ranked = to_frame(run, "score")
    return judged.from_frames(
        judgments, ranked, keep_ids=keep_ids, candidates=source, returned_nothing=nothing, **policy
    )


def chunks_of_lists(qrels: Any, run: Any, *, candidates: CandidateSource, **policy: Any) -> Iterator[Lists]:
    """Yield what `to_lists` returns, dicts in parts; the policies are those of `to_lists`."""
    qrels, run = _opened(qrels, "qrels"), _opened(run, "run")
    if candidates.is_rule and isinstance(qrels, Mapping) and isinstance(run, Mapping):
        yield from judged.dict_chunks(qrels, run, **policy)
    else:
        yield to_lists(qrels, run, candidates=candidates, **policy)


def queries_without_documents(run: Any) -> list[str]:
    """The queries for which a run, a dict or JSON, returned nothing; other forms cannot say so.

    >>> queries_without_documents({"q1": {"a": 0.5}, "q2": {}})
    ['q2']
    """
    run = _opened(run, "run") if can_be_dict(run) else run
    return [str(query) for query, documents in run.items() if not documents] if isinstance(run, Mapping) else []


def can_be_dict(source: Any) -> bool:
    """Whether the source is a path that may be read as a dict: JSON lines, JSON, or a folder of results.

    >>> can_be_dict("golden.jsonl"), can_be_dict("run.json"), can_be_dict("run.txt")
    (True, True, False)
    """
    return is_json_lines(source) or is_json(source) or is_result_folder(source)


def is_parquet(source: Any) -> bool:
    """Whether the source is the path of a parquet file."""
    return isinstance(source, (str, PathLike)) and str(source).endswith(".parquet")


def is_large_text(source: Any) -> bool:
    """Whether the source is the path of a TREC file that should not be held in memory as a whole.

    >>> is_large_text("-"), is_large_text("missing.txt")
    (False, False)
    """
    return _is_text(source) and Path(source).is_file() and Path(source).stat().st_size >= LARGE_TEXT


def is_source(source: Any) -> bool:
    """Whether the source can be judgments or a run of its own: a path, a table, or an object of ranx.

    Dicts are not decided here: ``{query: {document: number}}`` looks like runs by name.
    """
    return isinstance(source, (str, PathLike)) or frames.is_table(source) or _is_ranx(source)


def _is_ranx(source: Any) -> bool:
    return hasattr(source, "to_dict") and hasattr(source, "get_doc_ids_and_scores")


def _opened(source: Any, side: str) -> Any:
    """The source with dicts in place of ranx objects and JSON, whose queries may be without documents.

    A folder of results is the run in it.
    """
    if side != "qrels" and is_result_folder(source):
        source = find_run(source)
    if is_json_lines(source):
        return read_json_lines(source, "label" if side == "qrels" else "score")
    if is_json(source):
        return read_json(source, "label" if side == "qrels" else "score")
    return source.to_dict() if _is_ranx(source) else source


def _is_text(source: Any) -> bool:
    """Whether the source is the path of a TREC file, or of a folder."""
    is_path = isinstance(source, (str, PathLike)) and not is_ir_dataset(source)
    return is_path and not (frames.is_table_path(source) or is_json_lines(source) or is_json(source))


def _is_folder(source: Any) -> bool:
    return _is_text(source) and str(source) != "-" and Path(source).is_dir()


def to_frame(source: Any, number: str, column: str | None = None) -> pl.DataFrame:
    """A frame with qid, docid and ``number`` (label or score), from any source.

    ``column`` names a further column, which marks candidates; the result has it as ``candidate``.
    """
    import polars as pl

    source = _opened(source, "qrels" if number == "label" else "a run")
    if column is not None and (isinstance(source, Mapping) or _is_text(source) or is_ir_dataset(source)):
        raise ArgumentError(f"candidates='column:{column}' needs judgments in a frame, a csv or a parquet file")
    if isinstance(source, Mapping):
        judged.check_dicts(**{f"a dict of {number}s": source})
        rows = [(q, d, value) for q, documents in source.items() for d, value in documents.items()]
        if not rows:
            return pl.DataFrame(schema={"qid": pl.String, "docid": pl.String, number: pl.Float64})
        try:
            return pl.DataFrame(rows, schema=["qid", "docid", number], orient="row")
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise DataError(f"a dict of {number}s must have ids and numbers of one kind each, got: {error}") from error
    if number == "label" and _is_folder(source):
        from rankbound.data.beir import read_judgments

        return read_judgments(source)
    if _is_text(source):
        return read_text_judgments(source) if number == "label" else trec.read_run(source)
    if is_ir_dataset(source):
        data = read_ir_dataset(source)
        return data.qrels if number == "label" else data.run
    if number == "label" and column is None and is_held_out(source):
        return held_out_judgments(source)
    frame = frames.as_polars(source)
    if number == "score":
        frame = _scored_by_rank(frame)
    table = frames.rename_columns(frame, {}, required=("qid", "docid", number), source=source)
    if column is None:
        return table
    frames.check_mark(column, frame.schema)
    return table.with_columns(frame[column].fill_null(value=False).alias("candidate"))


def _scored_by_rank(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with scores that follow from its ranks, if it has ranks and no scores."""
    if "rank" not in frame.columns or not frame["rank"].dtype.is_numeric():
        return frame
    if any(name in frame.columns for name in frames.COLUMN_NAMES["score"]):
        return frame
    return frame.with_columns(score=-frame["rank"].cast(float))
