"""The losses of pairs, lists and items as formulas; like `formulas`, they are the definition of the losses.

Weights of pairs come from the present ranking and count as constants: torch differentiates the costs alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from rankbound.losses.plans import Swap
from rankbound.losses.swaps import NEARNESS, Normalization, PairPlan

if TYPE_CHECKING:
    from torch import Tensor

    from rankbound.losses.padded import Bucket
    from rankbound.losses.pairwise import PairOptions

    Weights = Callable[[slice], Tensor]  # of a chunk of rows: [lists, rows, length]

# ---- pairs -----------------------------------------------------------------------------------------------------------


def _logistic_cost(z: Tensor) -> Tensor:
    """log(1 + exp(z)), z = alpha (x_j - x_i) with the higher label at i."""
    return torch.nn.functional.softplus(z, threshold=40.0)


def _square_cost(z: Tensor) -> Tensor:
    """(1 - tanh(-z/2))²."""
    return (1 + torch.tanh(z / 2)) ** 2


def _tanh_cost(z: Tensor) -> Tensor:
    """log(1 + exp(tanh(z/2)))."""
    return torch.nn.functional.softplus(torch.tanh(z / 2))


def _logistic_curvature(z: Tensor) -> Tensor:
    above = torch.sigmoid(z)
    return above * (1 - above)


def _square_curvature(z: Tensor) -> Tensor:
    return 8 * _logistic_curvature(z) ** 2  # of Gauss and Newton, as the next one


def _tanh_curvature(z: Tensor) -> Tensor:
    return 4 * _logistic_curvature(torch.tanh(z / 2)) * _logistic_curvature(z) ** 2


_COSTS = (_logistic_cost, _square_cost, _tanh_cost, _logistic_cost)  # by the cost of the options
_CURVATURES = (_logistic_curvature, _square_curvature, _tanh_curvature, _logistic_curvature)


def pair_loss(
    bucket: Bucket, x: Tensor, options: PairOptions, ranked_by: Tensor | None = None, needs_measure: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Sum over pairs of weight times cost, and the measures of the present rankings by x if they are needed.

    ``ranked_by`` are the scores that weights take ranks from, if they are others.
    """
    plan: Any = bucket.layout.plan
    weights, measured = _pair_weights(bucket, x.detach(), plan, options, ranked_by, needs_measure)
    alpha, cost = options.alpha, _COSTS[options.cost]
    teacher = bucket.of_items("teacher", plan.weights) if options.is_soft else None

    def sums(d: Tensor, rows: slice) -> tuple[Tensor, ...]:
        z, w = d if alpha == 1 else alpha * d, weights(rows, d.detach())
        exact = bucket.layout.exact
        costs = cost(z)
        if teacher is not None:
            costs = costs - torch.sigmoid(teacher[:, None, :] - teacher[:, rows, None]) * z
        total = (w * costs).sum(2).to(exact)
        if options.normalization == Normalization.none:
            return (total,)
        return total, (w * torch.sigmoid(z)).sum(2).to(exact)

    def curvature(d: Tensor, _gradient: Tensor, rows: slice, upstream: tuple[Tensor, ...]) -> Tensor:
        curved = weights(rows, d) * _CURVATURES[options.cost](alpha * d)
        return alpha**2 * curved * upstream[0].abs()[:, :, None].to(d.dtype)

    costs, *lambdas = bucket.pairs(x, sums, padding=0.0, curvature=curvature)
    scale = bucket.of_queries("scales", plan.scales)[:, 0]
    value = scale * costs.sum(1)
    if lambdas:
        value = value * _normalizing_factor(options.normalization, 2 * alpha * scale * lambdas[0].detach().sum(1))
    return value, measured


