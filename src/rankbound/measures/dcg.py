"""DCG: discounted cumulative gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankbound.measures.additive import Additive
from rankbound.measures.definition import Parameter
from rankbound.measures.discounts import LOG2
from rankbound.measures.gains import exponential_gain, linear_gain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure

__all__ = ["DCG"]


class DCG(Additive):
    """DCG@k = sum over ranks r <= k of gain(label at r) / log2(1 + r)."""

    name = "DCG"
    summary = "discounted cumulative gain"
    formula = "sum over r <= k of gain(label at r) / log2(1 + r); gain = label, or 2^label - 1 with dcg='exp-log2'"
    citation = "Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002"
    parameters = {
        "dcg": Parameter("log2", "'log2' (linear gain) or 'exp-log2' (gain 2^label - 1)", ("log2", "exp-log2"))
    }
    aliases = {"dcg_burges": {"dcg": "exp-log2"}}
    discount = LOG2

    def gains(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """The label, or 2^label - 1."""
        return exponential_gain(labels) if measure["dcg"] == "exp-log2" else linear_gain(labels)
