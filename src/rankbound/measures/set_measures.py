"""SetP, SetR, SetF: precision, recall and F of everything that a run returned, whatever its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rankbound.measures.additive import Binary
from rankbound.measures.definition import REL, Parameter
from rankbound.measures.discounts import CONSTANT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure


class _SetMeasure(Binary):
    """A measure of the set of returned documents; with a cutoff k, of the first k ranks as in P@k."""

    citation = "van Rijsbergen, Information Retrieval, 1979; the set measures of trec_eval"
    discount = CONSTANT
    depends_on_returned: ClassVar[bool] = True

    def _returned(self, measure: Measure, counts: LabelCounts) -> NDArray[np.float64]:
        return counts.depths.astype(float) if measure.cutoff is None else np.full(len(counts), float(measure.cutoff))

    def keeps_cutoff(self, measure: Measure, n: int) -> bool:
        """The divisor has it."""
        return True

    def has_loss(self, measure: Measure) -> bool:
        """Without a cutoff no order changes it; with one, P@k and R@k have losses."""
        return False


class SetPrecision(_SetMeasure):
    """SetP = (relevant documents returned) / (documents returned)."""

    name = "SetP"
    summary = "precision of the set of returned documents"
    formula = "(relevant documents returned) / (documents returned)"
    parameters = {"rel": REL}
    aliases = {"set_p": {}}

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The number of documents returned."""
        return self._returned(measure, counts)


class SetRecall(_SetMeasure):
    """SetR = (relevant documents returned) / (relevant documents)."""

    name = "SetR"
    summary = "recall of the set of returned documents"
    formula = "(relevant documents returned) / P"
    parameters = {"rel": REL}
    aliases = {"set_r": {}, "set_recall": {}}

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The number of relevant documents."""
        return self.relevant(measure, counts, gains).astype(float)


class SetF(_SetMeasure):
    """SetF(beta) = (beta + 1) p r / (r + beta p) of set precision p and set recall r.

    With h relevant documents among d returned and P in all this is (beta + 1) h / (d + beta P): it is linear in h, so
    that its bounds and distribution are those of an additive measure.
    """

    name = "SetF"
    summary = "F measure of the set of returned documents; beta is trec_eval's x, the weight of recall"
    formula = "(beta + 1) h / (d + beta P), h relevant documents among d returned"
    parameters = {"rel": REL, "beta": Parameter(1.0, "a positive number up to 1000", most=1000)}
    aliases = {"set_f": {}, "f1": {}}

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """(d + beta P) / (beta + 1); 0 where nothing is relevant."""
        beta, relevant = measure.number("beta"), self.relevant(measure, counts, gains)
        return np.where(relevant > 0, (self._returned(measure, counts) + beta * relevant) / (beta + 1), 0.0)
