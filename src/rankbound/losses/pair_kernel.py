"""The kernel of the pairwise losses: sums over pairs of different labels, with or without weights.

Nothing is stored per pair. Items are sorted by label, highest first; a row is compared with the columns of lower label.
With d = x_i - x_j, where i has the higher label:

=========  ==============================  ==================================================================
cost       of a pair                       source
=========  ==============================  ==================================================================
logistic   log(1 + exp(-d))                RankNet; times |swap delta|: LambdaRank, metric optimization eqs. 7-9
square     (1 - tanh(d/2))²                Köppel et al., DirectRanker
tanh       log(1 + exp(-tanh(d/2)))        DirectRanker as in the paper on neural networks in ranking
=========  ==============================  ==================================================================

The hessian is the exact second derivative of the logistic cost, and the Gauss-Newton approximation for the other two,
so that it is never negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from rankbound.losses.compiling import helper, kernel
from rankbound.losses.sigmoids import BLOCK, LOGISTIC, centered, factors, log_of_complement, logistic, sigmoid_row
from rankbound.losses.swaps import (
    NORMALIZE_LIGHTGBM,
    adjust_row,
    normalizing_factor,
    rank_row,
    swap_row,
    swap_tables,
)

__all__ = ["COST_LOGISTIC", "COST_SQUARE", "COST_TANH", "pair_pass"]

COST_LOGISTIC, COST_SQUARE, COST_TANH = range(3)


@helper
def _softplus(d: Any, above: Any, zero: Any, one: Any) -> Any:
    """log(1 + exp(d)) for known above = σ(d); zero and one have the type of d, because literals would widen float32."""
    return max(d, zero) + log_of_complement(min(above, one - above))


@helper
def _cost_row(cost: int, columns: Any, here: float, above: Any, slope: Any, value: Any, pair_gradient: Any) -> None:
    """Cost of each pair and its derivative in x_j - x_i; above and slope are σ and σ' of that."""
    zero, one, two = columns.dtype.type(0), columns.dtype.type(1), columns.dtype.type(2)
    if cost == COST_LOGISTIC:
        for j in range(len(above)):
            value[j] = _softplus(columns[j] - here, above[j], zero, one)
            pair_gradient[j] = above[j]
    elif cost == COST_SQUARE:
        for j in range(len(above)):
            error = two * above[j]  # 1 - tanh((x_i - x_j) / 2)
            value[j] = error * error
            pair_gradient[j] = two * two * error * slope[j]
    else:
        for j in range(len(above)):
            activation = two * above[j] - one  # tanh((x_j - x_i) / 2)
            inner = logistic(activation)
            value[j] = _softplus(activation, inner, zero, one)
            pair_gradient[j] = two * inner * slope[j]


@helper
def _logistic_pairs(x: Any, exponentials: Any, i: int, start: int, end: int, weight: Any, sorted_gradient: Any) -> Any:
    """Weighted logistic cost of row i, whose gradient is added to the columns; returns the cost and the row's part."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    here = x[i]
    result, own_gradient = 0.0, 0.0
    for begin in range(start, end, BLOCK):
        first, last = np.uintp(begin), np.uintp(min(begin + BLOCK, end))
        cost, pair_gradient = zero, zero
        if len(exponentials) > 0:
            own = exponentials[i]
            for j in range(first, last):
                above = exponentials[j] / (exponentials[j] + own)
                contribution = above * weight[j]
                cost += _softplus(x[j] - here, above, zero, one) * weight[j]
                sorted_gradient[j] += contribution
                pair_gradient += contribution
        else:
            for j in range(first, last):
                above = logistic(x[j] - here)
                contribution = above * weight[j]
                cost += _softplus(x[j] - here, above, zero, one) * weight[j]
                sorted_gradient[j] += contribution
                pair_gradient += contribution
        result += cost
        own_gradient += pair_gradient
    return result, own_gradient


@helper
def _two_rows(
    x: Any, exponentials: Any, i: int, start: int, end: int, weight: Any, other_weight: Any, sorted_gradient: Any
) -> Any:
    """The same for rows i and i + 1, which need a single division: 1/a = b/(a b). Their own gradient is added too."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    here0, here1, own0, own1 = x[i], x[i + 1], exponentials[i], exponentials[i + 1]
    result, own_gradient0, own_gradient1 = 0.0, 0.0, 0.0
    for begin in range(start, end, BLOCK):
        cost, gradient0, gradient1 = zero, zero, zero
        for j in range(np.uintp(begin), np.uintp(min(begin + BLOCK, end))):
            other = exponentials[j]
            both0, both1 = other + own0, other + own1
            ratio = other / (both0 * both1)
            above0, above1 = both1 * ratio, both0 * ratio
            contribution0, contribution1 = above0 * weight[j], above1 * other_weight[j]
            cost += _softplus(x[j] - here0, above0, zero, one) * weight[j]
            cost += _softplus(x[j] - here1, above1, zero, one) * other_weight[j]
            sorted_gradient[j] += contribution0 + contribution1
            gradient0 += contribution0
            gradient1 += contribution1
        result += cost
        own_gradient0 += gradient0
        own_gradient1 += gradient1
    sorted_gradient[i] -= own_gradient0
    sorted_gradient[i + 1] -= own_gradient1
    return result, own_gradient0 + own_gradient1


