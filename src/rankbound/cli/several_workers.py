"""Run a command in several processes of this machine by torch's launcher, and again after one of them was killed."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import typer

from rankbound.cli import output
from rankbound.errors import ArgumentError, DataError
from rankbound.packages import needed_by
from rankbound.parallel import cores, threads

_MOST_WORKERS = 1_000
_RESTARTS = 3


def run_in_processes(count: int, arguments: Sequence[str]) -> int:
    """Run ``rankbound`` with these arguments in some processes, as torchrun does; returns the exit code.

    The first process prints. When a process is killed, all are started again, up to three times, and resume from the
    checkpoint if the command has one.
    """
    if not 1 <= count <= _MOST_WORKERS:
        raise ArgumentError(f"--workers must be from 1 to {_MOST_WORKERS}, got {count}")
    command = [sys.executable, "-m", "rankbound", *arguments]
    for restart in range(_RESTARTS + 1):
        with tempfile.TemporaryDirectory(prefix="rankbound-workers-") as folder:
            codes = _failures(count, command, folder)
            if not codes:
                return 0
            # the launcher ends the others by SIGTERM when one has failed
            killed = {rank: -code for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM}
            if not killed:
                rank, code = min(((rank, code) for rank, code in codes.items() if code > 0), default=(0, 1))
                if rank:  # the first process has printed its own error
                    typer.echo(_errors(folder, rank), err=True, nl=False)
                return code
        rank, number = min(killed.items())
        reason = f"worker {rank} of {count} was killed by {signal.Signals(number).name}"
        if restart < _RESTARTS:
            output.print_warnings([f"{reason}; starting again ({restart + 1} of {_RESTARTS} times)"])
    raise DataError(f"{reason}, as in {_RESTARTS} attempts before; it may have run out of memory")


def _failures(count: int, command: list[str], folder: str) -> dict[int, int]:
    """Run a command in processes until all have ended or one has failed; returns exit codes other than 0 by rank."""
    with needed_by("--workers"):
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # reports of failures are ours
    budget = str(max(1, (threads() if os.environ.get("RANKBOUND_THREADS") else cores()) // count))
    os.environ |= {"RANKBOUND_THREADS": budget, "OMP_NUM_THREADS": budget}
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=Path(folder).name,
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=folder, redirects=dict.fromkeys(range(1, count), Std.ALL)),
    )
    try:
        elastic_launch(config, command[0])(*command[1:])
    except ChildFailedError as error:
        return {rank: int(failure.exitcode) for rank, failure in error.failures.items()}
    return {}


def _errors(folder: str, rank: int) -> str:
    """What a process wrote to its standard error."""
    files = sorted(Path(folder).rglob(f"{rank}/stderr.log"))
    return files[-1].read_text(errors="replace") if files else ""
