"""MatrixFactorization: vectors of users and items, trained with any ranking loss of the users' lists."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sklearn.utils.validation import check_is_fitted

from rankbound.checkpoints import Checkpoints
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.losses import RankingLoss, get_loss
from rankbound.measures.measure import parse_measure
from rankbound.models.base import FittedState, Ranker, seed_of
from rankbound.models.factorization_kernel import Batch, score_pairs, step
from rankbound.models.factorization_state import Pairs, State, codes_of
from rankbound.models.measuring import mean_measure, score_measure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

__all__ = ["MatrixFactorization"]

_CHOICES = {
    "optimizer": ("adam", "sgd"),
    "reduction": ("sum", "mean"),
    "selection": ("validation", "test", "last"),
}
_COUNTS = ("factors", "epochs", "eval_every", "batch_size", "patience", "checkpoint_every")


@dataclass(eq=False, repr=False)
class MatrixFactorization(Ranker):
    """Matrix factorization, score(u, i) = p_u · q_i, trained with a ranking loss of each user's list.

    Parameters
    ----------
    factors:
        Dimension of the vectors.
    loss, bounding:
        A loss of `rankbound.losses` by name (``"nDCG"``, ``"AP"``, ``"nRBP"``, ``"lambda-nDCG"``, ...) and its
        bounding, or a loss object with ``bounding="none"``. Each user is a query.
    optimizer:
        ``"adam"`` or ``"sgd"``. A step changes only vectors (and moments) of users and items in its batch.
    learning_rate, l2:
        Step size, and the factor of half the squared norm of the vectors that a step changes.
    epochs, batch_size:
        Passes over the data, and users per step (None: all). Users are assigned to batches once; the order of the
        batches is drawn anew in every epoch.
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
        Seed of initial vectors and batches; None is 0. The vectors do not depend on the number of threads.

    A user whose labels are all equal has no gradient and is left out. Users and items that were left out or are not in
    the training data have the zero vector: all their scores are 0.

    Source: Westerborg 2022, section 4.1 (32 factors, initial values in ±0.01, Adam, 32 users
    per batch); Li, Urbano & Hanjalic 2021, section 3 (SGD on the summed loss).

    >>> users, items, labels = [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 3], [1, 0, 0, 1, 0, 0]
    >>> model = MatrixFactorization(factors=4, epochs=50, learning_rate=0.1).fit(users, items, labels)
    >>> model.recommend(0, k=1)[0].tolist()
    [0]
    >>> model.predict([0, 7], [9, 0]).tolist()  # neither the item 9 nor the user 7 was in training
    [0.0, 0.0]
    """

    factors: int = 32
    loss: str | RankingLoss = "nDCG"
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

    # ---- for users ---------------------------------------------------------------------------------------------------

    def fit(  # type: ignore[override]  # pairs of codes in place of features
        self,
        users: ArrayLike,
        items: ArrayLike,
        labels: ArrayLike,
        eval_set: tuple[Any, Any, Any] | None = None,
    ) -> Self:
        """Learn from rows of user, item and label, in any order.

        Parameters
        ----------
        users, items:
            Codes 0, 1, 2, ...; each pair at most once.
        labels:
            Relevance; below 0 counts as 0.
        eval_set:
            ``(users, items, labels)`` to evaluate on.

        Attributes after `fit`: ``user_vectors_``, ``item_vectors_``; ``history_``, a dict per epoch with its number,
        the loss before its steps, and the measures if they were evaluated; ``kept_epoch_``, the epoch of the vectors;
        ``selection_``; ``eval_score_``.
        """
        self.__dict__.pop("n_queries_", None)  # a fit that fails leaves no half-fitted model
        loss = self._checked_parameters(eval_set)
        pairs = Pairs.of(users, items, labels)
        held_out = None if eval_set is None else Pairs.of(*eval_set, name="eval_set ")
        pairs = pairs.kept(loss.plan(pairs.lists.labels.copy(), pairs.lists.offsets.copy()).active)
        batches = pairs.batches(loss, self.batch_size, self._random(0))
        checkpoints = None if self.checkpoint is None else Checkpoints(self.checkpoint, self._identity(pairs, held_out))
        stored = None if checkpoints is None else checkpoints.load()
        state = State.restored(*stored) if stored else State.new(pairs, self.factors, self.init, self._random(1))
        if state.epoch > self.epochs:
            raise DataError(f"{self.checkpoint}: has {state.epoch} epochs already, more than epochs={self.epochs}")
        with self._bar() as bar:
            task = bar.add_task("epoch", total=self.epochs, completed=state.epoch)
            while state.epoch < self.epochs and not self._out_of_patience(state):
                self._epoch(loss, batches, held_out, state)
                bar.update(task, completed=state.epoch)
                if checkpoints and (state.epoch % self.checkpoint_every == 0 or state.epoch == self.epochs):
                    checkpoints.save(state.epoch, state.arrays(), state.metadata())
        self._keep(state, len(pairs.lists), held_out)
        return self

    def predict(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:  # type: ignore[override]
        """Return the score of each pair; a single user is paired with all items. Unknown users and items score 0."""
        check_is_fitted(self)
        row_users, row_items = codes_of("users", users), codes_of("items", items)
        if len(row_users) == 1:
            row_users = np.repeat(row_users, len(row_items))
        if len(row_users) != len(row_items):
            raise DataError(
                f"users and items must have the same length, got {len(row_users)} users and {len(row_items)} items"
            )
        return _scores_of(self.user_vectors_, self.item_vectors_, row_users, row_items)

    def recommend(
        self, user: int, k: int = 10, exclude: ArrayLike = ()
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the k items with the highest scores for a user, best first, and the scores; ties are ordered by code.

        Only items of the training data are recommended, fewer than k if there are no more. ``exclude`` lists items to
        leave out, such as those that the user already has. An unknown user is refused.
        """
        check_is_fitted(self)
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise ArgumentError(f"k must be a positive integer, got {k!r}")
        code = int(codes_of("user", [user])[0])
        if code >= len(self.user_vectors_) or not self.user_vectors_[code].any():
            raise DataError(f"user must be one of the training data, got {code}")
        allowed = np.asarray(self.item_vectors_.any(axis=1))
        left_out = codes_of("exclude", exclude)
        allowed[left_out[left_out < len(allowed)]] = False
        candidates = np.flatnonzero(allowed)
        scores = self.predict(code, candidates)
        best = np.argsort(-scores, kind="stable")[:k]
        return candidates[best], scores[best]

    def score(self, users: ArrayLike, items: ArrayLike, labels: ArrayLike) -> float:  # type: ignore[override]
        """Return the mean of ``measure`` over the users for whom it is defined."""
        check_is_fitted(self)
        pairs = Pairs.of(users, items, labels)
        return mean_measure(pairs.lists, self.predict(pairs.users, pairs.items), self.measure)

    # ---- training ----------------------------------------------------------------------------------------------------

    def _epoch(self, loss: RankingLoss, batches: list[Batch], held_out: Pairs | None, state: State) -> None:
        state.epoch += 1
        users, items = state.users, state.items
        total, count = 0.0, 0
        for index in self._random(2, state.epoch).permutation(len(batches)).tolist():
            batch = batches[index]
            scores = score_pairs(users.values, items.values, batch.row_users, batch.row_items)
            try:
                result = loss.value_and_gradient(scores, batch.plan)
            except DataError as error:
                raise _diverged(state.epoch) from error
            factor = 1.0 if self.reduction == "sum" else 1 / len(batch.users)
            state.steps += 1
            step(
                batch, result.gradient, users, items, factor=factor,
                rate=self.learning_rate, l2=self.l2, adam_step=state.steps if self.optimizer == "adam" else 0,
            )  # fmt: skip
            total += float(result.values.sum())
            count += len(batch.users)
        entry = {"epoch": state.epoch, "loss": total if self.reduction == "sum" else total / count}
        if held_out is not None and (state.epoch % self.eval_every == 0 or state.epoch == self.epochs):
            entry |= self._measured(held_out, users.values, items.values, state.epoch)
            state.note(entry[str(self.measure)])
        state.history.append(entry)

    def _measured(self, held_out: Pairs, users: Any, items: Any, epoch: int) -> dict[str, float]:
        scores = _scores_of(users, items, held_out.users, held_out.items)
        if not np.isfinite(scores).all():
            raise _diverged(epoch)
        values = evaluate_lists(held_out.lists.with_scores(scores), [self.measure, *self.watch]).mean()
        for name, value in values.items():
            if np.isnan(value):
                raise DataError(f"{name} is not defined for any user of eval_set, because none has a relevant item")
        return values

    def _keep(self, state: State, users: int, held_out: Pairs | None) -> None:
        self.selection_ = "last" if state.best is None else self.selection
        if state.best is None or self.selection_ == "last":
            self.user_vectors_, self.item_vectors_ = state.users.values, state.items.values
            self.kept_epoch_ = state.epoch
        else:
            self.user_vectors_, self.item_vectors_ = state.best
            self.kept_epoch_ = state.best_epoch
        if not (np.isfinite(self.user_vectors_).all() and np.isfinite(self.item_vectors_).all()):
            raise _diverged(state.epoch)
        self.history_, self.n_features_in_ = state.history, 2
        self.__dict__.pop("eval_score_", None)
        if held_out is not None:
            self.eval_score_ = state.history[self.kept_epoch_ - 1][str(self.measure)]
        self.n_queries_ = users

    def _out_of_patience(self, state: State) -> bool:
        if self.patience is None or state.best is None or str(self.measure) not in state.history[-1]:
            return False
        return state.epoch - state.best_epoch >= self.patience

    def _random(self, *stream: int) -> np.random.Generator:
        """Return a separate generator for each use and epoch, so that a resumed fit draws the same numbers."""
        return np.random.default_rng([seed_of(self.random_state), *stream])

    def _identity(self, pairs: Pairs, held_out: Pairs | None) -> dict[str, Any]:
        """Return what a checkpoint must match: the parameters and digests of the data."""
        ignored = ("epochs", "checkpoint", "checkpoint_every", "verbose")
        settings = {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in ignored}
        data = {"data": pairs.digest(), "eval_set": None if held_out is None else held_out.digest()}
        return settings | data

    def _bar(self) -> Progress:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = not (self.verbose and console.is_terminal)
        return Progress(*columns, console=console, transient=True, disable=hidden)

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
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if eval_set is None and (self.selection == "test" or self.patience is not None):
            raise ArgumentError("selection='test' and patience need an eval_set")
        if eval_set is not None and (not isinstance(eval_set, (tuple, list)) or len(eval_set) != 3):
            raise ArgumentError("eval_set must be (users, items, labels)")
        score_measure(self.measure)
        for measure in self.watch:
            parse_measure(measure)
        if not isinstance(self.loss, RankingLoss):
            return get_loss(self.loss, **({} if self.bounding == "none" else {"bounding": self.bounding}))
        if self.bounding != "none":
            raise ArgumentError(f"bounding must be 'none' with a loss object, which has its own, got {self.bounding!r}")
        return self.loss

    def _scores(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Return the scores of rows of a user and an item."""
        codes = features.astype(np.int64)
        return _scores_of(self.user_vectors_, self.item_vectors_, codes[:, 0], codes[:, 1])

    # ---- saving ------------------------------------------------------------------------------------------------------

    def _fitted_state(self) -> FittedState:
        metadata = {"history": self.history_, "kept_epoch": self.kept_epoch_, "selection": self.selection_}
        return FittedState({"users": self.user_vectors_, "items": self.item_vectors_}, metadata=metadata)

    def _restore_state(self, state: FittedState) -> None:
        # copies, because arrays from files may be read-only, for which the kernel would be compiled again
        users, items = state.arrays["users"].copy(), state.arrays["items"].copy()
        if not (users.dtype == items.dtype == np.float32 and users.ndim == items.ndim == 2):
            raise DataError("vectors of users and items must be float32 of two dimensions")
        if users.shape[1] != items.shape[1] or not (np.isfinite(users).all() and np.isfinite(items).all()):
            raise DataError(f"vectors must be finite and of one length, got {users.shape} and {items.shape}")
        self.user_vectors_, self.item_vectors_ = users, items
        self.history_, self.kept_epoch_ = state.metadata["history"], state.metadata["kept_epoch"]
        self.selection_ = state.metadata["selection"]


def _scores_of(
    users: NDArray[np.float32], items: NDArray[np.float32], row_users: NDArray[Any], row_items: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the scores of pairs; 0 where a code has no vector."""
    known = (row_users < len(users)) & (row_items < len(items))
    scores = np.zeros(len(row_users))
    scores[known] = score_pairs(users, items, row_users[known].astype(np.int32), row_items[known].astype(np.int32))
    return scores


def _is_positive_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


def _diverged(epoch: int) -> DataError:
    return DataError(f"training diverged in epoch {epoch}: values are not finite; use a smaller learning_rate")
