"""Smooth measures in torch operations: value and gradient of the lists of a bucket, by explicit formulas.

The structures and formulas are those of `smooth_kernel`. A chunk of rows has the table d = x_j - x_i for each of its
lists, where x are the centered scores times alpha; values σ(d) and slopes σ'(d) are computed in its memory where that
is possible. Padded columns have the score minus infinity, where every sigmoid and its slope are 0; padded rows have
weight 0. An item is compared with itself too: this adds σ(0) to its rank, and its slope cancels in the gradient.

On the CPU the logistic function dominates the time, and looking at scores costs nothing. There, lists with a moderate
range of scores use E_j / (E_i + E_j) with E = exp(x), as the kernels do (see `sigmoids`). Other devices compute exp
faster than they read memory, and would have to wait for the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rankbound.losses.sigmoids import ARCTAN, ERF, LOGISTIC
from rankbound.losses.smooth_kernel import ADDITIVE, CASCADE, COUPLED, FIRST_HIT, PAIRS, PRECISION_SUM

if TYPE_CHECKING:
    from rankbound.losses.buckets import Bucket, Result

__all__ = ["SmoothForm", "add_pairs", "centered", "is_pair", "run_smooth"]

_LARGEST_EXPONENT = 40.0  # of the factored logistic: exp(2 * 40) is a float32
_LEAST_FACTOR = 1e-30  # of a product of probabilities, as in the kernel


@dataclass(frozen=True)
class SmoothForm:
    """What the formulas need to know of a loss; ``discount`` gives values and slopes at real ranks."""

    structure: int
    sigmoid: int
    slope: float
    beta: float
    discount: Callable[[Any], tuple[Any, Any]]


def run_smooth(bucket: Bucket, scores: Any, form: SmoothForm, with_gradient: bool, memory: Any) -> Result:
    """Value per list and gradient per item of the lists of a bucket, whose scores [queries, length] are padded."""
    own, others = centered(bucket, scores, form.slope)
    tables = _Tables(bucket, own, others, form.sigmoid, memory)
    run = _coupled if form.structure in (COUPLED, FIRST_HIT) else _by_rows
    value, gradient = run(bucket, tables, form, with_gradient)
    return bucket.constants + value, form.slope * gradient if with_gradient else None, None


def centered(bucket: Bucket, scores: Any, slope: float) -> tuple[Any, Any]:
    """slope * (scores - midrange) as rows and as columns, which have anything finite and -infinity for padding."""
    lowest = bucket.fill_padding(scores, math.inf).amin(1, keepdim=True)
    highest = bucket.fill_padding(scores, -math.inf).amax(1, keepdim=True)
    x = (scores - (lowest + (highest - lowest) / 2)).mul_(slope)
    return x, bucket.fill_padding(x, -math.inf)


def add_pairs(gradient: Any, table: Any, rows: slice, weights: Any = None) -> None:
    """Add a table of the derivatives in x_j - x_i to the gradient of columns and rows; weights multiply its rows.

    With weights the table may be overwritten. On the CPU a product of matrices saves a pass over the table. Other
    devices may compute products in reduced precision (TF32).
    """
    if weights is not None and _is_host(table):
        gradient += torch.bmm(weights[:, None, :], table)[:, 0]
        gradient[:, rows] -= table.sum(2).mul_(weights)
        return
    if weights is not None:
        table = table.mul_(weights[:, :, None])
    gradient += table.sum(1)
    gradient[:, rows] -= table.sum(2)


# ---- sigmoids --------------------------------------------------------------------------------------------------------


class _Tables:
    """The tables of d = x_j - x_i and σ(d) of a bucket, by chunks of rows."""

    def __init__(self, bucket: Bucket, own: Any, others: Any, sigmoid: int, memory: Any) -> None:
        self._bucket, self._own, self._others, self._sigmoid, self._memory = bucket, own, others, sigmoid, memory
        self._is_factored = (
            sigmoid == LOGISTIC
            and _is_host(own)
            and float(bucket.fill_padding(own, 0.0).abs().amax()) <= _LARGEST_EXPONENT
        )
        if self._is_factored:
            self._own, self._others = own.exp(), others.exp()

    def of(self, rows: slice) -> tuple[Any, Any]:
        """d, or anything for the logistic function, whose slopes need none, and σ(d)."""
        if self._is_factored:
            values = self._bucket.shares(self._others, self._own, rows, self._memory)
            return values, values
        d = self._bucket.differences(self._others, self._own, rows, self._memory)
        return d, _steps(self._sigmoid, d)


def _is_host(tensor: Any) -> bool:
    """Whether scores can be looked at for free, and products of matrices are exact."""
    return bool(tensor.device.type == "cpu")


def _steps(sigmoid: int, d: Any) -> Any:
    """σ(d); the logistic overwrites d."""
    if sigmoid == LOGISTIC:
        return d.sigmoid_()
    if sigmoid == ARCTAN:
        return torch.atan(d).mul_(1 / math.pi).add_(0.5)
    if sigmoid == ERF:
        return torch.erf(d).mul_(0.5).add_(0.5)
    return torch.relu(d)


def _slopes(sigmoid: int, d: Any, values: Any) -> Any:
    """σ'(d) for d and σ(d) from `_steps`; overwrites d."""
    if sigmoid == LOGISTIC:
        return values.addcmul_(values, values, value=-1)
    if sigmoid == ARCTAN:
        return d.square_().add_(1).reciprocal_().mul_(1 / math.pi)
    if sigmoid == ERF:
        return d.square_().neg_().exp_().mul_(1 / math.sqrt(math.pi))
    return d.gt_(0)