def _normalizing_factor(normalization: int, lambdas: Tensor) -> Tensor:
    """Factor on the lambdas of lists whose absolute values sum to ``lambdas`` over all items."""
    positive = lambdas > 0
    safe = torch.where(positive, lambdas, 1.0)
    factor = safe.rsqrt() if normalization == Normalization.sqrt else torch.log1p(safe) / (math.log(2) * safe)
    return torch.where(positive, factor, 1.0)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _pair_weights(
    bucket: Bucket, x: Tensor, plan: PairPlan, options: PairOptions, ranked_by: Tensor | None, needs_measure: bool
) -> tuple[Callable[[slice, Tensor], Tensor], Tensor | None]:
    """The weights of a chunk of rows, 0 where items are no pair, as a function of the differences of scores."""
    columns = torch.arange(bucket.length, device=x.device)
    ends = bucket.of_items("ends", plan.ends)[:, : bucket.rows]
    ends = torch.where(bucket.is_row, ends, bucket.length)

    def are_pairs(rows: slice) -> Tensor:
        inside = columns >= ends[:, rows, None]
        return inside if bucket.is_item is None else inside & bucket.is_item[:, None, :]

    if plan.swap == Swap.NONE:
        return lambda rows, d: are_pairs(rows).to(d.dtype), None
    by_score = _ranks(bucket, x)
    ranks = by_score if ranked_by is None else _ranks(bucket, ranked_by)
    table = _Table(bucket, plan, ranks, options.mu)
    deltas, _ = _FORMS[plan.swap](table)
    within = ranks <= options.truncation
    widest = bucket.fill_padding(x, -np.inf).amax(1) > bucket.fill_padding(x, np.inf).amin(1)
    by_distance = options.normalization == Normalization.lightgbm

    def weights(rows: slice, d: Tensor) -> Tensor:
        result = torch.where(are_pairs(rows), deltas(rows), 0.0)
        if options.truncation > 0:
            result = result * (within[:, rows, None] | within[:, None, :])
        if by_distance:
            result = result / torch.where(widest[:, None, None], NEARNESS + d.abs(), 1.0)
        return result

    if not needs_measure:
        return weights, None
    measured = _FORMS[plan.swap](_Table(bucket, plan, by_score, options.mu))[1]()
    if plan.scale is not None and plan.offset is not None:
        measured = (
            bucket.of_queries("offset", plan.offset)[:, 0] + bucket.of_queries("scale", plan.scale)[:, 0] * measured
        )
    return weights, measured


# ---- swap deltas: |change of the measure when the items i and j of the present ranking change places| ----------------


class _Form(NamedTuple):
    weights: Weights
    measure: Callable[[], Tensor]


def _ranks(bucket: Bucket, scores: Tensor) -> Tensor:
    """Rank of each item, 1 for the highest score; ties keep their input order, padding is last."""
    columns = torch.arange(bucket.length, device=scores.device).expand(scores.shape)
    order = bucket.of_items("order", bucket.layout.plan.order)
    order = bucket.fill_padding(order, 0) if bucket.is_item is None else torch.where(bucket.is_item, order, columns)
    in_input_order = torch.empty_like(scores).scatter_(1, order, bucket.fill_padding(scores, -np.inf))
    by_score = torch.sort(in_input_order, dim=1, descending=True, stable=True).indices
    return torch.empty_like(by_score).scatter_(1, by_score, columns).gather(1, order) + 1


def _running(combine: Callable[[Tensor, Tensor], Tensor], values: Tensor) -> Tensor:
    """Running sums, or what else a function combines, along the last dimension.

    The order of additions is fixed, which ``torch.cumsum`` does not promise on every device.
    """
    step = 1
    while step < values.shape[-1]:
        values = torch.cat([values[..., :step], combine(values[..., step:], values[..., :-step])], -1)
        step *= 2
    return values


def _before(values: Tensor, first: float) -> Tensor:
    """Running values without their own entry."""
    return torch.cat([torch.full_like(values[..., :1], first), values[..., :-1]], -1)


