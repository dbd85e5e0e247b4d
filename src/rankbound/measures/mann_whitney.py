"""U: the Mann-Whitney statistic, the loss behind nRBP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.definition import REL
from rankbound.measures.pairwise import Pairwise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class MannWhitney(Pairwise):
    """U = sum over relevant documents of (rank - 1) - P(P - 1)/2 = pairs (relevant, other) in the wrong order.

    Lower is better; a tie counts half, and documents that were not returned share the last ranks.
    """

    name = "U"
    summary = "Mann-Whitney: pairs (relevant, other) in the wrong order; the loss behind nRBP"
    formula = "sum over relevant documents of (rank - 1) - P(P - 1)/2"
    citation = "Mann & Whitney 1947; as a loss: Li, Urbano & Hanjalic, New insights into metric optimization, 2021"
    parameters = {"rel": REL}
    lower_is_better = True

    def is_binary(self, measure: Measure) -> bool:
        """Always."""
        return True

    def affine(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The wrong pairs themselves."""
        return np.ones(len(counts)), np.zeros(len(counts))
