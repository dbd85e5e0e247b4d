"""Rankers that are neural networks: MLPRanker for any loss, and RankNet, DirectRanker and ListNet as they are known."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from rankbound.models.network_ranker import NeuralRanker, keep_parameters
from rankbound.models.networks import dense_layers

if TYPE_CHECKING:
    import torch

    from rankbound.losses import DirectRankerLoss

__all__ = ["DirectRanker", "ListNet", "MLPRanker", "RankNet"]


class MLPRanker(NeuralRanker):
    """A multi-layer perceptron that gives a score, trained with any loss: the MQ2008 network of the thesis.

    Also "Reg NN" and "Class NN" of the neural ranking paper, by ``loss="regression"`` and ``loss="classification"``.

    Parameters
    ----------
    hidden:
        Units of each hidden layer; 46 in the thesis, as many as MQ2008 has features.
    activation, dropout:
        After each hidden layer: ``relu``, ``tanh``, ``sigmoid`` or ``elu``, and the share of units left out while
        training.
    min_gap:
        For RankNet's and DirectRanker's losses: only pairs whose labels lie more than this apart count.

    For the others see `NeuralRanker`.

    >>> ranker = MLPRanker(hidden=(4,), epochs=30, learning_rate=0.05)
    >>> ranker = ranker.fit([[0.0], [1.0], [0.2], [0.9]], [0, 1, 0, 1], qid=[1, 1, 2, 2])
    >>> ranker.score([[0.1], [0.8]], [0, 1], qid=[7, 7])
    1.0
    """

    hidden: Any
    activation: str
    dropout: float

    def __init__(
        self,
        loss: Any = "nDCG",
        bounding: str = "none",
        *,
        hidden: tuple[int, ...] = (46,),
        activation: str = "relu",
        dropout: float = 0.0,
        epochs: int = 100,
        batch_size: int = 32,
        optimizer: str = "adam",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        selection: str = "validation",
        patience: int | None = None,
        list_size: int | None = None,
        min_gap: float = 0.0,
        standardize: bool = True,
        measure: Any = "nDCG",
        watch: tuple[Any, ...] = (),
        random_state: int | None = 0,
        checkpoint: str | PathLike[str] | None = None,
        verbose: bool = False,
    ) -> None:
        keep_parameters(self, locals())

    def _layers(self, outputs: int, bias: bool, generator: torch.Generator) -> list[Any]:
        return dense_layers(
            len(self.mean_), self.hidden, outputs, generator,
            activation=self.activation, dropout=self.dropout, head_bias=bias,
        )  # fmt: skip


class _KnownLoss(MLPRanker):
    """A perceptron whose loss makes it what it is; its head has no bias."""

    bounding = "none"


class RankNet(_KnownLoss):
    """RankNet (Burges et al. 2005): P(a before b) = σ(f(a) - f(b)), cross entropy over the pairs of each query.

    The parameters are those of `MLPRanker`; hidden layers default to those of the neural ranking paper on web queries.

    >>> ranker = RankNet(hidden=(8,), epochs=60, learning_rate=0.05).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    >>> bool(ranker.pair_probability([[2.0]], [[0.0]])[0] > 0.9)
    True
    """

    loss = "RankNet"

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (100, 30),
        activation: str = "relu",
        dropout: float = 0.0,
        epochs: int = 100,
        batch_size: int = 32,
        optimizer: str = "adam",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        selection: str = "validation",
        patience: int | None = None,
        list_size: int | None = None,
        min_gap: float = 0.0,
        standardize: bool = True,
        measure: Any = "nDCG",
        watch: tuple[Any, ...] = (),
        random_state: int | None = 0,
        checkpoint: str | PathLike[str] | None = None,
        verbose: bool = False,
    ) -> None:
        keep_parameters(self, locals())


class DirectRanker(_KnownLoss):
    """DirectRanker (Köppel et al. 2019): one network for both items, a head without bias, an odd activation.

    o(a, b) = tanh(w · (N(a) - N(b))) is antisymmetric, and f = w · N ranks: the order it gives is total and transitive.

    Parameters
    ----------
    cost:
        ``"square"``, (1 - o)² as published, or ``"tanh"``, log(1 + exp(-o)), the form of the neural ranking paper.

    For the others see `RankNet`.

    >>> ranker = DirectRanker(hidden=(8,), epochs=60, learning_rate=0.05).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    >>> float(ranker.pair_probability([[1.0]], [[1.0]])[0])
    0.5
    """

    cost: str

    def __init__(
        self,
        *,
        cost: str = "square",
        hidden: tuple[int, ...] = (100, 30),
        activation: str = "relu",
        dropout: float = 0.0,
        epochs: int = 100,
        batch_size: int = 32,
        optimizer: str = "adam",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        selection: str = "validation",
        patience: int | None = None,
        list_size: int | None = None,
        min_gap: float = 0.0,
        standardize: bool = True,
        measure: Any = "nDCG",
        watch: tuple[Any, ...] = (),
        random_state: int | None = 0,
        checkpoint: str | PathLike[str] | None = None,
        verbose: bool = False,
    ) -> None:
        keep_parameters(self, locals())

    @property
    def loss(self) -> DirectRankerLoss:
        """DirectRanker's loss with the cost of this ranker."""
        from rankbound.losses import DirectRankerLoss

        return DirectRankerLoss(cost=self.cost)


class ListNet(_KnownLoss):
    """ListNet (Cao et al. 2007): cross entropy between the top-one probabilities that labels and scores give.

    The parameters are those of `RankNet`, without ``min_gap``, which is about pairs.
    """

    loss = "ListNet"

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (46,),
        activation: str = "relu",
        dropout: float = 0.0,
        epochs: int = 100,
        batch_size: int = 32,
        optimizer: str = "adam",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        selection: str = "validation",
        patience: int | None = None,
        list_size: int | None = None,
        standardize: bool = True,
        measure: Any = "nDCG",
        watch: tuple[Any, ...] = (),
        random_state: int | None = 0,
        checkpoint: str | PathLike[str] | None = None,
        verbose: bool = False,
    ) -> None:
        keep_parameters(self, locals())
