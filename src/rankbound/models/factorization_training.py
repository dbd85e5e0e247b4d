"""Training of matrix factorization from interactions: parameters, negatives, gradients and epochs.

The score of user u and item i is p_u · q_i + b_i or, with the similarity "cosine", cos(p_u, q_i) / temperature + b_i.
A user's vector is

    p_u = v_u + Σ_j h_j / sqrt(n_u) + Σ_f x_uf w_f        an own vector, vectors of the items in the history, features

with the parts that the settings choose, and an item's vector likewise q_i = v_i + Σ_f x_if w_f. All parameters are rows
of tables. A step changes the rows that its batch of users touches. Of several processes (`rankbound.parallel.workers`),
each computes the gradients of some users of the batch, and all of them make the step of the sums. Every random number
is a function of seed, epoch and user or batch, and every sum has one order, so that results do not depend on the number
of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl
import scipy.sparse
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from rankbound.data.interaction_sources import find_codes
from rankbound.data.interactions import count_codes
from rankbound.errors import DataError
from rankbound.models.factorization_kernel import Vectors, score_pairs, update_rows
from rankbound.models.factorization_losses import Objective
from rankbound.models.factorization_negatives import draw_candidates, keep_best_negatives
from rankbound.parallel import Workers, current_workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.data.interactions import Interactions
    from rankbound.losses import RankingLoss

__all__ = ["InteractionTraining", "Settings", "TableState"]

_BLOCK_SCORES = 1 << 21  # of a block of users in training with the whole catalog: 8 MB
_PARTS = ("values", "first", "second")
_TINY = 1e-12  # the least norm of a vector that is divided by its norm

Matrix = Any  # scipy.sparse.csr_matrix, which has no types


@dataclass(frozen=True)
class Settings:
    """The parameters of `MatrixFactorization` that steps depend on; see there."""

    factors: int
    init: float
    optimizer: str
    learning_rate: float
    schedule: str
    epochs: int
    l2: float
    batch_size: int | None
    reduction: str
    negatives: float | None  # None: the whole catalog
    negative_candidates: int
    sampling: str
    user_model: str
    dropout: float
    similarity: str
    temperature: float
    biases: bool
    activity_exponent: float
    seed: int

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 1."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * (epoch - 1) / self.epochs)) / 2

    def random(self, *stream: int) -> np.random.Generator:
        """Return a separate generator for each use, epoch and batch."""
        return np.random.default_rng([self.seed, *stream])


# ---- state -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class TableState:
    """The state of training: tables of parameters with their moments, and the values of the best epoch so far."""

    tables: dict[str, Vectors]
    epoch: int = 0
    steps: int = 0
    best_epoch: int = 0
    best_value: float = -1.0
    best: dict[str, NDArray[np.float32]] | None = None
    history: list[dict[str, float]] = field(default_factory=list)

    def note(self, value: float) -> None:
        """Keep the current parameters if their value is the best so far."""
        if self.best is None or value > self.best_value:
            self.best_epoch, self.best_value = self.epoch, value
            self.best = {name: table.values.copy() for name, table in self.tables.items()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a checkpoint."""
        arrays = {f"{name}.{part}": getattr(table, part) for name, table in self.tables.items() for part in _PARTS}
        return arrays | {f"best.{name}": values for name, values in (self.best or {}).items()}

    def metadata(self) -> dict[str, Any]:
        """Return the plain values of a checkpoint."""
        return {name: getattr(self, name) for name in ("epoch", "steps", "best_epoch", "best_value", "history")}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]], metadata: dict[str, Any]) -> Self:
        """Restore the state of a checkpoint; arrays are copied, because those of a file may be read-only."""
        names = [name.removesuffix(".values") for name in arrays if name.endswith(".values")]
        tables = {name: Vectors(*(arrays[f"{name}.{part}"].copy() for part in _PARTS)) for name in names}
        best = {name: arrays[f"best.{name}"].copy() for name in names if f"best.{name}" in arrays}
        return cls(tables, best=best or None, **metadata)


# ---- training --------------------------------------------------------------------------------------------------------


