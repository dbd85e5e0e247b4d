"""One policy: the same runs and settings give the same intervals and p-values everywhere."""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from math import sqrt

import numpy as np
import polars as pl
import pytest
from scipy import stats

import rankbound as rb
from rankbound.cli.main import run as command
from rankbound.errors import ArgumentError, InferenceWarning
from rankbound.evaluation.alignment import align_runs
from rankbound.evaluation.comparison import compare_scores
from rankbound.evaluation.inference import FEWEST_QUERIES, Inference, group_letters, pair_statistics
from rankbound.evaluation.intervals import bootstrap_interval
from rankbound.evaluation.power import minimum_detectable_difference
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.report.system_tests import judge_systems

RNG = np.random.default_rng(7)


def matrix(systems=4, queries=40, measures=("AP", "RR"), missing=0.0):
    random = np.random.default_rng(3)
    values = {name: random.random((systems, queries)) + np.arange(systems)[:, None] / 10 for name in measures}
    for value in values.values():
        value[random.random(value.shape) < missing] = np.nan
    names = tuple(f"s{number}" for number in range(systems))
    return ScoreMatrix(names, tuple(range(queries)), values, sources=(("d", ""),))


# ---- the policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"confidence": 95}, "confidence must lie between 0 and 1, got 95"),
        ({"confidence": 1.0}, "confidence must lie between 0 and 1, got 1.0"),
        ({"interval": "normal"}, "interval must be one of bca, percentile, t, got 'normal'"),
        ({"test": "z"}, "test must be one of t, wilcoxon, randomization, got 'z'"),
        ({"correction": "sidak"}, "correction must be one of holm, bonferroni, benjamini-hochberg, none, got 'sidak'"),
        ({"resamples": 0}, "resamples must be a positive integer, got 0"),
        ({"resamples": 2.5}, "resamples must be a positive integer, got 2.5"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"power": 0.0}, "power must lie between 0 and 1, got 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        Inference(**settings)


def test_a_policy_is_frozen_and_comparable():
    assert Inference() == Inference(0.95, "bca", "t", "holm", 10_000, 0, 0.8)
    with pytest.raises(AttributeError):
        Inference().seed = 1
    assert set(Inference().to_dict()) == {field.name for field in fields(Inference)}


def test_tests_and_intervals_are_those_of_scipy():
    d = RNG.normal(0.2, 1, (30, 3))
    assert Inference().p_values(d) == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
    assert Inference().p_values(d, "wilcoxon") == pytest.approx([stats.wilcoxon(each).pvalue for each in d.T])
    low, high = Inference(interval="t", confidence=0.9).intervals(d)
    theirs = stats.ttest_1samp(d, 0).confidence_interval(0.9)
    assert (low, high) == (pytest.approx(theirs.low), pytest.approx(theirs.high))
    assert tuple(Inference(seed=5).intervals(d)[:, 1]) == pytest.approx(bootstrap_interval(d[:, 1], seed=5))


def test_the_bootstrap_gives_way_to_students_interval_where_it_says_nothing_more():
    policy = Inference(resamples=2000)
    many = RNG.random((6_000, 1))
    assert policy.intervals(many) == pytest.approx(Inference(interval="t").intervals(many))
    few = RNG.random((30, 1))
    assert policy.intervals(few, 0.9999) == pytest.approx(Inference(interval="t").intervals(few, 0.9999))
    assert Inference(resamples=20).interval_method(30) == "bca"  # few resamples, but those that were requested


@pytest.mark.parametrize(
    ("correction", "expected"),
    [("holm", 0.01 / 4), ("bonferroni", 0.01 / 4), ("benjamini-hochberg", 2 * 0.01 / 4), ("none", 0.01)],
)
def test_the_corrected_level(correction, expected):
    p = [0.001, 0.004, 0.3, 0.9]
    assert Inference(confidence=0.99, correction=correction).corrected_alpha(p) == pytest.approx(expected)


