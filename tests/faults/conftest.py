"""Fixtures for faults: commands that can be killed, a small disk, a process without the powers of root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rankbound.cli.main import run

COMMAND = [sys.executable, "-c", "import sys; from rankbound.cli.main import run; sys.exit(run())"]
LONG = 120  # seconds: waiting ends when its condition is true, this is for a machine that is very busy


@pytest.fixture
def start():
    """Start a process with pipes for its streams; none outlives its test."""
    begun = []

    def begin(*command: object, **options):
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        begun.append(subprocess.Popen([str(word) for word in command], **(streams | options)))
        return begun[-1]

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        process.wait(LONG)


@pytest.fixture
def python(start):
    """Run a piece of Python in a process of its own and give what it printed; it must end well."""

    def call(code: str, *arguments: object, before: list[str] | None = None, **options) -> str:
        process = start(*(before or []), sys.executable, "-c", code, *arguments, **options)
        out, err = process.communicate(timeout=LONG)
        assert process.returncode == 0, err.decode()
        return out.decode()

    return call


@pytest.fixture
def rankbound(start):
    """Run a command to its end: exit code, stdout, stderr. No traceback, whatever happens."""

    def call(*arguments: object, before: list[str] | None = None, **options) -> tuple[int, str, str]:
        process = start(*(before or []), *COMMAND, *arguments, **options)
        out, err = process.communicate(timeout=LONG)
        texts = [(text or b"").decode(errors="replace") for text in (out, err)]
        assert "Traceback" not in texts[1], texts[1]
        return process.returncode, *texts

    return call


@pytest.fixture
def rankbound_here(capsys):
    """The same in this process."""

    def call(*arguments: object) -> tuple[int, str, str]:
        return run([str(argument) for argument in arguments]), *capsys.readouterr()

    return call


def wait_for(true):
    """Wait until a condition holds."""
    end = time.monotonic() + LONG
    while not (result := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return result


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with qrels and run: 200 queries of ten documents."""
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 3, (200, 10)), rng.random((200, 10))
    with (tmp_path / "qrels").open("w") as qrels, (tmp_path / "run").open("w") as run:
        for q in range(200):
            for d in range(10):
                qrels.write(f"q{q} 0 d{d} {labels[q, d]}\n")
                run.write(f"q{q} Q0 d{d} {d + 1} {scores[q, d]:.6f} t\n")
    return tmp_path


@pytest.fixture
def letor(tmp_path: Path) -> Path:
    """A small file of queries with features."""
    lines = [f"{(q + d) % 3} qid:{q} 1:{d / 7:.4f} 2:{q * d % 5}" for q in range(12) for d in range(6)]
    path = tmp_path / "letor.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def small_disk(tmp_path: Path):
    """Mount a disk of which only ``free`` bytes are free; a tmpfs, which needs the right to mount."""
    mounted = []

    def make(free: int, size: int = 1 << 20) -> Path:
        disk = tmp_path / f"disk{len(mounted)}"
        disk.mkdir()
        mount = shutil.which("mount")
        command = [str(mount), "-t", "tmpfs", "-o", f"size={size}", "rankbound-test", str(disk)]
        if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("a small disk needs the right to mount a tmpfs")
        mounted.append(disk)
        (disk / "filler").write_bytes(bytes(size - free))
        return disk

    yield make
    for disk in mounted:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def powerless() -> list[str]:
    """The prefix of a command that obeys permissions: root gives up its powers."""
    if os.name == "nt":
        pytest.skip("permissions of POSIX")
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root obeys permissions only without its powers, which setpriv takes away")
    return ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]


@pytest.fixture
def read_only():
    """Make folders and their content read-only until the test ends."""
    changed = []

    def forbid(folder: Path) -> Path:
        for path in (folder, *folder.rglob("*")):
            changed.append((path, path.stat().st_mode))
            path.chmod(path.stat().st_mode & ~0o222)
        return folder

    yield forbid
    for path, mode in changed:
        path.chmod(mode)
