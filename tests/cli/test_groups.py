"""--groups of evaluate and compare: against arithmetic and scipy."""

from __future__ import annotations

import pytest
from scipy import stats

import rankbound as rb
from rankbound.evaluation.inference import Inference

RANKS = {"old": [1] * 12 + [2] * 10, "new": [1, 2, 3, 2, 2, 1] + [1] * 6 + [1, 2] * 5}  # of the relevant document
KINDS = ["rare"] * 6 + ["common"] * 14 + [""] * 2


@pytest.fixture
def groups(files):
    """Judgments and two runs whose RR is the reciprocal of RANKS, and a table of two attributes."""
    names = [f"q{i:02}" for i in range(22)]
    (files / "judged").write_text("".join(f"{name} 0 a 1\n{name} 0 b 0\n{name} 0 c 0\n" for name in names))
    for run, ranks in RANKS.items():
        lines = [
            f"{name} Q0 {document} 0 {-position} t\n"
            for name, rank in zip(names, ranks, strict=True)
            for position, document in enumerate({1: "abc", 2: "bac", 3: "bca"}[rank])
        ]
        (files / run).write_text("".join(lines))
    rows = [f"{name},{kind},{'ab'[i % 2]}\n" for i, (name, kind) in enumerate(zip(names, KINDS, strict=True))]
    (files / "groups.csv").write_text("qid,kind,half\n" + "".join(rows))
    return files


def values(run, kind, inside=True):
    return [1 / rank for rank, own in zip(RANKS[run], KINDS, strict=True) if (own == kind) == inside]


def mean(numbers):
    return sum(numbers) / len(numbers)


def test_evaluate_has_the_mean_of_each_group_and_its_difference_from_the_others(cli, groups):
    rows = cli("evaluate", "judged", "new", "-m", "RR", "--groups", "groups.csv", "--json").json["by_group"]
    found = {(row["attribute"], row["group"]): row for row in rows}
    assert {key: row["queries"] for key, row in found.items()} == {
        ("kind", "rare"): 6, ("kind", "common"): 14, ("kind", "(none)"): 2, ("half", "a"): 11, ("half", "b"): 11
    }  # fmt: skip
    for kind in ("rare", "common"):
        inside, outside = values("new", kind), values("new", kind, inside=False)
        row = found["kind", kind]
        assert row["mean"] == pytest.approx(mean(inside))
        assert row["difference"] == pytest.approx(mean(inside) - mean(outside))
        assert row["p_value"] == pytest.approx(stats.ttest_ind(inside, outside).pvalue)
    few = found["kind", "(none)"]
    assert (few["mean"], few["ci_low"], few["ci_low_corrected"], few["p_value"]) == (0.75, None, None, None)
    p = sorted(row["p_value"] for row in rows if row["p_value"] is not None)
    assert min(row["p_corrected"] for row in rows if row["p_corrected"] is not None) == pytest.approx(min(1, 4 * p[0]))


def test_compare_has_the_difference_on_each_group(cli, groups):
    line = ("compare", "judged", "old", "new", "-m", "RR", "--groups", "groups.csv", "--interval", "t", "--json")
    rows = {(row["attribute"], row["group"]): row for row in cli(*line).json["by_group"]}
    for kind in ("rare", "common"):
        d = [new - old for new, old in zip(values("new", kind), values("old", kind), strict=True)]
        row = rows["kind", kind]
        assert row["difference"] == pytest.approx(mean(d))
        assert row["p_value"] == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
        ends = stats.t.interval(1 - 0.05 / 4, len(d) - 1, mean(d), stats.sem(d))  # of 5 groups, 4 are tested
        assert (row["ci_low_corrected"], row["ci_high_corrected"]) == pytest.approx(ends)
    assert rows["kind", "(none)"]["p_value"] is None


def test_a_table_for_each_attribute(cli, groups):
    one = cli("evaluate", "judged", "new", "-m", "RR", "--groups", "groups.csv").out
    assert [line for line in one.splitlines() if line.startswith("Mean by")] == ["Mean by half", "Mean by kind"]
    by_kind = one.partition("Mean by kind\n")[2].splitlines()
    assert [line.split()[:4] for line in by_kind if line.startswith(" RR")] == [
        ["RR", "rare", "6", f"{(1 + 1 / 2 + 1 / 3 + 1 / 2 + 1 / 2 + 1) / 6:.4f}"],  # the lowest mean first
        ["RR", "(none)", "2", "0.7500"],
        ["RR", "common", "14", f"{(6 + 4 + 4 / 2) / 14:.4f}"],
    ]
    assert "Student's t test, Holm-corrected over the 4 tests of groups" in one
    several = cli("evaluate", "judged", "old", "new", "-m", "RR", "--groups", "groups.csv").out
    assert "\nold: mean by kind\n" in several
    assert "\nnew: mean by half\n" in several
    two = cli("compare", "judged", "old", "new", "-m", "RR", "--groups", "groups.csv").out
    assert "\nDifference: new − old by kind\n" in two
    rows = [line.split()[1] for line in two.partition("by kind\n")[2].splitlines() if line.startswith(" RR")]
    assert rows == ["rare", "common", "(none)"]  # the largest loss first


