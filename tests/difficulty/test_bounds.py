"""Worst, expected and best: brute force over all orders, published tables and variants."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.difficulty import bounds_of
from rankbound.errors import ArgumentError, MeasureError
from rankbound.measures import LabelCounts, parse_measure, rank, values
from rankbound.testing import oracles
from rankbound.testing.strategies import CATALOG, catalog, measures, scored_lists
from tests.tiers import examples

MULTISETS = [c for n in range(1, 7) for c in itertools.combinations_with_replacement((2, 1, 0), n)]


@pytest.mark.parametrize("size", range(1, 7))
def test_brute_force_over_all_orders(size):
    """Every label multiset of this size, labels 0..2, the whole catalog with cutoffs 1..8."""
    for labels in (m for m in MULTISETS if len(m) == size):
        orders = list(oracles.all_orders(labels))
        # the value functions agree with the oracles elsewhere; here once more on a part of the catalog
        every = rb.Lists(
            np.ravel(orders), np.arange(len(orders) + 1) * size, np.tile(np.arange(size, 0, -1.0), len(orders))
        )
        ranked, counts = rank(every), LabelCounts.from_labels(labels, [0, size])
        for number, measure in enumerate(CATALOG):
            got = values(ranked, measure)
            if number % 7 == size:
                np.testing.assert_allclose(got, [oracles.value(measure, order) for order in orders], atol=1e-12)
            low, high = (got.max(), got.min()) if measure.definition.lower_is_better else (got.min(), got.max())
            bounds = bounds_of(measure, counts)
            expected = [low, math.fsum(got) / len(got), high]
            actual = [bounds.worst[0], bounds.expected[0], bounds.best[0]]
            np.testing.assert_allclose(actual, expected, atol=1e-12, err_msg=f"{measure} of {labels}")


@pytest.mark.parametrize("size", [3, 5])
def test_brute_force_where_only_some_items_are_ranked(size):
    for labels in (m for m in MULTISETS if len(m) == size):
        orders = list(oracles.all_orders(labels))
        for depth in range(size):
            counts = LabelCounts.from_labels(labels, [0, size], np.array([depth]))
            for measure in CATALOG[(depth + len(labels)) % 5 :: 5]:
                got = np.array([oracles.value(measure, order, depth) for order in orders])
                low, high = (got.max(), got.min()) if measure.definition.lower_is_better else (got.min(), got.max())
                bounds = bounds_of(measure, counts)
                actual = [bounds.worst[0], bounds.expected[0], bounds.best[0]]
                np.testing.assert_allclose(
                    actual, [low, got.mean(), high], atol=1e-12, err_msg=f"{measure} {labels} {depth}"
                )


@pytest.mark.parametrize("measure", catalog(range(1, 5)), ids=str)
def test_bounds_with_a_depth_are_those_of_all_orders_and_of_the_distribution(measure):
    for labels in ([1, 0, 0], [1, 1, 0, 0], [2, 0, 1, 0, 0], [3, 1, 1, 0], [2, 2, 1]):
        for depth in range(1, len(labels) + 2):
            got = np.array([oracles.value(measure, order, depth) for order in oracles.all_orders(labels)])
            bounds = rb.bounds(measure, labels=labels, depth=depth)
            low, high = sorted((bounds.worst, bounds.best))
            np.testing.assert_allclose([low, bounds.expected, high], [got.min(), got.mean(), got.max()], atol=1e-12)
            null = rb.distribution(measure, labels=labels, depth=depth, cache=False)
            np.testing.assert_allclose([null.scores[0], null.mean, null.scores[-1]], [low, bounds.expected, high],
                                       atol=1e-12)  # fmt: skip


def test_bounds_with_a_depth_of_many_queries_and_of_counts():
    many = rb.bounds("nDCG@3", n=[4, 9], relevant=[2, 3], depth=2)
    for query, (n, relevant) in enumerate([(4, 2), (9, 3)]):
        single = rb.bounds("nDCG@3", labels=[1] * relevant + [0] * (n - relevant), depth=2)
        for side in ("worst", "expected", "best"):
            assert getattr(many, side)[query] == pytest.approx(getattr(single, side), abs=1e-15)
    assert rb.bounds("AP", n=3, relevant=2, depth=3) == rb.bounds("AP", n=3, relevant=2)


@pytest.mark.parametrize("depth", [0, -1, 1.5, True, "2"])
@pytest.mark.parametrize("function", [rb.bounds, rb.distribution])
def test_depth_must_be_a_positive_integer(function, depth):
    with pytest.raises(ArgumentError, match=f"depth must be a positive integer or None, got {depth!r}"):
        function("AP", n=3, relevant=2, depth=depth)


@given(scored_lists(), measures())
@example(rb.Lists([0, 0, 0, 0, 0, 1, 1, -1, 2], [0, 9], np.zeros(9)), parse_measure("IPrec@0"))  # 84 orders, not 1,512
@example(rb.Lists([0, 0, 0, 0, 0, 0, 1, 1, 2, 2], [0, 10], np.zeros(10)), parse_measure("IPrec@0"))  # 210, not 1,260
@examples(150)
def test_values_lie_within_bounds_and_a_constant_scorer_has_the_expected_value(lists, measure):
    ranked = rank(lists)
    bounds = bounds_of(measure, ranked.counts)
    value = values(ranked, measure)
    low, high = (bounds.best, bounds.worst) if measure.definition.lower_is_better else (bounds.worst, bounds.best)
    assert (low - 1e-12 <= value).all()
    assert (value <= high + 1e-12).all()
    assert (low - 1e-12 <= bounds.expected).all()
    assert (bounds.expected <= high + 1e-12).all()
    constant = rank(lists.with_scores(np.zeros(len(lists.labels))))
    np.testing.assert_allclose(values(constant, measure), bounds.expected, atol=1e-12)


@given(st.integers(1, 400), st.data())
@examples(60)
def test_n_and_relevant_are_equivalent_to_labels(n, data):
    relevant = data.draw(st.integers(0, n))
    measure = data.draw(measures())
    label = max(1, int(measure.rel))
    by_counts, by_labels = (
        rb.bounds(measure, n=n, relevant=relevant),
        rb.bounds(measure, labels=[label] * relevant + [0] * (n - relevant)),
    )
    np.testing.assert_allclose(
        [by_counts.worst, by_counts.expected, by_counts.best],
        [by_labels.worst, by_labels.expected, by_labels.best],
        atol=1e-12,
    )


# ---- the thesis "Metric bounding in learning to rank" ----------------------------------------------------------------


def test_thesis_tables_2_2_to_2_4():
    """Nine documents, three relevant: the ideal and the worst DCG, RBP(0.7) and AP."""
    log2 = math.log2
    dcg = rb.bounds("DCG", n=9, relevant=3)
    assert dcg.best == pytest.approx(1 + 1 / log2(3) + 1 / log2(4))
    assert dcg.worst == pytest.approx(1 / log2(8) + 1 / log2(9) + 1 / log2(10))
    assert (round(dcg.best, 2), round(dcg.worst, 2)) == (2.13, 0.95)
    rbp = rb.bounds("RBP(p=0.7)", n=9, relevant=3)
    assert rbp.best == pytest.approx(0.3 * (1 + 0.7 + 0.49))
    assert rbp.worst == pytest.approx(0.3 * (0.7**6 + 0.7**7 + 0.7**8))
    assert (round(rbp.best, 2), round(rbp.worst, 2)) == (0.66, 0.08)
    ap = rb.bounds("AP", n=9, relevant=3)
    assert ap.best == 1
    assert ap.worst == pytest.approx((1 / 7 + 2 / 8 + 3 / 9) / 3)
    assert round(ap.worst, 2) == 0.24


def test_thesis_tables_3_1_to_3_3():
    """Expected DCG, U and AP of X(2,1) and X(3,2)."""
    d = [1 / math.log2(i + 1) for i in (1, 2, 3)]
    assert rb.bounds("DCG", n=2, relevant=1).expected == pytest.approx((d[0] + d[1]) / 2)
    assert rb.bounds("DCG", n=3, relevant=2).expected == pytest.approx(4 / 6 * sum(d))
    # table 3.2 has the part before P(P-1)/2 is taken off: means 1/2 and 2
    assert rb.bounds("U", n=2, relevant=1).expected == pytest.approx(1 / 2)
    assert rb.bounds("U", n=3, relevant=2).expected == pytest.approx(2 - 1)
    assert rb.bounds("AP", n=2, relevant=1).expected == pytest.approx(3 / 4)
    assert rb.bounds("AP", n=3, relevant=2).expected == pytest.approx(29 / 36)


@given(st.integers(2, 60), st.data())
@examples(50)
def test_expected_ap_equals_the_hypergeometric_sum_of_the_thesis(n, data):
    """Equation 3.10: the i-th relevant item at rank r, summed."""
    p = data.draw(st.integers(1, n))
    total = sum(
        (i / r) ** 2 * math.comb(p, i) * math.comb(n - p, r - i) / math.comb(n, r)
        for i in range(1, p + 1)
        for r in range(i, n - p + i + 1)
    )
    assert rb.bounds("AP", n=n, relevant=p).expected == pytest.approx(total / p)


# ---- published variants ----------------------------------------------------------------------------------------------


def test_published_sum_of_precisions_differs_from_the_exact_one():
    """k (P/N)^2 takes precision and relevance as independent, and k is not reached with fewer than k relevant items."""
    exact, published = rb.bounds("SP@5", n=20, relevant=4), rb.bounds("SP(variant='published')@5", n=20, relevant=4)
    assert published.expected == pytest.approx(5 * (4 / 20) ** 2)
    assert published.best == 5
    assert exact.best == 4
    assert exact.expected > 2 * published.expected
    ap = rb.bounds("AP(div='k', variant='published')@5", n=20, relevant=4)
    assert (ap.expected, ap.best) == (pytest.approx((4 / 20) ** 2), 1)


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_arrays_give_arrays_of_the_same_shape():
    bounds = rb.bounds("RR", n=[[2, 3], [4, 5]], relevant=1)
    assert bounds.expected.shape == (2, 2)
    assert bounds.worst[1, 1] == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n": 3}, "relevant must be non-negative integers"),
        ({"n": -3, "relevant": 1}, "n must be non-negative integers, got -3"),
        ({"n": 3.5, "relevant": 1}, "n must be non-negative integers"),
        ({"n": 3, "relevant": 4}, "relevant must not exceed n"),
        ({"n": 3, "relevant": 1, "labels": [1]}, "pass either labels or n and relevant"),
        ({"labels": []}, "labels must be finite numbers, at least one"),
        ({"labels": ["a"]}, "labels must be finite numbers"),
        ({"labels": [1.0, math.nan]}, "labels must be finite numbers"),
    ],
)
def test_arguments_are_checked(kwargs, message):
    with pytest.raises(ArgumentError, match=message):
        rb.bounds("AP", **kwargs)


def test_bounds_reject_bounded_measures():
    with pytest.raises(MeasureError, match="measure must be a plain measure"):
        rb.bounds("UL2(AP)", n=3, relevant=1)


def test_nothing_relevant_and_everything_relevant():
    for measure in CATALOG:
        for relevant in (0, 4):
            bounds = bounds_of(parse_measure(measure), LabelCounts.binary(4, relevant, label=max(1, int(measure.rel))))
            assert np.isfinite([bounds.worst, bounds.expected, bounds.best]).all()
            if measure.name not in ("DCG", "SP", "NumRet") or relevant == 0:
                assert bounds.worst[0] == pytest.approx(bounds.best[0])
