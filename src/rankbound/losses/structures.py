"""What a loss needs of a measure, by the structure of the measure alone.

Every measure with a loss has one of four structures (see `rankbound.measures.definition`). Its gains, discounts, stop
probabilities, weights and normalizers come from its definition; this module turns them into plans for the kernels and
into the arguments of the reference forms, and never asks which measure it has.

=============  ==============================================  ====================================================
structure      rows of the smooth loss, with their weights     pairs of the lambda loss, with what weights them
=============  ==============================================  ====================================================
additive       items with gain; gain / normalizer              pairs of different gain; gains and discounts
cascade        items that can stop the user; stop probability  pairs of different stop probability; these, discounts
precision sum  relevant items; 1 / divisor                     relevant and other items; 1 / divisor and 1 / rank
pairwise       items above the lowest label; scale             pairs of different label; their weights, scale
=============  ==============================================  ====================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit

from rankbound.errors import ArgumentError
from rankbound.lists import Lists
from rankbound.losses import reference, smooth_kernel, swaps
from rankbound.losses.lazy_torch import torch
from rankbound.losses.plans import Plan, plan_rows
from rankbound.losses.smooth_kernel import GIVEN
from rankbound.measures.additive import Additive
from rankbound.measures.cascade import Cascade
from rankbound.measures.discounts import BUILT_IN, GEOMETRIC, RECIPROCAL
from rankbound.measures.label_counts import LabelCounts
from rankbound.measures.measure import Measure, parse_measure
from rankbound.measures.pairwise import Pairwise
from rankbound.measures.precision_sum import PrecisionSum
from rankbound.measures.ranked import Ranked
from rankbound.measures.registry import definitions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.sigmoids import Sigmoid

__all__ = ["Structure", "has_loss", "measures_with_loss", "structure_of"]


@dataclass(frozen=True)
class Structure(ABC):
    """A measure as the losses see it."""

    measure: Measure
    code: ClassVar[int]  # of the smooth kernel
    swap: ClassVar[int]  # form of the swap deltas
    discount: int = 0  # index of the built-in discount, or GIVEN; only some structures have a discount
    parameter: float = 0.0  # of the discount

    @property
    def definition(self) -> Any:
        """The definition of the measure."""
        return self.measure.definition

    @abstractmethod
    def smooth_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        """Make the plan of the smooth loss."""

    @abstractmethod
    def swap_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        """Make the plan of the lambda loss; its constants scale the queries."""

    def swap_form(self, plan: Plan) -> int:  # noqa: ARG002 - some structures look at the plan
        """Which form of swap deltas the kernel computes."""
        return self.swap

    def discount_table(self, n: int) -> NDArray[np.float64]:
        """The discounts of the ranks 1..n, without cutoff."""
        return np.ones(n)

    @abstractmethod
    def smooth_value(self, scores: Any, labels: NDArray[Any], sigmoid: Sigmoid, alpha: float, beta: float) -> Any:
        """Compute the smooth measure of one query in torch operations."""

    @abstractmethod
    def swap_deltas(self, scores: Any, labels: NDArray[Any]) -> Any:
        """Compute |change of the measure when i and j swap| for all pairs of one query, as a float64 tensor."""

    def levels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Labels as the measure distinguishes them, in a type that sorts fast."""
        if self.definition.is_binary(self.measure):
            return (labels >= self.measure.rel).astype(np.int8)
        return labels

    def value_of(self, scores: Any, labels: NDArray[Any]) -> float:
        """The measure of the present ranking of one query, ties in input order."""
        lists = Lists(labels, np.array([0, len(labels)]), scores.detach().cpu().double().numpy())
        return float(self.definition.values(self.measure, Ranked(lists, "input"))[0])

    @property
    def cutoff(self) -> float:
        """The cutoff of the measure, 0 for none."""
        return float(self.measure.cutoff or 0)

    def _cuts(self, counts: LabelCounts) -> NDArray[np.float64]:
        return np.full(len(counts), self.cutoff)


