"""NeuralRanker: the common base of all rankers that torch trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit

from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.models.base import FittedState, Queries, Ranker, seed_of
from rankbound.models.measuring import mean_measure, score_measure
from rankbound.models.options import Monitoring, OptionGroup, accept_options, flat_parameters
from rankbound.models.rankers.networks import ListNetwork, Objective, make_objective, network_outputs, positive_integers
from rankbound.models.rankers.options import Comparisons, NetworkOptimizer
from rankbound.models.rankers.weighted_features import BLOCK_VALUES, center_and_spread, row_blocks
from rankbound.packages import needed_by
from rankbound.parallel import current_workers, physical_memory

with needed_by("a neural ranker"):
    import torch
    from torch import nn

    from rankbound.losses import DirectRankerLoss, PointwiseLoss, RankNetLoss, get_loss
    from rankbound.training import Examples, Settings, Surroundings, train

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses import RankingLoss
    from rankbound.measures.measure import Measure


_BYTES_PER_WEIGHT = 16  # weight, gradient, and the two means of Adam


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class NeuralRanker(Ranker):
    """The common base of all rankers that torch trains.

    A subclass implements ``_layers``, declares its own parameters as fields and changes defaults by declaring a field
    again; ``dataclass`` writes the constructor, which stores its arguments and does nothing else, as scikit-learn
    requires. A parameter that a subclass does not have is declared as a ``ClassVar``.

    Parameters
    ----------
    loss:
        The loss to minimize: one of `rankbound.losses.loss_names()` (``"nDCG"``, ``"AP"``, ``"lambda-nDCG"``,
        ``"RankNet"``, ``"ListNet"``, ...) or a loss object. ``"regression"`` fits the labels and
        ``"classification"`` their levels; the score is then the expected label.
    bounding:
        ``none``, ``min-max``, ``expectation``, ``expectation-max``, ``distribution`` or ``log-distribution``. It
        relates a loss that stands for a measure to the values that the query allows.
    epochs, batch_size, learning_rate:
        Passes over the queries, queries per step, and step size; see `rankbound.training.Settings`.
    optimizer:
        ``"adam"``, ``"adamw"``, ``"sgd"`` or a `NetworkOptimizer`, which also has the weight decay and the schedule.
    comparisons:
        `Comparisons`: the size of the lists, and the gap between labels of pairs; or the size.
    standardize:
        Scale every feature to mean 0 and standard deviation 1 over the training rows. The scaling is saved with the
        model.
    measure:
        The measure that `score` reports and that the selection uses.
    monitoring:
        A `Monitoring`: selection of an epoch by ``eval_set``, patience, checkpoints, progress; or a selection by name.
    random_state:
        Seed of all random numbers; None is 0.

    Every option of a group can also be given by its own name: ``weight_decay=0.1`` changes that option of
    ``optimizer`` and leaves the others as they are by default.

    Attributes after `fit`: ``history_``, a dict per epoch with the loss and the measures of ``eval_set``;
    ``kept_epoch_``, the epoch whose weights the model has; ``network_``, the torch module.
    """

    loss: str | RankingLoss = field(default="nDCG", kw_only=False)
    bounding: str = field(default="none", kw_only=False)
    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-3
    optimizer: str | NetworkOptimizer = "adam"
    comparisons: int | Comparisons | None = None
    standardize: bool = True
    measure: str | Measure = "nDCG"
    monitoring: str | Monitoring = "validation"
    random_state: int | None = 0
    _groups: ClassVar[dict[str, OptionGroup]] = {
        "optimizer": NetworkOptimizer(),
        "comparisons": Comparisons(),
        "monitoring": Monitoring(),
    }
    _dtype: ClassVar[torch.dtype] = torch.float64  # of predictions, so that equal rows get equal scores

    def _layers(self, outputs: int, bias: bool, generator: torch.Generator | None) -> list[nn.Module]:
        raise NotImplementedError

    # ---- learning ----------------------------------------------------------------------------------------------------

    @property
    def _learns_from(self) -> str:  # type: ignore[override]
        return "rows" if isinstance(get_loss(self.loss), PointwiseLoss) else "queries"

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        settings, monitoring = self._settings(), self._monitoring
        if settings.selection == "test" and held_out is None:
            raise ArgumentError("selection='test' selects the epoch on eval_set, which is missing")
        self._fit_inputs(queries.features)
        self.objective_ = make_objective(
            self.loss, self.bounding, queries.labels, Comparisons.from_model(self, "comparisons").min_gap
        )
        generator = torch.Generator().manual_seed(settings.seed)
        self._check_size()
        self.network_ = self._network(generator)
        large = queries.features.size > BLOCK_VALUES
        examples = Examples(
            _InputsByRow(self, queries.features) if large else self._inputs(queries.features, np.float32),
            queries.labels,
            queries.lists.offsets,
            None if queries.weights is None else queries.query_weights,
        )
        trained = train(
            self.network_,
            examples,
            self.objective_.copy_for_training(),
            settings,
            generator,
            Surroundings(
                None if held_out is None else _Evaluator(self, held_out),
                monitoring.checkpoint,
                None if monitoring.checkpoint is None else self._identity(held_out),
                threads=1 if self._is_small() else None,
                verbose=monitoring.verbose,
                on_step=self._on_step,
            ),
        )
        self.history_, self.kept_epoch_ = trained.history, trained.kept_epoch

    @property
    def _monitoring(self) -> Monitoring:
        return Monitoring.from_model(self, "monitoring")

    def _settings(self) -> Settings:
        optimizer, monitoring = NetworkOptimizer.from_model(self, "optimizer"), self._monitoring
        return Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer=optimizer.method,
            learning_rate=self.learning_rate,
            weight_decay=optimizer.weight_decay,
            schedule=optimizer.schedule,
            selection=monitoring.selection,
            eval_every=monitoring.eval_every or 1,
            patience=monitoring.patience,
            checkpoint_every=monitoring.checkpoint_every or 1,
            list_size=Comparisons.from_model(self, "comparisons").list_size,
            seed=seed_of(self.random_state),
        )

    def _network(self, generator: torch.Generator | None) -> nn.Module:
        """Return the network with random weights; without a generator, one with shapes but no memory."""
        objective = self.objective_
        layers = self._layers(len(objective.losses), objective.pointwise, generator)
        if objective.pointwise:
            with torch.no_grad():  # a regression starts at the mean label
                layers[-1].bias.fill_(objective.center / objective.spread)
        in_lists = any(getattr(layer, "takes_lists", False) for layer in layers)
        return ListNetwork(*layers) if in_lists else nn.Sequential(*layers)

    def _check_size(self) -> None:
        """Raise ArgumentError for a network that does not fit into memory, before memory is reserved for it."""
        weights = sum(weights.numel() for weights in self._network(None).parameters())
        if weights * _BYTES_PER_WEIGHT > (memory := physical_memory()):
            raise ArgumentError(
                f"the network must fit into memory, {memory // _BYTES_PER_WEIGHT:,} weights at most, got {weights:,}; "
                "choose smaller layers"
            )

    def _is_small(self) -> bool:
        """Whether a step is too small to gain from more than one thread."""
        return bool(sum(weights.numel() for weights in self.network_.parameters()) < 200_000)

    def _identity(self, held_out: Queries | None) -> dict[str, Any]:
        """Return what a checkpoint must match, besides the settings of the loop and the training data."""
        ignored = {"epochs", "checkpoint", "checkpoint_every", "verbose"}
        parameters = {name: repr(value) for name, value in flat_parameters(self).items() if name not in ignored}
        eval_digest = None
        if held_out is not None:
            eval_digest = Examples(held_out.features, held_out.lists.labels, held_out.lists.offsets).digest()
        return {"model": type(self).__name__, "parameters": parameters, "eval_set": eval_digest}

    def _fit_inputs(self, features: NDArray[np.floating]) -> None:
        """Determine how features become inputs of the network."""
        self.mean_, self.scale_ = self._center_and_spread(features)

    def _center_and_spread(
        self, features: NDArray[np.floating], transform: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.standardize:
            return center_and_spread(features, transform=transform)
        return np.zeros(features.shape[1]), np.ones(features.shape[1])

    def _inputs(self, features: NDArray[np.floating], dtype: Any) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
            return np.asarray(((features - self.mean_) / self.scale_).astype(dtype, copy=False))

    # ---- scores ------------------------------------------------------------------------------------------------------

    def _scores(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        return self._list_scores(features, np.array([0, len(features)]))

    def _list_scores(self, features: NDArray[np.floating], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the scores of lists, of whole lists in blocks if there are many: the inputs are a copy."""
        if features.size <= BLOCK_VALUES:
            return self._block_scores(features, offsets)
        if not self._in_context:
            blocks = [(rows, np.array([0, rows.stop - rows.start])) for rows in row_blocks(features)]
        else:
            ends = np.searchsorted(offsets, [rows.stop for rows in row_blocks(features)], side="right") - 1
            cuts = np.unique(np.concatenate(([0], ends, [len(offsets) - 1])))
            blocks = [
                (slice(int(offsets[a]), int(offsets[b])), offsets[a : b + 1] - offsets[a]) for a, b in pairwise(cuts)
            ]
        return np.concatenate([self._block_scores(features[rows], own) for rows, own in blocks])

    def _block_scores(self, features: NDArray[np.floating], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
        inputs = self._inputs(features, np.float64 if self._dtype is torch.float64 else np.float32)
        return self.objective_.scores(network_outputs(self.network_, inputs, self._dtype, offsets))

    def pair_probability(self, X1: Any, X2: Any) -> NDArray[np.float64]:
        """Return the probability that the item of each row of X1 ranks above that of the same row of X2.

        For RankNet it is the logistic σ(alpha (f1 - f2)), for DirectRanker (1 + tanh(alpha (f1 - f2)))/2, or
        σ(tanh(...)) with ``cost="tanh"``. As an increasing function of a difference of scores it is an ordinal model:
        P(a, a) = 1/2, P(a, b) = 1 - P(b, a), and P(a, c) >= max(P(a, b), P(b, c)) where both are at least 1/2. Only
        models trained on pairs have such a probability.
        """
        loss = get_loss(self.loss)
        if not isinstance(loss, RankNetLoss):
            raise ArgumentError(f"pair_probability requires the loss RankNet or DirectRanker, got {self.loss!r}")
        if self._in_context:
            raise ArgumentError("pair_probability requires a score for each item alone, got a ranker with attention")
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
            "selection": self._monitoring.selection,
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
        options = flat_parameters(self)
        layers = [metadata["outputs"], options.get("kernel_size", 1)]
        for name in ("hidden", "channels"):
            layers += positive_integers(name, options.get(name, ()))
        if max(layers) > (widest := max(max(array.shape, default=0) for array in arrays.values())):
            raise DataError(f"layers of {max(layers)} units do not fit arrays of at most {widest}")
        weights = {
            name.removeprefix("network."): torch.from_numpy(np.array(array))
            for name, array in arrays.items()
            if name.startswith("network.")
        }
        if any(value.dtype != torch.float32 for value in weights.values()):
            raise DataError("the weights of a network must be float32")
        # without a generator, layers have no memory: shapes are compared before anything is allocated
        self.network_ = self._network(None)
        self.network_.load_state_dict(weights, assign=True)
        self.network_.eval()


class _InputsByRow:
    """The inputs of the network, computed from the features when rows are requested: a copy of all may be too large."""

    def __init__(self, ranker: NeuralRanker, features: NDArray[np.floating]) -> None:
        self._ranker, self._features = ranker, features

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        return self._ranker._inputs(self._features[rows], np.float32)

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """All rows, in blocks."""
        for rows in row_blocks(self._features):
            yield self[rows]


class _Evaluator:
    """Measures of the held-out queries under the current weights of the network."""

    def __init__(self, ranker: NeuralRanker, held_out: Queries) -> None:
        self._ranker, self._held_out = ranker, held_out
        self._measures = list(dict.fromkeys(map(str, (ranker.measure, *ranker._monitoring.watch))))

    def __call__(self) -> dict[str, float]:
        scores = self._scores()
        scored = self._held_out.lists.with_scores(scores)
        means = evaluate_lists(scored, self._measures).mean()
        first = self._measures[0]
        if np.isnan(means[first]):
            mean_measure(self._held_out.lists, scores, score_measure(first))  # raises an error with the reason
        return means

    def _scores(self) -> NDArray[np.float64]:
        """The scores of all held-out queries; of several processes, each computes those of a part."""
        features, lists = self._held_out.features, self._held_out.lists
        together = current_workers()
        if together is None:
            return self._ranker._list_scores(features, lists.offsets)
        part = together.part(lists.sizes)
        own = lists.offsets[part.start : part.stop + 1]
        if own[0] == own[-1]:
            return np.concatenate(together.gather(np.zeros(0)))
        return np.concatenate(together.gather(self._ranker._list_scores(features[own[0] : own[-1]], own - own[0])))
