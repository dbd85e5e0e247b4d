"""nDCG: discounted cumulative gain divided by that of the best order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.measures.dcg import DCG

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class NDCG(DCG):
    """nDCG@k = DCG@k / (DCG@k of the labels in descending order).

    The best value is 1. The expected value under random ranking is
    (mean gain of the documents) * (sum over ranks r <= k of 1 / log2(1 + r)) / (DCG@k of the best order).
    It follows from the general formula in `rankbound.measures.additive`, which is also where the worst value, the
    smooth term and the swap delta are derived; its method `bounds_of_levels` computes the bounds.
    """

    name = "nDCG"
    summary = "discounted cumulative gain over the best possible"
    formula = "DCG@k / (DCG@k of the labels in descending order)"
    aliases = {"ndcg_burges": {"dcg": "exp-log2"}, "ndcg_cut": {}}

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The DCG of the best order of all candidates."""
        return self.ideal(measure, counts, gains)

    def is_normalized(self, measure: Measure) -> bool:
        """Always."""
        return True

    def canonical_levels(self, measure: Measure, levels: list[float]) -> list[float]:
        """Only the ratios of gains matter."""
        return [level / levels[0] for level in levels] if levels and levels[0] > 0 else levels

    def keeps_cutoff(self, measure: Measure, n: int) -> bool:
        """The ideal stops at the cutoff too."""
        return measure.cutoff is not None and measure.cutoff < n

    def range_form(self, measure: Measure) -> str:
        """The normalizer is the best order."""
        return "ideal"
