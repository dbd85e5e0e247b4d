"""Means and differences by groups of queries: against scipy, and the familywise error by simulation."""

from __future__ import annotations

import html
import re

import numpy as np
import polars as pl
import pytest
from scipy import stats

import rankbound as rb
from rankbound.evaluation.group_tests import group_differences, group_means, student_p_value
from rankbound.evaluation.groups import read_groups
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.report.numbers import show_interval, show_p

T = Inference(interval="t")
REPEATS = [pytest.param(2_000, marks=pytest.mark.full("2,000 simulations")), 150]


def holm(p):
    order = np.argsort(p)
    steps = np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(p), 0, -1))
    return np.minimum(steps, 1)[np.argsort(order)]


def data(seed, queries=60):
    random = np.random.default_rng(seed)
    names = [f"q{i}" for i in range(queries)]
    groups = {name: f"g{random.integers(3)}" for name in names} | dict.fromkeys(names[:3], "rare")
    return names, groups, random.random((2, queries))


@pytest.mark.parametrize("seed", range(6))
def test_means_by_group_are_those_of_scipy(seed):
    names, groups, values = data(seed)
    rows = group_means({"AP": values[0]}, names, read_groups(groups), T)
    tested = [row for row in rows if row.p_value is not None]
    assert [row.mean for row in rows] == sorted(row.mean for row in rows)
    for row in rows:
        inside = np.array([groups[name] == row.group for name in names])
        assert row.queries == inside.sum()
        assert row.mean == pytest.approx(values[0][inside].mean())
        assert row.difference == pytest.approx(values[0][inside].mean() - values[0][~inside].mean())
        if row.queries < 5:
            assert (row.ci_low, row.ci_low_corrected, row.p_value, row.p_corrected) == (None,) * 4
            continue
        expected = stats.ttest_ind(values[0][inside], values[0][~inside]).pvalue
        assert row.p_value == pytest.approx(expected)
        for low, high, level in ((row.ci_low, row.ci_high, 0.95),
                                 (row.ci_low_corrected, row.ci_high_corrected, 1 - 0.05 / len(tested))):  # fmt: skip
            part = values[0][inside]
            ends = stats.t.interval(level, len(part) - 1, part.mean(), stats.sem(part))
            assert (low, high) == pytest.approx(ends)
    assert [row.p_corrected for row in tested] == pytest.approx(holm([row.p_value for row in tested]).tolist())


@pytest.mark.parametrize("seed", range(6))
def test_differences_by_group_are_those_of_scipy(seed):
    names, groups, values = data(seed)
    scores = ScoreMatrix(("old", "new"), tuple(names), {"AP": values})
    rows = group_differences(scores, [(0, 1)], read_groups(groups), T)
    tested = [row for row in rows if row.p_value is not None]
    for row in rows:
        inside = np.array([groups[name] == row.group for name in names])
        d = values[1][inside] - values[0][inside]
        assert (row.difference, row.queries) == (pytest.approx(d.mean()), len(d))
        if len(d) < 5:
            assert (row.group, row.ci_low, row.p_value) == ("rare", None, None)
        else:
            assert row.p_value == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
            ends = stats.t.interval(1 - 0.05 / len(tested), len(d) - 1, d.mean(), stats.sem(d))
            assert (row.ci_low_corrected, row.ci_high_corrected) == pytest.approx(ends)
    assert [row.p_corrected for row in tested] == pytest.approx(holm([row.p_value for row in tested]).tolist())


def test_student_without_spread():
    assert student_p_value(np.ones(5), np.ones(6)) == 1
    assert student_p_value(np.ones(5), np.zeros(6)) == 0
    assert np.isnan(student_p_value(np.ones(4), np.zeros(6)))


@pytest.mark.parametrize("repeats", REPEATS)
def test_the_familywise_error_over_twenty_groups_is_at_most_five_percent(repeats):
    """Two systems that are equally good on every query, and one whose values have nothing to do with the groups."""
    random = np.random.default_rng(11)
    names = tuple(str(query) for query in range(400))
    groups = read_groups({name: f"g{int(name) % 20}" for name in names})
    rejected = np.zeros(2)
    for _ in range(repeats):
        ability = random.beta(1.2, 0.8, 400)
        values = np.clip(ability + 0.1 * random.standard_t(4, (2, 400)) * (random.random(400) < 0.7), 0, 1)
        rows = group_differences(ScoreMatrix(("a", "b"), names, {"AP": values}), [(0, 1)], groups, T)
        means = group_means({"AP": values[0]}, names, groups, T)
        for index, found in enumerate((rows, means)):
            assert len(found) == 20
            rejected[index] += any(row.p_corrected < 0.05 for row in found)
    slack = 0.01 if repeats == 2_000 else 3 * np.sqrt(0.05 * 0.95 / repeats)
    assert (rejected / repeats <= 0.05 + slack).all()


