"""Losses of whole lists and of single items in torch operations, for all lists of a bucket at once.

As in `list_kernel`, everything is computed in the exact type of the layout.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from rankbound.losses.vector_swaps import running

if TYPE_CHECKING:
    from rankbound.losses.buckets import Bucket, Result

__all__ = ["run_list_mle", "run_pointwise", "run_soft_rank", "run_softmax"]


def run_softmax(bucket: Bucket, scores: Any, target: Any, scale: float) -> Result:
    """Cross entropy of softmax(scale * scores) and a target, both [queries, length], and its gradient."""
    x = bucket.fill_padding(scale * scores.to(bucket.layout.exact), -math.inf)
    target = bucket.fill_padding(target.to(x.dtype), 0.0)
    log_probability = torch.log_softmax(x, 1)
    total = target.sum(1, keepdim=True)
    value = -(target * bucket.fill_padding(log_probability, 0.0)).sum(1)
    return value, scale * (total * log_probability.exp() - target), None


def run_list_mle(bucket: Bucket, scores: Any) -> Result:
    """-log likelihood of the order of the bucket under Plackett-Luce: sum_i log(sum_{j>=i} exp x_j) - x_i."""
    x = bucket.fill_padding(scores.to(bucket.layout.exact), -math.inf)
    log_sums = running(torch.logaddexp, x.flip(1)).flip(1)  # of an item and those after it
    value = bucket.fill_padding(log_sums - x, 0.0).sum(1)
    # the gradient of item j is the sum over i <= j of exp(x_j - log_sums_i), minus 1
    inverse = running(torch.logaddexp, bucket.fill_padding(-log_sums, -math.inf))
    return value, bucket.fill_padding(torch.exp(x + inverse) - 1, 0.0), None


def run_pointwise(bucket: Bucket, scores: Any, labels: Any, is_regression: bool) -> Result:
    """Mean squared error of labels, or mean log loss of labels that are 1 or 0."""
    x, labels = scores.to(bucket.layout.exact), labels.to(bucket.layout.exact)
    weight = bucket.inside.to(x.dtype) / bucket.sizes
    if is_regression:
        error = x - labels
        return (weight * error**2).sum(1), 2 * weight * error, None
    loss = torch.nn.functional.softplus(torch.where(labels > 0, -x, x), threshold=40.0)
    return (weight * loss).sum(1), weight * (torch.sigmoid(x) - labels), None


def run_soft_rank(
    bucket: Bucket, scores: Any, scale: float, cutoff: int, discounts: Any, with_gradient: bool
) -> Result:
    """Expected DCG when scores carry Gaussian noise: the rank of a row is 1 plus a sum of independent coin flips.

    The distributions of the ranks of all rows of a chunk are built one competitor at a time. For the gradient each
    coin is removed again: the recurrence is solved from the end at which it is stable.
    """
    exact, inside, n = bucket.layout.exact, bucket.inside, bucket.length
    x, weights = scale * scores.to(exact), bucket.row_weights
    last = bucket.sizes if cutoff == 0 else bucket.sizes.clamp(max=cutoff)
    discount = torch.where(bucket.columns < last, discounts[:n], 0.0)  # [queries, ranks]
    total, gradient = torch.zeros(len(x), dtype=exact, device=x.device), torch.zeros_like(x)
    for rows in bucket.chunks():
        d = (x[:, None, :] - x[:, rows, None]).clamp_(-27.0, 27.0)
        is_coin = inside[:, None, :] & (bucket.columns != bucket.columns[rows, None])
        above = torch.special.erfc(-d).mul_(0.5).mul_(is_coin)
        distribution = _coin_sums(above)
        total += (weights[:, rows] * (distribution * discount[:, None, :]).sum(2)).sum(1)
        if with_gradient and n > 1:
            steps = (discount[:, 1:] - discount[:, :-1]) * (bucket.columns[1:] < bucket.sizes)
            change = _change_by_coin(distribution, above, steps)
            density = d.square_().neg_().exp_().mul_(is_coin).mul_(1 / math.sqrt(math.pi))
            table = change.mul_(density).mul_(weights[:, rows, None])
            gradient += table.sum(1)
            gradient[:, rows] -= table.sum(2)
            del change, density, table
        del d, is_coin, above, distribution
    return total, scale * gradient if with_gradient else None, None


def _coin_sums(above: Any) -> Any:
    """The distribution of the number of heads of coins with these probabilities, along the last dimension."""
    distribution = torch.zeros_like(above)
    distribution[:, :, 0] = 1
    for j in range(above.shape[2]):
        heads = above[:, :, j : j + 1]
        moved = distribution[:, :, :-1] * heads
        distribution.mul_(1 - heads)
        distribution[:, :, 1:] += moved
    return distribution


def _change_by_coin(distribution: Any, above: Any, steps: Any) -> Any:
    """Sum over r of P(r heads without the coin) * steps[r], for each coin: what its probability adds per unit."""
    n = distribution.shape[2]
    is_rare = above <= 0.5
    rare, frequent = torch.where(is_rare, above, 0.0), torch.where(is_rare, 1.0, above)
    upward, downward = torch.zeros_like(above), torch.zeros_like(above)
    up, down = torch.zeros_like(above), torch.zeros_like(above)
    for r in range(n - 1):
        up = (distribution[:, :, r, None] - rare * up) / (1 - rare)
        upward.addcmul_(up, steps[:, None, r, None])
    for r in range(n - 2, -1, -1):
        down = (distribution[:, :, r + 1, None] - (1 - frequent) * down) / frequent
        downward.addcmul_(down, steps[:, None, r, None])
    return torch.where(is_rare, upward, downward)
