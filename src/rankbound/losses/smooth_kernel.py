"""The one kernel of the smooth measures: value and gradient in one pass over rows x items, nothing stored per pair.

Items of a query come sorted so that those that need a smooth rank (they have gain) are first. For each of these rows
the kernel fills one buffer with σ(x_j - x_i), sums it, asks the measure for its term and the derivatives of the term
in those sums, and adds the row's share to the gradient. Memory is O(items) per thread. Where the logistic factors and
what a row adds depends on its rank alone, or is known before, four rows go at once.

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

__all__ = ["AP", "COUPLED", "NDCG", "NRBP", "PAIRS", "PRECISION", "RR", "smooth_pass", "weighed_term"]

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
def _term(measure: int, rank: float, hits: float, clear: float, p: float) -> Any:
    """Term of a row without cutoff, and its derivatives in rank, hits and clear."""
    if measure == NDCG:
        log_rank = math.log2(1.0 + rank)
        return 1.0 / log_rank, -1.0 / (log_rank * log_rank * (1.0 + rank) * math.log(2.0)), 0.0, 0.0
    if measure == AP:
        return (1.0 + hits) / rank, -(1.0 + hits) / (rank * rank), 1.0 / rank, 0.0
    if measure == RR:
        return clear / rank, -clear / (rank * rank), 0.0, 1.0 / rank
    if measure == NRBP:
        kept = p ** (rank - 1.0)
        return kept, kept * math.log(p), 0.0, 0.0
    if measure == PAIRS:
        return rank - 1.0, 1.0, 0.0, 0.0
    return 1.0, 0.0, 0.0, 0.0


@helper
def weighed_term(
    measure: int, rank: float, hits: float, clear: float, weight: float, beta: float, k: float, p: float
) -> Any:
    """What a row adds to the measure, cutoff and weight included, and its derivatives in rank, hits and clear."""
    term, d_rank, d_hits, d_clear = _term(measure, rank, hits, clear, p)
    inside, d_inside = _truncation(rank, k, beta)
    return (
        weight * term * inside,
        weight * (d_rank * inside + term * d_inside),
        weight * d_hits * inside,
        weight * d_clear * inside,
    )


@helper
def _add(row: Any, factor: float, start: int, end: int, gradient: Any, hessian: Any) -> float:
    """Add factor * row to the gradient of its columns (and its size to the hessian); gives what the row's item pays."""
    if len(hessian) > 0:
        c = row.dtype.type(factor)
        for j in range(np.uintp(start), np.uintp(end)):
            hessian[j] += abs(c * row[j])
    return add_row(row, factor, start, end, gradient)


@helper
def _none_above(value: Any) -> float:
    """Product of 1 - σ over a row; a sigmoid beyond 1 counts as 1."""
    clear = 1.0
    for j in range(len(value)):
        clear *= max(1.0 - value[j], 0.0)
    return clear


@helper
def _coupled_ranks(ranks: Any, weights: Any, beta: float, k: float, out: Any, like: Any) -> float:
    """AP of smooth ranks by Qin, Liu & Li eq. 22, and its derivative in each rank; O(P^2), nothing stored per pair."""
    rows = len(ranks)
    result = 0.0
    share, hits, pull = np.empty(rows), np.ones(rows), np.zeros(rows)
    for i in range(rows):
        inside, _ = _truncation(ranks[i], k, beta)
        share[i] = weights[i] * inside / ranks[i]
    for i in range(rows):  # each pair once: the other step is 1 - this one
        own_hits, own_pull = 0.0, 0.0
        for j in range(i):
            above = float(logistic(like.dtype.type(beta * (ranks[i] - ranks[j]))))
            own_hits += above
            hits[j] += 1.0 - above
            moved = above * (1.0 - above) * (share[i] - share[j])
            own_pull += moved
            pull[j] -= moved
        hits[i] += own_hits
        pull[i] += own_pull
    for i in range(rows):
        inside, d_inside = _truncation(ranks[i], k, beta)
        result += hits[i] * share[i]
        out[i] = hits[i] * weights[i] * (d_inside / ranks[i] - inside / ranks[i] ** 2) + beta * pull[i]
    return result


