"""What matrix factorization trains on and what it has reached: pairs grouped by user, and the vectors so far."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rankbound.arrays import integers, labels_of, numbers
from rankbound.errors import DataError
from rankbound.lists import Lists
from rankbound.models.factorization_kernel import Batch, Vectors

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rankbound.losses import RankingLoss

__all__ = ["Pairs", "State", "codes_of"]

_MOST_CODES = 1_000_000  # an index beyond this, and far beyond the number of rows, is an id and not a code
_PARTS = ("values", "first", "second")


# ---- pairs -----------------------------------------------------------------------------------------------------------


def codes_of(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Codes 0, 1, 2, ... as int64, or DataError.

    >>> codes_of("users", [2, -1])
    Traceback (most recent call last):
    rankbound.errors.DataError: users must be codes from 0 on, got -1 at position 1
    """
    found = numbers(name, values, ndim=None)
    if found.ndim > 1 or (found.dtype.kind not in "iu" and found.size):
        raise DataError(f"{name} must be whole numbers in one dimension, got {found.dtype} of shape {found.shape}")
    codes = np.atleast_1d(integers(name, found, ndim=None))
    if codes.size and codes.min() < 0:
        at = int(np.flatnonzero(codes < 0)[0])
        raise DataError(f"{name} must be codes from 0 on, got {codes[at]} at position {at}")
    return codes


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows of user, item and label, sorted by user and item; ``lists`` has a query per user."""

    lists: Lists
    users: NDArray[np.int32]
    items: NDArray[np.int32]

    @classmethod
    def of(cls, users: ArrayLike, items: ArrayLike, labels: ArrayLike, name: str = "") -> Self:
        """From rows in any order; a pair that occurs twice is refused, because its labels may disagree."""
        user, item, label = codes_of(f"{name}users", users), codes_of(f"{name}items", items), labels_of(labels)
        if not len(user) == len(item) or label.shape != user.shape:
            raise DataError(
                f"{name}users, items and labels must have one entry per row, "
                f"got shapes {user.shape}, {item.shape} and {label.shape}"
            )
        if len(user) == 0:
            raise DataError(f"{name}users, items and labels must have at least one row")
        for what, codes in (("users", user), ("items", item)):
            if codes.max() >= max(_MOST_CODES, 100 * len(codes)):
                raise DataError(
                    f"{name}{what} must be codes 0, 1, 2, ..., got {codes.max()}; "
                    "np.unique(ids, return_inverse=True) makes codes of ids"
                )
        order = np.lexsort((item, user))
        user, item, label = user[order], item[order], label[order]
        again = np.flatnonzero((np.diff(user) == 0) & (np.diff(item) == 0))
        if len(again):
            raise DataError(
                f"{name}rows must be distinct pairs, got user {user[again[0]]} with item {item[again[0]]} twice"
            )
        starts = np.flatnonzero(np.diff(user, prepend=-1))
        lists = Lists(label, np.append(starts, len(user)), None, None, user[starts])
        return cls(lists, user.astype(np.int32), item.astype(np.int32))

    def digest(self) -> str:
        """A name for the content, by which a checkpoint knows its data again."""
        found = hashlib.blake2b(digest_size=16)
        for array in (self.users, self.items, self.lists.labels):
            found.update(array.tobytes())
        return found.hexdigest()

    def kept(self, chosen: NDArray[np.bool_]) -> Pairs:
        """The rows of the chosen users; DataError if there are none."""
        if not chosen.any():
            raise DataError(
                f"there is nothing to learn: no user has labels that the loss can tell apart "
                f"({len(self.users)} rows, {len(self.lists)} users)"
            )
        return self if chosen.all() else self._rows(np.flatnonzero(chosen))

    def batches(self, loss: RankingLoss, size: int | None, rng: np.random.Generator) -> list[Batch]:
        """Users dealt at random into batches of a size, with the plans of the loss; None makes one batch."""
        count = len(self.lists)
        dealt = [np.arange(count)]
        if size is not None and size < count:
            shuffled = rng.permutation(count)
            dealt = [np.sort(shuffled[first : first + size]) for first in range(0, count, size)]
        parts = [self if len(chosen) == count else self._rows(chosen) for chosen in dealt]
        # copies: arrays of Lists are read-only, for which the kernels would be compiled once more
        plans = [loss.plan(part.lists.labels.copy(), part.lists.offsets.copy()) for part in parts]
        return [Batch.of(plan, part.users, part.items) for plan, part in zip(plans, parts, strict=True)]

    def _rows(self, chosen: NDArray[np.int64]) -> Pairs:
        sizes, firsts = self.lists.sizes[chosen], self.lists.offsets[chosen]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        rows = np.arange(offsets[-1]) + np.repeat(firsts - offsets[:-1], sizes)
        lists = Lists(self.lists.labels[rows], offsets, None, None, self.lists.query_ids[chosen])
        return Pairs(lists, self.users[rows], self.items[rows])


# ---- state -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class State:
    """Where training stands after ``epoch`` epochs and ``steps`` steps, and the best vectors so far."""

    users: Vectors
    items: Vectors
    epoch: int = 0
    steps: int = 0
    best_epoch: int = 0
    best_value: float = -1.0
    best: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    history: list[dict[str, float]] = field(default_factory=list)

    @classmethod
    def new(cls, pairs: Pairs, factors: int, init: float, rng: np.random.Generator) -> Self:
        """Vectors uniform in [-init, init] for the users and items of the pairs, zero for codes without a row."""
        vectors = []
        for codes in (pairs.users, pairs.items):
            known = np.unique(codes)
            values = np.zeros((int(known[-1]) + 1, factors), np.float32)
            values[known] = rng.uniform(-init, init, (len(known), factors))
            # SGD never looks at the moments: zeros that nobody touches take no memory
            vectors.append(Vectors(values, np.zeros_like(values), np.zeros_like(values)))
        return cls(vectors[0], vectors[1])

    def note(self, value: float) -> None:
        """Keep the present vectors if their value is the best yet."""
        if self.best is None or value > self.best_value:
            self.best_epoch, self.best_value = self.epoch, value
            self.best = self.users.values.copy(), self.items.values.copy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that a checkpoint keeps."""
        sides = {"users": self.users, "items": self.items}
        kept = {f"{side}.{part}": getattr(vectors, part) for side, vectors in sides.items() for part in _PARTS}
        return kept if self.best is None else kept | {"best.users": self.best[0], "best.items": self.best[1]}

    def metadata(self) -> dict[str, Any]:
        """The plain values that a checkpoint keeps."""
        return {name: getattr(self, name) for name in ("epoch", "steps", "best_epoch", "best_value", "history")}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]], metadata: dict[str, Any]) -> Self:
        """The state of a checkpoint; copies, because what a file gives may be read-only."""
        users, items = (Vectors(*(arrays[f"{side}.{part}"].copy() for part in _PARTS)) for side in ("users", "items"))
        best = (arrays["best.users"].copy(), arrays["best.items"].copy()) if "best.users" in arrays else None
        return cls(users, items, best=best, **metadata)
