"""Smooth measures of very long lists in linear time: sums of logistics by Chebyshev series in boxes.

The kernel of `smooth_kernel` costs rows x items. A sum over j of w_j σ(x_j - x_i) can be had for all i at once, because
σ is smooth: no singularity is nearer than π to the real line. Scores are put into boxes of width 2. Each box keeps the
moments sum of w_j T_m(x_j) of its items, m < 12, and what it does to another box, so and so many boxes away, is one
12 x 12 matrix made beforehand. Boxes more than 20 apart see σ as 0 or 1, which is a count. The series of a box then
gives the sum for each of its items.

Cost: 12 multiplications per item and sum, and 41 x 144 per box that has items; memory: a few numbers per item. Error:
below 1e-9 times min(σ, 1 - σ) in each term, so that a smooth rank is off by less than 1e-9 of itself.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import prange

from rankbound.losses.compiling import kernel
from rankbound.losses.smooth_kernel import AP, NDCG, NRBP, PAIRS, PRECISION, weighed_term

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LONG", "MEASURES", "Boxes", "long_query"]

LONG = 2_000_000  # rows x items of a query from which on this is faster by far
MEASURES = (NDCG, AP, NRBP, PRECISION, PAIRS)  # of ranks, and of hits that are sums too
_TERMS, _WIDTH, _FAR = 12, 2.0, 20
_LANES, _MANY = 16, 1024  # items are gathered in this many blocks, unless there are this many boxes to gather them in


class Boxes:
    """Numbers of one list sorted into boxes, ready to sum σ and its slope over any weights."""

    def __init__(self, x: NDArray[np.float64]) -> None:
        number = np.floor(x / _WIDTH)
        box = (number - number.min()).astype(np.int64)
        if box.max() < 4 * len(x):  # what a table of all boxes can hold
            used = np.flatnonzero(np.bincount(box))
            place = np.empty(used[-1] + 1, np.int64)
            place[used] = np.arange(len(used))
            self._box = place[box]
        else:
            used, self._box = np.unique(box, return_inverse=True)
        self._number = used
        self._local = x - _WIDTH * (number + 0.5)  # from -1 to 1, the range of the T_m

    def sums(
        self, weights: NDArray[np.float64], sources: slice, targets: slice, value: bool = True, slope: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For each target i the sums over sources j of w_j σ(x_j - x_i) and of w_j σ'(x_j - x_i)."""
        blocks = _LANES if len(self._number) < _MANY else 1
        parts = np.zeros((blocks, len(self._number), _TERMS))
        _gather(self._local[sources], self._box[sources], weights, parts)
        moments = parts.sum(axis=0)
        tables = _couplings()
        found = []
        for wanted, table, limit in ((value, tables[0], 1.0), (slope, tables[1], 0.0)):
            out = np.zeros(len(self._box[targets]) if wanted else 0)
            if wanted:
                series = np.zeros_like(moments)
                _meet(self._number, moments, table, limit, series)
                _spread(self._local[targets], self._box[targets], series, out)
            found.append(out)
        return found[0], found[1]


@cache
def _couplings() -> NDArray[np.float64]:
    """[value or slope, distance + _FAR, term of the target, term of the source]: σ(source - target) as a double series.

    The coefficients are those of the interpolation at the Chebyshev nodes, in both arguments.
    """
    angles = (np.arange(_TERMS) + 0.5) * np.pi / _TERMS
    nodes = np.cos(angles)
    transform = 2 / _TERMS * np.cos(np.outer(np.arange(_TERMS), angles))
    transform[0] /= 2
    distance = _WIDTH * np.arange(-_FAR, _FAR + 1)
    d = distance[:, None, None] + nodes[None, None, :] - nodes[None, :, None]
    value = 1 / (1 + np.exp(-d))
    both = np.stack((value, value * (1 / (1 + np.exp(d)))))
    return np.asarray(np.einsum("ka,vdab,lb->vdkl", transform, both, transform, optimize=True))


