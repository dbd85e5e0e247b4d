"""Vectors of users and items from tables of parameters, and the steps on these tables.

The score of user u and item i is p_u · q_i + b_i or, with the similarity "cosine", cos(p_u, q_i) / temperature + b_i.
A user's vector is

    p_u = v_u + Σ_j h_j / sqrt(n_u) + Σ_f x_uf w_f        an own vector, vectors of the items in the history, features

with the parts that the settings choose, and an item's vector likewise q_i = v_i + Σ_f x_if w_f. All parameters are rows
of tables. A step changes the rows that its batch of users touches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from rankbound.models.recommenders.factorization.steps import Vectors, update_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.models.recommenders.factorization.options import Settings

_PARTS = ("values", "first", "second")
_TINY = 1e-12  # the least norm of a vector that is divided by its norm

Values = dict[str, "NDArray[np.float32]"]  # tables of parameters by name


class Sides(NamedTuple):
    """Something of users, and the same of items."""

    users: Any
    items: Any


NO_FEATURES = Sides(None, None)


class Normalized(NamedTuple):
    """Vectors, divided by their norms if there are norms."""

    vectors: NDArray[np.float32]
    norms: NDArray[np.float32] | None

    def gradient_of_sums(self, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the gradient with respect to the vectors before they were divided, given that with respect to them."""
        if self.norms is None:
            return np.asarray(gradient)
        along = np.einsum("ij,ij->i", gradient, self.vectors)[:, None]
        return np.asarray((gradient - along * self.vectors) / self.norms, np.float32)


class Gradients(NamedTuple):
    """The loss of a batch, the items of its lists, and the gradients of vectors before they were normalized."""

    loss: float
    items: NDArray[np.int64]
    of_users: NDArray[np.float32]
    of_items: NDArray[np.float32]
    of_biases: NDArray[np.float32]