class _Table:
    """One entry per item and per rank, from which deltas are computed; the formulas are those of `swaps`."""

    def __init__(self, bucket: Bucket, plan: PairPlan, ranks: Tensor, mu: float) -> None:
        layout = bucket.layout
        self.bucket, self.plan, self.ranks, self.mu = bucket, plan, ranks, mu
        columns = torch.arange(bucket.length, device=ranks.device).expand(ranks.shape)
        self.at_rank = torch.empty_like(ranks).scatter_(1, ranks - 1, columns)  # the item at each rank
        if plan.swap == Swap.PAIRS:
            return
        self.discounts = layout.keep("discounts", lambda: layout.on_device(plan.discounts, exact=True))
        full = bucket.fill_padding(self.discounts[(ranks - 1).clamp(max=len(self.discounts) - 1)], 0.0)
        cuts = bucket.of_queries("cuts", plan.cuts)
        self.full, self.discount = full, torch.where((cuts > 0) & (ranks > cuts), 0.0, full)
        self.gain = bucket.of_items("weights", plan.weights, exact=True)

    def by_rank(self, values: Tensor) -> Tensor:
        """Values of items in the order of their ranks."""
        return values.gather(1, self.at_rank)

    def by_item(self, values: Tensor) -> Tensor:
        """Values of ranks for the items there, in the type of the scores."""
        return self.of_scores(values.gather(1, self.ranks - 1))

    def of_scores(self, values: Tensor) -> Tensor:
        """Values in the type of the scores."""
        return values.to(self.bucket.layout.dtype)

    def is_above(self, rows: slice) -> Tensor:
        """Whether column j has a better rank than row i."""
        return self.ranks[:, None, :] < self.ranks[:, rows, None]

    def sum_of_discounts(self) -> Tensor:
        return (self.gain * self.discount).sum(1)


def _additive(t: _Table) -> _Form:
    gain, discount = t.of_scores(t.gain), t.of_scores(t.discount)

    def weights(rows: slice) -> Tensor:
        result = gain[:, rows, None] - gain[:, None, :]
        return result.mul_(discount[:, rows, None] - discount[:, None, :]).abs_()  # in place: tables are large

    return _Form(weights, t.sum_of_discounts)


def _of_row(t: _Table, values: Tensor) -> _Form:
    values = t.of_scores(values)
    return _Form(lambda rows: values[:, rows, None].expand(-1, -1, t.bucket.length), t.sum_of_discounts)


def _published(t: _Table) -> _Form:
    return _of_row(t, t.gain * t.discount)


def _loss1(t: _Table) -> _Form:
    return _of_row(t, t.gain * t.full)


def _loss2(t: _Table, with_swap: bool = False) -> _Form:
    gain, discount = t.of_scores(t.gain), t.of_scores(t.discount)
    steps = torch.zeros(t.bucket.length + 1, dtype=t.discounts.dtype, device=gain.device)  # |d(m) - d(m + 1)| at m
    known = t.discounts[: t.bucket.length]
    steps[1 : len(known)] = t.mu * (known[:-1] - known[1:]).abs()
    steps, ranks = t.of_scores(steps), t.ranks.int()

    def weights(rows: slice) -> Tensor:
        result = steps[(ranks[:, rows, None] - ranks[:, None, :]).abs_()]
        if with_swap:
            result += (discount[:, rows, None] - discount[:, None, :]).abs_()
        return result.mul_((gain[:, rows, None] - gain[:, None, :]).abs_())

    return _Form(weights, t.sum_of_discounts)


def _loss2pp(t: _Table) -> _Form:
    return _loss2(t, with_swap=True)


def _precision_sum(t: _Table) -> _Form:
    gain, at_rank = t.by_rank(t.gain), t.by_rank(t.discount)
    is_hit = (gain > 0).to(gain.dtype)
    count, passed = _running(torch.add, is_hit), _running(torch.add, is_hit * at_rank)
    of_column, of_row = t.by_item(count * at_rank - passed), t.by_item(passed - count * at_rank)
    discount, factor = t.of_scores(t.discount), t.of_scores(t.gain)

    def weights(rows: slice) -> Tensor:
        raised = (discount[:, None, :] - discount[:, rows, None]) * t.is_above(rows)
        return (raised + of_column[:, None, :] + of_row[:, rows, None]).abs() * factor[:, rows, None]

    return _Form(weights, lambda: (gain * at_rank * count).sum(1))


