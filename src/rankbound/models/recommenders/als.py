"""ImplicitALS: vectors of users and items by alternating least squares on all pairs, for implicit feedback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.checkpoints import Checkpoints
from rankbound.errors import DataError
from rankbound.io import progress_display
from rankbound.kernels import ARRAY, INTEGER, Arguments, kernel, run
from rankbound.models.base import FittedState, seed_of
from rankbound.models.parameters import check_in_range
from rankbound.models.recommenders.base import Recommender, interaction_matrix, restore_array
from rankbound.models.recommenders.factorization.representation import NO_FEATURES
from rankbound.models.recommenders.factorization.tables import table_digests

if TYPE_CHECKING:
    from os import PathLike

    import scipy.sparse
    from numpy.typing import NDArray

    from rankbound.data.interactions import Interactions
    from rankbound.measures.measure import Measure

_LANES = 16  # the kernel takes at most so many entries of a vector at once


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
    measure: str | Measure = "nDCG@10"
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
            _widen(rng.normal(0, self.init / np.sqrt(self.factors), (count, self.factors)).astype(np.float32))
            for count in by_user.shape
        )
        done, checkpoints = 0, None
        if self.checkpoint is not None:
            checkpoints = Checkpoints(self.checkpoint, self._identity(train, weights))
            if stored := checkpoints.load():
                users, items = (_widen(stored[0][name]) for name in ("users", "items"))
                done = int(stored[1]["epoch"])
        if done > self.epochs:
            raise DataError(f"{self.checkpoint}: has {done} epochs already, more than epochs={self.epochs}")
        with progress_display(shown=self.verbose) as show:
            for epoch in range(done + 1, self.epochs + 1):
                self._solve(users, items, by_user)
                self._solve(items, users, by_item)
                show("epoch", epoch, self.epochs)
                if checkpoints and (epoch % self.checkpoint_every == 0 or epoch == self.epochs):
                    arrays = {"users": self._narrow(users), "items": self._narrow(items)}
                    checkpoints.save(epoch, arrays, {"epoch": epoch})
        self.user_vectors_, self.item_vectors_ = self._narrow(users), self._narrow(items)

    def _identity(self, train: Interactions, weights: NDArray[np.float32] | None) -> dict[str, Any]:
        """Return the parameters and data that a checkpoint must match."""
        ignored = ("epochs", "measure", "verbose", "checkpoint", "checkpoint_every")
        parameters = {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in ignored}
        digests = table_digests(train, None, weights, NO_FEATURES)
        return parameters | {name: digests[name] for name in ("data", "sample_weight")}

    def _solve(self, vectors: NDArray[Any], others: NDArray[Any], table: scipy.sparse.csr_array) -> None:
        gram = np.float32(self.unobserved_weight) * (others.T @ others)
        counts = np.diff(table.indptr) + self.unobserved_weight * len(others)
        ridge = (self.l2 * counts**self.l2_exponent).astype(np.float32)
        function = kernel("solve_side", _SolveSide)
        if function is None:
            _solve_by_matrices(vectors, others, gram, table, ridge, self.steps)
            return
        arguments = _SolveSide(
            width=vectors.shape[1],
            steps=self.steps,
            offsets=table.indptr.astype(np.int64),
            codes=np.ascontiguousarray(table.indices, np.int32),
            weights=np.ascontiguousarray(table.data, np.float32),
            ridge=ridge,
            gram=np.ascontiguousarray(gram),
            others=others,
            vectors=vectors,
        )
        run(function, arguments, len(vectors), table.nnz * self.factors)

    def _narrow(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return vectors without the entries that `_widen` has added."""
        return np.ascontiguousarray(vectors[:, : self.factors])

    def _vectors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.user_vectors_, self.item_vectors_

    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        return self.user_vectors_[users] @ self.item_vectors_.T

    def _fitted_state(self) -> FittedState:
        return FittedState({"users": self.user_vectors_, "items": self.item_vectors_})

    def _restore_state(self, state: FittedState) -> None:
        self.user_vectors_ = restore_array(state, "users", (len(self.user_ids_), self.factors))
        self.item_vectors_ = restore_array(state, "items", (len(self.item_ids_), self.factors))


# ---- solving ---------------------------------------------------------------------------------------------------------


class _SolveSide(Arguments):
    """See ``kernels/als.cpp``."""

    _fields_ = (
        ("width", INTEGER),
        ("steps", INTEGER),
        ("offsets", ARRAY),
        ("codes", ARRAY),
        ("weights", ARRAY),
        ("ridge", ARRAY),
        ("gram", ARRAY),
        ("others", ARRAY),
        ("vectors", ARRAY),
    )


def _widen(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors with zeros at the end, which stay zeros, so that their length is a multiple of `_LANES`."""
    return np.pad(vectors, ((0, 0), (0, -vectors.shape[1] % _LANES)))


def _solve_by_matrices(
    vectors: NDArray[Any],
    others: NDArray[Any],
    gram: NDArray[Any],
    table: scipy.sparse.csr_array,
    ridge: NDArray[Any],
    steps: int,
) -> None:
    """Do what the kernel does, with the conjugate gradients of all rows at the same time."""
    rows = np.repeat(np.arange(len(vectors)), np.diff(table.indptr))
    interactions = table.copy()

    def products(x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.einsum("ij,ij->i", x[rows], others[table.indices]))

    def apply(x: NDArray[Any]) -> NDArray[Any]:
        interactions.data = table.data * products(x)
        return np.asarray(x @ gram + ridge[:, None] * x + interactions @ others)

    residual = np.asarray(table @ others) - apply(vectors)
    direction, norm = residual.copy(), np.einsum("ij,ij->i", residual, residual)
    for _ in range(steps):
        image = apply(direction)
        going = norm >= 1e-20
        length = np.divide(norm, np.einsum("ij,ij->i", direction, image), where=going, out=np.zeros_like(norm))
        vectors += length[:, None] * direction
        residual -= length[:, None] * image
        before, norm = norm, np.einsum("ij,ij->i", residual, residual)
        momentum = np.divide(norm, before, where=going, out=np.zeros_like(norm))
        direction = np.where(going[:, None], residual + momentum[:, None] * direction, 0)