# ---- state -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class State:
    """The state of training: tables of parameters with their moments, and the values of the best epoch so far."""

    tables: dict[str, Vectors]
    epoch: int = 0
    steps: int = 0
    best_epoch: int = 0
    best_value: float = -1.0
    best: Values | None = None
    history: list[dict[str, float]] = field(default_factory=list)

    @property
    def values(self) -> Values:
        """The parameters, without their moments."""
        return {name: table.values for name, table in self.tables.items()}

    def keep_if_best(self, value: float) -> None:
        """Keep the current parameters if their value is the best so far."""
        if self.best is None or value > self.best_value:
            self.best_epoch, self.best_value = self.epoch, value
            self.best = {name: values.copy() for name, values in self.values.items()}

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the arrays of a checkpoint."""
        arrays = {f"{name}.{part}": getattr(table, part) for name, table in self.tables.items() for part in _PARTS}
        return arrays | {f"best.{name}": values for name, values in (self.best or {}).items()}

    def metadata(self) -> dict[str, Any]:
        """Return the plain values of a checkpoint."""
        return {name: getattr(self, name) for name in ("epoch", "steps", "best_epoch", "best_value", "history")}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], metadata: dict[str, Any]) -> Self:
        """Restore the state of a checkpoint; arrays are copied, because those of a file may be read-only."""
        names = [name.removesuffix(".values") for name in arrays if name.endswith(".values")]
        tables = {name: Vectors(*(arrays[f"{name}.{part}"].copy() for part in _PARTS)) for name in names}
        best = {name: arrays[f"best.{name}"].copy() for name in names if f"best.{name}" in arrays}
        return cls(tables, best=best or None, **metadata)


# ---- vectors ---------------------------------------------------------------------------------------------------------


class Representation:
    """How tables of parameters give vectors, and how gradients of vectors change the tables.

    Parameters
    ----------
    settings:
        The parts of a vector, and the optimizer.
    starts, items:
        The items of each user's interactions.
    catalog:
        The number of items.
    features:
        A row of numbers per user and per item, as sparse matrices, or None.
    """

    def __init__(
        self, settings: Settings, starts: NDArray[np.int64], items: NDArray[np.int32], catalog: int, features: Sides
    ) -> None:
        self.settings, self.starts, self.items, self.catalog = settings, starts, items, catalog
        self.features = {"user_features": features.users, "item_features": features.items}
        self._positions = np.zeros(catalog, np.int32)  # positions of the items of a batch

    @property
    def is_plain(self) -> bool:
        """Whether a score is the dot product of an own vector of the user and one of the item."""
        s = self.settings.vectors
        has_features = any(matrix is not None for matrix in self.features.values())
        return s.similarity == "dot" and s.user_model == "vectors" and not s.biases and not has_features

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Return the shapes of the tables, in the order in which their initial values are drawn."""
        s, factors = self.settings.vectors, self.settings.factors
        shapes = {} if s.user_model == "history" else {"users": (len(self.starts) - 1, factors)}
        shapes["items"] = (self.catalog, factors)
        if s.user_model != "vectors":
            shapes["history"] = (self.catalog, factors)
        if s.biases:
            shapes["biases"] = (self.catalog, 1)
        features = {name: matrix for name, matrix in self.features.items() if matrix is not None}
        return shapes | {name: (matrix.shape[1], factors) for name, matrix in features.items()}

    def history(self, users: NDArray[np.int32], stream: tuple[int, int] | None) -> Any:
        """Return the items of users as a sparse matrix whose rows have norm 1, or None if it takes no part.

        With a stream of random numbers, a fraction of the items is left out.
        """
        s = self.settings.vectors
        if s.user_model == "vectors":
            return None
        sizes = self.starts[users + 1] - self.starts[users]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        rows = np.arange(offsets[-1]) + np.repeat(self.starts[users] - offsets[:-1], sizes)
        data = np.repeat(1 / np.sqrt(np.maximum(sizes, 1)), sizes).astype(np.float32)
        if stream is not None and s.dropout:
            kept = self.settings.random(3, *stream).random(len(data), np.float32) >= s.dropout
            data *= kept / np.float32(1 - s.dropout)
        return scipy.sparse.csr_matrix((data, self.items[rows], offsets), shape=(len(users), self.catalog))

    def user_vectors(self, values: Values, users: NDArray[np.int32], history: Any) -> Normalized:
        """Return the vectors of users, without the temperature."""
        sums = np.zeros((len(users), self.settings.factors), np.float32)
        if "users" in values:
            sums += values["users"][users]
        if history is not None:
            sums += history @ values["history"]
        if self.features["user_features"] is not None:
            sums += self.features["user_features"][users] @ values["user_features"]
        return self.normalize(sums)

    def item_vectors(self, values: Values, items: NDArray[np.int64] | None = None) -> Normalized:
        """Return the vectors of some items, or of all of them."""
        chosen = slice(None) if items is None or len(items) == self.catalog else items
        sums = values["items"][chosen]
        if self.features["item_features"] is not None:
            sums = sums + self.features["item_features"][chosen] @ values["item_features"]
        return self.normalize(np.asarray(sums))

    def normalize(self, sums: NDArray[np.float32]) -> Normalized:
        """Divide vectors by their norms if the similarity is the cosine."""
        if not self.settings.is_cosine:
            return Normalized(sums, None)
        norms = np.maximum(np.sqrt(np.einsum("ij,ij->i", sums, sums)), np.float32(_TINY))[:, None]
        return Normalized(sums / norms, norms)

    def distinct_items(self, items: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the distinct items, sorted, and the position of each item among them."""
        present = np.zeros(self.catalog, bool)
        present[items] = True
        codes = np.flatnonzero(present)
        self._positions[codes] = np.arange(len(codes), dtype=np.int32)
        return codes, self._positions[items]

    # ---- steps -------------------------------------------------------------------------------------------------------

    def step_options(self, state: State, users: int) -> dict[str, float]:
        """Return the numbers of a step on a batch of so many users."""
        optimizer = self.settings.optimizer
        return {
            "rate": self.settings.rate(state.epoch),
            "factor": 1.0 if optimizer.reduction == "sum" else 1 / users,
            "decay": optimizer.l2,
            "adam_step": state.steps if optimizer.method == "adam" else 0,
        }

    def update(self, state: State, users: NDArray[np.int32], history: Any, gradients: Gradients) -> None:
        """Change the rows of the tables that a batch of users touches."""
        options: dict[str, Any] = self.step_options(state, len(users))
        tables, items = state.tables, gradients.items
        if history is not None:
            touched, positions = self.distinct_items(history.indices)
            shape = len(users), len(touched)
            compact = scipy.sparse.csr_matrix((history.data, positions, history.indptr), shape)
            update_rows(tables["history"], touched, np.ascontiguousarray(compact.T @ gradients.of_users), **options)
        sides = ("user_features", users, gradients.of_users), ("item_features", items, gradients.of_items)
        for name, rows, gradient in sides:
            matrix = self.features[name]
            if matrix is not None:
                total = np.asarray(matrix[rows].T @ gradient, np.float32)
                update_rows(tables[name], np.arange(matrix.shape[1]), total, **options)
        if "users" in tables:
            update_rows(tables["users"], users.astype(np.int64), gradients.of_users, **options)
        update_rows(tables["items"], items, np.ascontiguousarray(gradients.of_items, np.float32), **options)
        if "biases" in tables:
            update_rows(tables["biases"], items, gradients.of_biases[:, None].copy(), **options)
