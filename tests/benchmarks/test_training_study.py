"""The comparison of training methods: its measure, data, selection, records and tables."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from math import log2
from pathlib import Path

import numpy as np
import pytest

import rankbound as rb
from benchmarks.quality.training import methods as registry
from benchmarks.quality.training import sets
from benchmarks.quality.training.__main__ import main
from benchmarks.quality.training.analysis import analyze
from benchmarks.quality.training.methods import METHODS
from benchmarks.quality.training.ndcg import MEASURE, FastNDCG
from benchmarks.quality.training.protocols import NETWORKS, TREES, Fit, Setting, outcome_of, selected_round
from benchmarks.quality.training.runner import Progress, all_jobs, compute
from benchmarks.quality.training.runner import run as run_jobs
from benchmarks.quality.training.sets import CONFIRMATION, DEVELOPMENT, SETS, DataSet, Parts, load_parts
from benchmarks.quality.training.simulators import GRADE_FRACTIONS, web_search
from benchmarks.quality.training.store import Job, Record, Store
from benchmarks.quality.training.trees import LightGBM, Ours, XGBoost
from rankbound.data import LetorData, synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.lists import Lists

pytestmark = pytest.mark.full("tests of the benchmarks")

# ---- the measure -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [2, 5, 10_000])  # few levels: many ties
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fast_ndcg_is_that_of_evaluate(levels, dtype):
    rng = np.random.default_rng(levels)
    sizes = rng.integers(1, 40, 60)
    labels = rng.integers(0, 5, sizes.sum()) * (rng.random(sizes.sum()) < 0.2)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    scores = (rng.integers(0, levels, sizes.sum()) / 7).astype(dtype)
    expected = evaluate_lists(Lists(labels, offsets, scores.astype(np.float64)), [MEASURE])
    values = FastNDCG(Lists(labels, offsets))(scores)
    np.testing.assert_allclose(values, expected.values[MEASURE], atol=1e-12)
    assert np.isnan(values).any()
    assert np.isfinite(values).any()
    documents = [{f"d{row}": row for row in range(*ends)} for ends in pairwise(offsets)]
    qrels, run = ({str(q): {d: column[row].item() for d, row in rows.items()} for q, rows in enumerate(documents)}
                  for column in (labels, scores))  # fmt: skip
    mean = rb.evaluate(qrels, run, [MEASURE]).mean()[MEASURE]
    assert FastNDCG(Lists(labels, offsets)).mean(scores) == pytest.approx(mean)


def test_fast_ndcg_ends_at_rank_10():
    lists = Lists([0] * 10 + [3], [0, 11])
    assert FastNDCG(lists)(-np.arange(11.0)).tolist() == [0.0]
    assert FastNDCG(lists)(np.r_[np.zeros(9), -1.0, -0.5]).tolist() == [pytest.approx(1 / log2(11))]


# ---- data ------------------------------------------------------------------------------------------------------------


def test_roles_divide_the_sets():
    assert set(DEVELOPMENT) == {"mq2008", "simulator-additive"}
    assert not set(DEVELOPMENT) & set(CONFIRMATION)
    assert {*DEVELOPMENT, *CONFIRMATION} == set(SETS)
    assert len(CONFIRMATION) == 7
    assert sets.chosen_sets(["confirmation", "mq2008"]) == ("mq2008", *CONFIRMATION)
    with pytest.raises(ArgumentError, match=r"sets must be among .* got 'mq2009'"):
        sets.chosen_sets(["mq2009"])


def test_web_search_is_deterministic_and_differs_by_seed():
    first, again, other = web_search(40, seed=1), web_search(40, seed=1), web_search(40, seed=2)
    np.testing.assert_array_equal(first.features, again.features)
    np.testing.assert_array_equal(first.lists.labels, again.lists.labels)
    assert first.features.shape != other.features.shape or (first.features != other.features).any()


def test_web_search_has_the_documented_properties():
    data = web_search(400, seed=3)
    labels, offsets = data.lists.labels, data.lists.offsets
    np.testing.assert_allclose(np.bincount(labels) / len(labels), GRADE_FRACTIONS, atol=1e-3)
    assert data.lists.sizes.min() >= 10
    assert data.lists.sizes.max() <= 150
    features = data.features
    assert features.shape[1] == 48
    assert np.isfinite(features).all()
    low, high = (np.stack([f(features[a:b], axis=0) for a, b in pairwise(offsets)]) for f in (np.min, np.max))
    assert ((low == high).all(axis=0)[:4]).all()  # features of the query
    assert not (low == high).all(axis=0)[4:].any()
    in_links = features[:, 29]
    assert np.quantile(in_links, 0.999) > 50 * np.median(in_links)  # a heavy tail
    without_relevant = np.maximum.reduceat(labels, offsets[:-1]) == 0
    assert 0 < without_relevant.mean() < 0.2
    single = max(np.nanmean(FastNDCG(data.lists)(features[:, k])) for k in range(4, 48))
    constant = np.nanmean(FastNDCG(data.lists)(np.zeros(len(labels))))
    assert constant + 0.05 < single < 0.8  # features help, and none alone is enough
    with pytest.raises(ArgumentError, match="web_search needs queries >= 1"):
        web_search(0)


def test_a_fold_of_a_simulator_has_disjoint_queries_and_names_of_its_own(monkeypatch):
    monkeypatch.setattr(sets, "SIMULATED", (6, 4, 5))
    first, second = (SETS["simulator-web"].load(number) for number in (1, 2))
    assert [len(part.lists) for part in (first.train, first.validation, first.test)] == [6, 4, 5]
    assert first.test_queries.tolist()[0] == "seed 1: 11"
    assert not set(first.test_queries) & set(second.test_queries)


def test_random_folds_test_every_query_once_per_split(monkeypatch):
    monkeypatch.setattr(sets, "load_set", lambda name: synthetic_letor(queries=23, documents=(5, 9)))
    sets._whole.cache_clear()
    try:
        folds = [SETS["mslr-sample"].load(number) for number in range(1, 11)]
    finally:
        sets._whole.cache_clear()
    for repeat in (folds[:5], folds[5:]):
        tested = np.concatenate([fold.test_queries for fold in repeat])
        assert sorted(map(int, tested)) == list(range(1, 24))
    assert any(set(a.test_queries) != set(b.test_queries) for a, b in zip(folds[:5], folds[5:], strict=True))
    for fold, following in zip(folds[:5], [*folds[1:5], folds[0]], strict=True):
        assert set(fold.validation.lists.query_ids) == set(map(int, following.test_queries))
        parts = (fold.train, fold.validation, fold.test)
        assert sum(len(part.lists) for part in parts) == 23
        assert len({int(query) for part in parts for query in part.lists.query_ids}) == 23


def test_missing_features_become_the_mean_of_the_training_rows():
    lists = Lists([1, 0], [0, 2])

    def data(rows):
        return LetorData(lists, np.array(rows, dtype=np.float32))

    parts = Parts(
        data([[1, np.nan], [3, np.nan]]), data([[np.nan, 5], [9, 6]]), data([[7, 8], [9, 0]]), np.array(["a"])
    )
    filled = parts.without_nan()
    assert filled.train.features.tolist() == [[1, 0], [3, 0]]
    assert filled.validation.features.tolist() == [[(1 + 3) / 2, 5], [9, 6]]
    assert filled.without_nan() is filled


def test_letor_2_needs_the_folder_of_the_data(monkeypatch, tmp_path):
    monkeypatch.delenv("RANKBOUND_DATA", raising=False)
    with pytest.raises(DataError, match="RANKBOUND_DATA must name the folder"):
        SETS["ohsumed-letor2"].load(1)
    monkeypatch.setenv("RANKBOUND_DATA", str(tmp_path))
    with pytest.raises(DataError, match="must hold exactly one file train"):
        SETS["ohsumed-letor2"].load(1)


# ---- selection -------------------------------------------------------------------------------------------------------


def test_every_method_has_the_same_number_of_trainings():
    for method in METHODS.values():
        assert len(method.settings["tuned"]) == 2
        assert len(method.settings["equal rounds"]) == 1
        assert set(method.references) <= set(METHODS) - {method.name}
    assert TREES["equal rounds"] == (Setting(0.1, 31, 100, None),)
    assert NETWORKS["equal rounds"][0].patience is None


def test_the_round_is_the_first_best_before_patience_ends():
    assert selected_round([0.2, 0.5, 0.5, 0.4], patience=3) == 2
    assert selected_round([0.2, 0.5, 0.4, 0.4, 0.4, 0.9], patience=3) == 2
    assert selected_round([0.2, 0.5, 0.4, 0.4, 0.9], patience=3) == 5
    assert selected_round([0.9, 0.5, 0.4], patience=None) == 3


def test_the_setting_is_the_one_with_the_best_validation_value(additive):
    curves = {0.1: [0.3, 0.6, 0.5], 0.2: [0.4, 0.7, 0.1], 0.3: [0.7, 0.2, 0.1]}

    class Scripted:
        def fit(self, parts, setting, seed):
            return Fit(curves[setting.learning_rate], lambda rounds: np.array([setting.learning_rate, rounds]))

    outcome = outcome_of(Scripted(), additive, [Setting(rate, 15, 3, 50) for rate in curves], seed=0)
    assert (outcome.setting.learning_rate, outcome.round, outcome.validation) == (0.2, 2, 0.7)
    assert outcome.test_scores.tolist() == [0.2, 2]
    outcome = outcome_of(Scripted(), additive, [Setting(0.2, 31, 3, None)], seed=0)
    assert (outcome.round, outcome.validation) == (3, 0.1)


# ---- methods ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def additive() -> Parts:
    data = synthetic_letor(queries=60, documents=(5, 12), seed=4)
    train, validation, test = (data.take(np.arange(a, b)) for a, b in ((0, 30), (30, 45), (45, 60)))
    return Parts(train, validation, test, np.asarray(test.lists.query_ids).astype(np.str_))


@pytest.mark.parametrize("method", [LightGBM("x", "lambdarank"), XGBoost("x", "rank:ndcg")])
def test_the_curve_of_a_library_is_that_of_its_predictions(method, additive):
    """The last value of the curve is the measure of the model's scores of the same documents."""
    mirrored = Parts(additive.train, additive.validation, additive.validation, additive.test_queries)
    fit = method.fit(mirrored, Setting(0.1, 7, 8, None), seed=0)
    ndcg = FastNDCG(additive.validation.lists)
    assert len(fit.curve) == 8
    for rounds in (1, 4, 8):
        assert fit.curve[rounds - 1] == pytest.approx(ndcg.mean(fit.test_scores(rounds)))
    stopped = method.fit(mirrored, Setting(0.3, 7, 60, 2), seed=0)
    assert len(stopped.curve) < 60
    assert len(stopped.curve) == selected_round(stopped.curve, 2) + 2


