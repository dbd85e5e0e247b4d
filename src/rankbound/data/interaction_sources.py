"""Interactions from whatever a user has: a file, a table in memory, a sparse matrix, or columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from rankbound.arrays import weights_of
from rankbound.data.frames import as_polars, id_text, is_table
from rankbound.data.interactions import Interactions, Names, kept_rows, name_codes
from rankbound.data.ratings import ROLES, role_indices
from rankbound.errors import ArgumentError, DataError


def as_interactions(
    data: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    timestamp: str | None = None,
) -> Interactions:
    """Return the interactions of users with items, whatever they come as.

    Parameters
    ----------
    data:
        A path (csv, tsv, parquet, and the formats of `read_ratings`); a polars or pandas frame, an Arrow table, or a
        dict of columns; a SciPy sparse matrix with a row per user, whose ids are the numbers of rows and columns and
        whose values are ratings; a tuple ``(users, items)``, ``(users, items, ratings)`` or ``(users, items, ratings,
        timestamps)``; or `Interactions`, which are returned as they are.
    user, item, rating, timestamp:
        Columns of a table that has unusual names.

    Ids can be text or integers. Text of a typed column stays text; in a csv or other file of text, ids become integers
    if all of them are written as integers, without leading zeros (``007`` stays text). Of a pair of user and item that
    occurs more than once, the latest interaction is kept, and among several at one time the one with the highest
    rating; ``notes`` says how many rows were dropped. Entries of a sparse matrix that are stored twice add up, and
    zeros are no interactions.

    >>> as_interactions(pl.DataFrame({"who": ["bo", "al", "bo"], "item": [7, 3, 5]}), user="who")
    Interactions(users=2, items=3, interactions=3)
    >>> as_interactions((["007", "008"], ["a", "b"])).user_names.tolist()
    ['007', '008']
    """
    named = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
    if isinstance(data, (str, PathLike)):
        from rankbound.data.loading import read_interactions_file

        return read_interactions_file(data, named)
    if isinstance(data, Interactions) or hasattr(data, "tocsr"):
        _refuse_names(named, type(data).__name__)
        return data if isinstance(data, Interactions) else _from_sparse(data)
    return Interactions.from_columns(*_columns(data, named))


def weighted_interactions(
    data: Any, sample_weight: ArrayLike | None
) -> tuple[Interactions, NDArray[np.float32] | None]:
    """Return interactions and the weight of each of them; ``sample_weight`` has one entry per row of the data.

    The rows of `Interactions` are those of the table itself, which are sorted. Files and sparse matrices take no
    weights.
    """
    if sample_weight is None:
        return as_interactions(data), None
    if isinstance(data, (str, PathLike)) or hasattr(data, "tocsr"):
        raise ArgumentError(
            "sample_weight must be None unless interactions are a table in memory or Interactions, "
            f"got weights for {type(data).__name__}"
        )
    weights = weights_of("sample_weight", np.asarray(sample_weight))
    if isinstance(data, Interactions):
        table, rows = data, np.arange(len(data))
        given = len(data)
    else:
        columns = _columns(data, {})
        table, rows, given = Interactions.from_columns(*columns), kept_rows(*columns), len(columns[0])
    if weights.shape != (given,):
        raise DataError(f"sample_weight must have one entry per interaction, {given}, got shape {weights.shape}")
    if given and weights.max() <= 0:
        raise DataError(f"sample_weight must not be zero for all interactions, got a maximum of {weights.max()}")
    return table, weights[rows].astype(np.float32)


def recode_interactions(table: Interactions, user_names: Names, item_names: Names) -> Interactions:
    """Return the interactions whose users and items are among the names, with the codes of these names.

    Ids of different types are compared as text, by the rule of `rankbound.data.frames`. A note says how many
    interactions were left out.
    """
    users = name_codes(table.user_names, user_names)[table.users]
    items = name_codes(table.item_names, item_names)[table.items]
    known = (users >= 0) & (items >= 0)
    rows = np.flatnonzero(known)[np.lexsort((items[known], users[known]))]
    left_out = len(table) - len(rows)
    note = (f"{left_out} interactions of users or items that are not in the training data were left out",)
    notes = table.notes + (note if left_out else ())
    renamed = replace(table, users=users, items=items, user_names=user_names, item_names=item_names, notes=notes)
    return renamed.rows(rows)


def find_codes(names: Names, ids: pl.Series) -> NDArray[np.int32]:
    """Return the index of each id among distinct names, -1 where it is not among them.

    >>> find_codes(np.array([7, 10]), pl.Series(["10", "007", "7"])).tolist()
    [1, -1, 0]
    """
    is_integer = ids.dtype.is_integer()
    array = ids.cast(pl.Int64).to_numpy() if is_integer else np.array(id_text(ids).to_list(), dtype=np.str_)
    return name_codes(array, names)


def series_of(values: Any) -> pl.Series:
    """Return values of any container as a series; errors of polars and NumPy are passed on.

    >>> series_of(np.array(["a", None], dtype=object)).to_list()
    ['a', None]
    """
    if isinstance(values, pl.Series):
        return values
    array = values.to_numpy() if hasattr(values, "to_numpy") else values
    if hasattr(array, "__array__"):
        array = np.asarray(array)
    if not isinstance(array, np.ndarray):
        array = list(array)
    elif array.ndim != 1:
        raise ValueError(f"an array of shape {array.shape}, expected one dimension")
    elif array.dtype.kind == "O":
        array = [None if _is_missing(value) else value for value in array.tolist()]
    return pl.Series(array)


def _is_missing(value: object) -> bool:
    """Whether a value is what pandas has for a missing text: NaN, or its NA."""
    return type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def _columns(data: Any, named: Mapping[str, str | None]) -> tuple[Any, ...]:
    """Return the columns of user, item, rating and timestamp; None for those that do not exist."""
    if isinstance(data, (tuple, list)):
        _refuse_names(named, "columns")
        if not 2 <= len(data) <= len(ROLES):
            raise DataError(f"interactions must be columns of users and items, ratings and timestamps, got {len(data)}")
        columns = tuple(data)
    elif hasattr(data, "iloc") and hasattr(data, "columns"):  # pandas, of which only these columns are converted
        indices = role_indices([str(name) for name in data.columns], named)
        columns = tuple(data.iloc[:, indices[role]] if role in indices else None for role in ROLES)
    else:
        frame = _frame(data)
        indices = role_indices(frame.columns, named)
        columns = tuple(frame.to_series(indices[role]) if role in indices else None for role in ROLES)
    try:
        series = tuple(None if column is None else series_of(column) for column in columns)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise DataError(f"interactions must consist of names and numbers, got: {error}") from error
    if len(series[0]) == 0:  # type: ignore[arg-type]
        raise DataError("interactions must have at least one row, got an empty table")
    return series


def _frame(data: Any) -> pl.DataFrame:
    if isinstance(data, Mapping):
        try:
            return pl.DataFrame({str(name): series_of(column) for name, column in data.items()})
        except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
            raise DataError(f"interactions must be columns of one length, got: {error}") from error
    if not is_table(data):
        raise DataError(
            "interactions must be a path, a frame, a sparse matrix, (users, items) or Interactions, "
            f"got {type(data).__name__}"
        )
    try:
        return as_polars(data)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise DataError(f"interactions must be a table with columns of names and numbers, got: {error}") from error


def _from_sparse(matrix: Any) -> Interactions:
    table = matrix.tocsr(copy=True)
    table.sum_duplicates()
    table.eliminate_zeros()
    table.sort_indices()
    users, items = table.shape
    if table.nnz == 0:
        raise DataError(f"interactions must have at least one entry, got an empty matrix of shape {table.shape}")
    ratings = np.asarray(table.data)
    if ratings.dtype.kind not in "biuf" or not np.isfinite(ratings).all():
        raise DataError(f"every rating must be a finite number, got a matrix of {ratings.dtype} with others")
    return Interactions(
        np.repeat(np.arange(users, dtype=np.int32), np.diff(table.indptr)),
        table.indices.astype(np.int32),
        np.arange(users),
        np.arange(items),
        None if (ratings == 1).all() else ratings.astype(np.float32),
    )


def _refuse_names(named: Mapping[str, str | None], kind: str) -> None:
    for role, name in named.items():
        if name is not None:
            raise ArgumentError(f"{role} must be None unless interactions are a table with column names, got {kind}")
