"""Combinations of p-values: scipy, formulas by hand, and their level under independence and dependence."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from scipy import stats

from rankbound.errors import ArgumentError
from rankbound.evaluation.combined_p_values import fisher, harmonic_mean, higher_criticism
from rankbound.evaluation.significance import bonferroni

COMBINATIONS = (fisher, harmonic_mean, higher_criticism)
LEVELS = (0.01, 0.05, 0.1, 0.25)


@pytest.mark.parametrize("m", [1, 2, 10, 500])
def test_fisher_is_scipys(m):
    p = np.random.default_rng(m).beta(0.7, 1.0, m)
    assert fisher(p) == pytest.approx(stats.combine_pvalues(p, method="fisher").pvalue, rel=1e-9)


def test_the_harmonic_mean_has_the_factor_of_vovk_and_wang():
    assert harmonic_mean([0.03]) == pytest.approx(0.03)
    assert harmonic_mean([0.01, 0.02]) == pytest.approx(2 * 2 / (1 / 0.01 + 1 / 0.02))
    for m, factor in ((3, 2.499), (10, 1.980), (50, 1.693), (100, 1.619)):  # table 1 of the paper, over ln m
        assert harmonic_mean([0.001] * m) == pytest.approx(0.001 * factor * log(m), rel=1e-3)
    assert harmonic_mean([0.9] * 20) == 1.0


def test_higher_criticism_of_one_value_by_hand():
    # (1 - p) / sqrt(p (1 - p)) falls with p, so the combination of one p-value is that p-value
    assert higher_criticism([0.2], resamples=40_000) == pytest.approx(0.2, abs=4 * sqrt(0.16 / 40_000))


def test_higher_criticism_is_the_maximum_over_the_smaller_half():
    p = np.random.default_rng(1).random(30)
    in_order = sorted(p)
    statistic = max(sqrt(30) * ((i + 1) / 30 - q) / sqrt(q * (1 - q)) for i, q in enumerate(in_order[:15]))
    random = np.random.default_rng(7)
    samples = np.sort(random.random((20_000, 30)), axis=1)[:, :15]
    expected = np.arange(1, 16) / 30
    reached = ((sqrt(30) * (expected - samples) / np.sqrt(samples * (1 - samples))).max(axis=1) >= statistic).mean()
    assert higher_criticism(p, resamples=20_000) == pytest.approx(reached, abs=0.015)


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_the_level_holds_for_independent_uniform_p_values(combine):
    random = np.random.default_rng(2)
    options = {"resamples": 2000} if combine is higher_criticism else {}
    combined = np.array([combine(random.random(20), **options) for _ in range(500)])
    for level in LEVELS:
        assert (combined <= level).mean() <= level + 4 * sqrt(level * (1 - level) / 500) + 0.01
    if combine is not harmonic_mean:
        assert (combined <= 0.25).mean() >= 0.15


def test_only_the_harmonic_mean_holds_its_level_for_equal_p_values():
    same = [np.full(20, p) for p in np.random.default_rng(4).random(500)]
    assert np.mean([fisher(p) <= 0.05 for p in same]) > 0.2
    for level in LEVELS:
        assert np.mean([harmonic_mean(p) <= level for p in same]) <= level


def test_each_method_finds_what_it_is_meant_to_find():
    random = np.random.default_rng(6)
    many = random.beta(0.5, 1.0, 100)  # all queries a little better
    few = random.random(100)
    few[:3] = 1e-7  # three queries much better
    assert fisher(many) < 1e-4 < bonferroni(many).min()
    assert harmonic_mean(few) < 1e-3
    assert higher_criticism(few) == pytest.approx(1 / 10_001, rel=5)
    assert fisher(few) > harmonic_mean(few)


def test_p_values_of_1_do_not_outweigh_small_ones():
    p = [1e-6] * 10 + [1.0] * 10  # Stouffer's and Cauchy's combination would be 1
    for combine in COMBINATIONS:
        assert combine(p) < 1e-3


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_edge_cases(combine):
    assert combine([]) == 1.0
    assert 0 < combine([1.0, 1.0]) <= 1
    assert 0 <= combine([0.0, 1.0]) <= 0.01
    p = np.random.default_rng(9).random(12)
    assert combine(p) == pytest.approx(combine(p[::-1]))
    with pytest.raises(ArgumentError, match="p_values must be numbers between 0 and 1"):
        combine([0.5, 1.5])


def test_higher_criticism_checks_its_arguments():
    with pytest.raises(ArgumentError, match="resamples must be a positive integer"):
        higher_criticism([0.5], resamples=0)
    with pytest.raises(ArgumentError, match="seed must be an integer of at least 0, got -1"):
        higher_criticism([0.5], seed=-1)
    assert higher_criticism([0.1, 0.4], seed=1) == higher_criticism([0.1, 0.4], seed=1)
