"""Two processes of torchrun give the losses, gradients and models of one, and each resumes what the other began."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound.checkpoints import Checkpoints
from rankbound.errors import ArgumentError, DataError
from rankbound.losses import NDCGLoss
from rankbound.parallel.processes import Workers, _current, current_workers, workers
from tests.distributed.all_losses import values_and_gradients
from tests.distributed.all_models import MODELS, fitted

pytestmark = pytest.mark.full("starts Dask and torchrun")

ROOT = Path(__file__).parents[2]


def environment(**more):
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "RANKBOUND_THREADS": "1"} | more


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What one process fits in 2 epochs; what two compute; and what one resumes from the checkpoints of two."""
    folder = tmp_path_factory.mktemp("fits")
    fitted(folder / "one", 1)
    alone = {"losses of one": values_and_gradients(), "expected": fitted(folder / "alone", 2)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, "-m", "tests.distributed.program", str(folder)],
        capture_output=True, text=True, check=False, timeout=600, env=environment(), cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["workers"] == 2
    return found | alone | {"back": fitted(folder / "two", 2)}


def test_two_processes_give_what_one_gives(results):
    """A single test, because what all of these compare takes long to compute."""
    losses, expected = results["losses"], results["losses of one"]
    assert list(losses) == list(expected)
    assert len(losses) > 400
    for name, values in expected.items():  # value and gradient behind DistributedDataParallel
        np.testing.assert_allclose(losses[name], values, rtol=0, atol=1e-9 * max(1, *np.abs(values)), err_msg=name)
    for name in MODELS:
        two_processes_fit_the_model_of_one(results, name)
        for which in ("resumed", "back"):
            a_fit_resumes_with_another_number_of_workers(results, name, which)


def two_processes_fit_the_model_of_one(results, name):
    expected, found = results["expected"][name]["history"][:1], results["two"][name]["history"]
    assert len(found) == 1, name
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, rel=1e-5), name


def a_fit_resumes_with_another_number_of_workers(results, name, which):
    """From one to two processes and from two to one: history, scores and measure are those without an interruption."""
    expected, found = results["expected"][name], results[which][name]
    assert [row["epoch"] for row in found["history"]] == [1, 2], (name, which)
    assert found["measure"] == pytest.approx(expected["measure"], abs=1e-6), (name, which)
    size = max(1.0, np.abs(expected["scores"]).max())
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=0, atol=1e-4 * size, err_msg=name)


def test_parts_of_workers_are_disjoint_and_complete():
    rng = np.random.default_rng(0)
    for _ in range(200):
        work, size = rng.integers(0, 20, rng.integers(0, 12)), int(rng.integers(1, 6))
        parts = [Workers(rank, size).part(work) for rank in range(size)]
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(len(work)))


def test_equal_work_is_distributed_evenly():
    assert [Workers(rank, 3).part(np.ones(9)) for rank in range(3)] == [slice(0, 3), slice(3, 6), slice(6, 9)]


def test_without_torchrun_there_is_one_worker(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with workers() as group:
        assert (group.rank, group.size, group.is_first, current_workers()) == (0, 1, True, None)


def test_modules_refuse_what_cannot_be_reduced():
    with pytest.raises(ArgumentError, match=r"process_group must be a group of torch.distributed.*got str"):
        NDCGLoss().as_module("world")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ArgumentError, match="process_group requires a loss with reduction 'mean' or 'sum'"):
            NDCGLoss(reduction="none").as_module(torch.distributed.group.WORLD)
    finally:
        torch.distributed.destroy_process_group()


def test_a_checkpoint_folder_that_workers_do_not_share_is_refused(tmp_path, monkeypatch):
    class Two(Workers):
        def gather(self, array):
            return [array, array + 3]

    token = _current.set(Two(0, 2))
    try:
        with pytest.raises(DataError, match="must be a folder that all workers share, but they see the epochs 0, 3"):
            Checkpoints(tmp_path, {}).load()
    finally:
        _current.reset(token)


def test_a_lost_connection_is_one_clear_error(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(DataError, match="the connection to another worker was lost"), workers():
            raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")
        with pytest.raises(RuntimeError, match="something else"), workers():
            raise RuntimeError("something else")
    finally:
        torch.distributed.destroy_process_group()
