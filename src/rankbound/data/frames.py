"""Read tables: polars and pandas frames, Arrow tables, Hugging Face data sets, and parquet and csv files.

Ids of different types are compared as text (`id_text`): 7 and "7" are the same document, "007" is another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.csv_text import base_name, is_csv, is_no_number, read_csv, refuse_entry
from rankbound.errors import DataError
from rankbound.io import read_bytes
from rankbound.lists import Lists

if TYPE_CHECKING:
    import polars as pl

# names that a column may have: ours, those of ir_measures, PyTerrier, ranx and BEIR, and common ones
COLUMN_NAMES = {
    "qid": ("qid", "query_id", "q_id", "query-id", "query", "user", "user_id"),
    "docid": ("docid", "doc_id", "docno", "corpus-id", "document", "item", "item_id"),
    "label": ("label", "relevance", "rel", "score_label", "rating"),
    "score": ("score", "prediction", "sim"),
}
_IDS = {*COLUMN_NAMES["qid"], *COLUMN_NAMES["docid"]}
_NUMBERS = {*COLUMN_NAMES["label"], *COLUMN_NAMES["score"]}
_KNOWN = _IDS | _NUMBERS
_BEIR_IDS = ("query-id", "corpus-id")  # columns of BEIR's judgments, which call the label "score"


def polars_failures() -> tuple[type[BaseException], ...]:
    """Return what polars raises for damaged files: its errors, panics of its native code, and OSError."""
    import polars as pl

    return pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError


@contextmanager
def polars_explained(path: str | PathLike[str]) -> Iterator[None]:
    """Turn what polars raises for a damaged file into a DataError that names the file."""
    try:
        yield
    except polars_failures() as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path}: cannot be read: {reason}") from error


def as_polars(frame: Any) -> pl.DataFrame:
    """Return a polars frame from any table that `is_table` recognizes, or from a parquet or csv path."""
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, (str, PathLike)):
        return read_frame(frame)
    if hasattr(frame, "to_numpy") and hasattr(frame, "columns"):  # pandas; by column, without pyarrow
        names = [str(name) for name in frame.columns]
        twice = next((name for name in names if names.count(name) > 1 and name in _KNOWN), None)
        if twice is not None:
            raise DataError(f"a column must occur once in a frame, got {twice!r} {names.count(twice)} times")
        return pl.DataFrame({str(name): frame[name].to_numpy() for name in frame.columns})
    if _is_hugging_face(frame):
        frame = frame.with_format("arrow")[:]  # with the rows that select, filter or shuffle have chosen
    if hasattr(frame, "__arrow_c_stream__"):
        try:
            return pl.DataFrame(frame)
        except pl.exceptions.DuplicateError as error:
            raise DataError(f"a column must occur once in a table, got: {error}") from error
    raise DataError(f"expected a polars or pandas frame, an Arrow table or a path, got {type(frame).__name__}")


def is_table(source: object) -> bool:
    """Whether the source is a table in memory: a polars or pandas frame, an Arrow table, a Hugging Face data set.

    They are recognized by their methods, so that none of the packages is imported.

    >>> is_table([1, 2]), is_table("table.csv")
    (False, False)
    """
    kind = type(source)  # whose attributes can be looked up without computing them, as lazy frames would
    return hasattr(kind, "columns") or hasattr(kind, "__arrow_c_stream__") or _is_hugging_face(source)


def _is_hugging_face(source: object) -> bool:
    return all(hasattr(type(source), name) for name in ("column_names", "with_format", "__getitem__"))


def is_table_path(path: str | PathLike[str]) -> bool:
    """Whether a path names a parquet, csv or tsv file, compressed or not.

    >>> [is_table_path(name) for name in ("run.csv", "run.csv.gz", "run.txt.gz")]
    [True, True, False]
    """
    return is_csv(path) or base_name(path).endswith(".parquet")


def read_frame(path: str | PathLike[str], names: Collection[str] = ()) -> pl.DataFrame:
    """Read a parquet or csv file, compressed or not; ``names`` are further names of columns of ids."""
    import polars as pl

    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    with polars_explained(path):
        if is_csv(path):
            return read_csv(path, {*_IDS, *names}, _NUMBERS)
        if str(path).lower().endswith(".parquet"):
            return pl.read_parquet(Path(path))
        if is_table_path(path):
            return pl.read_parquet(read_bytes(path))
    raise DataError(f"{path}: expected a .parquet, .csv or .tsv file")


def rename_columns(
    frame: pl.DataFrame, names: dict[str, str | None], required: tuple[str, ...], source: object = None
) -> pl.DataFrame:
    """Return the known columns under rankbound's names; ``names`` maps them where the usual names do not apply.

    Raises DataError where a required label or score is a word, NaN or infinite; ``source`` is the path that it names.
    """
    columns = find_columns(frame.columns, names, required)
    for ours in ("label", "score"):
        if ours in required:
            _check_numbers(frame[columns[ours]], ours, source)
    return frame.select(
        [frame[theirs].cast(plain_type(ours, frame.schema[theirs])).alias(ours) for ours, theirs in columns.items()]
    )


def _check_numbers(column: pl.Series, name: str, source: object) -> None:
    """Raise DataError unless a column holds finite numbers; empty entries are left to others."""
    kind = column.dtype
    is_word = kind.base_type().__name__ == "String"
    if not is_word and (not kind.is_float() or column.is_finite().all()):
        return
    path = source if isinstance(source, (str, PathLike)) else None
    where = "" if path is None else f"{path}: "
    if path is not None and is_csv(path):
        refuse_entry(path, [column.name], is_no_number, "must be a finite number")
    if is_word:
        raise DataError(f"{where}column {name!r} must hold numbers, got {kind}")
    row = int((~column.is_finite()).arg_true()[0])
    raise DataError(f"{where}column {name!r} must hold finite numbers, got {column[row]} in row {row + 1}")


def check_mark(column: str, schema: Mapping[str, pl.DataType]) -> None:
    """Raise DataError unless the schema has this column and it holds true and false."""
    import polars as pl

    if column not in schema:
        raise DataError(f"no column {column!r} for candidates; the columns are {', '.join(schema)}")
    if schema[column] != pl.Boolean:
        raise DataError(f"column {column!r} must hold true or false to mark candidates, got {schema[column]}")


def plain_type(name: str, kind: pl.DataType) -> pl.DataType | type[pl.DataType]:
    """Return the type that a column is cast to: a type of NumPy or text, and numbers for labels and scores."""
    import polars as pl

    if kind.is_nested() or kind in (pl.Binary, pl.Object):
        raise DataError(f"column {name!r} must hold numbers or text, got {kind}")
    if kind.is_float() or kind in (pl.String, pl.Null) or (kind.is_integer() and kind not in (pl.Int128, pl.UInt128)):
        return kind
    if name in ("label", "score"):
        return pl.Float64 if kind.is_numeric() or kind == pl.Boolean else kind
    return pl.String


def find_columns(present: list[str], names: dict[str, str | None], required: tuple[str, ...]) -> dict[str, str]:
    """Return the table's own names of the columns that rankbound knows.

    In a table with BEIR's names of ids, the column "score" holds the labels where labels are required and scores not.
    """
    columns: dict[str, str] = {}
    known = COLUMN_NAMES
    if "label" in required and "score" not in required and set(_BEIR_IDS) <= set(present):
        known = COLUMN_NAMES | {"label": (*COLUMN_NAMES["label"], "score"), "score": COLUMN_NAMES["score"][1:]}
    for ours, usual in known.items():
        chosen = names.get(ours)
        if chosen is not None and chosen not in present:
            raise DataError(f"no column {chosen!r} for {ours}; the columns are {', '.join(present)}")
        theirs = chosen or next((name for name in usual if name in present), None)
        if theirs is not None:
            columns[ours] = theirs
        elif ours in required:
            raise DataError(f"no column for {ours} ({', '.join(usual)}); the columns are {', '.join(present)}")
    return columns


def with_equal_id_types(tables: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Return the frames with query and document ids of one type: unchanged where they agree, else as text."""
    tables = list(tables)
    for name in ("qid", "docid"):
        if any(table[name].null_count() for table in tables):
            raise DataError(f"column {name!r} must have no empty entries")
        if len({table[name].dtype for table in tables}) > 1:
            tables = [table.with_columns(id_text(table[name])) for table in tables]
    return tables


