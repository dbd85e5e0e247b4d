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
from tests.tiers import some

from . import command_inputs as inputs

SAMPLE = random.Random(22).sample(list(inputs.cases()), 5)
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


@pytest.mark.cases(len(inputs.COMMANDS))
@pytest.mark.parametrize("command", inputs.COMMANDS)
def test_wrong_values_are_refused(
    command: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wrong value of every option; the message of a failure lists all that were not refused as they should."""
    monkeypatch.chdir(folder)
    before, failures = state(folder), []
    for option, value in some(list(inputs.wrong_values(command)), 2):
        code = run(inputs.command_line(command, option, value))
        try:
            assert_refused(code, *capfd.readouterr())
            assert state(folder) == before
        except AssertionError as error:
            failures.append(f"{option} {value[:20]!r}: {error}")
    assert not failures, "\n".join(failures)


@pytest.mark.full("starts processes")
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
