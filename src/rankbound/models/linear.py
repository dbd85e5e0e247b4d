"""LinearRanker: a weighted sum of features, trained with any ranking loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.models.network_ranker import NeuralRanker
from rankbound.models.networks import dense_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LinearRanker"]


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

    def _layers(self, outputs: int, bias: bool, generator: Any) -> list[Any]:
        return dense_layers(len(self.mean_), (), outputs, generator, head_bias=bias)

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Weight of each feature in its own units, with the standardization undone."""
        if self.objective_.levels is not None and len(self.objective_.losses) > 1:
            raise ArgumentError("coef_ is not defined for a classifier of more than two labels")
        weights = self.network_[-1].weight.detach().numpy()[0].astype(np.float64)
        return np.asarray(weights * self.objective_.spread / self.scale_)
