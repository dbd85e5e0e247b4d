"""Bpref: binary preference, a measure of judged documents alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.average_precision import MEAN
from rankbound.measures.combinatorics import ratio
from rankbound.measures.definition import REL, Definition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked

__all__ = ["Bpref"]


class Bpref(Definition):
    """Bpref = (1/P) sum over relevant documents of 1 - min(n, P) / min(N, P).

    P is the number of relevant documents, N that of the documents judged not relevant, and n how many of these stand
    above. Documents without judgment are passed over. The worst value is 0 (1 if N = 0), the best 1. The expected value
    and the distribution come from enumerated or sampled orders: in a random order n is uniform on 0..N, but only where
    everything is ranked.
    """

    name = "Bpref"
    summary = "binary preference: judged non-relevant documents above relevant ones"
    formula = "(1/P) sum over relevant documents of 1 - min(judged non-relevant above, P) / min(N, P)"
    citation = "Buckley & Voorhees, Retrieval evaluation with incomplete information, SIGIR 2004"
    parameters = {"rel": REL, "mean": MEAN}
    aliases = {"gm_bpref": {"mean": "geometric"}}
    cutoff = "none"
    reads_negative_labels = True

    def aggregate(self, measure: Measure) -> str:
        """Arithmetic or geometric mean."""
        return "geometric" if measure["mean"] == "geometric" else "mean"

    def is_binary(self, measure: Measure) -> bool:
        """Always."""
        return True

    def values_in_order(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The sum over the relevant documents that were returned."""
        relevant = ranked.labels >= measure.rel
        other = ranked.judged & (ranked.raw_labels >= 0) & ~relevant
        query, rank = ranked.locate(np.arange(len(relevant)))
        running = np.concatenate(([0], np.cumsum(other)))
        above = running[:-1] - running[ranked.offsets[query]]
        total_relevant = ranked.counts.relevant(measure.rel)
        total_other = running[ranked.offsets[1:]] - running[ranked.offsets[:-1]]
        worst = np.minimum(total_other, total_relevant)[query]
        term = 1 - ratio(np.minimum(above, total_relevant[query]), worst)
        seen = relevant & (rank <= ranked.depths[query])
        return ratio(ranked.sum(query[seen], term[seen]), total_relevant)
