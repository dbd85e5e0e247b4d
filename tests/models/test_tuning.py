"""tune: spaces, suggestions, pruning, and whole searches on small generated data."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankbound import evaluate, models
from rankbound.data import synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists
from rankbound.models import load_ranker
from rankbound.packages import MissingPackageError
from rankbound.tuning import search as tuning_search
from rankbound.tuning import tune, workers
from rankbound.tuning.space import OBJECTIVES, ModelSpace, make_spaces
from rankbound.tuning.study import Search, TrialRecord, TrialStudy
from rankbound.tuning.trial import StepWatcher, rounds_per_step, run_trial
from tests.killing import LONG

MEASURE = "nDCG@10"
SPACE = {
    "objective": "lambdarank",  # needs no kernels, which workers would load
    "learning_rate": ["log", 0.05, 0.3],
    "num_leaves": ["int", 3, 31],
    "n_estimators": 12,
    "min_child_samples": 5,
    "early_stopping_rounds": 5,
}


def columns(*, first: int, last: int):
    """Some queries of one set of generated data, whose labels depend on the features in the same way."""
    data = synthetic_letor(queries=80, features=6, seed=1, documents=(10, 20)).take(range(first, last))
    return data.features, data.lists.labels, data.lists.query_of_item


X, Y, QID = columns(first=0, last=40)
VALID, TEST = columns(first=40, last=60), columns(first=60, last=80)


def search(**changes):
    options = {
        "qid": QID, "eval_set": VALID, "models": ["LambdaMART"], "space": SPACE, "measure": MEASURE, "trials": 4,
        "jobs": 0, "page": False,
    }  # fmt: skip
    return tune(X, Y, **options | changes)


def record(number: int, value: float, **more) -> TrialRecord:
    fields = {"model": "LambdaMART", "params": {"num_leaves": 7}, "status": "done", "values": np.array([value])}
    return TrialRecord(number, value=value, **fields | more)


def study_of(folder: Path, spaces: dict[str, ModelSpace], **changes) -> TrialStudy:
    options = {"sampler": "tpe", "pruning": True, "seed": 0, "first_model_trials": 7, "modules": {}}
    study = TrialStudy(Search(folder, MEASURE, spaces, began=time.time(), **options | changes))
    study.repair()
    return study


def settings(result):
    return [(r.model, dict(r.params), r.status, r.value) for r in result.records]


# ---- spaces ----------------------------------------------------------------------------------------------------------


def test_the_default_space_starts_with_settings_that_are_known_to_work():
    spaces = make_spaces(None, None, None)
    assert list(spaces) == ["LambdaMART", "MLPRanker"]
    trees = spaces["LambdaMART"]
    assert [(s["objective"], s["learning_rate"]) for s in trees.starts] == [
        (name, rate) for rate in (0.1, 0.05) for name in OBJECTIVES
    ]
    assert {"bounding", "num_leaves", "subsample", "colsample_bytree", "reg_lambda"} <= trees.ranges.keys()
    assert trees.fixed["n_estimators"] == 1000
    (network,) = spaces["MLPRanker"].starts
    assert network["hidden"] == list(models.MLPRanker().network)
    labels_above_30 = make_spaces(None, None, None, accepts_lambdarank=False)["LambdaMART"]
    assert {start["objective"] for start in labels_above_30.starts} == {OBJECTIVES[1]}


def test_every_start_and_every_suggestion_lies_in_the_space(tmp_path):
    spaces = make_spaces(["LambdaMART", "MLPRanker", "BoostingRanker", "RandomForestRanker"], None, None)
    for number, (name, one) in enumerate(spaces.items()):
        assert one.starts
        (folder := tmp_path / str(number)).mkdir()
        study = study_of(folder, {name: one}, sampler="random")
        tried = []
        for trial in range(1, 21):
            _, _, params = study.ask()
            assert all(r.contains(params[parameter]) for parameter, r in one.ranges.items())
            tried.append(params)
            study.finish(record(trial, 0.5), None)
        assert [{name: params[name] for name in one.ranges} for params in tried[: len(one.starts)]] == list(one.starts)
        assert ModelSpace.from_dict(name, json.loads(json.dumps(one.to_dict()))) == one


def test_fixed_parameters_are_not_searched():
    one = make_spaces(["LambdaMART"], None, {"num_leaves": 9, "objective": "lambdarank"})["LambdaMART"]
    assert one.fixed["num_leaves"] == 9
    assert not {"num_leaves", "objective"} & one.ranges.keys()
    assert len(one.starts) == 2  # the two learning rates


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["LambdaMart"], None, None), "models must be among .*, got 'LambdaMart'"),
        ((["RankCNN"], None, None), "models must be among .*, got 'RankCNN'"),
        (([], None, None), "at least one model"),
        ((None, {"LambdaMART": {"leaves": 3}}, None), "LambdaMART has no parameter 'leaves'"),
        ((["LambdaMART"], None, {"leaves": 3}), "none of LambdaMART has a parameter 'leaves'"),
        ((None, {"num_leaves": ["int", 3, 9]}, None), "space must be a dict of models"),
        ((["LambdaMART"], {"MLPRanker": {}}, None), "space must be of the models LambdaMART, got one of 'MLPRanker'"),
        ((["LambdaMART"], {"num_leaves": [3, 9]}, None), r"begins with one of float, .*, got \[3, 9\]"),
        ((["LambdaMART"], {"num_leaves": ["int", 9, 3]}, None), "the smaller one first"),
        ((["LambdaMART"], {"num_leaves": ["int", 1.5, 3]}, None), "must have integers"),
        ((["LambdaMART"], {"learning_rate": ["log", 0, 1]}, None), "must have positive numbers"),
        ((["LambdaMART"], {"learning_rate": ["log", "a", 1]}, None), "must have two numbers"),
        ((["LambdaMART"], {"objective": ["choice"]}, None), "at least one choice"),
        ((["LambdaMART"], {"objective": ["choice", "lambda-nDGC"]}, None), "nDGC"),
    ],
)
def test_spaces_that_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        make_spaces(*arguments)


# ---- suggestions -----------------------------------------------------------------------------------------------------


def test_the_first_model_has_the_first_trials_and_each_model_starts_with_its_settings(tmp_path):
    spaces = make_spaces(None, None, None)
    starts = spaces["LambdaMART"].starts
    study = study_of(tmp_path, spaces)
    names = []
    for number in range(1, 9):
        _, model, params = study.ask()
        if number <= len(starts):
            assert params == {**spaces["LambdaMART"].fixed, **starts[number - 1]}
        names.append(model)
        study.finish(record(number, 0.5, model=model), None)
    assert names == ["LambdaMART"] * 7 + ["MLPRanker"]
    assert params == {**spaces["MLPRanker"].fixed, **spaces["MLPRanker"].starts[0]}


def test_tpe_looks_where_trials_were_good(tmp_path):
    space = make_spaces(["LambdaMART"], {"learning_rate": ["log", 0.01, 1.0], "objective": ["choice", *OBJECTIVES]},
                        None)  # fmt: skip

    def search(sampler):
        (folder := tmp_path / sampler).mkdir()
        study = study_of(folder, space, sampler=sampler)
        values = []
        for number in range(1, 51):
            _, _, params = study.ask()
            values.append(-abs(np.log10(params["learning_rate"] / 0.03)) - (params["objective"] == OBJECTIVES[0]))
            study.finish(record(number, values[-1]), None)
        return np.mean(values[20:])

    assert search("tpe") > search("random") + 0.3


def test_the_leading_model_gets_most_trials(tmp_path):
    spaces = make_spaces(["LambdaMART", "MLPRanker"], None, None)
    study = study_of(tmp_path, spaces)
    models = []
    for number in range(1, 61):
        _, model, _ = study.ask()
        models.append(model)
        study.finish(record(number, 0.6 if model == "MLPRanker" else 0.5, model=model), None)
    assert models[20:].count("MLPRanker") > 25


# ---- pruning ---------------------------------------------------------------------------------------------------------


class ToyTrial:
    """The two methods of Optuna's trials by which a training is ended."""

    def __init__(self, limits):
        self.reported, self.limits = {}, limits

    def report(self, value, step):
        self.reported[step] = value

    def should_prune(self):
        step, value = list(self.reported.items())[-1]
        return value < self.limits.get(step, -1)