def _at_tie(sigmoid: int) -> float:
    return 0.5 if sigmoid in (LOGISTIC, ARCTAN, ERF) else 0.0


# ---- structures ------------------------------------------------------------------------------------------------------


def _truncated(ranks: Any, bucket: Bucket, beta: float) -> tuple[Any, Any]:
    """Smooth "rank <= cutoff" and its derivative; 1 and 0 without cutoff."""
    if not bucket.has_cuts:
        return 1.0, 0.0
    cuts = bucket.cuts
    inside = torch.where(cuts > 0, torch.sigmoid(beta * (cuts + 0.5 - ranks)), 1.0)
    return inside, torch.where(cuts > 0, -beta * inside * (1 - inside), 0.0)


def _term(ranks: Any, weights: Any, bucket: Bucket, form: SmoothForm) -> tuple[Any, Any]:
    """Weighted and truncated discount of ranks, and its derivative."""
    value, slope = form.discount(ranks)
    if not bucket.has_cuts:
        return weights * value, weights * slope
    inside, d_inside = _truncated(ranks, bucket, form.beta)
    return weights * value * inside, weights * (slope * inside + value * d_inside)


def _by_rows(bucket: Bucket, tables: _Tables, form: SmoothForm, with_gradient: bool) -> tuple[Any, Any]:
    """Structures whose rows do not depend on each other.

    The function of a structure returns the terms of the rows, the table of derivatives, and weights of its rows, if
    they are still to be multiplied.
    """
    gradient, exact = bucket.zeros(), bucket.layout.exact
    total = torch.zeros(len(gradient), dtype=exact, device=gradient.device)
    row_of = {PRECISION_SUM: _precision_rows, CASCADE: _cascade_rows, PAIRS: _pair_rows, ADDITIVE: _additive_rows}
    for rows in bucket.chunks():
        weights = bucket.row_weights[:, rows]
        terms, table, of_rows = row_of[form.structure](bucket, rows, *tables.of(rows), weights, form, with_gradient)
        total += terms.sum(1)
        if with_gradient:
            add_pairs(gradient, table, rows, of_rows)
        del table  # before the next chunk has its own
    return total, gradient


