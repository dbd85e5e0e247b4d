"""Minimum detectable difference, power and the number of queries, against simulations and the exact distribution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import rankbound as rb
from rankbound.errors import ArgumentError
from rankbound.evaluation.power import detection_power, minimum_detectable_difference, queries_needed


def simulated_power(difference, sd, queries, alpha, repeats=20_000, seed=0):
    """How often scipy's t test rejects on normal differences."""
    random = np.random.default_rng(seed)
    d = random.normal(difference, sd, (repeats, queries))
    return float((stats.ttest_1samp(d, 0.0, axis=1).pvalue < alpha).mean())


@pytest.mark.parametrize("queries", [10, 30, 50, 250])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 24, 0.05 / 10_153], ids=["single", "24 tests", "10,153 tests"])
@pytest.mark.parametrize("power", [0.8, 0.95])
def test_the_minimum_detectable_difference_is_within_five_percent_of_a_simulation(queries, alpha, power):
    """The difference at which the simulated power crosses the requested one lies within 5 % of the formula's."""
    found = minimum_detectable_difference(sd=0.2, queries=queries, alpha=alpha, power=power)
    assert simulated_power(1.05 * found, 0.2, queries, alpha) > power
    assert simulated_power(0.95 * found, 0.2, queries, alpha) < power


def test_it_is_near_the_textbook_formula_with_many_queries():
    n, sd = 141, 0.3
    expected = (stats.t.ppf(0.975, n - 1) + stats.t.ppf(0.8, n - 1)) * sd / np.sqrt(n)
    assert minimum_detectable_difference(sd=sd, queries=n) == pytest.approx(expected, rel=0.002)
    d = np.random.default_rng(0).normal(0, 1, n)
    assert minimum_detectable_difference(d) == pytest.approx(expected / sd * d.std(ddof=1), rel=0.002)
    assert minimum_detectable_difference(d, queries=n) == minimum_detectable_difference(d)
    assert rb.evaluation.minimum_detectable_difference(d) == minimum_detectable_difference(d)


def test_power_is_that_of_the_non_central_t_distribution():
    for difference, n in ((0.05, 20), (0.2, 50), (-0.2, 50)):
        center, critical = difference * np.sqrt(n) / 0.4, stats.t.ppf(0.995, n - 1)
        expected = stats.nct.sf(critical, n - 1, center) + stats.nct.cdf(-critical, n - 1, center)
        assert detection_power(difference, sd=0.4, queries=n, alpha=0.01) == pytest.approx(expected, rel=1e-6)


def test_power_and_detectable_difference_belong_together():
    found = minimum_detectable_difference(sd=0.2, queries=50, power=0.9)
    assert detection_power(found, sd=0.2, queries=50) == pytest.approx(0.9, abs=1e-6)
    assert detection_power(0.1, sd=0.0, queries=5) == 1.0
    assert detection_power(0.0, sd=0.0, queries=5) == 0.0
    assert detection_power(0.5, sd=0.2, queries=1) == 0.0


def test_queries_needed_is_the_first_number_that_is_enough():
    n = queries_needed(0.02, sd=0.15)
    assert minimum_detectable_difference(sd=0.15, queries=n) <= 0.02
    assert minimum_detectable_difference(sd=0.15, queries=n - 1) > 0.02
    assert queries_needed(1.0, sd=0.0) == 2


def test_one_query_detects_nothing():
    assert np.isnan(minimum_detectable_difference([0.5]))
    assert np.isnan(minimum_detectable_difference(sd=0.1, queries=1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: minimum_detectable_difference(), "needs either differences or sd"),
        (lambda: minimum_detectable_difference([1.0, 2.0], sd=0.1), "needs either differences or sd"),
        (lambda: minimum_detectable_difference(sd=0.1), "needs queries"),
        (lambda: minimum_detectable_difference(sd=0.1, queries=0), "queries must be a positive integer, got 0"),
        (lambda: minimum_detectable_difference(sd=0.1, queries=9, alpha=5), "alpha must lie between 0 and 1, got 5"),
        (lambda: minimum_detectable_difference(sd=0.1, queries=9, power=1.0), "power must lie between 0 and 1"),
        (lambda: minimum_detectable_difference(sd=-0.1, queries=9), "sd must not be negative, got -0.1"),
        (lambda: detection_power(0.1, sd=-1.0, queries=9), "sd not negative"),
        (lambda: queries_needed(0.0, sd=0.1), "difference must be a positive number, got 0.0"),
        (lambda: queries_needed(1e-9, sd=1.0), "to be found at all"),
    ],
)
def test_settings_that_make_no_sense_are_refused(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
