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
so that it is never negative. There is a kernel for each cost and form of weights; a loss compiles its own alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rankbound.losses.compiling import block_kernel, helper
from rankbound.losses.extremes import larger, smaller
from rankbound.losses.memory import empty, indices, zeros
from rankbound.losses.sigmoids import (
    BLOCK,
    centered,
    factors,
    in_strides,
    log_of_complement,
    logistic,
    sigmoid_row,
)
from rankbound.losses.swaps import NORMALIZE_LIGHTGBM, adjust_row, fill_by_score, normalizing_factor, swap_functions

__all__ = ["COST_LOGISTIC", "COST_SQUARE", "COST_TANH", "pair_pass_of"]

COST_LOGISTIC, COST_SQUARE, COST_TANH = range(3)


@helper
def _softplus(d: Any, above: Any, zero: Any, one: Any) -> Any:
    """log(1 + exp(d)) for known above = σ(d); zero and one have the type of d, because literals would widen float32."""
    return larger(d, zero) + log_of_complement(smaller(above, one - above))


@helper
def _logistic_pairs(x: Any, exponentials: Any, i: int, start: int, end: int, weight: Any, sorted_gradient: Any) -> Any:
    """Weighted logistic cost of row i, whose gradient is added to the columns; returns the cost and the row's part."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    here = x[i]
    result, own_gradient = 0.0, 0.0
    for begin in range(start, end, BLOCK):
        first, last = np.uintp(begin), np.uintp(smaller(begin + BLOCK, end))
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
        for j in range(np.uintp(begin), np.uintp(smaller(begin + BLOCK, end))):
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


@cache
def pair_pass_of(cost: int, swap: int) -> Callable[..., None]:
    """Return the kernel of a cost and a form of swap deltas, the weights of pairs; ``swap`` < 0 weights all alike."""
    functions: Any = swap_functions(swap) if swap >= 0 else (None, None)
    fill_table, fill_row = functions

    def pair_pass(
        queries: Any, scores: Any, ranked_by: Any, offsets: Any, order: Any, rows: Any, columns_from: Any, gains: Any,
        scales: Any, cuts: Any, levels: Any, pair_weights: Any, discounts: Any, alpha: float, mu: float,
        truncation: int | None, normalization: int, measure_scores: bool,
        values: Any, measured: Any, gradient: Any, hessian: Any,
    ) -> None:  # fmt: skip
        """Compute the pairwise loss of each query and its gradient; the weights of pairs count as constants.

        ``order`` lists the items of each query by label, ``rows`` is the number of items above the lowest label,
        ``columns_from`` where the lower labels of each row begin; ``scales`` multiply queries. Of a loss with swap
        deltas (see `rankbound.losses.swaps`) the measure of the present ranking is written to ``measured``. Swap deltas
        and ``truncation`` (0 for none) refer to the ranks by ``ranked_by``; ``measure_scores`` has the measure computed
        for the ranks by the scores instead. ``normalization`` is an index into `NORMALIZATIONS`. ``levels`` and
        ``pair_weights`` are arrays for pairs, empty if all have the same weight, and None for other swap deltas.
        ``hessian`` is None if no hessian is requested. ``truncation`` can be None if the weights of pairs are the swap
        deltas alone, which removes the code that adjusts them. The outputs must be zeros on entry.
        """
        for q in queries:
            if rows[q] == 0:
                continue
            lo, hi = offsets[q], offsets[q + 1]
            n, own_order, own_columns = hi - lo, order[lo:hi], columns_from[lo:hi]
            x, largest = centered(scores[lo:hi], own_order, alpha)
            exponentials = factors(x, largest, rows[q], None)
            sorted_gradient, weight, other_weight = zeros(n, x), empty(n, x), empty(n, x)
            by_distance = normalization == NORMALIZE_LIGHTGBM and largest > 0.0
            is_adjusted = by_distance
            if truncation is not None:
                is_adjusted = by_distance or truncation > 0
            if swap >= 0:
                own_gains = gains[lo:hi]
                keys, now, then = empty(in_strides(n), x), indices(n), indices(n)
                position = indices(n)
                for j in range(n):
                    position[own_order[j]] = j
                for turn in range(2 if measure_scores else 1):  # the last one is for the ranks, the first one measures
                    ranking = scores[lo:hi] if measure_scores and turn == 0 else ranked_by[lo:hi]
                    ranked = fill_by_score(ranking, keys, now, then)
                    for rank in range(n):
                        ranked[rank] = position[ranked[rank]]
                    table, first_stop, measure = fill_table(
                        ranked, x, own_gains, own_columns, levels, pair_weights, lo, discounts, cuts[q], mu
                    )
                    if turn == 0:
                        measured[q] = measure
            else:
                table, first_stop = x, -1
                for j in range(n):
                    weight[j], other_weight[j] = 1, 1
            if hessian is not None or cost != COST_LOGISTIC:
                above, slope, value = empty(n, x), empty(n, x), empty(n, x)
                pair_gradient, pair_hessian, sorted_hessian = empty(n, x), empty(n, x), zeros(n, x)
            result, lambdas, taken = 0.0, 0.0, 0
            for i in range(rows[q]):
                if i < taken:
                    continue
                start = own_columns[i]
                if swap >= 0:
                    fill_row(table, first_stop, i, start, weight)
                if swap >= 0 and truncation is not None and is_adjusted:
                    adjust_row(weight, x, i, start, table[len(table) - 1], truncation, by_distance, alpha)
                if hessian is not None or cost != COST_LOGISTIC:
                    sigmoid_row(None, x, exponentials, i, start, n, above, slope)
                    _cost_row(cost, x[start:], x[i], above[start:], slope[start:], value[start:], pair_gradient[start:])
                    result += _dot(value[start:], weight[start:])
                    own = _add_weighted(pair_gradient[start:], weight[start:], sorted_gradient[start:])
                    lambdas += own
                    sorted_gradient[i] -= own
                    if hessian is not None:
                        _hessian_row(cost, above[start:], slope[start:], pair_hessian[start:])
                        own = _add_weighted(pair_hessian[start:], weight[start:], sorted_hessian[start:])
                        sorted_hessian[i] += own
                elif len(exponentials) > 0 and i + 1 < rows[q] and own_columns[i + 1] == start:
                    if swap >= 0:
                        fill_row(table, first_stop, i + 1, start, other_weight)
                    if swap >= 0 and truncation is not None and is_adjusted:
                        adjust_row(other_weight, x, i + 1, start, table[len(table) - 1], truncation, by_distance, alpha)
                    paid, own = _two_rows(x, exponentials, i, start, n, weight, other_weight, sorted_gradient)
                    result += paid
                    lambdas += own
                    taken = i + 2
                else:  # one loop is enough
                    paid, own = _logistic_pairs(x, exponentials, i, start, n, weight, sorted_gradient)
                    result += paid
                    lambdas += own
                    sorted_gradient[i] -= own
            scale = scales[q] * normalizing_factor(normalization, 2.0 * scales[q] * alpha * lambdas)
            values[q] = scale * result
            for j in range(n):
                gradient[lo + own_order[j]] = scale * alpha * sorted_gradient[j]
            if hessian is not None:
                for j in range(n):
                    hessian[lo + own_order[j]] = scale * alpha * alpha * sorted_hessian[j]

    return block_kernel(pair_pass, f"cost {cost}, swap {swap}")
