"""A safe version of numba's cache of compiled kernels.

By itself numba raises an error if a cached file is damaged or cannot be written, runs any machine code that it reads,
and mixes up its files when two processes cache different types of one kernel at the same time. Here every file has its
sha256 next to it and is compiled again if that does not match, a file that cannot be written is not cached, and
writers hold a lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache

from rankbound.io import locked_folder

__all__ = ["KernelCache", "NoCache", "without_messages"]


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
        files = self._cache_file
        self._cache_file = _SealedFiles(files._cache_path, self._impl.filename_base, files._source_stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code for a signature; None if it is missing or damaged."""
        loaded = None
        with contextlib.suppress(Exception):  # for instance because a library has another version: compile again
            loaded = super().load_overload(sig, target_context)
        if loaded is None:
            _report("compiling loss kernels, once: later processes load them")
        return loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code, if possible."""
        with contextlib.suppress(OSError), locked_folder(self._cache_path):
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Types, processor, code and variant; numba adds the functions around it, which differ by process."""
        return sig, codegen.magic_tuple(), hashlib.sha256(self._py_func.__code__.co_code).hexdigest(), self._variant


class NoCache(NullCache):  # type: ignore[misc]
    """The cache of kernels that are not kept."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ARG002 - numba's interface
        """Return None: there is nothing to load."""
        _report("compiling loss kernels, in every process: the folder of compiled kernels is off or cannot be written")


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
