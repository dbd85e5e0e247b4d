"""rankbound train --workers: the model of one process, also after a worker was killed; errors as of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rankbound.cli.main import run
from rankbound.cli.train import _without_workers
from tests.distributed.test_workers import ROOT, environment

pytestmark = [  # the launcher of torch leaves files of its logs open
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.full("starts Dask and torchrun"),
]
# the launcher is in this process, which has loaded torch already; the workers are others
OPTIONS = ["--param", "hidden=8", "--param", "learning_rate=0.01", "--json"]


@pytest.fixture
def letor(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    lines = []
    for query in range(60):
        for _ in range(rng.integers(2, 12)):
            x = rng.normal(size=4)
            label = int(np.clip(np.round(x[0] + x[1] * x[2]), 0, 2))
            lines.append(f"{label} qid:{query} " + " ".join(f"{k}:{v:.4f}" for k, v in enumerate(x, 1)) + "\n")
    (tmp_path / "train.txt").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return tmp_path


def workers_of(parent):
    """The processes of torch's launcher that train, by their command lines."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, line = (folder / "status").read_text(), (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if f"\nPPid:\t{parent}\n" in status and b"train.txt" in line:
            found.append(int(folder.name))
    return sorted(found)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="workers are found by /proc")
def test_a_killed_worker_does_not_change_the_model(letor, capfd):
    assert run(["train", "train.txt", *OPTIONS, "--epochs", "40", "-o", "alone"]) == 0
    expected = json.loads(capfd.readouterr().out)

    def kill_the_second():
        end = time.monotonic() + 300
        while not list((letor / "state").glob("epoch-*")) and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(workers_of(os.getpid())[1], signal.SIGKILL)

    killer = threading.Thread(target=kill_the_second)
    killer.start()
    together = [*OPTIONS, "--epochs", "40", "--checkpoint", "state", "--workers", "2", "-o", "together"]
    assert run(["train", "train.txt", *together]) == 0
    killer.join()
    stdout, stderr = capfd.readouterr()
    assert "worker 1 of 2 was killed by SIGKILL; starting again (1 of 3 times)" in stderr
    found = json.loads(stdout)
    assert found["epochs"] == expected["epochs"] == 40
    assert found["mean"]["train"]["nDCG"] == pytest.approx(expected["mean"]["train"]["nDCG"], abs=1e-6)


def test_an_error_of_all_workers_is_printed_once(letor, capfd):
    assert run(["train", "train.txt", "--param", "hidden=-3", "--workers", "2", "-o", "model"]) == 2
    lines = capfd.readouterr().err.splitlines()  # there may be another one on kernels that were compiled
    assert [line for line in lines if "rankbound" in line] == ["rankbound: hidden must be positive integers, got -3"]
    assert not (letor / "model").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train.txt", "--model", "LambdaMART", "--workers", "2"], "several workers can train networks and Matrix"),
        (["-", "--workers", "2"], "several workers need data that each of them can read, got standard input"),
        (["train.txt", "--workers", "0"], "--workers must be from 1 to 1000, got 0"),
    ],
)
def test_what_workers_cannot_do_is_refused(letor, capsys, arguments, message):
    assert run(["train", *arguments, "-o", "model"]) == 2
    assert message in capsys.readouterr().err


def test_the_option_is_not_passed_on_to_the_workers():
    assert _without_workers(["train", "a", "--workers", "2", "-o", "m"]) == ["train", "a", "-o", "m"]
    assert _without_workers(["train", "a", "--workers=2", "-o", "m"]) == ["train", "a", "-o", "m"]


def test_the_package_is_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "rankbound", "--version"],
        capture_output=True, text=True, check=False, env=environment(), cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("rankbound ")
