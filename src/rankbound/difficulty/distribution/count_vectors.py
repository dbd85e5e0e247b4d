"""Count vectors: how many documents of each level stand on the first ranks, and what is known once they are given.

In a random order all arrangements of the first m ranks with the same counts c are equally likely. So the total of these
ranks has a distribution that depends on c, on the levels and on the weights of the ranks, and not on the query: it is
computed once for all queries with these levels. Only the probability of c is the query's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

FRACTION = 1e-8  # imaginary unit of fractions of a step
Growth = Callable[[int, int, list[Any]], Any]  # rank, level, counts above: what a document of the level adds


def number_of_vectors(levels: int, ranks: int) -> int:
    """Number of ways in which ``ranks`` ranks can be divided among the levels: C(ranks + levels - 1, levels - 1)."""
    return math.comb(ranks + levels - 1, levels - 1)


@dataclass(frozen=True, eq=False)
class CountVectors:
    """The count vectors of 0, 1, ..., m ranks.

    ``rows[j]`` holds those of j ranks, one per row; ``before[j][i, l]`` is the row of ``rows[j - 1]`` that row i is
    reached from by a document of level l at rank j, or -1.
    """

    rows: list[NDArray[np.int64]]
    before: list[NDArray[np.int64]]

    @property
    def last(self) -> NDArray[np.int64]:
        """The count vectors of all m ranks."""
        return self.rows[-1]

    def index_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where these count vectors are among those of all ranks."""
        code = _code(rows.shape[1], len(self.rows) - 1)
        return np.searchsorted(self.last @ code, rows @ code)

    def arrangements(self) -> NDArray[np.float64]:
        """Number of arrangements that have each of the count vectors of all ranks: m! / prod c_l!."""
        factorials = np.cumprod(np.concatenate(([1.0], np.arange(1.0, len(self.rows)))))
        return np.asarray(factorials[-1] / factorials[self.last].prod(axis=1))

    def probabilities(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(c) for queries with ``counts`` documents of each level, a row per query: multivariate hypergeometric.

        prod C(C_l, c_l) / C(n, m), with n added to the denominators along the way to keep the numbers in range.
        """
        ranks = len(self.rows) - 1
        n = counts.sum(axis=1)
        drawn = np.arange(ranks)
        factors = np.maximum(counts[:, :, None] - drawn, 0) / ((drawn + 1) * n[:, None, None])
        ones = np.ones((*counts.shape, 1))
        choices = np.cumprod(np.concatenate((ones, factors), axis=2), axis=2)  # C(C_l, j) / n^j
        probability = choices[:, 0, self.last[:, 0]]
        for level in range(1, counts.shape[1]):
            probability = probability * choices[:, level, self.last[:, level]]
        return np.asarray(probability / probability.sum(axis=1, keepdims=True))

    def extremes(self, growth: Growth) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Least and greatest total of each count vector of all ranks."""
        low = high = np.zeros(1)
        for rank in range(1, len(self.rows)):
            next_low = np.full(len(self.rows[rank]), np.inf)
            next_high = -next_low
            for level, to, source in self._moves(rank):
                added = growth(rank, level, list(self.rows[rank - 1][source].T))
                next_low[to] = np.minimum(next_low[to], low[source] + added)
                next_high[to] = np.maximum(next_high[to], high[source] + added)
            low, high = next_low, next_high
        return low, high

    def cells(self, growth: Growth, step: float) -> NDArray[np.complex128]:
        """Mass of the totals of each count vector on a grid, moved by whole steps, a row per vector of all ranks.

        Where the mean total is f steps above the point of its cell, the mass m is m + i `FRACTION` m f, see `dynamic`.
        """
        high = self.extremes(growth)[1].max(initial=0.0)
        columns = math.ceil(high / step) + len(self.rows) + 2
        cells = np.ones((1, columns), dtype=np.complex128)
        cells[:, 1:] = 0.0
        for rank in range(1, len(self.rows)):
            following = np.zeros((len(self.rows[rank]), columns), dtype=np.complex128)
            for level, to, source in self._moves(rank):
                added = growth(rank, level, list(self.rows[rank - 1][source].T))
                at = np.broadcast_to(np.asarray(added, dtype=np.float64), to.shape) / step
                whole = np.rint(at).astype(np.int64)
                factor = self.rows[rank][to, level] / rank * (1 + 1j * FRACTION * (at - whole))
                for shift in np.unique(whole).tolist():
                    these = whole == shift
                    moved = cells[source[these], : columns - shift] * factor[these, None]
                    following[to[these], shift:] += moved
            cells = following
        return cells

    def transforms(
        self, growth: Growth, size: int, turn: Callable[[NDArray[np.float64]], NDArray[np.complex128]]
    ) -> NDArray[np.complex128]:
        """E of a product of turns given each count vector: ``turn(x)`` has a row of ``size`` numbers per growth x.

        With turn(x) = exp(i t x) these are the characteristic functions. Given c, the document at the last rank is of
        level l with probability c_l / m, so E_c = sum over l of (c_l / m) turn(growth) E_(c without one of level l).
        """
        transform = np.ones((1, size), dtype=np.complex128)
        for rank in range(1, len(self.rows)):
            following = np.zeros((len(self.rows[rank]), size), dtype=np.complex128)
            for level, to, source in self._moves(rank):
                added = np.atleast_1d(growth(rank, level, list(self.rows[rank - 1][source].T)))
                step = transform[source]
                step *= turn(added)
                step *= (self.rows[rank][to, level] / rank)[:, None]
                following[to] += step
            transform = following
        return transform

    def _moves(self, rank: int) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Per level: the rows of this rank that a document of the level leads to, and the rows that it comes from."""
        moves = []
        for level in range(self.rows[0].shape[1]):
            to = np.flatnonzero(self.before[rank][:, level] >= 0)
            moves.append((level, to, self.before[rank][to, level]))
        return moves


@lru_cache(maxsize=64)
def count_vectors(levels: int, ranks: int) -> CountVectors:
    """The count vectors of up to ``ranks`` ranks.

    >>> count_vectors(2, 2).last.tolist(), count_vectors(2, 2).arrangements().tolist()
    ([[0, 2], [1, 1], [2, 0]], [1.0, 2.0, 1.0])
    """
    rows = [_divisions(levels, size) for size in range(ranks + 1)]
    code = _code(levels, ranks)
    before = [np.full((1, levels), -1, dtype=np.int64)]
    for smaller, larger in pairwise(rows):
        codes = smaller @ code  # ascending, because the rows are in lexicographic order
        known = np.searchsorted(codes, (larger @ code)[:, None] - code)
        before.append(np.where(larger > 0, known, -1))
    return CountVectors(rows, before)


def _code(levels: int, ranks: int) -> NDArray[np.int64]:
    """Factors that make one number of a count vector; the numbers ascend with the vectors in lexicographic order."""
    return np.asarray((ranks + 1) ** np.arange(levels, dtype=np.int64)[::-1])


def _divisions(levels: int, size: int) -> NDArray[np.int64]:
    """All ways to write ``size`` as a sum of ``levels`` numbers, in lexicographic order."""
    bars = np.zeros((1, 0), dtype=np.int64)
    left = np.array([size])
    for _ in range(levels - 1):
        repeat = left + 1
        start = np.repeat(np.cumsum(repeat) - repeat, repeat)
        taken = np.arange(repeat.sum()) - start
        bars = np.column_stack((np.repeat(bars, repeat, axis=0), taken))
        left = np.repeat(left, repeat) - taken
    return np.column_stack((bars, left))
