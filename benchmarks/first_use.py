"""How long a loss takes when it is used for the first time: `python -m benchmarks.first_use [LOSS...] [--json]`.

For each loss two processes, one after the other, compute a value and its gradient. The folder of compiled kernels is
empty for the first, which compiles, and the second loads what the first has compiled. The times are those beyond the
imports of torch and rankbound. Wall time grows with whatever else the machine does; processor time hardly does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rankbound.errors import ArgumentError
from rankbound.losses import loss_names

__all__ = ["FIRST_BAR", "SECOND_BAR", "FirstUse", "cases", "first_use", "main"]

FIRST_BAR = 5.0  # seconds of wall time on a machine that does nothing else, with an empty folder of compiled kernels
SECOND_BAR = 0.5  # the same, if another process has compiled them
_CUTOFF = 10  # of measures that need one

_USE = """
import json, sys, time
import torch
from rankbound.losses import get_loss

name, options = json.loads(sys.argv[1])
scores = torch.linspace(1, 0, 12, requires_grad=True)
wall, processor = time.perf_counter(), time.process_time()
get_loss(name, **options)(scores, [0, 1, 0, 2, 0, 0, 1, 0, 0, 0, 2, 0], [0, 5, 12]).backward()
json.dump([time.perf_counter() - wall, time.process_time() - processor], sys.stdout)
"""


@dataclass(frozen=True)
class FirstUse:
    """Seconds beyond the imports in the process that compiles, and in the next one."""

    loss: str
    first_wall: float
    first_processor: float
    second_wall: float
    second_processor: float

    @property
    def meets_the_bars(self) -> bool:
        """Whether both wall times are within their bars."""
        return self.first_wall <= FIRST_BAR and self.second_wall <= SECOND_BAR


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every loss of the catalog, and forms of losses with kernels of their own, as arguments of `get_loss`.

    >>> cases()["RR, form=ranks"]
    ('RR', {'form': 'ranks'})
    """
    known: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in loss_names(_CUTOFF)}
    known["noisy-lambda-nDCG"] = ("noisy-lambda-nDCG", {})
    for name in ("RR", "AP"):
        known[f"{name}, form=ranks"] = (name, {"form": "ranks"})
    known["nDCG, sigmoid=erf"] = ("nDCG", {"sigmoid": "erf"})
    known["nDCG, bounding=log-distribution"] = ("nDCG", {"bounding": "log-distribution"})
    return known


def chosen(names: Sequence[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """The cases of these names, or all of them; ArgumentError for an unknown one."""
    known = cases()
    for name in names:
        if name not in known:
            raise ArgumentError(f"loss must be one of {'; '.join(known)}, got {name!r}")
    return {name: known[name] for name in names or known}


def first_use(case: str) -> FirstUse:
    """Measure one of the `cases`."""
    (known,) = chosen([case]).values()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _USE, json.dumps(known)]
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        times = []
        for _ in range(2):
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            times += json.loads(done.stdout)
    return FirstUse(case, *times)


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 1 where a wall time misses its bar, and 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_use",
        description="Seconds beyond the imports until a loss has given its first value and gradient: in a process that "
        f"compiles its kernels (bar: {FIRST_BAR:g} s), and in the next, which loads them ({SECOND_BAR:g} s). The bars "
        "are those of wall time on a machine that does nothing else. All losses take about ten minutes.",
    )
    parser.add_argument("losses", metavar="LOSS", nargs="*", help="for example nDCG or 'RR, form=ranks' (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    try:
        names = list(chosen(options.losses))  # before anything is measured
    except ArgumentError as error:
        sys.stderr.write(f"benchmarks.first_use: {error}\n")
        return 2
    results = []
    if not options.json:
        sys.stdout.write(f"{'':34}{'first process':>20}{'second process':>20}\n")
        sys.stdout.write(f"{'seconds beyond imports':34}" + 2 * f"{'wall':>10}{'processor':>10}" + "\n")
    for case in names:
        result = first_use(case)
        results.append(result)
        if not options.json:
            times = (result.first_wall, result.first_processor, result.second_wall, result.second_processor)
            mark = "" if result.meets_the_bars else "  misses a bar"
            sys.stdout.write(f"{case:34}" + "".join(f"{seconds:10.2f}" for seconds in times) + mark + "\n")
            sys.stdout.flush()
    if options.json:
        bars = {"first_wall": FIRST_BAR, "second_wall": SECOND_BAR}
        sys.stdout.write(json.dumps({"bars": bars, "losses": [asdict(result) for result in results]}) + "\n")
    return 0 if all(result.meets_the_bars for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
