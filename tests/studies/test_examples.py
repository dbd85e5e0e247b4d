"""Pairs of images of a trial: stored with its scores, read back, and drawn by a command."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from rankbound.cli.main import run
from rankbound.data.synthetic import synthetic_images
from rankbound.errors import ArgumentError, DataError
from rankbound.studies.runner import run_trials
from rankbound.studies.store import open_store
from rankbound.studies.trial import run_trial

FACES = """
title = "Faces"
[[tables]]
name = "pixels"
data = { faces = "faces.npz" }
models = [
    { model = "RegressionRanker", name = "Reg LR" },
    { model = "LogisticRanker", name = "Class LR" },
]
folds = [0, 1]
pairs = 300
measures = "pairwise accuracy"
examples = 2
"""


@pytest.fixture
def slots(plan, folder):
    images = synthetic_images(count=150, size=12, seed=2)
    np.savez(folder / "faces.npz", images=images.images, age=images.ages)
    return plan(FACES)


def run_all(slots, folder, jobs):
    with open_store(folder, create=True) as store, store.locked():
        store.register("mine", slots)
        assert run_trials(slots, store, jobs=jobs).failed == 0
    return folder


@pytest.mark.full("takes seconds")
def test_examples_agree_with_the_scores_whichever_worker_ran_the_trial(slots, tmp_path):
    together, apart = (run_all(slots, tmp_path / f"{jobs}", jobs) for jobs in (2, 1))
    with open_store(together) as store, open_store(apart) as alone:
        for slot in slots:
            examples = store.examples(slot.trial.id)
            assert examples.equals(alone.examples(slot.trial.id))
            assert examples.height == 2 * 2 * 5
            left, right = examples.filter(pl.col("side") == "left"), examples.filter(pl.col("side") == "right")
            in_order = dict(zip(left["kind"], left["label"] > right["label"], strict=True))
            assert [in_order[kind] for kind in ("right order", "surest right")] == [True, True]
            assert [in_order[kind] for kind in ("wrong order", "surest wrong")] == [False, False]
        table = store.examples_table("mine")
    assert table.select("table", "system", "fold").unique(maintain_order=True).rows() == [
        ("pixels", "Reg LR", 0),
        ("pixels", "Class LR", 0),
    ]


def test_only_trials_that_keep_examples_have_another_name(plan, slots):
    without = plan(FACES.replace("examples = 2\n", ""))
    zero = plan(FACES.replace("examples = 2", "examples = 0"))
    assert [slot.trial.id for slot in zero] == [slot.trial.id for slot in without]
    assert {slot.trial.id for slot in without}.isdisjoint(slot.trial.id for slot in slots)
    assert run_trial(without[0].trial).examples is None
    assert run_trial(without[0].trial).scores.equals(run_trial(slots[0].trial).scores)


def test_a_store_without_examples_gives_none(plan, slots, tmp_path):
    (slot, *_) = plan(FACES.replace("examples = 2\n", ""))
    with open_store(tmp_path / "store", create=True) as store:
        store.register("mine", [slot])
        store.put(slot.trial, run_trial(slot.trial))
        (tmp_path / "store" / "examples").rmdir()  # as older versions left it
    with open_store(tmp_path / "store") as store:
        assert store.examples_table("mine").is_empty()


@pytest.mark.full("takes seconds")
def test_report_draws_the_pairs_of_a_store(slots, tmp_path, capsys):
    pytest.importorskip("altair", reason="figures need altair")
    (slot, *_) = slots
    with open_store(tmp_path / "store", create=True) as store:
        store.register("mine", [slot])
        store.put(slot.trial, run_trial(slot.trial))
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    assert run(["report", str(tmp_path / "store"), "-o", str(page), "--figures", str(figures)]) == 0
    assert "Pairs of images" not in capsys.readouterr().out  # not among those that were not drawn
    assert (figures / "example-pairs-reg-lr.svg").read_text().count("data:image/png;base64,") == 2 * 2 * 5
    assert 'id="figure-example-pairs-reg-lr"' in page.read_text()


def test_damaged_examples_are_reported(slots, tmp_path):
    (slot, *_) = slots
    file = tmp_path / "store" / "examples" / f"{slot.trial.id}.parquet"
    with open_store(tmp_path / "store", create=True) as store:
        store.register("mine", [slot])
        outcome = run_trial(slot.trial)
        whole = outcome.examples
        store.put(slot.trial, replace(outcome, examples=whole.with_columns(pl.lit("<script>").alias("kind"))))
        with pytest.raises(DataError, match=r"parquet: is damaged: pairs of images: kind must be one of"):
            store.examples_table("mine")
        store.put(slot.trial, replace(outcome, examples=whole.drop("pixels")))
        with pytest.raises(DataError, match=r"parquet: is damaged: pairs of images need a column pixels"):
            store.examples_table("mine")
        whole.write_parquet(file)
        with pytest.raises(DataError, match=r"parquet: is damaged: its SHA-256 is not the one recorded"):
            store.examples_table("mine")
        file.unlink()
        with pytest.raises(DataError, match=r"parquet: is missing, although its trial is recorded as done"):
            store.examples_table("mine")


def test_examples_are_for_images_only(study, folder):
    with pytest.raises(ArgumentError, match=r"tables\[0\].examples: applies to images only, not to letor data"):
        study("title = 'x'\n[[tables]]\ndata = { letor = 'letor' }\nmodel = 'AdaRank'\nmeasures = 'AP'\nexamples = 1\n")
