"""Results in MLflow, with a store in a folder, and in any tracker with log_metric."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlflow")

import mlflow

import rankbound as rb
from rankbound.errors import ArgumentError
from rankbound.integrations import log_to, log_to_mlflow

pytestmark = pytest.mark.full("needs a tool that only .venv-all has")

RNG = np.random.default_rng(3)
QRELS = {f"q{i}": {f"d{j}": int(RNG.integers(0, 3)) for j in range(8)} for i in range(12)} | {"none": {"d0": 0}}
RUNS = {
    name: {q: {d: noise * RNG.normal() + label for d, label in documents.items()} for q, documents in QRELS.items()}
    for name, noise in (("new", 0.5), ("old/base line.txt", 2.0))
}
MEASURES = ["nDCG@10", "EM(nDCG@10)", "nDCG(dcg='exp-log2')@5"]
NAMES = ["nDCG_at_10", "EM_nDCG_at_10", "nDCG_dcg_exp-log2_at_5"]


@pytest.fixture(scope="module")
def evaluation():
    return rb.evaluate(QRELS, RUNS["new"], MEASURES)


@pytest.fixture(scope="module")
def comparison():
    return rb.compare(*RUNS.values(), qrels=QRELS, measures=MEASURES[:2], names=list(RUNS), resamples=200)


class Metrics:
    """The least that a tracker has."""

    def __init__(self):
        self.metrics, self.steps = {}, set()

    def log_metric(self, name, value, step="no step"):
        assert name not in self.metrics
        self.metrics[name] = value
        self.steps.add(step)


class Texts(Metrics):
    def __init__(self):
        super().__init__()
        self.files = {}

    def log_text(self, text, name):
        self.files[name] = text


class Artifacts(Metrics):
    def __init__(self):
        super().__init__()
        self.files = {}

    def log_artifact(self, path):
        self.files[Path(path).name] = Path(path).read_text(encoding="utf-8")


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_means_and_intervals_of_an_evaluation(evaluation):
    tracker = Metrics()
    returned = log_to(tracker, evaluation, prefix="test/", step=4)
    assert returned == tracker.metrics
    assert tracker.steps == {4}
    expected, intervals = evaluation.mean(), evaluation.interval()
    for name, measure in zip(NAMES, MEASURES, strict=True):
        assert tracker.metrics.pop(f"test/{name}") == expected[measure]
        assert (tracker.metrics.pop(f"test/{name}_low"), tracker.metrics.pop(f"test/{name}_high")) == intervals[measure]
    assert tracker.metrics == {}


def test_means_and_intervals_of_a_comparison(comparison):
    tracker = Metrics()
    log_to(tracker, comparison)
    assert tracker.steps == {"no step"}
    for run, name in (("new", "new"), ("old/base line.txt", "old_base line.txt")):
        assert tracker.metrics[f"{name}/EM_nDCG_at_10"] == comparison.mean()[run]["EM(nDCG@10)"]
        assert tracker.metrics[f"{name}/EM_nDCG_at_10_high"] == comparison.intervals[run]["EM(nDCG@10)"][1]
    assert len(tracker.metrics) == 2 * 2 * 3


def test_several_evaluations_and_without_intervals(evaluation):
    tracker = Texts()
    results = rb.evaluate(QRELS, RUNS, ["AP"])
    assert log_to(tracker, results, interval=False, page=False) == {
        "new/AP": results["new"].mean()["AP"],
        "old_base line.txt/AP": results["old/base line.txt"].mean()["AP"],
    }
    table = rows(tracker.files["per_query.csv"])
    assert [row["run"] for row in table] == ["new"] * 13 + ["old/base line.txt"] * 13
    assert set(json.loads(tracker.files["result.json"])) == set(RUNS)


def test_a_mean_over_no_query_is_left_out_and_names_stay_different():
    class Result:
        def mean(self):
            return {"AP(rel=2)": 0.25, "AP(rel='2')": 0.75, "RR": float("nan"), "P@5": None}

    tracker = Texts()
    log_to(tracker, Result())
    assert tracker.metrics == {"AP_rel_2": 0.25, "AP_rel_2_2": 0.75}
    assert tracker.files == {}  # the result has no tables


def test_a_result_without_any_value_has_tables_and_no_page():
    nothing = {"a": {"x": 0, "y": 0}, "b": {"x": 0}}
    tracker = Texts()
    assert log_to(tracker, rb.evaluate(nothing, nothing, ["AP", "EM(RR)"])) == {}
    assert sorted(tracker.files) == ["per_query.csv", "result.json"]


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "separator"), [(Texts, "/"), (Artifacts, "_")])
def test_files_of_an_evaluation(evaluation, make, separator):
    tracker = make()
    log_to(tracker, evaluation, prefix="test/")
    files = {name.removeprefix(f"test{separator}"): text for name, text in tracker.files.items()}
    assert sorted(files) == ["per_query.csv", "report.html", "result.json"]
    table = rows(files["per_query.csv"])
    assert [row["qid"] for row in table] == list(QRELS)
    assert float(table[3]["EM(nDCG@10)"]) == evaluation.values["EM(nDCG@10)"][3]
    assert table[12]["nDCG@10"] == ""  # a query with nothing relevant
    assert json.loads(files["result.json"])["mean"] == evaluation.mean()
    assert f"a mean nDCG@10 of {evaluation.mean()['nDCG@10']:.4f} over 12 queries" in files["report.html"]
    log_to(smaller := make(), evaluation, per_query=False, page=False)
    assert list(smaller.files) == ["result.json"]


def test_files_of_a_comparison(comparison):
    tracker = Texts()
    log_to(tracker, comparison)
    assert sorted(tracker.files) == ["differences.csv", "per_query.csv", "report.html", "result.json"]
    difference = rows(tracker.files["differences.csv"])[0]
    assert float(difference["difference"]) == comparison.rows[0].difference
    assert len(rows(tracker.files["per_query.csv"])) == 2 * 13
    assert "old/base line.txt" in tracker.files["report.html"]
    assert len(tracker.files["report.html"]) > 100_000  # with every query and the figures


# ---- MLflow ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 writes to a folder only with this
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield mlflow.MlflowClient()
    mlflow.set_tracking_uri(before)


def test_a_result_in_mlflow(store, evaluation):
    with mlflow.start_run() as run:
        metrics = log_to_mlflow(evaluation, prefix="valid/", step=1, page=False)
        log_to_mlflow(evaluation, prefix="valid/", step=2)
    data = store.get_run(run.info.run_id).data
    assert data.metrics == metrics
    assert data.metrics["valid/EM_nDCG_at_10"] == evaluation.mean()["EM(nDCG@10)"]
    assert [point.step for point in store.get_metric_history(run.info.run_id, "valid/nDCG_at_10_low")] == [1, 2]
    names = [file.path for file in store.list_artifacts(run.info.run_id, "valid")]
    assert sorted(names) == ["valid/per_query.csv", "valid/report.html", "valid/result.json"]
    table = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/valid/per_query.csv")
    assert float(rows(table)[0]["nDCG@10"]) == evaluation.values["nDCG@10"][0]


def test_a_comparison_in_mlflow(store, comparison):
    with mlflow.start_run() as run:
        log_to_mlflow(comparison, page=False)
    metrics = store.get_run(run.info.run_id).data.metrics
    assert metrics["old_base line.txt/nDCG_at_10"] == comparison.mean()["old/base line.txt"]["nDCG@10"]


@pytest.mark.parametrize("run", ["../up", "/absolute", "a//b", "..", "Läufe №1 (neu)", "x" * 400, "<b>&", ""])
def test_mlflow_accepts_the_name_of_every_run(store, run):
    class Result:
        def mean(self):
            return {run: {"nDCG(dcg='exp-log2')@5": 0.5}, f"{run} 2": {"nDCG(dcg='exp-log2')@5": 0.25}}

    with mlflow.start_run() as active:
        log_to_mlflow(Result())
    assert sorted(store.get_run(active.info.run_id).data.metrics.values()) == [0.25, 0.5]


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_what_a_tracker_and_a_result_must_have(evaluation):
    with pytest.raises(ArgumentError, match=r"tracker must have a method log_metric\(name, value\), got dict"):
        log_to({}, evaluation)
    with pytest.raises(ArgumentError, match=r"result must be an Evaluation, a Comparison or have mean\(\), got float"):
        log_to(Metrics(), 0.5)


def test_without_mlflow_the_error_names_the_extra(evaluation, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r'needs mlflow-skinny: pip install "\.\[mlflow\]"'):
        log_to_mlflow(evaluation)