def search_of(**changes):
    return Search(Path(), MEASURE, {}, "tpe", True, 0, 7, {}, began=time.time(), **changes)


def test_a_training_reports_its_best_value_at_rungs_and_ends_where_optuna_prunes():
    trial = ToyTrial({10_010: 0.5, 10_020: 0.7})
    watcher = StepWatcher(search_of(), trial, 1, rounds=2.0)
    values = [0.6 if step == 3 else 0.1 for step in range(1, 100)]
    ended = next(step for step, value in enumerate(values, start=1) if watcher(step, value))
    assert ended == 20 * 2
    assert trial.reported == {10_010: 0.6, 10_020: 0.6}
    assert watcher.ended == "pruned"


def test_a_training_ends_when_the_time_is_over():
    watcher = StepWatcher(search_of(seconds=1e9), ToyTrial({}), 0, 1.0)
    assert not watcher(1, 0.1)
    watcher = StepWatcher(search_of(seconds=1e-9), ToyTrial({}), 0, 1.0)
    assert watcher(1, 0.1)
    assert watcher.ended == "stopped"


def test_rungs_count_rounds_at_a_learning_rate_of_one_tenth():
    assert rounds_per_step("LambdaMART", {"learning_rate": 0.05}) == 0.1 / 0.05
    assert rounds_per_step("LambdaMART", {"learning_rate": 1e-9}) == 5
    assert rounds_per_step("MLPRanker", {"learning_rate": 0.05}) == 1


