"""Swap deltas: by how much a measure changes when two items of the present ranking change places.

Each delta is O(1) after one sort and a few running sums per query. With r the rank of an item (1 = best score, ties in
input order), i the item of the row (of the higher label), j that of the column, d the discount of a rank (0 beyond the
cutoff), and a the upper and b the lower of the two ranks:

=============  ======================================================================================================
structure      |change of the measure when i and j swap|
=============  ======================================================================================================
additive       |g_i - g_j| |d(r_i) - d(r_j)|, gains over the normalizer
precision sum  with c(r) relevant items and A(r) = sum of 1/rank over relevant items down to rank r, over the divisor:
               j above i: (c(r_j) + 1)/r_j - c(r_i)/r_i + A(r_i - 1) - A(r_j);
               i above j: c(r_j)/r_j - c(r_i)/r_i - A(r_j) + A(r_i)
cascade        with q the stop probability, C(r) = prod over ranks <= r of (1 - q) and T(r) the measure down to rank r:
               |q_b - q_a| |C(a-1) d(a) - (T(b-1) - T(a) + C(b-1) d(b)) / (1 - q_a)|;
               if q_a = 1, T and C of a user who passes over the item at rank a, undivided
first hit      the cascade with q in {0, 1}: the first relevant item moves to r_j, or the second one becomes the first
pairs          |S_i(r_j) - S_i(r_i) + S_j(r_i) - S_j(r_j)| times the scale of the measure; S_x(r) = sum over ranks <= r
               of f(label of x, label at the rank), f the weight of a pair, negative if x has the lower label
published      p^(r_i - 1) over the normalizer: eq. 10 of Li, Urbano & Hanjalic 2021 for nRBP, which is not the swap
loss 1         g_i d(r_i), d without cutoff: NDCG-Loss1 of Wang et al. 2018; this and the next two are not the swap
loss 2         |g_i - g_j| |d(m) - d(m + 1)|, m = |r_i - r_j|, d without cutoff: NDCG-Loss2
loss 2++       |g_i - g_j| (mu |d(m) - d(m + 1)| + |d(r_i) - d(r_j)|): NDCG-Loss2++
=============  ======================================================================================================

Source of the principle: Donmez, Svore & Burges, On the local optimality of LambdaRank.

The lambdas of a query can be normalized by their sum S = 2 * sum over pairs of |lambda|, in which each pair counts for
both of its items:

=============  ======================================================================================================
normalization  factor on the lambdas of a query
=============  ======================================================================================================
sqrt           1 / sqrt(S)
lightgbm       log2(1 + S) / S; and before that each pair's weight is divided by 0.01 + |f_i - f_j|, unless all scores
               of the query are equal: lambdarank_norm of LightGBM
=============  ======================================================================================================
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankbound.losses.compiling import emitted_helper, helper
from rankbound.losses.extremes import larger
from rankbound.losses.memory import empty, indices, zero_table
from rankbound.losses.sigmoids import STRIDE, in_strides

__all__ = [
    "NORMALIZATIONS",
    "NORMALIZE_LIGHTGBM",
    "NORMALIZE_SQRT",
    "SWAP_ADDITIVE",
    "SWAP_CASCADE",
    "SWAP_FIRST_HIT",
    "SWAP_LOSS1",
    "SWAP_LOSS2",
    "SWAP_LOSS2PP",
    "SWAP_PAIRS",
    "SWAP_PRECISION_SUM",
    "SWAP_PUBLISHED",
    "adjust_row",
    "fill_by_score",
    "normalizing_factor",
    "swap_functions",
]

SWAP_ADDITIVE, SWAP_PUBLISHED, SWAP_PRECISION_SUM, SWAP_FIRST_HIT, SWAP_CASCADE, SWAP_PAIRS = range(6)
SWAP_LOSS1, SWAP_LOSS2, SWAP_LOSS2PP = range(6, 9)
NORMALIZATIONS = ("none", "sqrt", "lightgbm")
NORMALIZE_SQRT, NORMALIZE_LIGHTGBM = 1, 2
NEARNESS = 0.01  # added to the distance of two scores before the weight of the pair is divided by it, as in LightGBM


# ---- sorting ---------------------------------------------------------------------------------------------------------


@helper
def fill_by_score(scores: Any, keys: Any, now: Any, then: Any) -> Any:
    """Indices of the items by descending score; ties keep their input order.

    The memory comes from the caller, at least n entries each, whole strides for the keys; returns now or then. Each
    stride is sorted by counting, for each item, the items above it, which vectorizes; then strides are merged. numba's
    own sort would make every kernel that calls it slow to compile.
    """
    n = len(scores)
    zero, one = scores.dtype.type(0), scores.dtype.type(1)
    lowest = scores[0]
    for j in range(n):
        keys[j] = scores[j]
        lowest = scores[j] if scores[j] < lowest else lowest
    for j in range(n, in_strides(n)):
        keys[j] = lowest  # the filler of the last stride is above no item
    for lo in range(0, n, STRIDE):
        block = keys[lo : lo + STRIDE]
        count = np.uintp(
            len(block)
        )  # hides the constant from LLVM, which would unroll the loop below instead of vectorizing it
        for i in range(STRIDE if lo + STRIDE < n else n - lo):
            own, above, equal = block[i], zero, zero
            for j in range(count):
                above += one if block[j] > own else zero
                equal += one if block[j] == own else zero
            position = lo + np.int64(above)
            if equal > one:
                for j in range(i):
                    position += block[j] == own
            now[position] = lo + i
    width: Any = np.int64(STRIDE)  # not the constant, for which numba would compile `_merge_halves` once more
    while width < n:
        for lo in range(0, n, 2 * width):
            middle, hi = lo + width, lo + 2 * width
            middle, hi = middle if middle < n else n, hi if hi < n else n
            if hi - middle == width:
                _merge_halves(scores, now, then, lo, width)
                continue
            left, right = lo, middle
            for at in range(lo, hi):
                if left < middle and (right >= hi or scores[now[left]] >= scores[now[right]]):
                    then[at] = now[left]
                    left += 1
                else:
                    then[at] = now[right]
                    right += 1
        now, then = then, now
        width *= 2
    return now


@helper
def _merge_halves(scores: Any, now: Any, then: Any, lo: int, width: int) -> None:
    """Merge two runs of equal length from both ends at once, which needs no test for the end of a run."""
    left, right, last_left, last_right = lo, lo + width, lo + width - 1, lo + 2 * width - 1
    for at in range(width):
        a, b = now[left], now[right]
        is_left = scores[a] >= scores[b]
        then[lo + at] = a if is_left else b
        left += is_left
        right += 1 - is_left
        c, d = now[last_left], now[last_right]
        is_right = scores[c] >= scores[d]
        then[lo + 2 * width - 1 - at] = d if is_right else c
        last_right -= is_right
        last_left -= 1 - is_right


# ---- tables: what the deltas of a query need, by one pass over its ranks ---------------------------------------------

# The functions of all forms have the same arguments. ``ranked`` are the items by descending score, as indices in sorted
# order (items of high label first), ``like`` is an array in the precision of the scores. ``gains`` is in sorted order:
# gain over normalizer of an additive measure, one over divisor of a relevant item for a
# precision sum, stop probability for a cascade. ``discounts`` are those of the ranks 1, 2, ...; they count to rank k,
# or all if k is 0. ``levels`` are those of the batch, where the query begins at ``first``; ``pair_weights`` is empty if
# all pairs have the weight 1; ``mu`` is that of loss 2++.
#
# They return a table of rows by items in sorted order, the item of the first certain stop (-1 if there is none), and
# the measure of the present ranking; for pairs the weight of the wrong pairs. The first row of a table is the discount,
# the second one the gain, the last one the rank. Tables have the precision of the scores, running sums that of float64.


@helper
def _additive_table(
    ranked: Any, like: Any, gains: Any, columns_from: Any, levels: Any, pair_weights: Any, first: int,
    discounts: Any, k: float, mu: float,
) -> Any:  # fmt: skip
    table, result = zero_table(3, like), 0.0
    for above in range(len(ranked)):
        j = ranked[above]
        discount, gain = 0.0 if 0.0 < k <= above else discounts[above], gains[j]
        table[0, j], table[1, j], table[2, j] = discount, gain, above + 1
        result += discount * gain
    return table, -1, result


@helper
def _loss1_table(
    ranked: Any, like: Any, gains: Any, columns_from: Any, levels: Any, pair_weights: Any, first: int,
    discounts: Any, k: float, mu: float,
) -> Any:  # fmt: skip
    """The discount has no cutoff; that of the measure has."""
    table, _, _ = _additive_table(
        ranked, like, gains, columns_from, levels, pair_weights, first, discounts, 0.0, mu
    )  # fmt: skip
    result = 0.0
    for j in range(len(ranked)):
        if k <= 0.0 or table[2, j] <= k:
            result += discounts[np.int64(table[2, j]) - 1] * gains[j]
    return table, -1, result


@helper
def _distance_table(
    ranked: Any, like: Any, gains: Any, columns_from: Any, levels: Any, pair_weights: Any, first: int,
    discounts: Any, k: float, mu: float,
) -> Any:  # fmt: skip
    """Row 2 holds mu |d(m) - d(m + 1)| at m - 1, for a distance of m ranks."""
    table, result = zero_table(4, like), 0.0
    for above in range(len(ranked)):
        j = ranked[above]
        discount, gain = 0.0 if 0.0 < k <= above else discounts[above], gains[j]
        table[0, j], table[1, j], table[3, j] = discount, gain, above + 1
        result += discount * gain
        if above > 0:
            table[2, above - 1] = mu * abs(discounts[above - 1] - discounts[above])
    return table, -1, result


@helper
def _precision_table(
    ranked: Any, like: Any, gains: Any, columns_from: Any, levels: Any, pair_weights: Any, first: int,
    discounts: Any, k: float, mu: float,
) -> Any:  # fmt: skip
    """Down to the rank, row 2 sums discounts of relevant items, row 3 counts them; row 4 is count * discount - sum."""
    table = zero_table(6, like)
    running, count, result = 0.0, 0.0, 0.0
    for above in range(len(ranked)):
        j = ranked[above]
        discount, gain = 0.0 if 0.0 < k <= above else discounts[above], gains[j]
        table[0, j], table[1, j], table[5, j] = discount, gain, above + 1
        if gain > 0.0:
            count += 1.0
            running += discount
            result += discount * count * gain
        table[2, j], table[3, j], table[4, j] = running, count, count * discount - running
    return table, -1, result


@helper
def _first_hit_table(
    ranked: Any, like: Any, gains: Any, columns_from: Any, levels: Any, pair_weights: Any, first: int,
    discounts: Any, k: float, mu: float,
) -> Any:  # fmt: skip
    """Row 2 holds at 0 the discount of the first relevant item, row 3 that of the second one."""
    table = zero_table(5, like)
    count, result = 0, 0.0
    for above in range(len(ranked)):
        j = ranked[above]
        discount, gain = 0.0 if 0.0 < k <= above else discounts[above], gains[j]
        table[0, j], table[1, j], table[4, j] = discount, gain, above + 1
        if gain > 0.0:
            if count < 2:
                table[2 + count, 0] = discount
            if count == 0:
                result = discount
            count += 1
    return table, -1, result


@helper
def _cascade_table(
    ranked: Any, like: Any, gains: Any, columns_from: Any, levels: Any, pair_weights: Any, first: int,
    discounts: Any, k: float, mu: float,
) -> Any:  # fmt: skip
    """The discount is multiplied by the probability to come that far.

    Row 2 is the running sum of the measure, row 3 that before the item plus row 0, row 4 is 1 / (1 - gain), and row 5
    is row 3 without the first certain stop.
    """
    table = zero_table(7, like)
    running, probability, beyond, first_stop = 0.0, 1.0, 0.0, -1
    for above in range(len(ranked)):
        j = ranked[above]
        discount, gain = 0.0 if 0.0 < k <= above else discounts[above], gains[j]
        table[1, j], table[6, j] = gain, above + 1
        if first_stop >= 0:  # nobody comes this far unless the first certain stop is passed over
            table[3, j], table[5, j] = running, beyond + probability * discount
            beyond += probability * discount * gain
        else:
            discount *= probability
            table[0, j], table[3, j] = discount, running + discount
            running += discount * gain
        table[2, j] = running
        if gain < 1.0:
            table[4, j] = 1.0 / (1.0 - gain)
            probability *= 1.0 - gain
        elif first_stop < 0:
            first_stop = j
        else:
            probability = 0.0
    return table, first_stop, running


@emitted_helper
def _pair_table(
    ranked: Any, like: Any, gains: Any, columns_from: Any, levels: Any, pair_weights: Any, first: int,
    discounts: Any, k: float, mu: float,
) -> Any:  # fmt: skip
    """Row 0 is S of the item's own level, row 1 this level as a number from 0, from row 2 on S of every level."""
    n, number, at = len(ranked), 0, 0
    while at < n:  # items are sorted by level, and ``columns_from`` is where the run of an item's level ends
        number, at = number + 1, columns_from[at]
    table = zero_table(3 + number, like)
    starts = indices(number + 1)  # of the runs of equal level
    starts[0] = 0
    for level in range(number):
        starts[level + 1] = columns_from[starts[level]]
        for j in range(starts[level], starts[level + 1]):
            table[1, j] = level
    memory = np.empty(number * (number + 2))  # the weights f of two levels, their running sums, and counts
    running, seen = number * number, number * (number + 1)
    for entry in range(len(memory)):
        memory[entry] = 0.0
    for high in range(number):
        for low in range(high + 1, number):
            weight = 1.0
            if len(pair_weights) > 0:
                weight = pair_weights[levels[first + starts[high]], levels[first + starts[low]]]
            memory[high * number + low] = weight
            memory[low * number + high] = -weight
    result = 0.0
    for above in range(n):
        j = ranked[above]
        own = np.int64(table[1, j])
        for low in range(own + 1, number):
            result += memory[own * number + low] * memory[seen + low]
        memory[seen + own] += 1.0
        for level in range(number):
            memory[running + level] += memory[level * number + own]
            table[2 + level, j] = memory[running + level]
        table[0, j], table[2 + number, j] = memory[running + own], above + 1
    return table, -1, result