def test_the_seed_changes_the_model_and_weights_do(additive):
    def scores(seed=0, **options):
        return LightGBM("x", "lambdarank", **options).fit(additive, Setting(0.1, 7, 5, None), seed).test_scores(5)

    np.testing.assert_array_equal(scores(), scores())
    assert (scores() != scores(seed=1)).any()
    assert (scores() != scores(weights={"bounding": "expectation-max"})).any()


def test_our_objectives_train_and_define_themselves(additive):
    smooth = LightGBM("x", Ours("NDCGLoss", {"alpha": 2.0}))
    assert "NDCGLoss" in smooth.definition()
    assert "alpha=2.0" in smooth.definition()
    assert "weights" in LightGBM("x", "lambdarank", weights={"bounding": "min-max"}).definition()
    curve = smooth.fit(additive, Setting(0.1, 7, 15, None), seed=0).curve
    assert max(curve) > FastNDCG(additive.validation.lists).mean(np.zeros(len(additive.validation.features)))


def test_unknown_methods_are_refused():
    with pytest.raises(ArgumentError, match=r"methods must be among lambdarank; .* got 'lambdarnk'"):
        registry.chosen_methods(["lambdarnk"])


# ---- records ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_study(monkeypatch):
    """A simulator of few queries, and methods that try one or two small settings."""
    monkeypatch.setattr(sets, "SIMULATED", (25, 12, 15))
    monkeypatch.setitem(SETS, "simulator-web", DataSet("simulator-web", 2, 500, "small", SETS["simulator-web"].load))
    settings = {"tuned": (Setting(0.1, 4, 3, 2), Setting(0.3, 4, 3, 2)), "equal rounds": (Setting(0.1, 4, 3, None),)}
    monkeypatch.setitem(METHODS, "lambdarank", LightGBM("lambdarank", "lambdarank", (), settings=settings))
    monkeypatch.setitem(
        METHODS, "XGBoost rank:ndcg", XGBoost("XGBoost rank:ndcg", "rank:ndcg", ("lambdarank",), settings=settings)
    )
    load_parts.cache_clear()
    yield ["--sets", "simulator-web", "--methods", "lambdarank", "XGBoost rank:ndcg", "--seeds", "0", "1"]
    load_parts.cache_clear()


