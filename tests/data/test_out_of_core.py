"""Files whose features are larger than the memory that a process may use."""

from __future__ import annotations

import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

from rankbound.data import loading
from rankbound.data.growing_table import GrowingTable
from rankbound.data.letor import read_letor, read_mapped_letor
from rankbound.models import MLPRanker
from rankbound.models.rankers import neural, weighted_features

pytestmark = pytest.mark.full("trains with little memory")

TEXT = "2 qid:1 1:0.5 3:1 # a\n0 qid:1 2:0.25 # b\n1 qid:2 1:3 # c\n0 qid:1 5:7 # d\n1 qid:2 1:-1 # e\n"


@pytest.mark.parametrize("order", [None, np.array([3, 0, 2, 1, 4])])
def test_a_file_grows_like_a_table(tmp_path, order):
    rng = np.random.default_rng(0)
    table, file = GrowingTable(np.float32), GrowingTable(np.float32, tmp_path)
    for shape in ((2, 3), (1, 5), (2, 1)):
        block = rng.normal(size=shape)
        table.append(block)
        file.append(block)
    np.testing.assert_array_equal(file.finish(order), table.finish(order))
    assert list(tmp_path.iterdir()) == []


def test_mapped_features_are_those_in_memory(tmp_path):
    (tmp_path / "data.txt").write_text(TEXT)
    expected, found = read_letor(tmp_path / "data.txt"), read_mapped_letor(tmp_path / "data.txt", tmp_path)
    np.testing.assert_array_equal(found.features, expected.features)
    np.testing.assert_array_equal(found.lists.labels, expected.lists.labels)
    assert (found.lists.ids.tolist(), found.notes) == (expected.lists.ids.tolist(), expected.notes)
    assert isinstance(found.features.base, np.memmap) or isinstance(found.features, np.memmap)


def test_large_files_come_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "data.txt"
    file.write_text(TEXT)
    expected = read_letor(file)
    with mock.patch.object(loading, "_LARGE_FILE", 1):
        first = loading.read_letor_file(str(file))
        with mock.patch.object(loading, "read_mapped_letor", side_effect=AssertionError):
            second = loading.read_letor_file(str(file))
    for found in (first, second):
        np.testing.assert_array_equal(found.features, expected.features)
    assert not (tmp_path / "other").exists()
    assert loading.read_letor_file(str(file)).notes == expected.notes  # a small file


def lists(seed=0, count=40):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, count)
    X = rng.normal(size=(sizes.sum(), 5)).astype(np.float32)
    X[:, 1] = np.exp(3 * X[:, 1])  # a heavy tail
    return X, np.clip(np.round(X[:, 0] + rng.normal(size=len(X)) / 2), 0, 2).astype(int), np.repeat(range(count), sizes)


@pytest.mark.parametrize("attention", [0, 1])
def test_blocks_do_not_change_a_network(monkeypatch, attention):
    """Statistics, inputs and scores of blocks of rows are those of all rows, up to rounding."""
    (X, y, qid), (X2, y2, qid2) = lists(), lists(1)
    options = {"hidden": (4,), "epochs": 2, "attention_blocks": attention, "attention_heads": 2}
    expected = MLPRanker(**options).fit(X, y, qid=qid, eval_set=(X2, y2, qid2))
    for module in (weighted_features, neural):
        monkeypatch.setattr(module, "BLOCK_VALUES", 60)
    found = MLPRanker(**options).fit(X, y, qid=qid, eval_set=(X2, y2, qid2))
    assert found.log_features_.tolist() == expected.log_features_.tolist() == [False, True, False, False, False]
    np.testing.assert_allclose(found.mean_, expected.mean_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.scale_, expected.scale_, rtol=1e-12)
    np.testing.assert_allclose(found.predict(X2, qid=qid2), expected.predict(X2, qid=qid2), rtol=1e-4, atol=1e-5)


def test_checkpoints_do_not_depend_on_blocks(monkeypatch, tmp_path):
    X, y, qid = lists()
    options = {"hidden": (4,), "standardize": False, "input_transform": "none", "checkpoint": tmp_path}
    MLPRanker(epochs=1, **options).fit(X, y, qid=qid)
    for module in (weighted_features, neural):
        monkeypatch.setattr(module, "BLOCK_VALUES", 60)
    assert len(MLPRanker(epochs=2, **options).fit(X, y, qid=qid).history_) == 2


PROGRAM = """
import pathlib, resource, sys
from rankbound.cli.main import run
from rankbound.data import array_cache, loading
from rankbound.models.rankers import neural
from rankbound.models.rankers import weighted_features
array_cache.cache_folder = loading.cache_folder = lambda name: pathlib.Path("cache", sys.argv[1], name)
loading._LARGE_FILE = 1
if sys.argv[1] == "limited":
    neural.BLOCK_VALUES = weighted_features.BLOCK_VALUES = 1 << 19
else:
    loading._LARGE_FILE = 1 << 60
models = (["MLPRanker", "--epochs", "1", "--param", "hidden=4"], ["LambdaMART", "--param", "n_estimators=2"])
for model in models:
    assert run(["train", "small.txt", "--model", *model, "-o", "small-model"]) == 0  # loads kernels and threads
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + (100 << 20),) * 2)
print([run(["train", "large.txt", "--model", *model, "-o", "model", "--json"]) for model in models])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small file, and one of 100,000 rows with 500 features, most of them 0."""
    path = tmp_path_factory.mktemp("letor")
    rng = np.random.default_rng(0)
    for name, count in (("small", 200), ("large", 100_000)):
        columns = rng.integers(1, 500, (count, 3))
        with (path / f"{name}.txt").open("w") as stream:
            for row, (a, b, c) in enumerate(columns):
                pairs = " ".join(f"{k}:{1 + row % 7}" for k in sorted({a, b, c}))
                stream.write(f"{int(row % 3 == 0)} qid:{row // 20} {pairs}{' 500:1' if row % 50 == 0 else ''}\n")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mapped private memory on Linux only")
@pytest.mark.parametrize(("kind", "codes"), [("limited", [0, 0]), ("in memory", [2, 2])])
def test_train_with_less_memory_than_features(folder, monkeypatch, kind, codes):
    """Features of 200 MB with 100 MB of private memory; in memory, the same commands fail."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("RANKBOUND_THREADS", "1")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], capture_output=True, text=True, check=False, timeout=600, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(codes), done.stderr
