"""Model folders: whole or not at all, and refused when damaged."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rankbound.errors import ArgumentError, DataError
from rankbound.losses import NDCGLoss
from rankbound.measures import parse_measure
from rankbound.models import (
    AdaRank,
    LambdaMART,
    LinearRanker,
    RandomForestRanker,
    RankBoost,
    Ranker,
    RegressionRanker,
    load_ranker,
)
from rankbound.models.export import export_ranker

X = np.random.default_rng(0).random((60, 4))
Y = (X[:, 0] + 0.3 * X[:, 1] > 0.7).astype(int)
QID = np.repeat(np.arange(6), 10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    AdaRank().fit(X, Y, qid=QID).save(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, **changes: Any) -> None:
    """Change the index as someone would who also makes its checksum fit."""
    index = json.loads((folder / "model.json").read_text()) | changes
    del index["sha256"]
    index["sha256"] = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(index))


def test_the_folder_holds_json_safetensors_and_lightgbm_text(folder: Path, tmp_path: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == ["model.json", "weights.safetensors"]
    index = json.loads((folder / "model.json").read_text())
    assert (index["class"], index["format_version"], index["n_features_in"]) == ("AdaRank", 1, 4)
    LambdaMART(n_estimators=2, min_child_samples=1).fit(X, Y, qid=QID).save(tmp_path / "trees")
    assert (tmp_path / "trees" / "trees.txt").read_text().startswith("tree\nversion=v4")
    forest = RandomForestRanker("classification", n_estimators=2, min_child_samples=1)
    forest.fit(X, Y + (X[:, 2] > 0.5), qid=QID).save(tmp_path / "forest")
    names = sorted(file.name for file in (tmp_path / "forest").iterdir())
    assert names == ["model.json", "trees_1.txt", "trees_2.txt", "weights.safetensors"]


@pytest.mark.parametrize(
    "ranker",
    [
        AdaRank(parse_measure("UL2(nDCG(dcg='exp-log2')@5)")),
        LambdaMART(NDCGLoss(bounding="min-max", k=3), n_estimators=2, min_child_samples=np.int64(1)),
        RegressionRanker("forest", options={"n_estimators": 2, "min_child_samples": 1}),
    ],
    ids=["measure", "loss", "options"],
)
def test_parameters_that_are_objects_are_restored(ranker: Ranker, tmp_path: Path) -> None:
    ranker.fit(X, Y, qid=QID).save(tmp_path / "model")
    loaded = load_ranker(tmp_path / "model")
    assert loaded.get_params() == ranker.get_params()
    np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))
    assert loaded.fit(X, Y, qid=QID).score(X, Y, QID) == ranker.score(X, Y, QID)


def test_a_parameter_that_is_no_plain_value_is_refused(tmp_path: Path) -> None:
    ranker = AdaRank(tolerance=0.0).fit(X, Y, qid=QID)
    for value in (np.random.default_rng(0), float("inf")):
        ranker.tolerance = value
        with pytest.raises(ArgumentError, match="tolerance="):
            ranker.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_only_our_own_classes_are_saved_and_only_model_folders_replaced(folder: Path, tmp_path: Path) -> None:
    class MyRank(AdaRank):
        pass

    with pytest.raises(ArgumentError, match="only the rankers of rankbound"):
        MyRank().fit(X, Y, qid=QID).save(tmp_path / "mine")
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("do not delete")
    with pytest.raises(ArgumentError, match="is not a model folder"):
        AdaRank().fit(X, Y, qid=QID).save(precious)
    assert (precious / "thesis.tex").exists()
    AdaRank(n_estimators=3).fit(X, Y, qid=QID).save(folder)
    assert load_ranker(folder).n_estimators == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "precious"]


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a model folder"):
        load_ranker(tmp_path / "nowhere")
    (tmp_path / "model.json").write_text("[]")
    with pytest.raises(DataError, match="is not the index of a rankbound model"):
        load_ranker(tmp_path)


@pytest.mark.parametrize("file", ["model.json", "weights.safetensors"])
def test_any_changed_missing_or_cut_byte_is_noticed(folder: Path, file: str) -> None:
    whole = (folder / file).read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.choice(len(whole), 40, replace=False):
        changed = bytearray(whole)
        changed[at] ^= 1 << int(rng.integers(8))
        try:
            same = file == "model.json" and json.loads(changed) == json.loads(whole)  # white space became other space
        except ValueError:
            same = False
        (folder / file).write_bytes(changed)
        if not same:
            with pytest.raises(DataError):
                load_ranker(folder)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        (folder / file).write_bytes(whole[:length])
        with pytest.raises(DataError, match="damaged"):
            load_ranker(folder)
    (folder / file).unlink()
    with pytest.raises(DataError, match="cannot be read"):
        load_ranker(folder)


def test_a_newer_format_an_unknown_class_and_foreign_files_are_refused(folder: Path) -> None:
    index = json.loads((folder / "model.json").read_text())
    for changes, message in (
        ({"format_version": 2}, "has format version 2 of rankbound"),
        ({"class": "Popen"}, "class must be one of .* got 'Popen'"),
        ({"params": index["params"] | {"depth": 3}}, "cannot be loaded as AdaRank by rankbound"),
        ({"params": {"measure": {"object": ["os", "system"], "options": {}}}}, "must be a loss or a measure"),
        ({"params": {"measure": {"object": ["rankbound.losses", "torch"], "options": {}}}}, "has no 'torch'"),
        ({"files": {"../../secret": "0"}}, "file names must be plain and have no folder"),
        ({"files": {}}, "cannot be loaded as AdaRank"),
    ):
        rewrite(folder, **(index | changes))
        with pytest.raises(DataError, match=message):
            load_ranker(folder)


# ---- kill ------------------------------------------------------------------------------------------------------------

KILLED = """
import itertools, os, sys
from pathlib import Path
import numpy as np
from rankbound.models import AdaRank, load_ranker

