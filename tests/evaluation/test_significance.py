"""Paired tests and intervals against scipy, statsmodels and brute force."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import intervals as iv
from rankbound.evaluation import resampling as resampling
from rankbound.evaluation import significance as cr
from rankbound.evaluation import significance as sg
from tests.tiers import examples

DRAWS = [np.random.default_rng(seed).normal(0.1, 1.0, size) for seed, size in enumerate((2, 3, 7, 20, 49, 50, 51, 300))]
small_differences = st.lists(st.integers(-4, 4).map(lambda i: i / 4), min_size=1, max_size=9)


@pytest.mark.parametrize("d", DRAWS, ids=len)
def test_paired_t_is_scipys(d):
    assert sg.paired_t(d) == pytest.approx(stats.ttest_1samp(d, 0.0).pvalue, rel=1e-10)


@pytest.mark.parametrize("d", DRAWS, ids=len)
def test_wilcoxon_without_ties_is_scipys(d):
    method = "exact" if len(d) <= 50 else "asymptotic"
    assert sg.wilcoxon(d) == pytest.approx(stats.wilcoxon(d, method=method).pvalue, rel=1e-10)


def test_wilcoxon_of_many_tied_differences_is_scipys():
    d = np.random.default_rng(3).integers(-3, 5, 400) / 10
    expected = stats.wilcoxon(d, zero_method="wilcox", method="asymptotic", correction=False).pvalue
    assert sg.wilcoxon(d) == pytest.approx(expected, rel=1e-10)


def sign_patterns(d):
    """All ways to give the signs of the differences, as arrays of -1 and 1."""
    return [np.array(signs) for signs in product((-1, 1), repeat=len(d))]


@given(small_differences)
@examples(60)
def test_wilcoxon_with_ties_and_zeros_is_the_share_of_sign_patterns(values):
    d = np.array([v for v in values if v != 0])
    if len(d) == 0:
        assert sg.wilcoxon(values) == 1.0
        return
    ranks = stats.rankdata(np.abs(d))
    observed = abs((ranks * np.sign(d)).sum())
    fraction = np.mean([abs((ranks * signs).sum()) >= observed - 1e-9 for signs in sign_patterns(d)])
    assert sg.wilcoxon(values) == pytest.approx(fraction, abs=1e-12)


@given(small_differences)
@examples(60)
def test_randomization_of_few_queries_is_the_share_of_sign_patterns(values):
    d = np.array(values)
    fraction = np.mean([abs((d * signs).sum()) >= abs(d.sum()) - 1e-9 for signs in sign_patterns(d)])
    assert sg.randomization(values) == pytest.approx(fraction, abs=1e-12)


def test_drawn_randomization_is_near_the_exact_one():
    d = np.random.default_rng(5).normal(0.4, 1.0, 25)  # too many to count all sign patterns
    exact = sg._all_sign_flips(d[:18, None])[0]
    drawn = sg._drawn_sign_flips(d[:18, None], 200_000, np.random.default_rng(1))[0] / 200_000
    assert drawn == pytest.approx(exact, abs=4 * sqrt(exact * (1 - exact) / 200_000))
    assert sg.randomization(d, seed=1) == sg.randomization(d, seed=1)
    assert sg.randomization(d, seed=1) == pytest.approx(sg.paired_t(d), abs=0.02)


@pytest.mark.parametrize("n", [1, 2, 5, 11, 18])
def test_all_sign_patterns_are_counted(n):
    random = np.random.default_rng(n)
    d = np.round(random.normal(0.2, 1, (n, 4)), 1)  # rounded, so that sums are tied
    d[: n // 3, 1] = 0.0
    patterns = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    expected = (np.abs(patterns @ d) >= np.abs(d.sum(axis=0)) - 1e-9).mean(axis=0)
    assert sg.randomization_columns(d) == pytest.approx(expected, rel=1e-12)


def test_drawn_randomization_does_not_depend_on_the_size_of_chunks_and_blocks(monkeypatch):
    columns = np.random.default_rng(0).normal(0.1, 1, (64, 3))
    columns[:, 2] += 1.0  # a tail that no draw reaches
    whole = sg.randomization_columns(columns, resamples=500)
    monkeypatch.setattr(resampling, "_CHUNK", 64 * 8)
    monkeypatch.setattr(resampling, "_BLOCK", 1)
    assert sg.randomization_columns(columns, resamples=500) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("rounded", [False, True], ids=["continuous", "lattice"])
def test_rare_tails_are_near_the_exact_ones(rounded):
    """2 of 2^18 is the smallest p-value here: tails of down to 1e-5 can be counted."""
    d = np.random.default_rng(8).normal(0.8, 0.7, (18, 200))
    d = np.round(d, 1) if rounded else d
    exact = sg._all_sign_flips(d)
    rare = (exact < 0.003) & (d != 0).all(axis=0)
    assert rare.sum() > 50
    tilted = sg._tilted_sign_flips(d[:, rare], np.random.default_rng(0))
    ratio = tilted / exact[rare]
    assert ratio.mean() == pytest.approx(1, abs=0.02)
    assert np.abs(ratio - 1).max() < 0.25


def test_randomization_reaches_p_values_far_below_the_number_of_draws():
    """All of one sign: exactly 2 of the 2^100 patterns; (1 + hits) / (1 + resamples) would give 1 / 1000."""
    assert sg.randomization(np.full(100, 0.5) + np.arange(100) / 1000, resamples=999) == 2.0**-99
    d = np.random.default_rng(1).normal(1.0, 1.0, 60)
    assert 0 < sg.randomization(d) < 1e-6
    corrected = cr.holm([sg.randomization(d)] + [1.0] * 10_152)[0]
    assert corrected < 0.05


def test_smallest_randomization_p_counts_the_queries_that_differ():
    assert sg.smallest_randomization_p(np.array([[1.0, 1.0], [2.0, 0.0], [-1.0, 0.0]])).tolist() == [0.25, 1.0]


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 7, 30, 60]), st.booleans())
@examples(25)
def test_columns_of_wilcoxon_are_those_of_scipy(seed, n, tied):
    random = np.random.default_rng(seed)
    d = random.normal(0.3, 1, (n, 5))
    d = np.round(d, 1) if tied else d
    d[random.random(d.shape) < 0.2] = 0.0
    ours = sg.wilcoxon_columns(d)
    for column, p in zip(d.T, ours, strict=True):
        moving = column[column != 0]
        if len(moving) == 0:
            assert p == 1.0
        elif len(moving) > 50:
            theirs = stats.wilcoxon(moving, method="asymptotic", correction=False).pvalue
            assert p == pytest.approx(theirs, rel=0.02)
        elif len(np.unique(np.abs(moving))) == len(moving):
            assert p == pytest.approx(stats.wilcoxon(moving, method="exact").pvalue, rel=1e-9)
        elif len(moving) <= 10:  # ties: count all patterns
            ranks = stats.rankdata(np.abs(moving))
            patterns = np.array(list(product((0, 1), repeat=len(moving))))
            away = np.abs(patterns @ ranks - ranks.sum() / 2)
            observed = abs(ranks[moving > 0].sum() - ranks.sum() / 2)
            assert p == pytest.approx((away >= observed - 1e-9).mean(), rel=1e-9)


def test_student_interval_is_scipys():
    d = np.random.default_rng(3).normal(0.2, 1, (12, 2))
    low, high = iv.student_interval_columns(d, confidence=0.9)
    for column, ends in zip(d.T, zip(low, high, strict=True), strict=True):
        theirs = stats.ttest_1samp(column, 0).confidence_interval(0.9)
        assert ends == pytest.approx((theirs.low, theirs.high))


def test_percentile_interval_is_scipys_from_the_same_distribution():
    d = np.random.default_rng(3).exponential(1, 50)
    ours = iv.bootstrap_interval(d, accelerated=False, resamples=20_000)
    theirs = stats.bootstrap((d,), np.mean, n_resamples=20_000, method="percentile", rng=4).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_bonferroni_is_statsmodels():
    p = np.random.default_rng(0).random(9) ** 3
    from statsmodels.stats.multitest import multipletests

    assert cr.bonferroni(p) == pytest.approx(multipletests(p, method="bonferroni")[1])


def test_columns_are_tested_as_if_each_stood_alone():
    columns = np.random.default_rng(2).normal(0.2, 1, (40, 3))
    alone = [sg.randomization(column) for column in columns.T]
    assert sg.randomization_columns(columns) == pytest.approx(alone, abs=0)
    intervals = np.array([iv.bootstrap_interval(column) for column in columns.T]).T
    assert iv.bootstrap_interval_columns(columns) == pytest.approx(intervals, rel=1e-12)


@pytest.mark.parametrize(
    "make", [lambda r: r.normal(0.1, 1, 60), lambda r: r.exponential(1, 60)], ids=["even", "skewed"]
)
def test_bootstrap_interval_is_near_scipys_bca(make):
    d = make(np.random.default_rng(11))
    theirs = stats.bootstrap((d,), np.mean, n_resamples=20_000, method="BCa", rng=4).confidence_interval
    ours = iv.bootstrap_interval(d, resamples=20_000, seed=9)
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_bootstrap_interval_is_near_that_of_student_for_many_queries():
    d = np.random.default_rng(0).normal(0.05, 0.2, 2000)
    half = stats.t.ppf(0.975, 1999) * d.std(ddof=1) / sqrt(2000)
    assert iv.bootstrap_interval(d) == pytest.approx((d.mean() - half, d.mean() + half), abs=half / 20)


def test_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    random = np.random.default_rng(8)
    intervals = [iv.bootstrap_interval(random.exponential(1, 40), resamples=600, seed=i) for i in range(300)]
    covered = np.mean([low <= 1.0 <= high for low, high in intervals])
    assert 0.90 <= covered <= 0.985


def test_bootstrap_interval_survives_extreme_skewness():
    d = np.zeros(50)
    d[0] = 1e6
    low, high = iv.bootstrap_interval(d, confidence=0.9999)
    assert 0 <= low <= d.mean() <= high


def test_holm_is_statsmodels():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(1).uniform(0, 0.2, 12)
    assert cr.holm(p) == pytest.approx(multitest.multipletests(p, method="holm")[1], rel=1e-12)
    assert cr.holm([]).tolist() == []


def test_effect_size_is_mean_over_standard_deviation():
    d = DRAWS[4]
    assert sg.effect_size(d) == pytest.approx(np.mean(d) / np.std(d, ddof=1))


@pytest.mark.parametrize("d", [[0.0], [0.0, 0.0], [0.0] * 100], ids=len)
def test_no_difference_is_no_evidence(d):
    assert [test(d) for test in (sg.paired_t, sg.wilcoxon, sg.randomization)] == [1.0, 1.0, 1.0]
    assert sg.effect_size(d) == 0.0
    if len(d) > 1:
        assert iv.bootstrap_interval(d) == (0.0, 0.0)


def test_one_query_is_no_evidence():
    assert [test([0.3]) for test in (sg.paired_t, sg.wilcoxon, sg.randomization)] == [1.0, 1.0, 1.0]
    assert np.isnan(sg.effect_size([0.3]))
    assert np.isnan(iv.bootstrap_interval([0.3])).all()


def test_two_queries():
    assert sg.wilcoxon([0.1, 0.2]) == sg.randomization([0.1, 0.2]) == 0.5
    low, high = iv.bootstrap_interval([0.1, 0.2])
    assert 0.1 <= low < high <= 0.2


def test_equal_differences_are_certain_for_t_and_have_no_effect_size():
    d = [0.1] * 12  # their sum is not exactly 1.2
    assert sg.paired_t(d) == 0.0
    assert np.isnan(sg.effect_size(d))
    assert iv.bootstrap_interval(d) == (0.1, 0.1)
    assert sg.randomization(d) == 2 / 2**12


def test_win_tie_loss_counts():
    assert sg.win_tie_loss([1, 0, -1, 2, 0]) == sg.WinTieLoss(wins=2, ties=2, losses=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sg.paired_t([]), "one number per query"),
        (lambda: sg.wilcoxon([[1.0]]), "one number per query"),
        (lambda: sg.randomization([float("nan")]), "must be finite"),
    ],
)
def test_differences_that_cannot_be_used_are_refused(call, message):
    with pytest.raises(DataError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iv.bootstrap_interval([1.0, 2.0], confidence=95), "confidence must lie between 0 and 1, got 95"),
        (lambda: sg.randomization([1.0], resamples=0), "resamples must be a positive integer, got 0"),
        (lambda: cr.holm([0.5, 1.5]), "p_values must be"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_columns_of_t_tests_are_scipys():
    columns = np.random.default_rng(4).normal(0.1, 1, (30, 4))
    columns[:, 3] = 0.0
    expected = [*stats.ttest_1samp(columns[:, :3], 0.0).pvalue, 1.0]
    assert sg.paired_t_columns(columns) == pytest.approx(expected, rel=1e-10)


def test_studentized_bootstrap_is_a_loop_over_draws():
    """Sakai's algorithm as he writes it, one draw at a time, from the same random numbers."""
    d = np.random.default_rng(6).normal(0.3, 1.0, 12)
    random, hits = np.random.default_rng(0), 0
    t = d.mean() / (d.std(ddof=1) / sqrt(12))
    w = d - d.mean()
    for rows in random.integers(12, size=(500, 12), dtype=np.int32):
        z = w[rows]
        hits += abs(z.mean() / (z.std(ddof=1) / sqrt(12))) >= abs(t)
    assert sg.studentized_bootstrap(d, resamples=500) == pytest.approx(hits / 500, abs=1e-12)


