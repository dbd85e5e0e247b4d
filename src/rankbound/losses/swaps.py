"""Swap deltas: by how much a measure changes when two items of the present ranking trade places.

Each delta is O(1) after one sort and one running sum per query. With r the rank of an item (1 = best score, ties in
input order), i the item of the row (relevant, or of higher label), j that of the column, and terms beyond a cutoff k
taken as 0:

=========  =====================================================================================================
measure    |change of the measure when i and j swap|
=========  =====================================================================================================
nDCG       |g_i - g_j| |d(r_i) - d(r_j)|, gains over the ideal DCG, d(r) = 1 / log2(1 + r)
nRBP       |p^(r_i - 1) - p^(r_j - 1)| (1 - p) / (1 - p^P)
precision  1/k if exactly one of the two ranks is <= k
RR         only a swap that moves the first relevant item counts: it goes to r_j, or to the second one's rank
AP         with c(r) relevant items and A(r) = sum of 1/rank over relevant items down to rank r, over P:
           j above i: (c(r_j) + 1)/r_j - c(r_i)/r_i + A(r_i - 1) - A(r_j);
           i above j: c(r_j)/r_j - c(r_i)/r_i - A(r_j) + A(r_i)
ERR        with C(r) the probability to read on after rank r and T(r) ERR down to rank r, a above b:
           C(a-1)(q_b - q_a)/a + (T(b-1) - T(a)) (s - 1) + C(b-1)(q_a s - q_b)/b, s = (1 - q_b)/(1 - q_a)
published  p^(r_i - 1) (1 - p) / (1 - p^P): eq. 10 of the metric optimization paper for nRBP, which is not the swap
=========  =====================================================================================================

Source of the principle: Donmez, Svore & Burges, On the local optimality of LambdaRank.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankbound.losses.compiling import helper
from rankbound.losses.sigmoids import STRIDE, in_strides

__all__ = [
    "SWAP_AP",
    "SWAP_DCG",
    "SWAP_ERR",
    "SWAP_NRBP",
    "SWAP_PRECISION",
    "SWAP_PUBLISHED",
    "SWAP_RR",
    "swap_row",
    "swap_tables",
]

SWAP_DCG, SWAP_NRBP, SWAP_PRECISION, SWAP_PUBLISHED, SWAP_RR, SWAP_AP, SWAP_ERR = range(7)


@helper
def _discount(measure: int, rank: int, k: float, p: float) -> float:
    """What a relevant item at this rank is worth by its rank alone."""
    if k > 0.0 and rank > k:
        return 0.0
    if measure == SWAP_DCG:
        return 1.0 / math.log2(1.0 + rank)
    if measure in (SWAP_NRBP, SWAP_PUBLISHED):
        return float(p ** (rank - 1.0))
    if measure == SWAP_PRECISION:
        return 1.0
    return 1.0 / rank


@helper
def _by_score(scores: Any) -> Any:
    """Positions from the highest score down, equal ones in input order.

    Strides are sorted by counting for each item who stands above, which vectorizes, then merged. Written out because
    the library's own sort makes every kernel that calls it slow to compile.
    """
    n = len(scores)
    now, then = np.empty(n, np.int64), np.empty(n, np.int64)
    zero, one = scores.dtype.type(0), scores.dtype.type(1)
    keys = np.full(in_strides(n), scores.min(), scores.dtype)  # what fills up the last stride stands above nobody
    keys[:n] = scores
    for lo in range(0, n, STRIDE):
        block = keys[lo : lo + STRIDE]
        count = np.uintp(len(block))  # if LLVM knew it, it would unroll the loop below in place of vectorizing it
        for i in range(min(STRIDE, n - lo)):
            own, above, equal = block[i], zero, zero
            for j in range(count):
                above += one if block[j] > own else zero
                equal += one if block[j] == own else zero
            place = lo + int(above)
            if equal > one:
                for j in range(i):
                    place += block[j] == own
            now[place] = lo + i
    width = STRIDE
    while width < n:
        for lo in range(0, n, 2 * width):
            middle, hi = min(lo + width, n), min(lo + 2 * width, n)
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
    """Merge two runs of equal length from both ends at once: neither end can leave them, so nothing is tested twice."""
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


@helper
def swap_tables(scores: Any, order: Any, gains: Any, measure: int, k: float, p: float) -> Any:
    """Rank order of a query, with what the deltas need, and the value of the measure as it stands.

    ``gains`` is in sorted order (items of high label first, as ``order`` lists them): gain over ideal for nDCG, stop
    probability for ERR, normalizer of a relevant item (1/P, (1 - p)/(1 - p^P), 1/k, 1) for the others, else 0. Rows
    of the table: discount (for ERR times the probability to come that far), gain, running sum, count (for ERR the sum
    before), rank, for ERR 1 / (1 - gain), for AP count * discount - sum; for RR the third and fourth hold, at 0, the
    discounts of the first and the second relevant item.
    """
    n = len(scores)
    by_score = _by_score(scores)
    place = np.empty(n, np.int64)  # input position -> sorted (by label) position
    for j in range(n):
        place[order[j]] = j
    table = np.zeros((6, n), scores.dtype)  # sums run in float64; what is kept has the precision of the scores
    running, count, probability, result = 0.0, 0.0, 1.0, 0.0
    for position in range(n):
        j = place[by_score[position]]
        rank = position + 1
        worth, gain = _discount(measure, rank, k, p), gains[j]
        table[0, j], table[1, j], table[4, j] = worth, gain, rank
        if measure == SWAP_ERR:
            worth *= probability
            table[0, j], table[3, j], table[5, j] = worth, running, 1.0 / (1.0 - gain)
            running += worth * gain
            result = running
            probability *= 1.0 - gain
        elif measure == SWAP_AP:
            if gain > 0.0:
                count += 1.0
                running += worth
                result += worth * count * gain
            table[3, j], table[5, j] = count, count * worth - running
        elif measure == SWAP_RR:
            if gain > 0.0:
                if count < 2.0:
                    table[2 + int(count), 0] = worth  # of the first and of the second relevant item
                if count == 0.0:
                    result = worth
                count += 1.0
            continue
        else:
            result += worth * gain
        table[2, j] = running
    return table, result


@helper
def swap_row(measure: int, table: Any, i: int, start: int, weight: Any) -> None:
    """weight[j] = |change of the measure when items i and j swap| for j >= start."""
    zero, one = weight.dtype.type(0), weight.dtype.type(1)  # plain ones would widen float32
    out = weight[start:]
    worth, gain, running, before, rank = (
        table[0, start:], table[1, start:], table[2, start:], table[3, start:], table[4, start:],
    )  # fmt: skip
    w, g, s, c, r = table[0, i], table[1, i], table[2, i], table[3, i], table[4, i]
    if measure == SWAP_PUBLISHED:
        for j in range(len(out)):
            out[j] = w * g
    elif measure == SWAP_RR:
        first, second = table[2, 0], table[3, 0]
        is_first = w == first and w > zero
        for j in range(len(out)):
            if rank[j] < r:
                out[j] = max(worth[j] - first, zero)
            else:
                out[j] = first - max(worth[j], second) if is_first else zero
    elif measure == SWAP_AP:
        level, mine = table[5, start:], s - c * w  # c(r)/r - A(r) of the columns, and minus that of the row
        for j in range(len(out)):
            out[j] = abs(level[j] + mine + (worth[j] - w if rank[j] < r else zero)) * g
    elif measure == SWAP_ERR:
        inverse, stay = table[5, start:], table[5, i]  # 1 / (1 - q)
        for j in range(len(out)):
            # first which of the two stands above, then one formula: no branch, so that LLVM can vectorize
            lower = rank[j] < r
            q_a, q_b = (gain[j], g) if lower else (g, gain[j])
            reach_a, reach_b = (worth[j], w) if lower else (w, worth[j])
            seen = c - running[j] if lower else before[j] - s  # ERR between the two
            ratio = (one - q_b) * (inverse[j] if lower else stay)
            out[j] = abs(reach_a * (q_b - q_a) + seen * (ratio - one) + reach_b * (q_a * ratio - q_b))
    else:
        for j in range(len(out)):
            out[j] = abs((g - gain[j]) * (w - worth[j]))
