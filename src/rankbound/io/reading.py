"""Reading files, compressed or not."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rankbound.errors import DataError
from rankbound.io.progress import is_watched, report_progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

WATCHED = 8 << 20  # bytes of a file from which on the progress of reading is reported
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file as a stream of decompressed bytes; "-" is standard input.

    gzip and zstandard are recognized by their first bytes, whatever the file's name. A file that is missing, damaged
    or cut short raises a DataError that names it. The progress of a large file is reported in bytes, compressed if the
    file is.
    """
    if "\0" in str(path):
        raise DataError(f"{str(path)!r}: cannot be read: a file name has no NUL character")
    if str(path).endswith(("/", os.sep)) and Path(path).is_file():  # Path drops the slash
        raise DataError(f"{path}: cannot be read: Not a directory; a file name does not end in a slash")
    try:
        raw: BinaryIO = sys.stdin.buffer if str(path) == "-" else Path(path).open("rb")  # noqa: SIM115 - closed below
        if is_watched() and raw is not sys.stdin.buffer and (size := os.fstat(raw.fileno()).st_size) >= WATCHED:
            raw = _Watched(raw, size)  # type: ignore[assignment]
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
        if type(error).__name__ == "ZstdError":  # zstandard is imported only for its own files
            raise DataError(f"{path}: cannot be read: {error}") from error
        raise


class _Watched(io.RawIOBase):
    """A file that reports how much of it was read."""

    def __init__(self, source: BinaryIO, size: int) -> None:
        self._source, self._size, self._read = source, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._source.readinto(buffer)  # type: ignore[attr-defined]
        self._read += count
        report_progress("reading", self._read, self._size)
        return int(count)

    def close(self) -> None:
        self._source.close()
        super().close()


class _Zstandard(io.RawIOBase):
    """The frames of a zstandard file as one stream; the library's own reader accepts a file that was cut short."""

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
            chunk = chunk or self._source.read(1 << 14)  # a small block: it may decompress to 30,000 times its size
            if not chunk:
                if self._inside:
                    raise EOFError("the file ends before its last frame does")
                return 0
            self._ready, self._inside = memoryview(self._frame.decompress(chunk)), True
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the whole content of a file, decompressed."""
    with open_bytes(path) as stream:
        return stream.read()


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name; arrays of Python objects are refused."""
    import numpy as np

    try:
        # given a path instead of a handle, np.load leaves a damaged file open
        with Path(path).open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            arrays = dict(file)
    except Exception as error:  # damaged files make NumPy and zipfile raise errors of a dozen types
        raise DataError(f"{path}: cannot be read: {error or type(error).__name__}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # NumPy returns the bytes of a member that is not an array
            raise DataError(f"{path}: expected arrays only, got {name!r}, which is not one")
    return arrays