# ---- rows: weight[j] = |change of the measure when items i and j swap| for j >= start --------------------------------


@helper
def _additive_row(table: Any, first_stop: int, i: int, start: int, weight: Any) -> None:
    discount, gain, out = table[0, start:], table[1, start:], weight[start:]
    w, g = table[0, i], table[1, i]
    for j in range(len(out)):
        out[j] = abs((g - gain[j]) * (w - discount[j]))


@helper
def _row_of_one_item(table: Any, first_stop: int, i: int, start: int, weight: Any) -> None:
    """Published and loss 1: the columns do not matter."""
    out, product = weight[start:], table[0, i] * table[1, i]
    for j in range(len(out)):
        out[j] = product


@helper
def _loss2_row(table: Any, first_stop: int, i: int, start: int, weight: Any) -> None:
    gain, by_distance, rank, out = table[1, start:], table[2], table[3, start:], weight[start:]
    g, r = table[1, i], table[3, i]
    for j in range(len(out)):
        out[j] = abs(g - gain[j]) * by_distance[np.int64(abs(r - rank[j])) - 1]


@helper
def _loss2pp_row(table: Any, first_stop: int, i: int, start: int, weight: Any) -> None:
    discount, gain, by_distance, rank = table[0, start:], table[1, start:], table[2], table[3, start:]
    w, g, r, out = table[0, i], table[1, i], table[3, i], weight[start:]
    for j in range(len(out)):
        out[j] = abs(g - gain[j]) * (by_distance[np.int64(abs(r - rank[j])) - 1] + abs(w - discount[j]))


