"""Bpref and infAP, which tell judged documents from others: values, ties, bounds and distributions by brute force."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

import rankbound as rb
from rankbound.measures import LabelCounts, Ranked, parse_measure, rank, values
from rankbound.testing import oracles

NAMES = ("Bpref", "Bpref(rel=2)", "infAP", "infAP(rel=2)")
NOT_POOLED = None  # in place of a label: the document has no judgment
LABEL_SETS = [s for n in range(1, 7) for s in itertools.combinations_with_replacement((2, 1, 0, -1, -2), n)]


def bpref(order, rel, depth):
    """The loop of trec_eval's m_bpref.c."""
    relevant = sum(label is not None and label >= rel for label in order)
    others = sum(label is not None and 0 <= label < rel for label in order)
    above, total = 0, Fraction(0)
    for label in order[:depth]:
        if label is None or label < 0:
            continue
        if label < rel:
            above += 1
        else:
            total += 1 - (Fraction(min(above, relevant), min(others, relevant)) if above else 0)
    return float(total / relevant) if relevant else 0.0


def inferred_ap(order, rel, depth):
    """The loop of trec_eval's m_infap.c."""
    epsilon, total, hits, others, pooled = 0.00001, 0.0, 0, 0, 0
    for j, label in enumerate(order[:depth]):
        if label is None:
            continue
        if label < 0:
            pooled += 1
        elif label < rel:
            others += 1
        else:
            inferred = (hits + epsilon) / (hits + others + 2 * epsilon)
            total += 1 / (j + 1) + j / (j + 1) * ((hits + others + pooled) / j) * inferred if j else 1.0
            hits += 1
    relevant = sum(label is not None and label >= rel for label in order)
    return total / relevant if relevant else 0.0


def value_in_order(name, order, depth=None):
    measure = parse_measure(name)
    loop = bpref if measure.name == "Bpref" else inferred_ap
    return loop(order, measure.rel, len(order) if depth is None else depth)


def all_orders(items):
    """Distinct orders, each of which stands for equally many permutations."""
    return set(itertools.permutations(items))


def clipped(labels):
    return tuple(max(label, -1) for label in labels)  # any label below 0 is as -1; it makes fewer orders


def mean_over_ties(name, kinds, scores, depth):
    blocks = [[k for k, s in zip(kinds, scores, strict=True) if s == score] for score in sorted(set(scores))[::-1]]
    orders = [sum(parts, ()) for parts in itertools.product(*map(all_orders, blocks))]
    return math.fsum(value_in_order(name, order, depth) for order in orders) / len(orders)


