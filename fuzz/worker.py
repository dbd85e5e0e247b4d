"""One target in a process of its own: atheris chooses inputs by the branches of rankbound that they reach.

A refusal in words is what readers are for; every other exception is kept as a finding and the search goes on. What ends
the process (a native crash, a hang, no more memory) is seen by the parent, who reads from the shared state at which
input it was.
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

__all__ = ["MOST", "State"]

MOST = 1 << 17  # bytes of an input
_HEAD = struct.Struct("<QQdQ")  # inputs so far, whether inside of one, CPU seconds, length of the input
_MEMORY = 3 << 30  # bytes of address space beyond what the libraries take


class State:
    """What parent and worker share: a file in memory that outlives the worker."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("r+b") as stream:
            stream.truncate(_HEAD.size + MOST)
            self._memory = mmap.mmap(stream.fileno(), _HEAD.size + MOST)
        self.runs, self.began = 0, 0.0

    def begin(self, data: bytes) -> None:
        """Note the input before it is tried."""
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._memory, 0, self.runs, 1, time.process_time() - self.began, len(data))

    def end(self) -> float:
        """Note that it is over; CPU seconds so far."""
        self.runs += 1
        seconds = time.process_time() - self.began
        _HEAD.pack_into(self._memory, 0, self.runs, 0, seconds, 0)
        return seconds

    def read(self) -> tuple[int, bytes | None, float]:
        """Inputs so far, the one that is being tried, CPU seconds."""
        runs, inside, seconds, length = _HEAD.unpack_from(self._memory)
        return runs, bytes(self._memory[_HEAD.size : _HEAD.size + length]) if inside else None, seconds


def keep(crashes: Path, target: str, data: bytes, report: str, place: str) -> None:
    """A finding: the input and what happened, once for each place in the code."""
    name = f"{target}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
    crashes.mkdir(parents=True, exist_ok=True)
    if not (crashes / f"{name}.txt").exists():
        (crashes / name).write_bytes(data)
        (crashes / f"{name}.txt").write_text(report)


def main(name: str, state_path: str, corpus: str, crashes: str, seconds: str) -> None:
    """Fuzz one target until so many CPU seconds are used."""
    import atheris

    faulthandler.enable()
    state, parent = State(state_path), os.getppid()
    folder = Path(tempfile.mkdtemp(prefix="input-"))
    with atheris.instrument_imports(include=["rankbound"], exclude=_compiled()):
        from fuzz.mutations import mutated
        from fuzz.targets import TARGETS, tried

        target = TARGETS[name]
        seeds = target.seeds()
        for at, seed in enumerate(seeds):
            (Path(corpus) / f"seed-{at}").write_bytes(seed)
            with contextlib.suppress(Exception):  # what is wrong with a seed is told when its turn comes
                tried(target, seed, folder)  # loads, and so instruments, what is imported late

    def try_one(data: bytes) -> None:
        state.begin(data)
        try:
            tried(target, data, folder)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # polars' panics are no Exception
            frames = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in frames if "rankbound" in frame.filename] or list(frames)
            place = f"{type(error).__name__} {ours[-1].filename}:{ours[-1].lineno}"
            keep(Path(crashes), name, data, "".join(traceback.format_exception(error, limit=-12))[-8000:], place)
        if state.end() >= float(seconds) or os.getppid() != parent:  # it was killed: nobody watches
            sys.stderr.flush()
            os._exit(0)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        choice = random.Random(seed)
        return (mutated(data, choice) if choice.random() < 0.6 else atheris.Mutate(data, max_size))[:max_size]

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    longest = min(MOST, max(4096, 4 * max(map(len, seeds))))
    signals = [f"-handle_{name}=0" for name in ("segv", "bus", "abrt", "fpe", "ill")]  # left to faulthandler
    # time and memory are watched by the parent and by the limit above
    unwatched = ["-timeout=1000000", "-report_slow_units=1000000", "-rss_limit_mb=0"]
    options = [f"-max_len={longest}", "-reload=0", "-len_control=0", *unwatched, *signals]
    atheris.Setup([sys.argv[0], *options, corpus], try_one, custom_mutator=mutate)
    state.began = time.process_time()
    atheris.Fuzz()


def _compiled() -> list[str]:
    """Modules with functions that numba compiles, which it cannot with atheris' calls in them."""
    package = Path(importlib.util.find_spec("rankbound").submodule_search_locations[0])
    files = [file for file in package.rglob("*.py") if "rankbound.losses.compiling" in file.read_text("utf-8")]
    return [".".join(file.relative_to(package.parent).with_suffix("").parts) for file in files]


if __name__ == "__main__":
    main(*sys.argv[1:])
