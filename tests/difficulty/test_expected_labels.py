"""Exact expected values over unknown labels against brute force: every labeling with its probability."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from rankbound.difficulty.unknown.exact import LabelProbabilities, exact_values, probability_of_empty
from rankbound.difficulty.unknown.expected import draw_labels
from rankbound.difficulty.unknown.ranking import UnknownRanking
from rankbound.lists import Lists
from rankbound.measures import is_defined, parse_measure, values
from tests import tiers

ANY_PROBABILITIES = ("DCG@3", "P@3", "RBP", "RBP(rel=2)@3", "ERR@4", "ERR", "RR", "RR@2", "Success@2")
EQUAL_PROBABILITIES = (
    "nDCG", "nDCG@3", "nDCG(dcg='exp-log2')@2", "LetorNDCG@4", "AP", "AP@3", "AP(rel=2)", "AP(div='min')@3",
    "AP(div='k')@4", "SP@3", "R@3", "R(rel=2)@2", "nRBP", "nRBP@4", "SetF", "SetP",
)  # fmt: skip
NEVER = ("Rprec", "RBP(gain='graded')")


def _ranking(rng, top, ties):
    """A query with at most 4 unknown documents, some of the known ones not returned, and maybe nothing relevant."""
    n, missing = int(rng.integers(1, 8)), int(rng.integers(0, 3))
    judged = rng.random(n) > rng.choice([0.2, 0.5, 0.8])
    judged[np.flatnonzero(~judged)[4:]] = True
    judged = np.append(judged, np.ones(missing, dtype=bool))
    labels = np.where(judged, rng.integers(0, top + 1, n + missing) * (rng.random() < 0.8), 0)
    scores = np.append((rng.integers(0, 3, n) if ties else rng.permutation(n)).astype(float), np.full(missing, -np.inf))
    lists = Lists(labels, [0, n + missing], scores, np.arange(n + missing).astype(str), None, [n], judged)
    return UnknownRanking(lists, "average", None if ties or rng.random() < 0.5 else 3)


def _probabilities(rng, unknown, top, equal):
    rows = rng.dirichlet(np.full(top + 1, rng.choice([0.3, 1, 3])), size=1 if equal else unknown)[:, 1:]
    return LabelProbabilities(np.repeat(rows, unknown, axis=0) if equal else rows, np.arange(1, top + 1))


def _brute_force(ranking, measure, given):
    """Expected value with 0 where the measure is not defined, and the probability that it is not."""
    top, unknown = len(given.grades), len(ranking.unknown)
    rows = np.column_stack((1 - given.rows.sum(axis=1), given.rows))
    value = empty = 0.0
    for labels in itertools.product(range(top + 1), repeat=unknown):
        probability = np.prod([rows[at, label] for at, label in enumerate(labels)])
        ranked = ranking.with_unknown(np.array(labels, dtype=np.int64))
        if is_defined(ranked.counts, measure)[0]:
            value += probability * values(ranked, measure)[0]
        else:
            empty += probability
    return value, empty


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("equal", [False, True])
def test_exact_values_are_those_of_all_labelings(equal, ties):
    rng = np.random.default_rng(2 * equal + ties)
    for _ in range(len(tiers.some(range(60), 10))):
        top = int(rng.integers(1, 4))
        ranking = _ranking(rng, top, ties)
        given = _probabilities(rng, len(ranking.unknown), top, equal)
        for name in ANY_PROBABILITIES + EQUAL_PROBABILITIES:
            measure = parse_measure(name)
            (found,) = exact_values(ranking, measure, given)
            value, empty = _brute_force(ranking, measure, given)
            assert probability_of_empty(ranking, measure, given)[0] == pytest.approx(empty, abs=1e-13), name
            if equal or name in ANY_PROBABILITIES or len(ranking.unknown) < 2:
                assert found == pytest.approx(value, abs=1e-13), name
            else:
                assert np.isnan(found), name
        for name in NEVER:
            assert np.isnan(exact_values(ranking, parse_measure(name), given)).all()


@pytest.mark.parametrize(("name", "p"), [("nDCG@10", (0.1, 0.05)), ("nDCG", (0.02, 0.9)), ("nDCG@3", (0.0, 1.0))])
def test_numbers_of_many_documents(name, p):
    rng = np.random.default_rng(3)
    n, unknown = 90, 70
    judged = np.ones(n, dtype=bool)
    judged[rng.choice(n, unknown, replace=False)] = False
    labels = np.where(judged, rng.integers(0, 4, n), 0)  # label 3 is that of no unknown document
    ranking = UnknownRanking(Lists(labels, [0, n], rng.permutation(n).astype(float), judged=judged))
    measure = parse_measure(name)
    discounts = 1 / np.log2(np.arange(2, n + 2)) * (np.arange(n) < (measure.cutoff or n))
    known = float(labels[ranking.position] @ discounts)
    mean_discount = discounts[ranking.unknown].mean()
    expected = 0.0
    for ones in range(unknown + 1):
        for twos in range(unknown + 1 - ones):
            numbers = [unknown - ones - twos, ones, twos]
            probability = stats.multinomial.pmf(numbers, unknown, [1 - sum(p), *p])
            best = np.sort(np.concatenate((labels[judged], np.repeat([0, 1, 2], numbers))))[::-1]
            expected += probability * (known + (ones + 2 * twos) * mean_discount) / (best @ discounts)
    given = LabelProbabilities(np.tile(p, (unknown, 1)), np.array([1, 2]))
    assert exact_values(ranking, measure, given)[0] == pytest.approx(expected, abs=1e-10)


def test_draws_agree_with_exact_values():
    rng = np.random.default_rng(5)
    n = 1_200
    judged = rng.random(n) > 0.6
    scores = rng.random(n)
    labels = np.where(judged & (scores < 0.95), rng.integers(0, 3, n), 0)  # the first relevant one may be unknown
    lists = Lists(labels, [0, n], scores, judged=judged)
    ranking = UnknownRanking(lists)
    given = LabelProbabilities(np.tile([0.08, 0.03], (len(ranking.unknown), 1)), np.array([1, 2]))
    requested = {name: parse_measure(name) for name in ("nDCG", "nDCG@10", "AP", "RR", "P@20", "Rprec")}
    found = draw_labels(ranking, requested, given, draws=400)
    for name, draws in found.items():
        error = draws.values.std(ddof=1) / 20
        assert draws.expected[0] == pytest.approx(draws.values.mean(), abs=4 * error)
        assert draws.error_of_mean == (pytest.approx(error) if name == "Rprec" else 0.0)
        assert draws.is_exact[0] == (name != "Rprec")


def test_too_many_numbers_are_left_to_draws():
    n = 3_000
    lists = Lists(np.zeros(n, dtype=int), [0, n], np.arange(float(n)), judged=np.zeros(n, dtype=bool))
    ranking = UnknownRanking(lists)
    given = LabelProbabilities(np.full((n, 4), 0.1), np.arange(1, 5))
    assert np.isnan(exact_values(ranking, parse_measure("nDCG"), given)[0])
    assert not np.isnan(exact_values(ranking, parse_measure("nDCG@10"), given)[0])
