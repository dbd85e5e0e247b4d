"""ImplicitALS: vectors of users and items by alternating least squares on all pairs, for implicit feedback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.checkpoints import Checkpoints
from rankbound.errors import DataError
from rankbound.losses.compiling import running
from rankbound.models.als_kernel import solve_side
from rankbound.models.base import FittedState, seed_of
from rankbound.models.factorization_features import table_digests
from rankbound.models.parameters import check_in_range
from rankbound.models.progress import progress_bar
from rankbound.models.recommender import Recommender, interaction_matrix, restored_array

if TYPE_CHECKING:
    from os import PathLike

    import scipy.sparse
    from numpy.typing import NDArray

    from rankbound.data.interactions import Interactions

__all__ = ["ImplicitALS"]


@dataclass(eq=False, repr=False)
class ImplicitALS(Recommender):
    """Matrix factorization for implicit feedback, score(u, i) = p_u · q_i, by alternating least squares.

    It minimizes the sum of (score - 1)² over the interactions, of ``unobserved_weight`` score² over all pairs of user
    and item, and of l2 n_u |p_u|² over users and l2 n_i |q_i|² over items, with n_u = (interactions of u +
    unobserved_weight × items)^l2_exponent and n_i likewise. An epoch solves for all users and then for all items, each
    by a few steps of conjugate gradients from the previous vector.

    Source: Hu, Koren & Volinsky 2008, whose confidence c = 1 + alpha and regularization r correspond to
    ``unobserved_weight=1 / alpha``, ``l2=r / c`` and ``l2_exponent=0`` (vectors are then shorter by a common factor);
    Takács, Pilászy & Tikk 2011 for conjugate gradients; Rendle, Krichene, Zhang & Koren 2021, "Revisiting the
    Performance of iALS on Item Recommendation Benchmarks", for the regularization.

    Parameters
    ----------
    factors:
        Dimension of the vectors.
    unobserved_weight:
        Weight of pairs without an interaction, above 0, compared with the 1 of an interaction.
    l2, l2_exponent:
        Regularization, and how it grows with the number of interactions: 0 is plain l2, 1 scales it by frequency.
    epochs, steps:
        Passes over users and items, and conjugate gradient steps per vector. Few epochs act as regularization.
    init:
        Root mean square of the norms of the initial vectors: they are normal with deviation init / sqrt(factors).
    measure:
        The measure that `score` reports.
    checkpoint, checkpoint_every:
        A folder to which the vectors are written atomically, every ``checkpoint_every`` epochs and at the end. If it
        holds those of the same training, `fit` resumes from them and ends with the vectors of an uninterrupted fit;
        ``epochs`` may be larger than before. The folder of another training is refused.
    random_state:
        Seed of the initial vectors; None is 0. The vectors do not depend on the number of threads.
    verbose:
        Show a progress bar on standard error if that is a terminal.

    With ``sample_weight``, the squared error of each interaction has its weight as a factor.

    >>> users, items = ["ann", "ann", "bob", "bob", "cid", "dan"], ["tea", "jam", "tea", "jam", "tea", "ink"]
    >>> model = ImplicitALS(factors=2).fit((users, items))
    >>> model.recommend("cid", k=1)["item"].to_list()
    ['jam']
    """

    factors: int = 64
    unobserved_weight: float = 0.1
    l2: float = 0.02
    l2_exponent: float = 1.0
    epochs: int = 16
    steps: int = 3
    init: float = 0.1
    measure: Any = "nDCG@10"
    random_state: int | None = 0
    verbose: bool = False
    checkpoint: str | PathLike[str] | None = None
    checkpoint_every: int = 1
    _accepts_weights: ClassVar[bool] = True

    def _fit_interactions(
        self,
        train: Interactions,
        held_out: Interactions | None,  # noqa: ARG002 - all epochs are run
        weights: NDArray[np.float32] | None,
    ) -> None:
        for name in ("factors", "epochs", "steps", "checkpoint_every"):
            check_in_range(name, getattr(self, name), 1, np.inf)
        for name in ("unobserved_weight", "init", "l2"):
            check_in_range(name, getattr(self, name), 0, np.inf, open_low=True)
        check_in_range("l2_exponent", self.l2_exponent, 0, 10)
        rng = np.random.default_rng(seed_of(self.random_state))
        by_user = interaction_matrix(train, weights)
        by_item = by_user.T.tocsr()
        users, items = (
            rng.normal(0, self.init / np.sqrt(self.factors), (count, self.factors)).astype(np.float32)
            for count in by_user.shape
        )
        done, checkpoints = 0, None
        if self.checkpoint is not None:
            checkpoints = Checkpoints(self.checkpoint, self._identity(train, weights))
            if stored := checkpoints.load():
                users, items = (stored[0][name].copy() for name in ("users", "items"))
                done = int(stored[1]["epoch"])
        if done > self.epochs:
            raise DataError(f"{self.checkpoint}: has {done} epochs already, more than epochs={self.epochs}")
        with progress_bar("epoch", self.epochs, shown=self.verbose) as show:
            for epoch in range(done + 1, self.epochs + 1):
                self._solve(users, items, by_user)
                self._solve(items, users, by_item)
                show(epoch)
                if checkpoints and (epoch % self.checkpoint_every == 0 or epoch == self.epochs):
                    checkpoints.save(epoch, {"users": users, "items": items}, {"epoch": epoch})
        self.user_vectors_, self.item_vectors_ = users, items

    def _identity(self, train: Interactions, weights: NDArray[np.float32] | None) -> dict[str, Any]:
        """Return the parameters and data that a checkpoint must match."""
        ignored = ("epochs", "measure", "verbose", "checkpoint", "checkpoint_every")
        parameters = {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in ignored}
        digests = table_digests(train, None, weights, [None, None])
        return parameters | {name: digests[name] for name in ("data", "sample_weight")}

    def _solve(self, vectors: NDArray[Any], others: NDArray[Any], table: scipy.sparse.csr_array) -> None:
        gram = np.float32(self.unobserved_weight) * (others.T @ others)
        counts = np.diff(table.indptr) + self.unobserved_weight * len(others)
        ridge = (self.l2 * counts**self.l2_exponent).astype(np.float32)
        offsets = table.indptr.astype(np.int64)
        with running(table.nnz * self.factors):
            solve_side(vectors, others, gram, offsets, table.indices, table.data, ridge, self.steps)

    def _vectors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.user_vectors_, self.item_vectors_

    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        return self.user_vectors_[users] @ self.item_vectors_.T

    def _fitted_state(self) -> FittedState:
        return FittedState({"users": self.user_vectors_, "items": self.item_vectors_})

    def _restore_state(self, state: FittedState) -> None:
        self.user_vectors_ = restored_array(state, "users", (len(self.user_ids_), self.factors))
        self.item_vectors_ = restored_array(state, "items", (len(self.item_ids_), self.factors))