def test_bad_trials_are_pruned_and_end_early():
    bad = 100_000  # no split is possible: every row has the same score
    space = {
        "min_child_samples": ["choice", 4, 5, 6, bad], "learning_rate": 0.1, "num_leaves": 7, "n_estimators": 30,
        "early_stopping_rounds": 30,
    }  # fmt: skip
    pruned = search(space=space, trials=24, sampler="random")
    whole = search(space=space, trials=24, sampler="random", pruning=False)
    assert {r.status for r in whole.records} == {"done"}
    ended = [r for r in pruned.records if r.status == "pruned"]
    assert any(r.params["min_child_samples"] == bad for r in ended)
    assert all(r.number > 10 for r in ended)  # the others are compared with ten complete trials
    late = [r for r in pruned.records if r.params["min_child_samples"] == bad and r.number > 12]
    assert late
    assert all(r.status == "pruned" for r in late)
    assert pruned.best.value == whole.best.value


def test_networks_are_pruned_too():
    from rankbound.tuning.search import _prepare_queries, _Wanted

    queries = _prepare_queries((X, Y, QID), VALID, None, MEASURE, _Wanted(["LinearRanker"], None, None), 0.2, 0)
    trial = ToyTrial({10: 2.0})
    trial.number = 0
    ended, ranker = run_trial(
        replace(search_of(), spaces=queries.spaces), queries.data, trial, "LinearRanker", {"epochs": 30}
    )
    assert ended.status == "pruned"
    assert len(ranker.history_) == 10


# ---- whole searches --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / "tuned"
    return tune(X, Y, qid=QID, eval_set=VALID, test_set=TEST, models=["LambdaMART"], space=SPACE, measure=MEASURE,
                trials=12, jobs=0, folder=folder)  # fmt: skip


def test_the_best_trial_is_the_saved_model(first):
    best = max(first.records, key=lambda r: (r.value, -r.number))
    assert first.best.number == best.number
    loaded = load_ranker(first.folder / "model")
    lists = Lists.from_qid(VALID[1], VALID[2], scores=loaded.predict(VALID[0]))
    assert evaluate(lists, [MEASURE]).mean()[MEASURE] == pytest.approx(best.value, abs=1e-12)
    assert loaded.score(*TEST) == pytest.approx(first.test["mean"], abs=1e-12)
    assert first.test["low"] < first.test["mean"] < first.test["high"]
    assert best.steps == loaded.boosters_[0].num_trees() <= 12
    assert [path.name for path in (first.folder / "best").iterdir()] == [str(best.number)]


def test_the_table_has_intervals_and_paired_differences(first):
    table = first.table
    assert table["value"].to_list() == sorted((r.value for r in first.records), reverse=True)
    top = table.row(0, named=True)
    assert top["difference"] == 0
    assert top["difference_low"] is None
    for row in table.iter_rows(named=True):
        assert row["low"] <= row["value"] <= row["high"]
        if row["difference_low"] is not None:
            assert row["difference_low"] <= row["difference"] <= row["difference_high"]
    differing = table.filter(table["difference"] < -0.01)
    width = (differing["difference_high"] - differing["difference_low"]).mean()
    assert width < (differing["high"] - differing["low"]).mean()  # pairing by query removes most of the variance
    saved = (first.folder / "trials.csv").read_text().splitlines()
    assert saved[0].startswith("trial,model,status,value,low,high,difference,")
    assert len(saved) == 1 + 12


