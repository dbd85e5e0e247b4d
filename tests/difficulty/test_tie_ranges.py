"""Ranges over the orders of ties, against enumeration of all orders."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.difficulty.tie_ranges import tie_ranges
from rankbound.measures import is_defined, parse_measure, rank
from rankbound.testing import oracles
from rankbound.testing.strategies import catalog, measures, scored_lists
from tests.tiers import examples

JUDGMENT_MEASURES = ("Bpref", "infAP", "Judged@2", "Judged@4", "nDCG@3", "AP", "RR", "U", "PairAcc", "NumRet")


def orders_of(scores):
    """Positions in every order that the scores allow."""
    blocks = [[i for i, each in enumerate(scores) if each == score] for score in sorted(set(scores), reverse=True)]
    for parts in itertools.product(*(itertools.permutations(block) for block in blocks)):
        yield list(itertools.chain(*parts))


def by_oracle(measure, lists, depth):
    """Smallest and largest value of each query over the orders of its ties."""
    result = []
    for a, b in itertools.pairwise(lists.offsets.tolist()):
        labels = lists.labels[a:b].tolist()
        rows = {tuple(labels[i] for i in order) for order in orders_of(lists.scores[a:b].tolist())}
        values = [oracles.value(measure, row, depth) for row in rows]
        result.append((min(values), max(values)))
    return np.array(result).T


@given(lists=scored_lists(max_queries=3, max_items=6), measure=measures(), depth=st.none() | st.integers(1, 7))
@examples(300)
def test_ranges_are_those_of_all_orders(lists, measure, depth):
    ranked = rank(lists, depth=depth)
    found = np.array(tie_ranges(measure, ranked))
    defined = is_defined(ranked.counts, measure)
    np.testing.assert_allclose(found[:, defined], by_oracle(measure, lists, depth)[:, defined], atol=1e-12)


SEVEN = rb.Lists(
    [0, 2, 1, 0, 1, 3, 0, 1, 0, 2, 0, 1, 0, 0, 0, 1, 0, 3, 1, 2, -1],
    [0, 7, 14, 21],
    [5.0, 5, 5, 5, 1, 1, 1, 9, 8, 8, 7, 7, 6, 6, 0, 0, 0, 0, 0, 0, 0],
)


@pytest.mark.parametrize("depth", [None, 3, 5])
@pytest.mark.parametrize("measure", catalog(range(1, 8, 2)), ids=str)
def test_every_measure_of_seven_documents(measure, depth):
    found = np.array(tie_ranges(measure, rank(SEVEN, depth=depth)))
    defined = is_defined(rank(SEVEN, depth=depth).counts, measure)
    np.testing.assert_allclose(found[:, defined], by_oracle(measure, SEVEN, depth)[:, defined], atol=1e-12)


@pytest.mark.parametrize("name", JUDGMENT_MEASURES)
@pytest.mark.parametrize("seed", range(12))
def test_documents_without_judgment_tie_too(name, seed):
    """Every order of the ties is given to evaluate as a run without ties."""
    random = np.random.default_rng(seed)
    documents = "abcdefg"
    qrels = {"q": {d: int(random.integers(-1, 3)) for d in documents[:5] if random.random() < 0.8} | {"z": 1}}
    run = {"q": {d: float(random.integers(0, 3)) for d in documents if d in "fg" or random.random() < 0.7}}
    names = list(run["q"])
    values = []
    for order in orders_of(list(run["q"].values())):
        strict = {"q": {names[i]: float(-rank) for rank, i in enumerate(order)}}
        values.append(rb.evaluate(qrels, strict, name).values[name][0])
    low, high = tie_ranges(parse_measure(name), rank(rb.Lists.from_dicts(qrels, run)))
    assert (low[0], high[0]) == pytest.approx((min(values), max(values)), abs=1e-12)


def test_a_constant_scorer_has_the_range_of_all_rankings():
    labels = [2, 0, 1, 0, 0, 1]
    for measure in catalog(range(3, 4)):
        if measure.name == "Judged":
            continue
        bounds = rb.bounds(measure, labels=labels)
        low, high = tie_ranges(measure, rank(rb.Lists(labels, [0, 6], np.zeros(6))))
        assert (low[0], high[0]) == pytest.approx(sorted((bounds.worst, bounds.best)), abs=1e-12)