def _additive_rows(
    bucket: Bucket, rows: slice, d: Any, values: Any, weights: Any, form: SmoothForm, with_gradient: bool
) -> tuple[Any, Any, Any]:  # fmt: skip
    ranks = values.sum(2).to(weights.dtype) + (1 - _at_tie(form.sigmoid))
    terms, d_ranks = _term(ranks, weights, bucket, form)
    if not with_gradient:
        return terms, None, None
    return terms, _slopes(form.sigmoid, d, values), d_ranks.to(d.dtype)


def _precision_rows(
    bucket: Bucket, rows: slice, d: Any, values: Any, weights: Any, form: SmoothForm, with_gradient: bool
) -> tuple[Any, Any, Any]:  # fmt: skip
    tie = _at_tie(form.sigmoid)
    is_hit = bucket.is_row[:, None, :].to(d.dtype)
    ranks = values.sum(2).to(weights.dtype) + (1 - tie)
    hits = (values[:, :, : bucket.rows] * is_hit).sum(2).to(weights.dtype) - tie
    inside, d_inside = _truncated(ranks, bucket, form.beta)
    precision = (1 + hits) / ranks
    terms = weights * precision * inside
    if not with_gradient:
        return terms, None, None
    d_ranks = (weights * precision * (d_inside - inside / ranks)).to(d.dtype)[:, :, None]
    d_hits = (weights * inside / ranks).to(d.dtype)[:, :, None]
    slopes = _slopes(form.sigmoid, d, values)
    by_hits = slopes[:, :, : bucket.rows] * d_hits * is_hit
    table = slopes.mul_(d_ranks)
    table[:, :, : bucket.rows] += by_hits
    return terms, table, None


def _cascade_rows(
    bucket: Bucket, rows: slice, d: Any, values: Any, weights: Any, form: SmoothForm, with_gradient: bool
) -> tuple[Any, Any, Any]:
    ranks = values.sum(2).to(weights.dtype) + (1 - _at_tie(form.sigmoid))
    stops = (bucket.weights[:, : bucket.rows] * bucket.is_row)[:, None, :]
    factors = values[:, :, : bucket.rows] * -stops
    factors.add_(1).clamp_(min=0)
    factors[:, :, rows].diagonal(dim1=1, dim2=2).fill_(1)  # an item does not stop its own user earlier
    no_earlier_stop = factors.prod(2).to(weights.dtype)
    terms, d_ranks = _term(ranks, weights, bucket, form)
    terms = terms * no_earlier_stop
    if not with_gradient:
        return terms, None, None
    table = _slopes(form.sigmoid, d, values)
    # where a factor is 0, so are the product and its derivative
    by_product = factors.clamp_(min=_LEAST_FACTOR).reciprocal_().mul_(stops).mul_(terms.to(d.dtype)[:, :, None])
    by_product.mul_(table[:, :, : bucket.rows])
    table.mul_((d_ranks * no_earlier_stop).to(d.dtype)[:, :, None])
    table[:, :, : bucket.rows] -= by_product
    return terms, table, None


def _pair_rows(
    bucket: Bucket, rows: slice, d: Any, values: Any, weights: Any, form: SmoothForm, with_gradient: bool
) -> tuple[Any, Any, Any]:
    of_pairs = _pair_weights(bucket, rows).to(d.dtype)
    terms = weights * (values * of_pairs).sum(2)
    if not with_gradient:
        return terms, None, None
    table = _slopes(form.sigmoid, d, values).mul_(weights.to(d.dtype)[:, :, None])
    return terms, table.mul_(of_pairs), None


def _pair_weights(bucket: Bucket, rows: slice) -> Any:
    """Weight of each pair of a higher and a lower item: a table of booleans unless the plan has weights."""
    plan = bucket.layout.plan
    if plan.pair_weights is None:
        return is_pair(bucket, rows)
    levels = bucket.of_items(plan.levels, "levels")
    matrix = bucket.layout.kept("pair weights", lambda: bucket.layout.on_device(plan.pair_weights))
    return matrix[levels[:, rows, None], levels[:, None, :]].mul_(is_pair(bucket, rows))


