"""MatrixFactorization: vectors of users and items, trained with any ranking loss of the users' lists."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from rankbound.checkpoints import Checkpoints
from rankbound.data.interaction_sources import weighted_interactions
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.losses import RankingLoss, get_loss
from rankbound.losses.noise import noise_over
from rankbound.measures.measure import parse_measure
from rankbound.models.base import FittedState, seed_of
from rankbound.models.factorization_features import extended_table, feature_matrix, merged_tables, table_digests
from rankbound.models.factorization_kernel import Batch, score_pairs, step
from rankbound.models.factorization_losses import interaction_loss
from rankbound.models.factorization_state import HeldOut, Pairs, State, codes_of
from rankbound.models.factorization_training import InteractionTraining, Settings, TableState
from rankbound.models.measuring import mean_measure, score_measure
from rankbound.models.parameters import check_in_range
from rankbound.models.progress import progress_bar
from rankbound.models.recommender import Recommender, restored_array
from rankbound.parallel import current_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from rankbound.data.interactions import Interactions
    from rankbound.losses.plans import Plan

__all__ = ["MatrixFactorization"]

_CHOICES = {
    "optimizer": ("adam", "sgd"),
    "reduction": ("sum", "mean"),
    "selection": ("validation", "test", "last"),
    "sampling": ("uniform", "popularity"),
    "user_model": ("vectors", "history", "both"),
    "similarity": ("cosine", "dot"),
    "schedule": ("constant", "cosine"),
}
_COUNTS = ("factors", "epochs", "eval_every", "batch_size", "patience", "checkpoint_every", "negative_candidates")
_TEMPERATURE = 0.2  # of the cosine
# parameters of training from interactions, which lists of codes do not use
_OF_INTERACTIONS = (
    "negatives", "negative_candidates", "sampling", "user_model", "dropout", "similarity", "temperature", "biases",
    "warm_start", "schedule", "activity_exponent",
)  # fmt: skip


@dataclass(eq=False, repr=False)
class MatrixFactorization(Recommender):
    """Matrix factorization, score(u, i) = p_u · q_i, trained with a ranking loss of each user's list.

    There are two kinds of training data. From *interactions* with any ids (see `fit`), each user's list consists of the
    items of the user's interactions, which have label 1, and of all or some other items of the catalog, which have
    label 0; the vectors are divided by their norms unless ``similarity="dot"``. *Lists of codes* with labels, as in the
    papers, are used as they are.

    Parameters
    ----------
    factors:
        Dimension of the vectors. With the cosine, more of them (128 to 512) usually rank better.
    loss, bounding:
        A loss of `rankbound.losses` by name (``"nDCG"``, ``"AP"``, ``"nRBP"``, ``"lambda-nDCG"``, ...) and its
        bounding, or a loss object with ``bounding="none"``. Each user is a query. None means ``"softmax"`` for
        interactions and ``"nDCG"`` for lists of codes. For interactions, ``"softmax"`` and ``"ListNet"`` both mean the
        cross entropy with labels that are normalized to a distribution per user.
    optimizer:
        ``"adam"`` or ``"sgd"``. A step changes only vectors (and moments) of users and items in its batch.
    learning_rate, l2:
        Step size, and the strength of regularization. From interactions, a step multiplies the vectors that it changes
        by 1 - learning_rate * l2, apart from the gradient, so that l2 depends neither on the scale of the loss nor on
        the size of batches. From lists of codes, l2 is the factor of half their squared norm in the loss.
    epochs, batch_size:
        Passes over the data, and users per step (None: all). From interactions, users are assigned to batches anew in
        every epoch; from lists of codes once, and the order of the batches is drawn anew.
    reduction:
        ``"sum"`` over the users of a batch, as in the papers, or their ``"mean"``.
    init:
        Initial vectors are uniform in [-init, init].
    measure, watch:
        The measure that `score` reports and that the selection uses; further measures to record in the history.
    selection:
        Which epoch is kept if there is an ``eval_set``: ``"validation"`` and ``"test"`` keep the best epoch, ``"last"``
        the last one, as does a fit without ``eval_set``. The first two compute the same; the name is stored as
        ``selection_``, so that tables can state it: results selected on the data that they are reported for are
        biased upward.
    eval_every, patience:
        Epochs between evaluations, and epochs without improvement after which training stops (None: never).
    checkpoint, checkpoint_every:
        A folder to which the state of training is written atomically, every ``checkpoint_every`` epochs and at the
        end. If it holds the state of the same training, `fit` resumes from it and ends with the vectors of an
        uninterrupted fit; ``epochs`` may be larger than before. The folder of another training is refused.
    verbose:
        Show a progress bar on standard error if that is a terminal.
    random_state:
        Seed of initial vectors, batches and negatives; None is 0. The vectors do not depend on the number of threads.

    The following parameters are for interactions only.

    negatives:
        ``"all"`` other items of the catalog, or a number of them for each positive item, drawn anew in every epoch. A
        user with fewer other items gets all of them; ``notes_`` says how many users that are.
    negative_candidates:
        Draw so many items for each negative and use the one with the highest score (hard negatives). 1: uniform.
    sampling:
        Draw negatives ``"uniform"`` or in proportion to their ``"popularity"``. With the softmax loss, the scores of
        drawn negatives are corrected by -log of their expected number (logQ correction), so that the loss estimates
        that of the whole catalog.
    user_model:
        A user is represented by an own vector (``"vectors"``), by the sum of the vectors of the items in the user's
        ``"history"`` (a second vector per item), or by the sum of ``"both"``.
    dropout:
        Fraction of the history that is left out at random in each step.
    similarity, temperature:
        The score is the ``"cosine"`` / temperature or the ``"dot"`` product of the vectors. None means 0.2. It is the
        most important parameter to tune: 0.1 to 0.35, higher values for less data.
    biases:
        Add a bias for each item. (A bias of a user changes no ranking.)
    schedule:
        The learning rate is ``"constant"``, or it falls from ``learning_rate`` towards 0 along half a ``"cosine"`` over
        the ``epochs``. With the second, vectors settle, so that the last epoch is about as good as the best one, and a
        training on more data needs no held-out data to select an epoch. A checkpoint then requires the same ``epochs``;
        `partial_fit` begins the schedule anew.
    activity_exponent:
        The loss of a user with n interactions is weighted by (n / mean of n) to this power. 0 weights all users
        equally, 1 all interactions. With 0.5 the vectors of items learn more from users with many interactions.
    warm_start:
        Begin with the vectors of the previous fit for the ids that it knew.

    A user whose labels are all equal has no gradient and is left out. Users and items that were left out or are not in
    the training data have the zero vector: all their scores are 0.

    Source: Westerborg 2022, section 4.1 (32 factors, initial values in ±0.01, Adam, 32 users
    per batch); Li, Urbano & Hanjalic 2021, section 3 (SGD on the summed loss); Wu et al. 2024, On the effectiveness of
    sampled softmax loss for item recommendation (cosine and temperature); Yi et al. 2019, Sampling-bias-corrected
    neural modeling for large corpus item recommendations (logQ correction); Weston et al. 2011, WSABIE (negatives by
    score).

    >>> users, items, labels = [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 3], [1, 0, 0, 1, 0, 0]
    >>> model = MatrixFactorization(factors=4, epochs=50, learning_rate=0.1).fit(users, items, labels)
    >>> model.recommend(0, k=1)[0].tolist()
    [0]
    >>> model.predict([0, 7], [9, 0]).tolist()  # neither the item 9 nor the user 7 was in training
    [0.0, 0.0]
    >>> model = MatrixFactorization(factors=4).fit((["al", "al", "bo", "bo"], ["x", "y", "y", "z"]))
    >>> model.recommend("al", k=1)["item"].to_list()
    ['z']
    """

    factors: int = 32
    loss: str | RankingLoss | None = None
    bounding: str = "none"
    _: KW_ONLY
    optimizer: str = "adam"
    learning_rate: float = 0.01
    l2: float = 0.0
    epochs: int = 30
    batch_size: int | None = 32
    reduction: str = "sum"
    init: float = 0.01
    measure: Any = "nDCG"
    watch: Sequence[Any] = ()
    selection: str = "validation"
    eval_every: int = 5
    patience: int | None = None
    checkpoint: str | PathLike[str] | None = None
    checkpoint_every: int = 50
    verbose: bool = False
    random_state: int | None = 0
    negatives: int | float | str = "all"
    negative_candidates: int = 1
    sampling: str = "uniform"
    user_model: str = "vectors"
    dropout: float = 0.5
    similarity: str = "cosine"
    temperature: float | None = None
    biases: bool = False
    warm_start: bool = False
    schedule: str = "constant"
    activity_exponent: float = 0.0
    _accepts_weights: ClassVar[bool] = True

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
        if items is None:
            return self._fit_table(users, eval_set, sample_weight, user_features, item_features)
        if labels is None:
            raise ArgumentError("labels must have one entry per row of users and items, got None")
        for name, value in (("sample_weight", sample_weight), *_named(user_features, item_features)):
            if value is not None:
                raise ArgumentError(f"{name} is for interactions, got it with lists of codes")
        for name in ("user_ids_", "item_ids_", "seen_", "parameters_"):
            self.__dict__.pop(name, None)
        self.__dict__.pop("n_queries_", None)  # a fit that fails leaves no half-fitted model
        loss = self._checked_parameters(eval_set)
        pairs = Pairs.of(users, items, labels)
        held_out = None if eval_set is None else _held_out(eval_set, pairs)
        pairs = pairs.kept(loss.plan(pairs.lists.labels.copy(), pairs.lists.offsets.copy()).active)
        batches = pairs.batches(loss, self.batch_size, self._random(0))
        parts = _own_parts(loss, batches)
        checkpoints = None
        if self.checkpoint is not None:
            data = {"data": pairs.digest(), "eval_set": None if held_out is None else held_out.digest()}
            ignored = (*_OF_INTERACTIONS, "epochs")
            settings = {name: text for name, text in self._identity().items() if name not in ignored}
            checkpoints = Checkpoints(self.checkpoint, settings | {"loss": repr(self._loss_of_codes)} | data)
        stored = None if checkpoints is None else checkpoints.load()
        state = State.restored(*stored) if stored else State.new(pairs, self.factors, self.init, self._random(1))
        self._run_epochs(state, checkpoints, lambda: self._epoch(loss, batches, held_out, state, parts))
        vectors = self._kept(state, (state.users.values, state.items.values), held_out is not None)
        self.user_vectors_, self.item_vectors_ = vectors
        self._check_finite(state.epoch)
        self.n_queries_ = len(pairs.lists)
        return self

    def partial_fit(self, interactions: Any, *, sample_weight: ArrayLike | None = None) -> Self:
        """Continue training with new interactions, of known or new users and items, which are added to the old ones.

        ``epochs`` epochs are trained on the lists of the users in ``interactions``, starting from the present vectors.
        The weights are those of the new interactions; the old ones count with weight 1. Without a previous fit, this is
        `fit`. A checkpoint folder cannot be used.
        """
        if not hasattr(self, "parameters_"):
            return self.fit(interactions, sample_weight=sample_weight)
        if self.checkpoint is not None:
            raise ArgumentError("partial_fit takes no checkpoint, because its result depends on the model before it")
        new, weights = weighted_interactions(interactions, sample_weight)
        table, weights, users = merged_tables(self.seen_, new, weights)
        previous: Any = (self.user_ids_, self.item_ids_, self.parameters_)
        self._warm, self._chosen = previous, users
        try:
            return super().fit(table, sample_weight=weights)
        finally:
            del self._warm, self._chosen

    def predict(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:  # type: ignore[override]
        """Return the score of each pair; a single user is paired with all items. Unknown users and items score 0.

        Users and items are ids if the model was trained from interactions, else codes.
        """
        check_is_fitted(self)
        if hasattr(self, "user_ids_"):
            return super().predict(users, items)
        row_users, row_items = codes_of("users", users), codes_of("items", items)
        if len(row_users) == 1:
            row_users = np.repeat(row_users, len(row_items))
        if len(row_users) != len(row_items):
            raise DataError(
                f"users and items must have the same length, got {len(row_users)} users and {len(row_items)} items"
            )
        return _scores_of(self.user_vectors_, self.item_vectors_, row_users, row_items)

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        exclude: ArrayLike = (),
        *,
        exclude_seen: bool = True,
        filter_items: Any = None,
    ) -> Any:
        """Return the k items with the highest scores.

        Trained from interactions, this is `Recommender.recommend`: a frame with the columns user, item, rank and score
        for one user, many or all; use ``filter_items`` in place of ``exclude``. Trained from lists of codes, it takes
        the code of a user and returns the codes of the items, best first, and their scores. Ties are ordered by code.
        Only items of the training data are recommended, fewer than k if there are no more. ``exclude`` lists items to
        leave out, such as those that the user already has. An unknown user is refused.
        """
        check_is_fitted(self)
        if hasattr(self, "user_ids_"):
            if np.size(exclude):
                raise ArgumentError("exclude is for models of codes; use filter_items with interactions")
            return super().recommend(users, k, exclude_seen=exclude_seen, filter_items=filter_items)
        return self._recommend_codes(users, k, exclude)

    def _recommend_codes(self, user: Any, k: int, exclude: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise ArgumentError(f"k must be a positive integer, got {k!r}")
        codes = codes_of("user", user)
        if len(codes) != 1:
            raise DataError(f"user must be one code, got {len(codes)}")
        code = int(codes[0])
        if code >= len(self.user_vectors_) or not self.user_vectors_[code].any():
            raise DataError(f"user must be one of the training data, got {code}")
        allowed = np.asarray(self.item_vectors_.any(axis=1))
        left_out = codes_of("exclude", exclude)
        allowed[left_out[left_out < len(allowed)]] = False
        candidates = np.flatnonzero(allowed)
        scores = self.predict(code, candidates)
        best = np.argsort(-scores, kind="stable")[:k]
        return candidates[best], scores[best]

    def score(self, users: Any, items: ArrayLike | None = None, labels: ArrayLike | None = None) -> float:
        """Return the mean of ``measure`` over the users for whom it is defined.

        Held-out interactions as the only argument are evaluated by full ranking; or rows of codes with labels.
        """
        check_is_fitted(self)
        if hasattr(self, "user_ids_"):
            return super().score(users)
        if items is None or labels is None:
            raise ArgumentError("score requires users, items and labels, because the model was trained from codes")
        pairs = Pairs.of(users, items, labels)
        return mean_measure(pairs.lists, self.predict(pairs.users, pairs.items), self.measure)

    # ---- training from interactions ----------------------------------------------------------------------------------

    def _fit_table(self, table: Any, eval_set: Any, sample_weight: Any, user_features: Any, item_features: Any) -> Self:
        warm = self.warm_start and hasattr(self, "parameters_")
        previous: Any = (self.user_ids_, self.item_ids_, self.parameters_) if warm else None
        self._warm = previous
        self._side_features = {"user": user_features, "item": item_features}
        try:
            if user_features is not None or item_features is not None:
                table, sample_weight = weighted_interactions(table, sample_weight)
                table = extended_table(table, user_features, item_features)
            return super().fit(table, eval_set=eval_set, sample_weight=sample_weight)
        finally:
            del self._warm, self._side_features

    def _fit_interactions(
        self, train: Interactions, held_out: Interactions | None, weights: NDArray[np.float32] | None
    ) -> None:
        self._checked_parameters(held_out)
        loss = interaction_loss("softmax" if self.loss is None else self.loss, self.bounding)
        features = getattr(self, "_side_features", {"user": None, "item": None})
        matrices = [
            feature_matrix(side, features[side], names)
            for side, names in (("user", train.user_names), ("item", train.item_names))
        ]
        training = InteractionTraining(self._settings(), loss, train, weights, *matrices)
        chosen = getattr(self, "_chosen", None)
        if chosen is not None:
            training.users = np.intersect1d(training.users, chosen).astype(np.int32)
        checkpoints = stored = None
        if self.checkpoint is not None:
            digests = table_digests(train, held_out, weights, matrices)
            checkpoints = Checkpoints(self.checkpoint, self._identity() | digests)
            stored = checkpoints.load()
        warm = getattr(self, "_warm", None)
        if stored:
            state = TableState.restored(*stored)
        else:
            state = training.new_state(None if warm is None else training.warm_values(warm, train))
        self._run_epochs(state, checkpoints, lambda: self._epoch_of_interactions(training, held_out, state))
        last = {name: table.values for name, table in state.tables.items()}
        kept = self._kept(state, last, held_out is not None)
        self.user_vectors_, self.item_vectors_ = training.vectors(kept)
        self._check_finite(state.epoch)
        of_items = ("items", "history", "biases")
        self.parameters_ = {
            name: training.of_all_items(values) if name in of_items else values for name, values in kept.items()
        }
        self.notes_: tuple[str, ...] = training.notes

    def _settings(self) -> Settings:
        shared = {name: getattr(self, name) for name in Settings.__dataclass_fields__ if hasattr(self, name)}
        negatives = None if self.negatives == "all" else float(self.negatives)
        temperature = _TEMPERATURE if self.temperature is None else float(self.temperature)
        replaced = {"negatives": negatives, "temperature": temperature, "seed": seed_of(self.random_state)}
        return Settings(**shared | replaced)

    def _epoch_of_interactions(
        self, training: InteractionTraining, held_out: Interactions | None, state: TableState
    ) -> None:
        try:
            entry = {"epoch": state.epoch + 1, "loss": training.epoch(state)}
        except (FloatingPointError, DataError) as error:
            raise _diverged(state.epoch) from error
        if held_out is not None and (state.epoch % self.eval_every == 0 or state.epoch == self.epochs):
            values = {name: table.values for name, table in state.tables.items()}
            self.user_vectors_, self.item_vectors_ = training.vectors(values)
            self._check_finite(state.epoch)
            entry |= self._measured_by_full_ranking(held_out)
            state.note(entry[str(self.measure)])
        state.history.append(entry)

    def _measured_by_full_ranking(self, held_out: Interactions) -> dict[str, float]:
        from rankbound.models.full_ranking import evaluate_full_ranking

        measures = [self.measure, *self.watch]
        return evaluate_full_ranking(self._score_block, self.seen_, held_out, measures).mean()

    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        scores = self.user_vectors_[users] @ self.item_vectors_.T
        unknown = np.flatnonzero(~self.item_vectors_.any(axis=1))
        if len(unknown):  # items without a vector come last, in place of in the middle with score 0
            scores[:, unknown] = scores.min(axis=1, keepdims=True) - 1
        return np.asarray(scores)

    def _vectors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.user_vectors_, self.item_vectors_

    def _has_training_data(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Users and items with a vector, by their interactions or by their features."""
        return self.user_vectors_.any(axis=1), self.item_vectors_.any(axis=1)

    # ---- training from lists of codes --------------------------------------------------------------------------------

    def _epoch(
        self,
        loss: RankingLoss,
        batches: list[Batch],
        held_out: Pairs | HeldOut | None,
        state: State,
        parts: list[Part] | None = None,
    ) -> None:
        state.epoch += 1
        users, items = state.users, state.items
        total, count = 0.0, 0
        for index in self._random(2, state.epoch).permutation(len(batches)).tolist():
            batch = batches[index]
            try:
                value, gradient = _value_and_gradient(
                    loss, batch, None if parts is None else parts[index], users.values, items.values
                )
            except DataError as error:
                raise _diverged(state.epoch) from error
            factor = 1.0 if self.reduction == "sum" else 1 / len(batch.users)
            state.steps += 1
            step(
                batch, gradient, users, items, factor=factor,
                rate=self.learning_rate, l2=self.l2, adam_step=state.steps if self.optimizer == "adam" else 0,
            )  # fmt: skip
            total += value
            count += len(batch.users)
        entry = {"epoch": state.epoch, "loss": total if self.reduction == "sum" else total / count}
        if held_out is not None and (state.epoch % self.eval_every == 0 or state.epoch == self.epochs):
            entry |= self._measured(held_out, users.values, items.values, state.epoch)
            state.note(entry[str(self.measure)])
        state.history.append(entry)

    def _measured(self, held_out: Pairs | HeldOut, users: Any, items: Any, epoch: int) -> dict[str, float]:
        if isinstance(held_out, HeldOut):
            if not (np.isfinite(users).all() and np.isfinite(items).all()):
                raise _diverged(epoch)
            return held_out.measured(users, items, [self.measure, *self.watch])
        scores = _scores_of(users, items, held_out.users, held_out.items)
        if not np.isfinite(scores).all():
            raise _diverged(epoch)
        values = evaluate_lists(held_out.lists.with_scores(scores), [self.measure, *self.watch]).mean()
        for name, value in values.items():
            if np.isnan(value):
                raise DataError(f"{name} is not defined for any user of eval_set, because none has a relevant item")
        return values

    # ---- shared ------------------------------------------------------------------------------------------------------

    def _run_epochs(self, state: Any, checkpoints: Checkpoints | None, epoch: Callable[[], None]) -> None:
        """Train from the epoch of the state to the last one, with progress, patience and checkpoints."""
        if state.epoch > self.epochs:
            raise DataError(f"{self.checkpoint}: has {state.epoch} epochs already, more than epochs={self.epochs}")
        together = current_workers()
        shown = self.verbose and (together is None or together.is_first)
        with progress_bar("epoch", self.epochs, shown=shown) as show:
            show(state.epoch)
            while state.epoch < self.epochs and not self._out_of_patience(state):
                epoch()
                show(state.epoch)
                if checkpoints and (state.epoch % self.checkpoint_every == 0 or state.epoch == self.epochs):
                    checkpoints.save(state.epoch, state.arrays(), state.metadata())

    def _kept(self, state: Any, last: Any, evaluated: bool) -> Any:
        """Return the last or the best parameters, by the selection, and set the attributes that describe the choice."""
        self.selection_ = "last" if state.best is None else self.selection
        keeps_last = state.best is None or self.selection_ == "last"
        self.kept_epoch_ = state.epoch if keeps_last else state.best_epoch
        self.history_, self.n_features_in_ = state.history, 2
        self.__dict__.pop("eval_score_", None)
        if evaluated:
            self.eval_score_ = state.history[self.kept_epoch_ - 1][str(self.measure)]
        return last if keeps_last else state.best

    def _check_finite(self, epoch: int) -> None:
        if not (np.isfinite(self.user_vectors_).all() and np.isfinite(self.item_vectors_).all()):
            raise _diverged(epoch)

    def _out_of_patience(self, state: State | TableState) -> bool:
        if self.patience is None or state.best is None or str(self.measure) not in state.history[-1]:
            return False
        return state.epoch - state.best_epoch >= self.patience

    def _random(self, *stream: int) -> np.random.Generator:
        """Return a separate generator for each use and epoch, so that a resumed fit draws the same numbers."""
        return np.random.default_rng([seed_of(self.random_state), *stream])

    def _identity(self) -> dict[str, Any]:
        """Return the parameters that a checkpoint must match."""
        ignored = ["checkpoint", "checkpoint_every", "verbose"]
        if self.schedule == "constant":  # else the learning rate depends on the number of epochs
            ignored.append("epochs")
        return {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in ignored}

    @property
    def _loss_of_codes(self) -> str | RankingLoss:
        return "nDCG" if self.loss is None else self.loss

    def _checked_parameters(self, eval_set: Any) -> RankingLoss:
        for name in _COUNTS:
            value = getattr(self, name)
            optional = value is None and name in ("batch_size", "patience")
            if not optional and not _is_positive_integer(value):
                raise ArgumentError(f"{name} must be a positive integer, got {value!r}")
        seed_of(self.random_state)
        for name in ("learning_rate", "init", "l2"):
            value = getattr(self, name)
            number = isinstance(value, (int, float, np.number)) and 0 <= value < np.inf
            if not number or (value == 0 and name != "l2"):
                rule = "a number of at least 0" if name == "l2" else "a positive number"
                raise ArgumentError(f"{name} must be {rule}, got {value!r}")
        check_in_range("activity_exponent", self.activity_exponent, 0, 10)
        if self.temperature is not None:
            check_in_range("temperature", self.temperature, 0, 1e6, open_low=True)
        if not 0 <= self.dropout < 1:
            raise ArgumentError(f"dropout must be from 0 to below 1, got {self.dropout!r}")
        if self.negatives != "all" and (isinstance(self.negatives, (str, bool)) or not 0 < self.negatives < np.inf):
            raise ArgumentError(f"negatives must be 'all' or a positive number, got {self.negatives!r}")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if eval_set is None and (self.selection == "test" or self.patience is not None):
            raise ArgumentError("selection='test' and patience need an eval_set")
        score_measure(self.measure)
        for measure in self.watch:
            parse_measure(measure)
        if not isinstance(self._loss_of_codes, RankingLoss):
            return get_loss(self._loss_of_codes, **({} if self.bounding == "none" else {"bounding": self.bounding}))
        if self.bounding != "none":
            raise ArgumentError(f"bounding must be 'none' with a loss object, which has its own, got {self.bounding!r}")
        return self._loss_of_codes

    def _scores(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Return the scores of rows of a user and an item."""
        codes = features.astype(np.int64)
        return _scores_of(self.user_vectors_, self.item_vectors_, codes[:, 0], codes[:, 1])

    # ---- saving ------------------------------------------------------------------------------------------------------

    def _fitted_state(self) -> FittedState:
        metadata = {"history": self.history_, "kept_epoch": self.kept_epoch_, "selection": self.selection_}
        arrays = {"users": self.user_vectors_, "items": self.item_vectors_}
        parameters = {f"parameters.{name}": values for name, values in getattr(self, "parameters_", {}).items()}
        return FittedState(arrays | parameters, metadata=metadata)

    def _common_state(self) -> FittedState:
        return super()._common_state() if hasattr(self, "user_ids_") else FittedState()

    def _restore_common(self, state: FittedState) -> None:
        if "users.json" in state.texts:
            super()._restore_common(state)

    def _restore_state(self, state: FittedState) -> None:
        # copies, because arrays from files may be read-only, for which the kernel would be compiled again
        users, items = state.arrays["users"].copy(), state.arrays["items"].copy()
        if not (users.dtype == items.dtype == np.float32 and users.ndim == items.ndim == 2):
            raise DataError("vectors of users and items must be float32 of two dimensions")
        if users.shape[1] != items.shape[1] or not (np.isfinite(users).all() and np.isfinite(items).all()):
            raise DataError(f"vectors must be finite and of one length, got {users.shape} and {items.shape}")
        if hasattr(self, "user_ids_"):
            if (len(users), len(items)) != (len(self.user_ids_), len(self.item_ids_)):
                raise DataError(f"vectors must be those of the ids, got {len(users)} users and {len(items)} items")
            self.parameters_ = _restored_parameters(state, len(users), len(items))
            self.notes_ = ()
        self.user_vectors_, self.item_vectors_ = users, items
        self.history_, self.kept_epoch_ = state.metadata["history"], state.metadata["kept_epoch"]
        self.selection_ = state.metadata["selection"]


Part = tuple[slice, "Plan"]  # the rows of a batch that this process computes, and their plan


def _own_parts(loss: RankingLoss, batches: list[Batch]) -> list[Part] | None:
    """Return the part of each batch that this process computes; None for a single process."""
    together = current_workers()
    if together is None:
        return None
    parts = []
    for batch in batches:
        part = together.part(batch.plan.sizes)
        own = batch.plan.offsets[part.start : part.stop + 1]
        rows = slice(int(own[0]), int(own[-1]))
        parts.append((rows, loss.plan(batch.plan.labels[rows].copy(), own - own[0])))
    return parts


def _value_and_gradient(
    loss: RankingLoss, batch: Batch, part: Part | None, users: NDArray[np.float32], items: NDArray[np.float32]
) -> tuple[float, NDArray[np.float32]]:
    """Return the summed loss of a batch and its gradient in the scores of the rows.

    Of several processes, each computes the rows of its part, and all of them get the values of all rows.
    """
    rows, plan = part or (slice(None), batch.plan)
    together = current_workers()
    with noise_over(together):
        result = loss.value_and_gradient(
            score_pairs(users, items, batch.row_users[rows], batch.row_items[rows]), plan
        )  # fmt: skip
    values, gradient = result.values, result.gradient
    if together is not None:
        values, gradient = (np.concatenate(together.gather(array)) for array in (values, gradient))
    return float(values.sum()), gradient


def _scores_of(
    users: NDArray[np.float32], items: NDArray[np.float32], row_users: NDArray[Any], row_items: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the scores of pairs; 0 where a code has no vector."""
    known = (row_users < len(users)) & (row_items < len(items))
    scores = np.zeros(len(row_users))
    scores[known] = score_pairs(users, items, row_users[known].astype(np.int32), row_items[known].astype(np.int32))
    return scores


def _restored_parameters(state: FittedState, users: int, items: int) -> dict[str, NDArray[np.float32]]:
    names = [name.removeprefix("parameters.") for name in state.arrays if name.startswith("parameters.")]
    rows = {"users": users, "items": items, "history": items, "biases": items}
    parameters = {}
    for name in names:
        shape = state.arrays[f"parameters.{name}"].shape
        if len(shape) != 2:
            raise DataError(f"parameters of {name} must have two dimensions, got {shape}")
        height = rows[name] if name in rows else shape[0]
        parameters[name] = restored_array(state, f"parameters.{name}", (height, shape[1]))
    return parameters


def _held_out(eval_set: Any, pairs: Pairs) -> Pairs | HeldOut:
    """Return the held-out data of lists of codes: such lists, or interactions to be evaluated by full ranking."""
    tables = HeldOut.of(eval_set)
    if tables is not None:
        shape = len(tables.train.user_names), len(tables.train.item_names)
        if pairs.users.max() >= shape[0] or pairs.items.max() >= shape[1]:
            got = f"got users up to {pairs.users.max()} and items up to {pairs.items.max()}"
            raise ArgumentError(
                f"the codes must be those of eval_set, with {shape[0]} users and {shape[1]} items, {got}"
            )
        return tables
    if not isinstance(eval_set, (tuple, list)) or len(eval_set) != 3:
        raise ArgumentError("eval_set must be (users, items, labels), or two Interactions: training and held-out ones")
    return Pairs.of(eval_set[0], eval_set[1], eval_set[2], name="eval_set ")


def _named(user_features: Any, item_features: Any) -> tuple[tuple[str, Any], ...]:
    return ("user_features", user_features), ("item_features", item_features)


def _is_positive_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


def _diverged(epoch: int) -> DataError:
    return DataError(f"training diverged in epoch {epoch}: values are not finite; use a smaller learning_rate")
