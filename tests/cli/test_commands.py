"""compare, bounds and weights; help, version, and the way out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from rankbound import kernels
from rankbound.cli import main
from rankbound.cli.commands import COMMANDS
from rankbound.difficulty import QUERY_TYPES

GROUPS = {"data": ("list", "get", "describe", "verify", "split"), "store": ("list", "export", "import")}
EVERY_COMMAND = [f"{name} {inner}".strip() for name in COMMANDS for inner in GROUPS.get(name, ("",))]


# ---- compare ---------------------------------------------------------------------------------------------------------


def test_compare_json(cli, files):
    answer = cli("compare", "qrels", "run", "other", "-m", "AP", "-m", "RR", "--json").json
    assert answer["runs"] == ["run", "other"]
    assert (answer["queries"], answer["empty_queries"], answer["left_out_queries"]) == (3, 1, 0)
    row = answer["differences"][0]
    assert (row["measure"], row["baseline"], row["run"], row["queries"]) == ("AP", "run", "other", 2)
    # q1: 1 - 7/12 up; q2: 1 - 1/2 down
    assert row["difference"] == pytest.approx((1 - 7 / 12 - 1 / 2) / 2)
    assert (row["wins"], row["ties"], row["losses"]) == (1, 0, 1)
    assert {part["type"] for part in answer["by_type"]} <= set(QUERY_TYPES)


def test_compare_table_of_two_and_of_three_runs(cli, files):
    (files / "third").write_text((files / "run").read_text())
    two = cli("compare", "qrels", "run", "other")
    assert "Difference: other − run" in two.out
    three = cli("compare", "qrels", "run", "other", "third", "--all-pairs", "-m", "AP")
    assert three.code == 0
    assert three.out.startswith("Runs by AP, compared with run\n")
    assert [line.split()[0] for line in three.out.splitlines()[3:6]] == ["run", "third", "other"]  # the best first
    assert "Note: The intervals of AP rest on 2 queries; with fewer than 10 they are not reliable." in three.out
    pairs = cli("compare", "qrels", "run", "other", "third", "--all-pairs", "-m", "AP", "--json").json["differences"]
    assert [(row["baseline"], row["run"]) for row in pairs] == [("run", "other"), ("run", "third"), ("other", "third")]


def test_compare_counts_judged_queries_that_no_run_has(cli, files):
    more = "".join(f"new{i} 0 a 1\n" for i in range(628))
    (files / "many").write_text((files / "qrels").read_text() + more)  # q4 and 628 others are in neither run
    answer = cli("compare", "many", "run", "other", "-m", "AP")
    lines = answer.out.splitlines()
    counts = "3 queries compared; 1 empty for some measure; 629 judged but in none of the runs (left out)"
    assert f"{counts}; candidates: judged documents" in lines
    described = "run: 629 judged but not in the run (left out); 1 in the run but not judged (ignored)"
    assert described in lines
    counted = cli("compare", "many", "run", "other", "-m", "AP", "-c").out
    assert (
        "632 queries compared; 1 empty for some measure; 629 judged but in none of the runs (counted as 0)" in counted
    )
    summary = cli("compare", "many", "run", "other", "-m", "AP", "--json").json
    assert (summary["left_out_queries"], summary["never_returned_queries"]) == (0, 629)
    assert summary["coverage"]["other"]["judged_queries"] == 632
    assert summary["warnings"] == []


def test_compare_of_many_runs_names_the_one_that_is_judged_least(cli, files):
    names = []
    for number in range(7):  # the last one returns three documents that nobody judged
        unjudged = "".join(f"q1 Q0 x{i} 1 {9 + i} t\n" for i in range(number - 3))
        names.append(f"run{number}")
        (files / names[-1]).write_text((files / "run").read_text() + unjudged)
    out = cli("compare", "qrels", *names, "-m", "P@5").out
    judged = (2 / 5 + 2) / 3
    assert (
        f"3 of 7 runs return documents without a judgment; Judged@5 is lowest for run6, {judged:.4f}; --json has the "
        "coverage of every run" in out
    )
    few = cli("compare", "qrels", *names[-2:], "-m", "P@5").out
    assert f"Judged@5: {judged:.4f} (3 of 9 returned documents have no judgment)" in few


@pytest.mark.full("takes seconds")
def test_compare_of_25_runs_is_a_summary_of_less_than_60_lines(cli, files):
    random = np.random.default_rng(0)
    (files / "judged").write_text("".join(f"q{q} 0 d{d} {int(d < 3)}\n" for q in range(15) for d in range(10)))
    names = []
    for number in range(25):
        scores = random.random((15, 10)) + number / 20 * (np.arange(10) < 3)
        lines = (f"q{q} Q0 d{d} 1 {scores[q, d]:.6f} t\n" for q in range(15) for d in range(10))
        names.append(f"run{number:02}")
        (files / names[-1]).write_text("".join(lines))
    for more in ([], ["--all-pairs"]):
        answer = cli("compare", "judged", *names, *more, "--rows", "rows.csv")
        assert answer.code == 0, answer.err
        lines = answer.out.splitlines()
        assert len(lines) < 60
        assert lines[0].startswith("Runs by nDCG@10, compared with ")
        shown = [line.split() for line in lines[3:28]]
        assert sorted(line[0] for line in shown) == names
        means = [float(line[2]) for line in shown]
        assert means == sorted(means, reverse=True)
        assert shown[0][1].startswith("1–")  # the ranks of the best
        rows = pl.read_csv("rows.csv")
        assert rows.height == 4 * (24 if not more else 300)
    summary = cli("compare", "judged", *names, "--json").json
    assert set(summary["letters"]["AP"]) == set(names)


@pytest.mark.parametrize(("runs", "column"), [(20, "groups"), (21, "ranks")])
def test_more_than_20_runs_have_ranks_in_place_of_letters(cli, files, runs, column):
    """Good runs have the relevant document first in all of 30 queries, the others in every third."""
    (files / "judged").write_text("".join(f"q{q} 0 a 1\nq{q} 0 b 0\n" for q in range(30)))
    good, names = 4, [f"run{number:02}" for number in range(runs)]
    for number, name in enumerate(names):
        firsts = ["a" if number < good or (q + number) % 3 == 0 else "b" for q in range(30)]
        (files / name).write_text("".join(f"q{q} Q0 {first} 1 1 t\n" for q, first in enumerate(firsts)))
    line = ("compare", "judged", *names, "-m", "P@1", "--resamples", "100")
    table = cli(*line).out.splitlines()
    assert table[1].split()[:2] == ["run", column]
    cells = {row.split()[0]: row.split()[1] for row in table[3 : 3 + runs]}
    best, others = ("a", "b") if column == "groups" else (f"1–{good}", f"{good + 1}–{runs}")
    assert cells == {name: best if number < good else others for number, name in enumerate(names)}
    assert any("not separable from the best" in text for text in table) == (column == "ranks")
    rows = cli(*line, "--json").json["rank_intervals"]["P@1"]
    assert {row["system"]: (row["low"], row["high"]) for row in rows} == {
        name: (1, good) if number < good else (good + 1, runs) for number, name in enumerate(names)
    }


def test_compare_with_more_runs_than_lines_shows_the_best(cli, files):
    names = []
    for number in range(45):
        names.append(f"run{number:02}")
        (files / names[-1]).write_text((files / "run").read_text())
    answer = cli("compare", "qrels", *names, "-m", "AP")
    assert len(answer.out.splitlines()) < 60
    assert "5 more runs: --rows FILE or --json have all of them" in answer.out


def test_compare_with_two_baselines_prints_each_and_corrects_them_together(cli, files):
    random = np.random.default_rng(0)
    names = [f"q{i}" for i in range(30)]
    (files / "judged").write_text("".join(f"{q} 0 d{j} {int(j < 2)}\n" for q in names for j in range(6)))
    for run, weight in (("a", 0.0), ("b", 0.5), ("c", 2.0), ("d", 3.0)):
        lines = (f"{q} Q0 d{j} 0 {weight * (j < 2) + random.normal()} t\n" for q in names for j in range(6))
        (files / run).write_text("".join(lines))
    line = ("compare", "judged", "a", "b", "c", "d", "-m", "AP", "--baselines", "2")
    rows = cli(*line, "--json").json["differences"]
    assert [(row["baseline"], row["run"]) for row in rows] == [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
    table = cli(*line).out.partition("Runs by AP, compared with each baseline\n")[2].splitlines()
    assert [line.split()[:2] for line in table[2:6]] == [[row["run"], row["baseline"]] for row in rows]
    for wrong in (("--baselines", "4"), ("--baselines", "0"), ("--baselines", "2", "--all-pairs")):
        answer = cli("compare", "judged", "a", "b", "c", "d", *wrong)
        assert (answer.code, answer.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(("queries", "cautions"), [(1_000, 0), (1_001, 1)])
@pytest.mark.parametrize("test", ["t", "wilcoxon"])
def test_compare_cautions_once_against_its_wilcoxon_test_of_many_queries(cli, files, test, queries, cautions):
    for name, text in (("judged", "{} 0 a 1\n{} 0 b 0\n"), ("old", "{} Q0 a 1 2 t\n"), ("new", "{} Q0 b 1 2 t\n")):
        (files / name).write_text("".join(text.replace("{}", f"q{i}") for i in range(queries)))
    out = cli("compare", "judged", "old", "new", "-m", "P@1", "--test", test, "--resamples", "100").out
    assert out.count("the Wilcoxon test finds skewed differences significant") == cautions


def test_compare_takes_the_policy_from_its_options(cli, files):
    line = ("compare", "qrels", "run", "other", "-m", "AP", "--json")
    policy = ("--confidence", "0.9", "--interval", "t", "--test", "wilcoxon", "--correction", "bonferroni")
    answer = cli(*line, *policy, "--resamples", "99", "--seed", "4").json
    assert answer["inference"] == {
        "confidence": 0.9, "interval": "t", "test": "wilcoxon", "correction": "bonferroni", "resamples": 99, "seed": 4,
        "power": 0.8,
    }  # fmt: skip
    (row,) = answer["differences"]
    assert row["p_value"] == row["p_wilcoxon"]
    assert answer["notes"][0] == "The intervals of AP rest on 2 queries; with fewer than 10 they are not reliable."


def test_compare_writes_values_per_query(cli, files):
    assert cli("compare", "qrels", "run", "other", "-m", "AP", "--per-query", "v.parquet", "--json").code == 0
    frame = pl.read_parquet("v.parquet")
    assert frame.columns == ["measure", "qid", "type", "run", "other"]
    assert frame["run"].to_list() == [pytest.approx(7 / 12), 1.0, None]


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_bounds(cli):
    answer = cli("bounds", "AP", "--n", 3, "--relevant", 2, "--json").json
    assert answer == pytest.approx({"worst": 7 / 12, "expected": 29 / 36, "best": 1.0})
    assert cli("bounds", "P@2", "--labels", "0,2,0,1", "--json").json == {"worst": 0.0, "expected": 0.5, "best": 1.0}
    assert "0.805556" in cli("bounds", "AP", "--n", 3, "--relevant", 2).out
    half = cli("bounds", "AP", "--n", 3, "--relevant", 2, "--depth", 1)
    assert "3 items, 2 relevant, depth 1" in half.out
    answer = cli("distribution", "AP", "--n", 3, "--relevant", 2, "--depth", 1, "--json").json
    assert (answer["worst"], answer["mean"], answer["best"]) == (0.0, pytest.approx(1 / 3), 0.5)
    assert answer["scores"] == [0.0, 0.5]


def test_compare_types_queries_by_gain_or_by_quota(cli, files):
    by_gain = cli("compare", "qrels", "run", "other", "--json")
    assert by_gain.json["type_rule"].startswith("Types by the gain (mean of the systems - E) / (B - E)")
    by_quota = cli("compare", "qrels", "run", "other", "--type-quota", "0.5", "--json")
    assert "50 % with the largest and the smallest gaps" in by_quota.json["type_rule"]
    assert {row["type"] for row in by_quota.json["by_type"]} <= {
        "ideal",
        "informative",
        "uninformative",
        "hard",
        "easy",
    }
    assert "ideal and uninformative are the 50 %" in cli("compare", "qrels", "run", "other", "--type-quota", "0.5").out
    refused = cli("compare", "qrels", "run", "other", "--type-quota", "0.7")
    assert (refused.code, refused.err) == (
        2, "rankbound: quota must be None, or greater than 0 and at most 0.5, got 0.7\n"
    )  # fmt: skip


# ---- help, version, and the way out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY_COMMAND)
def test_every_command_has_help_with_an_example_and_json(cli, name):
    answer = cli(*name.split(), "--help")
    assert answer.code == 0
    assert f"rankbound {name}" in answer.out
    assert "Example" in answer.out
    assert "--json" in answer.out


def test_overview_names_every_command(cli):
    for arguments in ([], ["--help"], ["-h"]):
        answer = cli(*arguments)
        assert answer.code == 0
        for name, command in COMMANDS.items():
            assert name in answer.out
            assert command.summary in answer.out


def test_version(cli):
    out = cli("--version").out
    assert out.startswith("rankbound 0")
    assert f"(compiled kernels: {kernels.active()})" in out


@pytest.mark.parametrize("choice", ["off", "baseline"])
def test_version_names_the_kernels_that_are_chosen(choice):
    code = "import sys; from rankbound.cli.main import run; run(['--version'])"
    environment = {**os.environ, "RANKBOUND_KERNELS": choice}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    shown = "none" if choice == "off" or kernels.active() == "none" else choice
    assert f"kernels: {shown})" in done.stdout


def test_overview_imports_nothing_heavy():
    code = "import sys; from rankbound.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "polars", "torch"} & set(done.stderr.split())


@pytest.mark.full("takes seconds")
@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize("arguments", ["weights qrels", "evaluate qrels run --json", "evaluate qrels run"])
def test_a_reader_that_goes_away_ends_the_command_quietly(files, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    code = "import sys; from rankbound.cli.main import run; sys.exit(run())"
    done = subprocess.run([sys.executable, "-c", code, *arguments.split()], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (main.BROKEN_PIPE, b"")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_ends_the_command_with_one_line(files):
    code = "import sys; from rankbound.cli.main import run; sys.exit(run())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "evaluate", "qrels", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(2)  # until it waits for standard input
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out, error) == (main.INTERRUPTED, b"", b"rankbound: interrupted\n")
