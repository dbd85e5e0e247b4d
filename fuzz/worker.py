"""One target in a process of its own: atheris selects inputs by the branches of rankbound that they reach.

Errors of `rankbound.errors` are the expected answer to damaged input; every other exception is stored as a finding, and
the search continues. If the process ends (a native crash, a hang, no more memory), the parent reads the current input
from the shared state.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import importlib.util
import mmap
import os
import random
import resource
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path

__all__ = ["MAX_BYTES", "State"]

MAX_BYTES = 1 << 17  # of an input
_HEAD = struct.Struct("<QQdQ")  # number of inputs, whether one is running, CPU seconds, length of the input
_MEMORY = 3 << 30  # bytes of address space in addition to the libraries


class State:
    """State shared by parent and worker: a memory-mapped file that outlives the worker."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("r+b") as stream:
            stream.truncate(_HEAD.size + MAX_BYTES)
            self._memory = mmap.mmap(stream.fileno(), _HEAD.size + MAX_BYTES)
        self.runs, self.began = 0, 0.0

    def begin(self, data: bytes) -> None:
        """Record the input before it runs."""
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._memory, 0, self.runs, 1, time.process_time() - self.began, len(data))

    def end(self) -> float:
        """Record the end of an input; return the CPU seconds so far."""
        self.runs += 1
        seconds = time.process_time() - self.began
        _HEAD.pack_into(self._memory, 0, self.runs, 0, seconds, 0)
        return seconds

    def read(self) -> tuple[int, bytes | None, float]:
        """Return the number of inputs, the running one, and the CPU seconds."""
        runs, inside, seconds, length = _HEAD.unpack_from(self._memory)
        return runs, bytes(self._memory[_HEAD.size : _HEAD.size + length]) if inside else None, seconds


def keep(crashes: Path, target: str, data: bytes, report: str, location: str) -> None:
    """Store a finding: the input and the report, once for each location in the code, and the time it was last seen."""
    name = f"{target}-{hashlib.sha256(location.encode()).hexdigest()[:8]}"
    crashes.mkdir(parents=True, exist_ok=True)
    if not (crashes / f"{name}.txt").exists():
        (crashes / name).write_bytes(data)
        (crashes / f"{name}.txt").write_text(report)
    (crashes / f"{name}.txt").touch()


def main(name: str, state_path: str, corpus: str, crashes: str, seconds: str) -> None:
    """Fuzz one target for a number of CPU seconds."""
    import atheris

    faulthandler.enable()
    state, parent = State(state_path), os.getppid()
    folder = Path(tempfile.mkdtemp(prefix="input-"))
    with atheris.instrument_imports(include=["rankbound"], exclude=_compiled()):
        from fuzz.mutations import mutated
        from fuzz.targets import TARGETS, tried

        target = TARGETS[name]
        seeds = target.seeds()
        for number, seed in enumerate(seeds):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
            with contextlib.suppress(Exception):  # errors of a seed are reported when it runs
                tried(target, seed, folder)  # imports, and thereby instruments, modules that load late

    def try_one(data: bytes) -> None:
        state.begin(data)
        try:
            tried(target, data, folder)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # panics of polars do not derive from Exception
            frames = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in frames if "rankbound" in frame.filename] or list(frames)
            location = f"{type(error).__name__} {ours[-1].filename}:{ours[-1].lineno}"
            keep(Path(crashes), name, data, "".join(traceback.format_exception(error, limit=-12))[-8000:], location)
        if state.end() >= float(seconds) or os.getppid() != parent:  # the parent was killed
            sys.stderr.flush()
            os._exit(0)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        choice = random.Random(seed)
        return (mutated(data, choice) if choice.random() < 0.6 else atheris.Mutate(data, max_size))[:max_size]

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    longest = min(MAX_BYTES, max(4096, 4 * max(map(len, seeds))))
    signals = [f"-handle_{name}=0" for name in ("segv", "bus", "abrt", "fpe", "ill")]  # faulthandler reports them
    # the parent limits the time, and the limit above the memory
    unwatched = ["-timeout=1000000", "-report_slow_units=1000000", "-rss_limit_mb=0"]
    options = [f"-max_len={longest}", "-reload=0", "-len_control=0", *unwatched, *signals]
    atheris.Setup([sys.argv[0], *options, corpus], try_one, custom_mutator=mutate)
    state.began = time.process_time()
    atheris.Fuzz()


def _compiled() -> list[str]:
    """Return modules with functions that numba compiles, which it cannot do if atheris instruments them."""
    package = Path(importlib.util.find_spec("rankbound").submodule_search_locations[0])
    files = [file for file in package.rglob("*.py") if "rankbound.losses.compiling" in file.read_text("utf-8")]
    return [".".join(file.relative_to(package.parent).with_suffix("").parts) for file in files]


if __name__ == "__main__":
    main(*sys.argv[1:])
