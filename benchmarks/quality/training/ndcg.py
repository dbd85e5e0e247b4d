"""nDCG@10 of many queries at once, fast enough to be computed after every boosting round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.lists import Lists

__all__ = ["CUTOFF", "MEASURE", "FastNDCG"]

CUTOFF = 10
MEASURE = f"nDCG(dcg='exp-log2')@{CUTOFF}"


class FastNDCG:
    """nDCG@10 with the gain 2^label - 1 and the discount 1 / log2(rank + 1), as `rankbound.evaluate` computes it.

    Everything that depends on the labels alone is prepared once. Documents with equal scores share the mean of their
    gains at each of the ranks that they occupy together, which is the mean over all orders of tied documents. The value
    of a query without a relevant document is NaN; `mean` leaves it out.

    >>> ndcg = FastNDCG(Lists([1, 0, 0, 0], [0, 2, 4]))
    >>> ndcg(np.array([0.5, 0.5, 1.0, 2.0])).round(4).tolist()  # (1 + 1 / log2(3)) / 2
    [0.8155, nan]
    """

    def __init__(self, lists: Lists) -> None:
        rows, sizes = len(lists.labels), lists.sizes
        self._queries = len(lists)
        # small integers, which numpy sorts by radix
        self._query = lists.query_of_item.astype(np.uint16 if self._queries < 2**16 else np.uint32)
        self._gain = np.exp2(np.asarray(lists.labels, dtype=np.float64)) - 1
        rank = np.arange(rows) - np.repeat(lists.offsets[:-1], sizes)
        discount = np.where(rank < CUTOFF, 1 / np.log2(rank + 2.0), 0.0)
        self._discounts_before = np.concatenate(([0.0], np.cumsum(discount)))
        self._first = np.zeros(rows, dtype=bool)  # whether a row starts a query
        self._first[lists.offsets[:-1][sizes > 0]] = True
        ideal = np.lexsort((-self._gain, self._query))
        best = np.bincount(self._query, self._gain[ideal] * discount, minlength=self._queries)
        self._best = np.where(best > 0, best, np.nan)

    def __call__(self, scores: NDArray[Any]) -> NDArray[np.float64]:
        """Return the value of each query; higher scores rank first."""
        order = np.argsort(-scores)
        order = order[np.argsort(self._query[order], kind="stable")]
        sorted_scores = scores[order]
        new = self._first.copy()  # whether a row starts a group of tied documents
        new[1:] |= sorted_scores[1:] != sorted_scores[:-1]
        starts = np.flatnonzero(new)
        ends = np.append(starts[1:], len(order))
        gain = np.add.reduceat(self._gain[order], starts) / (ends - starts)
        discount = self._discounts_before[ends] - self._discounts_before[starts]
        dcg = np.bincount(self._query[starts], gain * discount, minlength=self._queries)
        return dcg / self._best

    def mean(self, scores: NDArray[Any]) -> float:
        """Return the mean over the queries that have a relevant document."""
        return float(np.nanmean(self(scores)))
