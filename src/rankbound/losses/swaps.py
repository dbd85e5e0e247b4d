"""Swap deltas: by how much a measure changes when two items of the present ranking change places.

Each delta is O(1) after one sort and a few running sums per query. With r the rank of an item (1 = best score, ties in
input order), i the item of the row (of the higher label), j that of the column, d the discount of a rank (0 beyond the
cutoff), and a the upper and b the lower of the two ranks:

=============  ======================================================================================================
structure      |change of the measure when i and j swap|
=============  ======================================================================================================
additive       |g_i - g_j| |d(r_i) - d(r_j)|, gains over the normalizer
precision sum  with c(r) relevant items and A(r) = sum of 1/rank over relevant items down to rank r, over the divisor:
               j above i: (c(r_j) + 1)/r_j - c(r_i)/r_i + A(r_i - 1) - A(r_j);
               i above j: c(r_j)/r_j - c(r_i)/r_i - A(r_j) + A(r_i)
cascade        with q the stop probability, C(r) = prod over ranks <= r of (1 - q) and T(r) the measure down to rank r:
               |q_b - q_a| |C(a-1) d(a) - (T(b-1) - T(a) + C(b-1) d(b)) / (1 - q_a)|;
               if q_a = 1, T and C of a user who passes over the item at rank a, undivided
first hit      the cascade with q in {0, 1}: the first relevant item moves to r_j, or the second one becomes the first
pairs          |S_i(r_j) - S_i(r_i) + S_j(r_i) - S_j(r_j)| times the scale of the measure; S_x(r) = sum over ranks <= r
               of f(label of x, label at the rank), f the weight of a pair, negative if x has the lower label
published      p^(r_i - 1) over the normalizer: eq. 10 of Li, Urbano & Hanjalic 2021 for nRBP, which is not the swap
loss 1         g_i d(r_i), d without cutoff: NDCG-Loss1 of Wang et al. 2018; this and the next two are not the swap
loss 2         |g_i - g_j| |d(m) - d(m + 1)|, m = |r_i - r_j|, d without cutoff: NDCG-Loss2
loss 2++       |g_i - g_j| (mu |d(m) - d(m + 1)| + |d(r_i) - d(r_j)|): NDCG-Loss2++
=============  ======================================================================================================

Source of the principle: Donmez, Svore & Burges, On the local optimality of LambdaRank.

The lambdas of a query can be normalized by their sum S = 2 * sum over pairs of |lambda|, in which each pair counts for
both of its items:

=============  ======================================================================================================
normalization  factor on the lambdas of a query
=============  ======================================================================================================
sqrt           1 / sqrt(S)
lightgbm       log2(1 + S) / S; and before that each pair's weight is divided by 0.01 + |f_i - f_j|, unless all scores
               of the query are equal: lambdarank_norm of LightGBM
=============  ======================================================================================================

This module prepares what they need of the labels; `pair_formulas` and the kernel ``pairs.cpp`` compute them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.losses.plans import Plan, Swap, plan_levels
from rankbound.losses.structures import PairwiseStructure, RankedStructure, Structure
from rankbound.measures.label_counts import LabelCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEARNESS = 0.01  # added to the distance of two scores before the weight of the pair is divided by it, as in LightGBM
_NONE = np.zeros(0)


class Normalization(IntEnum):
    """How the lambdas of a query are normalized; the numbers are those of the kernel."""

    none, sqrt, lightgbm = range(3)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairPlan(Plan):
    """The pairs of items of different level, the higher one first, and what weights them.

    Attributes
    ----------
    ends:
        For each entry of ``order``, where the run of its level ends: its pairs are those with the entries from there.
    scales:
        What the loss of each query is multiplied by.
    swap, discounts:
        What weights the pairs, and the discounts of the ranks 1, 2, ...
    weights:
        For each entry of ``order``: its gain over the normalizer, its stop probability, its relevance over the
        divisor, or its score by a teacher.
    cuts:
        Cutoff of each query, 0 for none.
    is_monotone:
        Whether the weights never rise along the order.
    levels, pair_weights:
        For pairs with weights: the level of each entry of ``order``, and the weights by the levels of both items.
    scale, offset:
        For pairs: the numbers per query that turn the weight of the wrong pairs into the measure.
    """

    ends: NDArray[np.int64]
    scales: NDArray[np.float64]
    swap: Swap = Swap.NONE
    discounts: NDArray[np.float64] = field(default_factory=lambda: _NONE)
    weights: NDArray[np.float64] = field(default_factory=lambda: _NONE)
    cuts: NDArray[np.float64] = field(default_factory=lambda: _NONE)
    is_monotone: bool = False
    levels: NDArray[np.int64] | None = None
    pair_weights: NDArray[np.float64] | None = None
    scale: NDArray[np.float64] | None = None
    offset: NDArray[np.float64] | None = None


def plan_pairs(labels: NDArray[Any], offsets: NDArray[np.int64]) -> PairPlan:
    """Make the plan of all pairs of different labels; the loss of a query is their mean."""
    counts = LabelCounts.from_labels(labels, offsets)
    order, rows, ends = plan_levels(labels, offsets, counts)
    pairs = counts.sum(counts.counts * (counts.sizes[counts.query_of_run] - counts.best_ends))
    return PairPlan(
        labels=labels,
        offsets=offsets,
        order=order,
        rows=rows,
        ends=ends,
        scales=1 / np.maximum(pairs, 1),
        kept={"counts": counts},
    )


def plan_all_pairs(labels: NDArray[Any], offsets: NDArray[np.int64], teacher: NDArray[np.float64]) -> PairPlan:
    """Make the plan of all pairs of items; a teacher's scores say which item of a pair is the better one."""
    sizes = np.diff(offsets)
    order = np.arange(len(labels)) - np.repeat(offsets[:-1], sizes)
    return PairPlan(
        labels=labels,
        offsets=offsets,
        order=order,
        rows=np.maximum(sizes - 1, 0),
        ends=order + 1,
        weights=teacher,
        scales=2 / np.maximum(sizes * (sizes - 1), 1),
        cuts=np.zeros(len(sizes)),
    )