def _cascade(t: _Table) -> _Form:
    """The first certain stop is passed over to see what follows it."""
    stop, discount = t.by_rank(t.gain), t.by_rank(t.discount)
    certain = stop >= 1
    certain_so_far = _running(torch.add, certain.to(stop.dtype))
    is_first = certain & (certain_so_far == 1)
    is_after = (certain_so_far >= 1) & ~is_first
    probability = _before(_running(torch.mul, 1 - torch.where(is_first, 0.0, stop)), 1.0)
    reached = torch.where(is_after, 0.0, discount * probability)
    total = _running(torch.add, reached * stop)
    passed = torch.where(is_after, discount * probability, 0.0)
    beyond = _before(_running(torch.add, passed * stop), 0.0) + passed
    here, upto = t.by_item(reached), t.by_item(total)
    before, after = t.by_item(_before(total, 0.0) + reached), t.by_item(beyond)
    inverse = t.by_item(torch.where(certain, 0.0, 1 / (1 - torch.where(certain, 0.0, stop))))
    is_stop, gain = is_first.gather(1, t.ranks - 1), t.of_scores(t.gain)

    def upper(values: Tensor, above: Tensor, rows: slice) -> Tensor:
        return torch.where(above, values[:, None, :], values[:, rows, None])

    def weights(rows: slice) -> Tensor:
        above = t.is_above(rows)  # whether j is the upper item
        between = torch.where(above, before[:, rows, None] - upto[:, None, :], before[:, None, :] - upto[:, rows, None])
        beyond_stop = torch.where(above, after[:, rows, None], after[:, None, :])
        between = torch.where(upper(is_stop, above, rows), beyond_stop, between * upper(inverse, above, rows))
        return ((upper(here, above, rows) - between) * (gain[:, None, :] - gain[:, rows, None])).abs()

    return _Form(weights, lambda: total[:, -1])


def _pairs(t: _Table) -> _Form:
    """Sums S of the signed weights of a level and the items down to a rank, for every level of a list."""
    levels, signed = _levels(t.bucket, t.plan)
    sums = _sums_of_levels(t, levels, signed)
    own = sums.gather(1, levels[:, None, :])[:, 0]
    shape = (len(own), -1, t.bucket.length)

    def weights(rows: slice) -> Tensor:
        of_row = sums.gather(1, levels[:, rows, None].expand(shape))
        count = of_row.shape[1]
        at_row = sums[:, :, rows].gather(1, levels[:, :, None].expand(-1, -1, count)).transpose(1, 2)
        return (of_row + at_row - own[:, rows, None] - own[:, None, :]).abs()

    def measure() -> Tensor:
        wrong = _sums_of_levels(t, levels, signed.clamp(min=0)).gather(1, levels[:, None, :])[:, 0]
        return t.bucket.fill_padding(wrong, 0.0).sum(1)

    return _Form(weights, measure)


def _sums_of_levels(t: _Table, levels: Tensor, signed: Tensor) -> Tensor:
    """S [lists, levels, length] of the items."""
    shape = (-1, signed.shape[1], -1)
    at_rank = t.by_rank(levels)[:, None, :].expand(shape)
    inside = t.by_rank(t.bucket.fill_padding(torch.ones_like(t.ranks), 0))[:, None, :]
    sums = _running(torch.add, signed.gather(2, at_rank) * inside)
    return t.of_scores(sums.gather(2, (t.ranks - 1)[:, None, :].expand(shape)))


def _levels(bucket: Bucket, plan: PairPlan) -> tuple[Tensor, Tensor]:
    """The level of each item within its list, 0 the highest, and the signed weights of two levels [lists, L, L]."""
    if "signed weights" not in bucket.tensors:
        changes = np.zeros(len(plan.order), np.int64)
        changes[1:] = plan.ends[1:] != plan.ends[:-1]
        changes[plan.offsets[:-1][plan.sizes > 0]] = 0
        sums = np.cumsum(changes)
        starts = np.minimum(plan.offsets[:-1], max(len(sums) - 1, 0))
        levels = sums - plan.per_item(sums[starts])
        most = 1 + int(levels[plan.offsets[bucket.queries + 1] - 1].max())
        signed = np.broadcast_to(np.triu(np.ones((most, most)), 1), (len(bucket.queries), most, most))
        if plan.pair_weights is not None and plan.levels is not None:
            codes = np.zeros((len(plan.rows), most), np.int64)
            codes[plan.per_item(np.arange(len(plan.rows))), np.minimum(levels, most - 1)] = plan.levels
            codes = codes[bucket.queries]
            signed = signed * plan.pair_weights[codes[:, :, None], codes[:, None, :]]
        bucket.of_items("levels in list", levels)
        bucket.tensors["signed weights"] = bucket.layout.on_device(signed - signed.transpose(0, 2, 1), exact=True)
    return bucket.tensors["levels in list"], bucket.tensors["signed weights"]


