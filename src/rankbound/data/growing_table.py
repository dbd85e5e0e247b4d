"""A table that grows as blocks of rows arrive, in memory or in a file that is mapped into memory at the end."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_VALUES = 1 << 22  # of the rows that are copied at a time


class GrowingTable:
    """Rows that are appended in blocks, none of which is held twice.

    A block may have more columns than earlier ones, whose rows are then filled with zeros. One-dimensional blocks make
    a table of one column.

    Parameters
    ----------
    kind:
        The type of the entries.
    folder:
        None: the rows are in memory. A folder: they are in a temporary file without a name on its disk, so that memory
        does not grow; the file disappears when the last reference to its array does.

    >>> table = GrowingTable(np.int64)
    >>> table.append(np.array([[1], [2]]))
    >>> table.append(np.array([[3, 4]]))
    >>> table.finish().tolist()
    [[1, 0], [2, 0], [3, 4]]
    """

    def __init__(self, kind: DTypeLike, folder: Path | None = None) -> None:
        self._kind, self._folder = np.dtype(kind), folder
        self._stream = self._new_stream()
        self._rows, self._width = 0, 0

    def append(self, block: NDArray[Any]) -> None:
        """Add rows."""
        if block.ndim == 1:
            block = block[:, None]
        if block.shape[1] > self._width:  # usually only for the first block
            self._rewrite(block.shape[1], None)
        self._write(block)
        self._rows += len(block)

    def finish(self, order: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the table, its rows in another order if there is one; in a file it is read-only."""
        if order is not None:
            self._rewrite(self._width, order)
        return self._take_rows()

    def _rewrite(self, width: int, order: NDArray[np.int64] | None) -> None:
        """Write the rows again, with more columns or in another order."""
        before, self._width = self._take_rows(), width
        self._stream = self._new_stream()
        step = max(1, _VALUES // max(width, 1))
        for first in range(0, self._rows, step):
            chosen = slice(first, first + step) if order is None else order[first : first + step]
            self._write(before[chosen])

    def _write(self, rows: NDArray[Any]) -> None:
        if rows.dtype != self._kind or rows.shape[1] < self._width:
            filled = np.zeros((len(rows), self._width), self._kind)
            filled[:, : rows.shape[1]] = rows
            rows = filled
        self._stream.write(np.ascontiguousarray(rows).view(np.uint8).data)

    def _take_rows(self) -> NDArray[Any]:
        """Return all rows as an array, which keeps their memory or their file, and leave the table empty."""
        stream, self._stream = self._stream, io.BytesIO()
        shape = (self._rows, self._width)
        if isinstance(stream, io.BytesIO):
            return np.frombuffer(stream.getbuffer(), self._kind).reshape(shape)
        with stream:
            stream.flush()
            return np.zeros(shape, self._kind) if 0 in shape else np.memmap(stream, self._kind, mode="r", shape=shape)

    def _new_stream(self) -> IO[bytes]:
        return io.BytesIO() if self._folder is None else tempfile.TemporaryFile(dir=self._folder)
