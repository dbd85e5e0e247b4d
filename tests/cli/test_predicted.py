"""rankbound evaluate and compare with --predicted."""

from __future__ import annotations

import json
from statistics import mean

import pytest

PEOPLE = {"q1": (1, 0), "q2": (0, 1), "q3": (1, 1), "q4": (1, 0)}
MODEL = {"q1": (1, 0), "q2": (1, 1), "q3": (1, 1), "q4": (0, 0), "q5": (1, 1), "q6": (0, 1), "q7": (1, 0)}


@pytest.fixture
def labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, table in (("people", PEOPLE), ("model", MODEL)):
        lines = [f"{q} 0 {d} {label}\n" for q, of in table.items() for d, label in zip("ab", of, strict=True)]
        (tmp_path / name).write_text("".join(lines))
    for name, first in (("run", "a"), ("other", "b")):
        lines = [f"{q} Q0 {d} 1 {1 + (d == first)} {name}\n" for q in MODEL for d in "ab"]
        (tmp_path / name).write_text("".join(lines))
    return tmp_path


def _estimate(people, model):
    """The mean with tuned weight, by the formula of the documentation."""
    sample, rest = [model[q] for q in people], [model[q] for q in model if q not in people]
    n, others = len(sample), len(rest)
    x, y = list(people.values()), sample
    covariance = sum((a - mean(x)) * (b - mean(y)) for a, b in zip(x, y, strict=True)) / (n - 1)
    variance = sum((b - mean(sample + rest)) ** 2 for b in sample + rest) / (n + others - 1)
    weight = min(max(covariance / ((1 + n / others) * variance), 0), 1)
    return mean(a - weight * b for a, b in zip(x, y, strict=True)) + weight * mean(rest)


def test_means_and_differences_are_those_of_the_formula(cli, labels):
    answer = cli("compare", "people", "run", "other", "-m", "P@1", "--predicted", "model", "--json").json
    rows = {(row["run"], row["baseline"]): row for row in answer["rows"]}
    first, second = ({q: of[i] for q, of in PEOPLE.items()} for i in (0, 1))
    first_model, second_model = ({q: of[i] for q, of in MODEL.items()} for i in (0, 1))
    assert rows["run", None]["mean"] == pytest.approx(_estimate(first, first_model))
    assert rows["other", None]["mean"] == pytest.approx(_estimate(second, second_model))
    difference = {q: second[q] - first[q] for q in first}
    of_model = {q: second_model[q] - first_model[q] for q in first_model}
    assert rows["other", "run"]["mean"] == pytest.approx(_estimate(difference, of_model))
    assert rows["run", None]["human_mean"] == 3 / 4
    assert (rows["run", None]["human_queries"], rows["run", None]["queries"]) == (4, 7)
    pairs = [pair for q, of in PEOPLE.items() for pair in zip(of, MODEL[q], strict=True)]
    confusion = [[pairs.count((row, column)) for column in (0, 1)] for row in (0, 1)]
    assert answer["agreement"]["confusion"] == confusion
    assert answer["agreement"]["documents"] == 8


def test_evaluate_prints_the_same_means_without_differences(cli, labels):
    both = [cli(*_command(name)) for name in ("evaluate", "compare")]
    as_json = [cli(*_command(name), "--json").json for name in ("evaluate", "compare")]
    assert as_json[0] == as_json[1]
    assert "other − run" not in both[0].out
    assert "other − run" in both[1].out
    assert all("Cohen's kappa" in answer.out for answer in both)


def _command(name):
    return name, "people", "run", "other", "-m", "P@1", "--predicted", "model"


def test_a_sample_that_is_not_random_is_warned_about(cli, labels):
    lines = [f"q{i:02} 0 a {int(i < 30)}\n" for i in range(60)]
    (labels / "model").write_text("".join(lines))
    (labels / "people").write_text("".join(lines[:20]))
    (labels / "run").write_text("".join(f"q{i:02} Q0 a 1 1 run\n" for i in range(60)))
    answer = cli("evaluate", "people", "run", "-m", "P@1", "--predicted", "model", "--json")
    assert "not spread over the order of the queries" in answer.err
    assert len(json.loads(answer.out)["warnings"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--predicted", "nothing"], "nothing: cannot be read"),
        (["--predicted", "people"], "people is named twice"),
        (["--predicted", "model", "--unjudged", "range"], "--predicted cannot be used with --unjudged"),
        (["--predicted", "model", "--per-query", "x.csv"], "--predicted cannot be used with --per-query"),
        (["--predicted", "graded"], "predicted labels must be grades of the human labels (0, 1), got 3"),
        (["--predicted", "elsewhere"], "no document has a human and a predicted label"),
        (["--predicted", "few"], "human labels are needed for at least 3 queries of the predicted ones, got 2"),
        (["--predicted", "model", "--confidence", "2"], "confidence must lie between 0 and 1"),
    ],
)
@pytest.mark.parametrize("command", [["evaluate", "people", "run"], ["compare", "people", "run", "other"]])
def test_wrong_input_is_one_line(cli, labels, command, arguments, message):
    (labels / "graded").write_text("q1 0 a 3\n")
    (labels / "elsewhere").write_text("q1 0 z 1\n")
    (labels / "few").write_text("q1 0 a 1\nq2 0 a 0\n")
    answer = cli(*command, *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert answer.out == ""
    assert not (labels / "x.csv").exists()
