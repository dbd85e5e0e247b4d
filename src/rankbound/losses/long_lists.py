"""Smooth measures of very long lists in linear time: sums of logistics by Chebyshev series in boxes.

The kernel of `smooth_kernel` costs rows x items. A sum over j of w_j σ(x_j - x_i) can be computed for all i at once,
because σ is smooth: no singularity is nearer than π to the real line. The scores are sorted into boxes of width 2. Each
box stores the moments sum of w_j T_m(x_j) of its items for m < 12, and its effect on a box at a given distance is one
12 x 12 matrix that is computed beforehand. For boxes more than 20 apart σ is 0 or 1, so that only their weight matters.
The series of a box then gives the sum for each of its items.

Cost: 12 multiplications per item and sum, and 41 x 144 per box with items; memory: a few numbers per item. The error of
each term is below 1e-9 min(σ, 1 - σ), so that the relative error of a smooth rank is below 1e-9.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.losses.compiling import block_kernel, ranges
from rankbound.losses.smooth_kernel import additive_term_of, precision_term
from rankbound.losses.workers import run_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LONG", "Boxes", "Terms", "built_in_terms", "couplings", "long_additive", "long_pairs", "long_precision_sum"]

LONG = 2_000_000  # rows x items of a query above which the series are much faster
_TERMS, _WIDTH, _FAR = 12, 2.0, 20
Terms = Callable[[Any], tuple[Any, Any]]  # smooth ranks of the rows -> contributions and their derivatives
_BLOCKS, _MANY_BOXES = 16, 1024  # moments are summed in so many blocks, or in one if there are many boxes


class Boxes:
    """Numbers of a list sorted into boxes, to sum σ and its derivative with any weights."""

    def __init__(self, x: NDArray[np.float64], threads: int = 1) -> None:
        self._threads = threads
        number = np.floor(x / _WIDTH)
        box = (number - number.min()).astype(np.int64)
        if box.max() < 4 * len(x):  # few enough boxes for a table of all of them
            used = np.flatnonzero(np.bincount(box))
            index_of_box = np.empty(used[-1] + 1, np.int64)
            index_of_box[used] = np.arange(len(used))
            self._box = index_of_box[box]
        else:
            used, self._box = np.unique(box, return_inverse=True)
        self._number = used
        self._local = x - _WIDTH * (number + 0.5)  # from -1 to 1, the range of the T_m

    def sums(
        self, weights: NDArray[np.float64], sources: slice, targets: slice, value: bool = True, slope: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum w_j σ(x_j - x_i) and w_j σ'(x_j - x_i) over the sources j, for each target i."""
        blocks = _BLOCKS if len(self._number) < _MANY_BOXES else 1
        moments_of_blocks = np.zeros((blocks, len(self._number), _TERMS))
        run_blocks(
            _gather, ranges(blocks, self._threads, 1), self._local[sources], self._box[sources], weights,
            moments_of_blocks,
        )  # fmt: skip
        moments = moments_of_blocks.sum(axis=0)
        tables = couplings(_TERMS, _WIDTH, _FAR)
        sums = []
        for wanted, table, limit in ((value, tables[0], 1.0), (slope, tables[1], 0.0)):
            out = np.zeros(len(self._box[targets]) if wanted else 0)
            if wanted:
                series = np.zeros_like(moments)
                boxes, items = ranges(len(moments), self._threads, 1), ranges(len(out), self._threads)
                run_blocks(_couple, boxes, self._number, moments, table, limit, series)
                run_blocks(_evaluate, items, self._local[targets], self._box[targets], series, out)
            sums.append(out)
        return sums[0], sums[1]


@cache
def couplings(terms: int, width: float, far: int) -> NDArray[np.float64]:
    """Coefficients of σ(source - target) as a double Chebyshev series, by interpolation at the Chebyshev nodes.

    The axes are: value or derivative, distance of the boxes + ``far``, term of the target, term of the source.
    """
    angles = (np.arange(terms) + 0.5) * np.pi / terms
    nodes = np.cos(angles)
    transform = 2 / terms * np.cos(np.outer(np.arange(terms), angles))
    transform[0] /= 2
    distance = width * np.arange(-far, far + 1)
    d = distance[:, None, None] + nodes[None, None, :] - nodes[None, :, None]
    value = 1 / (1 + np.exp(-d))
    both = np.stack((value, value * (1 / (1 + np.exp(d)))))
    return np.ascontiguousarray(np.einsum("ka,vdab,lb->vdkl", transform, both, transform, optimize=True))


