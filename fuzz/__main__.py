"""Fuzz readers and parsers, each in a process of its own, for a number of seconds of CPU time.

Prints a table and exits with 1 if there are findings, or if a target did not run for its time. Inputs that fail are
stored in fuzz/crashes; ``--again FILE`` runs one of them again, in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fuzz.targets import TARGETS, tried
from fuzz.worker import State, keep

HANG = 10.0  # CPU seconds for one input
_MAX_SLEEP = 60.0  # seconds without any CPU time
_RESTARTS = 20
_ONE_THREAD = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "RANKBOUND_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")


@dataclass
class Outcome:
    """The result of fuzzing one target."""

    target: str
    runs: int = 0
    seconds: float = 0.0
    coverage: str = "0"
    findings: set[str] = field(default_factory=set)
    is_complete: bool = False  # whether the time was used


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=600, help="CPU time for each target (default: 600)")
    parser.add_argument(
        "--crashes", type=Path, default=Path(__file__).with_name("crashes"), help="folder for inputs that fail"
    )
    parser.add_argument("--again", type=Path, metavar="FILE", help="run this input of TARGET again")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.targets if name not in TARGETS]
    if unknown:
        parser.error(f"unknown target {', '.join(unknown)}; the targets are {', '.join(TARGETS)}")
    if arguments.again is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(tried(TARGETS[arguments.targets[0]], arguments.again.read_bytes(), Path(folder)))
        return 0
    if importlib.util.find_spec("atheris") is None:
        parser.error("the package atheris is missing; `make fuzz` installs it")
    outcomes = [fuzz(name, arguments.seconds, arguments.crashes) for name in arguments.targets or TARGETS]
    table = Table("target", "inputs", "CPU seconds", "branches reached", "findings", title="Fuzzing")
    for outcome in outcomes:
        findings = ", ".join(sorted(outcome.findings)) or ("none" if outcome.is_complete else "ended too early")
        table.add_row(outcome.target, f"{outcome.runs:,}", f"{outcome.seconds:.0f}", outcome.coverage, findings)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return int(any(outcome.findings or not outcome.is_complete for outcome in outcomes))


def fuzz(target: str, seconds: float, crashes: Path) -> Outcome:
    """Run the worker of a target, and restart it if an input ends it, until the time is used."""
    outcome = Outcome(target)
    before = _times(crashes, target)
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast_folder()) as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for _ in range(_RESTARTS):
            spent, runs = outcome.seconds, outcome.runs
            failure = _watch(outcome, seconds - spent, Path(folder), corpus, crashes)
            outcome.seconds, outcome.runs = spent + outcome.seconds, runs + outcome.runs
            now = _times(crashes, target)
            outcome.findings |= {name for name, time in now.items() if before.get(name) != time}
            outcome.is_complete = failure is None
            if failure is None:
                break
            print(f"{target}: {failure}", file=sys.stderr, flush=True)
            if outcome.runs == 0:  # another attempt would end in the same way
                break
    return outcome


def _times(crashes: Path, target: str) -> dict[str, int]:
    """When each finding of a target was last seen: one that was stored by an earlier run counts again."""
    return {file.stem: file.stat().st_mtime_ns for file in crashes.glob(f"{target}-*.txt")}


def _watch(outcome: Outcome, seconds: float, folder: Path, corpus: Path, crashes: Path) -> str | None:
    """Run one worker to its end; return None if it used its time, otherwise what ended it."""
    (folder / "state").touch()
    log = folder / "log"
    environment = os.environ | {"TMPDIR": str(folder), "RANKBOUND_CACHE": str(folder / "cache")}
    environment |= dict.fromkeys(_ONE_THREAD, "1")
    command = [sys.executable, "-m", "fuzz.worker", outcome.target, folder / "state", corpus, crashes, str(seconds)]
    with log.open("wb") as stream:
        worker = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
    state, hung = State(folder / "state"), ""
    last, began, before = -1, 0.0, 0.0  # the current input, CPU time at its start, CPU time at the last check
    active = reported = time.monotonic()
    try:
        while worker.poll() is None:
            time.sleep(0.5)
            runs, data, outcome.seconds = state.read()
            outcome.runs = runs
            cpu, asleep = _cpu(worker.pid)
            if data is None or runs != last:
                last, began = runs, cpu
            if data is None or not asleep or cpu > before:
                active = time.monotonic()
            before = cpu
            if cpu - began > HANG or time.monotonic() - active > _MAX_SLEEP:
                hung = f"an input takes more than {HANG:g} s of CPU time" if cpu - began > HANG else "an input waits"
                worker.kill()
                worker.wait()
            outcome.coverage = _coverage(log, outcome.coverage)
            if time.monotonic() - reported > (1 if sys.stderr.isatty() else 30):
                reported = time.monotonic()
                end = "\r" if sys.stderr.isatty() else "\n"
                text = f"{outcome.target}: {outcome.seconds:.0f} s, {runs:,} inputs, {outcome.coverage} branches   "
                print(text, end=end, file=sys.stderr, flush=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
            worker.wait()
    runs, data, outcome.seconds = state.read()
    outcome.runs, outcome.coverage = runs, _coverage(log, outcome.coverage)
    if worker.returncode == 0:
        return None
    output = log.read_text(errors="replace")
    failure = hung or f"the worker ended with {worker.returncode}"
    where = re.findall(r'File "[^"]*rankbound[^"]*", line \d+', output[-20000:])
    keep(crashes, outcome.target, data or b"", f"{failure}\n{output[-8000:]}", f"{failure} {where[:1]}")
    return failure


def _cpu(process: int) -> tuple[float, bool]:
    """Return the CPU seconds of a process, and whether it sleeps (a stopped process does not)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, False
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] in "SD"


def _coverage(log: Path, before: str) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 4000))
        counts = re.findall(rb"cov: (\d+)", stream.read())
    return counts[-1].decode() if counts else before


def _fast_folder() -> str | None:
    """Return a folder in memory if there is one: inputs are written to files a thousand times a second."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    sys.exit(main())
