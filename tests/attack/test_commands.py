"""Every option of every command with wrong values: one line, code 2, nothing written. A sample in real processes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rankbound.cli.main import run
from rankbound.models import AdaRank, Popularity

from . import command_inputs as inputs

CASES = list(inputs.cases())
SAMPLE = random.Random(22).sample(CASES, 5)
COMMAND = [sys.executable, "-c", "import sys; from rankbound.cli.main import run; sys.exit(run())"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the commands, a saved recommender and a saved ranker."""
    from rankbound.data import read_letor

    folder = tmp_path_factory.mktemp("attack")
    inputs.write_files(folder)
    Popularity().fit(folder / "ratings.csv").save(folder / "popular")
    data = read_letor(folder / "letor.txt")
    AdaRank(n_estimators=2).fit(data.features, data.lists.labels, qid=data.lists.query_of_item).save(folder / "linear")
    return folder


def state(folder: Path) -> dict[str, int]:
    """Every file and its size."""
    return {str(path): path.stat().st_size if path.is_file() else -1 for path in folder.rglob("*")}


def assert_refused(code: int, out: str, err: str) -> None:
    lines = [line for line in err.splitlines() if "kernels were compiled" not in line]
    assert (code, out, len(lines)) == (2, "", 1), (code, out, err)
    assert lines[0].startswith("rankbound: ")
    assert lines[0].isprintable()
    assert len(lines[0]) > len("rankbound: ") + 10


@pytest.mark.parametrize(
    ("command", "option", "kind", "value"), CASES, ids=[f"{c} {o} {v[:20]!r}" for c, o, _, v in CASES]
)
def test_wrong_values_are_refused(
    command: str, option: str, kind: str, value: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.chdir(folder)
    before = state(folder)
    code = run(inputs.command_line(command, option, value))
    out, err = capfd.readouterr()
    assert_refused(code, out, err)
    assert state(folder) == before


@pytest.mark.parametrize(
    ("command", "option", "kind", "value"), SAMPLE, ids=[f"{c} {o} {v[:20]!r}" for c, o, _, v in SAMPLE]
)
def test_in_processes_of_their_own(command: str, option: str, kind: str, value: str, folder: Path) -> None:
    before = state(folder)
    words = inputs.command_line(command, option, value)
    environment = os.environ | {"PYTHONWARNINGS": "error"}
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, cwd=folder, timeout=120, env=environment)
    assert_refused(done.returncode, done.stdout, done.stderr)
    assert state(folder) == before
