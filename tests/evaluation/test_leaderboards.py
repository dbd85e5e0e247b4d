"""Leaderboards over several data sets: coverage of rank intervals by simulation, and their parts by loops."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from scipy import stats

import rankbound as rb
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import rank_systems
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.leaderboards import leaderboard_of
from rankbound.evaluation.scores import ScoreMatrix

REPEATS = [pytest.param(1_000, marks=pytest.mark.full("1,000 simulated boards")), 60]
MEASURE = "EM(nDCG@10)"
DRAWS = Inference(resamples=1_000)


def board(random, qualities, data_sets=5, queries=30, spread=0.15, interaction=0.0, missing=0.0):
    """Systems whose quality on a data set varies about their own, and whose values on a query vary about that."""
    systems = len(qualities)
    parts = []
    for _ in range(data_sets):
        ability = random.normal(0, 0.2, queries)
        level = qualities + random.normal(0, interaction, systems)
        part = ability + level[:, None] + random.normal(0, spread, (systems, queries))
        if parts:  # every system has the first data set
            part[random.random(systems) < missing] = np.nan
        parts.append(part)
    return matrix(parts)


def matrix(parts):
    names = tuple(f"s{i}" for i in range(len(parts[0])))
    index = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
    sets = tuple((f"d{i}", "") for i in range(len(parts)))
    values = {MEASURE: np.concatenate(parts, axis=1)}
    return ScoreMatrix(names, tuple(map(str, range(len(index)))), values, sources=sets, source_index=index)


def covers_all_ranks(found, qualities):
    """Whether all ranks lie in their intervals; systems that are equally good share a range of ranks."""
    rows = {row.system: row for row in found.ranks}
    return all(
        rows[f"s{i}"].low <= 1 + (qualities > quality).sum() and rows[f"s{i}"].high >= (qualities >= quality).sum()
        for i, quality in enumerate(qualities)
    )


@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("gap", [0.01, 0.03, 0.1])
@pytest.mark.parametrize("over", ["queries", "data sets"])
def test_all_true_ranks_lie_in_their_intervals_in_95_percent_of_the_boards(over, gap, missing, repeats):
    random = np.random.default_rng(int(1000 * gap) + (over == "queries"))
    qualities = gap * np.arange(8)[::-1]
    options = {"data_sets": 12, "interaction": 0.05} if over == "data sets" else {}
    covered = 0
    for seed in range(repeats):
        scores = board(random, qualities, missing=missing, **options)
        found = leaderboard_of(scores, MEASURE, over=over, inference=Inference(resamples=1_000, seed=seed))
        covered += covers_all_ranks(found, qualities)
    assert covered / repeats >= 0.95 - (0 if repeats == 1_000 else 3 * np.sqrt(0.05 * 0.95 / repeats))


@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize(("over", "queries"), [("queries", 20), ("queries", 60), ("data sets", 10)])
def test_equally_good_systems_are_all_tied_for_first_in_95_percent_of_the_boards(over, queries, repeats):
    random = np.random.default_rng(queries)
    options = {"data_sets": 10, "interaction": 0.05} if over == "data sets" else {}
    tied = 0
    for seed in range(repeats):
        scores = board(random, np.zeros(6), queries=queries, **options)
        found = leaderboard_of(scores, MEASURE, over=over, inference=Inference(resamples=1_000, seed=seed))
        tied += len(found.tied_for_first) == 6
    assert tied / repeats >= 0.95 - (0.01 if repeats == 1_000 else 3 * np.sqrt(0.05 * 0.95 / repeats))


# ---- tests of pairs and means by loops -------------------------------------------------------------------------------


def test_two_systems_are_tested_by_welch_over_data_sets():
    """The pair's p-value is that of the sum of mean differences with Welch's degrees of freedom, up to the draws."""
    random = np.random.default_rng(3)
    scores = board(random, np.array([0.02, 0.0]), data_sets=3, queries=25)
    values = scores.values[MEASURE]
    d = (values[0] - values[1]).reshape(3, 25)
    parts = d.var(axis=1, ddof=1) / 25
    t = d.mean(axis=1).sum() / np.sqrt(parts.sum())
    freedom = parts.sum() ** 2 / (parts**2 / 24).sum()
    p = 2 * stats.t.sf(abs(t), freedom)
    for confidence, is_found in ((1 - 1.15 * p, True), (1 - 0.85 * p, False)):
        policy = Inference(confidence, resamples=100_000)
        assert (len(leaderboard_of(scores, MEASURE, inference=policy).tied_for_first) == 1) == is_found


def test_two_systems_are_tested_by_all_sign_flips_of_data_sets():
    random = np.random.default_rng(4)
    scores = board(random, np.array([0.06, 0.0]), data_sets=9, queries=20, interaction=0.05)
    values = scores.values[MEASURE]
    d = (values[0] - values[1]).reshape(9, 20).mean(axis=1)
    sums = [abs(np.dot(d, signs)) for signs in itertools.product((-1, 1), repeat=9)]
    p = np.mean(np.array(sums) >= abs(d.sum()) - 1e-12)
    for confidence, is_found in ((1 - 1.2 * p, True), (1 - 0.8 * p, False)):
        policy = Inference(confidence, resamples=50_000)
        found = leaderboard_of(scores, MEASURE, over="data sets", inference=policy)
        assert (len(found.tied_for_first) == 1) == is_found


def test_more_systems_can_only_hide_differences_of_a_pair():
    """With pairs that do not differ, the largest statistic grows, and so do the intervals of ranks."""
    random = np.random.default_rng(5)
    scores = board(random, np.array([0.06, 0.0, -0.5]), data_sets=3)
    values = scores.values[MEASURE]
    noise = values[1] + np.random.default_rng(6).normal(0, 0.15, (40, values.shape[1]))
    noise -= noise.mean(axis=1, keepdims=True) - values[1].mean()
    many = ScoreMatrix(
        (*scores.systems, *(f"n{i}" for i in range(40))), scores.query_ids,
        {MEASURE: np.concatenate([values, noise])}, sources=scores.sources, source_index=scores.source_index,
    )  # fmt: skip
    few, more = (leaderboard_of(one, MEASURE, inference=DRAWS) for one in (scores, many))
    assert few.tied_for_first == ("s0",)
    assert len(more.tied_for_first) > 1
    assert {row.system: row.low for row in more.ranks}["s2"] == 43


def test_missing_cells_are_stated_and_completed_by_an_additive_model():
    means = np.array([[0.5, 0.7, 0.2], [0.4, 0.6, 0.1], [0.3, 0.5, 0.0]])  # row and column effects, no noise
    parts = [np.repeat(means[:, [index]], 6, axis=1) + np.linspace(-0.1, 0.1, 6) for index in range(3)]
    parts[1][0] = parts[2][2] = np.nan
    found = leaderboard_of(matrix(parts), MEASURE)
    assert [(row.system, row.mean) for row in found.ranks] == [
        (f"s{i}", pytest.approx(means[i].mean())) for i in range(3)
    ]
    assert found.missing == {"s0": ("d1",), "s2": ("d2",)}
    assert "2 of 9 cells are missing: s0 lacks d1; s2 lacks d2." in found.notes[0]
    assert found.table.filter(system="s0").row(0)[5:] == (pytest.approx(0.5), None, pytest.approx(0.2))


def test_equal_systems_are_never_told_apart():
    random = np.random.default_rng(8)
    scores = board(random, np.array([0.1, 0.1]))
    values = np.repeat(scores.values[MEASURE][:1], 2, axis=0)
    for over in ("queries", "data sets"):
        same = ScoreMatrix(
            scores.systems, scores.query_ids, {MEASURE: values}, sources=scores.sources,
            source_index=scores.source_index,
        )  # fmt: skip
        assert leaderboard_of(same, MEASURE, over=over, inference=DRAWS).tied_for_first == ("s0", "s1")


def test_lower_can_be_better():
    random = np.random.default_rng(9)
    values = board(random, np.array([0.0, 5.0])).values[MEASURE]
    index = np.repeat(np.arange(5), 30)
    scores = ScoreMatrix(
        ("good", "bad"), tuple(range(150)), {"U": values}, sources=tuple((f"d{i}", "") for i in range(5)),
        source_index=index,
    )  # fmt: skip
    assert [(row.system, row.low, row.high) for row in leaderboard_of(scores, "U", inference=DRAWS).ranks] == [
        ("good", 1, 1), ("bad", 2, 2)
    ]  # fmt: skip


# ---- from evaluations ------------------------------------------------------------------------------------------------


def evaluations(measures=("nDCG@10", MEASURE)):
    random = np.random.default_rng(2)
    sets = {}
    for data, queries in (("one", 30), ("two", 20)):
        qrels = {f"q{i}": {f"d{j}": int(random.random() < 0.3 or j == 0) for j in range(9)} for i in range(queries)}
        runs = {
            name: {q: {d: weight * label + random.normal() for d, label in docs.items()} for q, docs in qrels.items()}
            for name, weight in (("strong", 3.0), ("weak", 0.5), ("none", 0.0))
            if (data, name) != ("two", "none")
        }
        sets[data] = rb.evaluate(qrels, runs, list(measures))
    return sets


def test_evaluations_by_data_set_give_a_board_in_all_forms():
    sets = evaluations()
    found = rank_systems(sets)
    assert (found.measure, found.data_sets, found.tied_for_first) == (MEASURE, ("one", "two"), ("strong",))
    assert found.cells["strong"] == {name: pytest.approx(sets[name]["strong"].mean()[MEASURE]) for name in sets}
    assert found.missing == {"none": ("two",)}
    assert json.loads(json.dumps(found.to_dict()))["systems"][0]["cells"]["one"] == found.cells["strong"]["one"]
    assert r"\textbf{strong} & 1 & " in found.to_latex()
    assert "1 of 6 cells is missing: none lacks two" in found.to_markdown()
    assert "<table" in found._repr_html_()
    assert rank_systems(sets).to_dict() == found.to_dict()
    assert rank_systems(sets, "nDCG@10").measure == "nDCG@10"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_systems({}), "at least one system"),
        (lambda: rank_systems(evaluations(["nDCG@10"])), r"such as EM\(nDCG@10\)"),
        (lambda: rank_systems(evaluations(), "AP"), "measure must be one that all evaluations have"),
        (lambda: rank_systems(evaluations(), over="sets"), "over must be one of"),
        (lambda: rank_systems({"one": evaluations()["one"]}, over="data sets"), "needs more data sets"),
    ],
)
def test_wrong_uses_are_refused(call, message):
    with pytest.raises((ArgumentError, DataError), match=message):
        call()


def test_systems_without_a_common_cell_are_refused():
    parts = [np.random.default_rng(1).random((2, 8)) for _ in range(2)]
    parts[0][0] = parts[1][1] = np.nan
    with pytest.raises(DataError, match="fall apart"):
        leaderboard_of(matrix(parts), MEASURE)
