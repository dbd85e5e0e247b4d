"""SP: sum of the precisions at the ranks of relevant documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.definition import REL, VARIANT
from rankbound.measures.precision_sum import PrecisionSum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class SumOfPrecisions(PrecisionSum):
    """SP@k = sum over the relevant documents at ranks r <= k of the precision at r.

    ``variant='published'`` has the bounds of Karmaker & Feng (Joint upper & lower bound normalization), whose expected
    value takes precision and relevance at a rank as independent and whose best value is k.
    """

    name = "SP"
    summary = "sum of the precisions at the ranks of relevant documents"
    formula = "sum over relevant documents at r <= k of (relevant documents down to r) / r"
    citation = "Karmaker & Feng, Joint upper & lower bound normalization for IR evaluation"
    parameters = {"rel": REL, "variant": VARIANT}

    def divisor(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """1."""
        return np.ones(len(counts))

    def range_form(self, measure: Measure) -> str:
        """Nothing is divided."""
        return "rises"