def plan_swaps(
    structure: Structure, labels: NDArray[Any], offsets: NDArray[np.int64], swap: Swap | None = None
) -> PairPlan:
    """Make the plan of a lambda loss; unless another form is given, the pairs are weighted by swaps of the measure."""
    counts, levels = LabelCounts.from_labels(labels, offsets), structure.levels(labels)
    of_levels = counts if levels is labels else LabelCounts.from_labels(levels, offsets)
    order, rows, ends = plan_levels(levels, offsets, of_levels)
    options: dict[str, Any] = {}
    form = structure.swap
    if isinstance(structure, RankedStructure):
        _, weights, cuts, matters = structure.terms(labels, offsets, counts)
        rows = np.where(matters, rows, 0)
        if form == Swap.CASCADE and np.isin(weights, (0.0, 1.0)).all():
            form = Swap.FIRST_HIT
    else:
        assert isinstance(structure, PairwiseStructure)
        scale, offset = structure.definition.affine(structure.measure, counts)
        scale, offset = np.where(rows > 0, scale, 0.0), np.where(rows > 0, offset, 0.0)
        options = {"scale": scale, "offset": offset}
        if structure.definition.is_weighted:
            distinct, codes = np.unique(levels, return_inverse=True)
            options |= {"levels": codes[order + np.repeat(offsets[:-1], counts.sizes)].astype(np.int64, copy=False)}
            options |= {"pair_weights": structure._pair_weights(distinct)}
        weights, cuts = np.zeros(len(labels)), np.zeros(len(counts))
    weights = weights[order + np.repeat(offsets[:-1], counts.sizes)]
    return PairPlan(
        labels=labels,
        offsets=offsets,
        order=order,
        rows=rows,
        ends=ends,
        weights=weights,
        cuts=cuts,
        scales=np.abs(options["scale"]) if options else np.ones(len(counts)),
        swap=swap or form,
        discounts=structure.discount_table(int(counts.sizes.max(initial=1))),
        is_monotone=form == Swap.ADDITIVE and _never_rises(weights, offsets),
        kept={"counts": counts},
        **options,
    )


def _never_rises(weights: NDArray[np.float64], offsets: NDArray[np.int64]) -> bool:
    """Whether no weight of a query is larger than the one before it."""
    starts = np.zeros(len(weights) + 1, bool)
    starts[offsets[:-1]] = True
    return bool((starts[1:-1] | (weights[1:] <= weights[:-1])).all())
