"""The command that compares the kernels of two checkouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import kernels
from benchmarks.kernels import TOLERANCE, Comparison, main

pytestmark = pytest.mark.full("tests of the benchmarks")

ROOT = Path(__file__).resolve().parents[2]


def test_two_checkouts_compute_the_same_losses_in_turns(monkeypatch, capsys):
    monkeypatch.setattr(kernels, "SIZES", ((2, 5), (3, 4)))
    monkeypatch.setattr(kernels, "_TURN_SECONDS", 0.0001)
    main(["ListNet", "--before", str(ROOT), "--turns", "1", "--json"])  # the exit code depends on the machine
    result = json.loads(capsys.readouterr().out)
    rows = [(row["loss"], row["queries"], row["items"], row["with_hessian"]) for row in result["kernels"]]
    assert rows == [("ListNet", *size, hessian) for hessian in (False, True) for size in ((2, 5), (3, 4))]
    assert all(row["ratio"] == row["now"] / row["before"] > 0 for row in result["kernels"])
    assert result["left_out"] == []


@pytest.mark.parametrize(("ratio", "code"), [(1 + 0.9 * TOLERANCE, 0), (1 + 1.1 * TOLERANCE, 1)])
def test_table_and_exit_code(monkeypatch, capsys, ratio, code):
    def measured(before, losses, turns, on_result):
        result = Comparison("nDCG", 8, 125, True, 1e-4, ratio * 1e-4)
        on_result("AP: left out, ArgumentError: loss must be another one")
        on_result(result)
        return [result]

    monkeypatch.setattr(kernels, "compare_kernels", measured)
    assert main(["nDCG", "--before", "."]) == code
    _, left_out, row, summary = capsys.readouterr().out.splitlines()
    assert left_out.startswith("AP: left out")
    assert row.split()[:5] == ["nDCG,", "with", "hessian,", "8", "x"]
    assert row.endswith("slower") == (code == 1)
    assert summary == f"1 compared, {code} slower; median ratio {ratio:.3f}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nDCG", "--before", "nowhere"], "--before must be a checkout of rankbound"),
        (["bpref", "--before", str(ROOT)], "loss must be one of nDCG; DCG"),
    ],
)
def test_wrong_arguments_are_one_line(capsys, arguments, message):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("has_package", [True, False])
def test_a_checkout_that_cannot_be_used_is_an_error(tmp_path, capfd, has_package):
    package = tmp_path / "src" / "rankbound"
    (package / "losses").mkdir(parents=True)
    (package / "losses" / "__init__.py").write_text("")  # has none of the names that the comparison needs
    if has_package:
        (package / "__init__.py").write_text("")
    assert main(["ListNet", "--before", str(tmp_path)]) == 2
    error = capfd.readouterr().err
    assert "has ended" in error
    assert ("cannot import name 'get_loss'" in error) == has_package
    assert ("but Python has found" in error) == (not has_package)
