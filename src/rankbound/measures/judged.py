"""Judged: the fraction of the first k documents that have a judgment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures.definition import BoundsTuple, Definition
from rankbound.measures.label_counts import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked


class Judged(Definition):
    """Judged@k = (judged documents among the first k) / (documents among the first k).

    It says how far the other measures of a run can be trusted.

    Its bounds are those of rankings of judged documents: 1.
    """

    name = "Judged"
    summary = "fraction of the first k documents that have a judgment"
    formula = "(judged documents among the first k) / min(k, documents returned)"
    citation = "ir_measures (MacAvaney, Macdonald & Ounis, ECIR 2022)"
    cutoff = "required"
    aliases = {"judged": {}}

    def is_defined(self, measure: Measure, counts: LabelCounts) -> NDArray[np.bool_]:
        """Always."""
        return np.ones(len(counts), dtype=bool)

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Judged documents within the cutoff; a tied block counts by its fraction."""
        return ranked.judged_fractions(measure.cutoff)

    def values_in_order(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Judged documents within the cutoff."""
        query, rank = ranked.locate(np.flatnonzero(ranked.judged))
        cut = ranked.cut(measure.cutoff)
        return ratio(ranked.sum(query, (rank <= cut[query]).astype(np.float64)), cut)

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """Worst, expected and best are the same."""
        fraction = (counts.cut(measure.cutoff) > 0).astype(float)
        return fraction, fraction, fraction

    def range_form(self, measure: Measure) -> str:
        """Whatever the labels are."""
        return "constant"
