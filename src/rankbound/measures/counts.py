"""NumRet, NumRel, NumQ: how many documents and queries there are. Summed over queries, as trec_eval prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.additive import Binary
from rankbound.measures.definition import REL, BoundsTuple, Definition, Parameter
from rankbound.measures.discounts import CONSTANT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked


class NumRet(Binary):
    """NumRet = documents returned; NumRet(rel=1) = relevant documents returned."""

    name = "NumRet"
    summary = "number of documents returned; with rel, of those with at least this label"
    formula = "documents returned with label >= rel"
    citation = "trec_eval"
    parameters = {"rel": Parameter(0, "a number from 0 (all documents) to 2^31", least_included=True)}
    aliases = {"num_ret": {}, "num_rel_ret": {"rel": 1}, "hits": {"rel": 1}}
    discount = CONSTANT

    def aggregate(self, measure: Measure) -> str:
        """Counts are summed."""
        return "sum"

    def is_defined(self, measure: Measure, counts: LabelCounts) -> NDArray[np.bool_]:
        """Always."""
        return np.ones(len(counts), dtype=bool)

    def range_form(self, measure: Measure) -> str:
        """More relevant documents are counted."""
        return "rises"

    def has_loss(self, measure: Measure) -> bool:
        """It is recall times a number of the query; recall has a loss."""
        return False


class _Constant(Definition):
    """A number of the query that no ranking changes."""

    cutoff = "none"
    citation = "trec_eval"

    def aggregate(self, measure: Measure) -> str:
        """Counts are summed."""
        return "sum"

    def _numbers(self, measure: Measure, counts: LabelCounts) -> NDArray[np.float64]:
        raise NotImplementedError

    def is_defined(self, measure: Measure, counts: LabelCounts) -> NDArray[np.bool_]:
        """Always."""
        return np.ones(len(counts), dtype=bool)

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The same for every ranking."""
        return self._numbers(measure, ranked.counts)

    def values_in_order(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The same for every ranking."""
        return self._numbers(measure, ranked.counts)

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """Worst, expected and best are the same."""
        numbers = self._numbers(measure, counts)
        return numbers, numbers, numbers


class NumRel(_Constant):
    """NumRel = relevant documents among the judged ones."""

    name = "NumRel"
    summary = "number of relevant documents"
    formula = "documents with label >= rel"
    parameters = {"rel": REL}
    aliases = {"num_rel": {}}

    def is_binary(self, measure: Measure) -> bool:
        """Always."""
        return True

    def range_form(self, measure: Measure) -> str:
        """More relevant documents are counted."""
        return "rises"

    def _numbers(self, measure: Measure, counts: LabelCounts) -> NDArray[Any]:
        return counts.relevant(measure.rel).astype(float)


class NumQ(_Constant):
    """NumQ = 1 for every query, summed: the number of queries."""

    name = "NumQ"
    summary = "number of queries"
    formula = "1 for every query"
    aliases = {"num_q": {}}

    def _numbers(self, measure: Measure, counts: LabelCounts) -> NDArray[np.float64]:
        return np.ones(len(counts))

    def range_form(self, measure: Measure) -> str:
        """Always 1."""
        return "constant"
