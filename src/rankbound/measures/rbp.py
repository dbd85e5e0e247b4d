"""RBP: rank-biased precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.additive import Binary
from rankbound.measures.definition import REL, Parameter
from rankbound.measures.discounts import GEOMETRIC
from rankbound.measures.gains import linear_gain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure

PERSISTENCE = Parameter(0.8, "a number between 0 and 1", most=1.0, most_included=False)


class RBP(Binary):
    """RBP(p)@k = (1 - p) * sum over relevant documents at ranks r <= k of p^(r - 1).

    ``gain='graded'`` counts a document by label / (largest label of the query) instead.
    """

    name = "RBP"
    summary = "rank-biased precision; gain='graded' counts a document by label / largest label of the query"
    formula = "(1 - p) * sum over relevant documents at r <= k of p^(r - 1)"
    citation = "Moffat & Zobel, Rank-biased precision for measurement of retrieval effectiveness, TOIS 2008"
    parameters = {
        "p": PERSISTENCE,
        "rel": REL,
        "gain": Parameter("binary", "'binary' or 'graded'", ("binary", "graded")),
    }
    discount = GEOMETRIC

    def discount_parameter(self, measure: Measure) -> float:
        """The persistence p."""
        return measure.number("p")

    def is_binary(self, measure: Measure) -> bool:
        """Unless gains are graded."""
        return measure["gain"] == "binary"

    def gains(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """1 for relevant documents, or the label."""
        return super().gains(measure, labels) if self.is_binary(measure) else linear_gain(labels)

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """1 / (1 - p), times the largest label of the query where gains are graded."""
        scale = 1 / (1 - measure.number("p"))
        if self.is_binary(measure):
            return np.full(len(counts), scale)
        return scale * counts.largest(self.levels(measure, counts.values) if gains is None else gains)

    def canonical_levels(self, measure: Measure, levels: list[float]) -> list[float]:
        """Only the ratios of graded gains matter."""
        return [level / levels[0] for level in levels] if levels and levels[0] > 0 else levels

    def range_form(self, measure: Measure) -> str:
        """Divided by a constant, or by the largest label."""
        return "rises" if self.is_binary(measure) else "largest"
