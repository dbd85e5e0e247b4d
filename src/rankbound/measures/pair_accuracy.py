"""PairAcc: pairwise accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.label_counts import ratio
from rankbound.measures.pairwise import Pairwise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class PairAccuracy(Pairwise):
    """The fraction of the pairs with different labels whose higher label is ranked first; a tie counts half.

    With labels 0 and 1 it is the area under the ROC curve (AUC): the probability that a relevant document is ranked
    before one that is not.

    Labels below 0 count as 0, as in every measure. Where that makes different labels equal, `evaluate` and `compare`
    issue a `CoverageWarning`.
    """

    name = "PairAcc"
    summary = "fraction of the pairs with different labels that are in the right order"
    formula = "(pairs with the higher label first) / (pairs with different labels)"
    citation = "Burges et al., Learning to rank using gradient descent, ICML 2005"
    aliases = {"pairwise_accuracy": {}, "auc": {}}

    def affine(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """1 - (wrong pairs) / (all pairs)."""
        pairs = self.all_pairs(measure, counts, levels)
        return -ratio(np.ones(len(pairs)), pairs), (pairs > 0).astype(float)
