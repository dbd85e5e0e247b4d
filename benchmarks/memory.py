"""Peak memory of work, measured in a process of its own, which is `python -m benchmarks.memory`.

The measured quantity is the growth of the resident set above its size when the input is ready (VmHWM of Linux, reset
before each size). It includes what NumPy, torch, polars and compiled code allocate, which tracemalloc does not see. The
child process returns freed memory to the system at once, so that one size cannot reuse memory left by another.
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

from benchmarks.comparison import is_installed
from benchmarks.timing import Work

__all__ = ["peak_of", "peaks"]

_ROOT = Path(__file__).parents[1]
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",
    "RANKBOUND_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def peaks(module: str, curve: str, way: str, sizes: Sequence[int], folder: Path) -> tuple[float, ...] | None:
    """Return the megabytes that an implementation adds at each size; None where the system does not report them."""
    if not _RESET.exists():
        return None
    command = [sys.executable, "-m", "benchmarks.memory", module, curve, way, str(folder), *map(str, sizes)]
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | _ENVIRONMENT | {"PYTHONPATH": path}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def peak_of(work: Work) -> float:
    """Return the megabytes by which this process grows while the work runs."""
    gc.collect()
    _RESET.write_text("5")  # resets the peak
    before = _kilobytes("VmRSS")
    result = work()
    peak = _kilobytes("VmHWM")
    del result
    return max(0.0, (peak - before) / 1024)


def _kilobytes(field: str) -> int:
    match = re.search(rf"{field}:\s+(\d+)", _STATUS.read_text())
    assert match is not None
    return int(match[1])


def main(module: str, curve_name: str, way: str, folder: str, *sizes: str) -> None:
    """Measure all sizes, each after a first run that loads and compiles what it needs; print JSON."""
    warnings.simplefilter("ignore")
    curve = next(curve for curve in importlib.import_module(module).CURVES if curve.name == curve_name)
    implementation = curve.ways[way]
    assert implementation.module is None or is_installed(implementation.module)
    megabytes = []
    for size in sizes:
        work = implementation.prepare(curve.make(int(size), Path(folder)))
        work()
        megabytes.append(peak_of(work))
        del work
    sys.stdout.write(json.dumps(megabytes) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
