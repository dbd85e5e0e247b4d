"""The range of a measure over the orders of tied documents: what the order of ties alone can make of a run.

Within a tied block the highest labels first is the best order and the lowest first the worst: moving a document up past
one with a lower label never lowers the value (U, where lower is better, the other way round). For measures of your own
this is taken to hold, as it is for their bounds. Two built-in measures are exceptions: infAP of runs with documents
that are not judged, and AP divided by the relevant documents returned. Their orders are enumerated, up to 5,040 of a
query; beyond, the range is that of 5,040 drawn orders and the two sorted ones, and can be too narrow. A constant scorer
has the range of all rankings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.difficulty.ties import TiedOrders
from rankbound.measures import Measure, Ranked, parse_measure, values
from rankbound.measures.label_counts import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MOST_ORDERS = 5_040  # 7!


def tie_ranges(measure: Measure, ranked: Ranked) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smallest and largest value of a plain measure for each query, over the orders of its tied documents.

    Both are the value itself where no order of the ties changes it.

    >>> from rankbound import Lists
    >>> from rankbound.measures import parse_measure, rank
    >>> constant = rank(Lists([1, 0, 0], [0, 3], [0.5, 0.5, 0.5]))
    >>> [ends.round(4).tolist() for ends in tie_ranges(parse_measure("RR"), constant)]
    [[0.3333], [1.0]]
    """
    if measure.definition.name == "Judged" and ranked.judgments is not None:
        # precision of a ranking that has label 1 where a document is judged, but divided by the documents returned
        depth = ranked.cut(measure.cutoff)
        low, high = tie_ranges(parse_measure(f"P@{measure.cutoff}"), ranked.judgments)
        cutoff = measure.cutoff or 0
        return ratio(low * cutoff, depth), ratio(high * cutoff, depth)
    low = high = values(ranked, measure)
    blocks = TiedOrders.of(measure, ranked)
    if blocks is None:
        return low, high
    queries = np.unique(blocks.query)
    ends = np.stack([blocks.values_in_order(queries, order) for order in (blocks.best_first, blocks.worst_first)])
    low, high = low.copy(), high.copy()
    low[queries], high[queries] = ends.min(axis=0), ends.max(axis=0)
    if not _is_monotone(measure, ranked):
        for some, starts, found in blocks.ranked.detailed.values_over_ties(blocks.values_of_orders, _MOST_ORDERS):
            low[some] = np.minimum(low[some], np.minimum.reduceat(found, starts))
            high[some] = np.maximum(high[some], np.maximum.reduceat(found, starts))
    return low, high


def _is_monotone(measure: Measure, ranked: Ranked) -> bool:
    """Whether moving a document up past one with a lower label never lowers the value."""
    definition = measure.definition
    return not (definition.scale_varies(measure) or (definition.name == "infAP" and ranked.has_gaps))
