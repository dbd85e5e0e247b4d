"""The study approx-tables: its numbers have their places, TD2003 runs on files of its format, errors are as by hand."""

from __future__ import annotations

import math
import re

import numpy as np
import polars as pl
import pytest

from rankbound.errors import DataError
from rankbound.studies.derived import error_along_training
from rankbound.studies.expansion import expand, select
from rankbound.studies.learning import ERROR
from rankbound.studies.results import read_published, results_table
from rankbound.studies.store import open_store
from rankbound.studies.study_files import load_study
from rankbound.studies.trial import run_trial

from .papers import published_without_a_setting, run_here, write_folds

NDCG = "nDCG(dcg='exp-log2')"


@pytest.fixture
def td2003(tmp_path, monkeypatch):
    """A data folder with TD2003 in small, and nothing else."""
    monkeypatch.setenv("RANKBOUND_DATA", str(tmp_path / "data"))
    write_folds(tmp_path / "data" / "td2003", seed=1)
    return tmp_path


def short(study):
    """The study with few and quick trials: one point of each grid, few epochs."""
    tables = []
    for table in study.tables:
        choices = [
            choice.model_copy(
                update={
                    "grid": {key: values[:1] for key, values in choice.grid.items()},
                    "params": choice.params | ({"epochs": 3} if "epochs" in choice.params else {}),
                }
            )
            for choice in table.model_choices
        ]
        tables.append(table.model_copy(update={"models": choices, "model": None, "params": {}, "grid": {}}))
    return study.model_copy(update={"tables": tables})


def test_every_published_number_has_a_place():
    study = load_study("approx-tables")
    published = read_published(study.published_path, ["table", "data", "model"])
    assert published.height == 12
    assert published_without_a_setting(study, published) == []


def test_the_grids_are_the_papers():
    study = load_study("approx-tables")
    first = study.model_copy(update={"tables": study.tables[:1]})
    points = {(slot.setting["model"], *map(int, slot.point.values())) for slot in expand(first, fetch=False)}
    assert {p[1:] for p in points if p[0] == "ApproxNDCG"} == {(a,) for a in (10, 20, 50, 100, 150, 200, 250, 300)}
    assert {p[1:] for p in points if p[0] == "ApproxAP"} == {
        (a, b) for a in (10, 20, 50, 100) for b in (1, 10, 20, 50, 100)
    }


