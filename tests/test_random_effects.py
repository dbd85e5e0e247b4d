"""Random-effects meta-analysis, compared with statsmodels and with a worked example."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples

pytest.importorskip("statsmodels")

from statsmodels.stats.meta_analysis import combine_effects

from rankbound.errors import ArgumentError, DataError

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))  # scripts of the documentation
from random_effects import dependent_mean, random_effects

studies = st.integers(2, 12).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(-1000, 1000).map(lambda n: n / 1000), min_size=count, max_size=count, unique=True),
        st.lists(st.floats(0.01, 1), min_size=count, max_size=count),
    )
)


@given(studies)
@examples(60)
def test_equals_statsmodels(both):
    effects, errors = map(np.array, both)
    ours = random_effects(effects, errors)
    with np.errstate(
        invalid="ignore", divide="ignore"
    ):  # statsmodels takes roots of variances that it lets be negative
        oracle = combine_effects(effects, errors**2, method_re="dl", use_t=True)
        _, _, (fixed_low, fixed_high), (low, high) = oracle.conf_int(use_t=True)
    if oracle.tau2 <= 0:  # no variance between studies: the weights are those of a fixed effect
        assert (ours.spread, ours.i2) == (0, 0)
        assert ours.mean == pytest.approx(oracle.mean_effect_fe, abs=1e-9)
        assert (ours.low, ours.high) == pytest.approx((fixed_low, fixed_high), abs=1e-7)
    else:
        assert ours.spread**2 == pytest.approx(oracle.tau2, abs=1e-12)
        assert ours.i2 == pytest.approx(oracle.i2, abs=1e-9)
        assert ours.mean == pytest.approx(oracle.mean_effect_re, abs=1e-9)
        assert (ours.low, ours.high) == pytest.approx((low, high), abs=1e-7)


def test_a_worked_example():
    """Two studies one error apart from each other: Q = 1/2 < 1, so that they do not differ."""
    pooled = random_effects([0.0, 1.0], [1.0, 1.0])
    assert (pooled.mean, pooled.spread, pooled.i2) == (0.5, 0.0, 0.0)
    assert pooled.error == pytest.approx(0.5)  # (1/4 + 1/4) / (1 * 2) = 1/4
    assert pooled.high - pooled.mean == pytest.approx(0.5 * math.tan(math.pi * 0.475))  # Student's t with 1 degree
    assert math.isnan(pooled.prediction_high)


def test_studies_that_differ_more_than_their_errors():
    """Q = 2 (10)^2 = 200 with 2 degrees, C = 300 - 100: tau^2 = 198/200."""
    pooled = random_effects([-1.0, 0.0, 1.0], [0.1, 0.1, 0.1])
    assert pooled.spread**2 == pytest.approx(198 / 200)
    assert pooled.i2 == pytest.approx(198 / 200)
    assert pooled.error == pytest.approx(math.sqrt(2 / (2 * 3)))
    assert pooled.prediction_high == pytest.approx(math.tan(math.pi * 0.475) * math.sqrt(198 / 200 + 1 / 3))


def test_a_single_study_keeps_its_error():
    pooled = random_effects([0.2], [0.1])
    assert (pooled.mean, pooled.error, pooled.studies) == (0.2, 0.1, 1)
    assert pooled.high == pytest.approx(0.2 + 1.959963984540054 * 0.1)


@given(studies, st.floats(-3, 3), st.floats(0.1, 10))
@examples(30)
def test_shift_and_scale(both, shift, scale):
    effects, errors = map(np.array, both)
    first = random_effects(effects, errors)
    moved = random_effects(shift + scale * effects, scale * errors)
    assert moved.mean == pytest.approx(shift + scale * first.mean, abs=1e-6)
    assert moved.high == pytest.approx(shift + scale * first.high, rel=1e-6, abs=1e-5)


def test_the_error_of_a_dependent_mean_is_that_of_identical_effects():
    assert dependent_mean([0.4, 0.4, 0.4], [0.1, 0.1, 0.1]) == pytest.approx((0.4, 0.1))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], []), DataError, "effects must have at least one entry"),
        (([1.0], [0.0]), DataError, "errors must be from 1e-30 to 1e\\+30, got 0 to 0"),
        (([1.0, 2.0], [1.0]), DataError, "errors"),
    ],
)
def test_wrong_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        random_effects(*arguments)
    with pytest.raises(ArgumentError, match="confidence must be between 0 and 1, got 2"):
        random_effects([1.0], [1.0], confidence=2)