@block_kernel
def _gather(part: Any, local: Any, box: Any, weights: Any, moments: Any) -> None:
    """Compute the moments of every box by T_m = 2 x T_{m-1} - T_{m-2}; each block sums over a range of the items."""
    blocks, items = len(moments), len(local)
    for block in range(part[0], part[1]):
        for j in range(block * items // blocks, (block + 1) * items // blocks):
            x, sums = local[j], moments[block, box[j]]
            before, now = weights[j], weights[j] * x
            sums[0] += before
            for m in range(1, _TERMS):
                sums[m] += now
                before, now = now, 2 * x * now - before


@block_kernel
def _couple(part: Any, number: Any, moments: Any, table: Any, limit: float, series: Any) -> None:
    """Compute the series of each box; boxes far above add ``limit`` times their weight, boxes far below nothing."""
    total = np.zeros(len(number) + 1)
    for b in range(len(number)):
        total[b + 1] = total[b] + moments[b, 0]
    for t in range(part[0], part[1]):
        s = np.searchsorted(number, number[t] - _FAR)
        while s < len(number) and number[s] <= number[t] + _FAR:
            matrix = table[number[s] - number[t] + _FAR]
            for m in range(_TERMS):
                total_of_row = 0.0
                for k in range(_TERMS):
                    total_of_row += matrix[m, k] * moments[s, k]
                series[t, m] += total_of_row
            s += 1
        series[t, 0] += limit * (total[len(number)] - total[s])


@block_kernel
def _evaluate(part: Any, local: Any, box: Any, series: Any, out: Any) -> None:
    """Evaluate the series of its box at each item, by Clenshaw's recurrence."""
    for i in range(part[0], part[1]):
        coefficients, x = series[box[i]], local[i]
        ahead, now = 0.0, 0.0
        for m in range(_TERMS - 1, 0, -1):
            ahead, now = now, 2 * x * now - ahead + coefficients[m]
        out[i] = coefficients[0] + x * now - ahead


@cache
def _additive_terms_of(discount: int) -> Callable[..., None]:
    term_of = additive_term_of(discount)

    def additive_terms(
        ranks: Any, weights: Any, beta: float, k: float, parameter: float, contributions: Any, d_rank: Any
    ) -> None:
        for i in range(len(ranks)):
            contributions[i], d_rank[i] = term_of(ranks[i], weights[i], beta, k, parameter)

    return block_kernel(additive_terms, f"discount {discount}")


@block_kernel
def _precision_terms(
    ranks: Any, hits: Any, weights: Any, beta: float, k: float, contributions: Any, d_rank: Any, d_hits: Any
) -> None:
    for i in range(len(ranks)):
        contributions[i], d_rank[i], d_hits[i] = precision_term(ranks[i], hits[i], weights[i], beta, k)


def long_additive(
    scores: NDArray[Any], order: NDArray[np.int64], rows: int, alpha: float, threads: int, terms: Terms
) -> tuple[float, NDArray[np.float64]]:
    """Compute a smooth additive measure of a query with the logistic sigmoid, and its gradient in the scores.

    ``terms`` gives the contributions of the rows and their derivatives at smooth ranks.
    """
    x, boxes = _boxed(scores, order, alpha, threads)
    in_rows, everywhere = slice(0, rows), slice(None)
    above, slopes = boxes.sums(np.ones(len(x)), everywhere, in_rows)
    contributions, d_rank = terms(0.5 + above)  # an item's σ with itself is 1/2; its slope cancels in the gradient
    sorted_gradient = boxes.sums(d_rank, in_rows, everywhere, value=False)[1]
    sorted_gradient[in_rows] -= d_rank * slopes
    return float(contributions.sum()), _in_input_order(alpha * sorted_gradient, order)


def long_precision_sum(
    scores: NDArray[Any], order: NDArray[np.int64], rows: int, alpha: float, threads: int,
    weights: NDArray[np.float64], beta: float, k: float,
) -> tuple[float, NDArray[np.float64]]:  # fmt: skip
    """The same for a precision sum, whose rows also count the smooth hits above."""
    x, boxes = _boxed(scores, order, alpha, threads)
    in_rows, everywhere, ones = slice(0, rows), slice(None), np.ones(len(x))
    above, slopes = boxes.sums(ones, everywhere, in_rows)
    hits, hit_slopes = boxes.sums(ones[in_rows], in_rows, in_rows)
    contributions, d_rank, d_hits = np.empty(rows), np.empty(rows), np.empty(rows)
    _precision_terms(0.5 + above, hits - 0.5, weights[:rows], beta, k, contributions, d_rank, d_hits)
    sorted_gradient = boxes.sums(d_rank, in_rows, everywhere, value=False)[1]
    sorted_gradient[in_rows] -= d_rank * slopes
    sorted_gradient[in_rows] += boxes.sums(d_hits, in_rows, in_rows, value=False)[1] - d_hits * hit_slopes
    return float(contributions.sum()), _in_input_order(alpha * sorted_gradient, order)


def long_pairs(
    scores: NDArray[Any],
    order: NDArray[np.int64],
    rows: int,
    alpha: float,
    threads: int,
    weights: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64]]:
    """The same for pairs of two levels, where each row is compared with all items that are no rows."""
    x, boxes = _boxed(scores, order, alpha, threads)
    in_rows, below = slice(0, rows), slice(rows, None)
    above, slopes = boxes.sums(np.ones(len(x) - rows), below, in_rows)
    sorted_gradient = np.empty(len(x))
    sorted_gradient[below] = boxes.sums(weights[in_rows], in_rows, below, value=False)[1]
    sorted_gradient[in_rows] = -weights[in_rows] * slopes
    return float((weights[in_rows] * above).sum()), _in_input_order(alpha * sorted_gradient, order)


def built_in_terms(discount: int, weights: NDArray[np.float64], beta: float, k: float, parameter: float) -> Terms:
    """Terms of an additive measure with the built-in discount of this index."""

    def terms(ranks: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        contributions, d_rank = np.empty(len(ranks)), np.empty(len(ranks))
        _additive_terms_of(discount)(ranks, weights[: len(ranks)], beta, k, parameter, contributions, d_rank)
        return contributions, d_rank

    return terms


def _boxed(
    scores: NDArray[Any], order: NDArray[np.int64], alpha: float, threads: int
) -> tuple[NDArray[np.float64], Boxes]:
    exact = scores.astype(np.float64)
    x = alpha * (exact - (exact.min() / 2 + exact.max() / 2))[order]
    return x, Boxes(x, threads)


def _in_input_order(values: NDArray[np.float64], order: NDArray[np.int64]) -> NDArray[np.float64]:
    result = np.empty(len(order))
    result[order] = values
    return result
