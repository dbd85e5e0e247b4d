"""A safe version of numba's cache of compiled kernels.

By itself numba raises an error if a cached file is damaged or cannot be written, runs any machine code that it reads,
and mixes up its files when two processes cache different types of one kernel at the same time. Here every file has its
sha256 next to it and is compiled again if that does not match, a file that cannot be written is not cached, and
writers hold a lock.

Processes that start at the same time, such as those of a pool, need the same kernels at the same time. One of them
compiles a kernel, and the others wait and load it: whoever finds no kernel takes a lock for this kernel and these
types, looks again, and holds the lock until the kernel is saved. See `KernelCache.compiling`.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.compiler_lock import global_compiler_lock

from rankbound.io import locked_folder, waiting_lock

__all__ = ["KernelCache", "NoCache", "without_messages"]

_WAIT_SECONDS = 60.0  # for the process that compiles a kernel: far more than any kernel takes


class _SealedFiles(IndexDataCacheFile):  # type: ignore[misc]
    """The index and the data files of one kernel."""

    def _load_index(self) -> Any:
        return super()._load_index() if _is_intact(self._index_path) else {}

    def _save_index(self, overloads: Any) -> None:
        super()._save_index(overloads)
        _seal(self._index_path)

    def _load_data(self, name: str) -> Any:
        if not _is_intact(self._data_path(name)):
            raise OSError(f"{name} is damaged")  # numba treats an OSError as a missing file
        return super()._load_data(name)

    def _save_data(self, name: str, data: Any) -> None:
        super()._save_data(name, data)
        _seal(self._data_path(name))


class KernelCache(FunctionCache):  # type: ignore[misc]
    """The cache from which a dispatcher loads compiled code, and to which it saves it."""

    _cache_file: Any

    def __init__(self, function: Any, variant: str = "") -> None:
        super().__init__(function)
        self._variant = variant
        self._locks: list[contextlib.ExitStack] = []  # of the calls of `compiling`, the innermost last
        files = self._cache_file
        self._cache_file = _SealedFiles(files._cache_path, self._impl.filename_base, files._source_stamp)

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Keep, while numba loads or compiles one kernel in the block, the lock that `load_overload` takes.

        The lock ends with the block, also if the compilation fails, and with the process if that is killed. numba's
        own lock has to be held, too, because only then no other thread of this process compiles in the meantime. A
        process that waits too long compiles the kernel itself.
        """
        with _compiling(), contextlib.ExitStack() as locks:
            self._locks.append(locks)
            try:
                yield
            finally:
                self._locks.pop()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code for a signature; None if it is missing or damaged."""
        loaded = self._load(sig, target_context)
        if loaded is None and self._locks:
            self._locks[-1].enter_context(waiting_lock(self._lock_file(sig, target_context), _WAIT_SECONDS))
            # saved in the meantime, perhaps; and what is being saved looks damaged to those who do not hold the folder
            with locked_folder(self._cache_path):
                loaded = self._load(sig, target_context)
        if loaded is None:
            _report("compiling loss kernels, once: later processes load them")
        return loaded

    def _load(self, sig: Any, target_context: Any) -> Any:
        with contextlib.suppress(Exception):  # for instance because a library has another version: compile again
            return super().load_overload(sig, target_context)
        return None

    def _lock_file(self, sig: Any, target_context: Any) -> Path:
        with contextlib.suppress(OSError):
            Path(self._cache_path).mkdir(parents=True, exist_ok=True)
        key = repr(self._index_key(sig, target_context.codegen()))
        name = f"{self._impl.filename_base}.{hashlib.sha256(key.encode()).hexdigest()[:16]}.lock"
        return Path(self._cache_path) / name

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code, if possible."""
        with contextlib.suppress(OSError), locked_folder(self._cache_path):
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Types, processor, code and variant; numba adds the functions around it, which differ by process."""
        return sig, codegen.magic_tuple(), hashlib.sha256(self._py_func.__code__.co_code).hexdigest(), self._variant


class NoCache(NullCache):  # type: ignore[misc]
    """The cache of kernels that are not kept."""

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Let numba compile a kernel in the block, without a lock between processes."""
        with _compiling():
            yield

    def load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ARG002 - numba's interface
        """Return None: there is nothing to load."""
        _report("compiling loss kernels, in every process: the folder of compiled kernels is off or cannot be written")


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Hold numba's lock and pause the collection of garbage, which takes a tenth of the time of a compilation.

    The compiler makes hundreds of thousands of objects that stay alive until it has finished, and Python searches
    them, with all that torch and numba have loaded, again and again. Of what is left, 20 MB, the next collection frees
    what it can.
    """
    with global_compiler_lock:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()


# ---- messages --------------------------------------------------------------------------------------------------------

_silent = False
_reported: set[str] = set()


@contextlib.contextmanager
def without_messages() -> Iterator[None]:
    """Compile silently in the block, because the caller reports it."""
    global _silent
    before, _silent = _silent, True
    try:
        yield
    finally:
        _silent = before


def _report(message: str) -> None:
    """Write a line to the terminal, once, if stderr is one: somebody waits there."""
    if not _silent and message not in _reported and sys.stderr is not None and sys.stderr.isatty():
        _reported.add(message)
        with contextlib.suppress(OSError):
            sys.stderr.write(f"rankbound: {message}\n")
            sys.stderr.flush()


# ---- seals -----------------------------------------------------------------------------------------------------------


def _seal_of(path: str) -> Path:
    return Path(f"{path}.sha256")


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _seal(path: str) -> None:
    _seal_of(path).write_text(_digest(path))


def _is_intact(path: str) -> bool:
    try:
        return _seal_of(path).read_text() == _digest(path)
    except (OSError, UnicodeDecodeError):
        return False