def test_corrected_intervals_hold_for_all_comparisons_together():
    """20 comparisons without any difference: all simultaneous intervals hold 0 in at least 95 % of the samples."""
    policy, missed, single = Inference(interval="t"), 0, 0
    for seed in range(300):
        d = np.random.default_rng(seed).normal(0, 1, (25, 20))
        alpha = policy.corrected_alpha(policy.p_values(d))
        ends = policy.intervals_at(d, [0.95, 1 - alpha])
        outside = (ends[:, 0] > 0) | (ends[:, 1] < 0)
        single, missed = single + outside[0].any(), missed + outside[1].any()
    assert single > 150  # at the level of a single comparison most samples have one that misses
    assert missed <= 0.05 * 300 + 3 * sqrt(300 * 0.05 * 0.95)


# ---- type-I error ----------------------------------------------------------------------------------------------------


def rejections(values, policy, repeats, seed):
    """How often the test of the policy rejects when two runs have changed places at random, query by query."""
    random = np.random.default_rng(seed)
    rejected = total = 0
    systems = len(values)
    for _ in range(repeats):
        first = random.integers(systems, size=200)
        second = (first + 1 + random.integers(systems - 1, size=200)) % systems
        signs = random.choice([-1.0, 1.0], size=(values.shape[1], 200))
        d = (values[first] - values[second]).T * signs
        d = d[:, (d != 0).sum(axis=0) > 5]  # runs that are copies of each other differ nowhere
        p = policy.p_values(d)
        rejected, total = rejected + int((p < policy.alpha).sum()), total + len(p)
    return rejected / total


def test_the_default_test_keeps_its_level_on_scores_like_those_of_runs():
    """Skewed scores in [0, 1], many of them 0 or 1, on 40 queries."""
    values = np.clip(RNG.beta(0.5, 1.0, (25, 40)).round(2), 0, 1)
    assert 0.03 < rejections(values, Inference(), repeats=10, seed=0) < 0.07


@pytest.mark.real_data
def test_the_default_test_keeps_its_level_on_real_runs(covid):
    values = covid.values["nDCG@10"]
    assert 0.03 < rejections(values, Inference(), repeats=10, seed=1) < 0.07


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.parametrize("test", ["t", "wilcoxon", "randomization"])
@pytest.mark.parametrize("measure", ["nDCG@10", "AP", "RR", "EM(nDCG@10)"])
def test_every_test_keeps_its_level_on_real_runs(covid, test, measure):
    """The simulation behind the claim: 40,000 permuted pairs of the 143 runs for each test and measure."""
    error = rejections(covid.values[measure], Inference(test=test, resamples=2000), repeats=200, seed=2)
    print(f"type-I error of the {test} test at 0.05 by {measure}: {error:.4f}")
    assert 0.03 < error < 0.07


# ---- pairs and letters -----------------------------------------------------------------------------------------------


def test_statistics_of_pairs_use_the_queries_that_both_have():
    scores = matrix(missing=0.3)
    found = pair_statistics(
        scores, "AP", 0, [1, 2, 3], [0, 0, 2], lambda d: np.stack([d.mean(axis=0), d.shape[0] + 0 * d[0]])
    )
    for column, (system, baseline) in enumerate(((1, 0), (2, 0), (3, 2))):
        d = scores.values["AP"][system] - scores.values["AP"][baseline]
        assert found[:, column] == pytest.approx([np.nanmean(d), np.isfinite(d).sum()])


def test_pairs_without_a_common_query_have_no_statistic():
    values = np.array([[0.1, np.nan], [np.nan, 0.2], [0.3, 0.4]])
    scores = ScoreMatrix(("a", "b", "c"), ("p", "q"), {"AP": values})
    found = pair_statistics(scores, "AP", 0, [1, 2], [0, 0], lambda d: d.mean(axis=0))
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(0.2)


def test_letters_agree_with_the_corrected_tests():
    scores = matrix(systems=7, queries=25)
    comparison = compare_scores(scores, None, Inference())
    for measure, letters in comparison.letters.items():
        for row in comparison.rows:
            if row.measure == measure:
                share = bool(set(letters[row.run]) & set(letters[row.baseline]))
                assert share == (row.p_corrected >= 0.05)
    order = {(0, "AP"): [6, 5, 4], (0, "RR"): [2, 1]}
    assert set(group_letters(scores, Inference(), order)[0, "RR"]) == {1, 2}


# ---- equal everywhere ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Inference(), Inference(0.9, "percentile", "randomization", "bonferroni", 500, 3)])
@pytest.mark.parametrize("baseline", [None, "s1", ["s1", "s3"]])
def test_reports_and_comparisons_have_the_same_numbers(policy, baseline):
    scores = matrix()
    check_equal(compare_scores(scores, baseline, policy), judge_systems(scores, baseline, policy))


