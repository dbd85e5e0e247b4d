"""Sums of float64 numbers that do not depend on their order, nor on how they are divided.

`math.fsum` rounds once. Its state cannot be taken apart, so sums of parts that are added later are rational numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_AT_ONCE = 1 << 16  # numbers that are objects of Python at the same time


def exact_sum(values: ArrayLike) -> Fraction:
    """The sum of finite numbers without rounding; fast where few of them differ.

    >>> float(exact_sum([0.1] * 10)), sum([0.1] * 10)
    (1.0, 0.9999999999999999)
    """
    numbers, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    if len(numbers) == 1:
        return Fraction(numbers[0]) * int(counts[0])
    parts = [number.as_integer_ratio() for number in numbers.tolist()]
    unit = max((denominator for _, denominator in parts), default=1)  # all denominators are powers of two
    total = sum(n * (unit // d) * count for (n, d), count in zip(parts, counts.tolist(), strict=True))
    return Fraction(total, unit)


def ratio(total: Fraction, count: int) -> float:
    """The quotient, rounded once; NaN for a count of 0."""
    return float(total / count) if count else math.nan


def mean_of(values: ArrayLike) -> float:
    """The mean of numbers, rounded once: the same in any order, and x for any number of times x; NaN without numbers.

    >>> mean_of([0.1] * 49), mean_of([1e308, 1e308, -1e308])
    (0.1, 3.333333333333333e+307)
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) == 0:
        return math.nan
    if not np.isfinite(array).all():
        with np.errstate(invalid="ignore"):
            return float(array.sum())
    try:
        total = math.fsum(_numbers(array))
        rest = math.fsum(chain(_numbers(array), [-total]))  # what rounding took away
    except OverflowError:
        return float(exact_sum(array) / len(array))
    return float((Fraction(total) + Fraction(rest)) / len(array))


def deviation_of(values: ArrayLike, mean: float) -> float:
    """Sample standard deviation, the same in any order; 0 for a single number, NaN without any.

    >>> deviation_of([1.0, 3.0], 2.0) == math.sqrt(2)
    True
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2:
        return 0.0 if len(array) else math.nan
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (array - mean) ** 2
    if not np.isfinite(squares).all():
        return math.inf if np.isfinite(array).all() else math.nan
    return math.sqrt(math.fsum(_numbers(squares)) / (len(array) - 1))


def _numbers(array: NDArray[np.float64]) -> Iterator[float]:
    parts = (array[start : start + _AT_ONCE].tolist() for start in range(0, len(array), _AT_ONCE))
    return chain.from_iterable(parts)
