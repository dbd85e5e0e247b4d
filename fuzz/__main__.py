"""Fuzz readers and parsers: each in a process of its own, for so many seconds of CPU time.

Prints a table and exits with 1 if anything was found. Inputs that were are kept in fuzz/crashes; ``--again FILE`` tries
one of them once more, in this process.
"""

from __future__ import annotations

import argparse
import contextlib
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
_ASLEEP = 60.0  # seconds that it sleeps without any CPU time
_RESTARTS = 20
_ONE_THREAD = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "RANKBOUND_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")


@dataclass
class Outcome:
    """What the search in one target came to."""

    target: str
    runs: int = 0
    seconds: float = 0.0
    coverage: str = "0"
    findings: set[str] = field(default_factory=set)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"which of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=600, help="CPU time for each target (default: 600)")
    parser.add_argument("--crashes", type=Path, default=Path(__file__).with_name("crashes"), help="where inputs go")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try this input of the one TARGET that is named")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.targets if name not in TARGETS]
    if unknown:
        parser.error(f"unknown target {', '.join(unknown)}; the targets are {', '.join(TARGETS)}")
    if arguments.again is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(tried(TARGETS[arguments.targets[0]], arguments.again.read_bytes(), Path(folder)))
        return 0
    outcomes = [fuzz(name, arguments.seconds, arguments.crashes) for name in arguments.targets or TARGETS]
    table = Table("target", "inputs", "CPU seconds", "branches reached", "findings", title="Fuzzing")
    for one in outcomes:
        found = ", ".join(sorted(one.findings)) or "none"
        table.add_row(one.target, f"{one.runs:,}", f"{one.seconds:.0f}", one.coverage, found)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return int(any(one.findings for one in outcomes))


def fuzz(target: str, seconds: float, crashes: Path) -> Outcome:
    """Run a target's worker, anew where an input ends it, until the time is used."""
    outcome = Outcome(target)
    before = {file.name for file in crashes.glob(f"{target}-*.txt")}
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast_place()) as place:
        corpus = Path(place) / "corpus"
        corpus.mkdir()
        for _ in range(_RESTARTS):
            spent, runs = outcome.seconds, outcome.runs
            said = _watched(outcome, seconds - spent, Path(place), corpus, crashes)
            outcome.seconds, outcome.runs = spent + outcome.seconds, runs + outcome.runs
            outcome.findings |= {file.stem for file in crashes.glob(f"{target}-*.txt") if file.name not in before}
            if said is None:
                break
            print(f"{target}: {said}", file=sys.stderr, flush=True)
    return outcome


def _watched(outcome: Outcome, seconds: float, place: Path, corpus: Path, crashes: Path) -> str | None:
    """One worker to its end; None if it used its time, else what ended it."""
    (place / "state").touch()
    log = place / "log"
    environment = os.environ | {"TMPDIR": str(place), "RANKBOUND_CACHE": str(place / "cache")}
    environment |= dict.fromkeys(_ONE_THREAD, "1")
    command = [sys.executable, "-m", "fuzz.worker", outcome.target, place / "state", corpus, crashes, str(seconds)]
    with log.open("wb") as stream:
        worker = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
    state, hung = State(place / "state"), ""
    last, began, before = -1, 0.0, 0.0  # the input at hand, CPU time when it came, CPU time at the last look
    active = told = time.monotonic()
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
            if cpu - began > HANG or time.monotonic() - active > _ASLEEP:
                hung = f"an input takes more than {HANG:g} s of CPU time" if cpu - began > HANG else "an input waits"
                worker.kill()
                worker.wait()
            outcome.coverage = _coverage(log, outcome.coverage)
            if time.monotonic() - told > (1 if sys.stderr.isatty() else 30):
                told = time.monotonic()
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
    said = hung or f"the worker ended with {worker.returncode}"
    where = re.findall(r'File "[^"]*rankbound[^"]*", line \d+', output[-20000:])
    keep(crashes, outcome.target, data or b"", f"{said}\n{output[-8000:]}", f"{said} {where[:1]}")
    return said


def _cpu(process: int) -> tuple[float, bool]:
    """CPU seconds of a process, and whether it sleeps; one that someone has stopped does not."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, False
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] in "SD"


def _coverage(log: Path, before: str) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 4000))
        found = re.findall(rb"cov: (\d+)", stream.read())
    return found[-1].decode() if found else before


def _fast_place() -> str | None:
    return (
        "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    )  # inputs are written to files a thousand times a second


if __name__ == "__main__":
    sys.exit(main())