def test_the_differences_of_many_runs_name_the_run_and_where_needed_its_baseline(cli, groups):
    (groups / "third").write_text((groups / "new").read_text())
    line = ("compare", "judged", "old", "new", "third", "-m", "RR", "--groups", "groups.csv")
    header = next(text for text in cli(*line).out.partition("\nDifference from old by kind\n")[2].splitlines())
    assert header.split()[:3] == ["measure", "run", "kind"]
    header = next(text for text in cli(*line, "--all-pairs").out.partition("\nDifference by kind\n")[2].splitlines())
    assert header.split()[:4] == ["measure", "run", "against", "kind"]


@pytest.mark.parametrize("line", [("evaluate", "judged", "new"), ("compare", "judged", "old", "new")])
def test_confidence_and_correction_hold_for_groups(cli, groups, line):
    line += ("-m", "RR", "--groups", "groups.csv")
    holm = cli(*line, "--json").json["by_group"]
    none = cli(*line, "--correction", "none", "--confidence", "0.6", "--json").json["by_group"]
    tested = [(a, b) for a, b in zip(holm, none, strict=True) if a["p_value"] is not None]
    assert all(b["p_corrected"] == b["p_value"] == a["p_value"] for a, b in tested)
    assert any(a["p_corrected"] > a["p_value"] for a, _ in tested)
    assert all(b["ci_high"] - b["ci_low"] < a["ci_high"] - a["ci_low"] for a, b in tested)
    out = cli(*line, "--correction", "none", "--confidence", "0.6").out
    assert "60 % interval" in out
    assert "not corrected over the 4 tests of groups; groups of" in out
    assert "intervals at the corrected level" not in out


@pytest.mark.parametrize("line", [("evaluate", "judged", "new"), ("compare", "judged", "old", "new")])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query,kind\nzz,a\n", "groups: no query of 'kind' is in the run"),
        ("name,kind\nq01,a\n", "a table of groups needs a column qid"),
        ("qid,kind\nq01,a\nq01,b\n", "query 'q01' has more than one row"),
    ],
)
def test_a_bad_table_of_groups_is_one_line(cli, groups, line, text, message):
    (groups / "bad.csv").write_text(text)
    answer = cli(*line, "-m", "RR", "--groups", "bad.csv", "--per-query", "values.csv")
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (2, "", 1)
    assert message in answer.err
    assert not (groups / "values.csv").exists()


def test_names_of_groups_cannot_control_a_terminal(cli, groups):
    rows = "".join(f"q{i:02},\x1b[2Jx\n" for i in range(22))
    (groups / "odd.csv").write_text("qid,\x1b[31mkind\n" + rows)
    for line in (("evaluate", "judged", "new"), ("compare", "judged", "old", "new")):
        answer = cli(*line, "-m", "RR", "--groups", "odd.csv")
        assert answer.code == 0
        assert "\x1b" not in answer.out


@pytest.mark.parametrize(("correction", "tests"), [("holm", 2), ("none", 1)])
def test_tables_have_intervals_at_the_level_of_their_p_values(cli, groups, correction, tests):
    (groups / "third").write_text((groups / "new").read_text())
    d = [1 / new - 1 / old for new, old in zip(RANKS["new"], RANKS["old"], strict=True)]
    low, high = stats.t.interval(1 - 0.05 / tests, len(d) - 1, mean(d), stats.sem(d))
    shown = f"{low:+.4f} to {high:+.4f}".replace("-", "−")
    options = ("--interval", "t", "--correction", correction)
    two = cli("compare", "judged", "old", "new", "-m", "RR", "-m", "P@1", *options).out  # a test for each measure
    assert shown in two.partition("Difference: ")[2].partition("by type")[0]
    assert f"intervals: {'Holm-corrected' if tests == 2 else 'not corrected'}" in two
    three = cli("compare", "judged", "old", "new", "third", "-m", "RR", *options).out  # a test for each run
    assert shown in three
    assert ("interval of the difference at the corrected level" in three) == (tests == 2)
    policy = Inference(interval="t", correction=correction)
    result = rb.compare("old", "new", "third", qrels="judged", measures="RR", inference=policy)
    assert shown in result.to_markdown()
