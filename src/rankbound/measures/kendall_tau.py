"""Tau: Kendall's tau-b between the ranking and the labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.label_counts import ratio
from rankbound.measures.pairwise import Pairwise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class KendallTau(Pairwise):
    """(concordant - discordant) / sqrt(pairs with different labels * all pairs).

    This is tau-b with every tie of scores broken both ways: scipy's value where scores are distinct, and 0, not
    undefined, for a constant scorer.
    """

    name = "Tau"
    summary = "Kendall's tau-b between order and labels"
    formula = "(concordant pairs - discordant pairs) / sqrt(pairs with different labels * N(N - 1)/2)"
    citation = "Kendall, The treatment of ties in ranking problems, Biometrika 1945"
    aliases = {"kendall_tau": {}}
    floor = -1.0

    def affine(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(pairs - 2 wrong pairs) / sqrt(pairs * all)."""
        pairs, n = self.all_pairs(measure, counts, levels), counts.sizes
        norm = np.sqrt(pairs * (n * (n - 1) / 2))
        return -2 * ratio(np.ones(len(norm)), norm), ratio(pairs, norm)
