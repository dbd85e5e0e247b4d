"""Working memory of the kernels.

For each type of array and each set of compiler options, np.empty compiles a function of its own, and np.zeros and its
relatives compile three. Kernels therefore get their arrays here, where each is compiled once per type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankbound.losses.compiling import helper

__all__ = ["empty", "indices", "zero_table", "zeros"]


@helper
def empty(count: int, like: Any) -> Any:
    """An array in the precision of another one, not initialized."""
    return np.empty(count, like.dtype)


@helper
def zeros(count: int, like: Any) -> Any:
    """Zeros in the precision of another array."""
    result = empty(count, like)
    for j in range(count):
        result[j] = 0
    return result


@helper
def zero_table(rows: int, like: Any) -> Any:
    """Zeros in the precision of another array, in rows of its length."""
    result = np.empty((rows, len(like)), like.dtype)
    for row in range(rows):
        for j in range(len(like)):
            result[row, j] = 0
    return result


@helper
def indices(count: int) -> Any:
    """Integers, not initialized."""
    return np.empty(count, np.int64)
