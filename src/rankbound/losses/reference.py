"""Plain torch forms of the losses, one query at a time: the reference for the kernels, and what runs on a GPU.

Written to be read beside the papers. ``scores`` and ``labels`` are those of one query; labels are 0 or more. Pair
matrices have a row per item with gain and a column per item; entry (i, j) speaks of "j above i".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid, softplus

if TYPE_CHECKING:
    from rankbound.losses.sigmoids import Sigmoid

__all__ = [
    "ap",
    "ap_of_ranks",
    "dcg_ideal",
    "gains",
    "inside",
    "kendall_tau",
    "lambda_cost",
    "list_mle",
    "list_net",
    "measure_value",
    "ndcg",
    "nrbp",
    "pair_costs",
    "pointwise",
    "precision",
    "reciprocal_rank",
    "soft_ndcg",
    "steps",
    "swap_deltas",
    "u",
]


# ---- smooth ranks ----------------------------------------------------------------------------------------------------


def steps(scores: Any, rows: Any, sigmoid: Sigmoid, alpha: float) -> Any:
    """σ(alpha (f_j - f_i)) for i in rows and every j, 0 at j = i."""
    table = sigmoid.torch_form(alpha * (scores[None, :] - scores[rows, None]))
    return table * (torch.arange(len(scores), device=scores.device)[None, :] != rows[:, None])


def inside(ranks: Any, k: int | None, beta: float) -> Any:
    """Smooth truncation σ(beta (k + 1/2 - R)); 1 without cutoff."""
    return torch.ones_like(ranks) if k is None else torch.sigmoid(beta * (k + 0.5 - ranks))


def gains(labels: Any, gain: str) -> Any:
    """2^label - 1, or the label."""
    return labels if gain == "linear" else torch.exp2(labels) - 1


def dcg_ideal(worth: Any, k: int | None) -> Any:
    """DCG of gains in descending order."""
    best = torch.sort(worth, descending=True).values[:k]
    ranks = torch.arange(1, len(best) + 1, device=worth.device, dtype=worth.dtype)
    return (best / torch.log2(1 + ranks)).sum()


# ---- smooth measures -------------------------------------------------------------------------------------------------


def ndcg(scores: Any, labels: Any, sigmoid: Sigmoid, alpha: float, k: int | None, beta: float, gain: str) -> Any:
    """sum_i g_i / log2(1 + R_i) over the ideal DCG."""
    worth = gains(labels.to(scores.dtype), gain)
    rows = torch.nonzero(worth)[:, 0]
    ranks = 1 + steps(scores, rows, sigmoid, alpha).sum(1)
    return (worth[rows] / torch.log2(1 + ranks) * inside(ranks, k, beta)).sum() / dcg_ideal(worth, k)


def ap(scores: Any, relevant: Any, sigmoid: Sigmoid, alpha: float, k: int | None, beta: float) -> Any:
    """(1/P) sum_i (1 + sum over relevant j of σ(f_j - f_i)) / R_i over relevant i."""
    rows = torch.nonzero(relevant)[:, 0]
    table = steps(scores, rows, sigmoid, alpha)
    ranks = 1 + table.sum(1)
    hits = 1 + table[:, rows].sum(1)
    return (hits / ranks * inside(ranks, k, beta)).mean()


def ap_of_ranks(scores: Any, relevant: Any, sigmoid: Sigmoid, alpha: float, k: int | None, beta: float) -> Any:
    """(1/P) sum_i (1 + sum over relevant j of σ(beta (R_i - R_j))) / R_i over relevant i."""
    rows = torch.nonzero(relevant)[:, 0]
    ranks = 1 + steps(scores, rows, sigmoid, alpha).sum(1)
    table = torch.sigmoid(beta * (ranks[:, None] - ranks[None, :]))
    hits = 1 + table.sum(1) - table.diagonal()
    return (hits / ranks * inside(ranks, k, beta)).mean()


def reciprocal_rank(scores: Any, relevant: Any, sigmoid: Sigmoid, alpha: float, k: int | None, beta: float) -> Any:
    """sum_i (1/R_i) prod over relevant j of (1 - σ(f_j - f_i)) over relevant i."""
    rows = torch.nonzero(relevant)[:, 0]
    table = steps(scores, rows, sigmoid, alpha)
    ranks = 1 + table.sum(1)
    return (torch.relu(1 - table[:, rows]).prod(1) / ranks * inside(ranks, k, beta)).sum()


def nrbp(scores: Any, relevant: Any, sigmoid: Sigmoid, alpha: float, k: int | None, beta: float, p: float) -> Any:
    """(1 - p)/(1 - p^P) sum_i p^(R_i - 1) over relevant i."""
    rows = torch.nonzero(relevant)[:, 0]
    ranks = 1 + steps(scores, rows, sigmoid, alpha).sum(1)
    return (p ** (ranks - 1) * inside(ranks, k, beta)).sum() * (1 - p) / (1 - p ** len(rows))


def precision(scores: Any, relevant: Any, sigmoid: Sigmoid, alpha: float, k: int, beta: float) -> Any:
    """(1/k) sum_i σ(beta (k + 1/2 - R_i)) over relevant i."""
    rows = torch.nonzero(relevant)[:, 0]
    ranks = 1 + steps(scores, rows, sigmoid, alpha).sum(1)
    return inside(ranks, k, beta).sum() / k


def u(scores: Any, relevant: Any, sigmoid: Sigmoid, alpha: float) -> Any:
    """Sum over relevant i and other j of σ(f_j - f_i)."""
    return steps(scores, torch.nonzero(relevant)[:, 0], sigmoid, alpha)[:, ~relevant].sum()


def kendall_tau(scores: Any, labels: Any, sigmoid: Sigmoid, alpha: float) -> Any:
    """Sum over pairs l_i > l_j of 1 - 2 σ(f_j - f_i), over sqrt(such pairs * all pairs)."""
    n = len(scores)
    pairs = labels[:, None] > labels[None, :]
    table = steps(scores, torch.arange(n, device=scores.device), sigmoid, alpha)
    unequal = pairs.sum().to(scores.dtype)
    return (unequal - 2 * (table * pairs).sum()) / torch.sqrt(unequal * (n * (n - 1) / 2))


def soft_ndcg(scores: Any, labels: Any, noise: float, k: int | None, gain: str) -> Any:
    """Expected nDCG when every score carries Gaussian noise: the distribution of a rank is built one rival at a
    time."""
    worth = gains(labels.to(scores.dtype), gain)
    n = len(scores)
    discount = 1 / torch.log2(torch.arange(2, n + 2, device=scores.device, dtype=scores.dtype))
    discount = discount * (torch.arange(n, device=scores.device) < (k or n))
    expected = scores.new_zeros(())
    for i in torch.nonzero(worth)[:, 0].tolist():
        distribution = torch.zeros_like(scores)
        distribution[0] = 1
        above = 0.5 * torch.special.erfc((scores[i] - scores) / (2 * noise))
        for j in range(n):
            if j != i:
                distribution = (
                    distribution * (1 - above[j]) + torch.cat([distribution.new_zeros(1), distribution[:-1]]) * above[j]
                )
        expected = expected + worth[i] * (distribution * discount).sum()
    return expected / dcg_ideal(worth, k)


# ---- pairs, lists, points --------------------------------------------------------------------------------------------


def pair_costs(differences: Any, cost: str) -> Any:
    """Cost of pairs by d = f_i - f_j with i of the higher label."""
    if cost == "square":
        return (1 - torch.tanh(differences)) ** 2
    return softplus(-torch.tanh(differences) if cost == "tanh" else -differences)


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
    return binary_cross_entropy_with_logits(scores, (labels >= rel).to(scores.dtype))


# ---- swap deltas -----------------------------------------------------------------------------------------------------


def swap_deltas(scores: Any, worth: Any, measure: str, k: int | None, p: float, published: bool) -> Any:
    """|change of the measure when i and j swap| for all pairs.

    ``worth`` is the gain over the ideal DCG (nDCG), the stop probability (ERR), or 1 and 0 for relevant and not.
    """
    n = len(scores)
    dtype = torch.float64
    order = torch.sort(scores.detach(), descending=True, stable=True).indices
    rank = torch.empty_like(order)
    rank[order] = torch.arange(1, n + 1, device=scores.device)
    rank, worth = rank.to(dtype), worth.to(dtype)
    seen = (rank <= (k or n)).to(dtype)
    sorted_worth = worth[order]
    up = rank[None, :] < rank[:, None]  # j stands above i

    def upper_lower(column: Any) -> tuple[Any, Any]:
        mine, theirs = column[:, None].expand(n, n), column[None, :].expand(n, n)
        return torch.where(up, theirs, mine), torch.where(up, mine, theirs)

    if measure in ("nDCG", "nRBP", "P"):
        discount, scale = torch.ones_like(rank), 1.0
        if measure == "nDCG":
            discount = 1 / torch.log2(1 + rank)
        elif measure == "nRBP":
            discount, scale = p ** (rank - 1), (1 - p) / (1 - p ** float(worth.sum()))
        else:
            scale = 1 / (k or n)
        at = discount * seen
        if published:
            return (worth * at)[:, None].expand(n, n) * scale
        return ((worth[:, None] - worth[None, :]) * (at[:, None] - at[None, :])).abs() * scale
    if measure == "RR":
        at = seen / rank
        hits = torch.sort(rank[worth > 0]).values  # ranks of the relevant items
        first = 1 / hits[0] if hits[0] <= (k or n) else 0 * hits[0]
        second = 1 / hits[1] if len(hits) > 1 and hits[1] <= (k or n) else 0 * hits[0]
        lifted = (at[None, :] - first).clamp(min=0)
        dropped = (first - torch.maximum(at, second)[None, :]).clamp(min=0) * (rank == hits[0])[:, None]
        return torch.where(up, lifted, dropped)
    inverse = seen / rank
    if measure == "AP":
        count = torch.cumsum(sorted_worth, 0)[rank.long() - 1]
        passed = torch.cumsum(sorted_worth * inverse[order], 0)[rank.long() - 1]
        own = (count * inverse)[:, None]
        lifted = ((count + 1) * inverse)[None, :] - own + (passed - inverse)[:, None] - passed[None, :]
        dropped = (count * inverse)[None, :] - own - passed[None, :] + passed[:, None]
        return torch.where(up, lifted, dropped).abs() / worth.sum()
    probability = torch.cumprod(torch.cat([worth.new_ones(1), 1 - sorted_worth[:-1]]), 0)[rank.long() - 1]
    term = inverse * worth * probability
    upto = torch.cumsum(term[order], 0)[rank.long() - 1]
    (q_a, q_b), (c_a, c_b) = upper_lower(worth), upper_lower(probability)
    (i_a, i_b), (s_a, s_b) = upper_lower(inverse), upper_lower(upto)
    ratio = (1 - q_b) / (1 - q_a)
    between = s_b - i_b * q_b * c_b - s_a
    return (c_a * (q_b - q_a) * i_a + between * (ratio - 1) + c_b * (q_a * ratio - q_b) * i_b).abs()


def lambda_cost(scores: Any, labels: Any, deltas: Any, alpha: float) -> Any:
    """Sum over pairs l_i > l_j of |swap delta| log(1 + exp(-alpha (f_i - f_j)))."""
    pairs = labels[:, None] > labels[None, :]
    differences = scores[:, None] - scores[None, :]
    return -(deltas.to(scores.dtype) * logsigmoid(alpha * differences) * pairs).sum()


def measure_value(scores: Any, worth: Any, measure: str, k: int | None, p: float) -> float:
    """The true measure of a ranking, ties in input order; ``worth`` as for `swap_deltas`."""
    worth = worth.to(torch.float64)[torch.sort(scores.detach(), descending=True, stable=True).indices]
    rank = torch.arange(1, len(scores) + 1, device=scores.device, dtype=torch.float64)
    seen = worth * (rank <= (k or len(scores)))
    match measure:
        case "nDCG":
            return float((seen / torch.log2(1 + rank)).sum())
        case "nRBP":
            return float((seen * p ** (rank - 1)).sum() * (1 - p) / (1 - p ** float(worth.sum())))
        case "P":
            return float(seen.sum() / (k or len(scores)))
        case "RR":
            return float((seen / rank).max())
        case "AP":
            return float((seen * torch.cumsum(worth, 0) / rank).sum() / worth.sum())
    reach = torch.cumprod(torch.cat([worth.new_ones(1), 1 - worth[:-1]]), 0)
    return float((seen * reach / rank).sum())