@kernel
def _gather(local: Any, box: Any, weights: Any, parts: Any) -> None:
    """Moments of every box, by T_m = 2 x T_{m-1} - T_{m-2}; each block sums up its share of the items."""
    blocks, items = len(parts), len(local)
    for block in prange(blocks):
        for j in range(block * items // blocks, (block + 1) * items // blocks):
            x, mine = local[j], parts[block, box[j]]
            before, now = weights[j], weights[j] * x
            mine[0] += before
            for m in range(1, _TERMS):
                mine[m] += now
                before, now = now, 2 * x * now - before


@kernel
def _meet(number: Any, moments: Any, table: Any, limit: float, series: Any) -> None:
    """The series that each box sees; of boxes far above it sees ``limit`` times their weight, far below nothing."""
    total = np.zeros(len(number) + 1)
    for b in range(len(number)):
        total[b + 1] = total[b] + moments[b, 0]
    for t in prange(len(number)):
        s = np.searchsorted(number, number[t] - _FAR)
        while s < len(number) and number[s] <= number[t] + _FAR:
            matrix = table[number[s] - number[t] + _FAR]
            for m in range(_TERMS):
                part = 0.0
                for k in range(_TERMS):
                    part += matrix[m, k] * moments[s, k]
                series[t, m] += part
            s += 1
        series[t, 0] += limit * (total[len(number)] - total[s])


@kernel
def _spread(local: Any, box: Any, series: Any, out: Any) -> None:
    """The series of its box at each item, by Clenshaw's rule."""
    for i in prange(len(local)):
        mine, x = series[box[i]], local[i]
        ahead, now = 0.0, 0.0
        for m in range(_TERMS - 1, 0, -1):
            ahead, now = now, 2 * x * now - ahead + mine[m]
        out[i] = mine[0] + x * now - ahead


@kernel
def _terms(
    measure: int, ranks: Any, hits: Any, weights: Any, beta: float, k: float, p: float,
    shares: Any, d_rank: Any, d_hits: Any,
) -> None:  # fmt: skip
    """The rows' terms, and their derivatives in ranks and hits."""
    for i in prange(len(ranks)):
        shares[i], d_rank[i], d_hits[i], _ = weighed_term(measure, ranks[i], hits[i], 1.0, weights[i], beta, k, p)


def long_query(
    scores: NDArray[Any], order: NDArray[np.int64], rows: int, weights: NDArray[np.float64],
    measure: int, alpha: float, beta: float, k: float, p: float,
) -> tuple[float, NDArray[np.float64]]:  # fmt: skip
    """Smooth measure of one query with the logistic, and its gradient in the scores.

    As `smooth_pass` for the measures of `MEASURES`, where PAIRS compares rows with all that is no row.
    """
    exact = scores.astype(np.float64)
    x = alpha * (exact - (exact.min() / 2 + exact.max() / 2))[order]
    boxes, ones = Boxes(x), np.ones(len(x))
    hits_apart, row_part = measure == AP, slice(0, rows)
    columns = slice(rows, None) if measure == PAIRS else slice(None)
    own = 0.0 if measure == PAIRS else 0.5  # an item's σ with itself; its slope cancels in the gradient
    ranks, slopes = boxes.sums(ones[columns], columns, row_part)
    hits, hit_slopes = boxes.sums(ones[row_part], row_part, row_part, hits_apart, hits_apart)
    hits = hits - 0.5 if hits_apart else np.zeros(rows)
    shares, d_rank, d_hits = np.empty(rows), np.empty(rows), np.empty(rows)
    _terms(measure, 1 - own + ranks, hits, weights[:rows], beta, k, p, shares, d_rank, d_hits)
    pulled = np.zeros(len(x))
    pulled[columns] = boxes.sums(d_rank, row_part, columns, value=False)[1]
    pulled[row_part] -= d_rank * slopes
    if hits_apart:
        pulled[row_part] += boxes.sums(d_hits, row_part, row_part, value=False)[1] - d_hits * hit_slopes
    gradient = np.empty(len(x))
    gradient[order] = alpha * pulled
    return float(shares.sum()), gradient
