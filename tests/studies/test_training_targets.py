"""Tables of evaluators and of training targets: means and paired differences are those of the stored scores."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import t as student

from rankbound.studies.derived import evaluators, train_evaluate
from rankbound.studies.results import results_table
from rankbound.studies.store import open_store
from rankbound.studies.study_files import load_study

from .papers import run_here

NDCG = "nDCG(dcg='exp-log2')"
TARGETS = f"""
title = "Targets"
derived = ["train-evaluate"]
[[tables]]
name = "small"
data = {{ letor = "letor" }}
model = "LinearRanker"
loss = ["nDCG", "AP"]
params = {{ epochs = 4 }}
measures = ["{NDCG}", "AP"]
select_by = {{ nDCG = "{NDCG}", AP = "AP" }}
"""
EVALUATORS = f"""
title = "Evaluators"
derived = ["evaluators"]
[[tables]]
name = "small"
data = {{ letor = "letor" }}
models = [
    {{ model = "LinearRanker", name = "ApproxNDCG", loss = "nDCG", params = {{ epochs = 4 }} }},
    {{ model = "AdaRank", name = "AdaRank.NDCG" }},
]
measures = ["{NDCG}", "LetorNDCG"]
"""


def interval(values):
    """Student's 95 % interval of a mean."""
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return np.mean(values) - half, np.mean(values) + half


def test_targets_are_compared_with_the_matching_one(study, folder):
    with open_store(folder / "store", create=True) as store:
        slots = run_here(study(TARGETS), {}, store)
        table = train_evaluate(store, slots, pl.DataFrame())
        scores = {slot.setting["loss"]: store.scores(slot.id) for slot in slots}
    assert table.select("trained", "evaluated", "versus").rows() == [
        ("nDCG", NDCG, "nDCG"), ("AP", NDCG, "nDCG"), ("nDCG", "AP", "AP"), ("AP", "AP", "AP"),
    ]  # fmt: skip
    for row in table.iter_rows(named=True):
        values = scores[row["trained"]][row["evaluated"]].drop_nulls().to_numpy()
        assert (row["ours"], row["ci_low"], row["ci_high"]) == pytest.approx((values.mean(), *interval(values)))
        if row["trained"] == row["versus"]:
            assert row["versus_difference"] is None
            continue
        ahead = values - scores[row["versus"]][row["evaluated"]].drop_nulls().to_numpy()
        assert row["versus_difference"] == pytest.approx(ahead.mean())
        assert (row["versus_low"], row["versus_high"]) == pytest.approx(interval(ahead))


def test_evaluators_differ_in_discount_and_in_queries_without_a_relevant_document(study, folder):
    with open_store(folder / "store", create=True) as store:
        slots = run_here(study(EVALUATORS), {}, store)
        results = results_table(store, slots).with_columns(pl.lit(0.5).alias("published"))
        table = evaluators(store, slots, results)
        scores = {slot.setting["model"]: store.scores(slot.id) for slot in slots}
    assert table.height == 2 * 2 * 2
    for row in table.iter_rows(named=True):
        column = "LetorNDCG" if "LETOR" in row["evaluator"] else NDCG
        values = scores[row["model"]][column]
        values = values.drop_nulls() if row["empty queries"] == "left out" else values.fill_null(0)
        assert row["ours"] == pytest.approx(values.mean())
        assert row["difference"] == pytest.approx(row["ours"] - 0.5)
        assert (row["versus_difference"] is None) == (row["model"] == "ApproxNDCG")


def test_without_results_the_tables_are_empty(tmp_path):
    with open_store(tmp_path, create=True) as store:
        assert evaluators(store, [], pl.DataFrame()).is_empty()
        assert train_evaluate(store, [], pl.DataFrame()).is_empty()


def test_every_target_is_selected_and_reported_by_its_own_measure():
    study = load_study("approx-targets")
    for table in study.tables:
        labels = [loss.label for loss in table.loss]
        assert labels == ["nDCG", "nDCG@10", "AP", "P@10", "RR", "Tau"]
        assert [table.measure_to_select_by(label) for label in labels] == list(table.measures)
