"""The one kernel of the smooth measures: value and gradient in one pass over rows x items, nothing stored per pair.

Items of a query come sorted so that those that need a smooth rank (they have gain) are first. For each of these rows
the kernel fills one buffer with σ(x_j - x_i), sums it, asks the measure for its term and the derivatives of the term
in those sums, and adds the row's share to the gradient. Memory is O(items) per thread.

With R the smooth rank, H the smooth number of relevant items above, C the smooth chance that none is above:

=========  =======================  ========================================================================
measure    term of a row            source
=========  =======================  ========================================================================
nDCG       1 / log2(1 + R)          Qin, Liu & Li eq. 21; thesis eq. 2.10
AP         (1 + H) / R              thesis eq. 2.11; metric optimisation eq. 15
RR         C / R                    metric optimisation eq. 16
nRBP       p^(R - 1)                metric optimisation eq. 5, its rank made smooth
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
from rankbound.losses.sigmoids import add_row, centred, factors, logistic, sigmoid_row

__all__ = ["AP", "COUPLED", "NDCG", "NRBP", "PAIRS", "PRECISION", "RR", "smooth_pass"]

NDCG, AP, RR, NRBP, PRECISION, PAIRS, COUPLED = range(7)


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
def _one_query(
    scores: Any, order: Any, rows: int, relevant: int, columns_from: Any, weights: Any,
    measure: int, code: int, alpha: float, beta: float, k: float, p: float,
    with_gradient: bool, with_hessian: bool, gradient: Any, hessian: Any,
) -> float:  # fmt: skip
    n = len(scores)
    x, largest = centred(scores, order, alpha)
    exponentials = factors(x, largest, rows, code)
    value, slope = np.empty_like(x), np.empty_like(x)
    pulled = np.zeros_like(x)  # gradient and hessian in sorted order
    bent = np.zeros_like(x) if with_hessian else x[:0]
    result = 0.0

    d_ranks = np.zeros(rows if measure == COUPLED else 0)
    if measure == COUPLED:
        ranks = np.empty(rows)
        for i in range(rows):
            ranks[i] = 1.0 + sigmoid_row(code, x, exponentials, i, 0, n, value, slope)
        result = _coupled_ranks(ranks, weights, beta, k, d_ranks, x)
        if not with_gradient:
            return result

    hits_end = relevant if measure in (AP, RR) else 0  # only these two count hits apart from other columns
    for i in range(rows):
        start = columns_from[i]
        rest = max(start, hits_end)
        hits = sigmoid_row(code, x, exponentials, i, start, hits_end, value, slope) if start < hits_end else 0.0
        others = sigmoid_row(code, x, exponentials, i, rest, n, value, slope)
        if measure == COUPLED:
            d_rank, d_hits, d_clear, clear = d_ranks[i], 0.0, 0.0, 1.0
        else:
            rank = 1.0 + hits + others
            clear = _none_above(value[:relevant]) if measure == RR else 1.0
            term, d_rank, d_hits, d_clear = _term(measure, rank, hits, clear, p)
            inside, d_inside = _truncation(rank, k, beta)
            weight = weights[i]
            result += weight * term * inside
            d_rank = weight * (d_rank * inside + term * d_inside)
            d_hits *= weight * inside
            d_clear *= weight * inside
        if not with_gradient:
            continue
        d_relevant = d_rank + d_hits
        if measure == RR:
            one, least = x.dtype.type(1), x.dtype.type(1e-30)  # where 1 - σ is 0 so is the product: nothing is pulled
            a, b = x.dtype.type(d_rank), x.dtype.type(d_clear * clear)
            for j in range(relevant):
                slope[j] *= a - b / max(one - value[j], least)
            d_relevant = 1.0
        own = _add(slope, d_rank, rest, n, pulled, bent)
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
    lanes: Any, lane_starts: Any, measure: int, code: int, alpha: float, beta: float, k: float, p: float,
    with_gradient: bool, with_hessian: bool, values: Any, gradient: Any, hessian: Any,
) -> None:  # fmt: skip
    """Smooth measure per query and its gradient in the scores.

    ``order`` lists each query's items, those with gain first; ``rows`` says how many these are, ``relevant`` how many
    columns count as hits. ``weights`` (in sorted order) multiply the terms, ``constants`` are added per query, and
    ``columns_from`` is the first column that a row is compared with. The threads share the work by ``lanes``.
    ``values``, ``gradient`` and ``hessian`` are written where rows > 0 and must come in as zeros. The hessian is the
    sum of |share of the gradient| * alpha over an item's pairs: positive, and no smaller than the curvature that
    comes from σ.
    """
    for lane in prange(len(lane_starts) - 1):
        for at in range(lane_starts[lane], lane_starts[lane + 1]):
            q = lanes[at]
            if rows[q] > 0:
                lo, hi = offsets[q], offsets[q + 1]
                values[q] = constants[q] + _one_query(
                    scores[lo:hi], order[lo:hi], rows[q], relevant[q], columns_from[lo:hi], weights[lo:hi],
                    measure, code, alpha, beta, k, p, with_gradient, with_hessian,
                    gradient[lo:hi] if with_gradient else gradient, hessian[lo:hi] if with_hessian else hessian,
                )  # fmt: skip
