"""Sums over random orders that several measures share."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T", int, float)

_NEGLIGIBLE = 1e-20


def harmonic_numbers(n: int) -> NDArray[np.float64]:
    """0, 1, 1 + 1/2, ..., 1 + 1/2 + ... + 1/n."""
    return np.concatenate(([0.0], np.cumsum(1 / np.arange(1, n + 1))))


def distinct_columns(*rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct columns of non-negative integers, and which of them each column is; like np.unique(..., axis=1).

    Columns are coded as one integer where that is possible, which sorts ten times faster.

    >>> columns, which = distinct_columns(np.array([3, 1, 3]), np.array([0, 2, 0]))
    >>> columns.tolist(), which.tolist()
    ([[1, 3], [2, 0]], [1, 0, 1])
    """
    table = np.stack(rows)
    spans = [int(row.max(initial=0)) + 1 for row in rows]
    if math.prod(spans) >= 2**62:
        columns, which = np.unique(table, axis=1, return_inverse=True)
        return columns, which.ravel()
    code = np.zeros(table.shape[1], dtype=np.int64)
    for row, span in zip(table, spans, strict=True):
        code *= span
        code += row
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return table[:, first], which.ravel()


def log_factorials(n: int) -> NDArray[np.float64]:
    """log 0!, ..., log n!"""
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1, dtype=np.longdouble))))).astype(np.float64)


def log_choose(log_factorial: NDArray[np.float64], n: Any, k: Any) -> Any:
    """Logarithm of the binomial coefficient, from a table of `log_factorials`."""
    return log_factorial[n] - log_factorial[k] - log_factorial[n - k]


def first_hit_probabilities(
    size: NDArray[np.int64], relevant: NDArray[np.int64], visible: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """P(the first relevant document stands at rank t) when ``size`` documents come in random order, for t <= visible.

    This is C(size - t, relevant - 1) / C(size, relevant). Returns flat arrays: index of the query, t from 1,
    probability.
    """
    length = np.where(relevant > 0, np.clip(visible, 0, size - relevant + 1), 0)
    query = np.repeat(np.arange(len(size)), length)
    rank = np.arange(len(query)) - np.repeat(np.cumsum(length) - length, length) + 1
    table = log_factorials(int(size.max(initial=0)))
    n, r = size[query], relevant[query]
    return query, rank, np.exp(log_choose(table, n - rank, r - 1) - log_choose(table, n, r))


def mean_products(factors: NDArray[np.float64], sizes: NDArray[np.int64], upto: int) -> NDArray[np.float64]:
    """a[b, m] = mean over the m-subsets of row b's first ``sizes[b]`` factors of their product, m = 0..upto.

    These are elementary symmetric polynomials over binomial coefficients. Rows come in descending order of size. Taking
    the factors one by one, a_m after j factors is ((j - m) a_m + m f_j a_{m-1}) / j: means of means, so nothing
    overflows.
    """
    average = np.zeros((len(sizes), upto + 1))
    average[:, 0] = 1
    ascending = sizes[::-1]
    m = np.arange(1, upto + 1)
    for j in range(1, int(sizes.max(initial=0)) + 1):
        rows = len(sizes) - int(np.searchsorted(ascending, j))  # rows that have a j-th factor
        top = min(j, upto)
        a = average[:rows]
        a[:, 1 : top + 1] = ((j - m[:top]) * a[:, 1 : top + 1] + m[:top] * factors[:rows, j - 1, None] * a[:, :top]) / j
    return average


def mean_products_of_levels(factors: NDArray[np.float64], counts: NDArray[np.int64], upto: int) -> NDArray[np.float64]:
    """The same for one long list with ``counts[l]`` factors of the value ``factors[l]``, in ascending order.

    One level is added at a time. Of m factors, k are among the j of the lower levels with a hypergeometric probability,
    and the others have the value f of the new level: a'_m = sum_k P(k | m) a_k f^(m - k). All terms are positive, and
    the relative error of 1e-8 is that of the logarithms of factorials. By Maclaurin's inequality a_m is at most the
    mean factor to the power of m, so the result ends where that falls below 1e-20, and what follows is negligible.

    >>> mean_products_of_levels(np.array([0.5, 1.0]), np.array([1, 1]), 2).round(12).tolist()
    [1.0, 0.75, 0.5]
    """
    table = log_factorials(int(counts.sum()))
    average, before = np.ones(1), 0
    for factor, count in zip(factors.tolist(), counts.tolist(), strict=True):
        n = before + count
        last = _last_product(factors, counts, n, upto)
        average = _with_level(average, before, count, math.log(factor), last, table)
        before = n
    return average


def products_work(factors: NDArray[np.float64], counts: NDArray[np.int64], upto: int) -> float:
    """Number of terms that `mean_products_of_levels` sums."""
    lengths = [_last_product(factors, counts, n, upto) + 1 for n in np.cumsum(counts).tolist()]
    return float(sum(a * b for a, b in itertools.pairwise([1, *lengths])))


def _last_product(factors: NDArray[np.float64], counts: NDArray[np.int64], n: int, upto: int) -> int:
    """The largest m of which the mean product of m of the first n factors is computed."""
    used = np.minimum(counts, np.maximum(n - (np.cumsum(counts) - counts), 0))
    mean = float(factors @ used) / n
    return min(upto, n, math.ceil(math.log(_NEGLIGIBLE) / math.log(mean)) if mean < 1 else n)


def _with_level(
    average: NDArray[np.float64], before: int, count: int, log_factor: float, last: int, table: NDArray[np.float64]
) -> NDArray[np.float64]:
    """One step of `mean_products_of_levels`: ``count`` more factors after the first ``before``."""
    m = np.arange(last + 1)
    result = np.zeros(last + 1)
    log_all = log_choose(table, before + count, m)
    rest = m[: count + 1]  # factors of the new level
    log_rest = log_choose(table, count, rest) + rest * log_factor
    for k in range(min(len(average), last + 1)):
        stop = min(last, k + count) + 1
        log_terms = log_rest[: stop - k] - log_all[k:stop]
        log_terms += log_choose(table, before, k) + math.log(average[k])
        result[k:stop] += np.exp(log_terms, out=log_terms)
    return result


def arrangements(items: list[T]) -> list[tuple[T, ...]]:
    """The distinct orders of items, in ascending order.

    >>> arrangements([1, 0, 1])
    [(0, 1, 1), (1, 0, 1), (1, 1, 0)]
    """
    rows: list[dict[int, T]] = [{}]
    for value in sorted(set(items)):
        rows = [
            row | dict.fromkeys(chosen, value)
            for row in rows
            for chosen in itertools.combinations([i for i in range(len(items)) if i not in row], items.count(value))
        ]
    return sorted(tuple(row[i] for i in range(len(items))) for row in rows)


def random_orders(draws: int, items: int, block: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Random permutations of 0..items-1, a row each, always the same ones; ``block`` keeps items in their blocks.

    A single block has the permutations of no blocks, so that a constant scorer gets the expected value of a measure
    whose orders are sampled.
    """
    keys = np.random.default_rng(0).random((draws, items))
    return np.argsort(keys if block is None else keys + block, axis=1)
