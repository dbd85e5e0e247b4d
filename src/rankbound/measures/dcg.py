"""DCG: discounted cumulative gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.additive import Additive
from rankbound.measures.definition import Parameter
from rankbound.measures.discounts import LOG2
from rankbound.measures.gains import exponential_gain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure

_EXPONENTIAL = ("dcg", "exp-log2")  # among the settings, which are those that differ from the default


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

    def describe_gain(self, measure: Measure) -> str:
        """The label is the gain, unless ``dcg="exp-log2"``."""
        return "exponential" if _EXPONENTIAL in measure.settings else "linear"

    def gains(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """The label, or 2^label - 1."""
        return exponential_gain(labels) if _EXPONENTIAL in measure.settings else labels.astype(np.float64)
