"""RankingCallback in a Trainer of Lightning: values in the log, early stopping, checkpoints, tests, and errors."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

pytest.importorskip("lightning")
pytest.importorskip("torch")

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader

import rankbound as rb
from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.integrations import RankingCallback
from rankbound.losses import SoftmaxLoss

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .*dataloader.* does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),  # Lightning 2.6 with torch 2.13
    pytest.mark.full("needs a tool that only .venv-all has"),
]

DATA = synthetic_letor(queries=40, features=6, seed=4, documents=(5, 20))
TRAIN, VALID = DATA.take(range(20)), DATA.take(range(20, 40))
MEASURES = ["nDCG@10", "EM(nDCG@10)"]


def batches(part, form, queries=7):
    """Batches of whole queries; by ``qid``, of items that cut queries in two."""
    lists, features = part.lists, torch.tensor(np.asarray(part.features), dtype=torch.float32)
    labels, qid = torch.tensor(lists.labels), torch.tensor(lists.query_of_item)
    if form == "qid":
        return [(features[rows], labels[rows], qid[rows]) for rows in torch.arange(len(labels)).split(50)]
    result = []
    for start in range(0, len(lists), queries):
        offsets = torch.tensor(lists.offsets[start : start + queries + 1])
        rows = slice(int(offsets[0]), int(offsets[-1]))
        result.append((features[rows], labels[rows], offsets - offsets[0]))
    return result


def loader(part, form="offsets"):
    return DataLoader(batches(part, form), batch_size=None)


class Model(LightningModule):
    """A linear ranker whose steps return what the callback needs."""

    def __init__(self, form="offsets", learning_rate=0.1):
        super().__init__()
        torch.manual_seed(0)
        self.form, self.learning_rate = form, learning_rate
        self.layer, self.loss = torch.nn.Linear(6, 1), SoftmaxLoss()

    def forward(self, features):
        return self.layer(features).squeeze(1)

    def training_step(self, batch, batch_idx):
        features, labels, offsets = batch
        return self.loss(self(features), labels, offsets)

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        features, labels, queries = batch
        return {"scores": self(features), "labels": labels, self.form: queries, "loss": 0.0}

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate)


def trainer(*callbacks, **options):
    settings = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "num_sanity_val_steps": 0}
    settings |= {"enable_checkpointing": any(isinstance(each, ModelCheckpoint) for each in callbacks)}
    return Trainer(accelerator="cpu", callbacks=list(callbacks), **settings | options)


def expected(model, part=VALID, measures=MEASURES):
    with torch.no_grad():
        scores = model(torch.tensor(np.asarray(part.features), dtype=torch.float32))
    return rb.evaluate(part.lists.with_scores(scores.numpy()), measures=measures)


@pytest.mark.parametrize("form", ["offsets", "qid"])
def test_the_log_has_the_means_of_evaluate_and_the_callback_the_values_of_queries(form):
    callback, model = RankingCallback(MEASURES, prefix="val/"), Model(form)
    (logged,) = trainer(callback).validate(model, loader(VALID, form), verbose=False)
    result = expected(model)
    assert logged == pytest.approx({f"val/{name}": mean for name, mean in result.mean().items()}, abs=1e-6)
    frame = callback.evaluation.per_query.sort("qid")
    np.testing.assert_allclose(frame["EM(nDCG@10)"].to_numpy(), result.values["EM(nDCG@10)"], atol=1e-6)
    assert callback.evaluation.interval(method="t").keys() == set(MEASURES)


def test_test_data_have_their_own_pass():
    callback, model = RankingCallback("AP"), Model()
    done = trainer(callback)
    done.validate(model, loader(VALID), verbose=False)
    (logged,) = done.test(model, loader(TRAIN), verbose=False)
    assert logged == pytest.approx(expected(model, TRAIN, ["AP"]).mean(), abs=1e-6)
    assert callback.evaluation.queries == 20


def test_several_data_loaders_have_results_of_their_own():
    callback, model = RankingCallback("AP"), Model()
    done = trainer(callback)
    done.validate(model, [loader(TRAIN), loader(VALID)], verbose=False)
    means = [expected(model, part, ["AP"]).mean()["AP"] for part in (TRAIN, VALID)]
    for index, mean in enumerate(means):
        assert done.callback_metrics[f"AP/dataloader_idx_{index}"].item() == pytest.approx(mean, abs=1e-6)
        assert callback.evaluations[index].mean()["AP"] == pytest.approx(mean, abs=1e-6)


class Recorder(RankingCallback):
    """Keeps the mean of every pass."""

    means: list[float]

    def on_validation_epoch_end(self, trainer, pl_module):
        super().on_validation_epoch_end(trainer, pl_module)
        self.means.append(self.evaluation.mean()["EM(nDCG@10)"])


def test_training_stops_and_keeps_the_best_model_by_a_normalized_measure(tmp_path):
    recorder = Recorder(MEASURES)
    recorder.means = []
    stopping = EarlyStopping("EM(nDCG@10)", mode="max", patience=2)
    best = ModelCheckpoint(
        tmp_path, monitor="EM(nDCG@10)", mode="max", filename="{epoch}-{EM(nDCG@10):.4f}", save_top_k=1
    )
    model = Model(learning_rate=3.0)
    trainer(recorder, stopping, best, max_epochs=30).fit(model, loader(TRAIN), loader(VALID))
    means = recorder.means
    first_best = int(np.argmax(means))
    assert len(means) < 30  # it stopped, two passes after the best one
    assert first_best == len(means) - 3
    assert stopping.best_score.item() == pytest.approx(max(means), abs=1e-6)
    assert best.best_model_score.item() == pytest.approx(max(means), abs=1e-6)
    assert f"epoch={first_best}-EM(nDCG@10)={max(means):.4f}" in best.best_model_path
    restored = Model()
    restored.load_state_dict(torch.load(best.best_model_path, weights_only=True)["state_dict"])
    assert expected(restored).mean()["EM(nDCG@10)"] == pytest.approx(max(means), abs=1e-6)


def test_a_sanity_check_before_training_leaves_no_queries_behind():
    callback, model = RankingCallback("AP"), Model(learning_rate=0.0)
    trainer(callback, max_epochs=1, num_sanity_val_steps=1).fit(model, loader(TRAIN), loader(VALID))
    assert callback.evaluation.queries == 20
    assert callback.evaluation.mean() == pytest.approx(expected(model, measures=["AP"]).mean(), abs=1e-6)


def test_the_worst_group_is_logged_and_can_be_monitored(tmp_path):
    groups = {query: "even" if query % 2 == 0 else "odd" for query in range(20)}
    callback = RankingCallback(MEASURES, groups=groups)
    stop = EarlyStopping("EM(nDCG@10)_worst_group", mode="max", patience=0)
    fit = trainer(callback, stop, max_epochs=2, default_root_dir=tmp_path)
    fit.fit(Model(), loader(TRAIN), loader(VALID))
    logged = {name: value.item() for name, value in fit.callback_metrics.items()}
    means = [logged[f"EM(nDCG@10)_group={group}"] for group in ("even", "odd")]
    assert logged["EM(nDCG@10)_worst_group"] == min(means)
    assert [row.mean for row in callback.evaluation.by_group if row.measure == "EM(nDCG@10)"] == pytest.approx(
        sorted(means), abs=1e-6
    )


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "came"),
    [
        (None, "NoneType"),
        (torch.tensor(0.5), "Tensor"),
        ({"loss": 0.5}, "a dict with loss"),
        ({"scores": [0.5], "labels": [1]}, "a dict with scores, labels"),
        ({"scores": [0.5], "labels": [1], "qid": [1], "mask": [1]}, "a dict with scores, labels, qid, mask"),
    ],
)
def test_what_a_step_must_return(outputs, came):
    class Other(Model):
        def validation_step(self, batch, batch_idx):
            return outputs

    with pytest.raises(ArgumentError, match=rf"validation_step must return a dict with scores, labels .* got {came}$"):
        trainer(RankingCallback()).validate(Other(), loader(VALID), verbose=False)


def test_names_of_measures_are_checked_when_the_callback_is_made():
    with pytest.raises(MeasureError, match="unknown measure 'nDGC'"):
        RankingCallback("nDGC")
    with pytest.raises(DataError, match="there is no result yet"):
        _ = RankingCallback().evaluation


def test_without_lightning_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "rankbound.integrations.lightning")
    with pytest.raises(ImportError, match=r'needs lightning: pip install "\.\[lightning\]"'):
        importlib.import_module("rankbound.integrations.lightning")
