"""The kernel of LambdaRank for additive measures: pairs in the order of their ranks.

Boosting calls it once per round. The pairs within a truncation or a cutoff are those of the first rows and the first
columns of a square of ranks. With g the gain over the normalizer, d the discount of a rank (0 beyond the cutoff) and
e = exp(x), x = alpha * score, the pair of the ranks a and b has

    t = (g_a - g_b) |d_a - d_b|                       weight, negative if a has the lower label
    lambda = t e_b/(e_a + e_b) if t > 0 else t e_a/(e_a + e_b)
    hessian = |t| e_a e_b / (e_a + e_b)^2
    cost = |t| log(1 + exp(x_low - x_high))

and the gradient of b is the sum of lambda over a. Each pair is computed for both of its items. That is still faster
than half of the square, because then a loop adds to its columns only: it needs no sums along the row, whose remainders
would be processed item by item. All rows of the working memory have a constant length, so that LLVM need not compare
their addresses before each loop. Gains must not decrease with the label, so that the item of higher gain is that of the
higher label. `pair_kernel` computes the same for all other structures, for longer lists, and for lists with few rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.losses.compiling import block_kernel, helper
from rankbound.losses.extremes import larger, smaller
from rankbound.losses.memory import empty, indices
from rankbound.losses.sigmoids import can_be_factored, fill_exponentials, in_strides, log_of_complement, logistic
from rankbound.losses.swaps import NEARNESS, NORMALIZE_LIGHTGBM, fill_by_score, normalizing_factor

if TYPE_CHECKING:
    from rankbound.losses.plans import Plan

__all__ = ["LONGEST", "faster_cases", "lambda_pass"]


LONGEST = 2048  # items of a query
_STEP = 32  # columns per step of a vectorized loop
_ROW = LONGEST + 48  # length of a row of the working memory: equal columns must not have equal addresses modulo 4096
# Where these rows begin; unsigned, as in `sigmoids`.
_GAIN, _DISCOUNT, _X, _E = np.uintp(0), np.uintp(_ROW), np.uintp(2 * _ROW), np.uintp(3 * _ROW)
_OUT = np.uintp(4 * _ROW)
_GRADIENT, _HESSIAN = _OUT, np.uintp(5 * _ROW)
_ABSOLUTE, _COST = np.uintp(6 * _ROW), np.uintp(7 * _ROW)


@helper
def _factored_row(m: Any, row: int, columns: int) -> None:
    """Add the pairs of a row to the columns."""
    zero, one, a = m.dtype.type(0), m.dtype.type(1), np.uintp(row)
    gain, discount, here, own = m[_GAIN + a], m[_DISCOUNT + a], m[_X + a], m[_E + a]
    for b in range(np.uintp(columns)):
        t = (gain - m[_GAIN + b]) * abs(discount - m[_DISCOUNT + b])
        inverse = one / (own + m[_E + b])
        below, above = own * inverse, m[_E + b] * inverse
        contribution = t * (above if t > zero else below)
        difference = m[_X + b] - here
        wrong = difference if t > zero else -difference
        m[_GRADIENT + b] += contribution
        m[_HESSIAN + b] += abs(t) * (below * above)
        m[_ABSOLUTE + b] += abs(contribution)
        m[_COST + b] += abs(t) * (larger(wrong, zero) + log_of_complement(smaller(below, above)))


@helper
def _factored_row_without_cost(m: Any, row: int, columns: int) -> None:
    """The same without costs, which boosting does not need; their logarithms take a third of the time."""
    zero, one, a = m.dtype.type(0), m.dtype.type(1), np.uintp(row)
    gain, discount, own = m[_GAIN + a], m[_DISCOUNT + a], m[_E + a]
    for b in range(np.uintp(columns)):
        t = (gain - m[_GAIN + b]) * abs(discount - m[_DISCOUNT + b])
        inverse = one / (own + m[_E + b])
        below, above = own * inverse, m[_E + b] * inverse
        contribution = t * (above if t > zero else below)
        m[_GRADIENT + b] += contribution
        m[_HESSIAN + b] += abs(t) * (below * above)
        m[_ABSOLUTE + b] += abs(contribution)


@helper
def _direct_row(m: Any, row: int, columns: int, by_distance: bool, alpha: float) -> None:
    """The same for weights over the distance of scores, or scores too large for exponentials."""
    zero, one, a = m.dtype.type(0), m.dtype.type(1), np.uintp(row)
    near, unit = m.dtype.type(NEARNESS if by_distance else 1.0), m.dtype.type(1.0 / alpha if by_distance else 0.0)
    gain, discount, here = m[_GAIN + a], m[_DISCOUNT + a], m[_X + a]
    for b in range(np.uintp(columns)):
        difference = m[_X + b] - here
        t = (gain - m[_GAIN + b]) * abs(discount - m[_DISCOUNT + b]) / (near + abs(difference) * unit)
        wrong = difference if t > zero else -difference
        probability = logistic(wrong)
        contribution = t * probability
        m[_GRADIENT + b] += contribution
        m[_HESSIAN + b] += abs(t) * (probability * (one - probability))
        m[_ABSOLUTE + b] += abs(contribution)
        m[_COST + b] += abs(t) * (larger(wrong, zero) + log_of_complement(smaller(probability, one - probability)))


@helper
def _measure(by_score: Any, gains: Any, discounts: Any, k: float) -> float:
    result = 0.0
    last = len(gains) if k <= 0.0 else smaller(len(gains), int(k))
    for rank in range(last):
        result += gains[by_score[rank]] * discounts[rank]
    return result


@helper
def _fill(
    m: Any, n: int, last: int, is_factored: bool, with_cost: bool | None, by_distance: bool, alpha: float
) -> None:
    """Fill the last four rows of the memory; a pair counts if one of its ranks is among the first ``last``."""
    columns, first_columns = in_strides(n), in_strides(last)
    for row in range(4):
        for b in range(columns):
            m[_OUT + row * _ROW + b] = 0
    kept = empty(4 * _STEP, m)
    for a in range(n):
        if a == last:  # the rows that follow have the first columns only: what whole steps add to others is undone
            for row in range(4):
                for b in range(last, smaller(first_columns, n)):
                    kept[row * _STEP + b - last] = m[_OUT + row * _ROW + b]
        width = columns if a < last else first_columns
        if not is_factored:
            _direct_row(m, a, width, by_distance, alpha)
        elif with_cost is None:
            _factored_row_without_cost(m, a, width)
        else:
            _factored_row(m, a, width)
    if last < n:
        for row in range(4):
            for b in range(last, smaller(first_columns, n)):
                m[_OUT + row * _ROW + b] = kept[row * _STEP + b - last]


@block_kernel
def lambda_pass(
    queries: Any, scores: Any, ranked_by: Any, offsets: Any, rows: Any, gains: Any, cuts: Any, discounts: Any,
    alpha: float, truncation: int, normalization: int, measure_scores: bool, with_cost: bool | None,
    values: Any, measured: Any, gradient: Any, hessian: Any,
) -> None:  # fmt: skip
    """Compute LambdaRank for an additive measure: value per query, gradient and, if requested, hessian per item.

    ``gains`` over the normalizer are in input order; no query has more than LONGEST items. If ``with_cost`` is None
    instead of True, the values need not be computed, and are undefined. For the other arguments see
    `pair_kernel.pair_pass_of`. Queries without rows keep the zeros of the outputs.
    """
    keys, now, then, m = empty(LONGEST, scores), indices(LONGEST), indices(LONGEST), empty(8 * _ROW, scores)
    for q in queries:
        if rows[q] == 0:
            continue
        lo, hi = offsets[q], offsets[q + 1]
        x, own_gains, k = scores[lo:hi], gains[lo:hi], cuts[q]
        n = len(x)
        by_score = fill_by_score(ranked_by[lo:hi], keys, now, then)
        lowest, highest = x[0], x[0]
        for j in range(n):
            lowest, highest = smaller(lowest, x[j]), larger(highest, x[j])
        half = (highest - lowest) / 2
        middle = lowest + half
        for rank in range(n):
            j = by_score[rank]
            m[_GAIN + rank] = own_gains[j]
            m[_DISCOUNT + rank] = 0.0 if 0.0 < k <= rank else discounts[rank]
            m[_X + rank] = alpha * (x[j] - middle)
        for rank in range(n, in_strides(n)):  # columns that nobody reads; only their numbers must be finite
            m[_GAIN + rank], m[_DISCOUNT + rank], m[_X + rank], m[_E + rank] = 0.0, 0.0, 0.0, 1.0
        last = n
        if k > 0.0:
            last = smaller(last, int(k))  # below the cutoff no swap changes the measure
        if truncation > 0:
            last = smaller(last, truncation)
        by_distance = normalization == NORMALIZE_LIGHTGBM and half > 0
        is_factored = not by_distance and can_be_factored(x, alpha * half)
        if is_factored:
            fill_exponentials(m[_X : _X + n], m[_E : _E + n])
        _fill(m, n, last, is_factored, with_cost, by_distance, alpha)
        lambdas, cost = 0.0, 0.0
        for rank in range(n):
            lambdas += m[_ABSOLUTE + rank]
            cost += m[_COST + rank]
        factor = normalizing_factor(normalization, alpha * lambdas)
        for rank in range(n):
            gradient[lo + by_score[rank]] = factor * alpha * m[_GRADIENT + rank]
        if hessian is not None:
            for rank in range(n):
                hessian[lo + by_score[rank]] = factor * alpha * alpha * m[_HESSIAN + rank]
        if measure_scores:  # the ranks are not those of the scores, but the measure is that of the scores
            by_score = fill_by_score(x, keys, now, then)
        values[q] = factor * cost / 2  # costs were counted for both items of a pair
        measured[q] = _measure(by_score, own_gains, discounts, k)


# ---- which kernel ----------------------------------------------------------------------------------------------------

# Measured times in ns by the bytes of a score: of a row and a column here; and of a row and a pair in the pair kernel,
# without and with a hessian.
_TIMES_BY_RANK = {4: (12.0, 0.8), 8: (12.0, 6.5)}
_TIMES_BY_LABEL = {(4, False): (120.0, 0.7), (4, True): (240.0, 1.2), (8, False): (120.0, 6.5), (8, True): (240.0, 6.5)}


def faster_cases(plan: Plan, truncation: int) -> frozenset[tuple[int, bool]]:
    """The cases in which this kernel can be used and is faster than the pair kernel; see `Plan`.

    The pair kernel visits pairs of different label only, whatever their ranks.
    """
    informative = plan.rows > 0
    sizes = plan.sizes[informative]
    starts = np.zeros(len(plan.order), bool)
    starts[plan.offsets[:-1][plan.sizes > 0]] = True
    is_sorted = bool((starts[1:] | (plan.weights[1:] <= plan.weights[:-1])).all())
    if len(sizes) == 0 or sizes.max() > LONGEST or not is_sorted:
        return frozenset()
    last = np.where(plan.cuts > 0, np.minimum(plan.cuts, plan.sizes), plan.sizes)[informative]
    last = np.minimum(last, truncation) if truncation else last
    padded, padded_last = (-(-count // _STEP) * _STEP for count in (sizes, last))
    columns = (last * padded + (sizes - last) * padded_last).sum()
    is_row = np.arange(len(plan.order)) - plan.per_item(plan.offsets[:-1]) < plan.per_item(plan.rows)
    pairs = (plan.per_item(plan.sizes) - plan.columns_from)[is_row].sum()
    return frozenset(
        case
        for case, (row, pair) in _TIMES_BY_LABEL.items()
        if np.dot(_TIMES_BY_RANK[case[0]], (sizes.sum(), columns)) < row * is_row.sum() + pair * pairs
    )
