"""Risk measures against loops over queries and systems."""

from __future__ import annotations

import math
import statistics
from statistics import NormalDist

import numpy as np
import pytest

from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.risk import geo_risk, t_risk, u_risk


@pytest.mark.parametrize("alpha", [0, 1, 5, 10])
@pytest.mark.parametrize("seed", range(5))
def test_risks_are_those_of_a_loop(alpha, seed):
    d = np.random.default_rng(seed).normal(0.02, 0.2, 50).round(2).tolist()
    wins = sum(x for x in d if x > 0)
    losses = sum(-x for x in d if x < 0)
    assert u_risk(d, alpha) == pytest.approx((wins - (1 + alpha) * losses) / 50, abs=1e-12)
    weighed = [x if x > 0 else (1 + alpha) * x for x in d]
    error = statistics.stdev(weighed) / math.sqrt(50)
    assert t_risk(d, alpha) == pytest.approx(statistics.mean(weighed) / error, abs=1e-10)


def test_a_small_table_by_hand():
    """Three queries with differences +0.3, -0.1, -0.1: URisk is (0.3 - (1 + alpha) 0.2) / 3."""
    for alpha, expected in ((0, 0.1 / 3), (0.5, 0.0), (1, -0.1 / 3), (4, -0.7 / 3)):
        assert u_risk([0.3, -0.1, -0.1], alpha) == pytest.approx(expected, abs=1e-12)
    assert t_risk([0.0, 0.0, 0.0]) == 0
    assert math.isnan(t_risk([0.1]))


@pytest.mark.parametrize("alpha", [0, 2, 10])
@pytest.mark.parametrize("seed", range(5))
def test_geo_risk_is_that_of_a_loop(alpha, seed):
    table = np.random.default_rng(seed).random((4, 12)).round(2)
    table[:, 3] = 0
    systems, queries = table.shape
    total = table.sum()
    expected = []
    for i in range(systems):
        risk = 0.0
        for j in range(queries):
            mean = table[i].sum() * table[:, j].sum() / total
            if mean == 0:
                continue
            z = (table[i, j] - mean) / math.sqrt(mean)
            risk += z if z > 0 else (1 + alpha) * z
        expected.append(math.sqrt(table[i].mean() * NormalDist().cdf(risk / queries)))
    assert geo_risk(table, alpha).tolist() == pytest.approx(expected, abs=1e-12)


def test_wrong_input_is_refused():
    for call in (lambda: u_risk([0.1], -1), lambda: t_risk([0.1, 0.2], math.nan), lambda: geo_risk([[0.1]], math.inf)):
        with pytest.raises(ArgumentError, match="alpha must be"):
            call()
    with pytest.raises(DataError):
        geo_risk([[0.1, -0.1]])
    with pytest.raises(DataError):
        u_risk([])