def check_equal(comparison, verdicts):
    """p-values, both intervals, detectable differences, means and letters of a comparison and of a report."""
    rows = {(row.measure, row.baseline, row.run): row for row in comparison.rows}
    checked = 0
    for verdict in verdicts:
        for test in verdict.systems:
            assert test.mean == pytest.approx(comparison.mean()[test.system][verdict.measure], abs=1e-12)
            ends = comparison.intervals[test.system][verdict.measure]
            assert (test.ci_low, test.ci_high) == pytest.approx(ends, abs=1e-12)
            assert test.letters == comparison.letters[verdict.measure][test.system]
            if test.difference is None:
                continue
            row, sign = rows.get((verdict.measure, verdict.versus, test.system)), 1.0
            if row is None:  # the pair the other way round
                row, sign = rows[verdict.measure, test.system, verdict.versus], -1.0
            assert test.p_value == pytest.approx(row.p_corrected, abs=1e-12)
            assert test.difference == pytest.approx(sign * row.difference, abs=1e-12)
            for ours, theirs in (
                ((test.difference_low, test.difference_high), (row.ci_low, row.ci_high)),
                ((test.corrected_low, test.corrected_high), (row.ci_low_corrected, row.ci_high_corrected)),
            ):
                turned = theirs if sign > 0 else (-theirs[1], -theirs[0])
                assert ours == pytest.approx(turned, abs=1e-9)
            assert test.minimum_detectable_difference == pytest.approx(row.minimum_detectable_difference, rel=1e-9)
            checked += 1
    baselines = max(1, len(comparison.baselines))
    assert checked == len(comparison.measures) * baselines * (len(comparison.runs) - baselines)


OPTIONS = ["--confidence", "0.9", "--resamples", "400", "--seed", "5"]
POLICY = Inference(confidence=0.9, resamples=400, seed=5)


def check_commands(qrels, paths, measures, folder, capsys, monkeypatch):
    """compare, its rows, its page, report and rb.compare print equal p-values and intervals."""
    monkeypatch.setattr("rankbound.report.page.draw_figures", lambda *_: {})
    monkeypatch.setattr("rankbound.studies.figures.draw_figures", lambda *_: {})
    flags = [flag for name in measures for flag in ("-m", name)]
    page, rows, tables = folder / "page.html", folder / "rows.csv", folder / "tables"
    code = command(
        ["compare", str(qrels), *map(str, paths), *flags, *OPTIONS, "--json", "--page", str(page), "--rows", str(rows)]
    )
    answer = json.loads(capsys.readouterr().out)
    assert code == 0
    python = rb.compare(*paths, qrels=qrels, measures=measures, inference=POLICY)
    names = {str(path): name for path, name in zip(paths, python.runs, strict=True)}
    written = list(csv.DictReader(rows.read_text().splitlines()))
    assert answer["inference"] == POLICY.to_dict()
    numbers = ("p_t", "p_t_holm", "p_wilcoxon_holm", "p_randomization_holm", "p_corrected", "ci_low", "ci_high",
               "ci_low_corrected", "ci_high_corrected", "minimum_detectable_difference")  # fmt: skip
    for ours, theirs, line in zip(python.rows, answer["differences"], written, strict=True):
        assert (ours.run, ours.baseline) == (names[theirs["run"]], names[theirs["baseline"]])
        for number in numbers:
            assert theirs[number] == getattr(ours, number)
            assert float(line[number]) == theirs[number]
    first = names[str(paths[0])]
    code = command(
        [
            "report",
            str(qrels),
            *map(str, paths),
            *flags,
            *OPTIONS,
            "--baseline",
            first,
            "-o",
            str(folder / "r.html"),
            "--tables",
            str(tables),
        ]
    )
    assert code == 0, capsys.readouterr().err
    reported = pl.read_csv(tables / "differences.csv")
    by_key = {(row.measure, row.run): row for row in python.rows}
    assert reported.height == len(python.rows)
    for line in reported.iter_rows(named=True):
        row = by_key[line["measure"], line["system"]]
        assert line["versus"] == row.baseline == first
        expected = (row.p_corrected, row.ci_low, row.ci_high, row.ci_low_corrected, row.ci_high_corrected)
        keys = ("p_value", "ci_low", "ci_high", "ci_low_corrected", "ci_high_corrected")
        assert tuple(line[key] for key in keys) == pytest.approx(expected, abs=1e-9)
    shown = (tables / "differences.md").read_text()
    row = python.rows[0]
    assert "90 % interval" in shown
    for text in (f"{row.ci_low:+.4f}", f"{row.ci_high:+.4f}"):
        assert text.replace("-", "−") in shown
        assert text.replace("-", "−") in page.read_text()


