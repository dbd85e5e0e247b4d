"""Lists of codes with labels as training data: the protocols of the papers.

`GivenLists` turns them into interactions, which `Training` learns from: the items with a label above 0 are the
interactions of a user, and all items of the user's list, with their labels, are the candidates that the loss ranks, in
place of the catalog or drawn negatives. The lists never change, so that batches and the plans of the loss are made
once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from rankbound.arrays import integers, labels_of, numbers
from rankbound.data.interactions import Interactions
from rankbound.errors import DataError
from rankbound.lists import Lists
from rankbound.losses.noise import noise_over
from rankbound.models.recommenders.factorization.steps import Batch
from rankbound.parallel import Workers, current_workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from rankbound.losses import RankingLoss
    from rankbound.losses.plans import Plan

_MAX_CODES = 1_000_000  # a larger number, far above the number of rows, is an id and not a code


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
    def from_rows(cls, users: ArrayLike, items: ArrayLike, labels: ArrayLike, name: str = "") -> Self:
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

    def select_users(self, chosen: NDArray[np.int64]) -> Pairs:
        """Return the rows of some users, by their positions in ``lists``."""
        sizes, firsts = self.lists.sizes[chosen], self.lists.offsets[chosen]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        rows = np.arange(offsets[-1]) + np.repeat(firsts - offsets[:-1], sizes)
        lists = Lists(self.lists.labels[rows], offsets, None, None, self.lists.query_ids[chosen])
        return Pairs(lists, self.users[rows], self.items[rows])

    def plan(self, loss: RankingLoss) -> Plan:
        """Return the plan of a loss for these lists."""
        return loss.plan(self.lists.labels.copy(), self.lists.offsets.copy())  # arrays of Lists are read-only


class Part(NamedTuple):
    """The rows of a batch that this process computes, and their plan."""

    rows: slice
    plan: Plan


class RowGradient(NamedTuple):
    """The losses of a batch and their gradient in the scores of its rows."""

    losses: NDArray[np.floating]
    gradient: NDArray[np.floating]


class GivenLists:
    """Lists as interactions, with the codes of users and items, and batches that stay the same in all epochs.

    Users whose labels the loss does not distinguish have no gradient and are left out; DataError if nobody is left.
    """

    def __init__(self, pairs: Pairs, loss: RankingLoss) -> None:
        active = pairs.plan(loss).active
        if not active.any():
            raise DataError(
                "labels must differ for at least one user in a way that the loss distinguishes, got "
                f"{len(pairs.users)} rows of {len(pairs.lists)} users without such a difference"
            )
        self.loss = loss
        self.pairs = pairs if active.all() else pairs.select_users(np.flatnonzero(active))
        self.user_codes, users = np.unique(self.pairs.users, return_inverse=True)
        self.item_codes, items = np.unique(self.pairs.items, return_inverse=True)
        self._compact = Pairs(self.pairs.lists, users.astype(np.int32), items.astype(np.int32))

    def __len__(self) -> int:
        return len(self.pairs.lists)

    def interactions(self) -> Interactions:
        """Return the items with a label above 0 as interactions of the users and items of the lists."""
        rows, pairs = np.flatnonzero(self.pairs.lists.labels > 0), self._compact
        return Interactions(pairs.users[rows], pairs.items[rows], self.user_codes, self.item_codes)

    def batches(self, size: int | None, rng: np.random.Generator) -> list[Batch]:
        """Assign users at random to batches of a size; None means one batch."""
        count = len(self)
        groups = [np.arange(count)]
        if size is not None and size < count:
            shuffled = rng.permutation(count)
            groups = [np.sort(shuffled[first : first + size]) for first in range(0, count, size)]
        parts = [self._compact if len(chosen) == count else self._compact.select_users(chosen) for chosen in groups]
        return [Batch.from_rows(part.plan(self.loss), part.users, part.items) for part in parts]

    def part_of(self, batch: Batch) -> Part | None:
        """Return the part of a batch that this process computes; None for a single process."""
        together = current_workers()
        if together is None:
            return None
        own = together.part(batch.plan.sizes)
        offsets = batch.plan.offsets[own.start : own.stop + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        return Part(rows, self.loss.plan(batch.plan.labels[rows].copy(), offsets - offsets[0]))

    def gradient(self, batch: Batch, part: Part | None, scores: Callable[[slice], NDArray[np.float32]]) -> RowGradient:
        """Return the losses of a batch and their gradient, given a function from rows to their scores.

        Of several processes, each computes the rows of its part, and all of them get the values of all rows.
        """
        rows, plan = part or (slice(None), batch.plan)
        together = current_workers()
        with noise_over(together):
            result = self.loss.value_and_gradient(scores(rows), plan)
        if together is None:
            return RowGradient(result.values, result.gradient)
        return RowGradient(_join(together, result.values), _join(together, result.gradient))

    def expand(self, rows: NDArray[np.float32], codes: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return rows of users or items of the lists as a table with a row for every code; 0 where there is none."""
        table = np.zeros((int(codes[-1]) + 1, rows.shape[1]), np.float32)
        table[codes] = rows
        return table


def _join(together: Workers, array: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.concatenate(together.gather(array))