def test_the_page_shows_trials_and_says_that_the_best_value_is_optimistic(first):
    text = first.page.read_text()
    assert first.page == first.folder / "report.html"
    assert f"trial {first.best.number} (LambdaMART)" in text
    assert "of 12 trials is optimistic" in text
    assert f"{first.test['mean']:.4f}" in text
    assert "Best value over time" in text
    assert "Parameters and value" in text
    assert text.count("<tr") == 12 + 1
    assert "http://" not in text.split("<main>")[1].split("</main>")[0]


def test_a_finished_search_runs_nothing_again(first):
    again = tune(X, Y, qid=QID, eval_set=VALID, test_set=TEST, models=["LambdaMART"], space=SPACE, measure=MEASURE,
                 trials=12, jobs=0, folder=first.folder)  # fmt: skip
    assert again.ran == 0
    assert settings(again) == settings(first)
    assert again.ranker.predict(X).tolist() == first.ranker.predict(X).tolist()


def test_another_search_in_the_same_folder_is_refused(first, tmp_path):
    for changes, name in (({"seed": 1}, "seed"), ({"measure": "AP"}, "measure"), ({"eval_set": TEST}, "valid")):
        with pytest.raises(DataError, match=f"contains another search, which differs in {name}"):
            search(folder=first.folder, **changes)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="is not the folder of a search"):
        search(folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_search_in_two_parts_is_the_same(first, tmp_path):
    options = {"test_set": TEST, "folder": tmp_path / "tuned"}
    search(trials=5, **options)
    result = search(trials=12, **options)
    assert result.ran == 12 - 5
    assert settings(result) == settings(first)
    assert result.ranker.predict(X).tolist() == first.ranker.predict(X).tolist()


@pytest.mark.full("takes seconds")
def test_workers_run_every_trial_once(first, tmp_path):
    result = search(trials=12, jobs=2, folder=tmp_path / "tuned")
    assert [r.number for r in result.records] == list(range(1, 13))
    assert {r.status for r in result.records} <= {"done", "pruned"}
    assert len({r.params["learning_rate"] for r in result.records}) == 12
    assert result.best.value == max(r.value for r in result.records)
    assert not list((tmp_path / "tuned").glob(".data-*"))
    assert search(trials=12, folder=tmp_path / "tuned").ran == 0


@pytest.mark.full("takes seconds")
def test_a_trial_whose_worker_dies_fails_and_the_search_goes_on(tmp_path, monkeypatch):
    started, start_process = [], workers._start_process
    monkeypatch.setattr(
        workers, "_start_process", lambda *arguments: started.append(start_process(*arguments)) or started[-1]
    )
    monkeypatch.setattr(tuning_search, "_OTHER_MODELS_FROM", 2)  # the second trial is one of the second model
    folder = tmp_path / "t"

    def kill_the_first_worker():
        journal = folder / "study.log"
        while not journal.exists() or '"op_code":7' not in journal.read_text():  # the first trial has reached a rung
            time.sleep(0.01)
        started[0].kill()

    killer = threading.Thread(target=kill_the_first_worker, daemon=True)
    killer.start()
    endless = SPACE | {"n_estimators": 1_000_000, "early_stopping_rounds": 1_000_000}
    endless["learning_rate"] = ["log", 0.2, 0.3]  # which has none of the settings to try first
    space = {"LambdaMART": endless, "RegressionRanker": {}}
    result = search(models=None, space=space, trials=2, jobs=1, folder=folder)
    killer.join()
    assert [(r.model, r.status) for r in result.records] == [("LambdaMART", "failed"), ("RegressionRanker", "done")]
    assert "the worker process died while it ran this trial" in result.records[0].error
    assert len(started) == 2


def test_another_seed_tries_other_settings():
    assert settings(search(seed=1))[2:] != settings(search(seed=2))[2:]


def test_the_random_sampler_draws_every_setting_anew():
    result = search(sampler="random", trials=13)
    assert len({r.params["learning_rate"] for r in result.records}) == 13
    assert result.table.height == 13


def test_without_optuna_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r'tune needs optuna: pip install "\.\[tune\]"'):
        search()