def judged(queries=40):
    qrels = {f"q{i}": {"a": 1, "b": 0, "c": 0} for i in range(queries)}
    old = {query: {"a": 0.9, "b": 0.5, "c": 0.1} for query in qrels}
    new = {query: {"a": 0.9 if i >= 10 else 0.3, "b": 0.5, "c": 0.1} for i, query in enumerate(qrels)}
    groups = pl.DataFrame({"qid": list(qrels), "kind": ["rare" if i < 10 else "common" for i in range(queries)]})
    return qrels, old, new, groups


def test_evaluate_and_compare_take_groups():
    qrels, old, new, groups = judged()
    result = rb.evaluate(qrels, new, ["RR", "AP"], groups=groups)
    worst = result.by_group[0]
    assert (worst.measure, worst.attribute, worst.group, worst.queries, worst.mean) == ("RR", "kind", "rare", 10, 0.5)
    assert result.to_dict()["by_group"][0]["group"] == "rare"
    assert "by_group" not in rb.evaluate(qrels, new, "RR").to_dict()
    several = rb.evaluate(qrels, {"old": old, "new": new}, "RR", groups=groups)
    assert {run: one.by_group[0].mean for run, one in several.items()} == {"old": 1.0, "new": 0.5}
    comparison = rb.compare(old, new, qrels=qrels, measures="RR", groups=groups)
    assert [(row.group, row.difference) for row in comparison.by_group] == [("rare", -0.5), ("common", 0.0)]
    assert comparison.by_group[0].p_corrected < 0.05
    assert comparison.to_dict()["by_group"][0]["difference"] == -0.5
    assert (
        comparison.by_group
        == rb.compare(rb.evaluate(qrels, old, "RR"), rb.evaluate(qrels, new, "RR"), groups=groups).by_group
    )
    for call in (lambda bad: rb.evaluate(qrels, new, "RR", groups=bad),
                 lambda bad: rb.compare(old, new, qrels=qrels, measures="RR", groups=bad)):  # fmt: skip
        with pytest.raises(rb.errors.DataError, match="do the query ids match"):
            call({"x": "a"})


def test_the_worst_group_comes_first_where_lower_is_better():
    names = tuple(f"q{i}" for i in range(20))
    groups = read_groups({name: "bad" if i < 10 else "good" for i, name in enumerate(names)})
    old = np.ones(20)
    new = old + np.where(np.arange(20) < 10, 0.5, -0.5) + np.linspace(-0.1, 0.1, 20)
    rows = group_differences(ScoreMatrix(("old", "new"), names, {"U": np.stack([old, new])}), [(0, 1)], groups, T)
    assert [row.group for row in rows] == ["bad", "good"]
    assert [row.group for row in group_means({"U": new}, names, groups, T)] == ["bad", "good"]


def test_the_page_of_a_comparison_has_its_groups_the_worst_first(tmp_path, monkeypatch):
    pytest.importorskip("jinja2")
    monkeypatch.setattr("rankbound.report.page.draw_figures", lambda *_: {})
    qrels, old, new, groups = judged()
    comparison = rb.compare(old, new, qrels=qrels, measures=["RR", "AP"], groups=groups, names=["old", "new"])
    text = comparison.page(tmp_path / "page.html").read_text()
    table = text.partition("<caption>Difference: new − old by kind</caption>")[2].partition("</table>")[0]
    cells = re.findall(r"<td[^>]*>([^<]*)", table)
    worst = comparison.by_group[0]
    assert cells[:4] == ["RR", "rare", "10", "−0.5000"]
    assert cells[4] == show_interval(worst.ci_low_corrected, worst.ci_high_corrected, sign=True)
    assert html.unescape(cells[5]) == show_p(worst.p_corrected)
    assert "By kind, the largest loss is that of new to old on rare (−0.5000 on 10 queries, p &lt; 0.0001" in text
    without = rb.compare(old, new, qrels=qrels, measures="RR").page(tmp_path / "without.html").read_text()
    assert "by kind" not in without