_FORMS: dict[Swap, Callable[[_Table], _Form]] = {
    Swap.ADDITIVE: _additive,
    Swap.PUBLISHED: _published,
    Swap.PRECISION_SUM: _precision_sum,
    Swap.FIRST_HIT: _cascade,  # the kernel is faster where every stop is certain
    Swap.CASCADE: _cascade,
    Swap.PAIRS: _pairs,
    Swap.LOSS1: _loss1,
    Swap.LOSS2: _loss2,
    Swap.LOSS2PP: _loss2pp,
}


# ---- lists and items, in float64 -------------------------------------------------------------------------------------


def softmax_cross_entropy(bucket: Bucket, x: Tensor, target: Tensor, scale: float) -> Tensor:
    """-sum_i target_i log softmax(scale x)_i; the target of padding is 0."""
    scaled = bucket.fill_padding(scale * x.to(bucket.layout.exact), -np.inf)
    log_probability = bucket.fill_padding(torch.log_softmax(scaled, 1), 0.0)
    if bucket.hessian is not None:
        probability = log_probability.detach().exp()
        total = target.sum(1, keepdim=True)
        _add_hessian(bucket, scale**2 * total * probability * (1 - probability))
    return -(target * log_probability).sum(1)


def likelihood_of_order(bucket: Bucket, x: Tensor) -> Tensor:
    """-log likelihood of the order of the bucket under Plackett-Luce: sum_i log(sum over j >= i of exp x_j) - x_i."""
    exact = x.to(bucket.layout.exact)
    exact = exact - bucket.fill_padding(exact.detach(), -np.inf).amax(1, keepdim=True)
    nothing = bucket.fill_padding(exact.detach(), np.inf).amin(1, keepdim=True) - 1e4  # infinity has no derivative
    exact = exact if bucket.is_item is None else torch.where(bucket.is_item, exact, nothing)
    log_sums = _running(torch.logaddexp, exact.flip(1)).flip(1)
    if bucket.hessian is not None:
        fixed, sums = exact.detach(), bucket.fill_padding(-log_sums.detach(), -np.inf)
        once = torch.exp(fixed + _running(torch.logaddexp, sums))
        _add_hessian(bucket, (once - torch.exp(2 * fixed + _running(torch.logaddexp, 2 * sums))).clamp(min=0))
    return bucket.fill_padding(log_sums - exact, 0.0).sum(1)


def regression(bucket: Bucket, x: Tensor, labels: Tensor) -> Tensor:
    """Mean of (x - label)²."""
    size = bucket.of_queries("sizes", bucket.layout.plan.sizes)
    if bucket.hessian is not None:
        _add_hessian(bucket, (2 / size).expand(x.shape))
    return (bucket.fill_padding((x.to(labels.dtype) - labels) ** 2, 0.0) / size).sum(1)


def classification(bucket: Bucket, x: Tensor, relevant: Tensor) -> Tensor:
    """Mean log loss of relevance, 1 or 0."""
    size = bucket.of_queries("sizes", bucket.layout.plan.sizes)
    exact = x.to(relevant.dtype)
    loss = torch.nn.functional.softplus(torch.where(relevant > 0, -exact, exact), threshold=40.0)
    if bucket.hessian is not None:
        _add_hessian(bucket, _logistic_curvature(exact.detach()) / size)
    return (bucket.fill_padding(loss, 0.0) / size).sum(1)


def _add_hessian(bucket: Bucket, table: Tensor) -> None:
    assert bucket.hessian is not None
    bucket.hessian += bucket.fill_padding(table, 0.0).to(bucket.hessian.dtype)
