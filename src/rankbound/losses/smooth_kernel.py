"""The kernel of the smooth measures: value and gradient in one pass over rows x items; nothing is stored per pair.

The items of a query are sorted so that those that need a smooth rank (they have gain) come first. For each of these
rows the kernel fills a buffer with σ(x_j - x_i), sums it, computes the term of the measure and its derivatives in these
sums, and adds the contribution of the row to the gradient. Memory is O(items) per thread. Four rows are processed at
once where the logistic factors and the term depends on the rank alone, or its derivative is known beforehand.

The kernel knows the structure of a measure, not its name. With R the smooth rank of row i, w its weight, d the discount
of the measure, H the smooth number of relevant items above, and q the stop probability of an item:

=============  ===============================================  ====================================================
structure      term of a row                                    source
=============  ===============================================  ====================================================
ADDITIVE       w d(R)                                           Qin, Liu & Li eqs. 13 and 21; Westerborg 2022
                                                                eq. 2.10; Li et al. 2021, eq. 5
PRECISION_SUM  w (1 + H) / R                                    Westerborg 2022, eq. 2.11; Li et al. 2021, eq. 15
COUPLED        w (1 + B) / R                                    Qin, Liu & Li eq. 22: the hits B are steps of slope
                                                                beta between smooth ranks
CASCADE        q_i d(R) prod over j of (1 - q_j σ(x_j - x_i))   Li et al. 2021, eq. 16, where q is 0 or 1
FIRST_HIT      d(R) prod over relevant j of (1 - S_j)           the same in their code: the steps S_j are of slope
                                                                beta between smooth ranks
PAIRS          w (R - 1), or w sum over j of v_ij σ(x_j - x_i)  Westerborg 2022, eq. 2.12; lower levels only
=============  ===============================================  ====================================================

A cutoff k multiplies a term by the smooth truncation σ(beta (k + 1/2 - R)). The discounts and their derivatives are the
functions of `rankbound.measures.discounts.BUILT_IN`, compiled. For any other discount the caller computes the smooth
ranks with `rank_pass` first, evaluates discount and derivative there, and passes them on. There is a kernel for each
structure and discount, so that a loss compiles its own alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rankbound.losses.compiling import block_kernel, helper, inlined_helper
from rankbound.losses.extremes import larger, smaller
from rankbound.losses.memory import empty, zeros
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
from rankbound.measures.discounts import BUILT_IN

__all__ = [
    "ADDITIVE",
    "CASCADE",
    "COUPLED",
    "FIRST_HIT",
    "GIVEN",
    "PAIRS",
    "PRECISION_SUM",
    "additive_term_of",
    "precision_term",
    "rank_pass",
    "smooth_pass_of",
]

ADDITIVE, PRECISION_SUM, COUPLED, CASCADE, PAIRS, FIRST_HIT = range(6)
GIVEN = -1  # in place of the index of a built-in discount: its values and derivatives are passed in
_SHORT = (
    1024  # items of a list up to which four rows are processed at once; the buffers of longer lists leave the cache
)

# The curvature of a pair in the hessian, relative to its gradient: alpha (1 - σ) / 3. Larger values learn too slowly in
# boosting, smaller ones overshoot. The factor 1 - σ counts as at least 1/20: a Newton step is at most 60 / alpha.
_CURVATURE, _LEAST_CURVATURE = 1 / 3, 0.05

# The first column. For the literal 0 numba would compile the functions that are called with it once more.
_FIRST: Any = np.int64(0)

_NEGLIGIBLE = 1e-38  # a probability below the range of float32


@helper
def _truncation(rank: float, k: float, beta: float) -> Any:
    """Smooth "rank <= k" and its derivative; k = 0 means no cutoff."""
    if k <= 0.0:
        return 1.0, 0.0
    inside = logistic(beta * (k + 0.5 - rank))
    return inside, -beta * inside * (1.0 - inside)


@cache
def additive_term_of(discount: int) -> Callable[..., Any]:
    """Return the helper of a built-in discount: the weighted and truncated discount of a rank, and its derivative."""
    value_at = helper(BUILT_IN[discount].value)
    slope_at: Any = helper(BUILT_IN[discount].slope)  # type: ignore[type-var] # all built-in discounts have a slope

    def additive_term(rank: float, weight: float, beta: float, k: float, parameter: float) -> Any:
        value, slope = value_at(rank, parameter), slope_at(rank, parameter)
        inside, d_inside = _truncation(rank, k, beta)
        return weight * value * inside, weight * (slope * inside + value * d_inside)

    return helper(additive_term, f"discount {discount}")


@helper
def precision_term(rank: float, hits: float, weight: float, beta: float, k: float) -> Any:
    """Weighted and truncated precision at a rank with so many hits above, and its derivatives in rank and hits."""
    precision = (1.0 + hits) / rank
    inside, d_inside = _truncation(rank, k, beta)
    return (
        weight * precision * inside,
        weight * precision * (d_inside - inside / rank),
        weight * inside / rank,
    )


@helper
def _no_earlier_stop(value: Any, stops: Any) -> float:
    """Product of 1 - stop * σ over a row; a sigmoid beyond 1 counts as 1."""
    zero, one, result = value.dtype.type(0), value.dtype.type(1), 1.0
    for j in range(len(stops)):
        result *= larger(one - stops[j] * value[j], zero)
    return result


@helper
def _coupled_ranks(ranks: Any, weights: Any, beta: float, k: float, out: Any, like: Any) -> float:
    """AP of smooth ranks by Qin, Liu & Li eq. 22, and its derivative in each rank; O(P^2), nothing stored per pair."""
    rows = len(ranks)
    result = 0.0
    contribution, hits, rank_change = empty(rows, ranks), empty(rows, ranks), zeros(rows, ranks)
    for i in range(rows):
        inside, _ = _truncation(ranks[i], k, beta)
        contribution[i], hits[i] = weights[i] * inside / ranks[i], 1.0
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


@cache
def _first_hit_of(discount: int) -> Callable[..., float]:
    """Return the helper of a built-in discount for FIRST_HIT."""
    additive_term = additive_term_of(discount)

    def first_hit(ranks: Any, beta: float, k: float, parameter: float, out: Any, like: Any) -> float:
        """Discount of the first relevant item by smooth ranks, and its derivative in each rank; O(P^2) at most.

        Items below several others are left as soon as their probability of no hit above is negligible, so that the
        time is about proportional to P once training has begun.
        """
        rows = len(ranks)
        result = 0.0
        for i in range(rows):
            no_hit_above, hits_above = 1.0, 0.0
            for j in range(rows):
                if j != i:
                    above = float(logistic(like.dtype.type(beta * (ranks[i] - ranks[j]))))
                    no_hit_above *= 1.0 - above
                    hits_above += above
                    if no_hit_above < _NEGLIGIBLE:
                        break
            if no_hit_above < _NEGLIGIBLE:
                continue
            value, slope = additive_term(ranks[i], 1.0, beta, k, parameter)
            result += value * no_hit_above
            out[i] += no_hit_above * (slope - beta * value * hits_above)
            for j in range(rows):
                if j != i:
                    above = float(logistic(like.dtype.type(beta * (ranks[i] - ranks[j]))))
                    out[j] += beta * value * no_hit_above * above
        return result

    return helper(first_hit, f"discount {discount}")


@cache
def _rows_in_fours_of(discount: int) -> Callable[..., float]:
    """Return the helper of a built-in discount for ADDITIVE and short lists."""
    additive_term = additive_term_of(discount)

    def rows_in_fours(
        exponentials: Any, rows: int, weights: Any, beta: float, k: float, parameter: float,
        sorted_gradient: Any, sorted_hessian: Any,
    ) -> float:  # fmt: skip
        """Value, gradient and hessian of an additive measure of a short list, four rows at a time.

        In short lists the start and the end of a loop cost as much as its body. Two rows need a single division,
        1/a = b/(a b); the exponentials are far from overflow. Rows beyond the last one have weight 0. An item is
        compared with itself too: this adds 1/2 to its rank, cancels in the gradient, and is subtracted from the
        hessian.
        ``sorted_hessian`` is None if no hessian is requested.
        """
        zero, one = exponentials.dtype.type(0), exponentials.dtype.type(1)
        least = exponentials.dtype.type(_LEAST_CURVATURE)
        count, result = len(exponentials), 0.0
        slope0, slope1 = empty(count, exponentials), empty(count, exponentials)  # without the factor of their row
        slope2, slope3 = empty(count, exponentials), empty(count, exponentials)
        end = np.uintp(count)
        for i in range(0, rows, 4):
            i1, i2, i3 = smaller(i + 1, rows - 1), smaller(i + 2, rows - 1), smaller(i + 3, rows - 1)
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
            term0, d0 = additive_term(0.5 + rank0, weights[i], beta, k, parameter)
            weight1 = weights[i1] if i + 1 < rows else 0.0
            term1, d1 = additive_term(0.5 + rank1, weight1, beta, k, parameter)
            weight2 = weights[i2] if i + 2 < rows else 0.0
            term2, d2 = additive_term(0.5 + rank2, weight2, beta, k, parameter)
            weight3 = weights[i3] if i + 3 < rows else 0.0
            term3, d3 = additive_term(0.5 + rank3, weight3, beta, k, parameter)
            result += term0 + term1 + term2 + term3
            c0, c1 = exponentials.dtype.type(d0) * own0, exponentials.dtype.type(d1) * own1
            c2, c3 = exponentials.dtype.type(d2) * own2, exponentials.dtype.type(d3) * own3
            for j in range(end):
                sorted_gradient[j] += c0 * slope0[j] + c1 * slope1[j] + c2 * slope2[j] + c3 * slope3[j]
            sorted_gradient[i] -= c0 * sum0
            sorted_gradient[i1] -= c1 * sum1
            sorted_gradient[i2] -= c2 * sum2
            sorted_gradient[i3] -= c3 * sum3
            if sorted_hessian is not None:
                c0, c1, c2, c3 = abs(c0), abs(c1), abs(c2), abs(c3)
                sum0, sum1, sum2, sum3 = zero, zero, zero, zero
                for j in range(end):
                    other = exponentials[j]
                    # 1 - above, the probability that the pair is in the right order
                    both0, both1, both2, both3 = other + own0, other + own1, other + own2, other + own3
                    inverse01, inverse23 = one / (both0 * both1), one / (both2 * both3)
                    curvature0 = c0 * slope0[j] * larger(own0 * both1 * inverse01, least)
                    curvature1 = c1 * slope1[j] * larger(own1 * both0 * inverse01, least)
                    curvature2 = c2 * slope2[j] * larger(own2 * both3 * inverse23, least)
                    curvature3 = c3 * slope3[j] * larger(own3 * both2 * inverse23, least)
                    sorted_hessian[j] += curvature0 + curvature1 + curvature2 + curvature3
                    sum0, sum1, sum2, sum3 = sum0 + curvature0, sum1 + curvature1, sum2 + curvature2, sum3 + curvature3
                # an item has no pair with itself, whose curvature would be half its slope
                sorted_hessian[i] += sum0 - c0 * slope0[i]
                sorted_hessian[i1] += sum1 - c1 * slope1[i1]
                sorted_hessian[i2] += sum2 - c2 * slope2[i2]
                sorted_hessian[i3] += sum3 - c3 * slope3[i3]
        return result

    return helper(rows_in_fours, f"discount {discount}")


@helper
def _ranks_in_fours(exponentials: Any, rows: int, ranks: Any) -> None:
    """Compute smooth ranks only, four rows at a time."""
    zero = exponentials.dtype.type(0)
    for i in range(0, rows, 4):
        i1, i2, i3 = smaller(i + 1, rows - 1), smaller(i + 2, rows - 1), smaller(i + 3, rows - 1)
        own0, own1, own2, own3 = exponentials[i], exponentials[i1], exponentials[i2], exponentials[i3]
        sum0, sum1, sum2, sum3 = 0.5, 0.5, 0.5, 0.5
        for begin in range(0, len(exponentials), BLOCK):
            partial0, partial1, partial2, partial3 = zero, zero, zero, zero
            for j in range(np.uintp(begin), np.uintp(smaller(begin + BLOCK, len(exponentials)))):
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
        column_gradient = zeros(len(others), others)
        for at in range(i, last, 4):
            at1, at2, at3 = smaller(at + 1, last - 1), smaller(at + 2, last - 1), smaller(at + 3, last - 1)
            own0, own1, own2, own3 = exponentials[at], exponentials[at1], exponentials[at2], exponentials[at3]
            weight0 = exponentials.dtype.type(weights[at])  # rows beyond the last one have weight 0
            weight1 = exponentials.dtype.type(weights[at1]) if at + 1 < last else zero
            weight2 = exponentials.dtype.type(weights[at2]) if at + 2 < last else zero
            weight3 = exponentials.dtype.type(weights[at3]) if at + 3 < last else zero
            c0, c1, c2, c3 = weight0 * own0, weight1 * own1, weight2 * own2, weight3 * own3
            for begin in range(0, len(others), BLOCK):
                value0, value1, value2, value3 = zero, zero, zero, zero
                sum0, sum1, sum2, sum3 = zero, zero, zero, zero
                for j in range(np.uintp(begin), np.uintp(smaller(begin + BLOCK, len(others)))):
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


# ---- row by row: any sigmoid and length of the list ------------------------------------------------------------------


@helper
def _add_row(
    i: int, slope: Any, value: Any, factor: float, start: int, end: int, sorted_gradient: Any, sorted_hessian: Any
) -> None:  # fmt: skip
    """Add factor * slope to the gradient of the columns and subtract it from that of row i; likewise the hessian.

    The curvature of a pair is |factor * slope| (1 - value).
    """
    sorted_gradient[i] -= add_row(slope, factor, start, end, sorted_gradient)
    if sorted_hessian is not None:
        one, least = slope.dtype.type(1), slope.dtype.type(_LEAST_CURVATURE)
        c, own = slope.dtype.type(abs(factor)), 0.0
        for j in range(np.uintp(start), np.uintp(end)):
            curvature = c * abs(slope[j]) * larger(one - value[j], least)
            sorted_hessian[j] += curvature
            own += curvature
        sorted_hessian[i] += own


@cache
def _additive_of(discount: int) -> Callable[..., float]:
    """Return the helper of a built-in discount for ADDITIVE."""
    additive_term = additive_term_of(discount)

    def additive(
        x: Any, exponentials: Any, rows: int, weights: Any, sigmoid: int | None,
        beta: float, k: float, parameter: float, sorted_gradient: Any, sorted_hessian: Any,
    ) -> float:  # fmt: skip
        end, result = len(sorted_gradient), 0.0
        value, slope = empty(end, x), empty(end, x)
        for i in range(rows):
            rank = 1.0 + sigmoid_row(sigmoid, x, exponentials, i, _FIRST, end, value, slope)
            term, d_rank = additive_term(rank, weights[i], beta, k, parameter)
            result += term
            _add_row(i, slope, value, d_rank, _FIRST, end, sorted_gradient, sorted_hessian)
        return result

    return inlined_helper(additive, f"discount {discount}")


@inlined_helper
def _precision_sum(
    x: Any, exponentials: Any, rows: int, relevant: int, weights: Any, sigmoid: int | None, beta: float, k: float,
    sorted_gradient: Any, sorted_hessian: Any,
) -> float:  # fmt: skip
    end, result = len(sorted_gradient), 0.0
    value, slope = empty(end, x), empty(end, x)
    for i in range(rows):
        hits = sigmoid_row(sigmoid, x, exponentials, i, _FIRST, relevant, value, slope)
        others = sigmoid_row(sigmoid, x, exponentials, i, relevant, end, value, slope)
        term, d_rank, d_hits = precision_term(1.0 + hits + others, hits, weights[i], beta, k)
        result += term
        _add_row(i, slope, value, d_rank + d_hits, _FIRST, relevant, sorted_gradient, sorted_hessian)
        _add_row(i, slope, value, d_rank, relevant, end, sorted_gradient, sorted_hessian)
    return result


@cache
def _cascade_of(discount: int) -> Callable[..., float]:
    """Return the helper of a discount for CASCADE."""
    additive_term = None if discount == GIVEN else additive_term_of(discount)

    def cascade(
        x: Any, exponentials: Any, rows: int, relevant: int, weights: Any, given: Any, first: int,
        sigmoid: int | None, beta: float, k: float, parameter: float, sorted_gradient: Any, sorted_hessian: Any,
    ) -> float:  # fmt: skip
        end, result = len(sorted_gradient), 0.0
        value, slope = empty(end, x), empty(end, x)
        one, least = x.dtype.type(1), x.dtype.type(1e-30)
        stops = empty(relevant, x)
        for j in range(relevant):
            stops[j] = weights[j]
        for i in range(rows):
            rank = 1.0 + sigmoid_row(sigmoid, x, exponentials, i, _FIRST, end, value, slope)
            if additive_term is None:
                at_rank, d_rank = weights[i] * given[0, first + i], weights[i] * given[1, first + i]
            else:
                at_rank, d_rank = additive_term(rank, weights[i], beta, k, parameter)
            no_earlier_stop = _no_earlier_stop(value, stops)
            at_rank, d_rank = at_rank * no_earlier_stop, d_rank * no_earlier_stop
            result += at_rank
            by_rank, by_product = x.dtype.type(d_rank), x.dtype.type(at_rank)
            for j in range(relevant):  # where a factor of the product is 0, so are the product and its derivative
                slope[j] *= by_rank - by_product * stops[j] / larger(one - stops[j] * value[j], least)
            _add_row(i, slope, value, 1.0, _FIRST, relevant, sorted_gradient, sorted_hessian)
            _add_row(i, slope, value, d_rank, relevant, end, sorted_gradient, sorted_hessian)
        return result

    return inlined_helper(cascade, f"discount {discount}")


@inlined_helper
def _pairs(
    x: Any, exponentials: Any, n: int, rows: int, columns_from: Any, weights: Any, levels: Any, pair_weights: Any,
    first: int, sigmoid: int | None, sorted_gradient: Any, sorted_hessian: Any,
) -> float:  # fmt: skip
    """The sum over rows of weight times sigmoids; also the gradient of other structures, whose d_rank are weights."""
    end, result = len(sorted_gradient), 0.0
    value, slope = empty(end, x), empty(end, x)
    for i in range(rows):
        start = columns_from[i]
        total = sigmoid_row(sigmoid, x, exponentials, i, start, end, value, slope)
        if pair_weights is not None:
            total = 0.0
            for j in range(start, n):
                weight = value.dtype.type(pair_weights[levels[first + i], levels[first + j]])
                slope[j] *= weight
                total += value[j] * weight
        result += weights[i] * total
        _add_row(i, slope, value, weights[i], start, end, sorted_gradient, sorted_hessian)
    return result


# ---- kernels ---------------------------------------------------------------------------------------------------------


@helper
def _ranks(x: Any, exponentials: Any, rows: int, sigmoid: int | None, ranks: Any) -> None:
    if len(exponentials) > 0:
        _ranks_in_fours(exponentials, rows, ranks)
        return
    value, slope = empty(len(x), x), empty(len(x), x)
    for i in range(rows):
        ranks[i] = 1.0 + sigmoid_row(sigmoid, x, exponentials, i, _FIRST, len(x), value, slope)


def smooth_pass_of(structure: int, discount: int) -> Callable[..., None]:
    """Return the kernel of a structure: the smooth measure of each query of a block, and its gradient in the scores.

    ``discount`` is the index of a built-in discount, or GIVEN. Structures without a discount ignore it.
    """
    return _smooth_pass_of(structure, discount if structure in (ADDITIVE, CASCADE, FIRST_HIT) else GIVEN)


@cache
def _smooth_pass_of(structure: int, discount: int) -> Callable[..., None]:
    of_ranks = structure in (COUPLED, FIRST_HIT)
    # what other structures need is None: the branches that call it are not compiled
    rows_in_fours: Any = _rows_in_fours_of(discount) if structure == ADDITIVE else None
    additive: Any = _additive_of(discount) if structure == ADDITIVE else None
    cascade: Any = _cascade_of(discount) if structure == CASCADE else None
    first_hit: Any = _first_hit_of(discount) if structure == FIRST_HIT else None

    def smooth_pass(
        queries: Any, scores: Any, offsets: Any, order: Any, rows: Any, relevant: Any, columns_from: Any, weights: Any,
        constants: Any, cuts: Any, levels: Any, pair_weights: Any, given: Any, sigmoid: int | None,
        alpha: float, beta: float, parameter: float, values: Any, gradient: Any, hessian: Any,
    ) -> None:  # fmt: skip
        """Compute the smooth measure of each query.

        ``order`` lists the items of each query, those with gain first; ``rows`` says how many these are, ``relevant``
        how many columns count as hits or can stop the user. ``weights`` (in sorted order) multiply the terms, or are
        the stop probabilities; ``constants`` are added per query. ``columns_from`` is the first column that a row is
        compared with, and ``cuts`` the cutoff of each query, 0 for none. ``levels`` and ``pair_weights`` are None
        unless pairs have weights: then pair_weights[levels[i], levels[j]] is that of row i and column j. ``given`` is
        empty unless the discount is GIVEN: then its two rows are the truncated discounts of the rows and their
        derivatives. ``sigmoid`` is None for the logistic function, ``hessian`` if no hessian is requested.

        ``values``, ``gradient`` and ``hessian`` are written where rows > 0 and must be zeros on entry. The hessian of
        an item is the sum over its pairs of alpha (1 - σ)/3 |contribution to the gradient|, where σ counts the pair as
        wrongly ordered: positive, and a Newton step is the larger the more wrong the order of a pair is, as for a
        logistic loss.
        """
        for q in queries:
            if rows[q] == 0:
                continue
            lo, hi = offsets[q], offsets[q + 1]
            n, own_order, own_weights, own_columns = hi - lo, order[lo:hi], weights[lo:hi], columns_from[lo:hi]
            x, largest = centered(scores[lo:hi], own_order, alpha)
            exponentials = factors(x, largest, rows[q], sigmoid)
            sorted_gradient = zeros(larger(n, len(exponentials)), x)  # gradient and hessian in sorted order
            sorted_hessian: Any = None if hessian is None else zeros(len(sorted_gradient), x)
            result = 0.0
            if structure == ADDITIVE:
                if len(exponentials) > 0 and n <= _SHORT:
                    result = rows_in_fours(
                        exponentials, rows[q], own_weights, beta, cuts[q], parameter,
                        sorted_gradient, sorted_hessian,
                    )  # fmt: skip
                else:
                    result = additive(
                        x, exponentials, rows[q], own_weights, sigmoid, beta, cuts[q], parameter,
                        sorted_gradient, sorted_hessian,
                    )  # fmt: skip
            elif structure == PRECISION_SUM:
                result = _precision_sum(
                    x, exponentials, rows[q], relevant[q], own_weights, sigmoid, beta, cuts[q],
                    sorted_gradient, sorted_hessian,
                )  # fmt: skip
            elif structure == CASCADE:
                result = cascade(
                    x, exponentials, rows[q], relevant[q], own_weights, given, lo, sigmoid, beta, cuts[q],
                    parameter, sorted_gradient, sorted_hessian,
                )  # fmt: skip
            else:
                if of_ranks:
                    ranks, d_ranks = zeros(rows[q], constants), zeros(rows[q], constants)
                    _ranks(x, exponentials, rows[q], sigmoid, ranks)
                    if structure == COUPLED:
                        coupled = _coupled_ranks(ranks, own_weights, beta, cuts[q], d_ranks, x)
                    else:
                        coupled = first_hit(ranks, beta, cuts[q], parameter, d_ranks, x)
                    own_weights = d_ranks
                if hessian is None and pair_weights is None and len(exponentials) > 0:
                    result = _pairs_in_fours(exponentials, n, rows[q], own_columns, own_weights, sorted_gradient)
                else:
                    result = _pairs(
                        x, exponentials, n, rows[q], own_columns, own_weights, levels, pair_weights, lo, sigmoid,
                        sorted_gradient, sorted_hessian,
                    )  # fmt: skip
                if of_ranks:
                    result = coupled
            values[q] = constants[q] + result
            for j in range(n):
                gradient[lo + own_order[j]] = alpha * sorted_gradient[j]
            if hessian is not None:
                for j in range(n):
                    hessian[lo + own_order[j]] = _CURVATURE * alpha * alpha * sorted_hessian[j]

    return block_kernel(smooth_pass, f"structure {structure}, discount {discount}")


@block_kernel
def rank_pass(
    queries: Any, scores: Any, offsets: Any, order: Any, rows: Any, sigmoid: int | None, alpha: float, ranks: Any
) -> None:  # fmt: skip
    """Compute the smooth ranks of the rows of each query; the other entries of ``ranks`` are left alone."""
    for q in queries:
        if rows[q] > 0:
            lo, hi = offsets[q], offsets[q + 1]
            x, largest = centered(scores[lo:hi], order[lo:hi], alpha)
            _ranks(x, factors(x, largest, rows[q], sigmoid), rows[q], sigmoid, ranks[lo:hi])