@helper
def _precision_row(table: Any, first_stop: int, i: int, start: int, weight: Any) -> None:
    discount, level, rank, out = table[0, start:], table[4, start:], table[5, start:], weight[start:]
    zero = weight.dtype.type(0)  # a literal would widen float32
    w, g, r = table[0, i], table[1, i], table[5, i]
    own = table[2, i] - table[3, i] * w  # level is c(r)/r - A(r) of the columns, and this minus that of the row
    for j in range(len(out)):
        out[j] = abs(level[j] + own + (discount[j] - w if rank[j] < r else zero)) * g


@helper
def _first_hit_row(table: Any, first_stop: int, i: int, start: int, weight: Any) -> None:
    discount, rank, out = table[0, start:], table[4, start:], weight[start:]
    zero, one = weight.dtype.type(0), weight.dtype.type(1)
    w, r, first, second = table[0, i], table[4, i], table[2, 0], table[3, 0]
    own = one if w == first and w > zero else zero  # whether the item is the first
    for j in range(len(out)):
        raised, lowered = larger(discount[j] - first, zero), own * (first - larger(discount[j], second))
        out[j] = raised if rank[j] < r else lowered


@helper
def _cascade_row(table: Any, first_stop: int, i: int, start: int, weight: Any) -> None:
    discount, gain, running, before = table[0, start:], table[1, start:], table[2, start:], table[3, start:]
    inverse, beyond, rank, out = table[4, start:], table[5, start:], table[6, start:], weight[start:]
    w, g, s, c, own_inverse, r = table[0, i], table[1, i], table[2, i], table[3, i], table[4, i], table[6, i]
    for j in range(len(out)):
        # select the upper item first and apply one formula then: without branches LLVM can vectorize
        is_below = rank[j] < r
        at_upper = discount[j] if is_below else w
        between = c - running[j] if is_below else before[j] - s
        out[j] = abs((gain[j] - g) * (at_upper - between * (inverse[j] if is_below else own_inverse)))
    if i == first_stop:
        for j in range(len(out)):
            if rank[j] > r:
                out[j] = abs((gain[j] - g) * (w - beyond[j]))
    elif first_stop >= start and table[6, first_stop] < r:
        weight[first_stop] = abs((table[1, first_stop] - g) * (table[0, first_stop] - table[5, i]))


