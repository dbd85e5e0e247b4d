"""What the table of docs/concepts/bounding.md says of each wrapper, for all rankings of generated queries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.difficulty import Difficulty, bounds_of, difficulty_of, get_bounding
from rankbound.errors import MeasureError
from rankbound.measures import BOUNDINGS, LabelCounts, Measure, parse_measure, rank, values
from rankbound.testing import oracles
from rankbound.testing.strategies import measures
from tests.tiers import examples

labels = st.lists(st.integers(0, 3), min_size=2, max_size=6)


class AllRankings:
    """Every ranking of a query: values of the plain measure, and of the wrappers."""

    def __init__(self, measure: Measure, labels: list[int]) -> None:
        orders = np.array(list(oracles.all_orders(labels)))
        scores = np.tile(-np.arange(len(labels), dtype=float), len(orders))
        ranked = rank(rb.Lists(orders.ravel(), np.arange(len(orders) + 1) * len(labels), scores))
        self.measure, self.ranked, self.x = measure, ranked, values(ranked, measure)
        self.difficulty: Difficulty = difficulty_of(measure, ranked.counts)
        bounds = bounds_of(measure, LabelCounts.from_labels(labels, [0, len(labels)]))
        self.worst, self.expected, self.best = (float(a[0]) for a in (bounds.worst, bounds.expected, bounds.best))
        assume(self.worst != self.best)

    def __call__(self, name: str) -> np.ndarray:
        """The values of a bounding."""
        return get_bounding(name).apply(self.x, self.difficulty)[0]


def near(value: float) -> object:
    return pytest.approx(value, abs=1e-9)


@given(measures(), labels)
@examples(150)
def test_affine_wrappers(measure, labels):
    rankings = AllRankings(measure, labels)
    worst, expected, best = rankings.worst, rankings.expected, rankings.best
    mm, em = rankings("min-max"), rankings("expectation-max")
    assert (mm.min(), mm.max(), mm.mean()) == (near(0), near(1), near((expected - worst) / (best - worst)))
    assert (em.min(), em.max(), em.mean()) == (near(-(expected - worst) / (best - expected)), near(1), near(0))
    z = rankings("z-score")
    spread = np.sqrt(np.mean((rankings.x - expected) ** 2))
    assert (z.mean(), (z**2).mean(), z.max()) == (near(0), near(1), near(abs(best - expected) / spread))
    if measure.definition.floor >= 0 and expected:  # EB is refused for measures whose expected value is 0
        eb = rankings("expectation")
        assert eb.mean() == near(1)
        assert sorted((eb.min(), eb.max())) == [near(side) for side in sorted((worst / expected, best / expected))]


@given(measures(), labels)
@examples(150)
def test_distribution(measure, labels):
    rankings = AllRankings(measure, labels)
    db = rankings("distribution")
    same = np.mean(np.abs(rankings.x[:, None] - rankings.x) < 1e-9)
    assert db.min() > 0
    assert db.max() == near(1)
    assert db.mean() == near((1 + same) / 2)
    assert db.mean() > 0.5
    logarithm = rankings("log-distribution")
    assert logarithm.min() >= 0
    assert logarithm.max() == near(math.log(1e12))
    assert round(math.log(1e12), 1) == 27.6


@given(measures(), labels)
@examples(150)
def test_ul1(measure, labels):
    try:
        measure.bounded("UL1")
    except MeasureError:
        assume(False)
    rankings = AllRankings(measure, labels)
    ul1 = rankings("UL1")
    assert ul1.min() >= 0
    assert ul1.max() == near(rankings.best / (rankings.best + rankings.expected))
    assert ul1.max() < 1


@given(measures(), labels)
@examples(150)
def test_ul2_and_its_centered_form(measure, labels):
    rankings = AllRankings(measure, labels)
    ul2, centered, x = rankings("UL2"), rankings("UL2-centered"), rankings.x
    lower = rankings.worst if measure.definition.lower_is_better else measure.definition.floor
    deviation = np.abs(x - rankings.expected).mean()
    mean = deviation / 2 * (1 / abs(rankings.best - rankings.expected) - 1 / abs(rankings.expected - lower))
    assert ul2.min() >= -1 - 1e-9
    assert ul2.max() == near(1)
    assert ul2.mean() == near(mean)
    assert (centered.max(), centered.mean()) == (near(1), near(0))
    assert centered.min() >= -(1 + mean) / (1 - mean) - 1e-9
    np.testing.assert_allclose(centered, (ul2 - mean) / (1 - mean), atol=1e-9)


def test_only_some_are_affine():
    """On three points of a line the middle value is the mean of the others, if the wrapper is affine."""
    difficulty = difficulty_of(parse_measure("nDCG"), LabelCounts.binary([9] * 3, [3] * 3))
    expected, best = difficulty.expected[0], difficulty.best[0]
    for ends, affine in (
        ((0.5, 1.0), ("MM", "EB", "EM", "Z")),
        ((expected, best), ("MM", "EB", "EM", "Z", "UL2", "UL2C")),
    ):
        low, high = ends
        for wrapper, name in BOUNDINGS.items():
            value = get_bounding(name).apply(np.array([low, (low + high) / 2, high]), difficulty)[0]
            assert (abs(value[0] + value[2] - 2 * value[1]) < 1e-9) == (wrapper in affine), wrapper


def test_em_can_be_below_minus_one():
    bounds = rb.bounds("P@1", n=3, relevant=2)
    assert (bounds.worst - bounds.expected) / (bounds.best - bounds.expected) == pytest.approx(-2)


def test_the_closed_example():
    """One relevant document of three: P@1 is 1 with probability 1/3, so the mean of UL2 is 1/3 - 2/3."""
    constant = rb.Lists([1, 0, 0], [0, 3], [0.0, 0.0, 0.0])
    means = rb.evaluate(constant, ["EM(P@1)", "UL2(P@1)", "UL2C(P@1)", "DB(P@1)"]).mean()
    assert [*means.values()] == [near(0), near(1 / 3 - 2 / 3), near(0), near((1 + 1 / 9 + 4 / 9) / 2)]


def test_ul2_centered_is_undefined_without_a_choice():
    lists = rb.Lists([1, 1, 0, 0], [0, 2, 4], [1.0, 0.0, 1.0, 0.0])
    result = rb.evaluate(lists, ["UL2C(AP)"])
    assert np.isnan(result.values["UL2C(AP)"]).all()


@pytest.mark.parametrize("name", ["UL2C(nDCG(dcg='exp-log2')@10)", "UL2C(AP)", "UL2C(U)", "UL2C(Tau)"])
def test_name_of_ul2_centered(name):
    measure = parse_measure(name)
    assert (str(measure), measure.bounding, measure.is_lower_better) == (name, "UL2-centered", False)
    assert str(measure.plain) == name.removeprefix("UL2C(").removesuffix(")")
