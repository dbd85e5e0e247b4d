"""Small TREC files, and ways to call the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from rankbound.cli.main import run

QRELS = "q1 0 a 2\nq1 0 b 0\nq1 0 c 1\nq2 0 a 0\nq2 0 b 1\nq3 0 a 0\nq4 0 a 1\n"
RUN = "q1 Q0 b 1 3.0 t\nq1 Q0 a 2 2.0 t\nq1 Q0 c 3 1 t\nq2 Q0 b 1 2 t\nq2 Q0 a 2 1 t\nq3 Q0 a 1 1 t\nq9 Q0 a 1 1 t\n"
OTHER = "q1 Q0 a 1 3.0 u\nq1 Q0 c 2 2.0 u\nq2 Q0 a 1 2.0 u\nq2 Q0 b 2 1.0 u\nq3 Q0 a 1 1.0 u\n"


class Answer(NamedTuple):
    """What a command gave back."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one object on stdout."""
        assert self.code == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """A folder with qrels, run and other, which is the working folder."""
    for name, text in (("qrels", QRELS), ("run", RUN), ("other", OTHER)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(capsys):
    """Call the command line in this process."""

    def call(*arguments: object) -> Answer:
        code = run([str(argument) for argument in arguments])
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def shell():
    """Call the installed command in a process of its own."""

    def call(*arguments: object, stdin: bytes = b"", cwd: Path | None = None) -> Answer:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from rankbound.cli.main import run; sys.exit(run())",
                *map(str, arguments),
            ],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            timeout=60,
            env=os.environ | {"PYTHONWARNINGS": "error"},
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def long_lists(tmp_path, monkeypatch):
    """Judgments of 12 queries with 3 of 20 documents relevant; a run that ranks them first, and one with all tied."""
    monkeypatch.chdir(tmp_path)
    queries, documents = range(12), range(20)
    lines = {
        "qrels": [f"q{q} 0 d{d} {int(d < 3)}" for q in queries for d in documents],
        "good": [f"q{q} Q0 d{d} {d + 1} {20 - d} good" for q in queries for d in documents],
        "tied": [f"q{q} Q0 d{d} {d + 1} 1 tied" for q in queries for d in documents],
    }
    for name, text in lines.items():
        (tmp_path / name).write_text("\n".join(text) + "\n")
    return tmp_path
