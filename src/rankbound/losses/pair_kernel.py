"""The one kernel of the pairwise losses: pairs of different label, weighted or not, nothing stored per pair.

Items come sorted by label, highest first; a row is compared with the columns of lower label. With d = x_i - x_j for i
of the higher label:

=========  ==============================  ==================================================================
cost       of a pair                       source
=========  ==============================  ==================================================================
logistic   log(1 + exp(-d))                RankNet; times |swap delta|: LambdaRank, metric optimisation eqs. 7-9
square     (1 - tanh(d/2))²                Köppel et al., DirectRanker
tanh       log(1 + exp(-tanh(d/2)))        DirectRanker as in the paper on neural networks in ranking
=========  ==============================  ==================================================================

The hessian is the exact second derivative for the logistic cost and that of Gauss and Newton for the two others: never
negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from rankbound.losses.compiling import helper, kernel
from rankbound.losses.sigmoids import LOGISTIC, factors, log_of_complement, logistic, sigmoid_row, total
from rankbound.losses.swaps import swap_row, swap_tables

__all__ = ["COST_LOGISTIC", "COST_SQUARE", "COST_TANH", "pair_pass"]

COST_LOGISTIC, COST_SQUARE, COST_TANH = range(3)


@helper
def _softplus(d: Any, above: Any) -> Any:
    """log(1 + exp(d)) where above = σ(d) is known."""
    return max(d, d * 0) + log_of_complement(min(above, 1 - above))


@helper
def _cost_row(cost: int, columns: Any, here: float, above: Any, slope: Any, value: Any, pull: Any, bend: Any) -> None:
    """Cost of each pair, and its first and second derivative in x_j - x_i; above and slope are σ and σ' of that."""
    one, two = columns.dtype.type(1), columns.dtype.type(2)
    if cost == COST_LOGISTIC:
        for j in range(len(above)):
            value[j] = _softplus(columns[j] - here, above[j])
            pull[j] = above[j]
            bend[j] = slope[j]
    elif cost == COST_SQUARE:
        for j in range(len(above)):
            miss = two * above[j]  # 1 - tanh((x_i - x_j) / 2)
            value[j] = miss * miss
            pull[j] = two * two * miss * slope[j]
            bend[j] = two * two * two * slope[j] * slope[j]
    else:
        for j in range(len(above)):
            lead = two * above[j] - one  # tanh((x_j - x_i) / 2)
            inner = logistic(lead)
            value[j] = _softplus(lead, inner)
            pull[j] = two * inner * slope[j]
            bend[j] = inner * (one - inner) * (two * slope[j]) * (two * slope[j])


@helper
def _weigh(weight: Any, value: Any, pull: Any, bend: Any) -> None:
    """Multiply cost and derivatives of each pair by its weight."""
    for j in range(len(weight)):
        value[j] *= weight[j]
        pull[j] *= weight[j]
        bend[j] *= weight[j]


@helper
def _add(row: Any, out: Any) -> float:
    """Add a row to what the columns have; gives its sum."""
    for j in range(len(row)):
        out[j] += row[j]
    return total(row)


@helper
def _one_query(
    scores: Any, order: Any, rows: int, columns_from: Any, gains: Any, scale: float,
    cost: int, swap: int, alpha: float, k: float, p: float, with_hessian: bool, gradient: Any, hessian: Any,
) -> Any:  # fmt: skip
    n = len(scores)
    lowest, highest = scores.min(), scores.max()
    middle = lowest + (highest - lowest) / 2
    x = np.empty_like(scores)
    for j in range(n):
        x[j] = alpha * (scores[order[j]] - middle)
    exponentials = factors(x, rows, LOGISTIC)
    above, slope = np.empty_like(x), np.empty_like(x)
    value, pull, bend = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    pulled = np.zeros_like(x)
    bent = np.zeros_like(x)
    measured, result = 0.0, 0.0
    table = np.zeros((5, 0))
    if swap >= 0:
        table, measured = swap_tables(scores, order, gains, swap, k, p)
    weight = np.ones_like(x)
    for i in range(rows):
        start = columns_from[i]
        sigmoid_row(LOGISTIC, x, exponentials, i, start, above, slope)
        _cost_row(cost, x[start:], x[i], above[start:], slope[start:], value[start:], pull[start:], bend[start:])
        if swap >= 0:
            swap_row(swap, table, i, start, weight)
            _weigh(weight[start:], value[start:], pull[start:], bend[start:])
        result += total(value[start:])
        pulled[i] -= _add(pull[start:], pulled[start:])
        if with_hessian:
            bent[i] += _add(bend[start:], bent[start:])
    for j in range(n):
        gradient[order[j]] = scale * alpha * pulled[j]
    if with_hessian:
        for j in range(n):
            hessian[order[j]] = scale * alpha * alpha * bent[j]
    return scale * result, measured


@kernel
def pair_pass(
    scores: Any, offsets: Any, order: Any, rows: Any, columns_from: Any, gains: Any, scales: Any,
    lanes: Any, lane_starts: Any, cost: int, swap: int, alpha: float, k: float, p: float,
    with_hessian: bool, values: Any, measured: Any, gradient: Any, hessian: Any,
) -> None:  # fmt: skip
    """Pairwise loss per query and its gradient; weights of pairs count as constants.

    ``order`` lists each query's items by label, ``rows`` is the number of items above the lowest label,
    ``columns_from`` where each row's lower labels begin; ``scales`` multiply queries. ``swap`` < 0 weighs all pairs
    alike; otherwise the weights are swap deltas of the measure, whose present value goes to ``measured``. Outputs
    must come in as zeros.
    """
    for lane in prange(len(lane_starts) - 1):
        for at in range(lane_starts[lane], lane_starts[lane + 1]):
            q = lanes[at]
            if rows[q] > 0:
                lo, hi = offsets[q], offsets[q + 1]
                values[q], measured[q] = _one_query(
                    scores[lo:hi], order[lo:hi], rows[q], columns_from[lo:hi], gains[lo:hi], scales[q],
                    cost, swap, alpha, k, p, with_hessian,
                    gradient[lo:hi], hessian[lo:hi] if with_hessian else hessian,
                )  # fmt: skip
