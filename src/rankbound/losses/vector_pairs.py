"""Losses of pairs in torch operations: value and gradient of the lists of a bucket, by explicit formulas.

The costs are those of `pair_kernel`; the weights of pairs by swap deltas are in `vector_swaps`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from rankbound.losses import swaps
from rankbound.losses.pair_kernel import COST_LOGISTIC, COST_SQUARE
from rankbound.losses.vector_smooth import add_pairs, centered, is_pair
from rankbound.losses.vector_swaps import Swaps, ranks_of

if TYPE_CHECKING:
    from rankbound.losses.buckets import Bucket, Result
    from rankbound.losses.pairwise import PairOptions

__all__ = ["run_pairs", "run_soft_pairs"]


def run_pairs(
    bucket: Bucket,
    scores: Any,
    ranked_by: Any,
    options: PairOptions,
    with_gradient: bool,
    needs_measure: bool,
    memory: Any,
) -> Result:
    """Value per list, gradient per item and, if needed, the measure of the present ranking of the lists of a bucket.

    ``scores`` and ``ranked_by`` are those of all items, with a 0 at the end for padding.
    """
    plan, exact = bucket.layout.plan, bucket.layout.exact
    own, others = centered(bucket, scores[bucket.items], options.alpha)
    deltas = measured = None
    if plan.swap >= 0:
        deltas = Swaps(bucket, ranks_of(bucket, ranked_by), options.mu)
        if needs_measure:
            by_score = deltas if ranked_by is scores else Swaps(bucket, ranks_of(bucket, scores), options.mu)
            scale, offset = bucket.of_queries(plan.scale, "scale"), bucket.of_queries(plan.offset, "offset")
            measured = (offset + scale * by_score.measure()[:, None])[:, 0]
    total = torch.zeros(len(own), dtype=exact, device=own.device)
    lambdas, gradient = torch.zeros_like(total), bucket.zeros()
    for rows in bucket.chunks():
        weights = is_pair(bucket, rows)
        d = bucket.differences(others, own, rows, memory)
        if deltas is not None:
            weights = _adjusted(deltas.weights(rows).mul_(weights), d, own, deltas, rows, options)
        value, slope = _costs(options.cost, d, with_gradient or options.normalization > 0)
        total += value.mul_(weights).sum((1, 2))
        if slope is not None:
            slope.mul_(weights)
            lambdas += slope.sum((1, 2))
            add_pairs(gradient, slope, rows)
        del weights, value, slope  # before the next chunk has its own
    scale = bucket.constants * _normalizing_factor(
        options.normalization, 2 * options.alpha * bucket.constants * lambdas
    )
    gradient = gradient * (options.alpha * scale).to(gradient.dtype)[:, None] if with_gradient else None
    return scale * total, gradient, measured


def _costs(cost: int, d: Any, with_slope: bool) -> tuple[Any, Any]:
    """Cost of each pair by d = x_j - x_i, where i has the higher label, and its derivative in d; overwrites d."""
    if cost == COST_LOGISTIC:
        value = torch.nn.functional.softplus(d, threshold=40.0)
        return value, d.sigmoid_() if with_slope else None
    above = d.sigmoid_()
    if cost == COST_SQUARE:
        value = above.square().mul_(4)
        return value, (1 - above).mul_(value).mul_(2) if with_slope else None
    activation = (2 * above).sub_(1)  # tanh(d / 2)
    value = torch.nn.functional.softplus(activation)
    return value, activation.sigmoid_().mul_(2).mul_(above).mul_(1 - above) if with_slope else None


def _adjusted(weights: Any, d: Any, own: Any, deltas: Swaps, rows: slice, options: PairOptions) -> Any:
    """Apply truncation and division by the distance of scores to the weights of pairs."""
    if options.truncation > 0:
        within = deltas.ranks <= options.truncation
        weights.mul_(within[:, rows, None] | within[:, None, :])
    if options.normalization == swaps.NORMALIZE_LIGHTGBM:
        farthest = deltas.bucket.fill_padding(own.abs(), 0.0).amax(1)[:, None, None]  # 0 if all scores are equal
        weights.div_(torch.where(farthest > 0, d.abs().mul_(1 / options.alpha).add_(swaps.NEARNESS), 1.0))
    return weights


def _normalizing_factor(normalization: int, lambdas: Any) -> Any:
    """Factor on the lambdas of each list whose absolute values sum to ``lambdas`` over all items."""
    if normalization == 0:
        return 1.0
    positive = lambdas > 0
    safe = torch.where(positive, lambdas, 1.0)
    if normalization == swaps.NORMALIZE_SQRT:
        return torch.where(positive, safe.rsqrt(), 1.0)
    return torch.where(positive, torch.log1p(safe) / (math.log(2) * safe), 1.0)


def run_soft_pairs(bucket: Bucket, scores: Any, scale: float, with_gradient: bool, memory: Any) -> Result:
    """Mean binary cross entropy of all pairs, whose targets are the sigmoids of the differences of the weights.

    Every pair is visited from both of its items, which have the same cost, and each item is compared with itself,
    which costs log(2) and has no gradient.
    """
    own, others = centered(bucket, scores, scale)
    teacher, inside = bucket.weights, bucket.inside
    total = torch.zeros(len(own), dtype=bucket.layout.exact, device=own.device)
    gradient = bucket.zeros()
    for rows in bucket.chunks():
        d = bucket.differences(others, own, rows, memory).masked_fill_(~inside[:, None, :], 0.0)
        target = (teacher[:, None, :] - teacher[:, rows, None]).sigmoid_()
        both = inside[:, rows, None] & inside[:, None, :]
        value = torch.nn.functional.softplus(d, threshold=40.0).addcmul_(target, d, value=-1).mul_(both)
        total += value.sum((1, 2))
        if with_gradient:
            gradient += d.sigmoid_().sub_(target).mul_(both).sum(1)
        del target, both, value
    sizes = bucket.sizes[:, 0].to(total.dtype)
    weight = 1 / (sizes * (sizes - 1))
    gradient = gradient * (2 * scale * weight).to(gradient.dtype)[:, None] if with_gradient else None
    return weight * (total - sizes * math.log(2)), gradient, None