def test_tables_without_data_are_left_out_with_one_note(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBOUND_DATA", str(tmp_path))
    study, reported = load_study("approx-tables"), []
    there = expand(study, fetch=False, notify=reported.append)
    assert {slot.setting["data"] for slot in there} == {"ohsumed-letor2"}
    assert [text.split(":")[0] for text in reported] == ["left out"] * 2
    assert "TD2003: td2003 is not here" in reported[0]
    assert "TD2004, approximation error, figure 1: td2004 is not here" in reported[1]
    only_absent = study.model_copy(update={"tables": [table for table in study.tables if table.optional]})
    with pytest.raises(DataError, match="the data of all of its tables are missing"):
        expand(only_absent)


@pytest.mark.full("takes seconds")
def test_td2003_runs_on_files_of_its_format(td2003):
    study = short(load_study("approx-tables"))
    study = study.model_copy(update={"tables": [table for table in study.tables if table.data == "td2003"]})
    with open_store(td2003 / "store", create=True) as store:
        slots = run_here(study, {"fold": [1, 2]}, store)
        published = read_published(study.published_path, ["table", "data", "model"])
        table = results_table(store, slots, published).filter(pl.col("measure") == "AP")
    assert dict(table.select("model", "published").iter_rows()) == {
        "ApproxAP": 0.233, "ApproxNDCG": 0.238, "AdaRank.MAP": 0.137, "SVMmap": 0.198,
    }  # fmt: skip
    assert table["ours"].is_between(0.3, 1).all()
    assert table["note"].str.contains("44 older features").all()


STUDY = """
title = "Error"
derived = ["approximation-error"]
[[tables]]
name = "slopes"
data = { letor = "letor" }
model = "LinearRanker"
loss = "nDCG"
vary = { "loss.alpha" = [0.5, 1e6] }
params = { epochs = 40 }
selection = "last"
record = ["approximation-error"]
measures = "nDCG(dcg='exp-log2')"
"""


def smooth_ranks(scores, alpha):
    """As the paper writes them, item by item."""
    return [
        1 + sum(1 / (1 + math.exp(alpha * (f - other))) for at, other in enumerate(scores) if at != own)
        for own, f in enumerate(scores)
    ]


def ndcg(labels, ranks):
    ideal = sum((2**label - 1) / math.log2(2 + at) for at, label in enumerate(sorted(labels, reverse=True)))
    return sum((2**label - 1) / math.log2(1 + rank) for label, rank in zip(labels, ranks, strict=True)) / ideal


@pytest.mark.full("takes seconds")
def test_error_along_training_is_the_difference_by_hand(plan, folder):
    from rankbound.data import read_letor
    from rankbound.losses import NDCGLoss
    from rankbound.models import LinearRanker

    slots = plan(STUDY)
    rough, fine = (run_trial(data.trial).history.filter(pl.col("quantity").str.ends_with(ERROR)) for data in slots)
    assert rough["quantity"].unique(maintain_order=True).to_list() == [f"train {ERROR}", f"test {ERROR}"]
    assert rough["epoch"].unique(maintain_order=True).to_list() == list(range(2, 41, 2))
    assert fine["value"].max() < 1e-6
    train, test = (read_letor(folder / "letor" / f"{name}.txt") for name in ("train", "test"))
    model = LinearRanker(NDCGLoss(alpha=0.5), epochs=10, selection="last")
    model.fit(train.features, train.lists.labels, qid=train.lists.query_of_item)
    errors = []
    for query in range(len(test.lists)):
        data = test.take([query])
        scores, labels = model.predict(data.features).tolist(), data.lists.labels.tolist()
        if len(set(labels)) > 1:
            order = np.argsort(scores)[::-1]
            true = ndcg([labels[at] for at in order], range(1, len(order) + 1))
            errors.append(abs(ndcg(labels, smooth_ranks(scores, 0.5)) - true))
    recorded = rough.filter((pl.col("epoch") == 10) & (pl.col("quantity") == f"test {ERROR}"))["value"].item()
    assert recorded == pytest.approx(np.mean(errors), rel=1e-4)


@pytest.mark.full("takes seconds")
def test_errors_make_a_table(study, folder):
    with open_store(folder / "store", create=True) as store:
        slots = run_here(study(STUDY), {}, store)
        table = error_along_training(store, slots, pl.DataFrame())
    assert table.columns == ["table", "data", "system", "fold", "epoch", "train", "test"]
    assert table.height == 40
    assert re.fullmatch(r"nDCG.*loss\.alpha 0\.5", table["system"][0])
    assert table.null_count().sum_horizontal().item() == 0


@pytest.mark.full("takes seconds")
def test_tables_with_the_same_systems_keep_their_own_rows(study, folder):
    table = STUDY[STUDY.index("[[tables]]") :]
    other = table.replace('name = "slopes"', 'name = "faster"').replace(
        "epochs = 40", "epochs = 40, learning_rate = 0.3"
    )
    with open_store(folder / "store", create=True) as store:
        errors = error_along_training(store, run_here(study(STUDY + other), {}, store), pl.DataFrame())
    assert errors["table"].value_counts(sort=True, name="rows")["rows"].to_list() == [40, 40]
    first, second = (errors.filter(pl.col("table") == name) for name in ("slopes", "faster"))
    assert first["system"].equals(second["system"])
    assert not first["train"].equals(second["train"])


@pytest.mark.real_data
def test_a_trial_on_ohsumed(data_dir, tmp_path):
    study = load_study("approx-tables")
    with open_store(tmp_path, create=True) as store:
        slots = run_here(study, {"table": "OHSUMED", "model": "AdaRank.NDCG", "fold": 1}, store)
        table = results_table(store, slots)
    assert table.filter(pl.col("measure") == NDCG)["ours"].item() > 0.55
    assert len(select(expand(study), {"table": "OHSUMED"})) == 155
