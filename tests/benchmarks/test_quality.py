"""The quality reports: their rows are those of the committed results, and their intervals cover the mean."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import factorization, models, negative_ratios, recommenders
from rankbound.data import user_folds
from rankbound.data.synthetic import synthetic_interactions

pytestmark = pytest.mark.full("tests of the benchmarks")

RESULTS = Path(__file__).parents[2] / "docs" / "results"
ROWS = dict(recommenders.GRIDS)


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


@pytest.fixture
def few_rows(monkeypatch, tmp_path):
    """The recommender benchmark on generated data, with EASE and with popularity in place of the library's ALS."""
    table = synthetic_interactions(users=40, items=30, seed=1)
    grids = {name: recommenders.GRIDS[row] for name, row in (("EASE", "EASE"), (recommenders.LIBRARY, "Popularity"))}
    monkeypatch.setattr(recommenders, "load_set", lambda _: table)
    monkeypatch.setattr(recommenders, "GRIDS", grids)
    monkeypatch.setattr(recommenders, "find_spec", lambda _: True)
    monkeypatch.setattr(recommenders, "RESULTS", tmp_path / "rows.csv")
    monkeypatch.setattr(recommenders, "DIFFERENCES", tmp_path / "differences.csv")
    recommenders.parts.cache_clear()
    yield tmp_path / "store.jsonl"
    recommenders.parts.cache_clear()


def test_differences_of_recommenders_are_paired_by_user(few_rows, capsys):
    names = ["ml-100k", "ml-1m", "ml-100k/21", "ml-100k/22"]
    for name in names[1:]:  # the first split follows, so that at first there is no difference over all splits
        assert recommenders.main(["--store", str(few_rows), f"{name} "]) == 0
    recommenders.main(["--store", str(few_rows), "--differences"])
    assert list(recommenders.stored_rows(recommenders.DIFFERENCES)) == [f"{name} EASE" for name in names[1:]]
    recommenders.main(["--store", str(few_rows), "ml-100k "])
    recommenders.main(["--store", str(few_rows), "--differences"])
    assert "ml-100k/pooled EASE" in capsys.readouterr().out

    stored = dict(map(json.loads, few_rows.read_text().splitlines()))
    tests = {json.loads(key)[0]: values[0] for key, values in stored.items() if json.loads(key)[2] is not None}
    by_split = [np.subtract(tests[f"{name} EASE"], tests[f"{name} {recommenders.LIBRARY}"]) for name in names]
    written = recommenders.stored_rows(recommenders.DIFFERENCES)
    means = recommenders.stored_rows(recommenders.RESULTS)
    for name, values in zip(names, by_split, strict=True):
        row, tested = written[f"{name} EASE"], [float(means[f"{name} {k}"]["test"]) for k in recommenders.GRIDS]
        assert int(row["users"]) == len(values)
        assert float(row["difference"]) == pytest.approx(tested[0] - tested[1], abs=1.1e-4)
        assert float(row["ci_high"]) - float(row["ci_low"]) == pytest.approx(
            2 * 1.96 * np.std(values, ddof=1) / np.sqrt(len(values)), abs=1.1e-4
        )
    pooled = np.mean([by_split[0], by_split[2], by_split[3]], axis=0)
    assert float(written["ml-100k/pooled EASE"]["difference"]) == pytest.approx(pooled.mean(), abs=5.1e-5)


def test_differences_need_a_store(few_rows, capsys):
    with pytest.raises(SystemExit):
        recommenders.main(["--differences", "--store", str(few_rows)])
    assert "--differences needs --store FILE" in capsys.readouterr().err
    store = recommenders.Store(few_rows, frozen=True)
    with pytest.raises(LookupError, match="has no result of ml-1m EASE"):
        recommenders.outcome("ml-1m", "EASE", store)


def test_committed_differences_are_those_of_the_committed_rows():
    rows, written = (recommenders.stored_rows(path) for path in (recommenders.RESULTS, recommenders.DIFFERENCES))
    assert written
    for name, row in written.items():
        data, _, kind = name.partition(" ")
        sets = recommenders.POOLED.get(data, (data,))
        tests = [float(rows[f"{s} {kind}"]["test"]) - float(rows[f"{s} {recommenders.LIBRARY}"]["test"]) for s in sets]
        assert float(row["difference"]) == pytest.approx(np.mean(tests), abs=1.6e-4)
        assert float(row["ci_low"]) < float(row["difference"]) < float(row["ci_high"])


def test_the_mapped_row_of_als_has_the_grid_of_the_library():
    make, grid = recommenders.GRIDS["ImplicitALS, the library's grid"]
    assert grid == recommenders.GRIDS[recommenders.LIBRARY][1]
    model = make(factors=8, alpha=3.0, regularization=30.0)
    assert (model.unobserved_weight, model.l2, model.l2_exponent) == (1 / 3, 30 / 4, 0)


def test_the_blend_selects_its_members_by_themselves_and_then_weights(few_rows, monkeypatch):
    members = {"EASE": {"l2": (5.0, 50.0)}, recommenders.MAPPED: {"factors": (2, 4), "alpha": (3.0,)}}
    members[recommenders.MAPPED]["regularization"] = (1.0, 10.0)
    kinds = ("EASE", recommenders.MAPPED, recommenders.BLEND)
    monkeypatch.setattr(recommenders, "GRIDS", {kind: ROWS[kind] for kind in kinds})
    monkeypatch.setattr(recommenders, "MEMBERS", {recommenders.BLEND: members})
    store = recommenders.Store(few_rows)
    result = recommenders.outcome("ml-1m", recommenders.BLEND, store)
    assert result.fits == 2 + 4 + 2
    assert len(result.per_seed) == len(recommenders.SEEDS)
    singles = [recommenders._selected("ml-1m", kind, grid, store) for kind, grid in members.items()]
    assert result.validation >= max(single.validation for single in singles)
    weights = result.settings["weights"]
    assert result.settings == singles[0].settings | singles[1].settings | {"weights": weights}
    assert sum(weights) == pytest.approx(1)
    again = recommenders.outcome("ml-1m", recommenders.BLEND, recommenders.Store(few_rows, frozen=True))
    np.testing.assert_array_equal(again.per_seed, result.per_seed)


def test_no_row_has_more_fits_than_the_library():
    rows = recommenders.stored_rows(recommenders.RESULTS)
    for name, row in rows.items():
        data, _, _ = name.partition(" ")
        assert int(row["fits"]) <= int(rows[f"{data} {recommenders.LIBRARY}"]["fits"]), name
