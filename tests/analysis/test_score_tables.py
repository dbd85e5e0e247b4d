"""Lining up systems on the queries that they share."""

from __future__ import annotations

from math import sqrt

import numpy as np
import polars as pl
import pytest
from scipy import stats

from rankbound.analysis.score_tables import (
    contrasts,
    mean_scores,
    measures_of,
    paired_scores,
    place,
    trial_means,
    without_unmeasured,
)
from rankbound.errors import ArgumentError, DataError


def test_only_columns_of_numbers_with_the_name_of_a_measure_are_measures(score_table):
    table = score_table({"a": [0.5]}).with_columns(pl.lit(0.1).alias("rate"), pl.lit("x").alias("AP"))
    assert measures_of(table) == ["nDCG"]


def test_seeds_are_averaged_and_queries_that_one_system_lacks_left_out(score_table):
    table = pl.concat(
        [
            score_table({"a": [0.2, 0.4, 0.6], "b": [0.1, None, 0.3]}),
            score_table({"a": [0.4, 0.4, 0.6], "b": [0.1, float("nan"), 0.5]}, seed=1),
        ]
    )
    scores = paired_scores(table, "nDCG")
    assert scores.queries["qid"].to_list() == ["q0", "q2"]
    assert scores.values == pytest.approx(np.array([[0.3, 0.1], [0.6, 0.4]]))
    assert scores.pair_differences()[:, 0] == pytest.approx([0.2, 0.2])
    assert scores.means == pytest.approx([0.45, 0.25])


def test_the_same_query_id_in_another_data_set_or_fold_is_another_query(score_table):
    parts = [score_table({"a": [0.1], "b": [0.2]}, **place) for place in ({}, {"data": "e"}, {"fold": 1})]
    assert len(paired_scores(pl.concat(parts), "nDCG").values) == 3


def test_the_order_of_rows_and_systems_does_not_matter(score_table):
    random = np.random.default_rng(0)
    table = score_table({name: random.random(20) for name in "abc"})
    shuffled = table.sample(fraction=1, shuffle=True, seed=1)
    one = paired_scores(table, "nDCG", ["a", "b", "c"])
    other = paired_scores(shuffled, "nDCG", ["a", "b", "c"])
    order = [other.queries["qid"].to_list().index(qid) for qid in one.queries["qid"]]
    assert other.values[order] == pytest.approx(one.values, abs=0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t.drop("fold"), DataError, "missing: fold"),
        (lambda t: t.filter(pl.col("system") == "a"), DataError, "at least 2 systems, the table has 1: a"),
        (lambda t: t.rename({"nDCG": "AP"}), ArgumentError, r"has no nDCG; its measures are \['AP'\]"),
        (lambda t: t.clear(), DataError, "no rows"),
        (
            lambda t: t.with_columns(pl.concat_str("system", "qid").alias("qid")),
            DataError,
            "no query in common that counts for nDCG: a, b",
        ),
    ],
)
def test_tables_that_cannot_be_compared_are_refused(score_table, change, error, message):
    with pytest.raises(error, match=message):
        paired_scores(change(score_table({"a": [0.5, 0.4], "b": [0.1, 0.2]})), "nDCG")


def test_unknown_systems_are_refused(score_table):
    with pytest.raises(ArgumentError, match="systems must be among a, b; got c"):
        paired_scores(score_table({"a": [0.5], "b": [0.1]}), "nDCG", ["a", "c"])


def test_means_and_their_intervals_are_students(score_table):
    values = [0.1, 0.4, 0.7, 0.3]
    row = mean_scores(score_table({"a": values}), ["nDCG"]).row(0, named=True)
    half = stats.t.ppf(0.975, 3) * np.std(values, ddof=1) / sqrt(4)
    assert [row[name] for name in ("mean", "ci_low", "ci_high", "queries")] == pytest.approx(
        [0.375, 0.375 - half, 0.375 + half, 4]
    )


def test_a_single_query_has_a_mean_without_interval(score_table):
    row = mean_scores(score_table({"a": [0.1]}), ["nDCG"]).row(0, named=True)
    assert (row["mean"], row["ci_low"], row["ci_high"]) == (0.1, None, None)


def test_trial_means_have_a_row_for_each_trial_and_measure(score_table):
    table = pl.concat([score_table({"a": [0.2, 0.4]}), score_table({"a": [0.6, None]}, fold=1)])
    assert trial_means(table).select("fold", "measure", "value").rows() == [
        (0, "nDCG", pytest.approx(0.3)),
        (1, "nDCG", pytest.approx(0.6)),
    ]


def test_each_bounding_is_compared_with_none_under_the_measure_of_its_loss(score_table):
    systems = [("nDCG", "none"), ("nDCG", "min-max"), ("nRBP", "none"), ("nRBP", "min-max"), ("nRBP", "expectation")]
    table = pl.concat(
        [
            score_table({f"{loss} · {bounding}": [0.5]}).with_columns(
                pl.lit(loss).alias("loss"),
                pl.lit(bounding).alias("bounding"),
                pl.lit(0.3).alias("nRBP(p=0.8)"),
                pl.lit(0.3).alias("nRBP(p=0.95)"),
            )
            for loss, bounding in systems
        ]
    )
    first, second = contrasts(table)
    assert (first.case, first.measure, first.baseline, first.labels) == ("nDCG", "nDCG", "nDCG · none", ("min-max",))
    assert (second.measure, second.systems) == ("nRBP(p=0.95)", ("nRBP · min-max", "nRBP · expectation"))


def test_without_losses_all_systems_are_compared_with_the_first(score_table):
    (only,) = contrasts(score_table({"b": [0.1], "a": [0.2], "c": [0.3]}))
    assert (only.case, only.baseline, only.systems) == ("", "b", ("a", "c"))


def test_data_sets_without_a_value_of_any_measure_go_and_empty_queries_stay(score_table):
    pages = score_table({"a": [0.5, None]}, AP=0.25)
    faces = score_table({"b": [1.0]}, measure="pairwise accuracy", data="faces")
    both = pl.concat([pages, faces], how="diagonal")
    assert without_unmeasured(both).equals(both.filter(pl.col("data") == "d"))
    assert without_unmeasured(pages.drop("AP")).height == 2
    nothing = score_table({"a": [None]})
    for as_it_is in (faces, nothing):
        assert without_unmeasured(as_it_is).equals(as_it_is)


def test_a_place_is_the_data_set_and_its_variant():
    table = pl.DataFrame({"data": ["ml", "mq"], "variant": ["NSR 2", ""]})
    assert table.select(place())["place"].to_list() == ["ml · NSR 2", "mq"]
