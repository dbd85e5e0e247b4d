"""Interactions of users with items, as integer codes sorted by user and item."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankbound.data.growing_table import GrowingTable
from rankbound.errors import DataError

Names: TypeAlias = NDArray[Any]  # text or integers

LONGEST_NAME = 255  # bytes: every entry of a NumPy text array is as wide as the longest
_STEP = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """Distinct pairs of user and item, sorted by user and then by item.

    The table depends on the content of the rows and not on their order, because the names are sorted. The same holds
    for everything that is sampled from it with a seed.

    Parameters
    ----------
    users, items:
        Codes of user and item of each interaction: indices into ``user_names`` and ``item_names``.
    user_names, item_names:
        Names of all users and items, sorted.
    ratings:
        Rating of each interaction; None for implicit feedback.
    timestamps:
        Seconds, or the position in the user's sequence if a file has no more than an order; None if it has neither.
    notes:
        Remarks of the reader for the user.
    """

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    user_names: Names
    item_names: Names
    ratings: NDArray[np.float32] | None = None
    timestamps: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def from_columns(cls, user: Any, item: Any, rating: Any = None, timestamp: Any = None) -> Interactions:
        """Create interactions from one entry per interaction, in any order.

        Of a pair that occurs more than once, the latest interaction is kept, and among several at one time the one
        with the highest rating. Names that are text stay text, even if all of them look like numbers.

        >>> table = Interactions.from_columns(["bo", "al", "bo"], [7, 3, 5], rating=[4.0, 2.5, 1.0])
        >>> table
        Interactions(users=2, items=3, interactions=3)
        >>> table.user_names[table.users].tolist(), table.item_names[table.items].tolist()
        (['al', 'bo', 'bo'], [3, 5, 7])
        """
        return cls.from_codes(*_code_columns(user, item, rating, timestamp))

    @classmethod
    def from_codes(
        cls,
        users: NDArray[np.int32],
        items: NDArray[np.int32],
        user_names: Names,
        item_names: Names,
        ratings: NDArray[np.float32] | None = None,
        timestamps: NDArray[np.int64] | None = None,
    ) -> Interactions:
        """Create interactions from codes, one per interaction and in any order, and sorted names."""
        keep, repeated = sorted_rows(users.astype(np.int64) * len(item_names) + items, ratings, timestamps)
        users, items = users[keep], items[keep]  # each old column is freed before the next is created
        ratings = None if ratings is None else ratings[keep]
        timestamps = None if timestamps is None else timestamps[keep]
        return cls(users, items, user_names, item_names, ratings, timestamps, notes_of(repeated))

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return f"Interactions(users={len(self.user_names)}, items={len(self.item_names)}, interactions={len(self)})"

    @property
    def per_user(self) -> NDArray[np.int64]:
        """Number of interactions of each user."""
        return count_codes(self.users, len(self.user_names))

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Start of each user's rows, followed by the number of rows."""
        return np.concatenate(([0], np.cumsum(self.per_user)))

    def to_frame(self) -> pl.DataFrame:
        """Return one row per interaction: user and item by name, and rating and timestamp where there are any.

        >>> Interactions.from_columns(["bo", "al"], [7, 3], rating=[4.0, 2.5]).to_frame().rows()
        [('al', 3, 2.5), ('bo', 7, 4.0)]
        """
        columns = {"user": self.user_names[self.users], "item": self.item_names[self.items]}
        numbers = {"rating": self.ratings, "timestamp": self.timestamps}
        return pl.DataFrame(columns | {name: column for name, column in numbers.items() if column is not None})

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Interactions:
        """Return the rows that a mask selects; users and items keep their codes, even those without any row."""
        columns = {name: getattr(self, name) for name in ("users", "items", "ratings", "timestamps")}
        return replace(self, **{name: column[chosen] for name, column in columns.items() if column is not None})

    def compact(self) -> Interactions:
        """Return the same rows with new codes, without the users and items that have no row."""
        users, user_codes = np.unique(self.users, return_inverse=True)
        items, item_codes = np.unique(self.items, return_inverse=True)
        return replace(
            self,
            users=user_codes.astype(np.int32),
            items=item_codes.astype(np.int32),
            user_names=self.user_names[users],
            item_names=self.item_names[items],
        )


