"""The study neural-tables: its numbers have their places; trees and logistic models classify; features of a network."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound.data.synthetic import synthetic_images
from rankbound.errors import ArgumentError
from rankbound.studies import trial_faces
from rankbound.studies.expansion import expand
from rankbound.studies.results import read_published, results_table
from rankbound.studies.store import open_store
from rankbound.studies.study_files import load_study
from rankbound.studies.trial import run_trial

from .papers import expand_table, published_without_a_setting, run_here


@pytest.mark.parametrize("name", ["neural-tables", "neural-color"])
def test_every_published_number_has_a_place(name):
    study = load_study(name)
    published = read_published(study.published_path, ["table", "data", "model"])
    assert published.height == 31
    assert published_without_a_setting(study, published) == []


@pytest.mark.parametrize("name", ["neural-tables", "neural-color"])
def test_which_models_classify(name):
    study = load_study(name)
    faces = [slot for table in study.tables if table.kind == "faces" for slot in expand_table(study, table)]
    for slot in faces:
        assert trial_faces._classifies(slot.trial.spec) == slot.setting["model"].startswith("Class"), slot.setting


def test_the_models_of_the_figures_keep_pairs_of_faces():
    study = load_study("neural-tables")
    kept = [
        (table.name, slot.setting["model"])
        for table in study.tables
        if table.examples
        for slot in expand_table(study, table)
    ]
    assert {("2: faces, pixels", "Rank LR"), ("3: faces, VGG16 features", "Rank LR")} <= set(kept)


FACES = """
title = "Faces"
[[tables]]
data = { faces = "faces.npz" }
optional = true
models = [
    { model = "RandomForestRanker", name = "Class RF", params = { task = "classification", n_estimators = 20 } },
    { model = "LogisticRanker", name = "Class LR" },
    { model = "RegressionRanker", name = "Reg LR-l1", params = { options = { alpha = 1.0 } } },
]
pairs = 300
measures = "pairwise accuracy"
"""


@pytest.fixture
def faces(folder):
    """Discs that grow with age."""
    images = synthetic_images(count=200, size=12, seed=2)
    np.savez(folder / "faces.npz", images=images.images, age=images.ages)
    return images


def test_classifiers_learn_which_of_two_is_older(plan, faces, monkeypatch):
    taught = {}
    ranker_of = trial_faces.ranker_of

    def listening(spec, **changes):
        ranker = ranker_of(spec, **changes)
        fit = ranker.fit

        def noted(X, y, **others):
            taught[spec.model] = np.unique(y)
            return fit(X, y, **others)

        ranker.fit = noted
        return ranker

    monkeypatch.setattr(trial_faces, "ranker_of", listening)
    for slot in plan(FACES):
        assert run_trial(slot.trial).scores["pairwise accuracy"].mean() > 0.6
    assert taught["RandomForestRanker"].tolist() == [0, 1]
    assert taught["LogisticRanker"].tolist() == [0, 1]
    assert len(taught["RegressionRanker"]) > 10


COLOR = """
title = "Faces"
[[tables]]
data = { faces = "color.npz" }
mirror = false
pairs = 300
measures = "pairwise accuracy"
examples = 1
models = [
    { model = "RegressionRanker", name = "Reg LR", params = { options = { alpha = 1.0 } } },
    { model = "RankCNN", params = { channels = [4], hidden = [8], epochs = 3, kernel_size = 5, padding = false } },
]
"""


def test_color_images(plan, faces, folder, monkeypatch):
    """Only green shows the disc; neither model would order pairs by the other colors."""
    noise = np.random.default_rng(0).integers(0, 256, (*faces.images.shape, 2), dtype=np.uint8)
    images = np.concatenate((noise[..., :1], faces.images[..., None], noise[..., 1:]), axis=3)
    np.savez(folder / "color.npz", images=images, age=faces.ages)
    rows = []
    ranker_of = trial_faces.ranker_of

    def listening(spec, **changes):
        ranker = ranker_of(spec, **changes)
        fit = ranker.fit
        ranker.fit = lambda X, y, **others: (rows.append(X.shape), fit(X, y, **others))[1]
        return ranker

    monkeypatch.setattr(trial_faces, "ranker_of", listening)
    for slot in plan(COLOR):
        outcome = run_trial(slot.trial)
        assert outcome.scores["pairwise accuracy"].mean() > 0.6, slot.setting
        assert outcome.examples.height == 2 * 5
    assert rows == [(140, 12 * 12 * 3), (140, 12, 12, 3)]  # 70 % of the images, not mirrored


class Means(torch.nn.Module):
    """Mean brightness of quarters: a network that needs no training."""

    def forward(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images, 4).flatten(1)


@pytest.mark.full("takes seconds")
def test_rankers_learn_from_a_networks_features(plan, study, faces, folder):
    text = FACES.replace("optional", "prepare = { backbone = 'net.pt2' }\noptional")
    reported = []
    (folder / "other.toml").write_text(FACES.split("[[")[0] + FACES[FACES.index("[[") :] + text[text.index("[[") :])
    assert len(expand(load_study("other.toml"), notify=reported.append)) == 3
    assert "the network net.pt2 is not available" in reported[0]
    example = torch.zeros(2, 3, 224, 224)
    batch = {0: torch.export.Dim("batch")}
    torch.export.save(torch.export.export(Means(), (example,), dynamic_shapes=(batch,)), folder / "net.pt2")
    plain, featured = plan(FACES), plan(text)
    assert {slot.trial.id for slot in plain}.isdisjoint(slot.trial.id for slot in featured)
    assert plain[0].trial.digest != featured[0].trial.digest
    outcome = run_trial(featured[2].trial)
    assert outcome.scores["pairwise accuracy"].mean() > 0.6
    features = trial_faces._inputs(featured[0].trial.source, featured[0].trial.spec, faces)
    assert features.shape == (200, 3 * 16)


def test_a_network_is_for_images(study):
    text = "title = 'x'\n[[tables]]\ndata = { letor = 'letor' }\nmodel = 'AdaRank'\nmeasures = 'AP'\n"
    with pytest.raises(ArgumentError, match=r"tables\[0\].prepare.backbone: applies to images only"):
        study(text + "prepare = { backbone = 'net.pt2' }\n")


@pytest.mark.real_data
def test_a_trial_on_the_sample(data_dir, tmp_path):
    study = load_study("neural-tables")
    with open_store(tmp_path, create=True) as store:
        only = {"table": "1: web pages", "data": "mslr-sample", "model": "Class Boost", "seed": 0}
        slots = run_here(study, only, store)
        published = read_published(study.published_path, ["table", "data", "model"])
        table = results_table(store, slots, published)
    row = table.row(0, named=True)
    assert (row["measure"], row["published"]) == ("nDCG@10", 0.4543)
    assert "MSLR-WEB10K" in row["note"]
    assert row["ours"] > 0.2