@helper
def _hessian_row(cost: int, above: Any, slope: Any, pair_hessian: Any) -> None:
    """Second derivative of each pair's cost, or its Gauss-Newton approximation."""
    one, two = above.dtype.type(1), above.dtype.type(2)
    if cost == COST_LOGISTIC:
        for j in range(len(above)):
            pair_hessian[j] = slope[j]
    elif cost == COST_SQUARE:
        for j in range(len(above)):
            pair_hessian[j] = two * two * two * slope[j] * slope[j]
    else:
        for j in range(len(above)):
            inner = logistic(two * above[j] - one)
            pair_hessian[j] = inner * (one - inner) * (two * slope[j]) * (two * slope[j])


@helper
def _dot(row: Any, weight: Any) -> float:
    """Weighted sum of a row: blocks in its own precision, sums of blocks in float64."""
    result = 0.0
    for begin in range(0, len(row), BLOCK):
        source, by = row[begin : begin + BLOCK], weight[begin : begin + BLOCK]
        partial = row.dtype.type(0)
        for j in range(len(source)):
            partial += source[j] * by[j]
        result += partial
    return result


@helper
def _add_weighted(row: Any, weight: Any, out: Any) -> float:
    """Add a weighted row to the columns; returns its sum, computed by blocks as above."""
    result = 0.0
    for begin in range(0, len(row), BLOCK):
        source, by, target = row[begin : begin + BLOCK], weight[begin : begin + BLOCK], out[begin : begin + BLOCK]
        partial = row.dtype.type(0)
        for j in range(len(source)):
            contribution = source[j] * by[j]
            target[j] += contribution
            partial += contribution
        result += partial
    return result