@dataclass(frozen=True)
class _Discounted(Structure):
    """A structure with a discount."""

    def discount_table(self, n: int) -> NDArray[np.float64]:
        return np.array(self.definition.discounts(self.measure, np.arange(1.0, n + 1)))  # a copy that may be changed

    def truncated_discounts(
        self, ranks: NDArray[np.float64], cuts: NDArray[np.float64], beta: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Discounts at smooth ranks under a smooth cutoff (0 for none), and their derivatives."""
        value = self.definition.discounts(self.measure, ranks)
        slope = self.definition.discount_slopes(self.measure, ranks)
        inside = np.where(cuts > 0, expit(beta * (cuts + 0.5 - ranks)), 1.0)
        d_inside = np.where(cuts > 0, -beta * inside * (1 - inside), 0.0)
        return value * inside, slope * inside + value * d_inside

    def _discount_of(self, ranks: Any) -> Any:
        """Discounts of a tensor of smooth ranks, with their derivatives for autograd."""
        exact = ranks.detach().cpu().double().numpy()
        value = _tensor(self.definition.discounts(self.measure, exact), ranks)
        slope = _tensor(self.definition.discount_slopes(self.measure, exact), ranks)
        return value + slope * (ranks - ranks.detach())

    def _equal_ranks(self, sizes: NDArray[np.int64]) -> int:
        """How many ranks at the top have the same discount."""
        table = self.discount_table(int(sizes.max(initial=1)))
        changes = np.flatnonzero(table != table[0])
        return int(changes[0]) if len(changes) else len(table)

    def smooth_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        values = self.definition.levels(self.measure, labels)
        plan = plan_rows(labels, offsets, (values > 0).astype(np.int8), only_gain=True)
        plan.rows = np.where(self._complete(plan, values), plan.relevant, 0)
        return plan

    def swap_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = plan_rows(labels, offsets, self.levels(labels), only_gain=False, lower_only=True)
        plan.rows = np.where(self._complete(plan, self.definition.levels(self.measure, labels)), plan.rows, 0)
        plan.constants = np.ones(len(plan.rows))
        return plan

    @abstractmethod
    def _complete(self, plan: Plan, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Set weights and cutoffs from gains or stop probabilities; returns the queries whose order matters."""

    def _discounts_of_order(self, scores: Any, cut: float) -> Any:
        """The discount of the rank of each item, 0 beyond the cutoff, as a float64 tensor."""
        table = self.discount_table(len(scores))
        if cut > 0:
            table[int(cut) :] = 0.0
        return _tensor(table, scores, exact=True)[reference.ranks_of(scores) - 1]


@dataclass(frozen=True)
class AdditiveStructure(_Discounted):
    """Sum of gain * discount over the ranks, divided by a normalizer."""

    code: ClassVar[int] = smooth_kernel.ADDITIVE
    swap: ClassVar[int] = swaps.SWAP_ADDITIVE

    def _complete(self, plan: Plan, gains: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Set weights and cutoffs; returns the queries in which the order of the items makes a difference."""
        counts = LabelCounts.from_labels(plan.labels, plan.offsets)
        normalizer = self.definition.normalizer(self.measure, counts)
        plan.weights = plan.sorted(gains / plan.per_item(np.where(normalizer > 0, normalizer, 1.0)))
        plan.cuts = self._cuts(counts)
        reach = np.where(plan.cuts > 0, np.minimum(plan.cuts, plan.sizes), plan.sizes)
        return uneven(gains, plan) & ((reach < plan.sizes) | (plan.sizes > self._equal_ranks(plan.sizes)))

    def _cuts(self, counts: LabelCounts) -> NDArray[np.float64]:
        if self.measure.cutoff is not None:
            return super()._cuts(counts)
        ranks = self.definition.cut(self.measure, counts)  # a number of the query can be its cutoff
        return np.where(ranks < counts.sizes, ranks, 0).astype(np.float64)

    def _of_query(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        """Gains over the normalizer as a tensor, and the cutoff."""
        counts = LabelCounts.from_labels(labels, [0, len(labels)])
        gains = self.definition.gains(self.measure, labels) / self.definition.normalizer(self.measure, counts)[0]
        return _tensor(gains, scores, exact=True), float(self._cuts(counts)[0])

    def smooth_value(self, scores: Any, labels: NDArray[Any], sigmoid: Sigmoid, alpha: float, beta: float) -> Any:
        weights, cut = self._of_query(scores, labels)
        rows = torch.nonzero(weights)[:, 0]
        ranks = reference.smooth_ranks(scores, rows, sigmoid, alpha)
        terms = weights[rows].to(scores.dtype) * self._discount_of(ranks)
        return (terms * reference.inside(ranks, cut, beta)).sum()

    def swap_deltas(self, scores: Any, labels: NDArray[Any]) -> Any:
        gains, cut = self._of_query(scores, labels)
        return reference.additive_deltas(gains, self._discounts_of_order(scores, cut))

    def published_deltas(self, scores: Any, labels: NDArray[Any]) -> Any:
        """Gain times discount of the row, as Li, Urbano & Hanjalic 2021 have it for nRBP."""
        gains, cut = self._of_query(scores, labels)
        return (gains * self._discounts_of_order(scores, cut))[:, None].expand(len(gains), len(gains))

    def lambda_loss_weights(self, scores: Any, labels: NDArray[Any], form: str, mu: float) -> Any:
        """Weights of the pairs of the LambdaLoss family: form "1", "2" or "2++"."""
        gains, cut = self._of_query(scores, labels)
        if form == "1":
            return (gains * self._discounts_of_order(scores, 0.0))[:, None].expand(len(gains), len(gains))
        ranks = reference.ranks_of(scores)
        apart = (ranks[:, None] - ranks[None, :]).abs()
        discounts = _tensor(self.discount_table(len(scores) + 1), scores, exact=True)  # that of rank r is at r - 1
        steps = (discounts[apart - 1] - discounts[apart]).abs()  # the pair of an item with itself has no cost
        weights = steps * (gains[:, None] - gains[None, :]).abs()
        if form == "2":
            return weights
        return mu * weights + reference.additive_deltas(gains, self._discounts_of_order(scores, cut))

    @property
    def is_geometric(self) -> bool:
        """Whether the discount is that of rank-biased precision."""
        return self.definition.discount is GEOMETRIC


@dataclass(frozen=True)
class CascadeStructure(_Discounted):
    """Expected discount of the rank at which a user stops."""

    code: ClassVar[int] = smooth_kernel.CASCADE
    swap: ClassVar[int] = swaps.SWAP_CASCADE

    def _complete(self, plan: Plan, stops: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Set weights and cutoffs; returns the queries in which the order of the items makes a difference.

        It makes none if all items stop the user alike, or if in every order some item stops the user for certain
        within the ranks that have the discount of the first.
        """
        plan.weights = plan.sorted(stops)
        plan.cuts = np.full(len(plan.rows), self.cutoff)
        reach = np.where(plan.cuts > 0, np.minimum(plan.cuts, plan.sizes), plan.sizes)
        alike = np.minimum(reach, self._equal_ranks(plan.sizes))
        query = plan.per_item(np.arange(len(plan.rows)))
        certain = np.bincount(query, stops >= 1, minlength=len(plan.rows))
        return uneven(stops, plan) & (alike < plan.sizes) & (certain <= plan.sizes - alike)

    def swap_form(self, plan: Plan) -> int:
        is_certain = bool(np.isin(plan.weights, (0.0, 1.0)).all())
        return swaps.SWAP_FIRST_HIT if is_certain else swaps.SWAP_CASCADE

    def _stops_of(self, scores: Any, labels: NDArray[Any]) -> Any:
        return _tensor(self.definition.stops(self.measure, labels), scores, exact=True)

    def smooth_value(self, scores: Any, labels: NDArray[Any], sigmoid: Sigmoid, alpha: float, beta: float) -> Any:
        stops = self._stops_of(scores, labels).to(scores.dtype)
        rows = torch.nonzero(stops)[:, 0]
        table = reference.steps(scores, rows, sigmoid, alpha)
        ranks = 1 + table.sum(1)
        no_earlier_stop = torch.relu(1 - stops[rows] * table[:, rows]).prod(1)
        terms = stops[rows] * self._discount_of(ranks) * no_earlier_stop
        return (terms * reference.inside(ranks, self.cutoff, beta)).sum()

    def coupled_value(self, scores: Any, labels: NDArray[Any], sigmoid: Sigmoid, alpha: float, beta: float) -> Any:
        """The same with certain stops, and relevant items above counted by smooth ranks."""
        rows = torch.nonzero(self._stops_of(scores, labels))[:, 0]
        ranks = reference.smooth_ranks(scores, rows, sigmoid, alpha)
        terms = self._discount_of(ranks) * reference.inside(ranks, self.cutoff, beta)
        return reference.first_hit_of_ranks(ranks, terms, beta)

    def swap_deltas(self, scores: Any, labels: NDArray[Any]) -> Any:
        return reference.cascade_deltas(
            scores, self._stops_of(scores, labels), self._discounts_of_order(scores, self.cutoff)
        )


@dataclass(frozen=True)
class PrecisionSumStructure(Structure):
    """Sum of the precisions at the ranks of relevant items, divided by a divisor."""

    code: ClassVar[int] = smooth_kernel.PRECISION_SUM
    swap: ClassVar[int] = swaps.SWAP_PRECISION_SUM

    def discount_table(self, n: int) -> NDArray[np.float64]:
        return RECIPROCAL.table(n)  # a precision is a count of items divided by the rank

    def smooth_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = plan_rows(labels, offsets, self.levels(labels), only_gain=True)
        divisor = self._divisor(labels, offsets)
        plan.weights = plan.per_item(1 / np.where(divisor > 0, divisor, 1.0))
        plan.cuts = np.full(len(plan.rows), self.cutoff)
        return plan

    def swap_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        levels = self.levels(labels)
        plan = plan_rows(labels, offsets, levels, only_gain=True, lower_only=True)
        divisor = self._divisor(labels, offsets)
        plan.weights = plan.sorted(levels) / plan.per_item(np.where(divisor > 0, divisor, 1.0))
        plan.cuts = np.full(len(plan.rows), self.cutoff)
        plan.constants = np.ones(len(plan.rows))
        return plan

    def _divisor(self, labels: NDArray[Any], offsets: Any) -> NDArray[np.float64]:
        return np.asarray(self.definition.divisor(self.measure, LabelCounts.from_labels(labels, offsets)))

    def smooth_value(self, scores: Any, labels: NDArray[Any], sigmoid: Sigmoid, alpha: float, beta: float) -> Any:
        relevant = torch.as_tensor(self.levels(labels) > 0, device=scores.device)
        total = reference.precision_sum(scores, relevant, sigmoid, alpha, self.cutoff, beta)
        return total / float(self._divisor(labels, [0, len(labels)])[0])

    def coupled_value(self, scores: Any, labels: NDArray[Any], sigmoid: Sigmoid, alpha: float, beta: float) -> Any:
        """The same with hits counted by smooth ranks."""
        relevant = torch.as_tensor(self.levels(labels) > 0, device=scores.device)
        total = reference.precision_sum_of_ranks(scores, relevant, sigmoid, alpha, self.cutoff, beta)
        return total / float(self._divisor(labels, [0, len(labels)])[0])

    def swap_deltas(self, scores: Any, labels: NDArray[Any]) -> Any:
        relevant = torch.as_tensor(self.levels(labels) > 0, device=scores.device)
        divisor = float(self._divisor(labels, [0, len(labels)])[0])
        return reference.precision_sum_deltas(scores, relevant, self.cutoff) / divisor


@dataclass(frozen=True)
class PairwiseStructure(Structure):
    """Weighted pairs in the wrong order, scaled and shifted."""

    code: ClassVar[int] = smooth_kernel.PAIRS
    swap: ClassVar[int] = swaps.SWAP_PAIRS

    def smooth_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = self._plan(labels, offsets)
        plan.constants, plan.weights = plan.offset, plan.per_item(plan.scale)
        return plan

    def swap_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = self._plan(labels, offsets)
        plan.constants = np.abs(plan.scale)
        return plan

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = plan_rows(labels, offsets, self.levels(labels), only_gain=False, lower_only=True)
        scale, offset = self.definition.affine(self.measure, LabelCounts.from_labels(labels, offsets))
        active = plan.rows > 0
        plan.scale, plan.offset = np.where(active, scale, 0.0), np.where(active, offset, 0.0)
        if self.definition.is_weighted:
            distinct, codes = np.unique(self.levels(labels), return_inverse=True)
            plan.levels, plan.pair_weights = plan.sorted(codes), self._pair_weights(distinct)
        return plan

    def _pair_weights(self, distinct: NDArray[Any]) -> NDArray[np.float64]:
        """Weights of a higher and a lower of some levels, which ascend; 0 for other pairs."""
        high, low = np.tril_indices(len(distinct), -1)
        matrix = np.zeros((len(distinct), len(distinct)))
        matrix[high, low] = self.definition.weights(self.measure, distinct[high], distinct[low])
        return matrix

    def _of_query(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float, float]:
        """Weight of each pair (higher, lower) of items, 0 for other pairs; scale and offset."""
        distinct, codes = np.unique(self.levels(labels), return_inverse=True)
        weights = self._pair_weights(distinct)[codes[:, None], codes[None, :]]
        scale, offset = self.definition.affine(self.measure, LabelCounts.from_labels(labels, [0, len(labels)]))
        return _tensor(weights, scores, exact=True), float(scale[0]), float(offset[0])

    def smooth_value(self, scores: Any, labels: NDArray[Any], sigmoid: Sigmoid, alpha: float, beta: float) -> Any:  # noqa: ARG002
        weights, scale, offset = self._of_query(scores, labels)
        table = reference.steps(scores, torch.arange(len(scores), device=scores.device), sigmoid, alpha)
        return offset + scale * (table * weights.to(scores.dtype)).sum()

    def swap_deltas(self, scores: Any, labels: NDArray[Any]) -> Any:
        weights, scale, _ = self._of_query(scores, labels)
        return abs(scale) * reference.pair_deltas(scores, weights)


def _tensor(array: NDArray[Any], like: Any, exact: bool = False) -> Any:
    """A copy of an array on the device of a tensor, in its precision or in float64."""
    return torch.from_numpy(np.array(array, np.float64)).to(like.device, torch.float64 if exact else like.dtype)


def uneven(values: NDArray[Any], plan: Plan) -> NDArray[np.bool_]:
    """Whether the values of the items of each query differ."""
    result = np.zeros(len(plan.sizes), dtype=bool)
    full = np.flatnonzero(plan.sizes > 0)
    if len(full):
        starts = plan.offsets[:-1][full]
        result[full] = np.maximum.reduceat(values, starts) > np.minimum.reduceat(values, starts)
    return result


# ---- which measures have a loss --------------------------------------------------------------------------------------

_STRUCTURES: tuple[tuple[type[Any], type[Structure]], ...] = (
    (Additive, AdditiveStructure),
    (Cascade, CascadeStructure),
    (PrecisionSum, PrecisionSumStructure),
    (Pairwise, PairwiseStructure),
)


def has_loss(measure: Measure) -> bool:
    """Whether a measure has a smooth loss and a lambda loss."""
    return measure.bounding == "none" and bool(measure.definition.has_loss(measure))


def measures_with_loss(k: int | None = None) -> list[str]:
    """The names of all registered measures that have a smooth loss and a lambda loss, users' own included.

    Measures that need a cutoff are listed with the cutoff k, or without any if k is None.
    """
    names = []
    for definition in definitions():
        needs_cutoff = definition.cutoff == "required"
        if has_loss(parse_measure(f"{definition.name}@{k or 10}" if needs_cutoff else definition.name)):
            names.append(f"{definition.name}@{k}" if needs_cutoff and k else definition.name)
    return names


def structure_of(measure: Measure) -> Structure:
    """Look at a measure as its structure; ArgumentError if it has no loss."""
    if has_loss(measure):
        for definition, structure in _STRUCTURES:
            if isinstance(measure.definition, definition):
                discount, parameter = 0, 0.0
                if issubclass(structure, _Discounted):
                    discount = next((i for i, d in enumerate(BUILT_IN) if d is measure.definition.discount), GIVEN)
                    parameter = measure.definition.discount_parameter(measure)
                return structure(measure, discount, parameter)
    raise ArgumentError(f"measure must be one that has a loss, {', '.join(measures_with_loss())}; got {str(measure)!r}")
