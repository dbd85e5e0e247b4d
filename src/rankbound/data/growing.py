"""Rows that arrive block by block, collected without ever holding them twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["GrowingTable"]


class GrowingTable:
    """One array that grows in place as blocks of rows are appended.

    A block may have more columns than those before it, which then have zeros there; blocks of one dimension make a
    table of one column.

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
        if width > self._table.shape[1]:  # as a rule only once, at the first block
            wider = np.zeros((len(self._table), width), self._table.dtype)
            wider[:, : self._table.shape[1]] = self._table
            self._table = wider
        if rows > len(self._table):  # realloc: the new rows are zero and the old ones need not be copied
            self._table.resize((max(rows, len(self._table) * 5 // 4), width), refcheck=False)
        self._table[self._used : rows, : block.shape[1]] = block
        self._used = rows

    def finish(self) -> NDArray[Any]:
        """The table, without room for more; it is handed over and the collection is empty again."""
        self._table.resize((self._used, self._table.shape[1]), refcheck=False)
        table, self._table, self._used = self._table, np.empty((0, 0), self._table.dtype), 0
        return table
