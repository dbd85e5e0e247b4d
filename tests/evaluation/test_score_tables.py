"""Tables of scores: checks, means and contrasts."""

from __future__ import annotations

from math import sqrt

import numpy as np
import polars as pl
import pytest
from scipy import stats

from rankbound.evaluation.score_tables import (
    contrasts,
    data_label,
    mean_scores,
    measures_of,
    trial_means,
    without_unmeasured,
)


def test_only_columns_of_numbers_with_the_name_of_a_measure_are_measures(score_table):
    table = score_table({"a": [0.5]}).with_columns(pl.lit(0.1).alias("rate"), pl.lit("x").alias("AP"))
    assert measures_of(table) == ["nDCG"]


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


@pytest.mark.parametrize(("names", "cases"), [(("", ""), ["nDCG"]), (("A · ", "B · "), ["A · nDCG", "B · nDCG"])])
def test_models_are_compared_apart_if_their_systems_have_names_of_their_own(score_table, names, cases):
    """Models of different data that share the names of their systems are one contrast, which has a panel for each."""
    parts = [
        score_table({f"{name}nDCG · {bounding}": [0.5]}, data=model).with_columns(
            pl.lit(model).alias("model"), pl.lit("nDCG").alias("loss"), pl.lit(bounding).alias("bounding")
        )
        for model, name in zip("AB", names, strict=True)
        for bounding in ("none", "min-max")
    ]
    assert [contrast.case for contrast in contrasts(pl.concat(parts))] == cases


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
    assert table.select(data_label())["data_label"].to_list() == ["ml · NSR 2", "mq"]
