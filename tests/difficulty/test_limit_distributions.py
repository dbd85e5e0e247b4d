"""Very long lists and very many levels: fast by the limit distribution, or refused with the largest feasible size."""

from __future__ import annotations

import time

import numpy as np
import pytest

from rankbound import distribution
from rankbound.difficulty.distribution.case import case_of
from rankbound.difficulty.distribution.limit import limit
from rankbound.difficulty.distribution.single import Distribution
from rankbound.errors import ArgumentError
from rankbound.measures import parse_measure


def limit_of(measure: str, levels: list[float], counts: list[int]) -> Distribution:
    points = limit(case_of(parse_measure(measure), levels, counts, sum(counts)))
    assert points is not None
    return Distribution(measure, *points, "approximate")


def largest_difference(one: Distribution, other: Distribution) -> float:
    x = np.linspace(other.quantile(0.0005), other.quantile(0.9995), 2001)
    return float(np.abs(one.cdf(x) - other.cdf(x)).max())


@pytest.mark.parametrize(("n", "relevant"), [(2000, 1000), (1000, 200), (1000, 800)])
def test_the_limit_agrees_with_the_dynamic_program(n, relevant):
    exact = distribution("nDCG", n=n, relevant=relevant, method="dynamic", cache=False)
    approximate = limit_of("nDCG", [1.0, 0.0], [relevant, n - relevant])
    assert largest_difference(approximate, exact) < 3e-3
    assert approximate.mean == pytest.approx(exact.mean, abs=1e-12)
    assert approximate.std == pytest.approx(exact.std, rel=1e-6)
    tail = exact.quantile(1 - 1e-4)
    assert approximate.survival(tail) == pytest.approx(exact.survival(tail), rel=1 / 3)


def test_the_limit_agrees_with_sampled_orders_of_many_levels():
    rng, labels = np.random.default_rng(1), np.arange(300.0)
    discounts = 1 / np.log2(np.arange(2, 302))
    orders = rng.permuted(np.broadcast_to(labels, (20_000, 300)), axis=1)
    scores = np.sort(orders @ discounts / (labels[::-1] @ discounts))
    approximate = limit_of("nDCG", labels.tolist(), [1] * 300)
    at = scores[:: len(scores) // 50]
    expected = np.searchsorted(scores, at, side="right") / len(scores)
    assert np.abs(approximate.cdf(at) - expected).max() < 3e-3 + 1.63 / np.sqrt(len(scores))  # Kolmogorov's 1 % point
    assert approximate.std == pytest.approx(scores.std(), rel=0.03)


@pytest.mark.parametrize(
    ("measure", "query"),
    [
        ("nDCG", {"n": 100_000, "relevant": 50_000}),
        ("nDCG", {"n": 100_000, "relevant": 1_000}),
        ("nDCG", {"labels": np.arange(100_000) % 5}),
        ("nDCG", {"labels": np.arange(1_500)}),
        ("AP", {"n": 1_000_000, "relevant": 10}),
    ],
)
def test_long_lists_are_fast(measure, query):
    start = time.perf_counter()
    null = distribution(measure, cache=False, **query)
    assert time.perf_counter() - start < 20
    assert null.method in ("approximate", "sampled")
    assert null.probabilities.sum() == pytest.approx(1)
    assert (null.probabilities >= 0).all()
    assert (np.diff(null.scores) > 0).all()
    assert 0 <= null.scores[0] < null.mean < null.scores[-1] <= 1


@pytest.mark.parametrize(
    ("measure", "query", "message"),
    [
        ("AP", {"n": 1_000_000, "relevant": 500_000}, "a cutoff of at most 833 documents"),
        ("Bpref", {"n": 1_000_000, "relevant": 500_000}, "a cutoff of at most 833 documents"),
        ("PairAcc", {"labels": np.arange(3_000)}, "takes up to 400 different labels, got 3,000"),
        ("nDCG", {"n": 10_000, "relevant": 5_000, "method": "enumeration"}, "enumeration takes up to 3,000 ranks"),
        ("AP", {"n": 1_000_000, "relevant": 500_000, "method": "sampled"}, "with at most 25,000 samples"),
        ("AP", {"n": 10, "relevant": 5, "method": "sampled", "samples": 10**30}, "samples must be at most 100,000,000"),
    ],
)
def test_what_would_take_too_long_is_refused_at_once(measure, query, message):
    start = time.perf_counter()
    with pytest.raises(ArgumentError, match=message):
        distribution(measure, cache=False, **query)
    assert time.perf_counter() - start < 10


def test_many_levels_are_sampled_by_whole_orders():
    null = distribution("nDCG", labels=np.arange(30), cache=False, samples=20_000)
    assert null.method == "sampled"
    by_rank = distribution("nDCG", labels=np.arange(12), cache=False, method="sampled", samples=20_000)
    assert null.mean == pytest.approx(distribution("nDCG", labels=np.arange(30), samples=5_000).mean, abs=2e-3)
    assert by_rank.method == "sampled"
