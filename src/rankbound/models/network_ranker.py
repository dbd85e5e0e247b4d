"""NeuralRanker: what all rankers that torch trains have in common."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit

from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.models.base import FittedState, Queries, Ranker
from rankbound.models.measuring import mean_measure, score_measure
from rankbound.models.networks import Objective, make_objective, network_outputs, positive_integers
from rankbound.models.weighted_features import center_and_spread

try:
    import torch
    from torch import nn

    from rankbound.losses import DirectRankerLoss, PointwiseLoss, RankNetLoss, get_loss
    from rankbound.training import Examples, Settings, train
except ImportError as error:
    raise ImportError(
        f"neural rankers need torch, and {error.name} is missing: pip install 'rankbound[train]'"
    ) from error

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NeuralRanker", "keep_parameters"]


class NeuralRanker(Ranker):
    """What all rankers that are trained with torch share.

    A subclass has the parameters below in its constructor, or some of them as class attributes, and writes
    ``_layers``.

    Parameters
    ----------
    loss:
        What is made small: a name of `rankbound.losses.LOSS_NAMES` (``"nDCG"``, ``"AP"``, ``"lambda-nDCG"``,
        ``"RankNet"``, ``"ListNet"``, ...) or a loss object. ``"regression"`` learns the labels themselves and
        ``"classification"`` their levels; the score is then the expected label.
    bounding:
        ``none``, ``min-max``, ``expectation``, ``expectation-max``, ``distribution`` or ``log-distribution``: a loss
        that stands for a measure sees each query against what any ranking of it could reach.
    epochs, batch_size, optimizer, learning_rate, weight_decay, selection, patience, list_size:
        See `rankbound.training.Settings`. The queries to select by are those of ``eval_set``.
    standardize:
        Bring every feature to mean 0 and standard deviation 1 over the training rows; kept with the model.
    measure:
        What `score` reports and the selection goes by.
    watch:
        More measures of ``eval_set`` to keep in ``history_``.
    random_state:
        Seed of everything random.
    checkpoint:
        A folder: the state is kept there after every epoch, and a fit that was killed goes on from it.
    verbose:
        Show a bar on stderr, if it is a terminal.

    Fitted: ``history_``, a dict per epoch with the loss and the measures of ``eval_set``; ``kept_epoch_``, the one that
    the model is from; ``network_``, the torch module.
    """

    loss: Any
    bounding: str
    epochs: int
    batch_size: int
    optimizer: str
    learning_rate: float
    weight_decay: float
    selection: str
    patience: int | None
    standardize: bool
    watch: tuple[Any, ...]
    random_state: int | None
    checkpoint: str | PathLike[str] | None
    verbose: bool
    list_size: int | None = None
    min_gap: float = 0.0
    history_: list[dict[str, float]]
    kept_epoch_: int
    network_: Any
    _dtype: ClassVar[Any] = torch.float64  # of predictions: equal rows must have equal scores

    def _layers(self, outputs: int, bias: bool, generator: torch.Generator) -> list[Any]:
        raise NotImplementedError

    # ---- learning ----------------------------------------------------------------------------------------------------

    @property
    def _learns_from(self) -> str:  # type: ignore[override]
        return "rows" if isinstance(get_loss(self.loss), PointwiseLoss) else "queries"

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        settings = Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            selection=self.selection,
            patience=self.patience,
            list_size=self.list_size,
            seed=0 if self.random_state is None else self.random_state,
        )
        if self.selection == "test" and held_out is None:
            raise ArgumentError("selection='test' chooses the epoch on eval_set, which was not given")
        self.mean_, self.scale_ = self._center_and_spread(queries.features)
        self.objective_ = make_objective(self.loss, self.bounding, queries.labels, self.min_gap)
        generator = torch.Generator().manual_seed(settings.seed)
        self.network_ = self._network(generator)
        examples = Examples(
            self._inputs(queries.features, np.float32),
            queries.labels,
            queries.lists.offsets,
            None if queries.weights is None else queries.query_weights,
        )
        trained = train(
            self.network_,
            examples,
            self.objective_.fresh(),
            settings,
            generator,
            judge=None if held_out is None else _Judge(self, held_out),
            checkpoint=self.checkpoint,
            identity=None if self.checkpoint is None else self._identity(held_out),
            threads=1 if self._is_small() else None,
            verbose=self.verbose,
        )
        self.history_, self.kept_epoch_ = trained.history, trained.kept_epoch

    def _network(self, generator: torch.Generator) -> Any:
        objective = self.objective_
        layers = self._layers(len(objective.losses), objective.pointwise, generator)
        if objective.pointwise:
            with torch.no_grad():  # a regression begins at the mean label
                layers[-1].bias.fill_(objective.center / objective.spread)
        return nn.Sequential(*layers)

    def _is_small(self) -> bool:
        """Whether a step is too little work for more than one thread."""
        return bool(sum(weights.numel() for weights in self.network_.parameters()) < 200_000)

    def _identity(self, held_out: Queries | None) -> dict[str, Any]:
        """What a checkpoint must agree with, besides the settings of the loop and the training data."""
        aside = {"epochs", "checkpoint", "verbose"}
        parameters = {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in aside}
        judged = None
        if held_out is not None:
            judged = Examples(held_out.features, held_out.lists.labels, held_out.lists.offsets).digest()
        return {"model": type(self).__name__, "parameters": parameters, "eval_set": judged}

    def _center_and_spread(self, features: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.standardize:
            return center_and_spread(features)
        return np.zeros(features.shape[1]), np.ones(features.shape[1])

    def _inputs(self, features: NDArray[Any], dtype: Any) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller looks at what comes out
            return np.asarray(((features - self.mean_) / self.scale_).astype(dtype, copy=False))

    # ---- scores ------------------------------------------------------------------------------------------------------

    def _scores(self, features: NDArray[Any]) -> NDArray[np.float64]:
        inputs = self._inputs(features, np.float64 if self._dtype is torch.float64 else np.float32)
        return self.objective_.scores(network_outputs(self.network_, inputs, self._dtype))

    def pair_probability(self, X1: Any, X2: Any) -> NDArray[np.float64]:
        """The probability that the item of each row of X1 is ranked above that of the same row of X2.

        RankNet's logistic σ(alpha (f1 - f2)); for DirectRanker (1 + tanh(alpha (f1 - f2)))/2, or σ(tanh(...)) with
        ``cost="tanh"``. Being a rising function of a difference of scores it is an ordinal model: 1/2 for an item and
        itself, P(a, b) = 1 - P(b, a), and P(a, c) >= max(P(a, b), P(b, c)) where both are at least 1/2. Only models
        that were trained on pairs have one.
        """
        loss = get_loss(self.loss)
        if not isinstance(loss, RankNetLoss):
            raise ArgumentError(f"pair_probability needs a loss of pairs, RankNet or DirectRanker, got {self.loss!r}")
        difference = loss.alpha * (self.predict(X1) - self.predict(X2))
        if not isinstance(loss, DirectRankerLoss):
            return np.asarray(expit(difference))
        return np.asarray(expit(2 * difference) if loss.cost == "square" else expit(np.tanh(difference)))

    # ---- files -------------------------------------------------------------------------------------------------------

    def _fitted_state(self) -> FittedState:
        arrays = {f"network.{name}": value.numpy() for name, value in self.network_.state_dict().items()}
        arrays |= {"mean": self.mean_, "scale": self.scale_}
        objective = self.objective_
        if objective.levels is not None:
            arrays["levels"] = objective.levels
        metadata = {
            "history": self.history_,
            "kept_epoch": self.kept_epoch_,
            "selection": self.selection,
            "spread": objective.spread,
            "center": objective.center,
            "outputs": len(objective.losses),
        }
        return FittedState(arrays, {}, metadata)

    def _restore_state(self, state: FittedState) -> None:
        arrays, metadata = state.arrays, state.metadata
        self.mean_, self.scale_ = arrays["mean"], arrays["scale"]
        self.history_, self.kept_epoch_ = metadata["history"], metadata["kept_epoch"]
        loss = get_loss(self.loss, **({} if self.bounding == "none" else {"bounding": self.bounding}))
        self.objective_ = Objective(
            (loss,) * metadata["outputs"], arrays.get("levels"), metadata["spread"], metadata["center"]
        )
        layers = [metadata["outputs"], getattr(self, "kernel_size", 1)]
        for name in ("hidden", "channels"):
            layers += positive_integers(name, getattr(self, name, ()))
        if max(layers) > (widest := max(max(array.shape, default=0) for array in arrays.values())):
            raise DataError(f"layers of {max(layers)} units do not fit arrays of at most {widest}")  # not made first
        self.network_ = self._network(torch.Generator())
        weights = {name.removeprefix("network."): array for name, array in arrays.items() if "." in name}
        self.network_.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
        self.network_.eval()


class _Judge:
    """Measures of the held-out queries under the network as it is now."""

    def __init__(self, ranker: NeuralRanker, held_out: Queries) -> None:
        self._ranker, self._held_out = ranker, held_out
        self._measures = list(dict.fromkeys(map(str, (ranker.measure, *ranker.watch))))

    def __call__(self) -> dict[str, float]:
        scores = self._ranker._scores(self._held_out.features)
        scored = self._held_out.lists.with_scores(scores)
        means = evaluate_lists(scored, self._measures).mean()
        first = self._measures[0]
        if np.isnan(means[first]):
            mean_measure(self._held_out.lists, scores, score_measure(first))  # says which and why
        return means


def keep_parameters(ranker: Ranker, given: dict[str, Any]) -> None:
    """Store what a constructor was given under the same names, and nothing else, as scikit-learn asks."""
    for name, value in given.items():
        if name not in ("self", "__class__"):
            setattr(ranker, name, value)
