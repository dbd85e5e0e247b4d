"""EASE: a linear model of all items on each other, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError
from rankbound.models.base import FittedState
from rankbound.models.parameters import check_choice, check_in_range
from rankbound.models.recommenders.base import Recommender, interaction_matrix, restore_array
from rankbound.parallel import physical_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.data.interactions import Interactions
    from rankbound.measures.measure import Measure

_BLOCK = 1 << 23  # entries that are computed at once
_PRECISIONS = ("float32", "float64")
_GB = 1e9


@dataclass(eq=False, repr=False)
class EASE(Recommender):
    """Embarrassingly shallow autoencoder: the items of a user times a matrix of weights between items.

    The matrix B minimizes |X - X B|² + l2 |B|² with a diagonal of zeros, where X has a 1 for each interaction. With
    P = (XᵀX + l2 I)⁻¹, its entries are -P_ij / P_jj.

    Source: Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data".

    Parameters
    ----------
    l2:
        Regularization, above 0; from 50 for small data to 1,000 for large data.
    precision:
        ``"float64"`` or ``"float32"`` of the inverse. The latter needs a third of the memory; the weights are kept in
        float32 in either case.
    max_memory:
        Memory that training may use, in GB; None is four fifths of the machine's. Training needs 12 bytes, or 4 in
        float32, per pair of items, and a catalog that needs more is refused before anything is computed.
    measure:
        The measure that `score` reports.

    >>> users, items = ["ann", "ann", "bob", "bob", "cid"], ["tea", "jam", "tea", "jam", "tea"]
    >>> EASE(l2=1).fit((users, items)).recommend("cid")["item"].to_list()
    ['jam']
    """

    l2: float = 400.0
    precision: str = "float64"
    max_memory: float | None = None
    measure: str | Measure = "nDCG@10"

    def _fit_interactions(
        self,
        train: Interactions,
        held_out: Interactions | None,  # noqa: ARG002 - there are no epochs to select from
        weights: NDArray[np.float32] | None,  # noqa: ARG002 - refused by `fit`
    ) -> None:
        from scipy.linalg import lapack

        check_in_range("l2", self.l2, 0, np.inf, open_low=True)
        check_choice("precision", self.precision, tuple(_PRECISIONS))
        count = len(train.item_names)
        self._check_memory(count)
        # Fortran order, as LAPACK computes in place only then; the matrix is symmetric
        inverse = self._gram(train).T
        inverse[np.diag_indices(count)] += self.l2
        factor, invert = (
            (lapack.dpotrf, lapack.dpotri) if self.precision == "float64" else (lapack.spotrf, lapack.spotri)
        )
        inverse, failed = factor(inverse, overwrite_a=True, clean=False)
        if not failed:
            inverse, failed = invert(inverse, overwrite_c=True)
        if failed:
            raise DataError(f"the items have no inverse in {self.precision}; use a larger l2 or precision='float64'")
        self.item_weights_ = _weights(inverse.T)

    def _gram(self, train: Interactions) -> NDArray[Any]:
        """Return XᵀX, computed by blocks of rows."""
        users_items = interaction_matrix(train)
        items_users = users_items.T.tocsr()
        count = len(train.item_names)
        gram = np.empty((count, count), self.precision)
        step = max(1, _BLOCK // count)
        for start in range(0, count, step):
            gram[start : start + step] = (items_users[start : start + step] @ users_items).toarray()
        return gram

    def _check_memory(self, count: int) -> None:
        limit = physical_memory() * 0.8 if self.max_memory is None else self.max_memory * _GB
        needed = count**2 * (12 if self.precision == "float64" else 4) + 24 * min(count**2, _BLOCK)
        if needed > limit:
            raise DataError(
                f"EASE needs {needed / _GB:.3g} GB for {count:,} items, and max_memory is {limit / _GB:.3g} GB; keep "
                "fewer items, or use precision='float32', ItemKNN or ImplicitALS"
            )

    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = self._seen_matrix()[users] @ self.item_weights_
        return scores

    def _fitted_state(self) -> FittedState:
        return FittedState({"item_weights": self.item_weights_})

    def _restore_state(self, state: FittedState) -> None:
        self.item_weights_ = restore_array(state, "item_weights", (len(self.item_ids_),) * 2)


def _weights(inverse: NDArray[Any]) -> NDArray[np.float32]:
    """Return -P_ij / P_jj with zeros on the diagonal from an inverse of which only the lower triangle is filled."""
    count = len(inverse)
    weights = inverse if inverse.dtype == np.float32 else np.empty((count, count), np.float32)
    diagonal = np.diagonal(inverse).copy()
    step = max(1, _BLOCK // count)
    for start in range(0, count, step):  # the upper triangle is the lower one, transposed
        end = min(start + step, count)
        inverse[start:end, end:] = inverse[end:, start:end].T
        inner = inverse[start:end, start:end]
        inner[:] = np.tril(inner) + np.tril(inner, -1).T
    for start in range(0, count, step):
        np.divide(inverse[start : start + step], -diagonal, out=weights[start : start + step], casting="same_kind")
    np.fill_diagonal(weights, 0)
    return weights
