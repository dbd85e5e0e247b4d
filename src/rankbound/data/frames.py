"""Read polars and pandas frames, and parquet and csv files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.errors import DataError
from rankbound.lists import Lists

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "COLUMN_NAMES",
    "as_polars",
    "check_mark",
    "find_columns",
    "lists_from_frame",
    "plain_type",
    "polars_explained",
    "polars_failures",
    "read_frame",
    "rename_columns",
    "with_equal_id_types",
]

# names that a column may have: ours, those of ir_measures and ranx, and common ones
COLUMN_NAMES = {
    "qid": ("qid", "query_id", "q_id", "query", "user", "user_id"),
    "docid": ("docid", "doc_id", "docno", "document", "item", "item_id"),
    "label": ("label", "relevance", "rel", "score_label", "rating"),
    "score": ("score", "prediction", "sim"),
}


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
    """Return a polars frame from a polars or pandas frame, or from a parquet or csv path."""
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, (str, PathLike)):
        return read_frame(frame)
    if hasattr(frame, "to_numpy") and hasattr(frame, "columns"):  # pandas; by column, without pyarrow
        return pl.DataFrame({str(name): frame[name].to_numpy() for name in frame.columns})
    raise DataError(f"expected a polars or pandas frame or a path, got {type(frame).__name__}")


def read_frame(path: str | PathLike[str]) -> pl.DataFrame:
    """Read a parquet or csv file."""
    import polars as pl

    suffixes = Path(path).suffixes
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    with polars_explained(path):
        if ".parquet" in suffixes:
            return pl.read_parquet(Path(path))
        if ".csv" in suffixes or ".tsv" in suffixes:
            return pl.read_csv(Path(path), separator="\t" if ".tsv" in suffixes else ",")
    raise DataError(f"{path}: expected a .parquet, .csv or .tsv file")


def rename_columns(frame: pl.DataFrame, names: dict[str, str | None], required: tuple[str, ...]) -> pl.DataFrame:
    """Return the known columns under rankbound's names; ``names`` maps them where the usual names do not apply."""
    columns = find_columns(frame.columns, names, required)
    return frame.select(
        [frame[theirs].cast(plain_type(ours, frame.schema[theirs])).alias(ours) for ours, theirs in columns.items()]
    )


def check_mark(column: str, schema: Mapping[str, Any]) -> None:
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
    """Return the table's own names of the columns that rankbound knows."""
    columns: dict[str, str] = {}
    for ours, usual in COLUMN_NAMES.items():
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
    import polars as pl

    tables = list(tables)
    for name in ("qid", "docid"):
        if any(table[name].null_count() for table in tables):
            raise DataError(f"column {name!r} must have no empty entries")
        if len({table[name].dtype for table in tables}) > 1:
            tables = [table.with_columns(pl.col(name).cast(pl.String)) for table in tables]
    return tables


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
    table = as_polars(frame)
    columns = rename_columns(table, names, required=("qid", "label"))
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
    return Lists.from_qid(
        columns["label"].to_numpy(),
        columns["qid"].to_numpy(),
        columns["score"].to_numpy() if "score" in columns.columns else None,
        columns["docid"].to_numpy() if "docid" in columns.columns else None,
        candidates=None if candidate is None else columns["candidate"].to_numpy(),
    )