def test_queries_are_held_out_without_an_eval_set():
    result = search(eval_set=None, trials=1, valid_fraction=0.25)
    assert dict(result.queries) == {"training": 30, "validation": 10}
    assert result.test is None
    assert result.folder is None


def test_refit_trains_on_all_queries_with_the_selected_steps():
    kept = search(trials=2)
    refitted = search(trials=2, refit=True)
    assert settings(kept) == settings(refitted)
    assert refitted.ranker.n_queries_ == 40 + 20
    assert refitted.ranker.boosters_[0].num_trees() == kept.best.steps
    assert kept.ranker.n_queries_ == 40


def test_networks_and_forests_can_be_tuned():
    space = {"LinearRanker": {"learning_rate": ["log", 0.01, 0.1], "epochs": 3}, "RegressionRanker": {}}
    result = search(models=None, space=space, trials=9)
    assert {r.model for r in result.records} == {"LinearRanker", "RegressionRanker"}
    by_model = {r.model: r for r in result.records}
    assert by_model["RegressionRanker"].steps is None
    assert 1 <= by_model["LinearRanker"].steps <= 3


def test_column_names_of_a_frame_stay_with_the_model(tmp_path):
    import polars as pl

    names = [f"f{index}" for index in range(X.shape[1])]
    frame, valid = pl.DataFrame(X, schema=names), pl.DataFrame(VALID[0], schema=names)
    result = tune(frame, Y, qid=QID, eval_set=(valid, *VALID[1:]), models=["LambdaMART"], space=SPACE, trials=1, jobs=0,
                  folder=tmp_path / "t", page=False)  # fmt: skip
    assert list(load_ranker(tmp_path / "t" / "model").feature_names_in_) == names
    assert result.ranker.predict(frame).tolist() == result.ranker.predict(frame.select(names)).tolist()


def test_failed_trials_are_recorded_and_do_not_end_the_search(tmp_path):
    space = SPACE | {"subsample": ["choice", 0.5, -1.0]}
    result = search(space=space, trials=8, folder=tmp_path / "t")
    counts = result.to_dict()["counts"]
    assert counts["failed"] > 0
    assert counts["done"] > 0
    failed = [row for row in result.to_dict()["trials"] if row["status"] == "failed"]
    assert all(row["value"] is None and "subsample must be" in row["error"] for row in failed)
    json.dumps(result.to_dict(), allow_nan=False)
    with pytest.raises(DataError, match="all 3 trials failed; trial 1, LambdaMART: subsample must be"):
        search(space=SPACE | {"subsample": -1.0}, trials=3)


def test_the_time_budget_counts_all_runs_of_a_folder(tmp_path):
    first = search(trials=None, minutes=1e-6, folder=tmp_path / "t")
    assert [r.status for r in first.records] == ["stopped"]  # there is always one model, of one step at least
    assert first.best.steps == 1
    again = search(trials=None, minutes=1e-6, folder=tmp_path / "t")
    assert again.ran == 0
    longer = search(trials=3, minutes=60, folder=tmp_path / "t")
    assert longer.ran == 2
    assert longer.seconds > first.seconds


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 0}, "trials must be a positive integer or None, got 0"),
        ({"trials": 2.5}, "trials must be a positive integer or None, got 2.5"),
        ({"minutes": 0}, "minutes must be a positive number or None, got 0"),
        ({"minutes": float("nan")}, "minutes must be a positive number or None, got nan"),
        ({"jobs": -1}, "jobs must be a positive integer, 0 or None, got -1"),
        ({"sampler": "grid"}, "sampler must be one of tpe, random, got 'grid'"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"valid_fraction": 1.0}, "valid_fraction must lie between 0 and 1, got 1.0"),
        ({"qid": None}, "qid must be the query of each row, got None"),
        ({"eval_set": (X, Y)}, r"eval_set must be \(X, y, qid\)"),
        ({"measure": "nDGC"}, "unknown measure 'nDGC'"),
        ({"eval_set": (VALID[0], np.zeros(len(VALID[1])), VALID[2])}, "validation queries: "),
        ({"eval_set": (VALID[0][:, :3], *VALID[1:])}, "eval_set: X"),
    ],
)
def test_what_is_refused_writes_nothing(tmp_path, changes, message):
    with pytest.raises((ArgumentError, DataError), match=message):
        search(folder=tmp_path / "t", **changes)
    assert not (tmp_path / "t").exists()


