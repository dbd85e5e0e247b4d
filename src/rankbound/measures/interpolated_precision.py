"""IPrec: interpolated precision at a recall level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.definition import REL, Definition, Parameter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked


class InterpolatedPrecision(Definition):
    """IPrec@x = the largest precision at any rank whose recall is at least x; trec_eval's iprec_at_recall.

    The recall level counts whole documents: floor(x P + 0.9) in floating-point numbers, as in version 9 of trec_eval,
    which pytrec_eval and ir_measures use. For the levels 0, 0.1, ..., 1 this is x P rounded upwards, except where the
    sum falls just below a whole number, as 0.7 * 3 + 0.9 does. Version 10 of trec_eval rounds x P to the nearest whole
    number instead. The best value is 1 and the worst P/N. The expected value has no closed form and comes from
    enumerated or sampled orders; the distribution is exact on lists of up to some thousand documents.
    """

    name = "IPrec"
    summary = "interpolated precision: the largest precision at a recall of at least x, as in IPrec@0.5"
    formula = "max of precision(r) over ranks r down to which there are at least floor(x P + 0.9) relevant documents"
    citation = "van Rijsbergen, Information Retrieval, 1979; iprec_at_recall of trec_eval, version 9"
    parameters = {
        "rel": REL,
        "recall": Parameter(0.0, "a recall level from 0 to 1", most=1.0, least_included=True),
    }
    cutoff = "none"
    at = "recall"

    def is_binary(self, measure: Measure) -> bool:
        """Always."""
        return True

    def values_in_order(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The largest precision at a relevant document from the recall level on."""
        relevant = ranked.labels >= measure.rel
        query, rank = ranked.locate(np.flatnonzero(relevant))
        first = np.searchsorted(query, np.arange(len(ranked)))
        nth = np.arange(1, len(query) + 1) - first[query]
        needed = np.floor(measure.number("recall") * ranked.counts.relevant(measure.rel) + 0.9).astype(np.int64)
        counts = (rank <= ranked.depths[query]) & (nth >= needed[query])
        value = np.zeros(len(ranked))
        np.maximum.at(value, query[counts], (nth / rank)[counts])
        return value

    def range_form(self, measure: Measure) -> str:
        """The hits come at earlier ranks, and as many are needed."""
        return "exchange"
