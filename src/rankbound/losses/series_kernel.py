"""Smooth nDCG, AP and nRBP of many lists with two levels, in a time that is linear in the length of each list.

This is the method of `long_lists` for batches: each list is computed by one thread from start to end. The scores of a
list are sorted into boxes of width 2 / alpha, and the sums over j of w_j σ(alpha (f_j - f_i)) are Chebyshev series of 8
terms per box. The error of each term is below 1e-6 min(σ, 1 - σ), which suits scores in float32. Short lists, and lists
whose scores are spread over too many boxes, are summed pair by pair.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import prange

from rankbound.losses.compiling import helper, kernel, running
from rankbound.losses.long_lists import couplings
from rankbound.losses.sigmoids import LOGISTIC
from rankbound.losses.smooth import APLoss, NDCGLoss, NRBPLoss
from rankbound.losses.smooth_kernel import ADDITIVE, GIVEN, PAIRS, PRECISION_SUM, additive_term_of, precision_term
from rankbound.measures.discounts import BUILT_IN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.base import RankingLoss
    from rankbound.losses.plans import Plan

__all__ = ["has_series", "run_series"]

_TERMS, _WIDTH, _FAR = 8, 2.0, 16
_MOST_BOXES, _FEW_PAIRS = 512, 1500


def has_series(loss: RankingLoss) -> bool:
    """Whether `run_series` computes this loss: nDCG, AP (form "scores") or nRBP, with the logistic sigmoid."""
    if not isinstance(loss, (NDCGLoss, APLoss, NRBPLoss)) or loss.noise != 0 or loss._sigmoid.code != LOGISTIC:
        return False
    return loss._code in (PRECISION_SUM, PAIRS) or (loss._code == ADDITIVE and loss._structure.discount != GIVEN)


def run_series(
    loss: RankingLoss, scores: NDArray[np.float32], offsets: NDArray[np.int64], positions: NDArray[Any], plan: Plan
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Return the measure of each list, and its gradient in the scores, neither bounded nor negated.

    ``positions`` are the relevant items of each list, counted from its start. ``plan`` is that of lists with the same
    relevant items and any number of others: its weights and cutoffs are used, not its order.
    """
    values, gradient = np.zeros(len(plan.rows)), np.empty(len(scores), np.float32)
    structure = loss._structure  # type: ignore[attr-defined]
    first = np.concatenate(([0], np.cumsum(plan.relevant)))
    with running(20 * len(scores)):
        _series_pass(
            scores, offsets, positions.astype(np.int64), first, plan.weights[plan.offsets[:-1]], plan.cuts, plan.rows,
            couplings(_TERMS, _WIDTH, _FAR), loss._code, int(structure.discount) if loss._code == ADDITIVE else 0,  # type: ignore[attr-defined]
            loss._slope, float(loss.beta),  # type: ignore[attr-defined]
            float(structure.parameter) if loss._code == ADDITIVE else 0.0, values, gradient,  # type: ignore[attr-defined]
        )  # fmt: skip
    return np.where(plan.rows > 0, plan.constants + values, 0.0), gradient


# ---- sums of one list ------------------------------------------------------------------------------------------------


@helper
def _add_moments(x: float, weight: float, sums: Any) -> None:
    """Add w T_m(x) for every term, by T_m = 2 x T_{m-1} - T_{m-2}."""
    before, now, twice = weight, weight * x, 2 * x
    sums[0] += before
    for m in range(1, _TERMS):
        sums[m] += now
        before, now = now, twice * now - before


@helper
def _value_of(series: Any, x: float) -> Any:
    """Evaluate a Chebyshev series by Clenshaw's recurrence."""
    ahead, now, twice = 0.0, 0.0, 2 * x
    for m in range(_TERMS - 1, 0, -1):
        ahead, now = now, twice * now - ahead + series[m]
    return series[0] + x * now - ahead


@helper
def _couple(moments: Any, table: Any, limit: float, series: Any) -> None:
    """Compute the series of every box; boxes far above add ``limit`` times their weight."""
    boxes = len(moments)
    series[:] = 0.0
    for s in range(boxes):
        if moments[s, 0] == 0.0 and moments[s, 1] == 0.0 and moments[s, 2] == 0.0:
            continue  # an empty box
        for t in range(boxes):
            if s > t + _FAR:
                series[t, 0] += limit * moments[s, 0]
            elif s >= t - _FAR:
                for m in range(_TERMS):
                    total = 0.0
                    for k in range(_TERMS):
                        total += table[s - t + _FAR, m, k] * moments[s, k]
                    series[t, m] += total


# One kernel has all built-in discounts. numba cannot call functions out of a tuple by index: one name for each.
_term0, _term1, _term2, _term3 = (additive_term_of(discount) for discount in range(len(BUILT_IN)))


@helper
def _additive_term(discount: int, rank: float, weight: float, beta: float, cut: float, parameter: float) -> Any:
    """Weighted and truncated discount of a rank, and its derivative, for the built-in discount with this index."""
    if discount == 0:
        return _term0(rank, weight, beta, cut, parameter)
    if discount == 1:
        return _term1(rank, weight, beta, cut, parameter)
    if discount == 2:
        return _term2(rank, weight, beta, cut, parameter)
    return _term3(rank, weight, beta, cut, parameter)