def test_studentized_bootstrap_is_near_the_t_test_where_differences_are_normal():
    columns = np.random.default_rng(7).normal([0.0, 0.15, 0.3], 1.0, (200, 3))
    assert sg.studentized_bootstrap_columns(columns, resamples=4000) == pytest.approx(
        sg.paired_t_columns(columns), abs=0.02
    )


def test_studentized_bootstrap_of_no_evidence_is_one_and_of_certainty_zero():
    assert sg.studentized_bootstrap([0.0, 0.0, 0.0]) == sg.studentized_bootstrap([0.4]) == 1.0
    assert sg.studentized_bootstrap([0.1] * 12) == 0.0


@pytest.mark.parametrize("d", DRAWS[1:], ids=len)
def test_interval_of_the_effect_size_leaves_its_tails_in_scipys_non_central_t(d):
    low, high = iv.effect_size_interval(d, confidence=0.9)
    root = sqrt(len(d))
    t = sg.effect_size(d) * root
    assert low < sg.effect_size(d) < high
    assert stats.nct.sf(t, len(d) - 1, low * root) == pytest.approx(0.05, abs=1e-6)
    assert stats.nct.cdf(t, len(d) - 1, high * root) == pytest.approx(0.05, abs=1e-6)


def test_effect_size_interval_of_large_effects_and_of_none():
    low, high = iv.effect_size_interval(np.full(50, 1.0) + np.arange(50) / 1000)
    assert 40 < low < sg.effect_size(np.full(50, 1.0) + np.arange(50) / 1000) < high < 100
    assert np.isnan(iv.effect_size_interval([0.2, 0.2])).all()
    assert np.isnan(iv.effect_size_interval([0.2])).all()


def test_benjamini_hochberg_is_statsmodels():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(2).uniform(0, 0.2, 15)
    assert cr.benjamini_hochberg(p) == pytest.approx(multitest.multipletests(p, method="fdr_bh")[1], rel=1e-12)
    assert cr.benjamini_hochberg([]).tolist() == []
