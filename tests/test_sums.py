"""Sums that are rounded once: equal to rational arithmetic, whatever the order of the numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.sums import deviation_of, exact_sum, mean_of, ratio
from tests.tiers import examples

FLOATS = st.lists(st.floats(-1e300, 1e300), max_size=40)


@examples(100)
@given(FLOATS, st.integers(0, 40))
def test_sums_are_those_of_rational_numbers_however_they_are_divided(numbers: list[float], cut: int) -> None:
    assert exact_sum(numbers) == sum(map(Fraction, numbers))
    assert exact_sum(numbers[:cut]) + exact_sum(numbers[cut:]) == exact_sum(numbers)


@examples(100)
@given(FLOATS.filter(bool), st.randoms())
def test_means_are_rounded_once_and_do_not_depend_on_the_order(numbers: list[float], random: Any) -> None:
    total = sum(map(Fraction, numbers))
    assert mean_of(numbers) == pytest.approx(float(total / len(numbers)), rel=2**-52, abs=5e-324)
    assert mean_of(random.sample(numbers, len(numbers))) == mean_of(numbers)


@examples(100)
@given(st.floats(-1e300, 1e300), st.integers(1, 200))
def test_equal_numbers_have_their_own_mean_and_no_deviation(number: float, count: int) -> None:
    assert mean_of([number] * count) == number
    assert deviation_of([number] * count, number) == 0.0


def test_many_numbers_of_many_sizes() -> None:
    random = np.random.default_rng(0)
    numbers = random.normal(size=200_000) * 10.0 ** random.integers(-30, 30, size=200_000)
    assert mean_of(numbers) == float(sum(map(Fraction, numbers.tolist())) / len(numbers))


@examples(100)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_deviations_are_those_of_rational_numbers(numbers: list[float]) -> None:
    mean = sum(map(Fraction, numbers)) / len(numbers)
    variance = sum((number - mean) ** 2 for number in map(Fraction, numbers)) / (len(numbers) - 1)
    size = max(map(abs, numbers))
    assert deviation_of(numbers, mean_of(numbers)) == pytest.approx(math.sqrt(variance), rel=1e-9, abs=1e-15 * size)


def test_numbers_that_are_not_finite_and_none_at_all() -> None:
    assert mean_of([1.0, math.inf]) == math.inf
    assert math.isnan(mean_of([math.inf, -math.inf]))
    assert mean_of([1.7e308, 1.7e308]) == 1.7e308  # whose sum would overflow
    assert math.isnan(mean_of([]))
    assert math.isnan(deviation_of([], math.nan))
    assert deviation_of([2.0], 2.0) == 0.0
    assert math.isnan(ratio(Fraction(), 0))
