"""Losses of pairs with different labels: RankNet, DirectRanker and the lambda losses."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from rankbound.difficulty.bounding import get_bounding
from rankbound.errors import ArgumentError
from rankbound.losses import reference, swaps
from rankbound.losses.base import KernelResult, MeasureLoss, RankingLoss, positive
from rankbound.losses.compiling import running
from rankbound.losses.pair_kernel import COST_LOGISTIC, COST_SQUARE, COST_TANH, pair_pass
from rankbound.losses.plans import Plan, plan_rows
from rankbound.losses.smooth import check_gain, with_gain
from rankbound.losses.structures import AdditiveStructure, structure_of
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DirectRankerLoss", "LambdaLoss", "RankNetLoss"]


def _run_pairs(scores: NDArray[Any], plan: Plan, with_hessian: bool, cost: int, alpha: float) -> KernelResult:
    values, measured = np.zeros(len(plan.rows)), np.zeros(len(plan.rows))
    gradient = np.zeros_like(scores)
    hessian = np.zeros_like(scores) if with_hessian else scores[:0].copy()
    with running(plan.pairs) as threads:
        pair_pass(
            scores, plan.offsets, plan.order, plan.rows, plan.columns_from, plan.weights, plan.constants, plan.cuts,
            plan.levels, plan.pair_weights, plan.discounts, *plan.blocks(threads),
            cost, plan.swap, alpha, with_hessian, values, measured, gradient, hessian,
        )  # fmt: skip
    return KernelResult(values, gradient, hessian, plan.offset + plan.scale * measured)


@dataclass(frozen=True)
class RankNetLoss(RankingLoss):
    """Mean over the pairs l_i > l_j of a query of log(1 + exp(-alpha (f_i - f_j))).

    Source: Burges et al., Learning to rank using gradient descent.

    >>> import torch
    >>> RankNetLoss()(torch.tensor([1.0, 1.0]), [1, 0], [0, 2]).item()  # log(2) for a tie
    0.693147...
    """

    alpha: float = field(default=1.0, kw_only=True)
    _cost: ClassVar[int] = COST_LOGISTIC
    _reference_cost: ClassVar[str] = "logistic"

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        super().__post_init__()

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = plan_rows(labels, offsets, labels, only_gain=False, lower_only=True)
        lower = plan.per_item(plan.sizes) - plan.columns_from
        before = np.concatenate(([0], np.cumsum(lower)))
        pairs = before[plan.offsets[1:]] - before[plan.offsets[:-1]]
        plan.constants = 1 / np.maximum(pairs, 1)
        return plan

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        return _run_pairs(scores, plan, with_hessian, self._cost, self.alpha)

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        pairs = torch.as_tensor(labels[:, None] > labels[None, :], device=scores.device)
        differences = (scores[:, None] - scores[None, :])[pairs]
        return reference.pair_costs(self.alpha * differences, self._reference_cost).mean(), 0.0


@dataclass(frozen=True)
class DirectRankerLoss(RankNetLoss):
    """Mean over the pairs l_i > l_j of (1 - tanh(alpha (f_i - f_j)))².

    Source: Köppel et al., Pairwise learning to rank by neural networks revisited: an odd activation is applied to the
    difference of the outputs of one network for the two items; f is this network up to its head without bias.
    ``cost="tanh"`` is log(1 + exp(-tanh(alpha (f_i - f_j)))), the form of a later paper on neural networks in ranking.

    >>> import torch
    >>> DirectRankerLoss()(torch.tensor([1.0, 1.0]), [1, 0], [0, 2]).item()
    1.0
    """

    cost: str = field(default="square", kw_only=True)

    def __post_init__(self) -> None:
        if self.cost not in ("square", "tanh"):
            raise ArgumentError(f"cost must be 'square' or 'tanh', got {self.cost!r}")
        super().__post_init__()

    @property
    def _reference_cost(self) -> str:  # type: ignore[override]
        return self.cost

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        cost = COST_SQUARE if self.cost == "square" else COST_TANH
        return _run_pairs(scores, plan, with_hessian, cost, 2 * self.alpha)  # tanh(d) = 2 σ(2 d) - 1


@dataclass(frozen=True)
class LambdaLoss(MeasureLoss):
    """LambdaRank: sum over pairs l_i > l_j of |ΔM_ij| log(1 + exp(-alpha (f_i - f_j))), ΔM the true change by a swap.

    Parameters
    ----------
    measure:
        Any measure that has a loss, by name or as an object, with or without cutoff; users' own measures too.
    alpha:
        Slope of the logistic cost.
    gain:
        For measures with a parameter ``dcg``, such as nDCG: "exp" (2^label - 1, the default) or "linear", whatever the
        name of the measure says.
    published:
        For rank-biased precision: p^(r_i - 1) in place of the change by a swap, as eq. 10 of Li, Urbano & Hanjalic, New
        insights into metric optimization, has it.

    Source: Burges et al., Learning to rank with nonsmooth cost functions; Donmez, Svore & Burges, On the local
    optimality of LambdaRank; Li, Urbano & Hanjalic, eqs. 7-10. ΔM counts as a constant when the loss is differentiated.
    Affine boundings multiply the loss of a query by their weight; for the two distribution boundings the weight is the
    slope of the distribution at the present value of the measure, so that the product is, to first order, the change
    of the bounded measure by a swap.

    >>> import torch
    >>> loss = LambdaLoss("P@1")(torch.tensor([2.0, 2.0, 1.0]), [0, 1, 0], [0, 3])
    >>> loss.item()  # swapping the two tied items changes P@1 by 1; swapping the last two changes nothing
    0.693147...
    """

    measure: str | Measure = "nDCG"
    alpha: float = field(default=1.0, kw_only=True)
    gain: str = field(default="exp", kw_only=True)
    published: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        check_gain(self.gain)
        structure = structure_of(parse_measure(self.measure))
        if self.published and not (isinstance(structure, AdditiveStructure) and structure.is_geometric):
            raise ArgumentError(f"published is for rank-biased precision only, got {str(self.measure)!r}")
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """The measure whose swaps weight the pairs."""
        return with_gain(parse_measure(self.measure), self.gain)

    @cached_property
    def _structure(self) -> Any:
        return structure_of(self.target)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan: Plan = self._structure.swap_plan(labels, offsets)
        plan.swap = swaps.SWAP_PUBLISHED if self.published else self._structure.swap_form(plan)
        plan.discounts = self._structure.discount_table(int(plan.sizes.max(initial=1)))
        return plan

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        return _run_pairs(scores, plan, with_hessian, COST_LOGISTIC, self.alpha)

    def _apply_bounding(
        self, values: NDArray[np.float64], measured: NDArray[np.float64] | None, plan: Plan
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        active = plan.active.astype(np.float64)
        if plan.difficulty is not None:
            active *= np.abs(get_bounding(self.bounding).apply(measured, plan.difficulty, smooth=True)[1])  # type: ignore[arg-type]
        return active * values, active

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        structure = self._structure
        deltas = (structure.published_deltas if self.published else structure.swap_deltas)(scores, labels)
        levels = torch.as_tensor(structure.levels(labels), device=scores.device)
        needs_value = self.bounding.endswith("distribution")
        value = structure.value_of(scores, labels) if needs_value else 0.0
        return reference.lambda_cost(scores, levels, deltas, self.alpha), value