@helper
def _one_query(
    scores: Any, ranked_by: Any, order: Any, rows: int, columns_from: Any, gains: Any, scale: float, levels: Any,
    pair_weights: Any, first: int, discounts: Any, k: float, cost: int, swap: int, alpha: float, mu: float,
    truncation: int, normalization: int, measure_scores: bool, with_hessian: bool, gradient: Any, hessian: Any,
) -> Any:  # fmt: skip
    n = len(scores)
    x, largest = centered(scores, order, alpha)
    exponentials = factors(x, largest, rows, LOGISTIC)
    above, slope = np.empty_like(x), np.empty_like(x)
    value, pair_gradient, pair_hessian = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    sorted_gradient, sorted_hessian = np.zeros_like(x), np.zeros_like(x)
    measured, result, lambdas = 0.0, 0.0, 0.0
    table, first_stop = np.zeros((0, 0), x.dtype), -1
    if swap >= 0:
        table, first_stop, measured = swap_tables(
            swap, ranked_by, order, gains, columns_from, levels, pair_weights, first, discounts, k, mu
        )
        if measure_scores:  # the ranks are not those of the scores, but the measure is that of the scores
            _, _, measured = swap_tables(
                swap, scores, order, gains, columns_from, levels, pair_weights, first, discounts, k, mu
            )
    by_distance = normalization == NORMALIZE_LIGHTGBM and largest > 0.0
    is_adjusted = swap >= 0 and (truncation > 0 or by_distance)
    ranks = rank_row(swap, table) if is_adjusted else x
    weight, other_weight = np.ones_like(x), np.ones_like(x)
    in_twos = cost == COST_LOGISTIC and not with_hessian and len(exponentials) > 0
    taken = 0
    for i in range(rows):
        if i < taken:
            continue
        start = columns_from[i]
        if in_twos and i + 1 < rows and columns_from[i + 1] == start:
            if swap >= 0:
                swap_row(swap, table, first_stop, i, start, weight)
                swap_row(swap, table, first_stop, i + 1, start, other_weight)
            if is_adjusted:
                adjust_row(weight, x, i, start, ranks, truncation, by_distance, alpha)
                adjust_row(other_weight, x, i + 1, start, ranks, truncation, by_distance, alpha)
            paid, own = _two_rows(x, exponentials, i, start, n, weight, other_weight, sorted_gradient)
            result += paid
            lambdas += own
            taken = i + 2
            continue
        if swap >= 0:
            swap_row(swap, table, first_stop, i, start, weight)
        if is_adjusted:
            adjust_row(weight, x, i, start, ranks, truncation, by_distance, alpha)
        if cost == COST_LOGISTIC and not with_hessian:  # one loop is enough
            paid, own = _logistic_pairs(x, exponentials, i, start, n, weight, sorted_gradient)
            result += paid
            lambdas += own
            sorted_gradient[i] -= own
            continue
        sigmoid_row(LOGISTIC, x, exponentials, i, start, n, above, slope)
        _cost_row(cost, x[start:], x[i], above[start:], slope[start:], value[start:], pair_gradient[start:])
        if with_hessian:
            _hessian_row(cost, above[start:], slope[start:], pair_hessian[start:])
        result += _dot(value[start:], weight[start:])
        own = _add_weighted(pair_gradient[start:], weight[start:], sorted_gradient[start:])
        lambdas += own
        sorted_gradient[i] -= own
        if with_hessian:
            sorted_hessian[i] += _add_weighted(pair_hessian[start:], weight[start:], sorted_hessian[start:])
    scale *= normalizing_factor(normalization, 2.0 * scale * alpha * lambdas)
    for j in range(n):
        gradient[order[j]] = scale * alpha * sorted_gradient[j]
    if with_hessian:
        for j in range(n):
            hessian[order[j]] = scale * alpha * alpha * sorted_hessian[j]
    return scale * result, measured


@kernel
def pair_pass(
    scores: Any, ranked_by: Any, offsets: Any, order: Any, rows: Any, columns_from: Any, gains: Any, scales: Any,
    cuts: Any, levels: Any, pair_weights: Any, discounts: Any, blocks: Any, block_starts: Any,
    cost: int, swap: int, alpha: float, mu: float, truncation: int, normalization: int, measure_scores: bool,
    with_hessian: bool, values: Any, measured: Any, gradient: Any, hessian: Any,
) -> None:  # fmt: skip
    """Compute the pairwise loss of each query and its gradient; the weights of pairs count as constants.

    ``order`` lists the items of each query by label, ``rows`` is the number of items above the lowest label,
    ``columns_from`` where the lower labels of each row begin; ``scales`` multiply queries. ``swap`` < 0 gives all pairs
    the weight 1; otherwise it is the form of the swap deltas (see `swap_tables`) that weight the pairs, and the
    measure of the present ranking is written to ``measured``. Swap deltas and ``truncation`` (0 for none) refer to the
    ranks by ``ranked_by``; ``measure_scores`` has the measure computed for the ranks by the scores instead.
    ``normalization`` is an index into `NORMALIZATIONS`. The outputs must be zeros on entry.
    """
    for block in prange(len(block_starts) - 1):
        for at in range(block_starts[block], block_starts[block + 1]):
            q = blocks[at]
            if rows[q] > 0:
                lo, hi = offsets[q], offsets[q + 1]
                values[q], measured[q] = _one_query(
                    scores[lo:hi], ranked_by[lo:hi], order[lo:hi], rows[q], columns_from[lo:hi], gains[lo:hi],
                    scales[q], levels, pair_weights, lo, discounts, cuts[q], cost, swap, alpha, mu,
                    truncation, normalization, measure_scores, with_hessian,
                    gradient[lo:hi], hessian[lo:hi] if with_hessian else hessian,
                )  # fmt: skip