def test_labels_that_are_all_equal_are_refused(tmp_path):
    with pytest.raises(DataError, match="labels must differ within at least one query"):
        tune(X, np.ones(len(Y)), qid=QID, eval_set=VALID, trials=1, jobs=0, folder=tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_damaged_journal_names_its_file(tmp_path):
    search(trials=2, folder=tmp_path / "t")
    journal = tmp_path / "t" / "study.log"
    whole = journal.read_bytes()
    for damaged in (b'{"op_code": 1\n', whole.replace(b'"values":[', b'"values":["%",'), b"[]\n" + whole, b"\xff\n"):
        journal.write_bytes(damaged + whole[:20] + b"\n")
        with pytest.raises(DataError, match=r"study\.log: is damaged: .*; choose another folder"):
            search(trials=2, folder=tmp_path / "t")


def test_a_line_that_was_being_written_when_the_process_was_killed_is_dropped(tmp_path):
    search(trials=2, folder=tmp_path / "t")
    with (tmp_path / "t" / "study.log").open("ab") as stream:
        stream.write(b'{"op_code": 4, "wor')
    result = search(trials=3, folder=tmp_path / "t")
    assert result.ran == 1
    assert settings(search(trials=4, folder=tmp_path / "t")) == settings(search(trials=4))


def test_a_trial_that_was_recorded_when_the_process_was_killed_is_kept(tmp_path):
    search(trials=2, folder=tmp_path / "t")
    journal = tmp_path / "t" / "study.log"
    lines = journal.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b'"record"' in line)
    journal.write_bytes(b"".join(lines[: last + 1]))  # without the state, which follows the record
    result = search(trials=3, folder=tmp_path / "t")
    assert result.ran == 1
    assert settings(result) == settings(search(trials=3))


def test_records_survive_the_journal():
    one = record(3, 0.1 + 0.2, values=np.array([0.1, np.nan, 1 / 3]), steps=7)
    back = TrialRecord.from_dict(json.loads(json.dumps(one.to_dict())))
    assert back.values.tobytes() == one.values.tobytes()
    assert {**vars(back), "values": 0} == {**vars(one), "values": 0}
    failed = record(4, np.nan, status="failed", values=np.empty(0), error="no memory")
    assert np.isnan(TrialRecord.from_dict(json.loads(json.dumps(failed.to_dict()))).value)


# ---- kill -9 ---------------------------------------------------------------------------------------------------------

KILLED = """
import sys
import threading
sys.path.insert(0, {root!r})
from tests.models import test_tuning
test_tuning.search(trials=1_000, jobs={jobs}, folder={folder!r}, test_set=test_tuning.TEST)
"""


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("jobs", [0, 2])
def test_a_killed_search_resumes_without_losing_or_repeating_a_trial(tmp_path, jobs):
    folder, root = tmp_path / "t", str(Path(__file__).parents[2])
    code = KILLED.format(root=root, jobs=jobs, folder=str(folder))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    journal = folder / "study.log"

    def finished() -> list[str]:
        return [line for line in journal.read_text().splitlines() if '"record"' in line] if journal.exists() else []

    limit = time.monotonic() + LONG
    while len(finished()) < 3 and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    _, error = process.communicate()
    assert process.returncode == -signal.SIGKILL, error.decode()
    before = None
    while before != (before := journal.stat().st_size):  # workers end with their parent
        time.sleep(1.0)
    kept = [TrialRecord.from_dict(json.loads(line)["user_attr"]["record"]) for line in finished()]
    assert 3 <= len(kept) < 1_000
    total = len(kept) + 4
    result = search(trials=total, folder=folder, test_set=TEST)
    assert result.ran == 4
    known = {r.number: r.to_dict() for r in result.records}
    assert len(known) == total
    assert all(known[r.number] == r.to_dict() for r in kept)
    if jobs == 0:
        assert settings(result) == settings(search(trials=total, test_set=TEST))
    assert load_ranker(folder / "model").predict(X).tolist() == result.ranker.predict(X).tolist()


# ---- Dask ------------------------------------------------------------------------------------------------------------


@pytest.mark.full("takes seconds")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_trials_run_on_dask(tmp_path):
    pytest.importorskip("cryptography")
    result = search(cluster="local:1", jobs=None, trials=3)
    assert settings(result) == settings(search(trials=3))
    with pytest.raises(ArgumentError, match="cluster must be local:N or the address"):
        search(cluster="somewhere", jobs=None, folder=tmp_path / "t")
