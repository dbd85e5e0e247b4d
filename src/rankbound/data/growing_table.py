"""Arrays that grow as blocks of rows arrive, in memory without holding any row twice, or in a file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_VALUES = 1 << 22  # of the rows that are copied at a time


class GrowingTable:
    """One array that grows in place as blocks of rows are appended.

    A block may have more columns than earlier ones, whose rows are then filled with zeros. One-dimensional blocks make
    a table of one column.

    >>> table = GrowingTable(np.int64)
    >>> table.append(np.array([[1], [2]]))
    >>> table.append(np.array([[3, 4]]))
    >>> table.finish().tolist()
    [[1, 0], [2, 0], [3, 4]]
    """

    def __init__(self, kind: DTypeLike) -> None:
        self._table: NDArray[Any] = np.empty((0, 0), kind)
        self._used = 0

    def append(self, block: NDArray[Any]) -> None:
        """Add rows."""
        if block.ndim == 1:
            block = block[:, None]
        rows, width = self._used + len(block), max(self._table.shape[1], block.shape[1])
        if width > self._table.shape[1]:  # usually only for the first block
            wider = np.zeros((len(self._table), width), self._table.dtype)
            wider[:, : self._table.shape[1]] = self._table
            self._table = wider
        if rows > len(self._table):  # reallocates: new rows are zero, old rows are rarely copied
            self._table.resize((max(rows, len(self._table) * 5 // 4), width), refcheck=False)
        self._table[self._used : rows, : block.shape[1]] = block
        self._used = rows

    def finish(self, order: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the table, its rows in another order if there is one, and forget it.

        The caller then holds the only reference.
        """
        self._table.resize((self._used, self._table.shape[1]), refcheck=False)
        table, self._table, self._used = self._table, np.empty((0, 0), self._table.dtype), 0
        return table if order is None else table[order]


class GrowingFile:
    """The same in a temporary file without a name, which is mapped into memory at the end: memory does not grow.

    Parameters
    ----------
    kind:
        The type of the entries.
    folder:
        The folder on whose disk the file is; the file disappears when the last reference to its array does.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = GrowingFile(np.int64, Path(folder))
    ...     table.append(np.array([[1], [2]]))
    ...     table.append(np.array([[3, 4]]))
    ...     table.finish(np.array([2, 0, 1])).tolist()
    [[3, 4], [1, 0], [2, 0]]
    """

    def __init__(self, kind: DTypeLike, folder: Path) -> None:
        self._kind, self._folder = np.dtype(kind), folder
        self._file: Any = self._new_file()
        self._rows, self._width = 0, 0

    def append(self, block: NDArray[Any]) -> None:
        """Add rows."""
        if block.ndim == 1:
            block = block[:, None]
        if block.shape[1] > self._width:  # usually only for the first block
            self._rewrite(block.shape[1], None)
        rows = np.zeros((len(block), self._width), self._kind)
        rows[:, : block.shape[1]] = block
        rows.tofile(self._file)
        self._rows += len(block)

    def finish(self, order: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the table, its rows in another order if there is one, mapped into memory and read-only."""
        if order is not None:
            self._rewrite(self._width, order)
        table = self._mapped()
        self._file.close()  # the mapping keeps the content
        return table

    def _rewrite(self, width: int, order: NDArray[np.int64] | None) -> None:
        """Write the rows again, with more columns or in another order."""
        before, mapped = self._file, self._mapped()
        self._file = self._new_file()
        step = max(1, _VALUES // max(width, 1))
        for first in range(0, self._rows, step):
            chosen = slice(first, first + step) if order is None else order[first : first + step]
            rows = np.zeros((len(mapped[chosen]), width), self._kind)
            rows[:, : self._width] = mapped[chosen]
            rows.tofile(self._file)
        self._width = width
        before.close()

    def _mapped(self) -> NDArray[Any]:
        shape = (self._rows, self._width)
        if 0 in shape:
            return np.zeros(shape, self._kind)
        self._file.flush()
        return np.memmap(self._file, self._kind, mode="r", shape=shape)

    def _new_file(self) -> Any:
        return tempfile.TemporaryFile(dir=self._folder)
