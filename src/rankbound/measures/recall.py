"""R: recall."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.measures.additive import Binary
from rankbound.measures.definition import REL
from rankbound.measures.discounts import CONSTANT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class Recall(Binary):
    """R@k = (relevant documents among the first k) / (relevant documents)."""

    name = "R"
    summary = "recall"
    formula = "(relevant documents among the first k) / P"
    citation = "van Rijsbergen, Information Retrieval, 1979"
    parameters = {"rel": REL}
    aliases = {"recall": {}}
    cutoff = "required"
    discount = CONSTANT

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The number of relevant documents."""
        return self.relevant(measure, counts, gains).astype(float)
