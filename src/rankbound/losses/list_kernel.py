"""Kernels of the losses of whole lists: softmax, ListNet, ListMLE and SoftRank, in float64 throughout."""

from __future__ import annotations

import math
from typing import Any

from rankbound.losses.compiling import block_kernel, helper
from rankbound.losses.extremes import larger, smaller
from rankbound.losses.memory import empty, zeros

__all__ = ["LISTMLE", "LISTNET", "list_pass", "soft_rank_pass", "softmax_pass"]

LISTNET, LISTMLE = range(2)


@helper
def _softmax(scores: Any, target: Any, scale: float, gradient: Any, hessian: Any) -> float:
    """Cross entropy of softmax(scale * scores) and a target; its gradient is scale (sum(target) softmax - target)."""
    highest = scores.max()
    for j in range(len(scores)):
        gradient[j] = math.exp(scale * (scores[j] - highest))
    # A loop that sums writes no array: whether arrays might overlap, which depends on where they lie in memory, would
    # decide about the order of its sums.
    mass, total, mean = 0.0, 0.0, 0.0
    for j in range(len(scores)):
        mass += gradient[j]
        total += target[j]
        mean += target[j] * (scores[j] - highest)
    for j in range(len(scores)):
        probability = gradient[j] / mass
        gradient[j] = scale * (total * probability - target[j])
        hessian[j] = scale * scale * total * probability * (1.0 - probability)
    return total * math.log(mass) - scale * mean


@helper
def _list_mle(x: Any, gradient: Any, hessian: Any) -> float:
    """-log likelihood of the order 0, 1, 2, ... under Plackett-Luce.

    With S_i the sum of exp(x_j) over j >= i: loss = sum_i log S_i - x_i. The sums run from the end, relative to the
    largest score so far, so that no score can overflow.
    """
    n = len(x)
    log_sum = empty(n, x)
    highest, mass, result = x[n - 1], 0.0, 0.0
    for i in range(n - 1, -1, -1):
        if x[i] > highest:
            mass *= math.exp(highest - x[i])
            highest = x[i]
        mass += math.exp(x[i] - highest)
        log_sum[i] = highest + math.log(mass)
        result += log_sum[i] - x[i]
    # The gradient of item j is the sum over i <= j of exp(x_j - log S_i), minus 1. log S falls with i, so the running
    # sum of 1/S_i is stored relative to the newest and largest term.
    inverse, squared, reference = 0.0, 0.0, log_sum[0]
    for j in range(n):
        shrink = math.exp(log_sum[j] - reference)
        inverse = inverse * shrink + 1.0
        squared = squared * shrink * shrink + 1.0
        reference = log_sum[j]
        own = math.exp(x[j] - reference)
        gradient[j] = own * inverse - 1.0
        hessian[j] = larger(own * inverse - own * own * squared, 0.0)
    return result


@block_kernel
def list_pass(
    queries: Any, scores: Any, offsets: Any, order: Any, target: Any, active: Any,
    loss: int, values: Any, gradient: Any, hessian: Any,
) -> None:  # fmt: skip
    """Compute ListNet or ListMLE per active query.

    ``order`` lists the items by label; ``target`` are their target probabilities in that order.
    """
    for q in queries:
        if active[q]:
            lo, hi = offsets[q], offsets[q + 1]
            n = hi - lo
            x, sorted_gradient, sorted_hessian = empty(n, scores), empty(n, scores), empty(n, scores)
            for j in range(n):
                x[j] = scores[lo + order[lo + j]]
            if loss == LISTNET:
                values[q] = _softmax(x, target[lo:hi], 1.0, sorted_gradient, sorted_hessian)
            else:
                values[q] = _list_mle(x, sorted_gradient, sorted_hessian)
            for j in range(n):
                gradient[lo + order[lo + j]] = sorted_gradient[j]
                hessian[lo + order[lo + j]] = sorted_hessian[j]


@block_kernel
def softmax_pass(
    queries: Any, scores: Any, offsets: Any, target: Any, active: Any,
    scale: float, values: Any, gradient: Any, hessian: Any,
) -> None:  # fmt: skip
    """Softmax cross entropy per active query: one pass over its items and one over their probabilities."""
    for q in queries:
        if active[q]:
            lo, hi = offsets[q], offsets[q + 1]
            values[q] = _softmax(scores[lo:hi], target[lo:hi], scale, gradient[lo:hi], hessian[lo:hi])


@helper
def _without(distribution: Any, p: float, out: Any) -> None:
    """Remove one coin of probability p from the distribution of a sum of coin flips.

    The recurrence is solved from the end at which it is stable.
    """
    n = len(out)
    if p <= 0.5:
        previous = 0.0
        for r in range(n):
            previous = (distribution[r] - p * previous) / (1.0 - p)
            out[r] = previous
    else:
        previous = 0.0
        for r in range(n - 1, -1, -1):
            previous = (distribution[r + 1] - (1.0 - p) * previous) / p
            out[r] = previous


@helper
def _soft_query(x: Any, rows: int, weights: Any, k: float, discount: Any, gradient: Any, hessian: Any) -> float:
    """Expected DCG when scores carry Gaussian noise: the rank of a row is 1 plus a sum of independent coin flips."""
    n = len(x)
    result = 0.0
    above, density, distribution, rest = empty(n, x), empty(n, x), empty(n, x), empty(n - 1, x)
    last = n if k <= 0.0 else smaller(n, int(k))
    for i in range(rows):
        distribution[:] = 0.0
        distribution[0] = 1.0
        coins = 0
        for j in range(n):
            d = smaller(larger(x[j] - x[i], -27.0), 27.0)
            above[j] = 0.5 * math.erfc(-d)  # x is scaled so that the difference of two scores has this distribution
            density[j] = math.exp(-d * d) / math.sqrt(math.pi)
            if j != i:
                coins += 1
                for r in range(coins, 0, -1):
                    distribution[r] = distribution[r] * (1.0 - above[j]) + distribution[r - 1] * above[j]
                distribution[0] *= 1.0 - above[j]
        for r in range(last):
            result += weights[i] * discount[r] * distribution[r]
        for j in range(n):
            if j != i:
                _without(distribution, above[j], rest)
                change = 0.0
                for r in range(smaller(last, n - 1)):
                    after = discount[r + 1] if r + 1 < last else 0.0
                    change += rest[r] * (after - discount[r])
                contribution = weights[i] * change * density[j]
                gradient[j] += contribution
                gradient[i] -= contribution
                hessian[j] += abs(contribution)
                hessian[i] += abs(contribution)
    return result


@block_kernel
def soft_rank_pass(
    queries: Any, scores: Any, offsets: Any, order: Any, rows: Any, weights: Any,
    scale: float, k: float, discount: Any, values: Any, gradient: Any, hessian: Any,
) -> None:  # fmt: skip
    """SoftNDCG per query: O(P N^2) time, O(N) memory. The outputs must be zeros on entry."""
    for q in queries:
        if rows[q] > 0:
            lo, hi = offsets[q], offsets[q + 1]
            n = hi - lo
            x, sorted_gradient, sorted_hessian = empty(n, scores), zeros(n, scores), zeros(n, scores)
            for j in range(n):
                x[j] = scale * scores[lo + order[lo + j]]
            values[q] = _soft_query(x, rows[q], weights[lo:hi], k, discount, sorted_gradient, sorted_hessian)
            for j in range(n):
                gradient[lo + order[lo + j]] = scale * sorted_gradient[j]
                hessian[lo + order[lo + j]] = scale * scale * sorted_hessian[j]
