"""LetorNDCG: nDCG as the evaluation scripts of LETOR compute it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankbound.measures.discounts import LETOR
from rankbound.measures.gains import exponential_gain
from rankbound.measures.ndcg import NDCG

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure


class LetorNDCG(NDCG):
    """nDCG with gain 2^label - 1 and the discount 1 at ranks 1 and 2, then 1 / log2(rank).

    Papers that evaluate with the scripts of LETOR 2.0 and 3.0 report this nDCG. The discount is the one of Järvelin and
    Kekäläinen with base 2; nDCG has 1 / log2(1 + rank) instead. The scripts count queries without a relevant document
    as 0, which ``empty="zero"`` does here.
    """

    name = "LetorNDCG"
    summary = "nDCG of LETOR's evaluation scripts: the first two ranks have the same discount"
    formula = "sum over r <= k of (2^label - 1) / max(1, log2(r)), over that of the labels in descending order"
    citation = "Qin, Liu, Xu & Li, LETOR: A benchmark collection for research on learning to rank, 2010"
    parameters = {}
    aliases = {"letor_ndcg": {}}
    discount = LETOR

    def describe_gain(self, measure: Measure) -> str:
        """Always 2^label - 1."""
        return "exponential"

    def gains(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """2^label - 1."""
        return exponential_gain(labels)
