"""Peak memory of work, measured in a process of its own: `python -m rankbound.bench.memory` is that process.

What counts is by how much the resident set grows above what it was when the input lay ready (VmHWM of Linux, which is
set back before each size); it sees what NumPy, torch, polars and compiled code allocate, unlike a tracer of Python's
own. The child is told to give freed memory back at once, so that one size does not live off what another left.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from rankbound.bench.contest import is_installed
from rankbound.bench.timing import Work

__all__ = ["peak_of", "peaks"]

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",
    "RANKBOUND_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def peaks(module: str, curve: str, way: str, sizes: Sequence[int], folder: Path) -> tuple[float, ...] | None:
    """Megabytes that a way of a curve of a part adds at each size; None where the system cannot tell."""
    if not _RESET.exists():
        return None
    command = [sys.executable, "-m", "rankbound.bench.memory", module, curve, way, str(folder), *map(str, sizes)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | _ENVIRONMENT)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def peak_of(work: Work) -> float:
    """Megabytes that this process grows by while the work runs."""
    gc.collect()
    _RESET.write_text("5")  # the peak starts again from here
    before = _kilobytes("VmRSS")
    result = work()
    peak = _kilobytes("VmHWM")
    del result
    return max(0.0, (peak - before) / 1024)


def _kilobytes(what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+)", _STATUS.read_text())
    assert found is not None
    return int(found[1])


def main(module: str, curve: str, way: str, folder: str, *sizes: str) -> None:
    """Measure all sizes, each after a first run that loads and compiles what it needs; print JSON."""
    warnings.simplefilter("ignore")
    chosen = next(one for one in importlib.import_module(module).CURVES if one.name == curve)
    contestant = chosen.ways[way]
    assert contestant.module is None or is_installed(contestant.module)
    found = []
    for size in sizes:
        work = contestant.prepare(chosen.make(int(size), Path(folder)))
        work()
        found.append(peak_of(work))
        del work
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
