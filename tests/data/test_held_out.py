"""Held-out interactions as judgments, and lists of recommendations as runs."""

from __future__ import annotations

from math import log2
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("pandas")

import pandas as pd

import rankbound as rb
from rankbound.data.held_out import held_out_judgments, is_held_out
from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError, DataError

HELD_OUT = "user,item,rating\n007,x,5\n007,y,1\nbo,z,4\n"
TOP = "user,item,rank,score\n007,w,1,0.9\n007,y,2,0.8\n007,v,3,0.1\nbo,z,1,0.7\nbo,x,2,0.6\n"
IDEAL = 1 + 1 / log2(3)
EXPECTED = {
    "nDCG@2": [1 / log2(3) / IDEAL, 1.0],
    "R@2": [1 / 2, 1.0],
    "Success@1": [0.0, 1.0],
    "MAP_min@2": [1 / 4, 1.0],
}


def same(result: rb.evaluation.Evaluation) -> bool:
    return all(result.values[name].tolist() == pytest.approx(values) for name, values in EXPECTED.items())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("test.csv").write_text(HELD_OUT)
    Path("top.csv").write_text(TOP)
    schema = {"user": pl.String, "item": pl.String}
    pl.read_csv("test.csv", schema_overrides=schema).write_parquet("test.parquet")
    pl.read_csv("top.csv", schema_overrides=schema).write_parquet("top.parquet")
    rows = [line.split(",") for line in TOP.splitlines()[1:]]
    Path("top.trec").write_text("".join(f"{u} Q0 {i} {rank} {score} r\n" for u, i, rank, score in rows))
    return tmp_path


@pytest.mark.parametrize("run", ["top.csv", "top.parquet", "top.trec"])
@pytest.mark.parametrize("test", ["test.csv", "test.parquet"])
def test_every_held_out_item_is_relevant_in_any_format(files: Path, test: str, run: str) -> None:
    assert same(rb.evaluate(test, run, list(EXPECTED)))
    assert same(rb.evaluate(test, {"one": run, "other": run}, list(EXPECTED))["other"])


@pytest.mark.parametrize("kind", ["polars", "lazy", "pandas", "arrow", "Interactions"])
def test_tables_in_memory_are_held_out_interactions_as_well(files: Path, kind: str) -> None:
    frame = pl.read_parquet("test.parquet")
    table = {
        "polars": lambda: frame,
        "lazy": frame.lazy,
        "pandas": lambda: pd.read_csv("test.csv", dtype={"user": str}),
        "arrow": frame.to_arrow,
        "Interactions": lambda: Interactions.from_columns(frame["user"], frame["item"]),
    }[kind]()
    assert is_held_out(table)
    assert same(rb.evaluate(table, "top.csv", list(EXPECTED)))


def test_a_column_of_labels_makes_a_table_one_of_judgments(files: Path) -> None:
    judgments = pl.read_parquet("test.parquet").with_columns(label=pl.Series([2, 0, 1]))
    assert not is_held_out(judgments)
    assert rb.evaluate(judgments, "top.csv", "R@2").values["R@2"].tolist() == [0.0, 1.0]
    assert not is_held_out({"q": {"a": 1}})
    assert not is_held_out(Path("top.trec"))
    assert not is_held_out("-")


def test_a_smallest_rating_can_be_required(files: Path) -> None:
    for run in ("top.csv", {"a": "top.csv"}):
        result = rb.evaluate("test.csv", run, "R@2", min_rating=4)
        values = result.values["R@2"] if isinstance(result, rb.evaluation.Evaluation) else result["a"].values["R@2"]
        assert values.tolist() == [0.0, 1.0]  # y, rated 1, is not relevant
    assert held_out_judgments("test.csv", 5)["label"].to_list() == [1, 0, 0]
    Path("bare.csv").write_text("user,item\n007,x\n")
    with pytest.raises(DataError, match="needs a column of ratings"):
        rb.evaluate("bare.csv", "top.csv", "R@2", min_rating=4)
    with pytest.raises(ArgumentError, match="min_rating needs held-out interactions"):
        rb.evaluate({"q": {"a": 1}}, {"q": {"a": 1}}, "R@2", min_rating=4)


def test_pairs_that_are_repeated_count_once(files: Path) -> None:
    Path("twice.csv").write_text(HELD_OUT + "007,x,5\n")
    assert same(rb.evaluate("twice.csv", "top.csv", list(EXPECTED)))


def test_ranks_are_enough_for_a_run(files: Path) -> None:
    ranks = pl.read_csv("top.csv", schema_overrides={"user": pl.String}).drop("score")
    assert same(rb.evaluate("test.csv", ranks.sample(fraction=1.0, shuffle=True, seed=1), list(EXPECTED)))


def test_usual_names_of_columns_are_recognized(files: Path) -> None:
    Path("movielens.csv").write_text(HELD_OUT.replace("user,item,rating", "userId,movieId,rating"))
    assert same(rb.evaluate("movielens.csv", "top.csv", list(EXPECTED)))


def test_damaged_files_are_named(files: Path) -> None:
    Path("bad.csv").write_text("user,item,rating\nal,x,much\n")
    with pytest.raises(DataError, match=r"bad\.csv:2: the rating must be a finite number, got 'much'"):
        rb.evaluate("bad.csv", "top.csv", "R@2")
    Path("swapped.csv").write_text("user,item\nal,x\n")
    with pytest.raises(DataError, match="no column for score"):
        rb.evaluate("top.csv", "swapped.csv", "R@2")


def test_auc_is_the_area_under_the_curve() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 60), rng.integers(0, 20, 60).astype(float)
    value = rb.evaluate(rb.Lists(labels, [0, 60], scores), measures="AUC").mean()["AUC"]
    assert value == pytest.approx(roc_auc_score(labels, scores))
