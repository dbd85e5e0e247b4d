"""An array that grows as blocks of rows arrive, without holding any row twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["GrowingTable"]


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

    def finish(self) -> NDArray[Any]:
        """Return the table and forget it, so that the caller holds the only reference."""
        self._table.resize((self._used, self._table.shape[1]), refcheck=False)
        table, self._table, self._used = self._table, np.empty((0, 0), self._table.dtype), 0
        return table
