"""Training of matrix factorization: the candidates of each user, the gradient of the loss, and epochs of steps.

The candidates are the whole catalog, a user's interactions with drawn negatives, or given lists. Of several processes
(`rankbound.parallel.workers`), each computes the gradients of some users of the batch, and all of them make the step of
the sums. Every random number is a function of seed, epoch and user or batch, and every sum has one order, so that
results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from rankbound.data.interaction_sources import find_codes
from rankbound.data.interactions import count_codes
from rankbound.errors import DataError
from rankbound.models.recommenders.factorization.losses import Objective
from rankbound.models.recommenders.factorization.negatives import draw_candidates, keep_best_negatives
from rankbound.models.recommenders.factorization.representation import (
    NO_FEATURES,
    Gradients,
    Normalized,
    Representation,
    Sides,
    State,
    Values,
)
from rankbound.models.recommenders.factorization.steps import Batch, Vectors, score_pairs, step
from rankbound.parallel import Workers, current_workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from numpy.typing import NDArray

    from rankbound.data.interactions import Interactions
    from rankbound.losses import RankingLoss
    from rankbound.models.recommenders.factorization.lists import GivenLists, Part
    from rankbound.models.recommenders.factorization.options import Settings

_BLOCK_SCORES = 1 << 21  # of a block of users in training with the whole catalog: 8 MB
_LEAST_EXPECTED = 1e-12  # of the number of times that a negative is drawn, whose logarithm is taken
_OF_ITEMS = ("items", "history", "biases")  # tables with a row per item


class Previous(NamedTuple):
    """An earlier training, whose parameters another one can begin with."""

    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    parameters: Values


class Users(NamedTuple):
    """A batch of users, with their lists if these are given."""

    codes: NDArray[np.int32]
    first: int  # position of the batch in its epoch, by which its dropout is drawn
    lists: Batch | None = None
    part: Part | None = None


class Training:
    """Epochs of steps on batches of users.

    Parameters
    ----------
    settings, loss:
        How to train, and the loss of each user's list.
    train:
        Interactions, sorted by user and item. Items without an interaction take no part in training unless they are in
        a given list: ``codes`` has the codes of the others, and everything here but `vectors` and `parameters` refers
        to positions in ``codes``.
    weights:
        One number per interaction, or None.
    features:
        A row of numbers per user and per item, or None.
    lists:
        The candidates of each user, if they are given; ``batches`` are then the same in every epoch.
    """

    def __init__(
        self,
        settings: Settings,
        loss: RankingLoss,
        train: Interactions,
        *,
        weights: NDArray[np.float32] | None = None,
        features: Sides = NO_FEATURES,
        lists: GivenLists | None = None,
    ) -> None:
        self.settings, self.lists = settings, lists
        self._threads = ThreadpoolController()  # once, because it looks for libraries
        self._names, self._all_item_features = Sides(train.user_names, train.item_names), features.items
        self._catalog = len(train.item_names)
        popularity = count_codes(train.items, self._catalog)
        self.codes = np.flatnonzero(popularity) if lists is None else np.arange(self._catalog)
        self._popularity = popularity[self.codes]
        self.starts, self._items = train.offsets, np.asarray(train.items)  # a column of a large file is not copied
        if len(self.codes) < self._catalog:
            positions = np.cumsum(popularity > 0, dtype=np.int32) - 1
            self._items = positions[train.items]
        known = Sides(features.users, None if features.items is None else features.items[self.codes])
        self.model = Representation(settings, self.starts, self._items, len(self.codes), known)
        self.objective = Objective(loss, self.starts, self._items, weights, settings.optimizer.activity_exponent)
        sizes = np.diff(self.starts)
        if lists is None:
            has_choice = (sizes > 0) & (sizes < len(self.codes)) & (self.objective.user_weights > 0)
        else:
            has_choice = np.ones(len(sizes), bool)
            self.batches = lists.batches(settings.batch_size, settings.random(0))
            self._parts = [lists.part_of(batch) for batch in self.batches]
        self.users = np.flatnonzero(has_choice).astype(np.int32)
        if len(self.users) == 0:
            raise DataError(
                f"interactions must leave a user with both positive and other items, got {len(train)} interactions of "
                f"{int((sizes > 0).sum())} users with {len(self.codes)} items"
            )
        self._counts, self._capped = self._count_negatives(sizes)

    # ---- parameters --------------------------------------------------------------------------------------------------

    def new_state(self, previous: Previous | None = None) -> State:
        """Draw initial parameters; those that an earlier training knew are taken from it."""
        rng, init = self.settings.random(1), self.settings.vectors.init
        known = {} if previous is None else self._known_values(previous)
        tables = {}
        for name, shape in self.model.shapes().items():
            values = np.zeros(shape, np.float32)
            if name != "biases":
                values[:] = rng.uniform(-init, init, shape)
            if name in known:
                values = np.where(np.isnan(known[name]), values, known[name])
            # SGD does not use the moments, and zeros that are never touched take no memory
            tables[name] = Vectors(values, np.zeros_like(values), np.zeros_like(values))
        if "users" in tables and self.lists is None:
            tables["users"].values[np.diff(self.starts) == 0] = 0
        return State(tables)

    def _known_values(self, previous: Previous) -> Values:
        """Return the parameters of another training for the ids that it knew, NaN for the others."""
        found = {"users": find_codes(previous.user_ids, pl.Series(self._names.users))}
        of_items = find_codes(previous.item_ids, pl.Series(self._names.items[self.codes]))
        found |= dict.fromkeys(_OF_ITEMS, of_items)
        shapes, known = self.model.shapes(), {}
        for name, table in previous.parameters.items():
            if name not in shapes or table.shape[1] != shapes[name][1]:
                continue  # of other settings
            if name not in found and shapes[name] != table.shape:
                continue  # of other features
            rows = found.get(name, np.arange(len(table)))
            known[name] = np.where(rows[:, None] >= 0, table[rows], np.float32(np.nan))
            if name in ("users", "items"):  # zero: without an interaction
                known[name][~known[name].any(axis=1)] = np.nan
        return known

    def vectors(self, values: Values) -> Sides:
        """Return vectors of all users and items whose inner products are the scores."""
        model, settings = self.model, self.settings
        with self._one_thread():
            every = np.arange(len(self.starts) - 1, dtype=np.int32)
            blocks = np.array_split(every, 1 + len(every) // 10_000)
            users = np.concatenate([model.user_vectors(values, b, model.history(b, None)).vectors for b in blocks])
            sums = self._expand_to_all_items(values["items"])
            if self._all_item_features is not None:
                sums += self._all_item_features @ values["item_features"]
            items = model.normalize(sums).vectors
        if settings.is_cosine:
            users /= settings.temperature
        if settings.vectors.biases:  # a user vector ends with 1, an item vector with the bias
            users = np.column_stack((users, np.ones(len(users), np.float32)))
            items = np.column_stack((items, self._expand_to_all_items(values["biases"])))
        if model.features["user_features"] is None and self.lists is None:
            users[np.diff(self.starts) == 0] = 0
        if self.lists is None:
            return Sides(users, items)
        return Sides(self.lists.expand(users, self.lists.user_codes), self.lists.expand(items, self.lists.item_codes))

    def parameters(self, values: Values) -> Values:
        """Return the tables of parameters with rows for all users and items."""
        tables = {name: self._expand_to_all_items(rows) if name in _OF_ITEMS else rows for name, rows in values.items()}
        if self.lists is None:
            return tables
        codes = {"users": self.lists.user_codes} | dict.fromkeys(_OF_ITEMS, self.lists.item_codes)
        return {name: self.lists.expand(table, codes[name]) for name, table in tables.items()}

    def _expand_to_all_items(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return rows of a table for all items; 0 for those that take no part."""
        table = np.zeros((self._catalog, rows.shape[1]), np.float32)
        table[self.codes] = rows
        return table

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the user."""
        if not self._capped:
            return ()
        count = self.settings.negatives.ratio
        return (f"{self._capped} users have fewer other items than negatives={count:g} requires",)

    # ---- epochs ------------------------------------------------------------------------------------------------------

    def epoch(self, state: State) -> float:
        """Train on every user once and return the loss before the steps, summed over users or their mean."""
        state.epoch += 1
        total = 0.0
        # values that are not finite are reported by the caller
        with self._one_thread(), np.errstate(over="ignore", invalid="ignore"):
            for users in self._batches_of_epoch(state.epoch):
                state.steps += 1
                loss = self._step(state, users)
                if not math.isfinite(loss):
                    raise FloatingPointError
                total += loss
        return total if self.settings.optimizer.reduction == "sum" else total / len(self.users)

    def _batches_of_epoch(self, epoch: int) -> Iterator[Users]:
        """Yield batches of users: assigned anew in every epoch or, with given lists, always the same in a new order."""
        rng = self.settings.random(2, epoch)
        if self.lists is not None:
            for index in rng.permutation(len(self.batches)).tolist():
                batch = self.batches[index]
                yield Users(batch.users, index, batch, self._parts[index])
            return
        users = self.users[rng.permutation(len(self.users))]
        size = self.settings.batch_size or len(users)
        for first in range(0, len(users), size):
            yield Users(np.sort(users[first : first + size]), first)

    def _step(self, state: State, users: Users) -> float:
        if users.lists is not None and self.model.is_plain:
            return self._fused_step(state, users.lists, users.part)
        values, history = state.values, self.model.history(users.codes, (state.epoch, users.first))
        together = current_workers()
        if users.lists is not None:
            gradients = self._given_list_gradients(values, users.lists, users.part, history)
        elif together is None:
            gradients = self._gradients(values, users.codes, history, state.epoch)
        else:
            gradients = self._gradients_together(together, values, users.codes, history, state.epoch)
        if math.isfinite(gradients.loss):
            self.model.update(state, users.codes, history, gradients)
        return gradients.loss

    def _fused_step(self, state: State, batch: Batch, part: Part | None) -> float:
        """Make a step on plain vectors by kernels that need no vectors of the batch."""
        users, items = state.tables["users"], state.tables["items"]
        loss, gradient = self._row_gradient(
            batch,
            part,
            lambda rows: score_pairs(users.values, items.values, batch.row_users[rows], batch.row_items[rows]),
        )
        options: dict[str, Any] = self.model.step_options(state, len(batch.users))
        shrink = np.float32(options["rate"] * options.pop("decay"))
        touched = ((users, batch.users), (items, batch.items)) if shrink else ()
        before = [vectors.values[rows] for vectors, rows in touched]
        step(batch, gradient, users, items, **options)
        for (vectors, rows), values in zip(touched, before, strict=True):
            vectors.values[rows] -= shrink * values
        return loss

    def _one_thread(self) -> AbstractContextManager[Any]:
        """Use one thread of BLAS inside the block, because sums depend on the number of threads."""
        return self._threads.limit(limits=1, user_api="blas")  # type: ignore[no-any-return]

    # ---- gradients ---------------------------------------------------------------------------------------------------

    def _gradients(self, values: Values, users: NDArray[np.int32], history: Any, epoch: int) -> Gradients:
        """Return loss and gradients of users with the whole catalog or with drawn negatives."""
        vectors = self._scaled_vectors(values, users, history)
        if self.settings.negatives.ratio is None:
            gradients = self._catalog_gradients(values, users, vectors.vectors)
        else:
            gradients = self._drawn_list_gradients(values, users, vectors.vectors, epoch)
        return self._through_norms(gradients, vectors)

    def _scaled_vectors(self, values: Values, users: NDArray[np.int32], history: Any) -> Normalized:
        """Return vectors of users, divided by the temperature of the cosine."""
        vectors, norms = self.model.user_vectors(values, users, history)
        return Normalized(vectors if norms is None else vectors / self.settings.temperature, norms)

    def _through_norms(self, gradients: Gradients, scaled: Normalized) -> Gradients:
        """Return the gradients with that of the users' vectors before norms and temperature."""
        if scaled.norms is None:
            return gradients
        temperature = self.settings.temperature
        units = Normalized(scaled.vectors * temperature, scaled.norms)
        return gradients._replace(of_users=units.gradient_of_sums(gradients.of_users / temperature))

    def _gradients_together(
        self, together: Workers, values: Values, users: NDArray[np.int32], history: Any, epoch: int
    ) -> Gradients:
        """Return the gradients of a batch, of whose users each process computes some; all get the sums."""
        part = together.part(self.starts[users + 1] - self.starts[users] + self._negatives_per_user(users))
        factors = self.settings.factors
        none = np.zeros((0, factors), np.float32)
        own = Gradients(0.0, np.zeros(0, np.int64), none, none, none[:, 0])
        if part.start < part.stop:
            own = self._gradients(values, users[part], None if history is None else history[part], epoch)
        present = np.zeros(len(self.codes), np.int32)
        present[own.items] = 1
        union = np.flatnonzero(together.sum(present))
        at = np.searchsorted(union, own.items)
        of_users = np.zeros((len(users), factors), np.float32)
        of_items, of_biases = np.zeros((len(union), factors), np.float32), np.zeros(len(union), np.float32)
        of_users[part], of_items[at], of_biases[at] = own.of_users, own.of_items, own.of_biases
        loss = float(together.sum(np.array([own.loss]))[0])
        return Gradients(loss, union, together.sum(of_users), together.sum(of_items), together.sum(of_biases))

    def _negatives_per_user(self, users: NDArray[np.int32]) -> NDArray[np.int64] | int:
        """Return the number of negatives in the list of each user of a batch."""
        return len(self.codes) if self.settings.negatives.ratio is None else self._counts[users]

    def _catalog_gradients(self, values: Values, batch: NDArray[np.int32], users: NDArray[np.float32]) -> Gradients:
        """Return loss and gradients with the whole catalog, for a block of users at a time."""
        items = self.model.item_vectors(values)
        biases = values["biases"][:, 0] if "biases" in values else None
        of_users, of_items = np.empty_like(users), np.zeros_like(items.vectors)
        of_biases = np.zeros(len(of_items), np.float32)
        size, loss = max(1, _BLOCK_SCORES // len(of_items)), 0.0
        for first in range(0, len(batch), size):
            block = slice(first, first + size)
            scores = users[block] @ items.vectors.T
            if biases is not None:
                scores += biases
            loss += float(self.objective.evaluate_catalog(scores, batch[block]).sum())
            np.matmul(scores, items.vectors, out=of_users[block])
            of_items += scores.T @ users[block]
            if biases is not None:
                of_biases += scores.sum(axis=0)
        return Gradients(loss, np.arange(len(of_items)), of_users, items.gradient_of_sums(of_items), of_biases)

    def _drawn_list_gradients(
        self, values: Values, batch: NDArray[np.int32], users: NDArray[np.float32], epoch: int
    ) -> Gradients:
        """Return loss and gradients with drawn negatives."""
        s = self.settings
        seed = int(np.random.SeedSequence([s.seed, 4, epoch]).generate_state(1, np.uint64)[0])
        is_popular = s.negatives.sampling == "popularity"
        lists, offsets = draw_candidates(
            batch, self.starts, self._items, self._counts[batch], len(self.codes), seed, popular=is_popular
        )
        rows = np.repeat(np.arange(len(batch), dtype=np.int32), np.diff(offsets))
        codes, local = self.model.distinct_items(lists)
        items = self.model.item_vectors(values, codes)
        scores = score_pairs(users, items.vectors, rows, local)
        if "biases" in values:
            scores += values["biases"][lists, 0]
        if s.negatives.candidates > 1:
            sizes = self.starts[batch + 1] - self.starts[batch]
            chosen, offsets = keep_best_negatives(scores, offsets, sizes, s.negatives.candidates)
            scores, lists, local = scores[chosen], lists[chosen], local[chosen]
        if self.objective.is_softmax:
            scores += self._correction(batch, lists, offsets)
        losses, gradient = self.objective.evaluate_drawn_lists(scores, offsets, batch)
        matrix = scipy.sparse.csr_matrix((gradient, local, offsets), shape=(len(batch), len(codes)))
        return _from_rows(float(losses.sum()), matrix, users, codes, items)

    def _given_list_gradients(self, values: Values, batch: Batch, part: Part | None, history: Any) -> Gradients:
        """Return loss and gradients with given lists."""
        vectors = self._scaled_vectors(values, batch.users, history)
        users, items = vectors.vectors, self.model.item_vectors(values, batch.items.astype(np.int64))
        row_users = np.repeat(np.arange(len(batch.users), dtype=np.int32), np.diff(batch.starts))
        local = np.searchsorted(batch.items, batch.row_items).astype(np.int32)

        def scores(rows: slice) -> NDArray[np.float32]:
            products = score_pairs(users, items.vectors, row_users[rows], local[rows])
            return products + values["biases"][batch.row_items[rows], 0] if "biases" in values else products

        loss, gradient = self._row_gradient(batch, part, scores)
        matrix = scipy.sparse.csr_matrix((gradient, local, batch.starts), shape=(len(users), len(batch.items)))
        return self._through_norms(_from_rows(loss, matrix, users, batch.items.astype(np.int64), items), vectors)

    def _row_gradient(self, batch: Batch, part: Part | None, scores: Any) -> tuple[float, NDArray[np.float32]]:
        """Return the loss of given lists and its gradient in the scores of their rows."""
        assert self.lists is not None
        losses, gradient = self.lists.gradient(batch, part, scores)
        if self.settings.optimizer.activity_exponent:
            weights = self.objective.user_weights[batch.users]
            losses = losses * weights
            gradient = gradient * np.repeat(weights, np.diff(batch.starts)).astype(np.float32)
        return float(losses.sum()), gradient

    # ---- negatives ---------------------------------------------------------------------------------------------------

    def _correction(
        self, batch: NDArray[np.int32], lists: NDArray[np.int32], offsets: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return -log of the expected number of times that each negative is in its list (logQ correction)."""
        sizes = self.starts[batch + 1] - self.starts[batch]
        lengths = np.diff(offsets)
        counts = np.repeat(lengths - sizes, lengths)
        if self.settings.negatives.sampling == "popularity":
            expected = counts * (self._popularity[lists] / len(self._items))
        else:
            expected = counts / np.repeat(len(self.codes) - sizes, lengths)
        is_positive = np.arange(len(lists)) - np.repeat(offsets[:-1], lengths) < np.repeat(sizes, lengths)
        return np.where(is_positive, 0.0, -np.log(np.maximum(expected, _LEAST_EXPECTED))).astype(np.float32)

    def _count_negatives(self, sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Return the number of items to draw for each user, and how many users have fewer than the ratio requires."""
        negatives = self.settings.negatives
        if negatives.ratio is None or self.lists is not None:
            return np.zeros(0, np.int64), 0
        wanted = np.maximum(np.floor(sizes * negatives.ratio + 1e-9).astype(np.int64), 1)
        left = len(self.codes) - sizes
        if negatives.sampling == "popularity":  # drawing all of them could take forever, because some are rare
            left = left // 2
        drawn = wanted * negatives.candidates
        is_capped = (drawn > left) & (sizes > 0)
        return np.where(sizes > 0, np.minimum(drawn, left), 0), int(is_capped.sum())


def _from_rows(
    loss: float, matrix: Any, users: NDArray[np.float32], codes: NDArray[np.int64], items: Normalized
) -> Gradients:
    """Return the gradients of users, items and biases, given that of the scores as a sparse matrix [users, items]."""
    of_biases = np.bincount(matrix.indices, matrix.data, minlength=len(codes)).astype(np.float32)
    of_items = items.gradient_of_sums(matrix.T @ users)
    return Gradients(loss, codes, matrix @ items.vectors, of_items, of_biases)
