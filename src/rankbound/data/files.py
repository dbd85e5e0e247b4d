"""Files in and out: compressed input read whole, output written all or not at all."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rankbound.errors import DataError

__all__ = ["atomic_write", "locked_folder", "open_bytes", "read_arrays", "read_bytes", "remove_leftovers"]

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file's content as a stream of bytes; gzip and zstandard are undone by content, "-" is standard input.

    Whatever goes wrong while reading (missing file, damaged archive) comes out as a DataError that names the file.
    """
    if "\0" in str(path):
        raise DataError(f"{str(path)!r}: cannot be read: a file name has no NUL character")
    try:
        raw: BinaryIO = sys.stdin.buffer if str(path) == "-" else Path(path).open("rb")  # noqa: SIM115 - closed below
        with io.BufferedReader(raw, 1 << 20) as stream:  # type: ignore[type-var]
            magic = stream.peek(4)[:4]
            if magic[:2] == _GZIP:
                with gzip.GzipFile(fileobj=stream) as plain:
                    yield plain  # type: ignore[misc]
            elif magic == _ZSTD:
                yield io.BufferedReader(_Zstandard(stream), 1 << 20)
            else:
                yield stream
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path}: cannot be read: {reason}") from error
    except Exception as error:
        if type(error).__name__ == "ZstdError":  # zstandard is loaded only when such a file comes
            raise DataError(f"{path}: cannot be read: {error}") from error
        raise


class _Zstandard(io.RawIOBase):
    """Frames of zstandard as one stream; the library's own reader would take a cut file for a short one."""

    def __init__(self, source: BinaryIO) -> None:
        import zstandard

        self._new = zstandard.ZstdDecompressor().decompressobj
        self._source, self._frame, self._inside, self._ready = source, self._new(), False, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            chunk = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame, self._inside = self._new(), False
            chunk = chunk or self._source.read(1 << 14)  # little: it may unpack to thirty thousand times its size
            if not chunk:
                if self._inside:
                    raise EOFError("the file ends before its last frame does")
                return 0
            self._ready, self._inside = memoryview(self._frame.decompress(chunk)), True
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All of a file, decompressed."""
    with open_bytes(path) as stream:
        return stream.read()


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file, by their names; none of them can hold objects."""
    try:
        with Path(path).open("rb") as handle, np.load(handle, allow_pickle=False) as file:  # which leaves no file open
            arrays = dict(file)
    except Exception as error:  # NumPy and zipfile raise errors of a dozen types over damaged files
        raise DataError(f"{path}: cannot be read: {error or type(error).__name__}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # a member that is not an array comes as its bytes
            raise DataError(f"{path}: expected arrays only, got {name!r}, which is not one")
    return arrays


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends well, and vanishes when it does not."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp is private; a result is an ordinary file
        yield temporary
        with temporary.open("r+b") as written:
            os.fsync(written.fileno())  # before the rename: a power cut must not leave an empty file of that name
        temporary.replace(target)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked_folder(folder: str | os.PathLike[str], *, shared: bool = False) -> Iterator[None]:
    """Hold a folder for the block: other processes that ask for it wait, with ``shared`` only those that write.

    The lock is the operating system's and goes with the process, however that ends; it leaves no file behind. Where
    there are no such locks (Windows, some network disks, a folder that cannot be made) the block runs without.
    """
    handle = None
    with suppress(OSError, ImportError):
        import fcntl

        if not shared:
            Path(folder).mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove unfinished folders of processes that were killed; for who holds the folder (`locked_folder`) only."""
    for leftover in folder.glob(pattern):
        shutil.rmtree(leftover, ignore_errors=True)
