"""Boundings: their formulas and slopes, and properties that hold for every measure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.difficulty import BOUNDING_NAMES, Difficulty, difficulty_of, get_bounding
from rankbound.errors import ArgumentError, MeasureError
from rankbound.measures import BOUNDINGS, LabelCounts, parse_measure, rank, values
from rankbound.testing.strategies import CATALOG, measures, scored_lists
from tests.tiers import examples

WITHOUT_DISTRIBUTION = [name for name in BOUNDING_NAMES if not get_bounding(name).needs_distribution]


def plain_difficulty(w, e, b, **kwargs):
    return Difficulty(np.array([w]), np.array([e]), np.array([b]), **kwargs)


def test_each_formula_on_one_query():
    d = plain_difficulty(0.1, 0.3, 0.9)
    x = np.array([0.6])
    expected = {
        "none": 0.6,
        "min-max": (0.6 - 0.1) / (0.9 - 0.1),
        "expectation": 0.6 / 0.3,
        "expectation-max": (0.6 - 0.3) / (0.9 - 0.3),
        "UL1": (0.6 / 0.9) * 0.6 / (0.6 + 0.3),
        "UL2": (0.6 - 0.3) / (0.9 - 0.3),
    }
    for name, value in expected.items():
        assert get_bounding(name).apply(x, d)[0][0] == pytest.approx(value), name
    below = get_bounding("UL2").apply(np.array([0.2]), d)[0][0]
    assert below == pytest.approx((0.2 - 0.3) / 0.3)


@pytest.mark.parametrize("name", WITHOUT_DISTRIBUTION)
@pytest.mark.parametrize("x", [0.15, 0.55, 0.8])
def test_slopes_equal_finite_differences(name, x):
    d = plain_difficulty(0.1, 0.3, 0.9, variances=lambda: np.array([0.04]))
    bounding, step = get_bounding(name), 1e-6
    high, low = (bounding.apply(np.array([x + s]), d)[0][0] for s in (step, -step))
    assert bounding.apply(np.array([x]), d)[1][0] == pytest.approx((high - low) / (2 * step), rel=1e-6)


@given(scored_lists(), measures())
@examples(100)
def test_bounded_values_lie_in_range_and_are_zero_at_the_expected_value(lists, measure):
    ranked = rank(lists)
    d = difficulty_of(measure, ranked.counts)
    x = values(ranked, measure)
    informative = d.informative
    for name, at_best, at_expected in (("min-max", 1, None), ("expectation-max", 1, 0), ("UL2", 1, 0)):
        bounding = get_bounding(name)
        for point, target in ((d.best, at_best), (d.expected, at_expected)):
            if target is not None:
                np.testing.assert_allclose(bounding.apply(point, d)[0][informative], target, atol=1e-9)
    assert (get_bounding("min-max").apply(x, d)[0] >= -1e-9).all()
    assert (get_bounding("min-max").apply(x, d)[0] <= 1 + 1e-9).all()
    ul2 = get_bounding("UL2").apply(x, d)[0]
    assert (np.abs(ul2) <= 1 + 1e-9).all()
    better = (x - d.expected) * (-1 if measure.definition.lower_is_better else 1)
    assert (ul2[better > 1e-9] > 0).all()
    assert (ul2[better < -1e-9] < 0).all()
    em = get_bounding("expectation-max").apply(x, d)[0]
    np.testing.assert_allclose(ul2[better >= 0], em[better >= 0], atol=1e-9)
    if measure.definition.floor == 0 and not measure.definition.lower_is_better:
        ul1 = get_bounding("UL1").apply(x, d)[0]
        assert (ul1 >= -1e-12).all()
        assert (ul1 <= 1 + 1e-9).all()


@given(st.integers(2, 40), st.data())
@examples(50)
def test_affine_boundings_of_u_are_proportional(n, data):
    """The worst value is twice the mean and the best is 0.

    That is why the thesis "Metric bounding in learning to rank" reports equal results for the three.
    """
    p = data.draw(st.integers(1, n - 1))
    d = difficulty_of(parse_measure("U"), LabelCounts.binary(n, p))
    weights = [get_bounding(name).weight(d)[0] for name in ("min-max", "expectation", "expectation-max")]
    assert weights[1] == pytest.approx(2 * weights[0])
    assert weights[2] == pytest.approx(weights[1])


def test_uninformative_queries_are_zero_with_zero_slope():
    d = plain_difficulty(1.0, 1.0, 1.0)
    for name in ("min-max", "expectation-max", "UL2"):
        value, slope = get_bounding(name).apply(np.array([1.0]), d)
        assert (value[0], slope[0]) == (0, 0)
        assert not get_bounding(name).defined(d)[0]
    assert get_bounding("expectation").weight(d)[0] == 0


def test_only_affine_boundings_have_weights():
    with pytest.raises(ArgumentError, match="bounding must be affine to have a weight per query"):
        get_bounding("distribution").weight(plain_difficulty(0.0, 0.5, 1.0))
    with pytest.raises(ArgumentError, match="bounding must be one of none, min-max"):
        get_bounding("max-min")


def test_boundings_reject_measures_that_they_are_not_defined_for():
    for name, message in (("UL1(U)", "UL1 needs"), ("UL1(Tau)", "UL1 needs"), ("EB(Tau)", "which is 0")):
        with pytest.raises(MeasureError, match=message):
            parse_measure(name)


def test_distribution_bounding_needs_distributions():
    with pytest.raises(ArgumentError, match="difficulty must have distributions"):
        get_bounding("distribution").apply(np.array([0.5]), plain_difficulty(0.0, 0.5, 1.0))


def test_every_wrapper_gives_finite_values_for_every_measure_that_it_accepts():
    rng = np.random.default_rng(0)
    lists = rb.Lists(rng.integers(0, 3, 40), [0, 8, 15, 16, 40], rng.normal(size=40))
    for measure in CATALOG[::4]:
        for wrapper in BOUNDINGS:
            try:
                name = parse_measure(f"{wrapper}({measure})")
            except MeasureError:
                continue
            result = rb.evaluate(lists, [str(name)])
            value, left_out = result.values[str(name)], result.empty[str(name)] | result.no_choice[str(name)]
            assert np.isfinite(value[~left_out]).all(), name
