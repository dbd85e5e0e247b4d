"""The kernel of pairwise distillation: binary cross entropy of all pairs of a list. It computes in float64 throughout.

With x the scores of the student and t those of the teacher, both divided by their temperatures, a pair i < j with
d = x_j - x_i and target w = σ(t_j - t_i) costs

    log(1 + exp(d)) - w d = max(d, 0) - w d - log(max(σ(d), 1 - σ(d))),

whose derivatives in d are σ(d) - w and σ(d) (1 - σ(d)). The logarithms of a block of pairs are one logarithm of a
product of numbers from 1/2 to 1. Nothing is stored per pair. Where scores are so far apart that their exponentials
would overflow, two rows of probabilities are computed first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankbound.losses.compiling import block_kernel, helper
from rankbound.losses.extremes import larger, smaller
from rankbound.losses.memory import empty
from rankbound.losses.sigmoids import factors, sigmoid_row

__all__ = ["soft_pair_pass"]

_FACTORS = 512  # of one product: 2^-512 is far from underflow


@helper
def _row(x: Any, i: int, above: Any, slope: Any, target: Any, gradient: Any, hessian: Any) -> float:
    """Cost of the pairs of item i with later items; adds gradient and hessian of both items of every pair."""
    n, here = len(x), x[i]
    result = 0.0
    for begin in range(i + 1, n, _FACTORS):
        product, linear, pulled, curved = 1.0, 0.0, 0.0, 0.0
        for j in range(np.uintp(begin), np.uintp(smaller(begin + _FACTORS, n))):
            d = x[j] - here
            product *= larger(above[j], 1.0 - above[j])
            linear += larger(d, 0.0) - target[j] * d
            change = above[j] - target[j]
            gradient[j] += change
            hessian[j] += slope[j]
            pulled += change
            curved += slope[j]
        gradient[i] -= pulled
        hessian[i] += curved
        result += linear - math.log(product)
    return result


@helper
def _factored_row(
    x: Any, student: Any, teacher: Any, i: int, with_hessian: bool, gradient: Any, hessian: Any
) -> float:  # fmt: skip
    """The same from the exponentials of both sides in one loop, with one division per pair: 1/a = b/(a b)."""
    n, here, own, own_teacher = len(x), x[i], student[i], teacher[i]
    result = 0.0
    for begin in range(i + 1, n, _FACTORS):
        first, last = np.uintp(begin), np.uintp(smaller(begin + _FACTORS, n))
        product, linear, pulled = 1.0, 0.0, 0.0
        for j in range(first, last):
            d = x[j] - here
            both, both_teacher = student[j] + own, teacher[j] + own_teacher
            inverse = 1.0 / (both * both_teacher)
            above = student[j] * (both_teacher * inverse)
            target = teacher[j] * (both * inverse)
            product *= larger(above, 1.0 - above)
            linear += larger(d, 0.0) - target * d
            change = above - target
            gradient[j] += change
            pulled += change
        if with_hessian:
            curved = 0.0
            for j in range(first, last):
                above = student[j] / (student[j] + own)
                slope = above * (1.0 - above)
                hessian[j] += slope
                curved += slope
            hessian[i] += curved
        gradient[i] -= pulled
        result += linear - math.log(product)
    return result


@helper
def _query(scores: Any, teacher: Any, scale: float, with_hessian: bool, gradient: Any, hessian: Any) -> float:
    """Mean cost of the pairs of one query."""
    n = len(scores)
    middle = scores.min() / 2 + scores.max() / 2
    x = empty(n, scores)
    for j in range(n):
        x[j] = scale * (scores[j] - middle)
    by_student = factors(x, x.max(), n, None)
    by_teacher = factors(teacher, teacher.max(), n, None)
    above, slope, target, unused = empty(n, x), empty(n, x), empty(n, x), empty(n, x)
    result = 0.0
    factored = len(by_student) > 0 and len(by_teacher) > 0
    for i in range(n - 1):
        if factored:
            result += _factored_row(x, by_student, by_teacher, i, with_hessian, gradient, hessian)
            continue
        sigmoid_row(None, x, by_student, i, i + 1, n, above, slope)
        sigmoid_row(None, teacher, by_teacher, i, i + 1, n, target, unused)
        result += _row(x, i, above, slope, target, gradient, hessian)
    weight = 2.0 / (n * (n - 1.0))
    for j in range(n):
        gradient[j] *= weight * scale
        hessian[j] *= weight * scale * scale
    return weight * result


@block_kernel
def soft_pair_pass(
    queries: Any, scores: Any, offsets: Any, teacher: Any, active: Any,
    scale: float, with_hessian: bool, values: Any, gradient: Any, hessian: Any,
) -> None:  # fmt: skip
    """Mean binary cross entropy of all pairs per active query, which has at least two items.

    ``scale`` multiplies the scores; ``teacher`` is scaled already, with the middle of its range at 0 in every query.
    The outputs must be zeros on entry.
    """
    for q in queries:
        if active[q]:
            lo, hi = offsets[q], offsets[q + 1]
            values[q] = _query(scores[lo:hi], teacher[lo:hi], scale, with_hessian, gradient[lo:hi], hessian[lo:hi])