@helper
def _pair_row(table: Any, first_stop: int, i: int, start: int, weight: Any) -> None:
    own, level, of_row = table[0], table[1], table[2 + int(table[1, i])]
    at_row = empty(len(table), weight)
    for row in range(2, len(table)):
        at_row[row - 2] = table[row, i]
    for j in range(start, len(weight)):
        weight[j] = abs(of_row[j] - own[i] + at_row[int(level[j])] - own[j])


_FUNCTIONS = {
    SWAP_ADDITIVE: (_additive_table, _additive_row),
    SWAP_PUBLISHED: (_additive_table, _row_of_one_item),
    SWAP_PRECISION_SUM: (_precision_table, _precision_row),
    SWAP_FIRST_HIT: (_first_hit_table, _first_hit_row),
    SWAP_CASCADE: (_cascade_table, _cascade_row),
    SWAP_PAIRS: (_pair_table, _pair_row),
    SWAP_LOSS1: (_loss1_table, _row_of_one_item),
    SWAP_LOSS2: (_distance_table, _loss2_row),
    SWAP_LOSS2PP: (_distance_table, _loss2pp_row),
}


def swap_functions(form: int) -> tuple[Any, Any]:
    """The functions of a form that compute its table and a row of its deltas."""
    return _FUNCTIONS[form]


