"""rankbound export: a saved model as a file for other programs, and what it refuses."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

pytest.importorskip("lightgbm")

import lightgbm

from rankbound.cli.export import Format
from rankbound.data.synthetic import synthetic_letor
from rankbound.models import AdaRank, LambdaMART, LogisticRanker
from rankbound.models.export import FORMATS

DATA = synthetic_letor(queries=12, features=4, seed=2, documents=(4, 9))
X, Y, QID = DATA.features, DATA.lists.labels, DATA.lists.query_of_item


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with saved models."""
    folder = tmp_path_factory.mktemp("models")
    LambdaMART("lambdarank", n_estimators=3, min_child_samples=2).fit(X, Y, qid=QID).save(folder / "trees")
    AdaRank(n_estimators=5).fit(X, Y, qid=QID).save(folder / "linear")
    LogisticRanker().fit(X, Y, qid=QID).save(folder / "logistic")
    return folder


@pytest.fixture
def work(saved, tmp_path, monkeypatch):
    """The working folder, with links to the models."""
    for model in saved.iterdir():
        if model.is_dir():
            (tmp_path / model.name).symlink_to(model)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_formats_of_the_command_are_those_of_python():
    assert [format.value for format in Format] == list(FORMATS)


def test_trees_in_every_format_they_can_have(cli, work):
    (work / "names").write_text("bm25\n\ntitle length\nage\nclicks\n")
    names = ("--feature-names", "names")
    answer = cli("export", "trees", "--format", "xgboost-json", *names, "-o", "new/trees.json", "--json").json
    assert answer == {
        "output": "new/trees.json",
        "model": "LambdaMART",
        "format": "xgboost-json",
        "features": 4,
        "bytes": (work / "new/trees.json").stat().st_size,
    }
    text = (work / "new/trees.json").read_text()
    assert len(json.loads(text)) == 3
    assert '"split": "title length"' in text
    answer = cli("export", "trees", "--format", "lightgbm", "-o", "trees.txt")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "LambdaMART of 4 features written to trees.txt as lightgbm\n"
    expected = LambdaMART("lambdarank", n_estimators=3, min_child_samples=2).fit(X, Y, qid=QID).predict(X)
    np.testing.assert_allclose(lightgbm.Booster(model_file="trees.txt").predict(X), expected, atol=1e-12)
    assert cli("export", "trees", "--format", "ranklib", "-o", "trees.xml").code == 0
    assert (work / "trees.xml").read_text().startswith("## LambdaMART\n")


def test_an_existing_file_is_replaced_as_by_other_commands(cli, work):
    (work / "model.txt").write_text("older")
    assert cli("export", "linear", "--format", "ranklib", "-o", "model.txt").code == 0
    assert (work / "model.txt").read_text().startswith("## Coordinate Ascent\n## Trained as = AdaRank\n1:")


@pytest.mark.full("takes seconds")
def test_onnx_in_a_process_of_its_own(shell, work):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    answer = shell("export", "linear", "--format", "onnx", "-o", "model.onnx", "--json", cwd=work)
    assert (answer.json["format"], answer.err) == ("onnx", "")
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    expected = AdaRank(n_estimators=5).fit(X, Y, qid=QID).predict(X)
    np.testing.assert_allclose(session.run(["score"], {"features": X})[0], expected, rtol=1e-5, atol=1e-5)


REFUSED = [
    ("trees --format onnx -o m", "trees: export_onnx requires a neural or linear ranker, got LambdaMART; this "
     "LambdaMART can be exported as xgboost-json, ranklib, lightgbm"),
    ("linear --format lightgbm -o m", "linear: lightgbm requires a ranker of one LightGBM model, got AdaRank "
     "without any; this AdaRank can be exported as onnx, ranklib"),
    ("logistic --format ranklib -o m", "this LogisticRanker can be exported as none of the formats"),
    ("trees --format pmml -o m", "'pmml' is not one of 'onnx', 'xgboost-json', 'ranklib', 'lightgbm'"),
    ("trees -o m", "--format"),
    ("trees --format ranklib", "-o"),
    ("absent --format onnx -o m", "absent: is not a model folder, model.json cannot be read: No such file"),
    ("empty --format onnx -o m", "empty: is not a model folder"),
    ("damaged --format ranklib -o m", "is damaged, its sha256 differs"),
    ("trees --format ranklib -o empty", "empty: is a folder, expected a file name"),
    ("trees --format ranklib -o short/m", "short/m: cannot be written"),
    ("trees --format xgboost-json --feature-names short -o m", "feature_names must have 4 different entries, got 1"),
    ("trees --format xgboost-json --feature-names absent -o m", "absent: cannot be read: No such file"),
    ("trees --format xgboost-json --feature-names binary -o m", "binary: text must be UTF-8, got byte 0xff"),
    ("trees --format ranklib --feature-names names -o m", "feature_names must be None unless format is xgboost-json"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_bad_input_is_refused_and_nothing_is_written(cli, work, arguments, message):
    (work / "empty").mkdir()
    (work / "short").write_text("bm25\n")
    (work / "names").write_text("a\nb\nc\nd\n")
    (work / "binary").write_bytes(b"a\n\xff\n")
    LambdaMART("lambdarank", n_estimators=1, min_child_samples=2).fit(X, Y, qid=QID).save(work / "damaged")
    with (work / "damaged" / "trees.txt").open("a") as file:
        file.write(" ")
    before = sorted(work.rglob("*"))
    answer = cli("export", *arguments.split())
    assert (answer.code, answer.out) == (2, ""), answer
    assert answer.err.startswith("rankbound: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert sorted(work.rglob("*")) == before


def test_without_onnx_the_error_names_the_extra(cli, work, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr("rankbound.packages.find_missing", lambda *modules: [m for m in modules if m == "onnx"])
    answer = cli("export", "linear", "--format", "onnx", "-o", "model.onnx")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert 'export_onnx needs onnx: pip install ".[onnx]" in a checkout of rankbound, or pip install onnx' in answer.err
    assert not (work / "model.onnx").exists()
