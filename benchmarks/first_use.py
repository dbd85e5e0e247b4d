"""How long a loss takes when it is used for the first time: `python -m benchmarks.first_use [LOSS...] [--json]`.

For each loss a fresh process computes a value and its gradient. The times are those beyond the imports of torch and
rankbound. Wall time grows with whatever else the machine does; processor time hardly does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rankbound.errors import ArgumentError
from rankbound.losses import loss_names

__all__ = ["BAR", "FirstUse", "cases", "first_use", "main"]

BAR = 0.5  # seconds of wall time on a machine that does nothing else
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
    """Seconds beyond the imports in a fresh process."""

    loss: str
    wall: float
    processor: float

    @property
    def meets_the_bar(self) -> bool:
        """Whether the wall time is within the bar."""
        return self.wall <= BAR


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
    command = [sys.executable, "-c", _USE, json.dumps(known)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return FirstUse(case, *json.loads(done.stdout))


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 1 where a wall time misses the bar, and 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_use",
        description="Seconds beyond the imports until a loss has given its first value and gradient in a fresh process "
        f"(bar: {BAR:g} s of wall time on a machine that does nothing else). All losses take a few minutes.",
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
        sys.stdout.write(f"{'seconds beyond imports':34}{'wall':>10}{'processor':>10}\n")
    for case in names:
        result = first_use(case)
        results.append(result)
        if not options.json:
            mark = "" if result.meets_the_bar else "  misses the bar"
            sys.stdout.write(f"{case:34}{result.wall:10.2f}{result.processor:10.2f}{mark}\n")
            sys.stdout.flush()
    if options.json:
        sys.stdout.write(json.dumps({"bar": BAR, "losses": [asdict(result) for result in results]}) + "\n")
    return 0 if all(result.meets_the_bar for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
