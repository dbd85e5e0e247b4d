"""compare: what it counts, on which queries, against which candidates."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from scipy import stats

from rankbound.difficulty import QUERY_TYPES, bounds
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate
from rankbound.evaluation.comparison import compare, compare_scores
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.lists import Lists

MEASURES = ["nDCG@10", "AP", "UL2(nDCG@10)"]

pytestmark = pytest.mark.filterwarnings("ignore::rankbound.errors.InferenceWarning")  # few queries are easy to read


def make_data(queries=40, seed=0, skills=(0.2, 1.0)):
    """Judgments and one complete run for each skill."""
    random = np.random.default_rng(seed)
    qrels, runs = {}, [{} for _ in skills]
    for q in range(queries):
        labels = random.integers(0, 3, random.integers(3, 15))
        labels[0] = 1
        qrels[f"q{q}"] = {f"d{i}": int(label) for i, label in enumerate(labels)}
        for run, skill in zip(runs, skills, strict=True):
            run[f"q{q}"] = {f"d{i}": float(skill * label + random.normal()) for i, label in enumerate(labels)}
    return qrels, runs


def test_rows_hold_what_the_evaluations_say():
    qrels, (weak, strong) = make_data()
    comparison = compare(weak, strong, qrels=qrels, measures=MEASURES)
    first, second = evaluate(qrels, weak, MEASURES), evaluate(qrels, strong, MEASURES)
    assert comparison.runs == ("run 1", "run 2")
    for row in comparison.rows:
        d = second.values[row.measure] - first.values[row.measure]
        counted = ~np.isnan(d)
        assert row.queries == counted.sum()
        assert row.mean_baseline == pytest.approx(first.mean()[row.measure])
        assert row.mean_run == pytest.approx(second.mean()[row.measure])
        assert row.difference == pytest.approx(d[counted].mean())
        assert row.ci_low < row.difference < row.ci_high
        assert row.p_t == pytest.approx(stats.ttest_1samp(d[counted], 0).pvalue, rel=1e-6)
        assert row.wins + row.ties + row.losses == row.queries
        assert row.p_t <= row.p_t_holm <= 3 * row.p_t


def test_types_partition_the_queries_that_count():
    qrels, runs = make_data()
    comparison = compare(*runs, qrels=qrels, measures=["nDCG@10"])
    kinds = {row.type: row.queries for row in comparison.by_type}
    assert set(kinds) <= set(QUERY_TYPES)
    assert sum(kinds.values()) == comparison.rows[0].queries
    total = sum(row.queries * row.difference for row in comparison.by_type)
    assert total / comparison.rows[0].queries == pytest.approx(comparison.rows[0].difference)


def test_one_call_gives_the_same_numbers_again():
    qrels, runs = make_data()
    assert compare(*runs, qrels=qrels, measures=MEASURES).rows == compare(*runs, qrels=qrels, measures=MEASURES).rows
    other = compare(*runs, qrels=qrels, measures=MEASURES, seed=1)
    assert other.rows != compare(*runs, qrels=qrels, measures=MEASURES).rows


def test_holm_goes_over_all_pairs_and_measures_of_the_call():
    qrels, runs = make_data(skills=(0.2, 0.4, 1.0))
    against_first = compare(*runs, qrels=qrels, measures=["AP", "RR"])
    assert [(row.baseline, row.run) for row in against_first.rows[:2]] == [("run 1", "run 2"), ("run 1", "run 3")]
    every_pair = compare(*runs, qrels=qrels, measures=["AP", "RR"], baseline=None)
    assert len(every_pair.rows) == 6
    smallest = min(every_pair.rows, key=lambda row: row.p_t)
    assert smallest.p_t_holm == pytest.approx(min(1.0, 6 * smallest.p_t))


def test_only_shared_queries_are_compared_and_the_others_counted():
    qrels, (first, second) = make_data(queries=10)
    del first["q0"], second["q1"]
    second["q2-unjudged"] = {"d": 1.0}
    comparison = compare(first, second, qrels=qrels, measures="AP")
    assert (comparison.queries, comparison.left_out) == (8, 2)
    kept = compare(first, second, qrels=qrels, measures="AP", missing="zero")
    assert (kept.queries, kept.left_out) == (10, 0)
    values = kept.per_query.filter(pl.col("qid") == "q0")
    assert values["run 1"].to_list() == [0.0]


def test_what_is_compared_does_not_change_a_value():
    qrels = {"q": {"a": 1, "z": 0}}
    shallow, deep = {"q": {"a": 1.0}}, {"q": {"z": 2.0, "a": 1.0, "b": 0.5, "c": 0.2, "d": 0.1}}
    alone = [evaluate(qrels, run, "EB(AP)").mean() for run in (shallow, deep)]
    together = compare(shallow, deep, qrels=qrels, measures="EB(AP)").mean()
    assert together == {"run 1": alone[0], "run 2": alone[1]}
    expected = bounds("AP", n=2, relevant=1).expected
    assert alone == [{"EB(AP)": pytest.approx(1 / expected)}, {"EB(AP)": pytest.approx(1 / 2 / expected)}]


def test_with_judged_only_unjudged_documents_are_no_candidates():
    qrels = {"q": {"a": 1, "b": 0}}
    run = {"q": {"a": 1.0, "b": 0.5, "x": 3.0}}
    means = compare(run, run, qrels=qrels, measures="EB(AP)", judged_only=True).mean()
    assert means["run 1"]["EB(AP)"] == pytest.approx(1 / bounds("AP", n=2, relevant=1).expected)


def test_returning_nothing_is_a_random_ranking_and_is_not_left_out():
    qrels = {"q": {"a": 1, "b": 0}, "p": {"a": 1, "b": 0}}
    full, half = ({q: {"a": 1.0, "b": 0.5} for q in names} for names in ("qp", "q"))
    row = compare(full, half, qrels=qrels, measures="EM(AP)", missing="zero").rows[0]
    assert (row.queries, row.mean_baseline, row.mean_run) == (2, 1.0, 0.5)  # 1 and 0


def test_where_lower_is_better_a_lower_value_wins():
    qrels, (weak, strong) = make_data(skills=(0.0, 3.0))
    plain, bounded = compare(weak, strong, qrels=qrels, measures=["U", "MM(U)"]).rows
    assert plain.difference < 0 < bounded.difference
    assert plain.wins > plain.losses
    assert (plain.wins, plain.losses) == (bounded.wins, bounded.losses)


def test_lists_evaluations_frames_and_dicts_agree():
    qrels, runs = make_data()
    judged = pl.DataFrame(
        [(q, d, v) for q, ds in qrels.items() for d, v in ds.items()], schema=["qid", "docid", "label"], orient="row"
    )
    frames = [
        pl.DataFrame(
            [(q, d, v) for q, ds in run.items() for d, v in ds.items()], schema=["qid", "docid", "score"], orient="row"
        )
        for run in runs
    ]
    rows = compare(*runs, qrels=qrels, measures=MEASURES).rows
    lists = [Lists.from_dicts(qrels, run) for run in runs]
    evaluations = [evaluate(qrels, run, MEASURES, bounds=True) for run in runs]
    for other in (
        compare(*frames, qrels=judged, measures=MEASURES),
        compare(*lists, measures=MEASURES),
        compare(*evaluations),
    ):
        for ours, theirs in zip(rows, other.rows, strict=True):
            assert theirs.difference == pytest.approx(ours.difference)
            assert theirs.p_wilcoxon == pytest.approx(ours.p_wilcoxon)
    by_type = compare(*evaluations).by_type
    assert [(row.type, row.queries) for row in by_type if row.measure == "UL2(nDCG@10)"] == [
        (row.type, row.queries) for row in compare(*lists, measures=MEASURES).by_type if row.measure == "UL2(nDCG@10)"
    ]


def test_evaluations_without_bounds_have_no_types():
    qrels, runs = make_data(queries=5)
    comparison = compare(*(evaluate(qrels, run, ["AP"]) for run in runs))
    assert comparison.by_type == ()
    assert comparison.type_table.columns[0] == "measure"
    assert comparison.per_query["type"].to_list() == [None] * 5


def test_evaluations_must_have_the_measures_that_are_asked_for():
    qrels, runs = make_data()
    first, second = evaluate(qrels, runs[0], ["AP", "RR"]), evaluate(qrels, runs[1], ["AP"])
    assert compare(first, second).measures == ("AP",)
    assert compare(first, second, measures="AP").measures == ("AP",)
    for options, asked in (({"measures": ["AP", "RR"]}, "AP, RR"), ({"measures": ["RR"]}, "RR")):
        with pytest.raises(ArgumentError, match=f"every evaluation must have {asked}; one has AP"):
            compare(first, second, **options)
    with pytest.raises(ArgumentError, match="every evaluation must have RR; one has RR"):
        compare(evaluate(qrels, runs[0], ["RR"]), second)


def test_queries_without_a_name_are_refused():
    qrels, (_, strong) = make_data(queries=3)
    nameless = pl.DataFrame({"qid": ["q0", None], "docid": ["d0", "d1"], "score": [1.0, 2.0]})
    with pytest.raises(DataError, match="column 'qid' must have no empty entries"):
        compare(nameless, strong, qrels=qrels, measures="AP")


def test_a_comparison_is_shown_in_one_line():
    qrels, runs = make_data(queries=3)
    shown = repr(compare(*runs, qrels=qrels, measures="AP", names=["old", "new"]))
    assert shown == "Comparison(runs=['old', 'new'], measures=['AP'], queries=3)"


def test_queries_are_matched_by_name_whatever_their_order_and_type():
    qrels = {1: {"a": 1, "b": 0}, 2: {"a": 0, "b": 1}}
    first = pl.DataFrame({"qid": ["2", "1", "2", "1"], "docid": ["a", "a", "b", "b"], "score": [1.0, 2.0, 0.5, 1.0]})
    second = {1: {"a": 2.0, "b": 1.0}, 2: {"a": 1.0, "b": 0.5}}
    row = compare(first, second, qrels=qrels, measures="RR").rows[0]
    assert (row.difference, row.ties) == (0.0, 2)
    backwards = Lists([0, 1, 1, 0], [0, 2, 4], [1.0, 0.5, 2.0, 1.0], qids=["2", "1"])
    forwards = Lists([1, 0, 0, 1], [0, 2, 4], [2.0, 1.0, 1.0, 0.5], qids=["1", "2"])
    assert compare(backwards, forwards, measures="RR").rows[0].ties == 2


def test_no_query_that_counts_gives_no_test():
    qrels = {"q": {"a": 0, "b": 0}}
    run = {"q": {"a": 1.0, "b": 0.5}}
    comparison = compare(run, run, qrels=qrels, measures=["AP", "RR"])
    row = comparison.rows[0]
    assert (row.queries, row.mean_run, row.difference, row.ci_low, row.effect_size) == (0, None, None, None, None)
    assert (row.p_t, row.p_wilcoxon_holm, row.p_randomization, row.p_corrected) == (None, None, None, None)
    assert comparison.empty_queries == 1
    assert comparison.by_type == ()


def test_one_query_has_no_interval():
    qrels, runs = make_data(queries=1)
    row = compare(*runs, qrels=qrels, measures="AP").rows[0]
    assert (row.queries, row.ci_low, row.p_t) == (1, None, 1.0)


def test_tables_and_json_hold_the_rows():
    qrels, runs = make_data(queries=12)
    comparison = compare(*runs, qrels=qrels, measures=MEASURES)
    assert comparison.table["difference"].to_list() == [row.difference for row in comparison.rows]
    assert len(comparison.type_table) == len(comparison.by_type)
    assert comparison.per_query.columns == ["measure", "qid", "type", "run 1", "run 2"]
    assert len(comparison.per_query) == 12 * 3
    answer = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert answer["differences"][0]["measure"] == "nDCG@10"
    assert set(answer) >= {"runs", "mean", "queries", "empty_queries", "left_out_queries", "by_type"}


def test_runs_are_named_by_their_files(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.txt").write_text("q Q0 a 1 0.5 t\n")
    (tmp_path / "qrels").write_text("q 0 a 1\nq 0 b 0\n")
    paths = [tmp_path / "one" / "run.txt", tmp_path / "two" / "run.txt"]
    assert compare(*paths, qrels=tmp_path / "qrels", measures="AP").runs == tuple(map(str, paths))
    assert compare(paths[0], {"q": {"a": 1}}, qrels=tmp_path / "qrels", measures="AP").runs == ("run.txt", "run 2")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((1,), {}, "at least two runs, got 1"),
        ((2,), {"baseline": 2}, "baseline must be None or between 0 and 1, got 2"),
        ((2,), {"measures": []}, "at least one measure"),
        ((2,), {"qrels": None}, "compare needs qrels"),
        ((2,), {"names": ["a", "a"]}, "2 different names"),
        ((2,), {"ties": "best"}, "ties must be one of"),
        ((2,), {"empty": "nan"}, "empty must be one of"),
        ((2,), {"missing": "nan"}, "missing must be one of"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, options, message):
    qrels, runs = make_data(queries=3)
    with pytest.raises(ArgumentError, match=message):
        compare(*runs[: arguments[0]], **({"qrels": qrels, "measures": "AP"} | options))


def test_runs_without_a_common_query_are_refused():
    qrels = {"q": {"a": 1}, "p": {"a": 1}}
    with pytest.raises(DataError, match="no query in common"):
        compare({"q": {"a": 1.0}}, {"p": {"a": 1.0}}, qrels=qrels, measures="AP")
    first, second = (Lists([1, 0], [0, 2], [1.0, 0.5], qids=[name]) for name in "ab")
    with pytest.raises(DataError, match="no query in common"):
        compare(first, second, measures="AP")


def test_lists_take_no_judgments():
    lists = Lists([1, 0], [0, 2], [1.0, 0.5])
    with pytest.raises(ArgumentError, match="qrels go with"):
        compare(lists, lists, qrels={}, measures="AP")


@pytest.mark.parametrize(
    ("queries", "test", "cautioned"),
    [(1_000, "wilcoxon", False), (1_001, "wilcoxon", True), (1_001, "t", False), (1_001, "randomization", False)],
)
def test_a_caution_for_the_wilcoxon_test_beyond_a_thousand_queries(queries, test, cautioned):
    values = np.random.default_rng(5).random((2, queries))
    scores = ScoreMatrix(("old", "new"), tuple(map(str, range(queries))), {"AP": values})
    found = compare_scores(scores, "old", Inference(test=test, resamples=200))
    assert any("the Wilcoxon test finds skewed differences significant" in note for note in found.notes) == cautioned


def test_the_caution_is_true_of_skewed_differences_with_a_mean_of_zero():
    d = np.random.default_rng(3).exponential(size=(2_000, 200)) - 1
    rejected = {test: (Inference().p_values(d, test) < 0.05).mean() for test in ("wilcoxon", "t")}
    assert rejected["wilcoxon"] > 0.9
    assert rejected["t"] < 0.05 + 4 * (0.05 * 0.95 / 200) ** 0.5


def test_several_baselines_are_corrected_together():
    qrels, runs = make_data(skills=(0.2, 0.3, 0.8, 1.0))
    found = compare(*runs, qrels=qrels, measures=["nDCG@10", "AP"], baseline=[0, 1])
    assert (found.baselines, found.baseline) == (("run 1", "run 2"), None)
    pairs = [("run 1", "run 3"), ("run 1", "run 4"), ("run 2", "run 3"), ("run 2", "run 4")]
    assert [(row.baseline, row.run) for row in found.rows] == pairs * 2
    p = np.sort([row.p_t for row in found.rows])
    holm = np.minimum(1, np.maximum.accumulate(p * np.arange(8, 0, -1)))
    assert sorted(row.p_corrected for row in found.rows) == pytest.approx(holm.tolist())
    best = max(found.baselines, key=lambda run: found.mean()[run]["nDCG@10"])
    summary = {row["run"]: row for row in found.summary().iter_rows(named=True)}
    assert {summary[run]["versus"] for run in found.runs if run != best} == {best}
    row = next(row for row in found.rows if (row.measure, row.baseline, row.run) == ("nDCG@10", best, "run 4"))
    assert summary["run 4"]["difference"] == row.difference
    other = next(run for run in found.baselines if run != best)
    assert summary[other]["difference"] is None
    assert compare(*runs, qrels=qrels, measures="AP", baseline=[0]).baseline == "run 1"


@pytest.mark.parametrize("baseline", [[], [0, 0], [0, 1], [2], 2, -1])
def test_baselines_are_some_of_the_runs(baseline):
    qrels, runs = make_data()
    with pytest.raises(ArgumentError, match="baseline must"):
        compare(*runs, qrels=qrels, measures="AP", baseline=baseline)
