"""Held-out interactions as judgments: every item that a user chose in the test data is relevant.

A table is taken for interactions if it has columns for user and item, under one of the names that `read_ratings` knows,
and no column of labels. Its ratings are no labels: an item with a rating is relevant, whatever the rating is, unless
``min_rating`` says otherwise.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.data import frames
from rankbound.data.csv_text import is_csv
from rankbound.data.interaction_sources import as_interactions
from rankbound.data.interactions import Interactions
from rankbound.data.preparation import check_least_rating
from rankbound.data.ratings import find_roles, first_line
from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import polars as pl

_LABELS = {name for name in frames.COLUMN_NAMES["label"] if name != "rating"}


def is_held_out(source: object) -> bool:
    """Whether a source of judgments is a table of interactions: a path, a table in memory, or `Interactions`.

    >>> import polars as pl
    >>> table = pl.DataFrame({"user": ["al"], "item": ["x"]})
    >>> is_held_out(table), is_held_out(table.with_columns(label=1))
    (True, False)
    """
    if isinstance(source, Interactions):
        return True
    columns = columns_of(source)
    return {"user", "item"} <= find_roles(columns).keys() and not _LABELS & set(columns)


def held_out_judgments(source: Any, min_rating: float | None = None) -> pl.DataFrame:
    """Return the columns qid, docid and label: 1 for each interaction, or 0 for those with a rating below the least."""
    import polars as pl

    if not is_held_out(source):
        raise ArgumentError("min_rating needs held-out interactions, a table with the columns user, item and rating")
    table = as_interactions(source)
    label = pl.lit(1)
    if min_rating is not None:
        check_least_rating(min_rating)
        if table.ratings is None:
            raise DataError(f"min_rating = {min_rating:g} needs a column of ratings, which the interactions lack")
        label = (pl.col("rating") >= min_rating).cast(pl.Int32)
    return table.to_frame().select(qid="user", docid="item", label=label)


def columns_of(source: object) -> list[str]:
    """The names of the columns of a table; none for anything else."""
    import polars as pl

    if not isinstance(source, (str, PathLike)):
        if not frames.is_table(source):
            return []
        names = source.collect_schema().names() if isinstance(source, pl.LazyFrame) else None
        return [str(name) for name in names or getattr(source, "column_names", None) or getattr(source, "columns", [])]
    if str(source) == "-" or not frames.is_table_path(source):
        return []
    if is_csv(source):
        line = first_line(source)
        return [name.strip().strip('"') for name in line.split("\t" if "\t" in line else ",")]
    with frames.polars_explained(source):
        return list(pl.read_parquet_schema(Path(source))) if str(source).endswith(".parquet") else []
