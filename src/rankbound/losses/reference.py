"""Reference forms of the losses in torch, one query at a time.

The kernels are tested against these forms, which also run on other devices than the CPU. They are written to be
compared with the papers. ``scores`` and ``labels`` are those of one query; labels are not negative. Pair matrices have
a row per item with gain and a column per item; entry (i, j) refers to "j above i". The formulas of measures come from
their definitions by way of `structures`; here are those of ranks, pairs and lists.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rankbound.losses.lazy_torch import torch

if TYPE_CHECKING:
    from rankbound.losses.sigmoids import Sigmoid

__all__ = [
    "additive_deltas",
    "cascade_deltas",
    "first_hit_of_ranks",
    "inside",
    "lambda_cost",
    "list_mle",
    "list_net",
    "pair_costs",
    "pair_deltas",
    "pointwise",
    "precision_sum",
    "precision_sum_deltas",
    "precision_sum_of_ranks",
    "ranks_of",
    "smooth_ranks",
    "soft_rank",
    "steps",
    "truncated",
]


# ---- smooth ranks ----------------------------------------------------------------------------------------------------


def steps(scores: Any, rows: Any, sigmoid: Sigmoid, alpha: float) -> Any:
    """σ(alpha (f_j - f_i)) for i in rows and every j, 0 at j = i."""
    table = sigmoid.torch_form(alpha * (scores[None, :] - scores[rows, None]))
    return table * (torch.arange(len(scores), device=scores.device)[None, :] != rows[:, None])


def smooth_ranks(scores: Any, rows: Any, sigmoid: Sigmoid, alpha: float) -> Any:
    """1 + sum over j of σ(alpha (f_j - f_i)) for i in rows."""
    return 1 + steps(scores, rows, sigmoid, alpha).sum(1)


def inside(ranks: Any, cut: float, beta: float) -> Any:
    """Smooth truncation σ(beta (cut + 1/2 - R)); 1 without cutoff (cut = 0)."""
    return torch.sigmoid(beta * (cut + 0.5 - ranks)) if cut > 0 else torch.ones_like(ranks)


def precision_sum(scores: Any, relevant: Any, sigmoid: Sigmoid, alpha: float, cut: float, beta: float) -> Any:
    """sum_i (1 + sum over relevant j of σ(f_j - f_i)) / R_i over relevant i."""
    rows = torch.nonzero(relevant)[:, 0]
    table = steps(scores, rows, sigmoid, alpha)
    ranks = 1 + table.sum(1)
    hits = 1 + table[:, rows].sum(1)
    return (hits / ranks * inside(ranks, cut, beta)).sum()


def precision_sum_of_ranks(scores: Any, relevant: Any, sigmoid: Sigmoid, alpha: float, cut: float, beta: float) -> Any:
    """sum_i (1 + sum over relevant j of σ(beta (R_i - R_j))) / R_i over relevant i."""
    rows = torch.nonzero(relevant)[:, 0]
    ranks = smooth_ranks(scores, rows, sigmoid, alpha)
    table = torch.sigmoid(beta * (ranks[:, None] - ranks[None, :]))
    hits = 1 + table.sum(1) - table.diagonal()
    return (hits / ranks * inside(ranks, cut, beta)).sum()


def first_hit_of_ranks(ranks: Any, terms: Any, beta: float) -> Any:
    """sum_i terms_i prod over relevant j of (1 - σ(beta (R_i - R_j))) over relevant i."""
    table = torch.sigmoid(beta * (ranks[None, :] - ranks[:, None]))
    return (terms * (table + torch.eye(len(ranks), device=ranks.device) * (1 - table)).prod(1)).sum()


def soft_rank(scores: Any, weights: Any, discounts: Any, noise: float) -> Any:
    """Expected sum of weight * discount when every score carries Gaussian noise.

    The distribution of a rank is built one competitor at a time.
    """
    n = len(scores)
    expected = scores.new_zeros(())
    for i in torch.nonzero(weights)[:, 0].tolist():
        distribution = torch.zeros_like(scores)
        distribution[0] = 1
        above = 0.5 * torch.special.erfc((scores[i] - scores) / (2 * noise))
        for j in range(n):
            if j != i:
                shifted = torch.cat([distribution.new_zeros(1), distribution[:-1]])
                distribution = distribution * (1 - above[j]) + shifted * above[j]
        expected = expected + weights[i] * (distribution * discounts).sum()
    return expected


# ---- pairs, lists, points --------------------------------------------------------------------------------------------


def pair_costs(differences: Any, cost: str) -> Any:
    """Cost of pairs by d = f_i - f_j with i of the higher label."""
    if cost == "square":
        return (1 - torch.tanh(differences)) ** 2
    return torch.nn.functional.softplus(-torch.tanh(differences) if cost == "tanh" else -differences)


def list_net(scores: Any, labels: Any) -> Any:
    """Cross entropy of the top-one probabilities of scores against those of labels."""
    target = torch.softmax(labels.to(scores.dtype), 0)
    return -(target * torch.log_softmax(scores, 0)).sum()


def list_mle(scores: Any, labels: Any) -> Any:
    """-log likelihood of the order of labels (equal ones in input order) under Plackett-Luce."""
    ordered = scores[torch.sort(labels, descending=True, stable=True).indices]
    return (torch.logcumsumexp(ordered.flip(0), 0).flip(0) - ordered).sum()


def pointwise(scores: Any, labels: Any, kind: str, rel: float) -> Any:
    """Mean squared error of labels, or mean log loss of relevant or not."""
    if kind == "regression":
        return ((scores - labels) ** 2).mean()
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, (labels >= rel).to(scores.dtype))


# ---- swap deltas: |change of the measure when i and j swap|, for all pairs ------------------------------------------


def ranks_of(scores: Any) -> Any:
    """Rank of each item, 1 for the highest score; ties keep their input order."""
    order = torch.sort(scores.detach(), descending=True, stable=True).indices
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(1, len(scores) + 1, device=scores.device)
    return ranks


def additive_deltas(gains: Any, discounts: Any) -> Any:
    """|g_i - g_j| |d_i - d_j| for gains and discounts of the items."""
    return ((gains[:, None] - gains[None, :]) * (discounts[:, None] - discounts[None, :])).abs()


def precision_sum_deltas(scores: Any, relevant: Any, cut: float) -> Any:
    """Deltas of a precision sum, for relevant i and other j."""
    ranks, order = ranks_of(scores), torch.sort(scores.detach(), descending=True, stable=True).indices
    hits = relevant.to(torch.float64)
    inverse = 1 / ranks.to(torch.float64)
    if cut > 0:
        inverse = inverse * (ranks <= cut)
    count = torch.cumsum(hits[order], 0)[ranks - 1]
    passed = torch.cumsum((hits * inverse)[order], 0)[ranks - 1]
    own = (count * inverse)[:, None]
    raised = ((count + 1) * inverse)[None, :] - own + (passed - inverse)[:, None] - passed[None, :]
    lowered = (count * inverse)[None, :] - own - passed[None, :] + passed[:, None]
    return torch.where(ranks[None, :] < ranks[:, None], raised, lowered).abs()


def cascade_deltas(scores: Any, stops: Any, discounts: Any) -> Any:
    """Deltas of a cascade: C(a-1) |q_b - q_a| |d(a) - M(a, b) - P(a, b) d(b)| for the ranks a < b of the two items.

    P(a, b) is the probability to pass the ranks between a and b, M(a, b) what these ranks add for a user who is there.
    """
    order = torch.sort(scores.detach(), descending=True, stable=True).indices
    n, stop, discount = len(order), stops[order], discounts[order]
    below = torch.ones((n, n), dtype=torch.bool, device=stop.device).triu(1)  # (a, r): rank r is below rank a
    passing = torch.cumprod(torch.where(below, 1 - stop[None, :], 1.0), 1)
    passing = torch.cat([torch.ones_like(passing[:, :1]), passing[:, :-1]], 1)
    terms = torch.where(below, discount * stop * passing, 0.0)
    between = torch.cumsum(terms, 1) - terms
    reading_on = torch.cumprod(1 - stop, 0)
    reach = torch.cat([torch.ones_like(reading_on[:1]), reading_on[:-1]])
    change = (stop[None, :] - stop[:, None]).abs() * (discount[:, None] - between - passing * discount[None, :]).abs()
    upper = torch.where(below, reach[:, None] * change, 0.0)
    deltas = torch.empty_like(upper)
    deltas[order[:, None], order[None, :]] = upper + upper.T
    return deltas


def pair_deltas(scores: Any, weights: Any) -> Any:
    """Deltas of the weight of the wrong pairs; ``weights`` is that of (higher, lower) pairs, 0 elsewhere."""
    ranks = ranks_of(scores)
    signed = weights - weights.T
    not_below = (ranks[:, None] >= ranks[None, :]).to(weights.dtype)  # (j, m): m is at the rank of j or above
    sums = signed @ not_below.T  # (i, j): sum of signed weights of i and the items down to the rank of j
    own = sums.diagonal()
    return (sums - own[:, None] + sums.T - own[None, :]).abs()


def truncated(deltas: Any, scores: Any, truncation: int | None) -> Any:
    """Weights of pairs, 0 where both ranks are beyond the truncation."""
    if truncation is None:
        return deltas
    within = ranks_of(scores) <= truncation
    return deltas * (within[:, None] | within[None, :])


def lambda_cost(scores: Any, labels: Any, deltas: Any, alpha: float, normalization: str = "none") -> Any:
    """Sum over pairs l_i > l_j of |swap delta| log(1 + exp(-alpha (f_i - f_j))), times a factor of the query.

    The factor is a function of S, the sum over pairs of 2 |lambda|; like the deltas it counts as a constant.
    """
    differences = scores[:, None] - scores[None, :]
    deltas = deltas.to(scores.dtype) * (labels[:, None] > labels[None, :])
    if normalization == "lightgbm" and scores.max() > scores.min():
        deltas = deltas / (0.01 + differences.detach().abs())
    cost = -(deltas * torch.nn.functional.logsigmoid(alpha * differences)).sum()
    total = float((2 * alpha * deltas * torch.sigmoid(-alpha * differences.detach())).sum())
    if normalization == "none" or total == 0:
        return cost
    return cost / math.sqrt(total) if normalization == "sqrt" else cost * math.log2(1 + total) / total
