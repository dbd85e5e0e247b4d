"""The kernel of the smooth measures: value and gradient in one pass over rows x items; nothing is stored per pair.

The items of a query are sorted so that those that need a smooth rank (they have gain) come first. For each of these
rows the kernel fills a buffer with σ(x_j - x_i), sums it, computes the term of the measure and its derivatives in these
sums, and adds the contribution of the row to the gradient. Memory is O(items) per thread. Four rows are processed at
once where the logistic factors and the term depends on the rank alone, or its derivative is known beforehand.

With R the smooth rank, H the smooth number of relevant items above, C the smooth probability that none is above:

=========  =======================  ========================================================================
measure    term of a row            source
=========  =======================  ========================================================================
nDCG       1 / log2(1 + R)          Qin, Liu & Li eq. 21; thesis eq. 2.10
AP         (1 + H) / R              thesis eq. 2.11; metric optimization eq. 15
RR         C / R                    metric optimization eq. 16
nRBP       p^(R - 1)                metric optimization eq. 5, its rank made smooth
precision  1                        Qin, Liu & Li eq. 13; makes sense with a cutoff only
pairs      R - 1 over some columns  thesis eq. 2.12 (U: the columns that are not relevant); Kendall's tau
coupled    (1 + B) / R              Qin, Liu & Li eq. 22: AP whose hits B are steps of slope beta between smooth ranks
=========  =======================  ========================================================================

A cutoff k multiplies a term by the smooth truncation σ(beta (k + 1/2 - R)).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from rankbound.losses.compiling import helper, kernel
from rankbound.losses.sigmoids import (
    BLOCK,
    add_row,
    centered,
    factors,
    in_strides,
    logistic,
    padded,
    sigmoid_row,
)

__all__ = ["AP", "COUPLED", "NDCG", "NRBP", "PAIRS", "PRECISION", "RR", "smooth_pass", "weighted_term"]

NDCG, AP, RR, NRBP, PRECISION, PAIRS, COUPLED = range(7)
_SHORT = 1024  # items of a list whose rows go in fours; beyond, four buffers no longer fit where they are fast


@helper
def _truncation(rank: float, k: float, beta: float) -> Any:
    """Smooth "rank <= k" and its derivative; k = 0 means no cutoff."""
    if k <= 0.0:
        return 1.0, 0.0
    inside = logistic(beta * (k + 0.5 - rank))
    return inside, -beta * inside * (1.0 - inside)


@helper
def _term(measure: int, rank: float, hits: float, no_earlier_hit: float, p: float) -> Any:
    """Term of a row without cutoff, and its derivatives in rank, hits and no_earlier_hit."""
    if measure == NDCG:
        log_rank = math.log2(1.0 + rank)
        return 1.0 / log_rank, -1.0 / (log_rank * log_rank * (1.0 + rank) * math.log(2.0)), 0.0, 0.0
    if measure == AP:
        return (1.0 + hits) / rank, -(1.0 + hits) / (rank * rank), 1.0 / rank, 0.0
    if measure == RR:
        return no_earlier_hit / rank, -no_earlier_hit / (rank * rank), 0.0, 1.0 / rank
    if measure == NRBP:
        kept = p ** (rank - 1.0)
        return kept, kept * math.log(p), 0.0, 0.0
    if measure == PAIRS:
        return rank - 1.0, 1.0, 0.0, 0.0
    return 1.0, 0.0, 0.0, 0.0


@helper
def weighted_term(
    measure: int, rank: float, hits: float, no_earlier_hit: float, weight: float, beta: float, k: float, p: float
) -> Any:
    """Weighted and truncated term of a row, and its derivatives in rank, hits and no_earlier_hit."""
    term, d_rank, d_hits, d_no_earlier_hit = _term(measure, rank, hits, no_earlier_hit, p)
    inside, d_inside = _truncation(rank, k, beta)
    return (
        weight * term * inside,
        weight * (d_rank * inside + term * d_inside),
        weight * d_hits * inside,
        weight * d_no_earlier_hit * inside,
    )


@helper
def _add(row: Any, factor: float, start: int, end: int, gradient: Any, hessian: Any) -> float:
    """Add factor * row to the gradient of its columns, and |factor * row| to the hessian; returns its sum."""
    if len(hessian) > 0:
        c = row.dtype.type(factor)
        for j in range(np.uintp(start), np.uintp(end)):
            hessian[j] += abs(c * row[j])
    return add_row(row, factor, start, end, gradient)


@helper
def _none_above(value: Any) -> float:
    """Product of 1 - σ over a row; a sigmoid beyond 1 counts as 1."""
    no_earlier_hit = 1.0
    for j in range(len(value)):
        no_earlier_hit *= max(1.0 - value[j], 0.0)
    return no_earlier_hit


@helper
def _coupled_ranks(ranks: Any, weights: Any, beta: float, k: float, out: Any, like: Any) -> float:
    """AP of smooth ranks by Qin, Liu & Li eq. 22, and its derivative in each rank; O(P^2), nothing stored per pair."""
    rows = len(ranks)
    result = 0.0
    contribution, hits, rank_change = np.empty(rows), np.ones(rows), np.zeros(rows)
    for i in range(rows):
        inside, _ = _truncation(ranks[i], k, beta)
        contribution[i] = weights[i] * inside / ranks[i]
    for i in range(rows):  # each pair once: the other step is 1 - this one
        own_hits, own_change = 0.0, 0.0
        for j in range(i):
            above = float(logistic(like.dtype.type(beta * (ranks[i] - ranks[j]))))
            own_hits += above
            hits[j] += 1.0 - above
            moved = above * (1.0 - above) * (contribution[i] - contribution[j])
            own_change += moved
            rank_change[j] -= moved
        hits[i] += own_hits
        rank_change[i] += own_change
    for i in range(rows):
        inside, d_inside = _truncation(ranks[i], k, beta)
        result += hits[i] * contribution[i]
        out[i] = hits[i] * weights[i] * (d_inside / ranks[i] - inside / ranks[i] ** 2) + beta * rank_change[i]
    return result


@helper
def _rows_in_fours(
    exponentials: Any,
    rows: int,
    weights: Any,
    measure: int,
    beta: float,
    k: float,
    p: float,
    sorted_gradient: Any,
    sorted_hessian: Any,
) -> float:
    """Value, gradient and hessian of a measure of ranks alone for a short list, four rows at a time.

    In short lists the start and the end of a loop cost as much as its body. Two rows need a single division,
    1/a = b/(a b); the exponentials are far from overflow. Rows beyond the last one have weight 0. An item is compared
    with itself too: this adds 1/2 to its rank, cancels in the gradient, and is subtracted from the hessian.
    ``sorted_hessian`` is empty if no hessian is requested.
    """
    zero, one = exponentials.dtype.type(0), exponentials.dtype.type(1)
    slope0, slope1 = np.empty_like(exponentials), np.empty_like(exponentials)  # without the factor of their row
    slope2, slope3 = np.empty_like(exponentials), np.empty_like(exponentials)
    end, result = np.uintp(len(exponentials)), 0.0
    for i in range(0, rows, 4):
        i1, i2, i3 = min(i + 1, rows - 1), min(i + 2, rows - 1), min(i + 3, rows - 1)
        own0, own1, own2, own3 = exponentials[i], exponentials[i1], exponentials[i2], exponentials[i3]
        rank0, rank1, rank2, rank3 = zero, zero, zero, zero
        sum0, sum1, sum2, sum3 = zero, zero, zero, zero
        for j in range(end):
            other = exponentials[j]
            both0, both1, both2, both3 = other + own0, other + own1, other + own2, other + own3
            inverse01, inverse23 = one / (both0 * both1), one / (both2 * both3)
            inverse0, inverse1 = both1 * inverse01, both0 * inverse01
            inverse2, inverse3 = both3 * inverse23, both2 * inverse23
            above0, above1, above2, above3 = other * inverse0, other * inverse1, other * inverse2, other * inverse3
            slope0[j], slope1[j] = above0 * inverse0, above1 * inverse1
            slope2[j], slope3[j] = above2 * inverse2, above3 * inverse3
            rank0, rank1, rank2, rank3 = rank0 + above0, rank1 + above1, rank2 + above2, rank3 + above3
            sum0, sum1, sum2, sum3 = sum0 + slope0[j], sum1 + slope1[j], sum2 + slope2[j], sum3 + slope3[j]
        term0, d0, _, _ = weighted_term(measure, 0.5 + rank0, 0.0, 1.0, weights[i], beta, k, p)
        weight1 = weights[i1] if i + 1 < rows else 0.0
        term1, d1, _, _ = weighted_term(measure, 0.5 + rank1, 0.0, 1.0, weight1, beta, k, p)
        weight2 = weights[i2] if i + 2 < rows else 0.0
        term2, d2, _, _ = weighted_term(measure, 0.5 + rank2, 0.0, 1.0, weight2, beta, k, p)
        weight3 = weights[i3] if i + 3 < rows else 0.0
        term3, d3, _, _ = weighted_term(measure, 0.5 + rank3, 0.0, 1.0, weight3, beta, k, p)
        result += term0 + term1 + term2 + term3
        c0, c1 = exponentials.dtype.type(d0) * own0, exponentials.dtype.type(d1) * own1
        c2, c3 = exponentials.dtype.type(d2) * own2, exponentials.dtype.type(d3) * own3
        for j in range(end):
            sorted_gradient[j] += c0 * slope0[j] + c1 * slope1[j] + c2 * slope2[j] + c3 * slope3[j]
        sorted_gradient[i] -= c0 * sum0
        sorted_gradient[i1] -= c1 * sum1
        sorted_gradient[i2] -= c2 * sum2
        sorted_gradient[i3] -= c3 * sum3
        if len(sorted_hessian) > 0:
            c0, c1, c2, c3 = abs(c0), abs(c1), abs(c2), abs(c3)
            for j in range(end):
                sorted_hessian[j] += c0 * slope0[j] + c1 * slope1[j] + c2 * slope2[j] + c3 * slope3[j]
            sorted_hessian[i] += c0 * (sum0 - 2 * slope0[i])
            sorted_hessian[i1] += c1 * (sum1 - 2 * slope1[i1])
            sorted_hessian[i2] += c2 * (sum2 - 2 * slope2[i2])
            sorted_hessian[i3] += c3 * (sum3 - 2 * slope3[i3])
    return result


@helper
def _ranks_in_fours(exponentials: Any, rows: int, ranks: Any) -> None:
    """Compute smooth ranks only, four rows at a time."""
    zero = exponentials.dtype.type(0)
    for i in range(0, rows, 4):
        i1, i2, i3 = min(i + 1, rows - 1), min(i + 2, rows - 1), min(i + 3, rows - 1)
        own0, own1, own2, own3 = exponentials[i], exponentials[i1], exponentials[i2], exponentials[i3]
        sum0, sum1, sum2, sum3 = 0.5, 0.5, 0.5, 0.5
        for begin in range(0, len(exponentials), BLOCK):
            partial0, partial1, partial2, partial3 = zero, zero, zero, zero
            for j in range(np.uintp(begin), np.uintp(min(begin + BLOCK, len(exponentials)))):
                other = exponentials[j]
                both0, both1, both2, both3 = other + own0, other + own1, other + own2, other + own3
                ratio01, ratio23 = other / (both0 * both1), other / (both2 * both3)
                partial0, partial1 = partial0 + both1 * ratio01, partial1 + both0 * ratio01
                partial2, partial3 = partial2 + both3 * ratio23, partial3 + both2 * ratio23
            sum0, sum1, sum2, sum3 = sum0 + partial0, sum1 + partial1, sum2 + partial2, sum3 + partial3
        ranks[i], ranks[i1], ranks[i2], ranks[i3] = sum0, sum1, sum2, sum3


@helper
def _pairs_in_fours(
    exponentials: Any, n: int, rows: int, columns_from: Any, weights: Any, sorted_gradient: Any
) -> float:
    """Weighted sum of the sigmoids of rows and columns, and its gradient, four rows at a time.

    The weights of the rows are known beforehand, so that each pair is added to the gradient at once. The pair of an
    item with itself cancels.
    """
    zero, one = exponentials.dtype.type(0), exponentials.dtype.type(1)
    result, i, others, column_gradient = 0.0, 0, exponentials[:0], exponentials[:0]
    while i < rows:
        start = columns_from[i]
        last = i + 1
        while last < rows and columns_from[last] == start:
            last += 1
        others = padded(exponentials[start:n], in_strides(n - start))
        column_gradient = np.zeros_like(others)
        for at in range(i, last, 4):
            at1, at2, at3 = min(at + 1, last - 1), min(at + 2, last - 1), min(at + 3, last - 1)
            own0, own1, own2, own3 = exponentials[at], exponentials[at1], exponentials[at2], exponentials[at3]
            weight0 = exponentials.dtype.type(weights[at])  # rows beyond the last one have weight 0
            weight1 = exponentials.dtype.type(weights[at1]) if at + 1 < last else zero
            weight2 = exponentials.dtype.type(weights[at2]) if at + 2 < last else zero
            weight3 = exponentials.dtype.type(weights[at3]) if at + 3 < last else zero
            c0, c1, c2, c3 = weight0 * own0, weight1 * own1, weight2 * own2, weight3 * own3
            for begin in range(0, len(others), BLOCK):
                value0, value1, value2, value3 = zero, zero, zero, zero
                sum0, sum1, sum2, sum3 = zero, zero, zero, zero
                for j in range(np.uintp(begin), np.uintp(min(begin + BLOCK, len(others)))):
                    other = others[j]
                    both0, both1, both2, both3 = other + own0, other + own1, other + own2, other + own3
                    inverse01, inverse23 = one / (both0 * both1), one / (both2 * both3)
                    inverse0, inverse1 = both1 * inverse01, both0 * inverse01
                    inverse2, inverse3 = both3 * inverse23, both2 * inverse23
                    above0, above1 = other * inverse0, other * inverse1
                    above2, above3 = other * inverse2, other * inverse3
                    slope0, slope1 = c0 * (above0 * inverse0), c1 * (above1 * inverse1)
                    slope2, slope3 = c2 * (above2 * inverse2), c3 * (above3 * inverse3)
                    value0, value1, value2, value3 = value0 + above0, value1 + above1, value2 + above2, value3 + above3
                    sum0, sum1, sum2, sum3 = sum0 + slope0, sum1 + slope1, sum2 + slope2, sum3 + slope3
                    column_gradient[j] += slope0 + slope1 + slope2 + slope3
                result += weights[at] * value0 + float(weight1) * value1
                result += float(weight2) * value2 + float(weight3) * value3
                sorted_gradient[at] -= sum0
                sorted_gradient[at1] -= sum1
                sorted_gradient[at2] -= sum2
                sorted_gradient[at3] -= sum3
        for j in range(start, n):
            sorted_gradient[j] += column_gradient[j - start]
        i = last
    return result


@helper
def _one_query(
    scores: Any, order: Any, rows: int, relevant: int, columns_from: Any, weights: Any,
    measure: int, code: int, alpha: float, beta: float, k: float, p: float,
    with_gradient: bool, with_hessian: bool, gradient: Any, hessian: Any,
) -> float:  # fmt: skip
    n = len(scores)
    x, largest = centered(scores, order, alpha)
    exponentials = factors(x, largest, rows, code)
    end = max(n, len(exponentials))
    sorted_gradient = np.zeros(end, x.dtype)  # gradient and hessian in sorted order
    sorted_hessian = np.zeros(end if with_hessian else 0, x.dtype)
    result = 0.0

    if with_gradient and len(exponentials) > 0:
        done = True
        if measure in (NDCG, NRBP, PRECISION) and n <= _SHORT:
            result = _rows_in_fours(exponentials, rows, weights, measure, beta, k, p, sorted_gradient, sorted_hessian)
        elif with_hessian:
            done = False
        elif measure == PAIRS and k <= 0.0:
            result = _pairs_in_fours(exponentials, n, rows, columns_from, weights, sorted_gradient)
        elif measure == COUPLED:
            ranks, d_ranks = np.empty(rows), np.empty(rows)
            _ranks_in_fours(exponentials, rows, ranks)
            result = _coupled_ranks(ranks, weights, beta, k, d_ranks, x)
            _pairs_in_fours(exponentials, n, rows, columns_from, d_ranks, sorted_gradient)
        else:
            done = False
        if done:
            for j in range(n):
                gradient[order[j]] = alpha * sorted_gradient[j]
            for j in range(n if with_hessian else 0):
                hessian[order[j]] = alpha * alpha * sorted_hessian[j]
            return result

    value, slope = np.empty(end, x.dtype), np.empty(end, x.dtype)
    d_ranks = np.zeros(rows if measure == COUPLED else 0)
    if measure == COUPLED:
        ranks = np.empty(rows)
        for i in range(rows):
            ranks[i] = 1.0 + sigmoid_row(code, x, exponentials, i, 0, end, value, slope)
        result = _coupled_ranks(ranks, weights, beta, k, d_ranks, x)
        if not with_gradient:
            return result

    hits_end = relevant if measure in (AP, RR) else 0  # only these two distinguish relevant columns
    for i in range(rows):
        start = columns_from[i]
        rest = max(start, hits_end)
        hits = sigmoid_row(code, x, exponentials, i, start, hits_end, value, slope) if start < hits_end else 0.0
        others = sigmoid_row(code, x, exponentials, i, rest, end, value, slope)
        if measure == COUPLED:
            d_rank, d_hits, d_no_earlier_hit, no_earlier_hit = d_ranks[i], 0.0, 0.0, 1.0
        else:
            rank = 1.0 + hits + others
            no_earlier_hit = _none_above(value[:relevant]) if measure == RR else 1.0
            contribution, d_rank, d_hits, d_no_earlier_hit = weighted_term(
                measure, rank, hits, no_earlier_hit, weights[i], beta, k, p
            )
            result += contribution
        if not with_gradient:
            continue
        d_relevant = d_rank + d_hits
        if measure == RR:
            one, least = (
                x.dtype.type(1),
                x.dtype.type(1e-30),
            )  # where 1 - σ is 0 the product is 0 too
            a, b = x.dtype.type(d_rank), x.dtype.type(d_no_earlier_hit * no_earlier_hit)
            for j in range(relevant):
                slope[j] *= a - b / max(one - value[j], least)
            d_relevant = 1.0
        own = _add(slope, d_rank, rest, end, sorted_gradient, sorted_hessian)
        if start < hits_end:
            own += _add(slope, d_relevant, start, hits_end, sorted_gradient, sorted_hessian)
        sorted_gradient[i] -= own
        if with_hessian:
            sorted_hessian[i] += (
                abs(d_relevant) * np.abs(slope[start:hits_end]).sum() + abs(d_rank) * slope[rest:].sum()
            )
    if with_gradient:
        for j in range(n):
            gradient[order[j]] = alpha * sorted_gradient[j]
    if with_hessian:
        for j in range(n):
            hessian[order[j]] = alpha * alpha * sorted_hessian[j]
    return result


@kernel
def smooth_pass(
    scores: Any, offsets: Any, order: Any, rows: Any, relevant: Any, columns_from: Any, weights: Any, constants: Any,
    blocks: Any, block_starts: Any, measure: int, code: int, alpha: float, beta: float, k: float, p: float,
    with_gradient: bool, with_hessian: bool, values: Any, gradient: Any, hessian: Any,
) -> None:  # fmt: skip
    """Smooth measure per query and its gradient in the scores.

    ``order`` lists each query's items, those with gain first; ``rows`` says how many these are, ``relevant`` how many
    columns count as hits. ``weights`` (in sorted order) multiply the terms, ``constants`` are added per query, and
    ``columns_from`` is the first column that a row is compared with. ``blocks`` assigns queries to threads.
    ``values``, ``gradient`` and ``hessian`` are written where rows > 0 and must be zeros on entry. The hessian of an
    item is alpha times the sum of |contribution to the gradient| over its pairs: positive, and no smaller than the
    curvature of the sigmoids.
    """
    for block in prange(len(block_starts) - 1):
        for at in range(block_starts[block], block_starts[block + 1]):
            q = blocks[at]
            if rows[q] > 0:
                lo, hi = offsets[q], offsets[q + 1]
                values[q] = constants[q] + _one_query(
                    scores[lo:hi], order[lo:hi], rows[q], relevant[q], columns_from[lo:hi], weights[lo:hi],
                    measure, code, alpha, beta, k, p, with_gradient, with_hessian,
                    gradient[lo:hi] if with_gradient else gradient, hessian[lo:hi] if with_hessian else hessian,
                )  # fmt: skip
