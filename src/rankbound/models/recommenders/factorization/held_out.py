"""Held-out data of matrix factorization, by which an epoch is selected: interactions, or lists with labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.models.recommenders.factorization.lists import Pairs
from rankbound.models.recommenders.factorization.steps import score_pairs
from rankbound.models.recommenders.full_ranking import evaluate_full_ranking

if TYPE_CHECKING:
    from numpy.typing import NDArray


class HeldOut(Protocol):
    """Held-out data."""

    def digest(self) -> str:
        """Return a digest of the content, by which a checkpoint identifies its data."""

    def measure(
        self, users: NDArray[np.float32], items: NDArray[np.float32], measures: Sequence[Any]
    ) -> dict[str, float]:
        """Return the means of measures over users, given vectors of users and items."""


@dataclass(frozen=True, eq=False)
class HeldOutInteractions:
    """Interactions to be evaluated by full ranking, and those of training, which are left out."""

    train: Interactions
    test: Interactions

    def digest(self) -> str:
        """Return a digest of the content, by which a checkpoint identifies its data."""
        digest = hashlib.blake2b(b"full ranking", digest_size=16)
        for table in (self.train, self.test):
            for array in (table.users, table.items):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def measure(
        self, users: NDArray[np.float32], items: NDArray[np.float32], measures: Sequence[Any]
    ) -> dict[str, float]:
        """Return the means of measures over users."""
        return evaluate_full_ranking(self.products(users, items), self.train, self.test, measures).mean()

    def products(
        self, users: NDArray[np.float32], items: NDArray[np.float32]
    ) -> Callable[[NDArray[np.int32]], NDArray[np.float32]]:
        """Return a function from users to the scores of all items of the table; codes at the end may have no vector."""
        return products(_with_rows(users, len(self.train.user_names)), _with_rows(items, len(self.train.item_names)))


@dataclass(frozen=True, eq=False)
class HeldOutLists:
    """Lists with labels."""

    pairs: Pairs

    def digest(self) -> str:
        """Return a digest of the content, by which a checkpoint identifies its data."""
        return self.pairs.digest()

    def measure(
        self, users: NDArray[np.float32], items: NDArray[np.float32], measures: Sequence[Any]
    ) -> dict[str, float]:
        """Return the means of measures over users; DataError for a measure that is defined for nobody."""
        scores = pair_scores(users, items, self.pairs.users, self.pairs.items)
        values = evaluate_lists(self.pairs.lists.with_scores(scores), measures).mean()
        for name, value in values.items():
            if np.isnan(value):
                raise DataError(f"{name} is not defined for any user of eval_set, because none has a relevant item")
        return values


def held_out_of_lists(eval_set: Any, pairs: Pairs) -> HeldOut | None:
    """Return the held-out data of lists of codes: such lists, or two tables to be evaluated by full ranking."""
    if eval_set is None:
        return None
    is_sequence = isinstance(eval_set, (tuple, list))
    if is_sequence and [isinstance(part, Interactions) for part in eval_set] == [True, True]:
        train, test = eval_set
        shape = len(train.user_names), len(train.item_names)
        if pairs.users.max() >= shape[0] or pairs.items.max() >= shape[1]:
            got = f"got users up to {pairs.users.max()} and items up to {pairs.items.max()}"
            raise ArgumentError(
                f"the codes must be those of eval_set, with {shape[0]} users and {shape[1]} items, {got}"
            )
        return HeldOutInteractions(train, test)
    if not is_sequence or len(eval_set) != 3:
        raise ArgumentError("eval_set must be (users, items, labels), or two Interactions: training and held-out ones")
    return HeldOutLists(Pairs.from_rows(eval_set[0], eval_set[1], eval_set[2], name="eval_set "))


def products(
    users: NDArray[np.float32], items: NDArray[np.float32]
) -> Callable[[NDArray[np.int32]], NDArray[np.float32]]:
    """Return a function from codes of users to the scores of all items; those without a vector come last."""
    unknown = np.flatnonzero(~items.any(axis=1))

    def scores(codes: NDArray[np.int32]) -> NDArray[np.float32]:
        block: NDArray[np.float32] = users[codes] @ items.T
        if len(unknown):
            block[:, unknown] = block.min(axis=1, keepdims=True) - 1
        return block

    return scores


def pair_scores(
    users: NDArray[np.float32], items: NDArray[np.float32], row_users: NDArray[Any], row_items: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the scores of pairs; 0 where a code has no vector."""
    known = (row_users < len(users)) & (row_items < len(items))
    scores = np.zeros(len(row_users))
    scores[known] = score_pairs(users, items, row_users[known].astype(np.int32), row_items[known].astype(np.int32))
    return scores


def _with_rows(vectors: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Return vectors followed by zeros, ``count`` in all."""
    missing = np.zeros((count - len(vectors), vectors.shape[1]), np.float32)
    return np.concatenate((vectors, missing)) if len(missing) else vectors
