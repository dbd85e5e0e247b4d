"""rankbound check: exit codes, JSON, where the function comes from, and what cannot be checked."""

from __future__ import annotations

import json
import sys

import pytest

METRICS = """
import math


def precision(labels, scores, k):
    ranked = [label for _, label in sorted(zip(scores, labels), key=lambda pair: -pair[0])][:k]
    return sum(label > 0 for label in ranked) / k


def short(labels, scores, k):
    ranked = [label for _, label in sorted(zip(scores, labels), key=lambda pair: -pair[0])][:k]
    return sum(label > 0 for label in ranked) / len(ranked) if ranked else 0.0


def prints(labels, scores, k):
    print("labels", labels)
    return precision(labels, scores, k)


class Metrics:
    @staticmethod
    def precision(labels, scores, k):
        return precision(labels, scores, k)


def many(a, b, c, d, e):
    return 0.0


WEIGHT = 0.5
"""


@pytest.fixture
def metrics(tmp_path, monkeypatch):
    """A folder with modules of a user, which is the working folder."""
    (tmp_path / "own_metrics.py").write_text(METRICS)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "deep_metrics.py").write_text("from helper import K\n" + METRICS)
    (tmp_path / "package" / "helper.py").write_text("K = 3\n")
    (tmp_path / "own_printing.py").write_text("print('imported')\n" + METRICS)
    (tmp_path / "own_broken.py").write_text("def f(:\n")
    (tmp_path / "own_exiting.py").write_text("raise SystemExit(4)\n")
    (tmp_path / "own_raising.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if name.startswith("own_") or name in ("package", "deep_metrics", "helper"):
            del sys.modules[name]


FAST = ("--examples", 60)


def test_a_function_that_agrees(cli, metrics):
    answer = cli("check", "own_metrics:precision", "--measure", "P@10", "--ties", "input", *FAST)
    assert answer.code == 0, answer.out
    assert answer.err == ""
    assert answer.out.startswith("precision agrees with P@10 on ")


def test_a_function_that_disagrees_has_exit_code_1(cli, metrics):
    answer = cli("check", "own_metrics:short", "-m", "P@10", "--ties", "input", *FAST)
    assert answer.code == 1
    assert answer.err == ""
    assert "First disagreement: fewer documents than k" in answer.out
    assert "Probable cause: The divisor or cutoff is min(k, number of documents) in place of k." in answer.out
    assert "short(np.array([" in answer.out


def test_json_is_all_that_is_printed(cli, metrics):
    answer = cli("check", "own_metrics:short", "-m", "P@10", "--ties", "input", "--json", *FAST)
    assert answer.code == 1
    report = json.loads(answer.out)
    assert report["ok"] is False
    assert report["signature"] == "labels,scores,k"
    smallest = report["disagreements"]["fewer documents than k"]
    assert len(smallest["labels"]) == 2
    assert smallest["expected"] == sum(label > 0 for label in smallest["labels"]) / smallest["k"]
    assert report["agreements"]["binary labels"] > 0


@pytest.mark.full("takes seconds")
def test_conventions_are_allowed_by_options(cli, metrics):
    averaged = cli("check", "own_metrics:precision", "-m", "P@10", *FAST)
    assert averaged.code == 1
    assert "Convention: Ties are broken by input order. That is ties='input' (--ties input)." in averaged.out
    assert cli("check", "own_metrics:precision", "-m", "P@10", "--skip", "ties", *FAST).code == 0


@pytest.mark.parametrize(
    "target",
    [
        "own_metrics.py:precision",
        "own_metrics:Metrics.precision",
        "package/deep_metrics.py:precision",
        "own_printing:precision",
    ],
)
def test_where_the_function_can_be(cli, metrics, target):
    answer = cli("check", target, "-m", "P@5", "--ties", "input", "--json", "--signature", "labels,scores,k", *FAST)
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["ok"] is True
    assert answer.err == ("imported\n" if "printing" in target else "")


def test_an_absolute_path_of_a_file(cli, metrics, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert cli("check", f"{metrics}/own_metrics.py:precision", "-m", "P@5", "--ties", "input", *FAST).code == 0


def test_what_a_function_prints_is_noted(cli, metrics):
    answer = cli("check", "own_metrics:prints", "-m", "P@10", "--ties", "input", *FAST)
    assert answer.code == 0
    assert answer.out.rstrip().endswith("Note: the function prints, which was not shown")
    assert "labels [" not in answer.out


@pytest.mark.full("takes seconds")
def test_in_a_process_of_its_own(shell, metrics):
    answer = shell("check", "own_metrics:short", "-m", "P@3", "--ties", "input", *FAST, cwd=metrics)
    assert answer.code == 1, answer.err
    assert answer.err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("own_nothing:f", "module own_nothing: cannot be imported: ModuleNotFoundError"),
        ("own_metrics:recall", "own_metrics:recall: the module has no function 'recall'"),
        ("own_metrics:WEIGHT", "own_metrics:WEIGHT: must be a function, got float"),
        ("own_metrics", "the function must be MODULE:FUNCTION, such as my_metrics:ndcg, got 'own_metrics'"),
        ("nowhere.py:f", "nowhere.py: no such file"),
        ("own_broken.py:f", "own_broken.py: cannot be imported: SyntaxError"),
        ("own_broken:f", "module own_broken: cannot be imported: SyntaxError"),
        ("own_exiting:f", "module own_exiting: cannot be imported: SystemExit: 4"),
        ("own_raising.py:f", "own_raising.py: cannot be imported: ZeroDivisionError: division by zero"),
        ("own_metrics:many", "function must take labels and scores (and k), qrels and a run"),
        ("own_metrics:precision -m nDGC@10", "unknown measure 'nDGC@10'; nearest names: nDCG"),
        ("own_metrics:precision -m EM(P@10)", "measure must be a plain measure, such as P@10, got EM(P@10)"),
        ("own_metrics:precision -m AP", "measure must have a cutoff, as AP@10, for a function of k; got AP"),
        ("own_metrics:precision --signature labels", "signature must be 'auto' or one of labels,scores"),
        ("own_metrics:precision --ties best", "'best'"),
        ("own_metrics:precision --ties docid", "needs a function of qrels and run"),
        ("own_metrics:precision --empty none", "'none'"),
        ("own_metrics:precision --skip nothing", "skip must name categories"),
        ("own_metrics:precision --examples 0", "examples must be a positive integer, got 0"),
        ("own_metrics:precision --budget 0", "budget must be a positive number of seconds, got 0"),
        ("own_metrics:precision --tolerance 2", "tolerance must be a number from 0 to 1, got 2"),
        ("", "MODULE:FUNCTION"),
    ],
)  # fmt: skip
def test_what_cannot_be_checked_is_one_line_and_exit_code_2(cli, metrics, arguments, message):
    answer = cli("check", *arguments.split())
    assert answer.code == 2
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1
    assert message in answer.err


@pytest.mark.parametrize("module", ["own_metrics.py", "./own_metrics.py", "own_metrics"])
def test_modules_can_be_files(cli, metrics, module):
    answer = cli("--module", module, "check", "own_metrics:precision", "-m", "P@10", "--ties", "input", *FAST)
    assert answer.code == 0, answer.err
    assert "own_metrics" in sys.modules


@pytest.mark.parametrize(
    ("module", "message"),
    [("./nowhere.py", "nowhere.py: no such file"), ("own_broken.py", "own_broken.py: cannot be imported: SyntaxError"),
     ("./own_metrics", "--module ./own_metrics: cannot be imported")],
)  # fmt: skip
def test_modules_that_cannot_be_imported_are_one_line(cli, metrics, module, message):
    answer = cli("--module", module, "measures")
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1