def is_pair(bucket: Bucket, rows: slice) -> Any:
    """Whether a column has a lower label than a row."""
    plan = bucket.layout.plan
    first = bucket.of_items(plan.columns_from, "columns from", len(plan.labels))[:, rows, None]
    return (bucket.columns >= first) & bucket.inside[:, None, :] & bucket.is_row[:, rows, None]


def _coupled(bucket: Bucket, tables: _Tables, form: SmoothForm, with_gradient: bool) -> tuple[Any, Any]:
    """Structures of the smooth ranks of relevant items: ranks first, then their derivatives, then the gradient."""
    exact, gradient = bucket.layout.exact, bucket.zeros()
    sums = [tables.of(rows)[1].sum(2) for rows in bucket.chunks()]
    ranks = torch.cat(sums, 1).to(exact) + (1 - _at_tie(form.sigmoid))
    of_ranks = _average_precision if form.structure == COUPLED else _first_hit
    total, d_ranks = of_ranks(bucket, ranks, form, gradient.dtype)
    if not with_gradient:
        return total, gradient
    d_ranks = (d_ranks * bucket.is_row).to(gradient.dtype)
    for rows in bucket.chunks():
        table = _slopes(form.sigmoid, *tables.of(rows)).mul_(d_ranks[:, rows, None])
        add_pairs(gradient, table, rows)
    return total, gradient


def _average_precision(bucket: Bucket, ranks: Any, form: SmoothForm, dtype: Any) -> tuple[Any, Any]:
    """Average precision with hits counted by smooth ranks, and its derivative in the ranks."""
    weights = bucket.row_weights
    inside, d_inside = _truncated(ranks, bucket, form.beta)
    contribution = weights * inside / ranks
    hits, change = [], []
    for rows in bucket.chunks():
        steps = _steps_of_ranks(bucket, ranks, rows, form.beta, dtype)
        hits.append(steps.sum(2).to(weights.dtype) + 0.5)
        steps.mul_(1 - steps).mul_((contribution[:, rows, None] - contribution[:, None, :]).to(dtype))
        change.append(steps.sum(2).to(weights.dtype))
        del steps
    all_hits = torch.cat(hits, 1)
    slope = weights * (d_inside / ranks - inside / ranks**2)
    return (all_hits * contribution).sum(1), all_hits * slope + form.beta * torch.cat(change, 1)


def _first_hit(bucket: Bucket, ranks: Any, form: SmoothForm, dtype: Any) -> tuple[Any, Any]:
    """Discount of the first relevant item by smooth ranks, and its derivative in the ranks."""
    value, slope = _term(ranks, bucket.row_weights, bucket, form)
    total, d_ranks = torch.zeros(len(ranks), dtype=ranks.dtype, device=ranks.device), torch.zeros_like(ranks)
    for rows in bucket.chunks():
        steps = _steps_of_ranks(bucket, ranks, rows, form.beta, dtype)
        steps[:, :, rows].diagonal(dim1=1, dim2=2).fill_(0)
        no_hit_above = (1 - steps).prod(2).to(ranks.dtype)
        terms = value[:, rows] * no_hit_above
        total += terms.sum(1)
        d_ranks[:, rows] += slope[:, rows] * no_hit_above - form.beta * terms * steps.sum(2).to(ranks.dtype)
        d_ranks += form.beta * (steps * terms.to(dtype)[:, :, None]).sum(1).to(ranks.dtype)
        del steps
    return total, d_ranks


def _steps_of_ranks(bucket: Bucket, ranks: Any, rows: slice, beta: float, dtype: Any) -> Any:
    """σ(beta (R_i - R_j)) for a chunk of relevant items i and all relevant items j; 0 for padding."""
    steps = (beta * (ranks[:, rows, None] - ranks[:, None, :])).to(dtype).sigmoid_()
    return steps.mul_(bucket.is_row[:, None, :])
