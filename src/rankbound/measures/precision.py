"""P: precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.additive import Binary
from rankbound.measures.definition import REL
from rankbound.measures.discounts import CONSTANT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class Precision(Binary):
    """P@k = (relevant documents among the first k) / k, also where the list is shorter than k."""

    name = "P"
    summary = "precision"
    formula = "(relevant documents among the first k) / k"
    citation = "van Rijsbergen, Information Retrieval, 1979"
    parameters = {"rel": REL}
    aliases = {"precision": {}}
    cutoff = "required"
    discount = CONSTANT

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """k."""
        return np.full(len(counts), float(measure.cutoff or 0))

    def keeps_cutoff(self, measure: Measure, n: int) -> bool:
        """The divisor is k."""
        return True

    def range_form(self, measure: Measure) -> str:
        """Divided by k."""
        return "rises"
