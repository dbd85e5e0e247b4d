"""Rankers of dense layers: LinearRanker, MLPRanker, and the published RankNet, DirectRanker and ListNet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.models.base import FittedState
from rankbound.models.options import Monitoring, OptionGroup, accept_options
from rankbound.models.parameters import check_choice, check_flag, check_number
from rankbound.models.rankers.networks import InputNoise, SelfAttention, dense_layers, new_layer_norm, positive_integers
from rankbound.models.rankers.neural import NeuralRanker
from rankbound.models.rankers.options import Comparisons, Network, NetworkOptimizer
from rankbound.models.rankers.weighted_features import find_heavy_tails, signed_log1p

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import nn

    from rankbound.losses import DirectRankerLoss, RankingLoss


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class LinearRanker(NeuralRanker):
    """A linear model, score = features · ``coef_``, trained with any loss.

    With ``loss="nDCG"`` and ``loss=APLoss(form="ranks")`` it is ApproxNDCG and ApproxAP (Qin, Liu & Li, "A general
    approximation framework for direct optimization of information retrieval measures", 2010). In the neural ranking
    paper (Köppel et al. 2019), ``loss="RankNet"`` is called "Rank LR".

    The parameters are those of `NeuralRanker`.

    >>> ranker = LinearRanker(epochs=30, learning_rate=0.1)
    >>> ranker = ranker.fit([[0, 5], [1, 5], [3, 2], [4, 9]], [0, 1, 0, 1], qid=["a", "a", "b", "b"])
    >>> bool(ranker.coef_[0] > 0), ranker.predict([[4, 0], [3, 0]]).argmax()
    (True, np.int64(0))
    """

    learning_rate: float = 1e-2

    def _layers(self, outputs: int, bias: bool, generator: torch.Generator | None) -> list[nn.Module]:
        return dense_layers(len(self.mean_), (), outputs, generator, head_bias=bias)

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Weight of each feature in its own units, with the standardization undone."""
        if self.objective_.levels is not None and len(self.objective_.losses) > 1:
            raise ArgumentError("coef_ is not defined for a classifier of more than two labels")
        weights = self.network_[-1].weight.detach().numpy()[0].astype(np.float64)
        return np.asarray(weights * self.objective_.spread / self.scale_)


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class MLPRanker(NeuralRanker):
    """A multi-layer perceptron that computes a score, trained with any loss.

    The defaults follow Qin et al., "Are neural rankers still outperformed by gradient boosted decision trees?" (2021):
    the softmax cross entropy, inputs with short tails, noise on the inputs, dropout and weight decay. With
    ``attention_blocks`` the documents of a query attend to each other before they are scored, as in Pobrotyn et al.,
    "Context-aware learning to rank with self-attention" (2020); `predict` then requires ``qid``.

    Parameters
    ----------
    network:
        A `Network`, or the units of its hidden layers: layers, dropout, attention, and what happens to the inputs.
    optimizer, monitoring:
        As in `NeuralRanker`; by default ``NetworkOptimizer("adamw", weight_decay=0.01)`` and, with an ``eval_set``, a
        patience of 20 epochs.

    The other parameters are those of `NeuralRanker`.

    The MQ2008 network of Westerborg 2022 is ``MLPRanker("nDCG", hidden=(46,), optimizer="adam", weight_decay=0,
    batch_size=32, dropout=0, input_noise=0, input_transform="none", patience=None)``. With such settings and
    ``loss="regression"`` or ``"classification"`` it is "Reg NN" and "Class NN" of Köppel et al., "Pairwise learning to
    rank by neural networks revisited" (2019).

    >>> ranker = MLPRanker(hidden=(4,), epochs=30, learning_rate=0.05)
    >>> ranker = ranker.fit([[0.0], [1.0], [0.2], [0.9]], [0, 1, 0, 1], qid=[1, 1, 2, 2])
    >>> ranker.score([[0.1], [0.8]], [0, 1], qid=[7, 7])
    1.0

    With attention, a score depends on the other documents of the query, but not on their order:

    >>> ranker = MLPRanker(hidden=(4,), attention_blocks=1, attention_heads=2, epochs=30, learning_rate=0.05)
    >>> ranker = ranker.fit([[0.0], [1.0], [0.2], [0.9]], [0, 1, 0, 1], qid=[1, 1, 2, 2])
    >>> scores = ranker.predict([[0.1], [0.8], [0.3]], qid=[7, 7, 7])
    >>> bool((ranker.predict([[0.3], [0.1], [0.8]], qid=[7, 7, 7]) == scores[[2, 0, 1]]).all())
    True
    """

    loss: str | RankingLoss = field(default="softmax", kw_only=False)
    network: tuple[int, ...] | Network = (256, 128)
    batch_size: int = 16
    optimizer: str | NetworkOptimizer = "adamw"
    _groups: ClassVar[dict[str, OptionGroup]] = {
        "network": Network(),
        "optimizer": NetworkOptimizer("adamw", weight_decay=1e-2),
        "comparisons": Comparisons(),
        "monitoring": Monitoring(patience=20),
    }
    _params_of_older_files: ClassVar[dict[str, Any]] = {"network": Network(input_transform="none", input_noise=0.0)}

    @property
    def _options(self) -> Network:
        return Network.from_model(self, "network")

    @property
    def _in_context(self) -> bool:  # type: ignore[override]
        return self._options.attention_blocks > 0

    def _fit_inputs(self, features: NDArray[np.floating]) -> None:
        transform = self._options.input_transform
        check_choice("input_transform", transform, ("auto", "none", "log1p"))
        if transform == "auto":
            self.log_features_ = find_heavy_tails(features)
        else:
            self.log_features_ = np.full(features.shape[1], transform == "log1p")
        self.mean_, self.scale_ = self._center_and_spread(features, self._transform)

    def _transform(self, features: NDArray[np.floating]) -> NDArray[Any]:
        if not self.log_features_.any():
            return features
        transformed = features.astype(np.float64)
        transformed[:, self.log_features_] = signed_log1p(features[:, self.log_features_])
        return transformed

    def _inputs(self, features: NDArray[np.floating], dtype: Any) -> NDArray[Any]:
        return super()._inputs(self._transform(features), dtype)

    def _layers(self, outputs: int, bias: bool, generator: torch.Generator | None) -> list[nn.Module]:
        options = self._options
        check_flag("layer_norm", options.layer_norm)
        check_number("input_noise", options.input_noise, zero=True)
        *layers, head = dense_layers(
            len(self.mean_),
            options.hidden,
            outputs,
            generator,
            activation=options.activation,
            dropout=options.dropout,
            layer_norm=bool(options.layer_norm),
            head_bias=bias,
        )
        if options.input_noise:
            layers.insert(0, InputNoise(float(options.input_noise), generator))
        return [*layers, *self._attention(generator), head]

    def _attention(self, generator: torch.Generator | None) -> list[nn.Module]:
        options = self._options
        blocks = options.attention_blocks
        if not isinstance(blocks, (int, np.integer)) or isinstance(blocks, bool) or blocks < 0:
            raise ArgumentError(f"attention_blocks must be an integer of at least 0, got {blocks!r}")
        if blocks == 0:
            return []
        units = (len(self.mean_), *positive_integers("hidden", options.hidden))[-1]
        heads = positive_integers("attention_heads", options.attention_heads)
        if len(heads) != 1 or units % heads[0]:
            raise ArgumentError(
                "attention_heads must divide the units of the last hidden layer, "
                f"{units}, got {options.attention_heads!r}"
            )
        attention = [SelfAttention(units, heads[0], options.dropout, generator) for _ in range(blocks)]
        return [*attention, new_layer_norm(units, generator)]

    def _fitted_state(self) -> FittedState:
        state = super()._fitted_state()
        return FittedState(state.arrays | {"log_features": self.log_features_}, state.texts, state.metadata)

    def _restore_state(self, state: FittedState) -> None:
        blocks = self._options.attention_blocks
        if blocks > len(state.arrays):
            raise DataError(f"attention_blocks must be at most the number of arrays, got {blocks}")
        width = len(state.arrays["mean"])
        self.log_features_ = state.arrays.get("log_features", np.zeros(width, dtype=np.bool_))
        if self.log_features_.dtype != np.bool_ or self.log_features_.shape != (width,):
            raise DataError(f"log_features must have a truth value for each of {width} features")
        super()._restore_state(state)


def _published_network(*hidden: int) -> Network:
    return Network(hidden, dropout=0.0, input_transform="none", input_noise=0.0)


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class _FixedLoss(MLPRanker):
    """A perceptron that is defined by its loss, which is therefore not a parameter; its head has no bias.

    The defaults are those of the published networks, without dropout, noise and weight decay.
    """

    loss: ClassVar[Any]  # type: ignore[misc]  # an instance variable of the base class
    bounding: ClassVar[str] = "none"  # type: ignore[misc]
    network: tuple[int, ...] | Network = (100, 30)
    batch_size: int = 32
    optimizer: str | NetworkOptimizer = "adam"
    _groups: ClassVar[dict[str, OptionGroup]] = NeuralRanker._groups | {"network": _published_network(100, 30)}


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class RankNet(_FixedLoss):
    """RankNet (Burges et al., "Learning to rank using gradient descent", 2005).

    P(a before b) = σ(f(a) - f(b)), trained with the cross entropy over the pairs of each query. The parameters are
    those of `MLPRanker` without ``loss`` and ``bounding``. The hidden layers default to those that the neural ranking
    paper uses on web queries, without dropout, noise, transformation of the features and weight decay.

    >>> ranker = RankNet(hidden=(8,), epochs=60, learning_rate=0.05).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    >>> bool(ranker.pair_probability([[2.0]], [[0.0]])[0] > 0.9)
    True
    """

    loss: ClassVar[str] = "RankNet"  # type: ignore[misc]


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class DirectRanker(_FixedLoss):
    """DirectRanker (Köppel et al., "Pairwise learning to rank by neural networks revisited", 2019).

    One network scores both items, with a head without bias and an odd activation: o(a, b) = tanh(w · (N(a) - N(b))) is
    antisymmetric, and f = w · N ranks, so that the order is total and transitive.

    Parameters
    ----------
    cost:
        ``"square"``, (1 - o)² as published, or ``"tanh"``, log(1 + exp(-o)), the form of the neural ranking paper.

    The other parameters are those of `RankNet`.

    >>> ranker = DirectRanker(hidden=(8,), epochs=60, learning_rate=0.05).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    >>> float(ranker.pair_probability([[1.0]], [[1.0]])[0])
    0.5
    """

    cost: str = "square"

    @property  # type: ignore[misc]
    def loss(self) -> DirectRankerLoss:  # type: ignore[override]
        """DirectRanker's loss with the cost of this ranker."""
        from rankbound.losses import DirectRankerLoss

        return DirectRankerLoss(cost=self.cost)


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class ListNet(_FixedLoss):
    """ListNet (Cao et al., "Learning to rank: from pairwise approach to listwise approach", 2007).

    It minimizes the cross entropy between the top-one probabilities of the labels and those of the scores. The
    parameters are those of `MLPRanker` without ``loss`` and ``bounding``.
    """

    loss: ClassVar[str] = "ListNet"  # type: ignore[misc]
    network: tuple[int, ...] | Network = (46,)
    _groups: ClassVar[dict[str, OptionGroup]] = NeuralRanker._groups | {"network": _published_network(46)}
