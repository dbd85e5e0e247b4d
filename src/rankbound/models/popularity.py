"""Popularity: the items with the most interactions, the same for every user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.models.base import FittedState
from rankbound.models.recommender import Recommender, restored_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.data.interactions import Interactions

__all__ = ["Popularity"]


@dataclass(eq=False, repr=False)
class Popularity(Recommender):
    """Recommend the items with the most interactions, the same for every user: the baseline that others must beat.

    The score of an item is its number of interactions, or the sum of their weights.

    Parameters
    ----------
    measure:
        The measure that `score` reports.

    >>> model = Popularity().fit((["ann", "bob", "bob"], ["tea", "tea", "jam"]))
    >>> model.recommend("ann").rows()
    [('ann', 'jam', 1, 1.0)]
    """

    measure: Any = "nDCG@10"
    _accepts_weights: ClassVar[bool] = True

    def _fit_interactions(
        self,
        train: Interactions,
        held_out: Interactions | None,  # noqa: ARG002 - there are no epochs to select from
        weights: NDArray[np.float32] | None,
    ) -> None:
        self.item_scores_ = np.bincount(train.items, weights, len(train.item_names)).astype(np.float32)

    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        return np.tile(self.item_scores_, (len(users), 1))

    def _fitted_state(self) -> FittedState:
        return FittedState({"item_scores": self.item_scores_})

    def _restore_state(self, state: FittedState) -> None:
        self.item_scores_ = restored_array(state, "item_scores", (len(self.item_ids_),))
