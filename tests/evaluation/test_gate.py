"""The gate: its tests against scipy, its error rates and power by simulation, and what it does with runs and files."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from scipy import stats

import rankbound as rb
from rankbound.cli.main import run as run_command
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.baselines import Baseline
from rankbound.evaluation.gate import PairedValues, gate_rows, store_baseline
from rankbound.evaluation.groups import read_groups
from rankbound.evaluation.inference import Inference
from rankbound.report.gate import gate_markdown
from rankbound.testing import assert_no_regression

MARGIN = 0.02
REPEATS = [pytest.param(2_000, marks=pytest.mark.full("2,000 simulations")), 300]


def paired(change, baseline=None):
    """Values whose differences are these numbers."""
    old = np.zeros(len(change)) if baseline is None else baseline
    return PairedValues("nDCG@10", np.arange(len(change)), old, old + np.asarray(change, float))


def outcome(change, margin=MARGIN):
    rows, _ = gate_rows([paired(change)], None, margin, Inference())
    return rows[0].outcome


def slack(repeats, rate):
    """Three standard errors of a simulated rate, at least a point."""
    return max(0.01, 3 * np.sqrt(rate * (1 - rate) / repeats)) if repeats < 2_000 else 0.01


def similar_systems(random, queries, spread=0.1):
    """Values of two systems that are equally good: in [0, 1], skewed, often equal, as nDCG@10 of two versions."""
    ability = random.beta(1.2, 0.8, queries)
    noise = spread * random.standard_t(4, (2, queries)) * (random.random(queries) < 0.7)
    return np.clip(ability + noise, 0, 1)


# ---- one row ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_p_values_and_limits_are_those_of_scipy(seed):
    random = np.random.default_rng(seed)
    change = random.normal(random.normal(0, 0.02), 0.1, random.integers(5, 80))
    row = gate_rows([paired(change)], None, MARGIN, Inference())[0][0]
    assert row.p_margin == pytest.approx(stats.ttest_1samp(change, -MARGIN, alternative="greater").pvalue, rel=1e-9)
    assert row.p_loss == pytest.approx(stats.ttest_1samp(change, 0.0, alternative="less").pvalue, rel=1e-9)
    lower, upper = stats.t.interval(0.9, len(change) - 1, change.mean(), stats.sem(change))
    assert (row.lower, row.upper) == pytest.approx((lower, upper))
    assert (row.outcome == "pass") == (row.lower > -MARGIN)
    assert (row.outcome == "fail") == (row.upper < 0 and not row.lower > -MARGIN)


def test_equal_runs_pass_and_equal_losses_fail():
    assert outcome(np.zeros(30)) == "pass"
    assert outcome(np.full(30, -0.1)) == "fail"
    assert outcome(np.full(30, -0.01)) == "pass"


def test_four_queries_are_too_few_for_any_verdict():
    rows, _ = gate_rows([paired([-0.5, -0.4, -0.5, -0.6])], None, MARGIN, Inference())
    assert (rows[0].outcome, rows[0].lower, rows[0].p_loss) == ("cannot tell", None, None)


def test_families_are_corrected_by_holm():
    random = np.random.default_rng(1)
    parts = [paired(random.normal(-0.02, 0.1, 40)) for _ in range(3)]
    rows, _ = gate_rows(parts, None, MARGIN, Inference())
    raw = np.array([stats.ttest_1samp(part.change, 0, alternative="less").pvalue for part in parts])
    expected = np.maximum.accumulate(np.sort(raw) * [3, 2, 1])[np.argsort(np.argsort(raw))]
    assert [row.p_loss for row in rows] == pytest.approx(np.minimum(expected, 1).tolist())


# ---- error rates and power -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("queries", [20, 50, 200])
def test_a_change_that_loses_nothing_fails_in_at_most_five_percent(queries, repeats):
    random = np.random.default_rng(queries)
    failed = 0
    for _ in range(repeats):
        old, new = similar_systems(random, queries)
        failed += outcome(new - old) == "fail"
    assert failed / repeats <= 0.05 + slack(repeats, 0.05)


@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("queries", [20, 50, 200])
def test_a_loss_of_the_margin_passes_in_at_most_five_percent(queries, repeats):
    random = np.random.default_rng(queries + 1)
    passed = 0
    for _ in range(repeats):
        old, new = similar_systems(random, queries)
        passed += outcome(new - old - 0.05, margin=0.05) == "pass"
    assert passed / repeats <= 0.05 + slack(repeats, 0.05)


@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("sd", [0.05, 0.1, 0.2])
def test_the_stated_number_of_queries_has_a_power_of_80_percent(sd, repeats):
    pilot = np.random.default_rng(3).normal(0, 1, 50)
    pilot = sd * (pilot - pilot.mean()) / pilot.std(ddof=1)
    stated = gate_rows([paired(pilot)], None, MARGIN, Inference())[0][0].queries_needed
    assert stated is not None
    random = np.random.default_rng(4)
    passed = sum(outcome(random.normal(0, sd, stated)) == "pass" for _ in range(repeats))
    assert passed / repeats == pytest.approx(0.8, abs=0.03 if repeats == 2_000 else 0.07)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("queries", [20, 50, 200])
def test_every_regression_of_twice_the_detectable_difference_is_found(queries, seed):
    old, new = similar_systems(np.random.default_rng(seed), queries)
    change = new - old
    detectable = rb.evaluation.minimum_detectable_difference(change, alpha=0.1)  # one-sided at 0.05
    assert outcome(change - change.mean() - 2 * detectable, margin=min(MARGIN, detectable)) == "fail"


@pytest.mark.parametrize("repeats", [REPEATS[0], 60])
def test_any_of_twenty_groups_fails_in_at_most_five_percent(repeats):
    random = np.random.default_rng(7)
    groups = read_groups({str(query): f"group {query % 20}" for query in range(400)})
    failed = 0
    for _ in range(repeats):
        old, new = similar_systems(random, 400)
        rows, by_group = gate_rows([paired(new - old)], groups, MARGIN, Inference())
        assert len(by_group) == 20
        failed += any(row.outcome == "fail" for row in [*rows, *by_group])
    assert failed / repeats <= 0.05 + slack(repeats, 0.05)


# ---- runs ------------------------------------------------------------------------------------------------------------


def judged(queries=30, documents=6):
    """Judgments with one relevant document per query, and a run that has it at rank 1 or 2."""
    qrels = {f"q{i}": {f"d{j}": int(j == 0) for j in range(documents)} for i in range(queries)}
    run = {f"q{i}": {f"d{j}": float(documents - j) + 1.5 * (j == 1 and i % 2) for j in range(documents)}
           for i in range(queries)}  # fmt: skip
    return qrels, run


def without_answers(run, every=3):
    """The run with the relevant document last in some queries."""
    return {query: {**docs, "d0": -1.0} if i % every == 0 else docs for i, (query, docs) in enumerate(run.items())}


def test_values_are_those_of_evaluate_and_the_worst_queries_come_first():
    qrels, run = judged()
    new = without_answers(run)
    result = rb.gate(qrels, run, new, ["RR", "nDCG@10"], margin=0.02)
    assert result.outcome == "fail"
    for row in result.rows:
        assert row.mean_baseline == pytest.approx(rb.evaluate(qrels, run, row.measure).mean()[row.measure])
        assert row.mean_run == pytest.approx(rb.evaluate(qrels, new, row.measure).mean()[row.measure])
    lost = result.worst(3)["RR"]
    assert lost[0]["change"] == pytest.approx(1 / 6 - 1)
    changes = result.per_query.filter(measure="RR")["change"].to_list()
    assert changes == sorted(changes)


def test_a_query_that_the_new_run_lacks_counts_as_zero_and_one_that_the_baseline_lacks_is_left_out():
    qrels, run = judged()
    fewer = {query: docs for i, (query, docs) in enumerate(run.items()) if i % 3}
    assert rb.gate(qrels, run, fewer, "RR", margin=0.02).outcome == "fail"
    row = rb.gate(qrels, run, fewer, "RR", margin=0.02).rows[0]
    assert row.queries == 30
    assert row.mean_run == pytest.approx(rb.evaluate(qrels, fewer, "RR", missing="zero").mean()["RR"])
    back = rb.gate(qrels, fewer, run, "RR", margin=0.02)
    assert (back.outcome, back.rows[0].queries) == ("pass", 20)
    assert any("10" in note and "left out" in note for note in back.notes)


def test_json_lines_of_rag_tools_are_judgments_and_runs(tmp_path, capsys):
    rows = [{"id": str(i), "expected_ids": ["a"], "retrieved_ids": ["a", "b"] if i % 4 else []} for i in range(40)]
    worse = [{**row, "retrieved_ids": ["b", "a"] if i % 5 == 0 else row["retrieved_ids"]} for i, row in enumerate(rows)]
    for name, content in (("old", rows), ("new", worse)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    old, new = str(tmp_path / "old.jsonl"), str(tmp_path / "new.jsonl")
    result = rb.gate(old, old, new, "RR", margin=0.02)
    # 10 queries returned nothing; of the 8 that changed, 2 were among them
    assert (result.rows[0].queries, result.rows[0].mean_baseline) == (40, 30 / 40)
    assert result.rows[0].mean_run == pytest.approx((24 + 8 / 2) / 40)
    assert run_command(["gate", old, new, "-m", "RR", "--margin", "0.02", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["measures"][0]["change"] == pytest.approx((24 + 8 / 2 - 30) / 40)


def test_lower_is_better_where_the_measure_says_so():
    qrels, run = judged()
    worse = without_answers(run, 2)
    row = rb.gate(qrels, run, worse, "U", margin=0.1).rows[0]
    assert row.mean_run > row.mean_baseline
    assert (row.outcome, row.change < 0) == ("fail", True)


def test_groups_are_listed_the_worst_first_and_one_of_them_can_fail_the_gate(tmp_path):
    qrels, run = judged(60)
    new = {query: {**docs, "d0": -1.0} if i < 10 else docs for i, (query, docs) in enumerate(run.items())}
    table = pl.DataFrame(
        {
            "qid": list(qrels),
            "language": ["de" if i < 10 else "en" for i in range(60)],
            "long": [i % 2 for i in range(60)],
        }
    )
    table.write_csv(tmp_path / "groups.csv")
    table.write_ndjson(tmp_path / "groups.jsonl")
    for source in (table, table.to_pandas(), tmp_path / "groups.csv", tmp_path / "groups.jsonl"):
        result = rb.gate(qrels, run, new, "RR", margin=0.3, groups=source)
        assert result.rows[0].outcome == "pass"
        assert result.outcome == "fail"
        assert (result.groups[0].attribute, result.groups[0].group, result.groups[0].queries) == ("language", "de", 10)
        assert {row.group for row in result.groups} == {"de", "en", "0", "1"}
    few = rb.gate(qrels, run, run, "RR", margin=0.3, groups=dict.fromkeys(list(qrels)[:4], "rare"))
    assert [(row.group, row.outcome, row.lower is None) for row in few.groups] == [
        ("(none)", "pass", False), ("rare", "cannot tell", True)
    ]  # fmt: skip
    assert few.outcome == "pass"  # small groups do not keep a change from passing


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"x": "a"}, "no query of 'group' is in the run"),
        (pl.DataFrame({"name": ["q1"]}), "needs a column qid"),
        (pl.DataFrame({"qid": ["q1"]}), "needs a column of groups"),
        (pl.DataFrame({"qid": ["q1", "q1"], "a": [1, 2]}), "more than one row"),
        ({f"q{i}": i for i in range(300)}, "300 groups"),
    ],
)
def test_groups_that_make_no_sense_are_refused(groups, message):
    qrels, run = judged()
    with pytest.raises((ArgumentError, DataError), match=message):
        rb.gate(qrels, run, run, "RR", margin=0.02, groups=groups)


@pytest.mark.parametrize("margin", [0, -0.1, float("nan"), float("inf"), "a", None, True])
def test_a_margin_is_a_positive_number(margin):
    qrels, run = judged()
    with pytest.raises(ArgumentError, match="margin must be"):
        rb.gate(qrels, run, run, "RR", margin=margin)


def test_assert_no_regression_raises_what_a_ci_job_shows():
    qrels, run = judged()
    assert assert_no_regression(qrels, run, run, "RR", margin=0.02).passed
    with pytest.raises(AssertionError, match="### Gate: fail"):
        assert_no_regression(qrels, run, without_answers(run), "RR", margin=0.02)
    noisy = {query: {**docs, "d1": 9.0 * (i % 3 == 0)} for i, (query, docs) in enumerate(run.items())}
    assert rb.gate(qrels, run, noisy, "RR", margin=0.02).outcome == "cannot tell"
    with pytest.raises(AssertionError, match="cannot tell"):
        assert_no_regression(qrels, run, noisy, "RR", margin=0.02)
    assert_no_regression(qrels, run, noisy, "RR", margin=0.02, may_be_unclear=True)


# ---- stored baselines ------------------------------------------------------------------------------------------------


def test_a_stored_baseline_gives_the_same_result(tmp_path):
    qrels, run = judged()
    path = tmp_path / "baseline.json"
    store_baseline(path, qrels, run, ["RR", "nDCG@10"])
    new = without_answers(run)
    stored, direct = (rb.gate(qrels, source, new, ["RR", "nDCG@10"], margin=0.02) for source in (path, run))
    assert stored.rows == direct.rows
    assert stored.per_query.equals(direct.per_query)
    loaded = Baseline.load(path)
    assert loaded.signatures["RR"].startswith("RR|ties:average|empty:skip|missing:zero|cand:judged")


def test_a_baseline_of_another_signature_or_other_judgments_is_refused(tmp_path):
    qrels, run = judged()
    path = tmp_path / "baseline.json"
    store_baseline(path, qrels, run, "RR")
    with pytest.raises(DataError, match=r"has the signature RR\|ties:average"):
        rb.gate(qrels, path, run, "RR", margin=0.02, ties="docid")
    with pytest.raises(DataError, match="has no nDCG@10, only RR"):
        rb.gate(qrels, path, run, "nDCG@10", margin=0.02)
    with pytest.raises(DataError, match="other judgments"):
        rb.gate({**qrels, "q0": {"d0": 0, "d1": 1}}, path, run, "RR", margin=0.02)


@pytest.mark.parametrize(
    "change",
    [
        {"queries": ["q0"]}, {"queries": 3}, {"values": {"RR": [1, "x"]}}, {"values": {}}, {"signatures": {}},
        {"signatures": {"RR": 1}}, {"run": None}, {"kind": "other"}, {"values": {"RR": [1e999] * 30}},
    ],
)  # fmt: skip
def test_a_damaged_baseline_is_refused_with_its_name(tmp_path, change):
    qrels, run = judged()
    path = tmp_path / "baseline.json"
    store_baseline(path, qrels, run, "RR")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=r"baseline\.json: is "):
        rb.gate(qrels, path, run, "RR", margin=0.02)
    path.write_text("{")
    with pytest.raises(DataError, match=r"baseline\.json: is not JSON"):
        rb.gate(qrels, path, run, "RR", margin=0.02)


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    qrels, run = judged()
    runs = {"base": run, "same": run, "worse": without_answers(run),
            "noisy": {q: {**docs, "d1": 9.0 * (i % 3 == 0)} for i, (q, docs) in enumerate(run.items())}}  # fmt: skip
    (tmp_path / "qrels").write_text(
        "".join(f"{q} 0 {d} {label}\n" for q, docs in qrels.items() for d, label in docs.items())
    )
    for name, scores in runs.items():
        (tmp_path / name).write_text(
            "".join(f"{q} Q0 {d} 1 {s} {name}\n" for q, docs in scores.items() for d, s in docs.items())
        )
    (tmp_path / "groups.csv").write_text("qid,half\n" + "".join(f"q{i},{i // 2 % 2}\n" for i in range(30)))
    return tmp_path


@pytest.mark.parametrize(("run", "code"), [("same", 0), ("worse", 1), ("noisy", 3), ("none", 2)])
@pytest.mark.parametrize("form", ["--json", "--markdown", ""])
def test_exit_codes(files, capsys, run, code, form):
    paths = [str(files / name) for name in ("qrels", "base", run)]
    arguments = ["gate", *paths, "-m", "RR", "--margin", "0.02", "--groups", str(files / "groups.csv")]
    assert run_command([*arguments, *([form] if form else [])]) == code
    printed = capsys.readouterr().out
    if code == 2:
        assert printed == ""
        return
    word = {0: "pass", 1: "fail", 3: "cannot tell"}[code]
    if form == "--json":
        result = json.loads(printed)
        assert (result["outcome"], len(result["groups"])) == (word, 2)
    elif form == "--markdown":
        assert printed.startswith(f"### Gate: {word}\n")
    else:
        assert printed.startswith(word.upper())


def test_the_command_starts_without_packages_that_take_long_to_import(files):
    """It is to answer within a second from process start; each of these takes half a second or more to import."""
    code = (
        "import sys; from rankbound.cli.main import run; "
        f"run(['gate', *{[str(files / name) for name in ('qrels', 'base', 'same')]}, '--margin', '0.02', '--json']); "
        "print({'torch', 'scipy.stats', 'scipy.optimize', 'pandas', 'altair', 'sklearn', 'lightgbm'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_baseline_is_stored_and_used_by_the_command(files, capsys):
    qrels, base, worse = (str(files / name) for name in ("qrels", "base", "worse"))
    stored = str(files / "stored.json")
    assert run_command(["gate", qrels, base, "-m", "RR", "--save", stored, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"baseline": stored}
    assert run_command(["gate", qrels, stored, worse, "-m", "RR", "--margin", "0.02"]) == 1
    assert run_command(["gate", qrels, stored, worse, "-m", "RR", "--margin", "0.02", "--ties", "docid"]) == 2
    assert "has the signature" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["qrels", "base", "same"], "needs --margin"),
        (["qrels", "base"], "needs a baseline and a new run"),
        (["qrels", "base", "--save", "b.txt"], "must end with .json"),
        (["qrels", "base", "same", "--margin", "0"], "margin must be a positive number"),
        (["qrels", "base", "same", "--margin", "1", "--json", "--markdown"], "exclude each other"),
        (["qrels", "base", "base", "--margin", "1"], "named twice"),
    ],
)
def test_wrong_uses_of_the_command_end_in_one_line(files, capsys, arguments, message):
    paths = [str(files / name) if (files / name).exists() else name for name in arguments]
    assert run_command(["gate", *paths]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_markdown_escapes_what_comes_from_files():
    qrels, run = judged()
    names = {query: f"<b>|{query}" for query in qrels}
    qrels, run = ({names[query]: docs for query, docs in table.items()} for table in (qrels, run))
    text = gate_markdown(rb.gate(qrels, run, without_answers(run), "RR", margin=0.02))
    assert "&lt;b&gt;\\|q" in text
    assert "<b>" not in text
