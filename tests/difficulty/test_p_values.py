"""p-values against random rankings: brute force over all orders, level under the null, ties, and order of rows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import rankbound as rb
from rankbound.difficulty import difficulty_of
from rankbound.difficulty.distribution.choice import SAMPLES
from rankbound.difficulty.distribution.many import Distributions
from rankbound.difficulty.p_values import SMALLEST_P, p_values_of
from rankbound.evaluation import merge_evaluations
from rankbound.lists import Lists
from rankbound.measures import parse_measure, rank, values
from rankbound.testing import oracles
from rankbound.testing.strategies import CATALOG


def p_values(measure, labels, offsets, scores, ties="average"):
    measure = parse_measure(measure)
    ranking = rank(Lists(labels, offsets, scores), ties)
    return p_values_of(ranking, measure, difficulty_of(measure, ranking.counts))


def orders_of(labels, scores):
    """The labels in every order that sorts the scores in descending order, one for each permutation of the items."""
    return [
        tuple(labels[i] for i in order)
        for order in itertools.permutations(range(len(labels)))
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]


def small_queries():
    """Up to six items with labels 0 to 2 and scores of which many are tied; labels and scores per query."""
    random = np.random.default_rng(5)
    for size in (1, 2, 3, 4, 5, 6):
        for levels in (1, 2, size, 2 * size):
            yield random.integers(0, 3, size).tolist(), random.integers(0, levels, size).astype(float).tolist()


QUERIES = list(small_queries())
FITTING = [orders_of(labels, scores) for labels, scores in QUERIES]


@pytest.mark.parametrize("measure", CATALOG[::3], ids=str)
def test_brute_force_over_all_orders(measure):
    offsets = np.cumsum([0] + [len(labels) for labels, _ in QUERIES])
    flat = [np.concatenate(column) for column in zip(*QUERIES, strict=True)]
    p = p_values(measure, flat[0], offsets, flat[1])
    sign = -1 if measure.definition.lower_is_better else 1
    for query, ((labels, _), fitting) in enumerate(zip(QUERIES, FITTING, strict=True)):
        value = {order: sign * oracles.value(measure, order) for order in oracles.all_orders(labels)}
        every = np.array(list(value.values()))
        if np.ptp(every) < 1e-12:
            assert not p.choice[query]
            assert (p.better[query], p.worse[query], p.smallest[query], p.gain[query]) == (1, 1, 1, 0)
            continue
        own = np.array([value[order] for order in fitting])[:, None]
        assert p.choice[query]
        assert p.better[query] == pytest.approx((every >= own - 1e-9).mean(axis=1).mean(), abs=1e-12)
        assert p.worse[query] == pytest.approx((every <= own + 1e-9).mean(axis=1).mean(), abs=1e-12)
        above, same = every > own + 1e-9, np.abs(every - own) <= 1e-9
        assert p.mid[query] == pytest.approx((above + same / 2).mean(axis=1).mean(), abs=1e-12)
        assert p.smallest[query] == pytest.approx((every >= every.max() - 1e-9).mean(), abs=1e-12)
        assert p.gain[query] == pytest.approx(own.mean() - every.mean(), abs=1e-9)


def random_queries(random, queries, most=30):
    sizes = random.integers(2, most, queries)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return random.integers(0, 3, offsets[-1]) * (random.random(offsets[-1]) < 0.4), offsets


@pytest.mark.parametrize("measure", ["nDCG@5", "AP", "RR", "P@5", "U", "ERR@3", "Tau"])
@pytest.mark.parametrize("levels", [None, 4], ids=["no ties", "many ties"])
def test_p_values_of_random_rankings_keep_their_level(measure, levels):
    random = np.random.default_rng(11)
    labels, offsets = random_queries(random, 1000)
    scores = random.random(len(labels)) if levels is None else random.integers(0, levels, len(labels))
    p = p_values(measure, labels, offsets, scores.astype(float))
    assert 750 < p.choice.sum() <= 1000
    for side in (p.better, p.worse):
        for level in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5):
            chosen = side[p.choice]
            noise = 4 * math.sqrt(level * (1 - level) / len(chosen))
            assert (chosen <= level).mean() <= level + noise
    assert p.mid[p.choice].mean() == pytest.approx(0.5, abs=4 * math.sqrt(1 / 12 / p.choice.sum()))


@pytest.mark.parametrize("measure", CATALOG[1::11], ids=str)
def test_a_constant_scorer_is_never_better_and_never_worse(measure):
    random = np.random.default_rng(3)
    labels, offsets = random_queries(random, 60, most=12)
    p = p_values(measure, labels, offsets, np.zeros(len(labels)))
    # with more than 1,000 orders of ties the mean is over a sample of them, which may fall a little short of 1/2
    assert p.better.min() >= 0.5 - 4 * math.sqrt(1 / 12 / 1000)
    assert p.worse.min() >= 0.5 - 4 * math.sqrt(1 / 12 / 1000)
    np.testing.assert_allclose(p.mid[p.choice], 0.5, atol=4 * math.sqrt(1 / 12 / 1000))


def test_one_tied_block_of_which_few_orders_score_is_no_evidence():
    labels = [1] + [0] * 99
    p = p_values("P@1", labels, [0, 100], np.zeros(100))
    assert p.better[0] == pytest.approx((1 * 0.01 + 99 * 1) / 100, abs=0.01)


@pytest.mark.parametrize("measure", ["nDCG@10", "AP", "U", "RR"])
def test_the_best_ranking_has_the_smallest_p_value_and_the_worst_has_1(measure):
    random = np.random.default_rng(8)
    labels, offsets = random_queries(random, 50)
    p = p_values(measure, labels, offsets, labels + random.random(len(labels)) / 10)
    np.testing.assert_allclose(p.better[p.choice], p.smallest[p.choice], rtol=1e-9)
    assert (p.gain[p.choice] > 0).all()
    p = p_values(measure, labels, offsets, -labels + random.random(len(labels)) / 10)
    np.testing.assert_allclose(p.better, 1.0, atol=1e-9)
    assert (p.gain[p.choice] < 0).all()


def test_lower_is_better_reverses_the_tails():
    labels, scores = [1, 0, 0, 0], [4.0, 3.0, 2.0, 1.0]
    p = p_values("U", labels, [0, 4], scores)
    assert (p.better[0], p.worse[0]) == (0.25, 1.0)
    assert p.gain[0] == 1.5  # 0 wrong pairs instead of (0 + 1 + 2 + 3) / 4


def test_p_values_do_not_depend_on_the_order_of_rows():
    random = np.random.default_rng(21)
    labels, offsets = random_queries(random, 200)
    scores = random.integers(0, 6, len(labels)).astype(float)
    within = np.concatenate(
        [start + random.permutation(stop - start) for start, stop in itertools.pairwise(offsets.tolist())]
    )
    for measure in ("nDCG@5", "AP", "U"):
        before, after = (p_values(measure, labels[i], offsets, scores[i]) for i in (slice(None), within))
        np.testing.assert_allclose(before.better, after.better, atol=1e-12)
        np.testing.assert_allclose(before.worse, after.worse, atol=1e-12)


def test_other_policies_for_ties_rank_documents_in_one_order():
    labels, scores = [0, 1, 0, 0], [1.0, 1.0, 0.0, 0.0]
    assert p_values("RR", labels, [0, 4], scores, ties="input").better.tolist() == [0.5]
    assert p_values("RR", labels, [0, 4], scores).better.tolist() == [(0.25 + 0.5) / 2]


def test_a_sampled_distribution_counts_the_run_as_a_sample():
    points = (np.array([0.0, 1.0]), np.array([0.75, 0.25]))
    null = Distributions(
        [(*points, "sampled"), (*points, "enumeration"), (*points, "approximate")], np.array([0, 1, 0, 2])
    )
    assert null.resolution.tolist() == [1 / SAMPLES, 0.0, 1 / SAMPLES, 1e-8]
    from rankbound.difficulty.p_values import _tail

    p = _tail(null, np.array([2.0, 2.0, 1.0, 2.0]), at_most=False)
    assert p.tolist() == pytest.approx([1 / (1 + SAMPLES), 0.0, (1 + SAMPLES / 4) / (1 + SAMPLES), 1e-8])


@pytest.mark.parametrize("measure", ["nDCG@10", "ERR@10"])
def test_p_values_from_approximate_distributions_are_near_the_exact_ones(measure):
    random = np.random.default_rng(2)
    labels = random.choice(4, 40, p=[0.6, 0.2, 0.1, 0.1])
    exact = rb.distribution(measure, labels=labels, method="dynamic", cache=False)
    assert rb.distribution(measure, labels=labels, cache=False).method == "approximate"
    strength = np.linspace(0, 6, 60)  # from random orders to good ones
    scores = (strength[:, None] * labels / 3 + random.normal(size=(60, 40))).ravel()
    p = p_values(measure, np.tile(labels, 60), np.arange(61) * 40, scores)
    value = values(rank(Lists(np.tile(labels, 60), np.arange(61) * 40, scores)), parse_measure(measure))
    expected = exact.survival(value)
    likely = expected > 1e-6
    assert (expected < 1e-3).any()
    np.testing.assert_allclose(p.better[likely], expected[likely], rtol=0.02)
    assert p.better.min() >= 1e-8 / (1 + 1e-8) - 1e-20


@pytest.mark.parametrize(("measure", "least"), [("U", SMALLEST_P), ("AP", 1e-10)])
def test_tiny_tails_are_cut_off(measure, least):
    n = 300
    labels = np.arange(n) < 100
    p = p_values(measure, labels.astype(int), [0, n], np.arange(n, 0, -1.0))
    assert p.better.tolist() == pytest.approx([least])


def test_p_values_of_evaluations_are_merged():
    first = Lists([1, 0], [0, 2], [2.0, 1.0])
    second = Lists([0, 0, 0, 1], [0, 2, 4], [2.0, 1.0, 2.0, 1.0])
    parts = [rb.evaluate(lists, measures="RR", against_random=True) for lists in (first, second)]
    joined = merge_evaluations(parts).p_values["RR"]
    assert joined.better.tolist() == [0.5, 1.0, 1.0]
    assert joined.choice.tolist() == [True, False, True]
    assert len(joined) == 3