# ---- options of LambdaRank -------------------------------------------------------------------------------------------


@helper
def adjust_row(
    weight: Any, x: Any, i: int, start: int, ranks: Any, truncation: int, by_distance: bool, alpha: float
) -> None:
    """Apply truncation (0 for none) and division by the distance of scores to weight[j], j >= start.

    A pair counts if one of its ranks is within the truncation; x are the scores times alpha.
    """
    zero = weight.dtype.type(0)
    if 0 < truncation < ranks[i]:
        for j in range(np.uintp(start), np.uintp(len(weight))):
            weight[j] = weight[j] if ranks[j] <= truncation else zero
    if by_distance:
        near, unit = weight.dtype.type(NEARNESS), weight.dtype.type(1 / alpha)
        for j in range(np.uintp(start), np.uintp(len(weight))):
            weight[j] /= near + abs(x[j] - x[i]) * unit


@helper
def normalizing_factor(normalization: int, lambdas: float) -> float:
    """Factor on the lambdas of a query whose absolute values sum to ``lambdas`` over all items."""
    if normalization == 0 or lambdas <= 0.0:
        return 1.0
    if normalization == NORMALIZE_SQRT:
        return 1.0 / math.sqrt(lambdas)
    return math.log(1.0 + lambdas) / (math.log(2.0) * lambdas)
