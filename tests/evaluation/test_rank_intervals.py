"""Intervals of ranks: coverage by simulation, and their definition by a loop over scipy's tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rankbound.evaluation.leaderboards import rank_intervals
from rankbound.evaluation.scores import ScoreMatrix

REPEATS = [pytest.param(1_000, marks=pytest.mark.full("1,000 simulated boards")), 150]


def board(random, qualities, queries=40, spread=0.15):
    ability = random.normal(0, 0.2, queries)
    noise = random.normal(0, spread, (len(qualities), queries))
    return ability + qualities[:, None] + noise


def matrix(values):
    names = tuple(f"s{i}" for i in range(len(values)))
    return ScoreMatrix(names, tuple(map(str, range(values.shape[1]))), {"AP": values})


@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("gap", [0.005, 0.05, 0.15])
def test_all_true_ranks_lie_in_their_intervals_in_95_percent_of_the_boards(gap, repeats):
    random = np.random.default_rng(int(1000 * gap))
    qualities = gap * np.arange(8)[::-1]
    covered = 0
    for _ in range(repeats):
        found = {row.system: row for row in rank_intervals(matrix(board(random, qualities)), "AP")}
        covered += all(found[f"s{i}"].low <= i + 1 <= found[f"s{i}"].high for i in range(8))
    assert covered / repeats >= 0.95 - (0 if repeats == 1_000 else 3 * np.sqrt(0.05 * 0.95 / repeats))


@pytest.mark.parametrize("seed", range(4))
def test_intervals_are_those_of_a_loop_over_tests(seed):
    random = np.random.default_rng(seed)
    values = board(random, random.normal(0, 0.1, 6))
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    p = np.array([stats.ttest_rel(values[i], values[j]).pvalue for i, j in pairs])
    order = np.argsort(p)
    rejected, open_ = set(), True
    for step, index in enumerate(order):
        open_ = open_ and p[index] < 0.05 / (len(pairs) - step)
        if open_:
            rejected.add(pairs[index])
    means = values.mean(axis=1)
    for row in rank_intervals(matrix(values), "AP"):
        i = int(row.system[1:])
        against = [(max(pair, key=lambda s: means[s]) == i) for pair in rejected if i in pair]
        assert (row.low, row.high) == (1 + against.count(False), 6 - against.count(True))
        assert row.rank == 1 + (means > means[i]).sum()
        assert row.low <= row.rank <= row.high


def test_lower_can_be_better():
    values = np.array([[0.1, 0.2, 0.1, 0.15, 0.1, 0.12], [5.0, 6, 5, 6, 5, 6.5]])
    scores = ScoreMatrix(("good", "bad"), tuple("123456"), {"U": values})
    assert [(row.system, row.low, row.may_be_first) for row in rank_intervals(scores, "U")] == [
        ("good", 1, True), ("bad", 2, False)
    ]  # fmt: skip
