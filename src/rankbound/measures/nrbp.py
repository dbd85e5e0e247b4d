"""nRBP: rank-biased precision over that of the best order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.additive import Binary
from rankbound.measures.definition import REL
from rankbound.measures.discounts import GEOMETRIC
from rankbound.measures.rbp import PERSISTENCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class NRBP(Binary):
    """nRBP(p)@k = RBP(p)@k / (1 - p^min(k, P)), P the number of relevant documents."""

    name = "nRBP"
    summary = "rank-biased precision over the best possible"
    formula = "RBP(p)@k / (1 - p^min(k, P))"
    citation = "Moffat & Zobel 2008; normalized: Li, Urbano & Hanjalic, New insights into metric optimization, 2021"
    parameters = {"p": PERSISTENCE, "rel": REL}
    discount = GEOMETRIC

    def discount_parameter(self, measure: Measure) -> float:
        """The persistence p."""
        return measure.number("p")

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The sum of the best order of all documents at hand, (1 - p^min(k, P)) / (1 - p)."""
        relevant, p = self.relevant(measure, counts, gains), measure.number("p")
        seen = relevant if measure.cutoff is None else np.minimum(relevant, measure.cutoff)
        return np.asarray((1 - p**seen) / (1 - p), dtype=np.float64)

    def is_normalized(self, measure: Measure) -> bool:
        """Always."""
        return True

    def keeps_cutoff(self, measure: Measure, n: int) -> bool:
        """The ideal stops at the cutoff too."""
        return measure.cutoff is not None and measure.cutoff < n