def id_text(ids: pl.Series) -> pl.Series:
    """Return ids as text, by which ids of different types are compared; a float that is an integer is written as one.

    >>> import polars as pl
    >>> id_text(pl.Series([7, 10])).to_list(), id_text(pl.Series([7.0, 1.5])).to_list()
    (['7', '10'], ['7', '1.5'])
    """
    import polars as pl

    text = ids.cast(pl.String)
    return text.str.strip_suffix(".0") if ids.dtype.is_float() else text


def lists_from_frame(
    frame: Any,
    *,
    label: str | None = None,
    qid: str | None = None,
    score: str | None = None,
    docid: str | None = None,
    candidate: str | None = None,
) -> Lists:
    """Create Lists from a frame with one row per item: query, label and, if present, score and document id.

    ``candidate`` names a column that holds true for the candidates; see `rankbound.difficulty.candidates`.

    >>> import polars as pl
    >>> lists_from_frame(pl.DataFrame({"qid": ["a", "a", "b"], "label": [1, 0, 2], "score": [0.3, 0.1, 0.2]}))
    Lists(queries=2, items=3, scored)
    """
    names = {"label": label, "qid": qid, "score": score, "docid": docid}
    is_path = isinstance(frame, (str, PathLike))
    table = read_frame(frame, [name for name in (qid, docid) if name is not None]) if is_path else as_polars(frame)
    columns = rename_columns(table, names, required=("qid", "label"), source=frame)
    if candidate is not None:
        check_mark(candidate, table.schema)
        columns = columns.with_columns(table[candidate].alias("candidate"))
    for name in ("label", "score"):
        if name in columns.columns:
            column = columns[name]
            if not column.dtype.is_numeric():
                raise DataError(f"column {name!r} must hold numbers, got {column.dtype}")
    for column in columns:
        if column.null_count():
            raise DataError(f"column {column.name!r} must be filled in every row, got {column.null_count()} empty")
    arrays = {name: columns[name].to_numpy() for name in ("label", "score", "docid", "candidate") if name in columns}
    rest = arrays.get("score"), arrays.get("docid")
    if columns["qid"].dtype.base_type().__name__ == "String":  # few of which are turned into objects of Python
        runs = columns["qid"].rle().struct
        queries = runs.field("value")
        if queries.n_unique() == len(queries):
            offsets = np.concatenate(([0], np.cumsum(runs.field("len").to_numpy(), dtype=np.int64)))
            return Lists(arrays["label"], offsets, *rest, queries.to_numpy(), candidates=arrays.get("candidate"))
    return Lists.from_qid(arrays["label"], columns["qid"].to_numpy(), *rest, candidates=arrays.get("candidate"))
