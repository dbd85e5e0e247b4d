"""Rprec: precision at the number of relevant documents, or at a multiple of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.additive import Binary
from rankbound.measures.definition import REL, Parameter
from rankbound.measures.discounts import CONSTANT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class RPrecision(Binary):
    """Rprec = (relevant documents among the first P) / P, P the number of relevant documents.

    With ``mult`` the rank is mult * P, rounded as trec_eval's Rprec_mult rounds it.
    """

    name = "Rprec"
    summary = "precision at the number of relevant documents; mult takes a multiple of that number"
    formula = "(relevant documents among the first m) / m, m = mult * P rounded up"
    citation = "Buckley & Voorhees, Retrieval system evaluation, in TREC: Experiment and Evaluation, 2005"
    parameters = {"rel": REL, "mult": Parameter(1.0, "a positive number up to 1000", most=1000)}
    aliases = {"r_precision": {}, "r-precision": {}}
    cutoff = "none"
    discount = CONSTANT

    def _rank(self, measure: Measure, relevant: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.floor(measure.number("mult") * relevant + 0.9), dtype=np.int64)

    def cut(self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
        """As many ranks as there are relevant documents, or the multiple."""
        return np.minimum(self._rank(measure, self.relevant(measure, counts, gains)), counts.depths)

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The rank at which precision is taken."""
        return self._rank(measure, self.relevant(measure, counts, gains)).astype(float)

    def ranks_seen(self, measure: Measure, n: int, relevant: int, depth: int) -> int:
        """No more than the rank at which precision is taken."""
        return min(depth, n, int(self._rank(measure, np.array([relevant]))[0]))