target = Path(sys.argv[1]) / "model"
rng = np.random.default_rng(0)
X, y = rng.random((30, 3)), np.tile([0, 1, 0], 10)
old, new = AdaRank(n_estimators=1).fit(X, y), AdaRank(n_estimators=2).fit(X, y)
old.save(target)
calls = ("mkdir", "open", "rename")

def dying_at(step):
    counter = itertools.count()
    for name in calls:
        whole = getattr(Path, name)
        def counted(*args, _whole=whole, **kwargs):
            if next(counter) == step:
                os._exit(9)
            return _whole(*args, **kwargs)
        setattr(Path, name, counted)
    fsync = os.fsync
    def counted_fsync(descriptor):
        if next(counter) == step:
            os._exit(9)
        fsync(descriptor)
    os.fsync = counted_fsync

for step in range(100):
    child = os.fork()
    if child == 0:
        dying_at(step)
        new.save(target)
        os._exit(0)
    died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    found = load_ranker(target).n_estimators
    print(step, died, found, sep=",")
    if not died:
        break
    old.save(target)
    assert load_ranker(target).n_estimators == 1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_step_of_a_save_leaves_a_whole_model(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True, check=True)
    steps = [line.split(",") for line in done.stdout.split()]
    assert len(steps) > 8
    assert [died for _, died, _ in steps[:-1]] == ["True"] * (len(steps) - 1)
    found = [n_estimators for _, _, n_estimators in steps]
    assert steps[-1][1:] == ["False", "2"]
    assert found == sorted(found)  # the old one up to a point, the new one from there on
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("kind", ["int8", "float16", "uint64"])
def test_arrays_of_types_that_no_model_saves_are_refused(folder: Path, kind: str) -> None:
    resave(folder, {name: array.astype(kind) for name, array in load_file(folder / "weights.safetensors").items()})
    with pytest.raises(DataError, match=rf"weights\.safetensors: .* must be of bool, float32, float64, .*, got {kind}"):
        load_ranker(folder)


def test_models_whose_parts_do_not_fit_are_not_exported(tmp_path: Path) -> None:
    """They can be loaded and may even score, because whoever changed them made the checksum fit."""
    RankBoost(n_estimators=3).fit(X, Y, qid=QID).save(tmp_path / "model")
    arrays = load_file(tmp_path / "model" / "weights.safetensors")
    resave(tmp_path / "model", arrays | {"columns": arrays["columns"][:0]})
    with pytest.raises(DataError):
        export_ranker(load_ranker(tmp_path / "model"), tmp_path / "out", "ranklib")
    assert not (tmp_path / "out").exists()


def resave(folder: Path, arrays: Mapping[str, Any]) -> None:
    """Replace the arrays of a model, and sign it anew."""
    save_file(dict(arrays), folder / "weights.safetensors")
    digest = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
    rewrite(folder, files={"weights.safetensors": digest})


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "..", "../model.json", "", "a/b", "\u2028", "x" * 10_000])
def test_names_of_files_are_plain(folder: Path, name: str) -> None:
    rewrite(folder, files={name: "0"})
    with pytest.raises(DataError, match=r"model\.json: file names must be plain|cannot be read: File name too long"):
        load_ranker(folder)


def test_a_path_among_the_parameters_comes_back_as_text(tmp_path: Path) -> None:
    ranker = LinearRanker(epochs=2, checkpoint=tmp_path / "steps").fit(X, Y, qid=QID)
    ranker.save(tmp_path / "model")
    loaded = load_ranker(tmp_path / "model")
    assert loaded.monitoring.checkpoint == str(tmp_path / "steps")
    np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))