def test_a_study_runs_resumes_and_is_reported(small_study, tmp_path, capsys):
    folder, output = tmp_path / "store", tmp_path / "results"
    options = ["--store", str(folder), *small_study]
    assert main(["run", *options, "--dry-run"]) == 0
    assert "24" in capsys.readouterr().out  # 2 methods, 2 folds, 2 seeds, 2 + 1 settings
    assert not folder.exists()

    assert main(["run", *options, "--folds", "1", "--workers", "1"]) == 0
    files = sorted(folder.rglob("*.npz"))
    assert len(files) == 8
    written = {file: file.stat().st_mtime_ns for file in files}
    capsys.readouterr()
    assert main(["run", *options, "--workers", "1"]) == 0
    assert "8 of 16 records are finished, 8 to compute" in capsys.readouterr().err
    assert len(list(folder.rglob("*.npz"))) == 16
    assert {file: file.stat().st_mtime_ns for file in files} == written

    record = Store(folder).read(Job("simulator-web", "tuned", "lambdarank", 2, 1))
    assert len(record.values) == len(record.queries) == 15
    assert record.about["setting"]["rounds"] == 3
    assert record.about["versions"]["lightgbm"]
    assert 0 < record.about["validation"] < 1

    assert main(["report", *options, "-o", str(output)]) == 0
    assert "XGBoost rank:ndcg" in capsys.readouterr().out
    rows = read_rows(output / "training.csv")
    assert {(row["protocol"], row["method"], row["reference"]) for row in rows} == {
        (protocol, *pair)
        for protocol in ("tuned", "equal rounds")
        for pair in (("lambdarank", ""), ("XGBoost rank:ndcg", "lambdarank"))
    }
    assert all(row["records"] == "4" for row in rows)
    page = (output / "training.md").read_text()
    assert "## Protocol: equal rounds" in page
    assert "planned runs were completed" not in page


