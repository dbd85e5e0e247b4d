"""Recommender: the common base of models of users and items, which learn from a table of interactions."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rankbound.data.interactions import Interactions
from rankbound.errors import DataError
from rankbound.models.base import Ranker

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Recommender"]


class Recommender(Ranker):
    """A model that scores all items of a catalogue for a user.

    A subclass implements ``_fit_interactions(train, held_out, weights)`` and ``_score_block(users)``.

    Attributes after `fit`: ``user_ids_`` and ``item_ids_``, the sorted ids, whose indices are the codes of users and
    items; ``seen_``, the training interactions.
    """

    user_ids_: NDArray[Any]
    item_ids_: NDArray[Any]
    seen_: Interactions

    def fit(self, interactions: Any, *, eval_set: Any = None, sample_weight: Any = None) -> Self:  # type: ignore[override]
        """Learn from a table of interactions."""
        if not isinstance(interactions, Interactions):
            raise DataError(f"interactions must be a table of interactions, got {type(interactions).__name__}")
        self.user_ids_, self.item_ids_, self.seen_ = interactions.user_names, interactions.item_names, interactions
        self._fit_interactions(interactions, eval_set, sample_weight)
        return self

    @abstractmethod
    def _fit_interactions(
        self, train: Interactions, held_out: Interactions | None, weights: NDArray[np.float32] | None
    ) -> None:
        """Train; ``held_out`` has the codes of ``train``, and ``weights`` one number per interaction of ``train``."""

    @abstractmethod
    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return the scores of all items for users, by code [users, items]."""