@helper
def _rows_in_fours(
    exponentials: Any, rows: int, weights: Any, measure: int, beta: float, k: float, p: float, pulled: Any, bent: Any
) -> float:
    """The sum of a measure of ranks alone, its gradient and hessian for a list that is not long, four rows at a time.

    There the start and the end of a loop cost as much as what is between. Two rows share a division:
    1/a = b/(a b), and the exponentials lie far enough from overflow. The last four may run over: their weight is 0.
    An item is compared with itself too: that is 1/2 in its rank, cancels in the gradient, and is taken back from the
    hessian. ``bent`` is empty if nobody asks for that.
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
        share0, d0, _, _ = weighed_term(measure, 0.5 + rank0, 0.0, 1.0, weights[i], beta, k, p)
        weight1 = weights[i1] if i + 1 < rows else 0.0
        share1, d1, _, _ = weighed_term(measure, 0.5 + rank1, 0.0, 1.0, weight1, beta, k, p)
        weight2 = weights[i2] if i + 2 < rows else 0.0
        share2, d2, _, _ = weighed_term(measure, 0.5 + rank2, 0.0, 1.0, weight2, beta, k, p)
        weight3 = weights[i3] if i + 3 < rows else 0.0
        share3, d3, _, _ = weighed_term(measure, 0.5 + rank3, 0.0, 1.0, weight3, beta, k, p)
        result += share0 + share1 + share2 + share3
        c0, c1 = exponentials.dtype.type(d0) * own0, exponentials.dtype.type(d1) * own1
        c2, c3 = exponentials.dtype.type(d2) * own2, exponentials.dtype.type(d3) * own3
        for j in range(end):
            pulled[j] += c0 * slope0[j] + c1 * slope1[j] + c2 * slope2[j] + c3 * slope3[j]
        pulled[i] -= c0 * sum0
        pulled[i1] -= c1 * sum1
        pulled[i2] -= c2 * sum2
        pulled[i3] -= c3 * sum3
        if len(bent) > 0:
            c0, c1, c2, c3 = abs(c0), abs(c1), abs(c2), abs(c3)
            for j in range(end):
                bent[j] += c0 * slope0[j] + c1 * slope1[j] + c2 * slope2[j] + c3 * slope3[j]
            bent[i] += c0 * (sum0 - 2 * slope0[i])
            bent[i1] += c1 * (sum1 - 2 * slope1[i1])
            bent[i2] += c2 * (sum2 - 2 * slope2[i2])
            bent[i3] += c3 * (sum3 - 2 * slope3[i3])
    return result


@helper
def _ranks_in_fours(exponentials: Any, rows: int, ranks: Any) -> None:
    """Smooth ranks alone, four rows at a time."""
    zero = exponentials.dtype.type(0)
    for i in range(0, rows, 4):
        i1, i2, i3 = min(i + 1, rows - 1), min(i + 2, rows - 1), min(i + 3, rows - 1)
        own0, own1, own2, own3 = exponentials[i], exponentials[i1], exponentials[i2], exponentials[i3]
        sum0, sum1, sum2, sum3 = 0.5, 0.5, 0.5, 0.5
        for begin in range(0, len(exponentials), BLOCK):
            part0, part1, part2, part3 = zero, zero, zero, zero
            for j in range(np.uintp(begin), np.uintp(min(begin + BLOCK, len(exponentials)))):
                other = exponentials[j]
                both0, both1, both2, both3 = other + own0, other + own1, other + own2, other + own3
                share01, share23 = other / (both0 * both1), other / (both2 * both3)
                part0, part1 = part0 + both1 * share01, part1 + both0 * share01
                part2, part3 = part2 + both3 * share23, part3 + both2 * share23
            sum0, sum1, sum2, sum3 = sum0 + part0, sum1 + part1, sum2 + part2, sum3 + part3
        ranks[i], ranks[i1], ranks[i2], ranks[i3] = sum0, sum1, sum2, sum3


@helper
def _pairs_in_fours(exponentials: Any, n: int, rows: int, columns_from: Any, weights: Any, pulled: Any) -> float:
    """The weighed sum of sigmoids of rows and columns, and its gradient, four rows at a time.

    What a row weighs is known before, so that a pair's share of the gradient goes where it belongs at once. That of an
    item with itself cancels.
    """
    zero, one = exponentials.dtype.type(0), exponentials.dtype.type(1)
    result, i, others, pulls = 0.0, 0, exponentials[:0], exponentials[:0]
    while i < rows:
        start = columns_from[i]
        last = i + 1
        while last < rows and columns_from[last] == start:
            last += 1
        others = padded(exponentials[start:n], in_strides(n - start))
        pulls = np.zeros_like(others)
        for at in range(i, last, 4):
            at1, at2, at3 = min(at + 1, last - 1), min(at + 2, last - 1), min(at + 3, last - 1)
            own0, own1, own2, own3 = exponentials[at], exponentials[at1], exponentials[at2], exponentials[at3]
            weight0 = exponentials.dtype.type(weights[at])  # those of rows that run over are 0
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
                    pulls[j] += slope0 + slope1 + slope2 + slope3
                result += weights[at] * value0 + float(weight1) * value1
                result += float(weight2) * value2 + float(weight3) * value3
                pulled[at] -= sum0
                pulled[at1] -= sum1
                pulled[at2] -= sum2
                pulled[at3] -= sum3
        for j in range(start, n):
            pulled[j] += pulls[j - start]
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
    pulled = np.zeros(end, x.dtype)  # gradient and hessian in sorted order
    bent = np.zeros(end if with_hessian else 0, x.dtype)
    result = 0.0

    if with_gradient and len(exponentials) > 0:
        done = True
        if measure in (NDCG, NRBP, PRECISION) and n <= _SHORT:
            result = _rows_in_fours(exponentials, rows, weights, measure, beta, k, p, pulled, bent)
        elif with_hessian:
            done = False
        elif measure == PAIRS and k <= 0.0:
            result = _pairs_in_fours(exponentials, n, rows, columns_from, weights, pulled)
        elif measure == COUPLED:
            ranks, d_ranks = np.empty(rows), np.empty(rows)
            _ranks_in_fours(exponentials, rows, ranks)
            result = _coupled_ranks(ranks, weights, beta, k, d_ranks, x)
            _pairs_in_fours(exponentials, n, rows, columns_from, d_ranks, pulled)
        else:
            done = False
        if done:
            for j in range(n):
                gradient[order[j]] = alpha * pulled[j]
            for j in range(n if with_hessian else 0):
                hessian[order[j]] = alpha * alpha * bent[j]
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

    hits_end = relevant if measure in (AP, RR) else 0  # only these two count hits apart from other columns
    for i in range(rows):
        start = columns_from[i]
        rest = max(start, hits_end)
        hits = sigmoid_row(code, x, exponentials, i, start, hits_end, value, slope) if start < hits_end else 0.0
        others = sigmoid_row(code, x, exponentials, i, rest, end, value, slope)
        if measure == COUPLED:
            d_rank, d_hits, d_clear, clear = d_ranks[i], 0.0, 0.0, 1.0
        else:
            rank = 1.0 + hits + others
            clear = _none_above(value[:relevant]) if measure == RR else 1.0
            share, d_rank, d_hits, d_clear = weighed_term(measure, rank, hits, clear, weights[i], beta, k, p)
            result += share
        if not with_gradient:
            continue
        d_relevant = d_rank + d_hits
        if measure == RR:
            one, least = x.dtype.type(1), x.dtype.type(1e-30)  # where 1 - σ is 0 so is the product: nothing is pulled
            a, b = x.dtype.type(d_rank), x.dtype.type(d_clear * clear)
            for j in range(relevant):
                slope[j] *= a - b / max(one - value[j], least)
            d_relevant = 1.0
        own = _add(slope, d_rank, rest, end, pulled, bent)
        if start < hits_end:
            own += _add(slope, d_relevant, start, hits_end, pulled, bent)
        pulled[i] -= own
        if with_hessian:
            bent[i] += abs(d_relevant) * np.abs(slope[start:hits_end]).sum() + abs(d_rank) * slope[rest:].sum()
    if with_gradient:
        for j in range(n):
            gradient[order[j]] = alpha * pulled[j]
    if with_hessian:
        for j in range(n):
            hessian[order[j]] = alpha * alpha * bent[j]
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
    ``columns_from`` is the first column that a row is compared with. The threads share the work by ``blocks``.
    ``values``, ``gradient`` and ``hessian`` are written where rows > 0 and must come in as zeros. The hessian is the
    sum of |share of the gradient| * alpha over an item's pairs: positive, and no smaller than the curvature that
    comes from σ.
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
