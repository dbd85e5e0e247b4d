"""Start processes and end them with SIGKILL, which no process can handle."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

COMMAND = [sys.executable, "-c", "import sys; from rankbound.cli.main import run; sys.exit(run())"]
LONG = 120.0  # seconds; waiting ends earlier, when its condition is true


def kill_when(
    command: Sequence[object], condition: Callable[[], object], pause: float = 0.0, cwd: Path | None = None
) -> None:
    """Run a command until a condition holds and ``pause`` seconds are over; it must not end before."""
    process = subprocess.Popen([str(word) for word in command], cwd=cwd)
    try:
        deadline = time.monotonic() + LONG
        while not condition():
            assert process.poll() is None, "the process ended before it was killed"
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)
        time.sleep(pause)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL


def last_epoch(folder: Path) -> int:
    """The last step in a folder of checkpoints."""
    return int(max(folder.glob("epoch-*")).name.removeprefix("epoch-"))


def kill_after(command: Sequence[object], seconds: float, cwd: Path) -> bool:
    """Run a command for a time, then kill it; return whether it was still running."""
    process = subprocess.Popen(
        [str(word) for word in command], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def finish(command: Sequence[object], cwd: Path) -> float:
    """Run a command to its end, which must be a success; return the seconds that it took."""
    start = time.monotonic()
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - start
