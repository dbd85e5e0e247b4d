"""The training loop: batches, selection, early stopping, checkpoints, and resuming after a kill."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples

pytest.importorskip("torch")

import torch

from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.losses import NDCGLoss
from rankbound.models import MLPRanker
from rankbound.training import Examples, Settings, _batches, _split_lists, train
from tests.killing import finish, kill_when, last_epoch

DATA = synthetic_letor(queries=60, features=8, seed=2, documents=(4, 30))
COLUMNS = DATA.features, DATA.lists.labels, DATA.lists.query_of_item
HELD_OUT = synthetic_letor(queries=30, features=8, seed=2, documents=(4, 30)).take(range(5, 30))
EVAL = HELD_OUT.features, HELD_OUT.lists.labels, HELD_OUT.lists.query_of_item


def ranker(**options):
    return MLPRanker(**({"hidden": (8,), "epochs": 6, "batch_size": 16, "dropout": 0.1} | options))


def fitted(eval_set=EVAL, **options):
    X, y, qid = COLUMNS
    return ranker(**options).fit(X, y, qid=qid, eval_set=eval_set)


# ---- batches ---------------------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    list_size=st.one_of(st.none(), st.integers(2, 9)),
    batch_size=st.integers(1, 5),
    seed=st.integers(0, 99),
)
@examples(80)
def test_every_row_comes_once_in_an_epoch_and_no_list_mixes_queries_or_is_too_long(sizes, list_size, batch_size, seed):
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    query_of_row = np.repeat(np.arange(len(sizes)), sizes)
    examples = Examples(np.zeros((offsets[-1], 1), np.float32), query_of_row, offsets, np.arange(len(sizes)) + 0.5)
    seen = []
    plan = Settings(batch_size=batch_size, list_size=list_size)
    for rows, cuts, weights in _batches(examples, plan, torch.Generator().manual_seed(seed)):
        assert 1 <= len(cuts) - 1 <= batch_size
        for start, end, weight in zip(cuts[:-1], cuts[1:], weights, strict=True):
            assert len(set(query_of_row[rows[start:end]])) == 1
            assert weight == query_of_row[rows[start]] + 0.5
            assert end > start
            assert list_size is None or end - start <= list_size
        seen.append(rows)
    assert sorted(np.concatenate(seen).tolist() if seen else []) == list(range(offsets[-1]))


def test_long_lists_are_split_lists_evenly_and_anew_in_each_epoch():
    generator = torch.Generator().manual_seed(0)
    first, cuts, query = _split_lists(np.array([0, 10, 13]), 4, generator)
    assert np.diff(cuts).tolist() == [4, 3, 3, 3]
    assert query.tolist() == [0, 0, 0, 1]
    assert first.tolist() != _split_lists(np.array([0, 10, 13]), 4, generator)[0].tolist()


# ---- choosing an epoch -----------------------------------------------------------------------------------------------


def test_the_epoch_with_the_best_measure_is_kept_and_last_keeps_the_last():
    best, last = fitted(), fitted(selection="last")
    values = [row["nDCG"] for row in best.history_]
    assert best.kept_epoch_ == int(np.argmax(values)) + 1
    assert best.eval_score_ == pytest.approx(max(values))
    assert last.kept_epoch_ == 6
    assert last.eval_score_ == pytest.approx(values[-1])
    assert [row["loss"] for row in last.history_] == [row["loss"] for row in best.history_]
    assert fitted(eval_set=None).kept_epoch_ == 6


def test_selection_on_the_test_set_must_be_requested_by_name_and_is_stored_with_the_model():
    assert fitted(selection="test")._fitted_state().metadata["selection"] == "test"
    with pytest.raises(ArgumentError, match="selection='test' selects the epoch on eval_set"):
        fitted(eval_set=None, selection="test")


def test_patience_stops_and_watched_measures_are_in_the_history():
    stopped = fitted(epochs=200, learning_rate=0.05, patience=3, watch=("AP", "UL2(nDCG)"))
    assert len(stopped.history_) == stopped.kept_epoch_ + 3 < 200
    assert list(stopped.history_[0]) == ["epoch", "loss", "nDCG", "AP", "UL2(nDCG)"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1, got 0"),
        ({"batch_size": 1.5}, "batch_size must be an integer"),
        ({"list_size": 1}, "list_size must be an integer of at least 2"),
        ({"patience": 0}, "patience"),
        ({"random_state": -1}, "random_state must be an integer of at least 0"),
        ({"optimizer": "adagrad"}, "optimizer must be one of adam, adamw, sgd, got 'adagrad'"),
        ({"selection": "best"}, "selection must be one of validation, test, last"),
        ({"learning_rate": 0}, "learning_rate must be a positive number"),
        ({"weight_decay": -1}, "weight_decay"),
    ],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(ArgumentError, match=message):
        fitted(**options)


def test_a_training_that_goes_astray_says_so():
    with pytest.raises(DataError, match=r"diverged in epoch .*smaller learning_rate"):
        fitted(loss="regression", optimizer="sgd", learning_rate=1e6)


# ---- probability -----------------------------------------------------------------------------------------------------


def test_nobody_elses_random_numbers_or_threads_are_touched():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    fitted(list_size=5)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_seeds_decide_everything():
    X = COLUMNS[0]
    one, same, other = fitted(list_size=5), fitted(list_size=5), fitted(list_size=5, random_state=1)
    np.testing.assert_array_equal(one.predict(X), same.predict(X))
    assert not np.array_equal(one.predict(X), other.predict(X))


# ---- checkpoints -----------------------------------------------------------------------------------------------------


class KilledError(Exception):
    """Stands for whatever ends a process."""


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("when", [1, 4])
def test_a_resumed_training_ends_with_the_same_model(tmp_path, optimizer, when, monkeypatch):
    options = {"optimizer": optimizer, "list_size": 7, "weight_decay": 1e-3}
    whole = fitted(**options)
    from rankbound.checkpoints import Checkpoints

    save = Checkpoints.save

    def dying(self, epoch, arrays, metadata):
        save(self, epoch, arrays, metadata)
        if epoch == when:
            raise KilledError

    monkeypatch.setattr(Checkpoints, "save", dying)
    with pytest.raises(KilledError):
        fitted(checkpoint=tmp_path / "state", **options)
    monkeypatch.undo()
    resumed = fitted(checkpoint=tmp_path / "state", **options)
    assert resumed.history_ == whole.history_
    assert resumed.kept_epoch_ == whole.kept_epoch_
    for name, array in whole._fitted_state().arrays.items():
        np.testing.assert_array_equal(resumed._fitted_state().arrays[name], array)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["epoch-000006"]


def test_a_finished_training_is_not_repeated_and_more_epochs_lengthen_it(tmp_path):
    fitted(epochs=3, checkpoint=tmp_path)
    longer = fitted(epochs=6, checkpoint=tmp_path)
    again = fitted(epochs=6, checkpoint=tmp_path)
    assert longer.history_ == again.history_ == fitted().history_
    with pytest.raises(DataError, match="has 6 epochs already, more than epochs=3"):
        fitted(epochs=3, checkpoint=tmp_path)


def test_the_checkpoint_of_another_training_is_refused_with_the_difference(tmp_path):
    fitted(checkpoint=tmp_path)
    X, y, qid = COLUMNS
    with pytest.raises(DataError, match="another training run, which differs in parameters;"):
        fitted(checkpoint=tmp_path, loss="nDCG", bounding="min-max")
    with pytest.raises(DataError, match="another training run, which differs in data;"):
        ranker(checkpoint=tmp_path).fit(X * 2 + y[:, None], y, qid=qid, eval_set=EVAL)
    with pytest.raises(DataError, match="another training run, which differs in eval_set;"):
        fitted(checkpoint=tmp_path, eval_set=COLUMNS)
    with pytest.raises(DataError, match="learning_rate"):
        fitted(checkpoint=tmp_path, learning_rate=0.5)


def test_damaged_checkpoints_and_files_in_the_way_are_named(tmp_path):
    fitted(checkpoint=tmp_path / "state")
    arrays = tmp_path / "state" / "epoch-000006" / "state.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"\xff")
    with pytest.raises(DataError, match="this checkpoint cannot be read: its SHA-256"):
        fitted(checkpoint=tmp_path / "state")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file, expected a folder"):
        fitted(checkpoint=tmp_path / "file")


SCRIPT = """
import sys
from rankbound.data.synthetic import synthetic_letor
from rankbound.models import MLPRanker
data = synthetic_letor(queries=60, features=8, seed=2, documents=(4, 30))
MLPRanker(hidden=(8,), epochs=EPOCHS, batch_size=4, checkpoint=sys.argv[1]).fit(
    data.features, data.lists.labels, qid=data.lists.query_of_item
).save(sys.argv[2])
"""


@pytest.mark.slow  # tests/faults/test_kills.py does the same with the command
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_kill_in_mid_training_and_resume_gives_the_same_files_as_an_uninterrupted_run(tmp_path):
    def command(name):
        return [sys.executable, "-c", SCRIPT.replace("EPOCHS", "40"), tmp_path / "checkpoints", tmp_path / name]

    kill_when(command("killed"), lambda: list(tmp_path.glob("checkpoints/epoch-*")))
    assert not (tmp_path / "killed").exists()
    assert last_epoch(tmp_path / "checkpoints") < 40
    finish(command("resumed"), tmp_path)
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    finish(command("whole"), tmp_path)
    weights = [(Path(tmp_path) / name / "weights.safetensors").read_bytes() for name in ("resumed", "whole")]
    assert weights[0] == weights[1]


# ---- the loop by itself ----------------------------------------------------------------------------------------------


def test_the_loop_trains_any_torch_module(tmp_path):
    network = torch.nn.Sequential(torch.nn.Linear(8, 1), torch.nn.Flatten(0))
    examples = Examples(DATA.features, DATA.lists.labels, DATA.lists.offsets)
    done = train(
        network, examples, NDCGLoss(), Settings(epochs=5, learning_rate=0.05), torch.Generator().manual_seed(0)
    )
    losses = [row["loss"] for row in done.history]
    assert losses[-1] < losses[0] < 0
    assert not network.training
