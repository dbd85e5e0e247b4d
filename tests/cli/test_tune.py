"""rankbound tune: from files to a saved model, a table, a page and JSON."""

from __future__ import annotations

import numpy as np
import pytest

from rankbound.data import synthetic_letor
from rankbound.models import load_ranker

SPACE = """
[LambdaMART]
learning_rate = ["log", 0.05, 0.3]
num_leaves = ["int", 3, 15]
n_estimators = 8
min_child_samples = 5
"""


@pytest.fixture
def letor(tmp_path, monkeypatch):
    """Files train, valid and test with 30, 15 and 15 queries of one set of generated data, and a search space."""
    data = synthetic_letor(queries=60, features=6, seed=1, documents=(5, 12))
    for name, queries in {"train": range(30), "valid": range(30, 45), "test": range(45, 60)}.items():
        part = data.take(queries)
        rows = zip(part.lists.labels, part.lists.query_of_item, part.features, strict=True)
        lines = [
            f"{label} qid:{query + 1} " + " ".join(f"{i + 1}:{value:.5f}" for i, value in enumerate(row))
            for label, query, row in rows
        ]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "space.toml").write_text(SPACE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


QUICK = ("--space", "space.toml", "--jobs", "0", "-m", "nDCG@10", "--no-page")


def test_from_files_to_a_model(cli, letor):
    files = ("train", "--valid", "valid", "--test", "test")
    answer = cli("tune", *files, *QUICK[:-1], "--trials", "3", "-o", "tuned", "--json").json
    assert answer["counts"] == {"done": 3, "pruned": 0, "stopped": 0, "failed": 0, "ran": 3}
    assert answer["queries"] == {"training": 30, "validation": 15, "test": 15}
    values = [trial["value"] for trial in answer["trials"]]
    assert values == sorted(values, reverse=True)
    best = answer["best"]
    assert best["params"]["n_estimators"] == 8
    ranker = load_ranker("tuned/model")
    assert ranker.eval_score_ == best["value"]
    assert ranker.num_leaves == best["params"]["num_leaves"]
    assert "optimistic" in answer["notes"][0]
    assert (letor / "tuned" / "report.html").is_file()
    assert cli("rank", "tuned/model", "test", "-o", "run", "--json").code == 0

    printed = cli("tune", *files, *QUICK, "--trials", "3", "-o", "tuned")
    assert printed.code == 0
    assert "nDCG@10 on 15 validation queries, 3 trials" in printed.out
    assert f"{best['value']:.4f}" in printed.out
    assert f"Chosen: trial {best['trial']}, LambdaMART with " in printed.out
    assert "On 15 test queries, which no trial used, nDCG@10 of the chosen model is " in printed.out
    assert f"{answer['test']['mean']:.4f}" in printed.out
    assert "Trials: 0 run now, 3 before." in printed.out


def test_a_fifth_of_the_queries_is_held_out_by_default(cli, letor):
    answer = cli("tune", "train", *QUICK, "--trials", "1", "-o", "tuned", "--json").json
    assert answer["queries"] == {"training": 24, "validation": 6}
    assert answer["test"] is None
    assert any("they are not reliable" in note for note in answer["notes"])


def test_parameters_can_be_fixed(cli, letor):
    fixed = ("--param", "num_leaves=4", "--refit", "--trials", "2")
    answer = cli("tune", "train", *QUICK, *fixed, "-o", "t", "--json").json
    assert {trial["params"]["num_leaves"] for trial in answer["trials"]} == {4}
    assert answer["refitted"] is True
    assert load_ranker("t/model").n_queries_ == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "0"], "trials must be a positive integer or None, got 0"),
        (["--minutes", "0"], "minutes must be a positive number or None, got 0.0"),
        (["--model", "Lambda"], "got 'Lambda'"),
        (["--model", "LambdaMART", "--param", "leaves=3"], "none of LambdaMART has a parameter 'leaves'"),
        (["--param", "leaves"], "--param must be KEY=VALUE, got 'leaves'"),
        (["--space", "train"], "train: is not TOML"),
        (["--valid", "nowhere"], "nowhere: cannot be read"),
        (["--workers", "-2"], "jobs must be a positive integer, 0 or None, got -2"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(cli, letor, arguments, message):
    answer = cli("tune", "train", "-o", "tuned", *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert answer.out == ""
    assert not (letor / "tuned").exists()


def test_labels_that_are_all_equal_are_refused(cli, letor):
    lines = (letor / "train").read_text().splitlines()
    (letor / "flat").write_text("\n".join("1" + line[1:] for line in lines) + "\n")
    answer = cli("tune", "flat", "--trials", "1", "-o", "tuned")
    assert answer.code == 2
    assert "labels must differ within at least one query" in answer.err
    assert not (letor / "tuned").exists()


@pytest.mark.real_data
def test_a_fold_has_its_own_validation_and_test_queries(cli, data_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text(SPACE)
    answer = cli("tune", "mq2008/1", *QUICK, "--trials", "1", "-o", "tuned", "--json").json
    assert answer["queries"]["test"] > 100
    assert np.isfinite(answer["test"]["mean"])