class InteractionTraining:
    """Epochs of steps on batches of users.

    Parameters
    ----------
    settings, loss:
        How to train, and the loss of each user's list.
    train:
        Interactions, sorted by user and item. Items without an interaction take no part in training: ``codes`` has the
        codes of the others, and everything here but `vectors` and `of_all_items` refers to positions in ``codes``.
    weights:
        One number per interaction, or None.
    user_features, item_features:
        A row of numbers per user and per item, or None.
    """

    def __init__(
        self,
        settings: Settings,
        loss: RankingLoss,
        train: Interactions,
        weights: NDArray[Any] | None = None,
        user_features: Matrix | None = None,
        item_features: Matrix | None = None,
    ) -> None:
        self.settings = settings
        self.catalog = len(train.item_names)
        popularity = count_codes(train.items, self.catalog)
        self.codes = np.flatnonzero(popularity)
        self.popularity = popularity[self.codes]
        self.starts, self.items = train.offsets, np.asarray(train.items)  # a column of a large file is not copied
        if len(self.codes) < self.catalog:
            positions = np.cumsum(popularity > 0, dtype=np.int32) - 1
            self.items = positions[train.items]
        self.all_item_features = item_features
        known_features = None if item_features is None else item_features[self.codes]
        self.features = {"user_features": user_features, "item_features": known_features}
        self.shape = len(train.user_names), len(self.codes)
        self.objective = Objective(loss, self.starts, self.items, weights, settings.activity_exponent)
        sizes = np.diff(self.starts)
        known = (sizes > 0) & (sizes < self.shape[1]) & (self.objective.user_weights > 0)
        self.users = np.flatnonzero(known).astype(np.int32)
        if len(self.users) == 0:
            raise DataError(
                f"interactions must leave a user with both positive and other items, got {len(train)} interactions of "
                f"{int((sizes > 0).sum())} users with {self.shape[1]} items"
            )
        self.counts, self.capped = self._negatives(sizes)
        self._local = np.zeros(self.shape[1], np.int32)  # positions of the items of a batch

    def new_state(self, warm: dict[str, NDArray[np.float32]] | None = None) -> TableState:
        """Draw initial parameters, and replace those that ``warm`` has (NaN: not known)."""
        s, rng = self.settings, self.settings.random(1)
        users, items = self.shape
        shapes = {}
        if s.user_model != "history":
            shapes["users"] = (users, s.factors)
        shapes["items"] = (items, s.factors)
        if s.user_model != "vectors":
            shapes["history"] = (items, s.factors)
        if s.biases:
            shapes["biases"] = (items, 1)
        for name, matrix in self.features.items():
            if matrix is not None:
                shapes[name] = (matrix.shape[1], s.factors)
        tables = {}
        for name, shape in shapes.items():
            values = np.zeros(shape, np.float32)
            if name != "biases":
                values[:] = rng.uniform(-s.init, s.init, shape)
            if warm and name in warm:
                values = np.where(np.isnan(warm[name]), values, warm[name])
            # SGD does not use the moments, and zeros that are never touched take no memory
            tables[name] = Vectors(values, np.zeros_like(values), np.zeros_like(values))
        if "users" in tables:
            tables["users"].values[np.diff(self.starts) == 0] = 0
        return TableState(tables)

    def warm_values(self, previous: tuple[Any, Any, Any], train: Interactions) -> dict[str, NDArray[np.float32]]:
        """Return the parameters of another training for the ids that it knew, NaN for the others."""
        user_ids, item_ids, parameters = previous
        found = {"users": find_codes(user_ids, pl.Series(train.user_names))}
        found["items"] = found["history"] = found["biases"] = find_codes(
            item_ids, pl.Series(train.item_names[self.codes])
        )
        values = {}
        for name, table in parameters.items():
            width = 1 if name == "biases" else self.settings.factors
            rows = found.get(name, np.arange(len(table)))
            if table.shape[1] != width or (name not in found and self._feature_count(name) != len(table)):
                continue  # of other settings or other features
            values[name] = np.where(rows[:, None] >= 0, table[rows], np.float32(np.nan))
            if name in ("users", "items"):  # zero: without an interaction
                values[name][~values[name].any(axis=1)] = np.nan
        return values

    def epoch(self, state: TableState) -> float:
        """Train on every user once and return the loss before the steps, summed over users or their mean."""
        s = self.settings
        state.epoch += 1
        users = self.users[s.random(2, state.epoch).permutation(len(self.users))]
        size = s.batch_size or len(users)
        total = 0.0
        # sums of BLAS depend on its number of threads; values that are not finite are reported by the caller
        with threadpool_limits(limits=1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, len(users), size):
                batch = np.sort(users[first : first + size])
                state.steps += 1
                total += self._step(state, batch, first)
        return total if s.reduction == "sum" else total / len(users)

    def vectors(self, values: dict[str, NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return vectors of all users and items whose inner products are the scores."""
        with threadpool_limits(limits=1, user_api="blas"):
            users = np.concatenate(
                [
                    self._normalized(self._user_sums(values, block, self._history(block, None)))[0]
                    for block in np.array_split(np.arange(self.shape[0], dtype=np.int32), 1 + self.shape[0] // 10_000)
                ]
            )
            sums = self.of_all_items(values["items"])
            if self.all_item_features is not None:
                sums += self.all_item_features @ values["item_features"]
            items = self._normalized(sums)[0]
        if self.settings.similarity == "cosine":
            users /= np.float32(self.settings.temperature)
        if self.settings.biases:  # a user vector ends with 1, an item vector with the bias
            users = np.column_stack((users, np.ones(len(users), np.float32)))
            items = np.column_stack((items, self.of_all_items(values["biases"])))
        if self.features["user_features"] is None:
            users[np.diff(self.starts) == 0] = 0
        return users, items

    def of_all_items(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return rows of a table for all items; 0 for those without an interaction."""
        table = np.zeros((self.catalog, rows.shape[1]), np.float32)
        table[self.codes] = rows
        return table

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the user."""
        if not self.capped:
            return ()
        return (f"{self.capped} users have fewer other items than negatives={self.settings.negatives:g} requires",)

    def _feature_count(self, name: str) -> int:
        matrix = self.features.get(name)
        return 0 if matrix is None else int(matrix.shape[1])

    # ---- one step ----------------------------------------------------------------------------------------------------

    def _step(self, state: TableState, batch: NDArray[np.int32], first: int) -> float:
        values = {name: table.values for name, table in state.tables.items()}
        history = self._history(batch, (state.epoch, first))
        together = current_workers()
        if together is None:
            loss, items, *gradients = self._gradients(values, batch, history, state.epoch)
        else:
            loss, items, *gradients = self._gradients_together(together, values, batch, history, state.epoch)
        if not math.isfinite(loss):
            raise FloatingPointError
        self._update(state, batch, history, items, *gradients)
        return loss

    def _gradients(
        self, values: Any, batch: Any, history: Matrix | None, epoch: int
    ) -> tuple[float, Any, Any, Any, Any]:
        """Loss, items of the batch, and gradients of the vectors of its users, of these items and of their biases."""
        users, norms = self._normalized(self._user_sums(values, batch, history))
        if self.settings.similarity == "cosine":
            users /= np.float32(self.settings.temperature)
        if self.settings.negatives is None:
            items = np.arange(self.shape[1])
            loss, *gradients = self._whole(values, batch, users)
        else:
            loss, items, *gradients = self._sampled(values, batch, users, epoch)
        if norms is not None:  # users were divided by norm and temperature
            temperature = np.float32(self.settings.temperature)
            gradients[0] = _through_norm(gradients[0] / temperature, users * temperature, norms)
        return loss, items, gradients[0], gradients[1], gradients[2]

    def _gradients_together(
        self, together: Workers, values: Any, batch: Any, history: Matrix | None, epoch: int
    ) -> tuple[float, Any, Any, Any, Any]:
        """The same, where each process computes the part of some users of the batch; all get the sums."""
        part = together.part(self.starts[batch + 1] - self.starts[batch] + self._negatives_per_user(batch))
        factors = self.settings.factors
        loss, items = 0.0, np.zeros(0, np.int64)
        own: tuple[Any, Any, Any] = (np.zeros((0, factors)), np.zeros((0, factors)), np.zeros(0))
        if part.start < part.stop:
            own_history = None if history is None else history[part]
            loss, items, *own = self._gradients(values, batch[part], own_history, epoch)  # type: ignore[assignment]
        present = np.zeros(self.shape[1], np.int32)
        present[items] = 1
        union = np.flatnonzero(together.sum(present))
        at = np.searchsorted(union, items)
        user_gradient = np.zeros((len(batch), factors), np.float32)
        item_gradient, bias_gradient = np.zeros((len(union), factors), np.float32), np.zeros(len(union), np.float32)
        user_gradient[part], item_gradient[at], bias_gradient[at] = own
        return (
            float(together.sum(np.array([loss]))[0]), union,
            together.sum(user_gradient), together.sum(item_gradient), together.sum(bias_gradient),
        )  # fmt: skip

    def _negatives_per_user(self, batch: Any) -> Any:
        """The number of negatives in the list of each user of a batch."""
        return self.shape[1] if self.settings.negatives is None else self.counts[batch]

    def _whole(self, values: Any, batch: Any, users: Any) -> tuple[float, Any, Any, Any]:
        """Loss and gradients of users, items and biases with the whole catalog, for a block of users at a time."""
        items, norms = self._normalized(self._item_sums(values, np.arange(self.shape[1])))
        biases = values["biases"][:, 0] if "biases" in values else None
        user_gradient, item_gradient = np.empty_like(users), np.zeros_like(items)
        bias_gradient = np.zeros(len(items), np.float32)
        size, loss = max(1, _BLOCK_SCORES // len(items)), 0.0
        for first in range(0, len(batch), size):
            block = slice(first, first + size)
            scores = users[block] @ items.T
            if biases is not None:
                scores += biases
            loss += float(self.objective.of_catalog(scores, batch[block]).sum())
            np.matmul(scores, items, out=user_gradient[block])
            item_gradient += scores.T @ users[block]
            if biases is not None:
                bias_gradient += scores.sum(axis=0)
        if norms is not None:
            item_gradient = _through_norm(item_gradient, items, norms)
        return loss, user_gradient, item_gradient, bias_gradient

    def _sampled(self, values: Any, batch: Any, users: Any, epoch: int) -> tuple[float, Any, Any, Any, Any]:
        """Loss, items of the batch, and gradients with drawn negatives."""
        s = self.settings
        seed = int(np.random.SeedSequence([s.seed, 4, epoch]).generate_state(1, np.uint64)[0])
        lists, offsets = draw_candidates(
            batch, self.starts, self.items, self.counts[batch], self.shape[1], seed,
            popular=s.sampling == "popularity",
        )  # fmt: skip
        rows = np.repeat(np.arange(len(batch), dtype=np.int32), np.diff(offsets))
        codes = self._distinct(lists)
        items, norms = self._normalized(self._item_sums(values, codes))
        local = self._local[lists]
        scores = score_pairs(users, items, rows, local)
        if "biases" in values:
            scores += values["biases"][lists, 0]
        if s.negative_candidates > 1:
            sizes = self.starts[batch + 1] - self.starts[batch]
            chosen, offsets = keep_best_negatives(scores, offsets, sizes, s.negative_candidates)
            scores, lists, local = scores[chosen], lists[chosen], local[chosen]
        if self.objective.is_softmax:
            scores += self._correction(batch, lists, offsets)
        losses, gradient = self.objective.of_lists(scores, offsets, batch)
        matrix = scipy.sparse.csr_matrix((gradient, local, offsets), shape=(len(batch), len(codes)))
        user_gradient, item_gradient = matrix @ items, matrix.T @ users
        if norms is not None:
            item_gradient = _through_norm(item_gradient, items, norms)
        bias_gradient = np.bincount(local, gradient, minlength=len(codes)).astype(np.float32)
        return float(losses.sum()), codes, user_gradient, item_gradient, bias_gradient

    def _correction(self, batch: Any, lists: Any, offsets: Any) -> NDArray[np.float32]:
        """Return -log of the expected number of times that each negative is in its list (logQ correction)."""
        sizes = self.starts[batch + 1] - self.starts[batch]
        lengths = np.diff(offsets)
        counts = np.repeat(lengths - sizes, lengths)
        if self.settings.sampling == "popularity":
            expected = counts * (self.popularity[lists] / len(self.items))
        else:
            expected = counts / np.repeat(self.shape[1] - sizes, lengths)
        is_positive = np.arange(len(lists)) - np.repeat(offsets[:-1], lengths) < np.repeat(sizes, lengths)
        return np.where(is_positive, 0.0, -np.log(np.maximum(expected, _TINY))).astype(np.float32)

    def _update(
        self, state: TableState, batch: Any, history: Matrix | None,
        items: Any, user_gradient: Any, item_gradient: Any, bias_gradient: Any,
    ) -> None:  # fmt: skip
        """Change the parameters of the batch, given the gradients of the vectors of its users and items."""
        s = self.settings
        how: dict[str, Any] = {
            "rate": s.rate(state.epoch),
            "factor": 1.0 if s.reduction == "sum" else 1 / len(batch),
            "decay": s.l2,
            "adam_step": state.steps if s.optimizer == "adam" else 0,
        }
        tables = state.tables
        if history is not None:
            touched = self._distinct(history.indices)
            compact = scipy.sparse.csr_matrix(
                (history.data, self._local[history.indices], history.indptr), (len(batch), len(touched))
            )
            update_rows(tables["history"], touched, np.ascontiguousarray(compact.T @ user_gradient), **how)
        for name, rows, gradient in (("user_features", batch, user_gradient), ("item_features", items, item_gradient)):
            matrix = self.features[name]
            if matrix is not None:
                update_rows(
                    tables[name], np.arange(matrix.shape[1]), np.asarray(matrix[rows].T @ gradient, np.float32), **how
                )
        if "users" in tables:
            update_rows(tables["users"], batch.astype(np.int64), user_gradient, **how)
        update_rows(tables["items"], items, np.ascontiguousarray(item_gradient, np.float32), **how)
        if "biases" in tables:
            update_rows(tables["biases"], items, bias_gradient[:, None].copy(), **how)

    # ---- vectors -----------------------------------------------------------------------------------------------------

    def _history(self, users: NDArray[np.int32], stream: tuple[int, int] | None) -> Matrix | None:
        """Return the items of users as a matrix whose rows have norm 1; with dropout if there is a stream for it."""
        s = self.settings
        if s.user_model == "vectors":
            return None
        sizes = self.starts[users + 1] - self.starts[users]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        rows = np.arange(offsets[-1]) + np.repeat(self.starts[users] - offsets[:-1], sizes)
        data = np.repeat(1 / np.sqrt(np.maximum(sizes, 1)), sizes).astype(np.float32)
        if stream is not None and s.dropout:
            data *= (s.random(3, *stream).random(len(data), np.float32) >= s.dropout) / np.float32(1 - s.dropout)
        return scipy.sparse.csr_matrix((data, self.items[rows], offsets), shape=(len(users), self.shape[1]))

    def _user_sums(self, values: Any, users: Any, history: Matrix | None) -> NDArray[np.float32]:
        sums = np.zeros((len(users), self.settings.factors), np.float32)
        if "users" in values:
            sums += values["users"][users]
        if history is not None:
            sums += history @ values["history"]
        if self.features["user_features"] is not None:
            sums += self.features["user_features"][users] @ values["user_features"]
        return sums

    def _item_sums(self, values: Any, items: Any) -> NDArray[np.float32]:
        sums = values["items"] if len(items) == self.shape[1] else values["items"][items]
        if self.features["item_features"] is not None:
            sums = sums + self.features["item_features"][items] @ values["item_features"]
        return np.asarray(sums)

    def _normalized(self, sums: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Divide vectors by their norms if the similarity is the cosine; returns the norms, too."""
        if self.settings.similarity != "cosine":
            return sums, None
        norms = np.maximum(np.sqrt(np.einsum("ij,ij->i", sums, sums)), np.float32(_TINY))[:, None]
        return sums / norms, norms

    # ---- items -------------------------------------------------------------------------------------------------------

    def _distinct(self, items: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the distinct items, sorted, and set their positions in ``_local``."""
        present = np.zeros(self.shape[1], bool)
        present[items] = True
        codes = np.flatnonzero(present)
        self._local[codes] = np.arange(len(codes), dtype=np.int32)
        return codes

    def _negatives(self, sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Return the number of items to draw for each user, and how many users have fewer than the ratio requires."""
        s = self.settings
        if s.negatives is None:
            return np.zeros(0, np.int64), 0
        wanted = np.maximum(np.floor(sizes * s.negatives + 1e-9).astype(np.int64), 1)
        left = self.shape[1] - sizes
        if s.sampling == "popularity":  # drawing all of them could take forever, because some are rare
            left = left // 2
        drawn = wanted * s.negative_candidates
        capped = (drawn > left) & (sizes > 0)
        return np.where(sizes > 0, np.minimum(drawn, left), 0), int(capped.sum())


def _through_norm(gradient: Any, unit: NDArray[np.float32], norms: Any) -> NDArray[np.float32]:
    """Return the gradient with respect to vectors, given that with respect to the vectors divided by their norms."""
    along = np.einsum("ij,ij->i", gradient, unit)[:, None]
    return np.asarray((gradient - along * unit) / norms, np.float32)
