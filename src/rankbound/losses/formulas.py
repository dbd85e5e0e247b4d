"""The losses as formulas: for each structure, one function of the scores of padded lists in torch.

These functions are the definition of the losses. torch differentiates them; they compute losses on other devices than
the CPU, in tests what the kernels are compared with, and everything where no kernels were built. ``bucket`` holds
lists of similar length (see `rankbound.losses.padded`), ``x`` [lists, length] has their scores in the order of the
plan, where the rows of a loss, such as the relevant items, come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rankbound.difficulty.distribution.smoothing import smooth_table
from rankbound.losses.plans import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import Difficulty
    from rankbound.losses.padded import Bucket, Layout

Step = Callable[[Tensor], Tensor]  # a sigmoid

# ---- smooth measures -------------------------------------------------------------------------------------------------

# With x = alpha * (score - midrange), the step s_ij = step(x_j - x_i) that counts j as above i, its rank R_i = 1 + the
# sum of the steps of all other items, and the weight w_i of a row:
#
# additive        sum_i w_i d(R_i)                                          Qin, Liu & Li eqs. 13, 21; Westerborg 2022
#                                                                           eq. 2.10; Li et al. 2021 eq. 5
# precision sum   sum_i w_i (1 + sum over rows j of s_ij) / R_i             Westerborg eq. 2.11; Li et al. eq. 15
# coupled         the same with logistic(beta (R_i - R_j)) in place of s_ij Qin, Liu & Li eq. 22
# cascade         sum_i w_i d(R_i) prod over rows j of (1 - w_j s_ij)       Li et al. eq. 16, where w is 0 or 1
# first hit       sum_i d(R_i) prod over rows j of logistic(beta (R_j - R_i))   the same in their code
# pairs           constant + sum_i w_i sum over lower j of v_ij s_ij        Westerborg eq. 2.12
#
# A cutoff k multiplies the term of a row by logistic(beta (k + 1/2 - R_i)).

_STEPS: dict[str, Step] = {
    "logistic": torch.sigmoid,
    "arctan": lambda d: 0.5 + torch.atan(d) / math.pi,
    "erf": lambda d: 0.5 + 0.5 * torch.erf(d),
    "relu": torch.relu,
}
_DISCOUNTS: tuple[Callable[[Tensor, float], Tensor], ...] = (  # in the order of `rankbound.measures.discounts.BUILT_IN`
    lambda rank, _: 1 / torch.log2(1 + rank),
    lambda rank, persistence: persistence ** (rank - 1),
    lambda rank, _: torch.ones_like(rank),
    lambda rank, _: 1 / rank,
)
_CURVATURE, _LEAST_CURVATURE = 1 / 3, 0.05  # see `smooth_curvature`


@dataclass(frozen=True)
class SmoothOptions:
    """The options of a smooth loss; ``discount`` is the index of a built-in one, or a function of NumPy arrays."""

    form: Form
    sigmoid: str
    alpha: float
    beta: float
    discount: int | Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]] = 0
    parameter: float = 0.0


def smooth_measure(bucket: Bucket, x: Tensor, options: SmoothOptions) -> Tensor:
    """The smooth measure of each list."""
    plan, exact = bucket.layout.plan, bucket.layout.exact
    step, tie = _STEPS[options.sigmoid], 0.0 if options.sigmoid == "relu" else 0.5
    weights = bucket.of_items("weights", plan.weights, exact=True)[:, : bucket.rows] * bucket.is_row
    curvature = smooth_curvature(step, options.alpha)
    pairs_of = partial(bucket.pairs, _center(bucket, x) * options.alpha, curvature=curvature)
    form = options.form

    def sum_steps(d: Tensor, rows: slice) -> tuple[Tensor, ...]:
        steps = step(d)
        if form is Form.PAIRS:
            return ((steps * _pair_weights(bucket, rows)).sum(2, dtype=exact),)
        above = steps.sum(2, dtype=exact)
        if form is Form.PRECISION_SUM:
            return above, (steps[:, :, : bucket.rows] * bucket.is_row[:, None, :]).sum(2, dtype=exact)
        if form is Form.CASCADE:
            stops = weights.to(d.dtype)[:, None, :]
            factors = torch.relu(1 - stops * steps[:, :, : bucket.rows])
            return above, _without_own(factors, rows).prod(2, dtype=exact)
        return (above,)

    above, *others = pairs_of(sum_steps)
    if form is Form.PAIRS:
        return bucket.of_queries("constants", plan.constants)[:, 0] + (weights * above).sum(1)
    ranks = 1 - tie + above  # an item is compared with itself, too
    terms = weights * _inside(bucket, ranks, options.beta)
    if form is Form.PRECISION_SUM:
        return (terms * (1 - tie + others[0]) / ranks).sum(1)
    if form is Form.COUPLED:
        (hits,) = bucket.pairs(ranks, lambda d, _: (torch.sigmoid(-options.beta * d).sum(2),), math.inf, None, True)
        return (terms * (0.5 + hits) / ranks).sum(1)
    terms = terms * _discounts(ranks, options)
    if form is Form.FIRST_HIT:
        steps_below = lambda d, rows: (_without_own(torch.sigmoid(options.beta * d), rows).prod(2),)  # noqa: E731
        others = list(bucket.pairs(ranks, steps_below, math.inf, None, True))
    return (terms * others[0] if others else terms).sum(1)


def smooth_curvature(step: Step, alpha: float) -> Any:
    """The curvature of a pair: alpha (1 - step) / 3 times the size of its gradient.

    Larger values learn too slowly in boosting, smaller ones overshoot. The factor 1 - step counts as at least 1/20: a
    Newton step is at most 60 / alpha.
    """

    def curvature(d: Tensor, gradient: Tensor, rows: slice, _: Any) -> Tensor:
        curved = gradient.abs() * (1 - step(d)).clamp(min=_LEAST_CURVATURE) * (_CURVATURE * alpha**2)
        curved[:, :, rows].diagonal(dim1=1, dim2=2).fill_(0)  # an item has no pair with itself
        return curved

    return curvature


def _center(bucket: Bucket, x: Tensor) -> Tensor:
    """Scores minus their midrange, which preserves the precision of differences however large the scores are."""
    scores = x.detach()
    lowest = bucket.fill_padding(scores, math.inf).amin(1, keepdim=True)
    highest = bucket.fill_padding(scores, -math.inf).amax(1, keepdim=True)
    return x - (lowest + (highest - lowest) / 2)


def _without_own(factors: Tensor, rows: slice) -> Tensor:
    """A table of factors, 1 for the pair of an item with itself."""
    columns = torch.arange(factors.shape[2], device=factors.device)
    return torch.where(columns[rows, None] == columns, 1.0, factors)


def _inside(bucket: Bucket, ranks: Tensor, beta: float) -> Tensor | float:
    """Smooth "rank <= cutoff"; 1 without cutoff."""
    if not (bucket.layout.plan.cuts[bucket.queries] > 0).any():
        return 1.0
    cuts = bucket.of_queries("cuts", bucket.layout.plan.cuts)
    return torch.where(cuts > 0, torch.sigmoid(beta * (cuts + 0.5 - ranks)), 1.0)


def _discounts(ranks: Tensor, options: SmoothOptions) -> Tensor:
    if isinstance(options.discount, int):
        return _DISCOUNTS[options.discount](ranks, options.parameter)
    value, slope = options.discount(ranks.detach().cpu().double().numpy())
    value, slope = (torch.from_numpy(np.array(array)).to(ranks) for array in (value, slope))
    return value + slope * (ranks - ranks.detach())


def _pair_weights(bucket: Bucket, rows: slice) -> Tensor:
    """Weight of each pair of a higher and a lower item: booleans unless the plan has weights."""
    plan = bucket.layout.plan
    first = bucket.of_items("columns from", plan.columns_from, len(plan.labels))[:, rows, None]
    pairs = (torch.arange(bucket.length, device=bucket.layout.device) >= first) & bucket.is_row[:, rows, None]
    if bucket.is_item is not None:
        pairs = pairs & bucket.is_item[:, None, :]
    if plan.pair_weights is None:
        return pairs
    levels = bucket.of_items("levels", plan.levels)
    matrix = bucket.layout.keep("pair weights", lambda: bucket.layout.on_device(plan.pair_weights))
    return matrix[levels[:, rows, None], levels[:, None, :]] * pairs


def soft_rank(bucket: Bucket, x: Tensor, discounts: Tensor, noise: float) -> Tensor:
    """Expected sum of weight * discount when every score carries Gaussian noise (SoftRank, Taylor et al.).

    The rank of an item is 1 plus a coin flip per competitor; the flips count as independent. The distribution of their
    sum is a product of polynomials, which are multiplied in pairs by Fourier transforms.
    """
    exact, scale = bucket.layout.exact, 1 / (2 * noise)
    weights = bucket.of_items("weights", bucket.layout.plan.weights, exact=True)[:, : bucket.rows] * bucket.is_row
    size = 1 << (bucket.length - 1).bit_length()

    def expected(d: Tensor, rows: slice) -> tuple[Tensor]:
        above = 0.5 * torch.special.erfc(-scale * d.to(exact))
        above = torch.nn.functional.pad(1 - _without_own(1 - above, rows), (0, size - bucket.length))
        flips = torch.stack((1 - above, above), -1)  # polynomials of degree 1, 1 for padding
        while flips.shape[2] > 1:
            transformed = torch.fft.rfft(flips, 2 * flips.shape[3] - 1)
            product = transformed[:, :, ::2] * transformed[:, :, 1::2]
            flips = torch.fft.irfft(product, 2 * flips.shape[3] - 1)
        return ((flips[:, :, 0, : len(discounts)] * discounts[: flips.shape[3]]).sum(2),)

    (terms,) = bucket.pairs(x, expected, curvature=lambda _d, gradient, _rows, _above: scale * gradient.abs())
    return (weights * terms).sum(1)


# ---- boundings -------------------------------------------------------------------------------------------------------

_LEAST_TAIL = 1e-12  # keeps -log(1 - F) finite, as in the boundings of measures


def bound_values(name: str, values: Tensor, bucket: Bucket) -> Tensor:
    """The values of the lists of a bucket under a bounding, see `rankbound.difficulty.bounding`."""
    bounding = bucket.layout.plan.bounding
    if bounding is None:
        return values
    if bounding.slope is not None:
        at_zero = bucket.of_queries("bounding at 0", bounding.at_zero)[:, 0]
        return at_zero + values * bucket.of_queries("slope of the bounding", bounding.slope)[:, 0]
    fraction = _fraction_no_better(values, bucket, bounding.difficulty)
    if name == "distribution":
        return fraction
    tail = 1 - fraction
    return -torch.log(tail + (tail.clamp(min=_LEAST_TAIL) - tail).detach())  # whose derivative is not 0 in the far tail


def _fraction_no_better(values: Tensor, bucket: Bucket, difficulty: Difficulty) -> Tensor:
    """The smooth fraction of random rankings that are no better, interpolated as in `smoothing.look_up`."""
    tables = bucket.layout.keep("distributions", lambda: _distribution_tables(bucket.layout, difficulty))
    per_query, nodes, slopes_of_nodes = tables
    if "queries" not in bucket.tensors:
        bucket.tensors["queries"] = bucket.layout.on_device(bucket.queries)
    start, spacing, gain, first, last = (column[bucket.tensors["queries"]] for column in per_query)
    first, last = first.long(), last.long()
    t = (values - start) / spacing
    node = torch.nan_to_num(t.detach()).clamp(min=0).minimum(last - 1).long()
    s, at = (t - node).clamp(0, 1), first + node
    v0, v1, d0, d1 = nodes[at], nodes[at + 1], slopes_of_nodes[at] * spacing, slopes_of_nodes[at + 1] * spacing
    c, d = 3 * (v1 - v0) - 2 * d0 - d1, d0 + d1 - 2 * (v1 - v0)
    low, high = t < 0, t > last
    decay = torch.exp(-torch.where(low, t, torch.where(high, t - last, 0.0)).abs() * (spacing * gain))
    fraction = torch.where(low, v0 * decay, torch.where(high, 1 - (1 - v1) * decay, v0 + s * (d0 + s * (c + s * d))))
    return 1 - fraction if difficulty.lower_is_better else fraction


def _distribution_tables(layout: Layout, difficulty: Difficulty) -> tuple[Any, Tensor, Tensor]:
    """The numbers of the table of each query, and the values and slopes of all tables one after another."""
    distributions: Any = difficulty.distribution()
    tables = [smooth_table(points[0], points[1]) for points in distributions.distributions]
    sizes = np.array([len(table.values) for table in tables], np.int64)
    columns = [
        *zip(*((table.start, table.spacing, table.gain) for table in tables), strict=True),
        np.cumsum(sizes) - sizes,
        sizes - 1,
    ]
    per_query = [layout.on_device(np.array(column, float)[distributions.class_of], exact=True) for column in columns]
    values, slopes = (
        layout.on_device(np.concatenate([getattr(table, name) for table in tables]), exact=True)
        for name in ("values", "slopes")
    )
    return per_query, values, slopes
