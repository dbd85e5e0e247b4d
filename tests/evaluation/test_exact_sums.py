"""Exact sums: equal to rational arithmetic, whatever the order and the division of the numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.parallel import ExactSum, Moments

NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40)


@given(NUMBERS)
def test_sums_are_those_of_rational_numbers(numbers: list[float]) -> None:
    moments = Moments.of(numbers)
    assert Fraction(moments.sum.units, 2**1074) == sum(map(Fraction, numbers))
    assert Fraction(moments.squares, 2**2148) == sum(Fraction(number) ** 2 for number in numbers)
    assert ExactSum.of(numbers) == moments.sum
    assert moments.count == len(numbers)


@given(NUMBERS)
def test_sums_are_rounded_once(numbers: list[float]) -> None:
    try:
        expected = math.fsum(numbers)
    except OverflowError:  # of an intermediate sum
        return
    assert float(ExactSum.of(numbers)) == expected


@given(NUMBERS, st.randoms(), st.integers(0, 40))
def test_order_and_division_do_not_matter(numbers: list[float], random, cut: int) -> None:
    shuffled = random.sample(numbers, len(numbers))
    parts = Moments.of(shuffled[:cut]) + Moments.of(shuffled[cut:])
    whole = Moments.of(numbers)
    assert parts == whole
    assert parts.mean == whole.mean or math.isnan(whole.mean)


def test_many_numbers_of_many_sizes() -> None:
    random = np.random.default_rng(0)
    numbers = random.normal(size=200_000) * 10.0 ** random.integers(-30, 30, size=200_000)
    assert float(ExactSum.of(numbers)) == math.fsum(numbers)


@pytest.mark.parametrize(("numbers", "deviation"), [([0.1] * 7, 0.0), ([0.25], 0.0), ([1.0, 3.0], math.sqrt(2))])
def test_standard_deviation(numbers: list[float], deviation: float) -> None:
    assert Moments.of(numbers).standard_deviation == deviation


def test_numbers_that_are_not_finite() -> None:
    assert float(ExactSum.of([1.0, math.inf])) == math.inf
    assert math.isnan(float(ExactSum.of([math.inf]) + ExactSum.of([-math.inf])))
    assert math.isnan(Moments.of([]).mean)
    assert math.isnan(Moments.of([]).standard_deviation)
    assert float(ExactSum.of([1.7e308, 1.7e308])) == math.inf