@helper
def _terms(
    code: int, discount: int, rank: float, hits: float, weight: float, beta: float, cut: float, parameter: float
) -> Any:
    """The contribution of a row, and its derivatives in the rank and in the hits above."""
    if code == ADDITIVE:
        value, d_rank = _additive_term(discount, rank, weight, beta, cut, parameter)
        return value, d_rank, 0.0
    if code == PRECISION_SUM:
        return precision_term(rank, hits, weight, beta, cut)
    return weight * (rank - 1.0 - hits), weight, -weight  # pairs: the items above that are not relevant


@helper
def _by_pairs(
    own: Any, rows: Any, weight: float, cut: float, code: int, discount: int, alpha: float, beta: float,
    parameter: float, gradient: Any,
) -> float:  # fmt: skip
    """Value and gradient of a short list, pair by pair."""
    n, result = len(own), 0.0
    steps = np.empty(n)
    relevant = np.zeros(n)
    for r in range(len(rows)):
        relevant[rows[r]] = 1.0
    for r in range(len(rows)):
        i = rows[r]
        rank, hits = 0.5, -0.5  # an item's σ with itself is 1/2
        for j in range(n):
            steps[j] = 1.0 / (1.0 + math.exp(min(alpha * (float(own[i]) - float(own[j])), 700.0)))
            rank += steps[j]
            hits += relevant[j] * steps[j]
        value, d_rank, d_hits = _terms(code, discount, rank, hits, weight, beta, cut, parameter)
        result += value
        for j in range(n):
            change = alpha * (d_rank + relevant[j] * d_hits) * steps[j] * (1.0 - steps[j])
            gradient[j] += change
            gradient[i] -= change
    return result


@helper
def _by_series(
    own: Any, rows: Any, lowest: float, boxes: int, weight: float, cut: float, tables: Any, code: int, discount: int,
    alpha: float, beta: float, parameter: float, gradient: Any,
) -> float:  # fmt: skip
    """Value and gradient of a list by series."""
    n, count, result = len(own), len(rows), 0.0
    with_hits = code != ADDITIVE
    scale = alpha / _WIDTH
    moments, hit_moments = np.zeros((boxes, _TERMS)), np.zeros((boxes, _TERMS))
    series, slopes = np.empty((boxes, _TERMS)), np.empty((boxes, _TERMS))
    hit_series, hit_slopes = np.empty((boxes, _TERMS)), np.empty((boxes, _TERMS))
    for j in range(n):
        position = scale * (float(own[j]) - lowest)
        box = int(position)
        _add_moments(_WIDTH * (position - box) - 1.0, 1.0, moments[box])
    _couple(moments, tables[0], 1.0, series)
    _couple(moments, tables[1], 0.0, slopes)
    if with_hits:
        for r in range(count):
            position = scale * (float(own[rows[r]]) - lowest)
            box = int(position)
            _add_moments(_WIDTH * (position - box) - 1.0, 1.0, hit_moments[box])
        _couple(hit_moments, tables[0], 1.0, hit_series)
        _couple(hit_moments, tables[1], 0.0, hit_slopes)
    moments[:], hit_moments[:] = 0.0, 0.0
    d_ranks, d_hit = np.empty(count), np.empty(count)
    own_changes = np.empty(count)
    for r in range(count):
        position = scale * (float(own[rows[r]]) - lowest)
        box = int(position)
        x = _WIDTH * (position - box) - 1.0
        rank, hits = 0.5 + _value_of(series[box], x), 0.0
        if with_hits:
            hits = _value_of(hit_series[box], x) - 0.5
        value, d_ranks[r], d_hit[r] = _terms(code, discount, rank, hits, weight, beta, cut, parameter)
        result += value
        own_changes[r] = d_ranks[r] * _value_of(slopes[box], x)
        _add_moments(x, d_ranks[r], moments[box])
        if with_hits:
            own_changes[r] += d_hit[r] * _value_of(hit_slopes[box], x)
            _add_moments(x, d_hit[r], hit_moments[box])
    _couple(moments, tables[1], 0.0, slopes)
    for j in range(n):
        position = scale * (float(own[j]) - lowest)
        box = int(position)
        gradient[j] = alpha * _value_of(slopes[box], _WIDTH * (position - box) - 1.0)
    if with_hits:
        _couple(hit_moments, tables[1], 0.0, hit_slopes)
    for r in range(count):
        i = rows[r]
        change = -own_changes[r]
        if with_hits:
            position = scale * (float(own[i]) - lowest)
            box = int(position)
            change += _value_of(hit_slopes[box], _WIDTH * (position - box) - 1.0)
        gradient[i] += alpha * change
    return result


@kernel
def _series_pass(
    scores: Any, offsets: Any, positions: Any, first: Any, weights: Any, cuts: Any, active: Any, tables: Any,
    code: int, discount: int, alpha: float, beta: float, parameter: float, values: Any, gradient: Any,
) -> None:  # fmt: skip
    for q in prange(len(active)):
        own, out = scores[offsets[q] : offsets[q + 1]], gradient[offsets[q] : offsets[q + 1]]
        rows = positions[first[q] : first[q + 1]]
        out[:] = 0.0
        if active[q] == 0 or len(rows) == len(own):
            continue
        lowest, highest = float(own.min()), float(own.max())
        spread = alpha * (highest - lowest) / _WIDTH
        if len(rows) * len(own) < _FEW_PAIRS or not spread < _MOST_BOXES:
            values[q] = _by_pairs(
                own, rows, weights[q], cuts[q], code, discount, alpha, beta, parameter, out
            )  # fmt: skip
        else:
            values[q] = _by_series(
                own, rows, lowest, int(spread) + 1, weights[q], cuts[q], tables, code, discount, alpha, beta,
                parameter, out,
            )  # fmt: skip
