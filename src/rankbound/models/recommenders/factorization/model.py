"""MatrixFactorization: vectors of users and items, trained with any ranking loss of the users' lists."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rankbound.packages import needed_by

with needed_by("rankbound.models"):
    from sklearn.utils.validation import check_is_fitted

from rankbound.checkpoints import Checkpoints
from rankbound.data.interaction_sources import weighted_interactions
from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError, DataError
from rankbound.io import progress_display
from rankbound.losses import RankingLoss, get_loss
from rankbound.models.base import FittedState, seed_of
from rankbound.models.measuring import mean_measure
from rankbound.models.options import Monitoring, OptionGroup, accept_options, flat_parameters
from rankbound.models.parameters import check_count, check_number
from rankbound.models.recommenders.base import Recommender, restore_array
from rankbound.models.recommenders.factorization.held_out import (
    HeldOut,
    HeldOutInteractions,
    held_out_of_lists,
    pair_scores,
    products,
)
from rankbound.models.recommenders.factorization.lists import GivenLists, Pairs
from rankbound.models.recommenders.factorization.losses import interaction_loss
from rankbound.models.recommenders.factorization.options import (
    Negatives,
    Optimizer,
    Settings,
    VectorModel,
)
from rankbound.models.recommenders.factorization.representation import NO_FEATURES, Sides, State
from rankbound.models.recommenders.factorization.tables import (
    extended_table,
    feature_matrix,
    merged_tables,
    table_digests,
)
from rankbound.models.recommenders.factorization.training import Previous, Training
from rankbound.parallel import current_workers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rankbound.measures.measure import Measure

_TEMPERATURE = 0.2  # of the cosine


@accept_options
@dataclass(eq=False, repr=False)
class MatrixFactorization(Recommender):
    """Matrix factorization, score(u, i) = p_u · q_i, trained with a ranking loss of each user's list.

    The data are *interactions* with any ids (see `fit`): each user's list consists of the items of the user's
    interactions, which have label 1, and of all or some other items of the catalog, which have label 0. Or they are
    *lists of codes with labels*, as in the papers: then the lists are given, and codes are the ids.

    Parameters
    ----------
    factors:
        Dimension of the vectors. With the cosine, more of them (128 to 512) usually rank better.
    loss, bounding:
        A loss of `rankbound.losses` by name (``"nDCG"``, ``"AP"``, ``"nRBP"``, ``"lambda-nDCG"``, ...) and its
        bounding, or a loss object with ``bounding="none"``. Each user is a query. None means ``"softmax"`` for
        interactions and ``"nDCG"`` for given lists. For interactions, ``"softmax"`` and ``"ListNet"`` both mean the
        cross entropy with labels that are normalized to a distribution per user.
    epochs, batch_size:
        Passes over the data, and users per step (None: all). Users are assigned to batches anew in every epoch; given
        lists are assigned once, and the order of the batches is drawn anew.
    learning_rate:
        Step size.
    optimizer:
        ``"adam"``, ``"sgd"`` or an `Optimizer`, which also has the regularization.
    negatives:
        ``"all"``, a number of negatives for each positive item, or `Negatives`. Given lists have their own.
    vectors:
        A `VectorModel`: own vectors or the history of a user, cosine or dot product, biases, initial values.
    measure:
        The measure that `score` reports and by which an epoch is selected.
    monitoring:
        A `Monitoring`: selection of an epoch, patience, checkpoints, progress; or a selection by name.
    random_state:
        Seed of initial vectors, batches and negatives; None is 0. The vectors do not depend on the number of threads.

    A user whose labels are all equal has no gradient and is left out. Users and items that were left out or are not in
    the training data have the zero vector: all their scores are 0.

    Source: Westerborg 2022, section 4.1 (32 factors, initial values in ±0.01, Adam, 32 users
    per batch); Li, Urbano & Hanjalic 2021, section 3 (SGD on the summed loss); Wu et al. 2024, On the effectiveness of
    sampled softmax loss for item recommendation (cosine and temperature); Yi et al. 2019, Sampling-bias-corrected
    neural modeling for large corpus item recommendations (logQ correction); Weston et al. 2011, WSABIE (negatives by
    score); Loshchilov & Hutter 2019, Decoupled weight decay regularization.

    >>> model = MatrixFactorization(factors=4).fit((["al", "al", "bo", "bo"], ["x", "y", "y", "z"]))
    >>> model.recommend("al", k=1)["item"].to_list()
    ['z']
    >>> users, items, labels = [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 3], [1, 0, 0, 1, 0, 0]
    >>> model = MatrixFactorization(factors=4, epochs=50, learning_rate=0.1).fit(users, items, labels)
    >>> model.recommend(0, k=1, exclude_seen=False)["item"].to_list()
    [0]
    >>> model.predict([0, 7], [9, 0]).tolist()  # neither the item 9 nor the user 7 was in training
    [0.0, 0.0]
    """

    factors: int = 32
    loss: str | RankingLoss | None = None
    bounding: str = "none"
    _: KW_ONLY
    epochs: int = 30
    learning_rate: float = 0.01
    batch_size: int | None = 32
    optimizer: str | Optimizer = "adam"
    negatives: int | float | str | Negatives = "all"
    vectors: VectorModel | None = None
    measure: str | Measure = "nDCG"
    monitoring: str | Monitoring = "validation"
    random_state: int | None = 0
    _accepts_weights: ClassVar[bool] = True
    _groups: ClassVar[dict[str, OptionGroup]] = {
        "optimizer": Optimizer(),
        "negatives": Negatives(),
        "vectors": VectorModel(),
        "monitoring": Monitoring(),
    }

    # ---- for users ---------------------------------------------------------------------------------------------------

    def fit(  # type: ignore[override]
        self,
        users: Any,
        items: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        eval_set: Any = None,
        *,
        sample_weight: ArrayLike | None = None,
        user_features: Any = None,
        item_features: Any = None,
    ) -> Self:
        """Learn from interactions with any ids, or from lists of codes.

        Parameters
        ----------
        users, items, labels:
            Interactions as the only argument: a path, a frame, a sparse matrix, ``(users, items)`` or `Interactions`;
            see `rankbound.data.as_interactions`. Or rows of user, item and label, in any order: codes 0, 1, 2, ...,
            each pair at most once, and its relevance; below 0 counts as 0.
        eval_set:
            Held-out interactions, which are evaluated by full ranking: all items but the training items of the user are
            ranked. For lists of codes, ``(users, items, labels)``, or two `Interactions` with these codes, those of
            training and held-out ones, to evaluate the held-out ones by full ranking.
        sample_weight:
            For interactions, one weight per row. The softmax weights the positive items of a user by them; the loss of
            a user is weighted by their mean.
        user_features, item_features:
            For interactions, a frame with a column ``user`` (``item``) of ids and columns of numbers, about as large as
            1. A linear map of them is added to the vectors. Ids that are only here get vectors, too (cold start).

        Attributes after `fit`: ``user_vectors_``, ``item_vectors_``, whose inner products are the scores; ``history_``,
        a dict per epoch with its number, the loss before its steps, and the measures if they were evaluated;
        ``kept_epoch_``, the epoch of the vectors; ``selection_``; ``eval_score_``; ``notes_``.
        """
        options = {"sample_weight": sample_weight, "user_features": user_features, "item_features": item_features}
        if items is not None:
            for name, value in options.items():
                if value is not None:
                    raise ArgumentError(f"{name} is for interactions, got it with lists of codes")
            if labels is None:
                raise ArgumentError("labels must have one entry per row of users and items, got None")
            return self._fit_lists(users, items, labels, eval_set)
        if user_features is None and item_features is None:
            return super().fit(users, eval_set=eval_set, sample_weight=sample_weight)
        self._begin_fit(sample_weight)
        table, weights = weighted_interactions(users, sample_weight)
        table = extended_table(table, user_features, item_features)
        features = Sides(
            feature_matrix("user", user_features, table.user_names),
            feature_matrix("item", item_features, table.item_names),
        )
        return self._fit_table(table, weights, eval_set, features=features)

    def partial_fit(self, interactions: Any, *, sample_weight: ArrayLike | None = None) -> Self:
        """Continue training with new interactions, of known or new users and items, which are added to the old ones.

        ``epochs`` epochs are trained on the lists of the users in ``interactions``, starting from the present vectors.
        The weights are those of the new interactions; the old ones count with weight 1. Without a previous fit, this is
        `fit`. A checkpoint folder cannot be used.
        """
        if not hasattr(self, "parameters_"):
            return self.fit(interactions, sample_weight=sample_weight)
        if self._monitoring.checkpoint is not None:
            raise ArgumentError("partial_fit takes no checkpoint, because its result depends on the model before it")
        new, weights = weighted_interactions(interactions, sample_weight)
        table, weights, users = merged_tables(self.seen_, new, weights)
        previous = Previous(self.user_ids_, self.item_ids_, self.parameters_)
        self._begin_fit(sample_weight)
        return self._fit_table(table, weights, None, previous=previous, users=users)

    def score(self, interactions: Any, items: ArrayLike | None = None, labels: ArrayLike | None = None) -> float:
        """Return the mean of ``measure`` over the users for whom it is defined.

        Held-out interactions as the only argument are evaluated by full ranking; or rows of codes with labels.
        """
        if items is None:
            return super().score(interactions)
        check_is_fitted(self)
        if labels is None:
            raise ArgumentError("labels must have one entry per row of users and items, got None")
        pairs = Pairs.from_rows(interactions, items, labels)
        return mean_measure(pairs.lists, self.predict(pairs.users, pairs.items), self.measure)

    # ---- training ----------------------------------------------------------------------------------------------------

    def _fit_interactions(
        self,
        train: Interactions,
        held_out: Interactions | None,
        weights: NDArray[np.float32] | None,
        *,
        features: Sides = NO_FEATURES,
        previous: Previous | None = None,
        users: NDArray[np.int32] | None = None,
    ) -> None:
        """Train; ``previous`` are parameters to begin with, and ``users`` the only ones whose lists are trained."""
        loss = interaction_loss("softmax" if self.loss is None else self.loss, self.bounding)
        training = Training(self._settings("cosine"), loss, train, weights=weights, features=features)
        if users is not None:
            training.users = np.intersect1d(training.users, users).astype(np.int32)
        digests = table_digests(train, held_out, weights, features) if self._monitoring.checkpoint is not None else {}
        self._train(training, None if held_out is None else HeldOutInteractions(train, held_out), digests, previous)

    def _fit_lists(self, users: Any, items: ArrayLike, labels: ArrayLike, eval_set: Any) -> Self:
        self._begin_fit(None)
        self._check_parameters(eval_set)
        loss = self._loss_of_lists()
        pairs = Pairs.from_rows(users, items, labels)
        held_out = held_out_of_lists(eval_set, pairs)
        lists = GivenLists(pairs, loss)
        training = Training(self._settings("dot"), loss, lists.interactions(), lists=lists)
        digests: dict[str, str | None] = {"loss": repr(loss), "data": lists.pairs.digest()}
        digests["eval_set"] = None if held_out is None else held_out.digest()
        self._train(training, held_out, digests, self._warm())
        positive = lists.pairs.lists.labels > 0
        self._set_codes(lists.pairs.users[positive], lists.pairs.items[positive])
        self.n_queries_ = len(lists)
        return self

    def _fit_table(
        self, train: Interactions, weights: NDArray[np.float32] | None, eval_set: Any, **context: Any
    ) -> Self:
        self._check_parameters(eval_set)
        return super()._fit_table(train, weights, eval_set, **{"previous": self._warm()} | context)

    def _train(
        self,
        training: Training,
        held_out: HeldOut | None,
        digests: dict[str, str | None],
        previous: Previous | None,
    ) -> None:
        """Train until the last epoch or the end of the patience, and keep the parameters of the selected epoch."""
        checkpoints = stored = None
        if self._monitoring.checkpoint is not None:
            checkpoints = Checkpoints(self._monitoring.checkpoint, self._identity() | digests)
            stored = checkpoints.load()
        state = State.restore(*stored) if stored else training.new_state(previous)
        self._run_epochs(training, held_out, state, checkpoints)
        self.selection_ = "last" if state.best is None else self._monitoring.selection
        kept = state.values if state.best is None or self.selection_ == "last" else state.best
        self.kept_epoch_ = state.epoch if self.selection_ == "last" else state.best_epoch
        self.history_, self.n_features_in_, self.notes_ = state.history, 2, training.notes
        if held_out is not None:
            self.eval_score_ = state.history[self.kept_epoch_ - 1][str(self.measure)]
        self.user_vectors_, self.item_vectors_ = _check_finite(training.vectors(kept), state.epoch)
        self.parameters_ = training.parameters(kept)

    def _run_epochs(
        self, training: Training, held_out: HeldOut | None, state: State, checkpoints: Checkpoints | None
    ) -> None:
        monitoring = self._monitoring
        if state.epoch > self.epochs:
            folder = monitoring.checkpoint
            raise DataError(f"{folder}: has {state.epoch} epochs already, more than epochs={self.epochs}")
        together = current_workers()
        shown = monitoring.verbose and (together is None or together.is_first)
        with progress_display(shown=shown) as show:
            show("epoch", state.epoch, self.epochs)
            while state.epoch < self.epochs and not self._out_of_patience(state):
                self._run_epoch(training, held_out, state)
                show("epoch", state.epoch, self.epochs)
                if checkpoints and (
                    state.epoch % (monitoring.checkpoint_every or 50) == 0 or state.epoch == self.epochs
                ):
                    checkpoints.save(state.epoch, state.arrays(), state.metadata())

    def _run_epoch(self, training: Training, held_out: HeldOut | None, state: State) -> None:
        try:
            entry = {"epoch": state.epoch + 1, "loss": training.epoch(state)}
        except (FloatingPointError, DataError) as error:
            raise _divergence(state.epoch) from error
        if held_out is not None and (
            state.epoch % (self._monitoring.eval_every or 5) == 0 or state.epoch == self.epochs
        ):
            vectors = _check_finite(training.vectors(state.values), state.epoch)
            entry |= held_out.measure(*vectors, [self.measure, *self._monitoring.watch])
            state.keep_if_best(entry[str(self.measure)])
        state.history.append(entry)

    def _out_of_patience(self, state: State) -> bool:
        patience = self._monitoring.patience
        if patience is None or state.best is None or str(self.measure) not in state.history[-1]:
            return False
        return state.epoch - state.best_epoch >= patience

    # ---- parameters --------------------------------------------------------------------------------------------------

    @property
    def _monitoring(self) -> Monitoring:
        return Monitoring.from_model(self, "monitoring")

    def _settings(self, similarity: str) -> Settings:
        """Return what a training depends on; ``similarity`` is the one of vectors without a choice."""
        vectors = VectorModel.from_model(self, "vectors")
        temperature = _TEMPERATURE if vectors.temperature is None else float(vectors.temperature)
        return Settings(
            self.factors,
            self.epochs,
            self.learning_rate,
            self.batch_size,
            seed_of(self.random_state),
            Optimizer.from_model(self, "optimizer"),
            Negatives.from_model(self, "negatives"),
            replace(vectors, similarity=vectors.similarity or similarity, temperature=temperature),
        )

    def _warm(self) -> Previous | None:
        """Return the parameters of the previous fit if the next one begins with them."""
        if not (VectorModel.from_model(self, "vectors").warm_start and hasattr(self, "parameters_")):
            return None
        return Previous(self.user_ids_, self.item_ids_, self.parameters_)

    def _identity(self) -> dict[str, str]:
        """Return the parameters that a checkpoint must match."""
        ignored = ["checkpoint", "checkpoint_every", "verbose"]
        if Optimizer.from_model(self, "optimizer").schedule == "constant":  # else the learning rate depends on them
            ignored.append("epochs")
        return {name: repr(value) for name, value in flat_parameters(self).items() if name not in ignored}

    def _loss_of_lists(self) -> RankingLoss:
        loss = "nDCG" if self.loss is None else self.loss
        if not isinstance(loss, RankingLoss):
            return get_loss(loss, **({} if self.bounding == "none" else {"bounding": self.bounding}))
        if self.bounding != "none":
            raise ArgumentError(f"bounding must be 'none' with a loss object, which has its own, got {self.bounding!r}")
        return loss

    def _check_parameters(self, eval_set: Any) -> None:
        for name in ("factors", "epochs"):
            check_count(name, getattr(self, name))
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        check_number("learning_rate", self.learning_rate)
        self._settings("dot")
        monitoring = self._monitoring
        if eval_set is None and (monitoring.selection == "test" or monitoring.patience is not None):
            raise ArgumentError("selection='test' and patience need an eval_set")
        self._loss_of_lists()

    # ---- scores ------------------------------------------------------------------------------------------------------

    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        return products(self.user_vectors_, self.item_vectors_)(users)

    def _scores(self, features: NDArray[np.number]) -> NDArray[np.float64]:
        """Return the scores of rows of a user's and an item's code."""
        codes = features.astype(np.int64)
        return pair_scores(self.user_vectors_, self.item_vectors_, codes[:, 0], codes[:, 1])

    def _vectors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.user_vectors_, self.item_vectors_

    def _has_training_data(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Users and items with a vector, by their interactions or by their features."""
        return self.user_vectors_.any(axis=1), self.item_vectors_.any(axis=1)

    # ---- saving ------------------------------------------------------------------------------------------------------

    def _set_codes(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> None:
        """Use codes as ids; the arguments are the interactions that `recommend` leaves out."""
        self.user_ids_, self.item_ids_ = np.arange(len(self.user_vectors_)), np.arange(len(self.item_vectors_))
        self.seen_ = Interactions(users, items, self.user_ids_, self.item_ids_)

    def _fitted_state(self) -> FittedState:
        metadata = {"history": self.history_, "kept_epoch": self.kept_epoch_, "selection": self.selection_}
        arrays = {"users": self.user_vectors_, "items": self.item_vectors_}
        parameters = {f"parameters.{name}": values for name, values in self.parameters_.items()}
        return FittedState(arrays | parameters, metadata=metadata)

    def _restore_common(self, state: FittedState) -> None:
        if "users.json" in state.texts:
            super()._restore_common(state)

    def _restore_state(self, state: FittedState) -> None:
        users, items = state.arrays["users"].copy(), state.arrays["items"].copy()  # those of a file may be read-only
        if not (users.dtype == items.dtype == np.float32 and users.ndim == items.ndim == 2):
            raise DataError("vectors of users and items must be float32 of two dimensions")
        if users.shape[1] != items.shape[1] or not (np.isfinite(users).all() and np.isfinite(items).all()):
            raise DataError(f"vectors must be finite and of one length, got {users.shape} and {items.shape}")
        self.user_vectors_, self.item_vectors_ = users, items
        self.parameters_ = _restore_parameters(state, len(users), len(items))
        if not hasattr(self, "user_ids_"):  # lists of codes, saved by 0.2, whose items were not saved
            none = np.zeros(0, np.int32)
            self._set_codes(none, none)
            self.vectors = replace(VectorModel.from_model(self, "vectors"), similarity=None)
            self.parameters_ = {"users": users, "items": items}
        if (len(users), len(items)) != (len(self.user_ids_), len(self.item_ids_)):
            raise DataError(f"vectors must be those of the ids, got {len(users)} users and {len(items)} items")
        self.notes_ = ()
        self.history_, self.kept_epoch_ = state.metadata["history"], state.metadata["kept_epoch"]
        self.selection_ = state.metadata["selection"]


def _restore_parameters(state: FittedState, users: int, items: int) -> dict[str, NDArray[np.float32]]:
    names = [name.removeprefix("parameters.") for name in state.arrays if name.startswith("parameters.")]
    rows = {"users": users, "items": items, "history": items, "biases": items}
    parameters = {}
    for name in names:
        shape = state.arrays[f"parameters.{name}"].shape
        if len(shape) != 2:
            raise DataError(f"parameters of {name} must have two dimensions, got {shape}")
        height = rows[name] if name in rows else shape[0]
        parameters[name] = restore_array(state, f"parameters.{name}", (height, shape[1]))
    return parameters


def _check_finite(vectors: Sides, epoch: int) -> Sides:
    if not (np.isfinite(vectors.users).all() and np.isfinite(vectors.items).all()):
        raise _divergence(epoch)
    return vectors


def _divergence(epoch: int) -> DataError:
    return DataError(f"training diverged in epoch {epoch}: values are not finite; use a smaller learning_rate")
