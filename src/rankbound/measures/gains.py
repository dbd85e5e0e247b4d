"""Gains: the value of a graded label. Each formula is written once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_EXPONENT = 1000  # 2^1024 overflows, and gains are summed


def linear_gain(labels: NDArray[Any]) -> NDArray[np.float64]:
    """The label itself, as in trec_eval."""
    return labels.astype(np.float64)


def exponential_gain(labels: NDArray[Any]) -> NDArray[np.float64]:
    """2^label - 1, as in the learning-to-rank literature (Burges et al., Learning to rank using gradient descent)."""
    if labels.max(initial=0) > _LARGEST_EXPONENT:
        raise DataError(f"labels must be at most {_LARGEST_EXPONENT} for gains of 2^label - 1, got {labels.max():g}")
    return np.asarray(np.exp2(labels) - 1)