@pytest.mark.filterwarnings("ignore::rankbound.errors.InferenceWarning")
def test_commands_and_python_agree(tmp_path, capsys, monkeypatch):
    random = np.random.default_rng(2)
    qrels = tmp_path / "qrels.txt"
    qrels.write_text("".join(f"q{q} 0 d{d} {int(d < 3)}\n" for q in range(12) for d in range(10)))
    paths = []
    for number in range(3):
        paths.append(tmp_path / f"run{number}.txt")
        scores = random.random((12, 10)) + number * (np.arange(10) < 3) / 3
        lines = (f"q{q} Q0 d{d} 1 {scores[q, d]:.6f} t\n" for q in range(12) for d in range(10))
        paths[-1].write_text("".join(lines))
    check_commands(qrels, paths, ["nDCG@10", "EM(AP)"], tmp_path, capsys, monkeypatch)


@pytest.mark.real_data
def test_commands_and_python_agree_on_two_real_runs(data_dir, tmp_path, capsys, monkeypatch):
    folder = data_dir / "trec-covid-round1"
    paths = [folder / "runs" / name for name in ("run1.gz", "smith.rm3.gz")]
    check_commands(folder / "qrels.covid-round1.txt.gz", paths, ["nDCG@10", "AP"], tmp_path, capsys, monkeypatch)


@pytest.fixture(scope="module")
def covid(data_dir):
    """All 143 runs of the first round of TREC-COVID."""
    folder = data_dir / "trec-covid-round1"
    runs = sorted((folder / "runs").iterdir())
    assert len(runs) == 143
    measures = ["nDCG@10", "AP", "RR", "EM(nDCG@10)"]
    names = [run.name for run in runs]
    return align_runs(folder / "qrels.covid-round1.txt.gz", runs, measures, rb.Protocol(judged_only=True), names=names)


@pytest.mark.real_data
def test_reports_and_comparisons_of_all_pairs_of_143_real_runs_have_the_same_numbers(covid):
    scores = ScoreMatrix(covid.systems, covid.query_ids, {"nDCG@10": covid.values["nDCG@10"]}, sources=covid.sources)
    policy = Inference(resamples=2000)
    comparison = compare_scores(scores, None, policy)
    assert len(comparison.columns["p_t"]) == 143 * 142 // 2
    check_equal(comparison, judge_systems(scores, None, policy))
    # after correction for 10,153 tests, randomization tests still tell runs apart
    assert (np.asarray(comparison.columns["p_randomization_holm"]) < 0.05).sum() > 1000


# ---- warnings --------------------------------------------------------------------------------------------------------


def few(queries):
    qrels = {f"q{i}": {"a": 1, "b": 0, "c": 0} for i in range(queries)}
    good = {q: {"a": 0.9, "b": 0.5, "c": 0.1 * (i % 3)} for i, q in enumerate(qrels)}
    bad = {q: {"a": 0.3, "b": 0.5, "c": 0.2 * (i % 3)} for i, q in enumerate(qrels)}
    return qrels, good, bad


def test_intervals_of_few_queries_come_with_a_warning():
    qrels, good, bad = few(FEWEST_QUERIES - 1)
    with pytest.warns(InferenceWarning, match="The intervals of RR, AP rest on 9 queries; with fewer than 10"):
        comparison = rb.compare(bad, good, qrels=qrels, measures=["RR", "AP"])
    assert comparison.notes == tuple(comparison.to_dict()["notes"]) != ()
    with pytest.warns(InferenceWarning, match="The intervals of RR rest on 9 queries"):
        rb.evaluate(qrels, good, "RR").interval()


def test_enough_queries_come_without(recwarn):
    qrels, good, bad = few(FEWEST_QUERIES)
    assert rb.compare(bad, good, qrels=qrels, measures="RR").notes == ()
    assert rb.evaluate(qrels, good, "RR").interval()["RR"] == (1.0, 1.0)
    assert not recwarn


