"""Neural rankers: MLPRanker for any loss, and the published RankNet, DirectRanker and ListNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rankbound.models.network_ranker import NeuralRanker
from rankbound.models.networks import dense_layers

if TYPE_CHECKING:
    import torch

    from rankbound.losses import DirectRankerLoss

__all__ = ["DirectRanker", "ListNet", "MLPRanker", "RankNet"]


@dataclass(eq=False, repr=False, kw_only=True)
class MLPRanker(NeuralRanker):
    """A multi-layer perceptron that computes a score, trained with any loss.

    It is the MQ2008 network of Westerborg 2022 and, with ``loss="regression"`` and
    ``loss="classification"``, "Reg NN" and "Class NN" of the neural ranking paper (Köppel et al., "Pairwise learning to
    rank by neural networks revisited").

    Parameters
    ----------
    hidden:
        Units of each hidden layer. The default of Westerborg 2022 is 46, the number of features of MQ2008.
    activation, dropout:
        Applied after each hidden layer: ``relu``, ``tanh``, ``sigmoid`` or ``elu``, and the fraction of units that are
        set to 0 in training.

    The other parameters are those of `NeuralRanker`.

    >>> ranker = MLPRanker(hidden=(4,), epochs=30, learning_rate=0.05)
    >>> ranker = ranker.fit([[0.0], [1.0], [0.2], [0.9]], [0, 1, 0, 1], qid=[1, 1, 2, 2])
    >>> ranker.score([[0.1], [0.8]], [0, 1], qid=[7, 7])
    1.0
    """

    hidden: tuple[int, ...] = (46,)
    activation: str = "relu"
    dropout: float = 0.0

    def _layers(self, outputs: int, bias: bool, generator: torch.Generator) -> list[Any]:
        return dense_layers(
            len(self.mean_), self.hidden, outputs, generator,
            activation=self.activation, dropout=self.dropout, head_bias=bias,
        )  # fmt: skip


@dataclass(eq=False, repr=False, kw_only=True)
class _FixedLoss(MLPRanker):
    """A perceptron that is defined by its loss, which is therefore not a parameter; its head has no bias."""

    loss: ClassVar[Any]  # type: ignore[misc]  # an instance variable of the base class
    bounding: ClassVar[str] = "none"  # type: ignore[misc]


@dataclass(eq=False, repr=False, kw_only=True)
class RankNet(_FixedLoss):
    """RankNet (Burges et al., "Learning to rank using gradient descent", 2005).

    P(a before b) = σ(f(a) - f(b)), trained with the cross entropy over the pairs of each query. The parameters are
    those of `MLPRanker` without ``loss`` and ``bounding``. The hidden layers default to those that the neural ranking
    paper uses on web queries.

    >>> ranker = RankNet(hidden=(8,), epochs=60, learning_rate=0.05).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    >>> bool(ranker.pair_probability([[2.0]], [[0.0]])[0] > 0.9)
    True
    """

    loss: ClassVar[Any] = "RankNet"  # type: ignore[misc]
    hidden: tuple[int, ...] = (100, 30)


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
    hidden: tuple[int, ...] = (100, 30)

    @property  # type: ignore[misc]
    def loss(self) -> DirectRankerLoss:
        """DirectRanker's loss with the cost of this ranker."""
        from rankbound.losses import DirectRankerLoss

        return DirectRankerLoss(cost=self.cost)


@dataclass(eq=False, repr=False, kw_only=True)
class ListNet(_FixedLoss):
    """ListNet (Cao et al., "Learning to rank: from pairwise approach to listwise approach", 2007).

    It minimizes the cross entropy between the top-one probabilities of the labels and those of the scores. The
    parameters are those of `MLPRanker` without ``loss``, ``bounding`` and ``min_gap``.
    """

    loss: ClassVar[Any] = "ListNet"  # type: ignore[misc]
    min_gap: ClassVar[float] = 0.0  # type: ignore[misc]
