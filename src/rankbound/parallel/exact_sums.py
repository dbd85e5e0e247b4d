"""Sums of float64 numbers without rounding, so that they do not depend on order or on how the numbers are divided.

Every finite float64 is an integer multiple of 2^-1074, and its square one of 2^-2148. The sums here are such integers,
of any length: adding them is exact, and only the result is rounded, once. (`math.fsum` gives the same sums, but its
state cannot be sent to another process and merged there.) NumPy splits the numbers into leading bits, whose float64 sum
is exact in any order, and a rest that is split again (Demmel and Nguyen 2013, "Fast reproducible floating-point
summation").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["ExactSum", "Moments"]

_UNIT = 1074  # the smallest positive float64 is 2^-1074
_DIGITS = 53
_AT_ONCE = 1 << 20  # numbers that are split together: 31 bits at a time
_MODERATE = 2.0**400  # numbers whose size lies between this and its inverse have products without overflow or underflow
_SPLIT = 2.0**27 + 1  # a product with it separates the halves of a significand (Dekker 1971)


@dataclass(frozen=True, slots=True)
class ExactSum:
    """The sum of numbers in units of 2^-1074; numbers that are not finite are added apart.

    >>> total = ExactSum.of([0.1] * 10)
    >>> float(total), sum([0.1] * 10)
    (1.0, 0.9999999999999999)
    >>> ExactSum.of([1e308, 1.0]) + ExactSum.of([-1e308]) == ExactSum.of([1.0])
    True
    """

    units: int = 0
    not_finite: float = 0.0

    @classmethod
    def of(cls, values: ArrayLike) -> ExactSum:
        """The sum of an array."""
        numbers, extreme, rest = _separated(values)
        return cls(_units(numbers) + sum(map(_units_of, extreme)), rest)

    def __add__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.units + other.units, self.not_finite + other.not_finite)

    def __float__(self) -> float:
        return self.over(1)

    def over(self, count: int) -> float:
        """The quotient by a positive integer, correctly rounded: the mean of ``count`` numbers; NaN for none."""
        if count == 0:
            return math.nan
        if self.not_finite != 0:  # NaN, too
            return self.not_finite
        try:
            return self.units / (count << _UNIT)
        except OverflowError:
            return math.inf if self.units > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, sum, sum of squares, minimum and maximum of numbers; moments of different numbers can be added.

    >>> moments = Moments.of([1.0, 2.0]) + Moments.of([6.0])
    >>> moments.count, moments.mean, moments.minimum, moments.maximum
    (3, 3.0, 1.0, 6.0)
    >>> moments.standard_deviation == math.sqrt(((1 - 3) ** 2 + (2 - 3) ** 2 + (6 - 3) ** 2) / 2)
    True
    """

    count: int = 0
    sum: ExactSum = ExactSum()  # immutable
    squares: int = 0
    """Sum of the squares of finite numbers, in units of 2^-2148."""
    minimum: float = math.inf
    maximum: float = -math.inf

    @classmethod
    def of(cls, values: ArrayLike) -> Moments:
        """The moments of an array."""
        array = np.asarray(values, dtype=np.float64)
        if array.size == 0:
            return cls()
        numbers, extreme, rest = _separated(array)
        rare = [_units_of(value) for value in extreme]
        products, errors = _squares(numbers)
        squares = (_units(products) + _units(errors)) << _UNIT
        return cls(
            array.size,
            ExactSum(_units(numbers) + sum(rare), rest),
            squares + sum(units * units for units in rare),
            float(array.min()),
            float(array.max()),
        )

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count,
            self.sum + other.sum,
            self.squares + other.squares,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
        )

    @property
    def mean(self) -> float:
        """The mean, correctly rounded; NaN without numbers."""
        return self.sum.over(self.count)

    @property
    def standard_deviation(self) -> float:
        """Sample standard deviation; exactly 0 where all numbers are equal or there is only one, NaN without any."""
        if self.count == 0 or self.sum.not_finite != 0:
            return math.nan
        if self.count == 1:
            return 0.0
        spread = self.count * self.squares - self.sum.units**2
        try:
            return math.sqrt(spread / ((self.count * (self.count - 1)) << (2 * _UNIT)))
        except OverflowError:
            return math.inf


def _separated(values: ArrayLike) -> tuple[NDArray[np.float64], list[float], float]:
    """Zeros and numbers of moderate size, other finite numbers, and the sum of those that are not finite."""
    array = np.asarray(values, dtype=np.float64).ravel()
    size = np.abs(array)
    moderate = (size <= _MODERATE) & ((size >= 1 / _MODERATE) | (size == 0))
    if moderate.all():
        return array, [], 0.0
    finite = np.isfinite(array)
    with np.errstate(invalid="ignore"):
        return array[moderate], array[finite & ~moderate].tolist(), float(array[~finite].sum())


def _units(values: NDArray[np.float64]) -> int:
    """The sum of numbers of moderate size, in units of 2^-1074."""
    total = 0
    for start in range(0, len(values), _AT_ONCE):
        rest = values[start : start + _AT_ONCE]
        bits = len(rest).bit_length() + 1
        while (largest := float(np.abs(rest).max())) > 0:
            # numbers that are added to this one are rounded to multiples of its last bit, of which n can be added
            ruler = math.ldexp(1.5, math.frexp(largest)[1] + bits)
            leading = (rest + ruler) - ruler
            total += _units_of(float(leading.sum()))
            rest = rest - leading
    return total


def _units_of(value: float) -> int:
    fraction, exponent = math.frexp(value)
    shift = exponent - _DIGITS + _UNIT
    significand = int(math.ldexp(fraction, _DIGITS))
    return significand << shift if shift >= 0 else significand >> -shift  # the last bits of subnormal numbers are 0


def _squares(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The squares of numbers of moderate size, rounded, and their rounding errors, which are exact (Dekker 1971)."""
    large = _SPLIT * values
    high = large - (large - values)
    low = values - high
    product = values * values
    return product, low * low - ((product - high * high) - 2 * high * low)
