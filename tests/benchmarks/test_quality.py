"""The quality reports: their rows are those of the committed results, and their intervals cover the mean."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import factorization, models, negative_ratios
from rankbound.data import user_folds
from rankbound.data.synthetic import synthetic_interactions

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def committed(name: str) -> set[str]:
    with (RESULTS / name).open(newline="", encoding="utf-8") as stream:
        return {row["name"] for row in csv.DictReader(stream)}


def test_rows_of_the_factorization_report_are_those_of_the_results():
    assert factorization.RESULTS == RESULTS / "factorization.csv"
    assert set(factorization.jobs()) == committed("factorization.csv")


def test_rows_of_the_models_report_are_in_the_results():
    assert models.RESULTS == RESULTS / "models.csv"
    assert {*models.MQ2008, *models.OHSUMED, *models.FACES} <= committed("models.csv")


def test_an_interval_over_folds_covers_the_mean_of_the_fold_means():
    rng = np.random.default_rng(0)
    values = [rng.random(40), rng.random(60)]
    low, high = models.interval_over_folds(values)
    assert low < (values[0].mean() + values[1].mean()) / 2 < high
    assert models.interval_over_folds([np.full(5, 0.5)] * 2) == (0.5, 0.5)


def test_a_line_says_whether_the_bar_is_met():
    values = np.array([0.4, 0.6])
    line = factorization.line("x", "nDCG", "validation", "", values, 0.55, 0.45, 1.0, "", 0.0)
    assert (line.ours, line.difference, line.met, line.bar) == (0.5, pytest.approx(-0.05), True, ">= 0.45")
    assert not factorization.line("x", "nDCG", "validation", "", values, 0.55, 0.52, 1.0, "", 0.0).met


def test_ratios_of_negatives_are_capped_with_a_note(monkeypatch):
    table = synthetic_interactions(users=20, items=30, seed=1)
    monkeypatch.setattr(negative_ratios, "load_set", lambda _: table)
    few, many = (negative_ratios.measure("x", ratio) for ratio in (1, 1000))
    train = len(table) - np.count_nonzero(user_folds(table, 5, seed=0) == 0)
    assert few["rows"] == 2 * train
    assert few["notes"] == []
    assert many["rows"] < len(table.user_names) * len(table.item_names)
    assert "too few other items for 1000 negatives per positive" in many["notes"][0]
    assert many["peak_mb"] >= many["sampling_mb"] > 0
