"""Training data and state of matrix factorization: pairs grouped by user, vectors and history."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rankbound.arrays import integers, labels_of, numbers
from rankbound.data.interactions import Interactions
from rankbound.errors import DataError
from rankbound.lists import Lists
from rankbound.models.factorization_kernel import Batch, Vectors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from rankbound.losses import RankingLoss

__all__ = ["HeldOut", "Pairs", "State", "codes_of"]

_MAX_CODES = 1_000_000  # a larger number, far above the number of rows, is an id and not a code
_PARTS = ("values", "first", "second")


# ---- pairs -----------------------------------------------------------------------------------------------------------


def codes_of(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Return codes 0, 1, 2, ... as int64; raise DataError for anything else.

    >>> codes_of("users", [2, -1])
    Traceback (most recent call last):
    rankbound.errors.DataError: users must be codes of at least 0, got -1 at position 1
    """
    array = numbers(name, values, ndim=None)
    if array.ndim > 1 or (array.dtype.kind not in "iu" and array.size):
        raise DataError(f"{name} must be integers in one dimension, got {array.dtype} of shape {array.shape}")
    codes = np.atleast_1d(integers(name, array, ndim=None))
    if codes.size and codes.min() < 0:
        index = int(np.flatnonzero(codes < 0)[0])
        raise DataError(f"{name} must be codes of at least 0, got {codes[index]} at position {index}")
    return codes


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows of user, item and label, sorted by user and item; ``lists`` has a query per user."""

    lists: Lists
    users: NDArray[np.int32]
    items: NDArray[np.int32]

    @classmethod
    def of(cls, users: ArrayLike, items: ArrayLike, labels: ArrayLike, name: str = "") -> Self:
        """Group rows in any order; a pair that occurs twice is refused, because its labels may disagree."""
        user, item, label = codes_of(f"{name}users", users), codes_of(f"{name}items", items), labels_of(labels)
        if not len(user) == len(item) or label.shape != user.shape:
            raise DataError(
                f"{name}users, items and labels must have one entry per row, "
                f"got shapes {user.shape}, {item.shape} and {label.shape}"
            )
        if len(user) == 0:
            raise DataError(f"{name}users, items and labels must have at least one row")
        for side, codes in (("users", user), ("items", item)):
            if codes.max() >= max(_MAX_CODES, 100 * len(codes)):
                raise DataError(
                    f"{name}{side} must be codes 0, 1, 2, ..., got {codes.max()}; "
                    "np.unique(ids, return_inverse=True) turns ids into codes"
                )
        order = np.lexsort((item, user))
        user, item, label = user[order], item[order], label[order]
        repeated = np.flatnonzero((np.diff(user) == 0) & (np.diff(item) == 0))
        if len(repeated):
            raise DataError(
                f"{name}rows must be distinct pairs, got user {user[repeated[0]]} with item {item[repeated[0]]} twice"
            )
        starts = np.flatnonzero(np.diff(user, prepend=-1))
        lists = Lists(label, np.append(starts, len(user)), None, None, user[starts])
        return cls(lists, user.astype(np.int32), item.astype(np.int32))

    def digest(self) -> str:
        """Return a digest of the content, by which a checkpoint identifies its data."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.users, self.items, self.lists.labels):
            digest.update(array.tobytes())
        return digest.hexdigest()

    def kept(self, chosen: NDArray[np.bool_]) -> Pairs:
        """Return the rows of the chosen users; raise DataError if there are none."""
        if not chosen.any():
            raise DataError(
                "labels must differ for at least one user in a way that the loss distinguishes, got "
                f"{len(self.users)} rows of {len(self.lists)} users without such a difference"
            )
        return self if chosen.all() else self._rows(np.flatnonzero(chosen))

    def batches(self, loss: RankingLoss, size: int | None, rng: np.random.Generator) -> list[Batch]:
        """Assign users at random to batches of a size, with the plans of the loss; None means one batch."""
        count = len(self.lists)
        groups = [np.arange(count)]
        if size is not None and size < count:
            shuffled = rng.permutation(count)
            groups = [np.sort(shuffled[first : first + size]) for first in range(0, count, size)]
        parts = [self if len(chosen) == count else self._rows(chosen) for chosen in groups]
        # copies, because arrays of Lists are read-only, for which the kernels would be compiled again
        plans = [loss.plan(part.lists.labels.copy(), part.lists.offsets.copy()) for part in parts]
        return [Batch.of(plan, part.users, part.items) for plan, part in zip(plans, parts, strict=True)]

    def _rows(self, chosen: NDArray[np.int64]) -> Pairs:
        sizes, firsts = self.lists.sizes[chosen], self.lists.offsets[chosen]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        rows = np.arange(offsets[-1]) + np.repeat(firsts - offsets[:-1], sizes)
        lists = Lists(self.lists.labels[rows], offsets, None, None, self.lists.query_ids[chosen])
        return Pairs(lists, self.users[rows], self.items[rows])


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out interactions, to be evaluated by full ranking, and the training interactions, which are left out."""

    train: Interactions
    test: Interactions

    @classmethod
    def of(cls, eval_set: Any) -> Self | None:
        """Return a pair of tables as held-out data; None if it is something else."""
        if isinstance(eval_set, (tuple, list)) and [isinstance(part, Interactions) for part in eval_set] == [True] * 2:
            return cls(*eval_set)
        return None

    def digest(self) -> str:
        """Return a digest of the content, by which a checkpoint identifies its data."""
        digest = hashlib.blake2b(b"full ranking", digest_size=16)
        for table in (self.train, self.test):
            for array in (table.users, table.items):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def measured(self, user_vectors: Any, item_vectors: Any, measures: Any) -> dict[str, float]:
        """Return the means of measures over users."""
        from rankbound.models.full_ranking import evaluate_full_ranking

        scores = self.products(user_vectors, item_vectors)
        return evaluate_full_ranking(scores, self.train, self.test, measures).mean()

    def products(self, user_vectors: Any, item_vectors: Any) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
        """Return a function from codes of users to the scores of all items.

        Items without a vector, which were in no training list, come last.
        """
        users, items = (
            np.concatenate((vectors, np.zeros((count - len(vectors), vectors.shape[1]), np.float32)))
            for vectors, count in (
                (user_vectors, len(self.train.user_names)),
                (item_vectors, len(self.train.item_names)),
            )
        )
        unknown = ~items.any(axis=1)

        def scores(codes: NDArray[Any]) -> NDArray[np.float32]:
            block: NDArray[np.float32] = users[codes] @ items.T
            block[:, unknown] = np.finfo(np.float32).min
            return block

        return scores


# ---- state -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class State:
    """The state of training after ``epoch`` epochs and ``steps`` steps, with the best vectors so far."""

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
        """Draw vectors uniform in [-init, init] for the users and items of the pairs; codes without a row get zeros."""
        vectors = []
        for codes in (pairs.users, pairs.items):
            known = np.unique(codes)
            values = np.zeros((int(known[-1]) + 1, factors), np.float32)
            values[known] = rng.uniform(-init, init, (len(known), factors))
            # SGD does not use the moments, and zeros that are never touched take no memory
            vectors.append(Vectors(values, np.zeros_like(values), np.zeros_like(values)))
        return cls(vectors[0], vectors[1])

    def note(self, value: float) -> None:
        """Keep the current vectors if their value is the best so far."""
        if self.best is None or value > self.best_value:
            self.best_epoch, self.best_value = self.epoch, value
            self.best = self.users.values.copy(), self.items.values.copy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a checkpoint."""
        sides = {"users": self.users, "items": self.items}
        kept = {f"{side}.{part}": getattr(vectors, part) for side, vectors in sides.items() for part in _PARTS}
        return kept if self.best is None else kept | {"best.users": self.best[0], "best.items": self.best[1]}

    def metadata(self) -> dict[str, Any]:
        """Return the plain values of a checkpoint."""
        return {name: getattr(self, name) for name in ("epoch", "steps", "best_epoch", "best_value", "history")}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]], metadata: dict[str, Any]) -> Self:
        """Restore the state of a checkpoint; arrays are copied, because those of a file may be read-only."""
        users, items = (Vectors(*(arrays[f"{side}.{part}"].copy() for part in _PARTS)) for side in ("users", "items"))
        best = (arrays["best.users"].copy(), arrays["best.items"].copy()) if "best.users" in arrays else None
        return cls(users, items, best=best, **metadata)
