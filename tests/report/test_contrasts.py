"""Queries one by one: smooth fits, distributions, scatters, thinning."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankbound.errors import DataError
from rankbound.evaluation.score_tables import contrasts
from rankbound.report.figures.contrasts import (
    activity_curves,
    instance_scores,
    penalized_spline,
    score_distributions,
    thin_out,
)


def test_the_spline_of_a_straight_line_is_the_line():
    x = np.linspace(-3, 5, 50)
    fit, low, high = penalized_spline(x, 2 - 0.5 * x, [-3.0, 0.0, 5.0])
    assert fit == pytest.approx([3.5, 2.0, -0.5], abs=1e-6)
    assert np.all(high - low < 1e-5)


def test_the_spline_is_scipys_least_squares_where_noise_leaves_no_need_to_smooth():
    from scipy.interpolate import make_lsq_spline

    x = np.linspace(0, 1, 4000)
    y = np.sin(12 * x)
    knots = np.concatenate([np.zeros(3), np.linspace(0, 1, 21), np.ones(3)])
    at = np.linspace(0, 1, 50)
    assert penalized_spline(x, y, at)[0] == pytest.approx(make_lsq_spline(x, y, knots)(at), abs=2e-3)


def test_the_band_covers_a_curve_as_often_as_it_says():
    random = np.random.default_rng(0)
    at = np.linspace(0.02, 0.98, 25)
    covered = []
    for _ in range(60):
        x = random.random(150)
        y = np.sin(6 * x) + random.normal(0, 0.4, 150)
        _, low, high = penalized_spline(x, y, at)
        covered.append((low <= np.sin(6 * at)) & (np.sin(6 * at) <= high))
    assert 0.90 <= np.mean(covered) <= 0.99


def test_the_fit_does_not_depend_on_the_order_of_points():
    random = np.random.default_rng(1)
    x, y = random.random(60), random.random(60)
    order = random.permutation(60)
    assert penalized_spline(x[order], y[order], [0.3, 0.6])[0] == pytest.approx(penalized_spline(x, y, [0.3, 0.6])[0])


@pytest.mark.parametrize("x", [[1.0] * 30, [1.0, 2.0, 3.0] * 10, [1.0, 2.0, 3.0, 4.0]])
def test_too_few_places_have_no_smooth_fit(x):
    with pytest.raises(DataError, match="a smooth fit needs"):
        penalized_spline(x, x, x)


def test_distributions_and_the_intervals_where_the_system_is_better_by_hand(score_table):
    table = score_table({"base": [0.1, 0.2, 0.6, 0.9], "new": [0.3, 0.3, 0.5, 0.9]})
    (contrast,) = contrasts(table)
    curve, better = score_distributions(table, contrast)
    assert curve["score"].to_list() == [0.1, 0.2, 0.3, 0.5, 0.6, 0.9]
    assert curve["fraction"].to_list() == [0, 0, 0.5, 0.75, 0.75, 1]
    assert curve["baseline"].to_list() == [0.25, 0.5, 0.5, 0.5, 0.75, 1]
    # fewer low scores from 0.1 until 0.3, where the new one catches up
    assert better.select("low", "high").rows() == [(0.1, 0.3)]


def test_distributions_of_a_measure_where_lower_is_better_turn_round(score_table):
    table = score_table({"base": [3.0, 5.0], "new": [1.0, 2.0]}, measure="U")
    curve, better = score_distributions(table, contrasts(table)[0])
    assert better.select("low", "high").rows() == [(2.0, 5.0)] or better["high"].max() == 5.0
    assert curve.filter(pl.col("score") == 2.0)["fraction"].to_list() == [0.5]


def test_long_distributions_are_drawn_at_few_scores(score_table):
    random = np.random.default_rng(3)
    table = score_table({"base": random.random(500), "new": random.random(500)})
    curve, _ = score_distributions(table, contrasts(table)[0], points=40)
    assert len(curve) == 40
    base = table.filter(pl.col("system") == "base")["nDCG"].to_numpy()
    assert curve["baseline"].to_list() == pytest.approx([(base <= s).mean() for s in curve["score"]])


def test_equal_systems_are_nowhere_better(score_table):
    table = score_table({"base": [0.5, 0.5], "new": [0.5, 0.5]})
    assert score_distributions(table, contrasts(table)[0])[1].is_empty()
    assert instance_scores(table, contrasts(table)[0])["difference"].to_list() == [0.0, 0.0]


def test_instances_hold_both_scores_of_each_query(score_table):
    table = score_table({"base": [0.1, 0.8], "new": [0.4, 0.7]})
    found = instance_scores(table, contrasts(table)[0])
    assert found.select("system", "qid", "baseline", "score").rows() == [
        ("new", "q0", 0.1, 0.4),
        ("new", "q1", 0.8, 0.7),
    ]
    assert found["difference"].to_list() == pytest.approx([0.3, -0.1])


def test_a_gain_that_grows_with_activity_gives_a_curve_that_rises(score_table):
    random = np.random.default_rng(4)
    relevant = random.integers(1, 200, 300)
    base = random.uniform(0.2, 0.4, 300)
    new = base + 0.05 * np.log(relevant) + random.normal(0, 0.02, 300)
    table = score_table({"base": base, "new": new}, items=(relevant * 3).tolist(), relevant=relevant.tolist())
    curve = activity_curves(table, contrasts(table)[0])
    assert curve["gain"].to_numpy() == pytest.approx(0.05 * np.log(curve["relevant"].to_numpy()), abs=0.02)
    assert (curve["low"] < curve["high"]).all()


def test_few_queries_have_no_curve_but_no_error_either(score_table):
    table = score_table({"base": [0.1], "new": [0.4]})
    assert activity_curves(table, contrasts(table)[0]).is_empty()


def test_queries_with_nothing_relevant_have_no_curve(score_table):
    table = score_table({"a": [0.1] * 9, "b": [0.2] * 9}, relevant=0)
    (contrast,) = contrasts(table)
    assert activity_curves(table, contrast).is_empty()


def test_one_system_has_nothing_to_be_compared_with(score_table):
    with pytest.raises(DataError, match="at least 2 systems"):
        contrasts(score_table({"only": [0.1]}))


def test_systems_that_share_no_data_set_are_refused(score_table):
    table = pl.concat([score_table({"base": [0.1]}), score_table({"new": [0.1]}, data="e")])
    with pytest.raises(DataError, match="no data set has both base and another"):
        instance_scores(table, contrasts(table)[0])


def test_thinning_takes_the_same_share_of_each_group_spread_over_its_values():
    table = pl.DataFrame({"g": ["a"] * 900 + ["b"] * 100, "x": [*range(900), *range(100)]})
    few = thin_out(table, ["g"], "x", 100)
    assert dict(few.group_by("g").len().rows()) == {"a": 90, "b": 10}
    assert few.filter(pl.col("g") == "a")["x"].diff().drop_nulls().unique().to_list() == [10]
    assert thin_out(table, ["g"], "x", None) is table