def test_randomization_tests_that_cannot_be_significant_are_named():
    """12 queries give p >= 2 / 2^12; 200 tests make that 0.098."""
    random = np.random.default_rng(0)
    scores = ScoreMatrix(tuple(map(str, range(201))), tuple(range(12)), {"AP": random.random((201, 12))})
    (note,) = compare_scores(scores, "0", Inference()).notes
    assert note.startswith("No randomization test can be significant: after correction its p-value is at least 0.098")
    assert compare_scores(scores, "0", Inference(correction="none")).notes == ()


# ---- a single run ----------------------------------------------------------------------------------------------------


def test_the_interval_of_an_evaluation_is_that_of_the_policy():
    qrels, _, bad = few(30)
    result = rb.evaluate(qrels, bad, ["RR", "AP"])
    for name, ends in result.interval(0.9, seed=4).items():
        expected = Inference(confidence=0.9, seed=4).intervals(result.values[name][:, None])[:, 0]
        assert ends == pytest.approx(tuple(expected))
        assert ends[0] <= result.mean()[name] <= ends[1]
    low, high = result.interval(method="t")["RR"]
    theirs = stats.ttest_1samp(result.values["RR"], 0).confidence_interval()
    assert (low, high) == pytest.approx((theirs.low, theirs.high))


def test_an_evaluation_without_a_query_that_counts_has_no_interval(recwarn):
    low, high = rb.evaluate({"q": {"a": 0}}, {"q": {"a": 1.0}}, "AP").interval()["AP"]
    assert np.isnan(low)
    assert np.isnan(high)


def test_rows_have_the_detectable_difference_before_and_after_correction():
    scores = matrix()
    comparison = compare_scores(scores, "s0", Inference())
    for row in comparison.rows:
        system, baseline = (scores.systems.index(name) for name in (row.run, row.baseline))
        d = scores.values[row.measure][system] - scores.values[row.measure][baseline]
        assert row.minimum_detectable_difference == pytest.approx(minimum_detectable_difference(d))
        corrected = minimum_detectable_difference(d, alpha=0.05 / 6)
        assert row.minimum_detectable_difference_corrected == pytest.approx(corrected)


# ---- the summary -----------------------------------------------------------------------------------------------------


def test_a_summary_has_the_best_run_first_and_agrees_with_the_rows():
    for baseline in ("s1", None):
        comparison = compare_scores(matrix(systems=5), baseline, Inference())
        summary = comparison.summary("RR")
        assert summary["run"].to_list() == ["s4", "s3", "s2", "s1", "s0"]
        assert summary["mean"].is_sorted(descending=True)
        versus = "s4" if baseline is None else baseline
        means = comparison.mean()
        for row in summary.iter_rows(named=True):
            if row["run"] == versus:
                assert row["difference"] is None
                continue
            assert row["versus"] == versus
            assert row["difference"] == pytest.approx(means[row["run"]]["RR"] - means[versus]["RR"])
            assert row["difference_low"] <= row["difference"] <= row["difference_high"]
            pair = {row["run"], versus}
            (test,) = (each for each in comparison.rows if each.measure == "RR" and {each.run, each.baseline} == pair)
            assert row["p_corrected"] == test.p_corrected
    with pytest.raises(ArgumentError, match="measure must be one of AP, RR, got 'P@5'"):
        comparison.summary("P@5")


@pytest.mark.parametrize(("baseline", "tests"), [("s1", 4 * 2), (None, 10 * 2)])
@pytest.mark.parametrize("correction", ["holm", "none"])
def test_intervals_of_a_summary_are_at_the_level_of_its_p_values(baseline, tests, correction):
    scores = matrix(systems=5)
    summary = compare_scores(scores, baseline, Inference(interval="t", correction=correction)).summary("RR")
    values = dict(zip(scores.systems, scores.values["RR"], strict=True))
    level = 1 - 0.05 / (tests if correction == "holm" else 1)
    for row in summary.drop_nulls("difference").iter_rows(named=True):
        d = values[row["run"]] - values[row["versus"]]
        ends = stats.t.interval(level, len(d) - 1, d.mean(), stats.sem(d))
        assert (row["difference_low"], row["difference_high"]) == pytest.approx(ends)