def lists_of(kinds, scores, returned=None):
    labels = [0 if kind is NOT_POOLED else kind for kind in kinds]
    judged = [kind is not NOT_POOLED for kind in kinds]
    return rb.Lists(labels, [0, len(labels)], scores, judged=judged, depths=returned)


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_values_of_pytrec_eval(seed):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(seed)
    qrels, run = {}, {}
    for q in range(60):
        docs = [f"d{d}" for d in range(int(rng.integers(2, 40)))]
        judged = [d for d in docs if rng.random() < 0.7] or docs[:1]
        qrels[f"q{q}"] = {d: int(rng.choice([-3, -2, -1, 0, 1, 2])) for d in judged} | {"x": 1, "y": 0}
        run[f"q{q}"] = {d: float(rng.integers(0, 5)) for d in docs}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"bpref", "infAP"}).evaluate(run)
    ours = rb.evaluate(qrels, run, ["Bpref", "infAP"], ties="docid").per_query
    for row in ours.iter_rows(named=True):
        assert row["Bpref"] == pytest.approx(theirs[row["qid"]]["bpref"], abs=1e-12)
        assert row["infAP"] == pytest.approx(theirs[row["qid"]]["infAP"], abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_ties_are_means_over_all_orders(name):
    """Also of unjudged documents, of documents that were not returned, and of ties that a depth cuts."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        kinds = [(NOT_POOLED, -2, -1, 0, 0, 1, 2)[i] for i in rng.integers(0, 7, int(rng.integers(1, 8)))]
        scores = rng.integers(0, 3, len(kinds)).astype(float)
        for depth in (None, int(rng.integers(1, len(kinds) + 1))):
            (ours,) = values(rank(lists_of(kinds, scores), depth=depth), parse_measure(name))
            expected = mean_over_ties(name, kinds, scores, depth)
            assert ours == pytest.approx(expected, abs=1e-12), (kinds, scores, depth)
        returned = int(rng.integers(0, len(kinds) + 1))
        (ours,) = values(rank(lists_of(kinds, scores, [returned])), parse_measure(name))
        seen = [s if i < returned else -1.0 - i for i, s in enumerate(scores)]
        expected = mean_over_ties(name, kinds, seen, returned)
        assert ours == pytest.approx(expected, abs=1e-12), (kinds, scores, returned)


@pytest.mark.parametrize("name", NAMES)
def test_one_block_of_eight_documents_with_every_depth(name):
    for kinds in ([2, 1, 0, 0, 0, 0, NOT_POOLED, -1], [1, 2, 2, 1, 0, 0, -1, -1], [1, 0, 0, 0, 0, 2, 0, NOT_POOLED]):
        for depth in range(1, 9):
            (ours,) = values(rank(lists_of(kinds, np.zeros(8)), depth=depth), parse_measure(name))
            assert ours == pytest.approx(mean_over_ties(name, kinds, np.zeros(8), depth), abs=1e-12)


@pytest.mark.parametrize("name", ["Bpref", "infAP"])
@pytest.mark.parametrize("depth", [None, 150])
def test_long_ties_agree_with_random_orders(name, depth):
    rng = np.random.default_rng(1)
    kinds = np.array([NOT_POOLED, -1, 0, 1], dtype=object)[rng.choice(4, 400, p=[0.5, 0.1, 0.35, 0.05])].tolist()
    scores = np.repeat(np.arange(4.0), 100)
    (ours,) = values(rank(lists_of(kinds, scores), depth=depth), parse_measure(name))
    drawn = []
    for _ in range(2_000):
        order = np.lexsort((rng.random(400), -scores))
        drawn.append(value_in_order(name, [kinds[i] for i in order], depth))
    assert abs(ours - np.mean(drawn)) < 4.5 * np.std(drawn) / math.sqrt(2_000)


@pytest.mark.parametrize("name", ["Bpref", "infAP"])
def test_large_ties_need_no_draws_and_little_memory(name, monkeypatch):
    def fail(*_):
        raise AssertionError("ties of this measure have an exact mean")

    monkeypatch.setattr(Ranked, "mean_over_ties", fail)
    rng = np.random.default_rng(2)
    judged = rng.random(20_000) < 0.3
    labels = np.where(judged, rng.integers(-1, 3, 20_000), 0)
    lists = rb.Lists(labels, [0, 10_000, 20_000], rng.integers(0, 10, 20_000).astype(float), judged=judged)
    assert (values(rank(lists), parse_measure(name)) > 0).all()


def test_a_block_of_thousands_of_documents():
    """infAP of one block, summed over all ranks of relevant documents and all numbers of judged ones above."""
    relevant, others, pooled, unpooled, epsilon = 30, 600, 170, 1_200, 0.00001
    n, judged = relevant + others + pooled + unpooled, relevant + others - 1
    above = np.arange(n)[:, None]
    j = np.arange(judged + 1)[None, :]
    probability = scipy.stats.hypergeom.pmf(j, n - 1, judged, above)
    hits = j * (relevant - 1) / judged
    in_pool = j + (above - j) * pooled / (pooled + unpooled)
    precision = (1 + in_pool * (hits + epsilon) / (j + 2 * epsilon)) / (above + 1)
    expected = (probability * precision).sum() / n
    kinds = [1] * relevant + [0] * others + [-1] * pooled + [NOT_POOLED] * unpooled
    (ours,) = values(rank(lists_of(kinds, np.zeros(n))), parse_measure("infAP"))
    assert ours == pytest.approx(expected, rel=1e-10)


# ---- bounds and distributions ----------------------------------------------------------------------------------------


def test_the_bounds_of_a_pooled_document():
    """Of the two orders of the judged documents, one has the value 1 and one 0."""
    assert rb.bounds("Bpref", labels=[1, 0, -1]).expected == pytest.approx((1 + 0) / 2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limit", [None, 3])
def test_bounds_and_distribution_are_those_of_all_orders(name, limit):
    for labels in LABEL_SETS:
        drawn = sorted(value_in_order(name, order, limit) for order in all_orders(clipped(labels)))
        mean = math.fsum(drawn) / len(drawn)
        bounds = rb.bounds(name, labels=labels, depth=limit)
        got = (bounds.worst, bounds.expected, bounds.best)
        assert got == pytest.approx((drawn[0], mean, drawn[-1]), abs=1e-12), labels
        null = rb.distribution(name, labels=labels, depth=limit, cache=False)
        variance = math.fsum((value - mean) ** 2 for value in drawn) / len(drawn)
        assert (null.mean, null.std**2) == pytest.approx((mean, variance), abs=1e-9), labels
        for value in set(drawn):
            at_least = sum(other >= value - 1e-9 for other in drawn) / len(drawn)
            assert null.survival(value - 1e-9) == pytest.approx(at_least, abs=1e-9), (labels, value)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_and_distributions_of_many_queries_are_those_of_each(name):
    from rankbound.difficulty import difficulty_of

    sets = LABEL_SETS[::7]
    flat, offsets = np.concatenate(sets), np.cumsum([0, *map(len, sets)])
    measure, counts = parse_measure(name), LabelCounts.from_labels(flat, offsets)
    difficulty = difficulty_of(measure, counts.take(np.arange(len(sets))[::-1]))
    means = difficulty.distribution().expectation(lambda scores, query: scores)
    for row, labels in enumerate(sets[::-1]):
        bounds = rb.bounds(name, labels=labels)
        got = (difficulty.worst[row], difficulty.expected[row], difficulty.best[row])
        assert got == pytest.approx((bounds.worst, bounds.expected, bounds.best), abs=1e-12)
        assert means[row] == pytest.approx(bounds.expected, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_scorer_has_the_expected_value(name):
    for labels in LABEL_SETS:
        if max(labels) < parse_measure(name).rel:
            continue
        lists = rb.Lists(labels, [0, len(labels)], np.zeros(len(labels)))
        expected = rb.bounds(name, labels=labels).expected
        assert rb.evaluate(lists, [name]).mean()[name] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("wrapper", ["MM", "EB", "EM", "UL1", "UL2", "DB"])
@pytest.mark.parametrize("name", ["Bpref", "infAP"])
def test_wrappers_follow_the_same_rule(wrapper, name):
    """The mean over all orders of a wrapped value, by the values of all orders; judged documents are not returned."""
    qrels = {"q": {"a": 1, "b": 0, "c": -1, "d": 2, "e": 0}}
    run = {"q": {"c": 3.0, "b": 2.0, "d": 2.0}}  # a and e follow in either order
    measure = f"{wrapper}({name})"
    every = sorted(value_in_order(name, order) for order in all_orders((1, 0, -1, 2, 0)))
    worst, mean, best = every[0], math.fsum(every) / len(every), every[-1]
    formulas = {
        "MM": lambda x: (x - worst) / (best - worst),
        "EB": lambda x: x / mean,
        "EM": lambda x: (x - mean) / (best - mean),
        "UL1": lambda x: x / best * x / (x + mean),
        "UL2": lambda x: (x - mean) / (best - mean) if x >= mean else (x - mean) / mean,
        "DB": lambda x: sum(other <= x + 1e-9 for other in every) / len(every),
    }
    orders = [(-1, *first, *last) for first in ((0, 2), (2, 0)) for last in ((1, 0), (0, 1))]
    expected = sum(formulas[wrapper](value_in_order(name, order)) for order in orders) / len(orders)
    assert rb.evaluate(qrels, run, [measure]).mean()[measure] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["Bpref", "infAP"])
def test_distributions_of_long_lists(name):
    """Mean and tail probabilities against random orders."""
    rng = np.random.default_rng(3)
    labels = np.repeat([1, 0, -1], [6, 20, 14])
    null = rb.distribution(name, labels=labels, cache=False)
    assert null.mean == pytest.approx(rb.bounds(name, labels=labels).expected, abs=1e-9)
    drawn = np.array([value_in_order(name, rng.permutation(labels).tolist()) for _ in range(4_000)])
    for x in np.quantile(drawn, [0.1, 0.5, 0.9]) - 1e-7:
        fraction = (drawn >= x).mean()
        assert abs(null.survival(x) - fraction) < 4.5 * math.sqrt(fraction * (1 - fraction) / 4_000) + 2e-3


@pytest.mark.parametrize("depth", [None, 5])
@pytest.mark.parametrize("name", ["Bpref", "infAP"])
def test_sampled_distributions(name, depth):
    """Draws of a query with documents of the pool that were not judged, against all orders."""
    labels = np.repeat([1, 0, -1], [2, 3, 4])
    exact = [value_in_order(name, order, depth) for order in all_orders(labels.tolist())]
    null = rb.distribution(name, labels=labels, depth=depth, method="sampled", samples=40_000, cache=False)
    for x in set(exact):
        fraction = np.mean(np.array(exact) >= x - 1e-9)
        error = 4.5 * math.sqrt(fraction * (1 - fraction) / 40_000) + 1e-9
        assert null.survival(x - 1e-9) == pytest.approx(fraction, abs=error)


@pytest.mark.parametrize("name", ["Bpref", "infAP"])
def test_distributions_of_a_pool_of_which_few_documents_were_judged(name):
    labels = np.repeat([1, 0, -1], [20, 200, 800])
    null = rb.distribution(name, labels=labels, samples=20_000, cache=False)
    error = 4.5 * null.std / math.sqrt(20_000)
    assert null.mean == pytest.approx(rb.bounds(name, labels=labels).expected, abs=error)


@pytest.mark.parametrize("wrapper", ["UL1", "UL2", "DB"])
@pytest.mark.parametrize("name", ["Bpref", "infAP"])
def test_a_constant_scorer_has_the_mean_of_all_rankings_under_a_wrapper(wrapper, name):
    """Also where the orders are too many to go through; the other way to this mean is that over the distribution."""
    from rankbound.difficulty import get_bounding
    from rankbound.difficulty.bounding import difficulty_of
    from rankbound.measures import BOUNDINGS

    labels = np.repeat([2, 1, 0, -1, -2], [1, 2, 4, 3, 2])
    null = rb.distribution(name, labels=labels, cache=False)
    difficulty = difficulty_of(parse_measure(name), LabelCounts.from_labels(labels, [0, 12]))
    same = difficulty.take(np.zeros(len(null.scores), dtype=np.int64))
    bounded = get_bounding(BOUNDINGS[wrapper]).apply(null.scores, same)[0]
    constant = rb.Lists(labels, [0, 12], np.zeros(12))
    measure = f"{wrapper}({name})"
    error = 1e-3 if wrapper == "DB" else 1e-9  # DB takes the fast distribution of many queries
    assert rb.evaluate(constant, [measure]).mean()[measure] == pytest.approx(bounded @ null.probabilities, abs=error)


@pytest.mark.parametrize("wrapper", ["UL1", "UL2", "DB"])
@pytest.mark.parametrize("name", ["Bpref", "infAP"])
def test_wrappers_of_blocks_of_ties_are_means_over_their_orders(wrapper, name):
    rng = np.random.default_rng(5)
    measure = parse_measure(f"{wrapper}({name})")
    for _ in range(40):
        labels = rng.choice([-2, -1, 0, 0, 1, 2], int(rng.integers(2, 8)))
        labels[0] = 1
        scores = rng.integers(0, 3, len(labels)).astype(float)
        ours = rb.evaluate(rb.Lists(labels, [0, len(labels)], scores), [measure], empty="skip").per_query[str(measure)]
        if ours[0] is not None and not math.isnan(ours[0]):
            expected = oracles.mean_over_tie_breaks(measure, labels.tolist(), scores.tolist())
            assert ours[0] == pytest.approx(expected, abs=1e-9), (labels, scores)
