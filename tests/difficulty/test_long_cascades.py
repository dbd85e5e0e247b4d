"""ERR on long lists: its expected value by levels, and its distribution from the ranks that users read."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import rankbound as rb
from rankbound.errors import ArgumentError
from rankbound.measures.combinatorics import mean_products, mean_products_of_levels

LISTS = {
    "few relevant": [1] * 4 + [0] * 300,
    "half relevant": [1] * 150 + [0] * 150,
    "all but one relevant": [1] * 299 + [0],
    "graded": [4] * 9 + [3] * 40 + [2] * 2 + [1] * 60 + [0] * 200,
    "graded, none without a gain": [4] * 9 + [3] * 40 + [1] * 60,
}


@pytest.mark.parametrize("labels", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("measure", ["ERR", "ERR@1", "ERR@20", "ERR(max_rel=10)"])
def test_expected_value_by_levels_is_that_by_documents(measure, labels, monkeypatch):
    expected = rb.bounds(measure, labels=labels).expected
    monkeypatch.setattr(sys.modules["rankbound.measures.cascade"], "_LONG_WORK", 0)
    assert rb.bounds(measure, labels=labels).expected == pytest.approx(expected, rel=1e-9)


def test_lists_of_both_kinds_in_one_call(monkeypatch):
    n, relevant = np.array([40, 3, 60, 0]), np.array([4, 3, 30, 0])
    expected = rb.bounds("ERR", n=n, relevant=relevant).expected
    monkeypatch.setattr(sys.modules["rankbound.measures.cascade"], "_LONG_WORK", 50 * 2000)
    np.testing.assert_allclose(rb.bounds("ERR", n=n, relevant=relevant).expected, expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_mean_products_of_levels(seed):
    rng = np.random.default_rng(seed)
    factors, counts = np.sort(rng.random(3)), rng.integers(1, 9, 3)
    each = np.repeat(factors, counts)
    expected = mean_products(each[None], np.array([len(each)]), len(each))[0]
    result = mean_products_of_levels(factors, counts, len(each))
    np.testing.assert_allclose(result, expected[: len(result)], rtol=1e-10)
    assert expected[len(result) :].max(initial=0.0) <= 1e-20


@pytest.mark.parametrize(("n", "relevant"), [(1_000_000, 10), (1_000_000, 500_000), (100_000, 99_999)])
def test_a_million_documents(n, relevant):
    """The expected value is that of draws with replacement, of which the first rank is known, within 1/n."""
    bounds = rb.bounds("ERR@3", n=n, relevant=relevant)
    stop = relevant / n / 16
    independent = sum(stop * (1 - stop) ** (rank - 1) / rank for rank in (1, 2, 3))
    assert bounds.expected == pytest.approx(independent, rel=1e-5)


@pytest.mark.parametrize(("n", "relevant"), [(700, 690), (500, 480), (500, 250)])
def test_the_mean_of_the_distribution_is_exact(n, relevant):
    """Also where almost every document is relevant, so that the probability of no relevant one underflows."""
    null = rb.distribution("ERR", n=n, relevant=relevant, cache=False)
    assert null.method == "dynamic"
    assert null.mean == pytest.approx(rb.bounds("ERR", n=n, relevant=relevant).expected, rel=1e-9)
    sample = rb.distribution("ERR", n=n, relevant=relevant, method="sampled", samples=4000, cache=False)
    assert null.std == pytest.approx(sample.std, rel=0.1)
    quantiles, step = np.array([0.1, 0.5, 0.9]), 2e-4
    assert (null.cdf(sample.quantile(quantiles) - step) < quantiles + 0.05).all()
    assert (null.cdf(sample.quantile(quantiles) + step) > quantiles - 0.05).all()


@pytest.mark.parametrize("measure", ["ERR@200", "nDCG@200", "AP@200"])
@pytest.mark.parametrize("relevant", [1000, 500_000])
def test_a_cutoff_makes_every_size_fast(measure, relevant):
    null = rb.distribution(measure, n=1_000_000, relevant=relevant, cache=False)
    assert null.mean == pytest.approx(rb.bounds(measure, n=1_000_000, relevant=relevant).expected, rel=1e-6)


def test_a_size_without_a_fast_method_is_refused():
    with pytest.raises(ArgumentError, match=r"choose method='sampled' with at most .* or a cutoff of at most"):
        rb.distribution("ERR", n=200_000, relevant=1500, cache=False)
