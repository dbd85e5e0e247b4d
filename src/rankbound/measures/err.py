"""ERR: expected reciprocal rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError
from rankbound.measures.cascade import Cascade
from rankbound.measures.definition import Parameter
from rankbound.measures.discounts import RECIPROCAL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure


class ERR(Cascade):
    """ERR@k = sum over ranks r <= k of (1/r) P(the user stops at r).

    The user stops at a document with probability (2^label - 1) / 2^max_rel.
    """

    name = "ERR"
    summary = "expected reciprocal rank of a user who stops with probability (2^label - 1) / 2^max_rel"
    formula = "sum over r <= k of (1/r) q_r prod over i < r of (1 - q_i), q = (2^label - 1) / 2^max_rel"
    citation = "Chapelle, Metzler, Zhang & Grinspan, Expected reciprocal rank for graded relevance, CIKM 2009"
    parameters = {
        "max_rel": Parameter(4, "a positive number up to 1023", most=1023)  # 2^max_rel is a float64
    }
    discount = RECIPROCAL

    def stops(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """(2^label - 1) / 2^max_rel."""
        largest = measure.number("max_rel")
        if labels.max(initial=0) > largest:
            raise DataError(
                f"labels must be at most max_rel={largest:g} for ERR, got {labels.max():g}; choose a larger max_rel"
            )
        return np.asarray((np.exp2(labels) - 1) / np.exp2(largest), dtype=np.float64)
