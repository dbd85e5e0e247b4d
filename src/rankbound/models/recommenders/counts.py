"""Recommenders that only count interactions: Popularity, the most frequent items, and ItemKNN, similar items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rankbound.errors import DataError
from rankbound.models.base import FittedState
from rankbound.models.parameters import check_in_range
from rankbound.models.recommenders.base import Recommender, interaction_matrix, restore_array
from rankbound.models.recommenders.top_items import LOWEST, top_of_rows

if TYPE_CHECKING:
    import scipy.sparse
    from numpy.typing import NDArray

    from rankbound.data.interactions import Interactions
    from rankbound.measures.measure import Measure

_BLOCK = 1 << 23  # similarities that are computed at once


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

    measure: str | Measure = "nDCG@10"
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
        self.item_scores_ = restore_array(state, "item_scores", (len(self.item_ids_),))


@dataclass(eq=False, repr=False)
class ItemKNN(Recommender):
    """Nearest neighbors of items: an item scores the sum of its similarities to the items of the user.

    The similarity of items with n_i and n_j users, c_ij of them in common, is the cosine with shrinkage,
    c_ij / (sqrt(n_i n_j) + shrinkage); only the ``neighbors`` most similar items of each item count.

    Source: Deshpande & Karypis 2004, "Item-based top-N recommendation algorithms"; the shrinkage is that of Bell &
    Koren 2007.

    Parameters
    ----------
    neighbors:
        Number of neighbors of each item; equally similar ones are taken by id.
    shrinkage:
        At least 0; larger values favor similarities that rest on many users.
    measure:
        The measure that `score` reports.

    >>> users, items = ["ann", "ann", "bob", "bob", "cid"], ["tea", "jam", "tea", "jam", "tea"]
    >>> ItemKNN(shrinkage=0).fit((users, items)).recommend("cid").rows()  # 2 / sqrt(2 * 3)
    [('cid', 'jam', 1, 0.8164966106414795)]
    """

    neighbors: int = 200
    shrinkage: float = 10.0
    measure: str | Measure = "nDCG@10"

    def _fit_interactions(
        self,
        train: Interactions,
        held_out: Interactions | None,  # noqa: ARG002 - there are no epochs to select from
        weights: NDArray[np.float32] | None,  # noqa: ARG002 - refused by `fit`
    ) -> None:
        check_in_range("neighbors", self.neighbors, 1, np.inf)
        check_in_range("shrinkage", self.shrinkage, 0, np.inf)
        users_items = interaction_matrix(train)
        items_users = users_items.T.tocsr()
        count = len(train.item_names)
        size = np.sqrt(np.diff(items_users.indptr).astype(np.float32))
        k = min(self.neighbors, count)
        neighbors, values = np.empty((count, k), np.int32), np.empty((count, k), np.float32)
        step = max(1, _BLOCK // count)
        for start in range(0, count, step):
            block = (items_users[start : start + step] @ users_items).toarray()
            rows = np.arange(len(block))
            # an item without users has no similarity, and would be divided by zero
            block /= np.maximum(np.outer(size[start : start + step], size) + np.float32(self.shrinkage), 1e-30)
            block[rows, start + rows] = LOWEST  # an item is no neighbor of itself
            neighbors[start : start + step], values[start : start + step] = top_of_rows(block, k)
        self._keep(neighbors, np.where(values > 0, values, 0))

    def _keep(self, neighbors: NDArray[np.int32], values: NDArray[np.float32]) -> None:
        """Store the similarities to the neighbors as a sparse matrix; a row is the item that is similar."""
        from scipy.sparse import csc_array

        count = len(neighbors)
        kept = values > 0
        indptr = np.concatenate(([0], np.cumsum(kept.sum(axis=1))))
        # column i has the neighbors of item i
        by_column = csc_array((values[kept], neighbors[kept], indptr), shape=(count, count))
        self.similarities_: scipy.sparse.csr_array = by_column.tocsr()

    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = (self._seen_matrix()[users] @ self.similarities_).toarray()
        return scores

    def _fitted_state(self) -> FittedState:
        table = self.similarities_
        return FittedState({"values": table.data, "columns": table.indices, "indptr": table.indptr.astype(np.int64)})

    def _restore_state(self, state: FittedState) -> None:
        from scipy.sparse import csr_array

        values, columns, indptr = (state.arrays[name].copy() for name in ("values", "columns", "indptr"))
        count = len(self.item_ids_)
        if values.dtype != np.float32 or not np.isfinite(values).all():
            raise DataError(f"similarities must be finite float32, got {values.dtype}")
        self.similarities_ = csr_array((values, columns, indptr), shape=(count, count))
        self.similarities_.check_format(full_check=True)