def test_records_of_another_definition_are_reported_and_can_be_computed_again(
    small_study, tmp_path, capsys, monkeypatch
):
    options = ["--store", str(tmp_path), *small_study[:3], "lambdarank", "--folds", "1", "--workers", "1"]
    options += ["--protocols", "equal rounds", "--seeds", "0"]
    assert main(["run", *options]) == 0
    job = Job("simulator-web", "equal rounds", "lambdarank", 1, 0)
    before = Store(tmp_path).read(job)
    changed = {**METHODS["lambdarank"].settings, "equal rounds": (Setting(0.1, 4, 2, None),)}
    monkeypatch.setitem(METHODS, "lambdarank", LightGBM("lambdarank", "lambdarank", (), settings=changed))
    assert main(["run", *options]) == 0
    assert "1 records are of another definition of the method or its settings: kept" in capsys.readouterr().err
    assert Store(tmp_path).read(job).about == before.about
    assert main(["run", *options, "--refresh"]) == 0
    assert Store(tmp_path).read(job).about["round"] == 2


def test_a_method_that_fails_does_not_end_the_run(small_study, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(METHODS, "rank_xendcg", LightGBM("rank_xendcg", Ours("NoSuchLoss")))
    jobs = all_jobs(["simulator-web"], ["rank_xendcg", "lambdarank"], ["equal rounds"], [0], folds=1)
    failures = run_jobs(jobs, Store(tmp_path), workers=1)
    assert [failure.job.method for failure in failures] == ["rank_xendcg"]
    assert "NoSuchLoss" in failures[0].error
    assert "failed: rank_xendcg on simulator-web fold 1" in capsys.readouterr().err
    assert Store(tmp_path).has(jobs[1])
    assert compute(jobs[1], tmp_path) == 0.0  # is there already


def test_the_store_stays_outside_the_repository(capsys):
    assert main(["run", "--store", str(Path(__file__).parent), "--dry-run"]) == 2
    assert "store must be a folder outside the repository" in capsys.readouterr().err


def test_a_damaged_or_misplaced_record_is_refused(tmp_path):
    store, job = Store(tmp_path), Job("mq2008", "tuned", "ours, weights", 1, 0)
    store.write(job, Record(np.array(["1"]), np.array([0.5]), {}))
    other = Job("mq2008", "tuned", "ours, weights", 2, 0)
    store.path(other).write_bytes(store.path(job).read_bytes())
    with pytest.raises(DataError, match="must be the record of ours, weights on mq2008 fold 2"):
        store.read(other)
    store.path(job).write_bytes(b"PK")
    with pytest.raises(DataError, match="is not a record of a training"):
        store.read(job)


def test_time_left_is_in_proportion_to_the_work(capsys, monkeypatch):
    jobs = [Job("mq2008", "tuned", "lambdarank", 1, 0), Job("mq2008", "equal rounds", "lambdarank", 1, 0)]
    clock = iter([0.0, 120.0, 130.0])
    monkeypatch.setattr("benchmarks.quality.training.runner.time.monotonic", lambda: next(clock))
    progress = Progress(jobs)
    progress.report(jobs[0], 120.0)
    progress.report(jobs[1], 10.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"1 of 2 records, about {120 * 100 / 600:.0f} s left")
    assert lines[1].startswith("2 of 2 records, about 0 s left")


# ---- analysis --------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def hand_made(differences: dict[str, list[list[float]]], method: str = "ours") -> dict[Job, Record]:
    """Records of lambdarank with 0.5 everywhere and of a method that differs: set -> seed -> query."""
    records = {}
    for dataset, by_seed in differences.items():
        for seed, per_query in enumerate(by_seed):
            queries = np.array([f"q{index}" for index in range(len(per_query))])
            reference = np.where(np.isnan(per_query), np.nan, 0.5)
            for name, values in (("lambdarank", reference), (method, reference + per_query)):
                records[Job(dataset, "tuned", name, 1, seed)] = Record(queries, values, {"versions": {"numpy": "2"}})
    return records


def test_differences_are_averaged_over_seeds_and_then_over_queries():
    nan = float("nan")
    records = hand_made({"mq2008": [[0.1, 0.3, nan, 0.0], [0.3, -0.1, nan, 0.2]]})
    means, (comparison,), pooled = analyze(records)
    expected = np.array([(0.1 + 0.3) / 2, (0.3 - 0.1) / 2, (0.0 + 0.2) / 2])
    assert comparison.queries == 3
    assert comparison.records == 2
    assert comparison.difference == pytest.approx(expected.mean())
    assert (comparison.reference_mean, comparison.mean) == (0.5, pytest.approx(0.5 + expected.mean()))
    t = expected.mean() / (expected.std(ddof=1) / np.sqrt(3))
    from scipy.stats import t as student

    assert comparison.p == pytest.approx(2 * student.sf(t, 2))
    assert {mean.method: round(mean.value, 9) for mean in means} == {
        "lambdarank": 0.5, "ours": round(0.5 + expected.mean(), 9)
    }  # fmt: skip
    assert [(row.group, row.sets) for row in pooled] == [("development", 1)]


def test_a_comparison_uses_the_folds_and_seeds_that_both_methods_have():
    records = hand_made({"mq2008": [[0.1, 0.2], [0.5, 0.6]]})
    del records[Job("mq2008", "tuned", "lambdarank", 1, 1)]
    _, (comparison,), _ = analyze(records)
    assert (comparison.records, comparison.difference) == (1, pytest.approx((0.1 + 0.2) / 2))


def test_queries_of_several_splits_count_once():
    records = hand_made({"mslr-sample": [[0.1, 0.2]]})
    for job, record in list(records.items()):
        shift = 0.1 if job.method == "ours" else 0.0
        records[Job(job.dataset, job.protocol, job.method, 6, 0)] = Record(
            record.queries[::-1], record.values[::-1] + shift, {}
        )
    _, (comparison,), _ = analyze(records)
    assert (comparison.queries, comparison.records) == (2, 2)
    assert comparison.difference == pytest.approx((0.1 + 0.2) / 2 + 0.1 / 2)


def test_wins_ties_and_losses_are_corrected_over_the_sets_of_a_role():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.1, 200)
    noise -= noise.mean()
    noise /= noise.std(ddof=1) * np.sqrt(200)  # standard error of the mean: 1 / 200

    def shifted(z):  # a mean of z standard errors
        return [(noise + z / 200).tolist()]

    records = hand_made(
        {"mq2007": shifted(6), "ohsumed": shifted(-6), "mslr-sample": shifted(2.1), "mq2007-agg": shifted(0.5),
         "mq2008": shifted(2.1)}
    )  # fmt: skip
    _, comparisons, pooled = analyze(records)
    by_set = {c.dataset: c for c in comparisons}
    assert {name: c.outcome for name, c in by_set.items()} == {
        "mq2007": "win", "ohsumed": "loss", "mslr-sample": "tie", "mq2007-agg": "tie", "mq2008": "win"
    }  # fmt: skip
    assert {name: c.interval_outcome for name, c in by_set.items()} == {
        "mq2007": "win", "ohsumed": "loss", "mslr-sample": "win", "mq2007-agg": "tie", "mq2008": "win"
    }  # fmt: skip
    assert by_set["mslr-sample"].corrected_p == pytest.approx(2 * by_set["mslr-sample"].p)  # the third of four
    assert by_set["mq2008"].corrected_p == by_set["mq2008"].p  # the only development set
    groups = {row.group: row for row in pooled}
    confirmation = groups["confirmation"]
    assert confirmation.difference == pytest.approx((6 - 6 + 2.1 + 0.5) / 4 / 200)
    assert (confirmation.outcomes, confirmation.interval_outcomes) == ((1, 2, 1), (2, 1, 1))
    half = 1.96 / 200 / np.sqrt(4)  # the mean of four independent means
    assert confirmation.high - confirmation.difference == pytest.approx(half, rel=0.1)
    assert confirmation.difference - confirmation.low == pytest.approx(half, rel=0.1)


