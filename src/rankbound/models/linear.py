"""LinearRanker: a weighted sum of features, trained with any ranking loss."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.models.network_ranker import NeuralRanker, keep_parameters
from rankbound.models.networks import dense_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LinearRanker"]


class LinearRanker(NeuralRanker):
    """score = features · ``coef_``, with weights that make any loss small.

    With ``loss="nDCG"`` and ``loss=APLoss(form="ranks")`` it is ApproxNDCG and ApproxAP (Qin, Liu & Li 2010), with
    ``loss="RankNet"`` the "Rank LR" of the neural ranking paper, with ``loss="SoftRank"`` its linear SoftRank.

    The parameters are those of `NeuralRanker`; ``min_gap`` is explained at `rankbound.models.MLPRanker`.

    >>> ranker = LinearRanker(epochs=30, learning_rate=0.1)
    >>> ranker = ranker.fit([[0, 5], [1, 5], [3, 2], [4, 9]], [0, 1, 0, 1], qid=["a", "a", "b", "b"])
    >>> bool(ranker.coef_[0] > 0), ranker.predict([[4, 0], [3, 0]]).argmax()
    (True, np.int64(0))
    """

    def __init__(
        self,
        loss: Any = "nDCG",
        bounding: str = "none",
        *,
        epochs: int = 100,
        batch_size: int = 32,
        optimizer: str = "adam",
        learning_rate: float = 1e-2,
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

    def _layers(self, outputs: int, bias: bool, generator: Any) -> list[Any]:
        return dense_layers(len(self.mean_), (), outputs, generator, head_bias=bias)

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Weight of each feature as it comes in: what training found, undone of the standardizing."""
        if self.objective_.levels is not None and len(self.objective_.losses) > 1:
            raise ArgumentError("a linear classifier of more than two labels has no single vector of weights")
        weights = self.network_[-1].weight.detach().numpy()[0].astype(np.float64)
        return np.asarray(weights * self.objective_.spread / self.scale_)