def count_codes(codes: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    """Return how often each code below ``size`` occurs; in steps, because NumPy copies what it counts.

    >>> count_codes(np.array([2, 0, 2], np.int32), 4).tolist()
    [1, 0, 2, 0]
    """
    counts = np.zeros(size, np.int64)
    step = max(_STEP, size)
    for start in range(0, len(codes), step):
        counts += np.bincount(codes[start : start + step], minlength=size)
    return counts


def notes_of(repeated: int) -> tuple[str, ...]:
    """The remark on rows that repeat a pair of user and item, if there are any."""
    return (f"{repeated} repeated pairs of user and item were dropped",) if repeated else ()


def comparable_names(names: Names, others: Names) -> tuple[Names, Names]:
    """Return names of one kind: as text if some are numbers and others are not, so that 7 is the same as "7"."""
    integers = [array.dtype.kind in "iu" for array in (names, others)]
    if all(integers) or names.dtype.kind == others.dtype.kind == "U":
        return names, others
    return names.astype(np.str_), others.astype(np.str_)


def name_codes(names: Names, known: Names) -> NDArray[np.int32]:
    """Return the index of each name among known names, which are distinct; -1 where it is not known.

    >>> name_codes(np.array(["7", "x", "5"]), np.array([5, 7])).tolist()
    [1, -1, 0]
    """
    if len(known) == 0:
        return np.full(len(names), -1, np.int32)
    names, known = comparable_names(names, known)
    order = np.argsort(known, kind="stable")
    ordered = known[order]
    index = np.minimum(np.searchsorted(ordered, names), len(known) - 1)
    return np.where(ordered[index] == names, order[index], -1).astype(np.int32)


def _check_filled(role: str, column: pl.Series) -> NDArray[np.number]:
    """Return numbers, none of them missing."""
    if column.null_count() or not column.is_finite().all():
        raise DataError(f"every {role} must be a finite number, got null, NaN or infinity")
    return column.to_numpy()


class NameCoder:
    """Assigns codes to names, chunk by chunk; the final codes are indices into the sorted names.

    If all names are integers without leading zeros, they are sorted and kept as integers, unless ``keep_text`` is true:
    a file of text does not say which of the two they are, but a typed column does.

    >>> coder = NameCoder()
    >>> coder.add(pl.Series(["b", "c"]))
    >>> coder.add(pl.Series(["a", "b"]))
    >>> coder.names().tolist(), coder.codes().tolist()
    (['a', 'b', 'c'], [1, 2, 0, 1])
    """

    def __init__(self, *, keep_text: bool = False, folder: Path | None = None) -> None:
        self._keep_text = keep_text
        self._known = pl.Series([], dtype=pl.Categorical)
        self._codes = GrowingTable(np.uint32, folder)

    def add(self, names: pl.Series) -> None:
        """Add the names of another chunk."""
        if (names.str.len_bytes() > LONGEST_NAME).any():
            long = names.filter(names.str.len_bytes() > LONGEST_NAME)[0]
            raise DataError(f"a name must have at most {LONGEST_NAME} bytes, got {long[:40]!r}...")
        chunk = names.cast(pl.Categorical)
        self._known = pl.concat([self._known, chunk.unique()]).unique()
        self._codes.append(chunk.to_physical().to_numpy())

    def names(self) -> Names:
        """Return all names, sorted."""
        names = self._spelled().sort()
        return names.to_numpy() if names.dtype.is_integer() else np.array(names.to_list(), dtype=np.str_)

    def codes(self) -> NDArray[np.int32]:
        """Return the code of each name that was added, and forget them."""
        provisional, rank = self.provisional_codes()
        codes: NDArray[np.int32] = rank[provisional]
        return codes

    def provisional_codes(self) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Return a provisional code of each name that was added, and the final code of each of them; forget the names.

        If there is a ``folder``, the provisional codes are in a temporary file there, mapped into memory.
        """
        physical = self._known.to_physical().to_numpy()[self._spelled().arg_sort().to_numpy()]
        rank = np.zeros(int(physical.max(initial=0)) + 1, np.int32)
        rank[physical] = np.arange(len(physical))
        return self._codes.finish().ravel(), rank

    def _spelled(self) -> pl.Series:
        spelled = self._known.cast(pl.String)
        are_integers = not self._keep_text and spelled.str.contains(r"^(0|-?[1-9][0-9]{0,17})$").all()
        return spelled.cast(pl.Int64) if are_integers else spelled


def kept_rows(user: Any, item: Any, rating: Any = None, timestamp: Any = None) -> NDArray[np.int64]:
    """Return which row of the columns each interaction of ``Interactions.from_columns`` comes from.

    >>> kept_rows(["bo", "al", "bo"], [7, 3, 7], rating=[4.0, 2.5, 5.0]).tolist()
    [1, 2]
    """
    users, items, _, item_names, ratings, timestamps = _code_columns(user, item, rating, timestamp)
    keep, _ = sorted_rows(users.astype(np.int64) * len(item_names) + items, ratings, timestamps)
    return np.arange(len(users))[keep]


def _code_columns(user: Any, item: Any, rating: Any, timestamp: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Return the codes of users and items, their names, and numbers; all columns have one length."""
    try:
        user_names, users = _code_names("user", user)
        item_names, items = _code_names("item", item)
        ratings = None if rating is None else _check_filled("rating", pl.Series(rating).cast(pl.Float32))
        timestamps = None if timestamp is None else _check_filled("timestamp", pl.Series(timestamp).cast(pl.Int64))
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise DataError(f"interactions must consist of names and numbers, got: {error}") from error
    for name, column in (("item", items), ("rating", ratings), ("timestamp", timestamps)):
        if column is not None and len(column) != len(users):
            raise DataError(f"{name} must have one entry per user, {len(users)}, got {len(column)}")
    return users, items, user_names, item_names, ratings, timestamps


def _code_names(role: str, values: Any) -> tuple[Names, NDArray[np.int32]]:
    """Return the sorted distinct names, and the index of each value among them."""
    column = values if isinstance(values, pl.Series) else pl.Series(values)
    if column.dtype.is_float():  # pandas turns integers into floats where one is missing
        column = column.fill_nan(None)
        if (column == column.round()).all():
            column = column.cast(pl.Int64)
    elif column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        raise DataError(f"every {role} must be named by text or a number, got {column.dtype}")
    missing = column.null_count() + (int((column == "").sum()) if column.dtype == pl.String else 0)
    if missing:
        raise DataError(f"every interaction must name its {role}, got {missing} without one")
    if column.dtype.is_integer() or len(column) == 0:
        names = column.cast(pl.Int64).unique().sort()
        return names.to_numpy(), (column.rank("dense") - 1).cast(pl.Int32).to_numpy()
    coder = NameCoder(keep_text=True)
    coder.add(column.cast(pl.String))
    return coder.names(), coder.codes()


def sorted_rows(
    pair: NDArray[np.int64], ratings: NDArray[np.float32] | None, timestamps: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | slice, int]:
    """Return the rows to keep, sorted by pair, and the number of rows that repeat a pair."""
    if (pair[1:] > pair[:-1]).all():  # many files are sorted already
        return slice(None), 0
    order = np.argsort(pair)
    again = np.zeros(len(order), dtype=bool)
    for start in range(0, len(order), _STEP):  # in steps: a sorted copy would be as large as a column
        block = pair[order[start : start + _STEP + 1]]
        again[start + 1 : start + len(block)] = block[1:] == block[:-1]
    if again.any():
        several = again | np.append(again[1:], False)
        rows = order[several]
        best = [-column[rows] for column in (ratings, timestamps) if column is not None]
        order[several] = rows[np.lexsort((*best, pair[rows]))]
        order = order[~again]
    return order, int(again.sum())