def test_the_report_of_a_hand_made_store(tmp_path):
    store = Store(tmp_path / "store")
    for job, record in hand_made({"mq2008": [[0.1, 0.3, 0.2, 0.2]], "mq2007": [[0.0, 0.0, 0.0, 0.0]]}).items():
        store.write(job, record)
    assert json.loads(str(np.load(store.path(job))["about"]))["method"] == job.method
    options = ["--store", str(store.folder), "--methods", "lambdarank", "ours", "--protocols", "tuned"]
    assert main(["report", *options, "-o", str(tmp_path)]) == 0
    rows = {(row["set"], row["method"]): row for row in read_rows(tmp_path / "training.csv")}
    assert float(rows["mq2008", "ours"]["difference"]) == pytest.approx((0.1 + 0.3 + 0.2 + 0.2) / 4)
    assert (rows["mq2008", "ours"]["role"], rows["mq2007", "ours"]["role"]) == ("development", "confirmation")
    assert rows["mq2007", "ours"]["outcome"] == "tie"
    assert rows["mq2007", "lambdarank"]["mean"] == "0.500000"
    pooled = {row["group"]: row for row in read_rows(tmp_path / "training-pooled.csv")}
    assert float(pooled["development"]["difference"]) == pytest.approx(0.2)
    assert (pooled["confirmation"]["ties"], pooled["confirmation"]["intervals_with_0"]) == ("1", "1")
    page = (tmp_path / "training.md").read_text()
    assert "| ours | lambdarank | **+0.2000**" in page
    assert "planned runs were completed:" in page


def test_a_report_of_nothing_is_refused(tmp_path, capsys):
    assert main(["report", "--store", str(tmp_path), "-o", str(tmp_path)]) == 2
    assert "store must hold records" in capsys.readouterr().err
