"""Losses of pairs with different labels: RankNet, DirectRanker and the lambda losses."""

from __future__ import annotations

from dataclasses import dataclass, field
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
from rankbound.losses.smooth import check_gain, ndcg_measure, ndcg_plan
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LAMBDA_MEASURES", "DirectRankerLoss", "LambdaLoss", "RankNetLoss"]

_NO_SWAP = -1


def _run_pairs(
    scores: NDArray[Any], plan: Plan, with_hessian: bool, cost: int, alpha: float,
    swap: int = _NO_SWAP, k: float = 0.0, p: float = 0.5,
) -> KernelResult:  # fmt: skip
    values, measured = np.zeros(len(plan.rows)), np.zeros(len(plan.rows))
    gradient = np.zeros_like(scores)
    hessian = np.zeros_like(scores) if with_hessian else scores[:0].copy()
    with running(plan.pairs) as threads:
        pair_pass(
            scores, plan.offsets, plan.order, plan.rows, plan.columns_from, plan.weights, plan.constants,
            *plan.blocks(threads), cost, swap, alpha, k, p, with_hessian, values, measured, gradient, hessian,
        )  # fmt: skip
    return KernelResult(values, gradient, hessian, measured)


@dataclass(frozen=True)
class RankNetLoss(RankingLoss):
    """Mean over the pairs l_i > l_j of a query of log(1 + exp(-alpha (f_i - f_j))).

    Source: Burges et al., Learning to rank using gradient descent; eq. 2 of the paper on neural networks in ranking.

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

    def _reference(self, scores: Any, labels: Any) -> tuple[Any, float]:
        pairs = labels[:, None] > labels[None, :]
        differences = (scores[:, None] - scores[None, :])[pairs]
        return reference.pair_costs(self.alpha * differences, self._reference_cost).mean(), 0.0


@dataclass(frozen=True)
class DirectRankerLoss(RankNetLoss):
    """Mean over the pairs l_i > l_j of (1 - tanh(alpha (f_i - f_j)))².

    Source: Köppel et al., Pairwise learning to rank by neural networks revisited: an odd activation on the difference
    of what one shared network gives for the two items; f is that network up to its bias-free head. ``cost="tanh"`` is
    log(1 + exp(-tanh(alpha (f_i - f_j)))), the form of the paper on neural networks in ranking.

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


_SWAPS = {
    "nDCG": swaps.SWAP_DCG,
    "nRBP": swaps.SWAP_NRBP,
    "P": swaps.SWAP_PRECISION,
    "RR": swaps.SWAP_RR,
    "AP": swaps.SWAP_AP,
    "ERR": swaps.SWAP_ERR,
}
LAMBDA_MEASURES = tuple(_SWAPS)


@dataclass(frozen=True)
class LambdaLoss(MeasureLoss):
    """LambdaRank: sum over pairs l_i > l_j of |ΔM_ij| log(1 + exp(-alpha (f_i - f_j))), ΔM the true change by a swap.

    Parameters
    ----------
    measure:
        nDCG, AP, RR, nRBP(p=...), P@k or ERR by name, with or without cutoff. For nDCG, ``gain`` decides what labels
        are worth ("exp" unless given, whatever the name says).
    alpha:
        Slope of the logistic cost.
    published:
        For nRBP: p^(r_i - 1) in place of the change by a swap, as eq. 10 of the metric optimization paper has it.

    Source: Burges et al., Learning to rank with nonsmooth cost functions; Donmez, Svore & Burges; metric optimization
    eqs. 7-10. ΔM counts as a constant when the loss is differentiated. Affine boundings multiply a query's loss by
    their weight; for the two distributions the weight is the slope of the distribution at the present value of the
    measure, to
    first order the change of the bounded measure by a swap.

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
        parsed = parse_measure(self.measure)
        if parsed.name not in _SWAPS or parsed.bounding != "none":
            raise ArgumentError(f"LambdaLoss knows {', '.join(_SWAPS)}, got {str(self.measure)!r}")
        if parsed.name == "AP" and parsed["div"] != "R":
            raise ArgumentError(f"LambdaLoss knows AP over all relevant items, got {str(self.measure)!r}")
        if self.published and parsed.name != "nRBP":
            raise ArgumentError(f"published is for nRBP only, got {str(self.measure)!r}")
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """The measure whose swaps weigh the pairs."""
        parsed = parse_measure(self.measure)
        return ndcg_measure(self.gain, parsed.cutoff) if parsed.name == "nDCG" else parsed

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        measure = self.target
        if measure.name == "nDCG":
            plan = ndcg_plan(labels, offsets, measure, by_label=True)
        elif measure.name == "ERR":
            plan = plan_rows(labels, offsets, labels, only_gain=False, lower_only=True)
            plan.weights = plan.sorted(measure.definition.stops(measure, labels))  # type: ignore[attr-defined]
        else:
            relevant = (labels >= measure.rel).astype(np.int8)
            plan = plan_rows(labels, offsets, relevant, only_gain=True, lower_only=True)
            worth = plan.per_item(self._worth(plan.relevant))
            plan.weights = np.where(plan.sorted(relevant) > 0, worth, 0.0)
            if measure.name == "P":
                plan.rows[plan.sizes <= self._k] = 0
        plan.constants = np.ones(len(plan.rows))
        return plan

    @property
    def _k(self) -> int:
        return self.target.cutoff or 0

    @property
    def _p(self) -> float:
        return self.target.number("p") if self.target.name == "nRBP" else 0.5

    def _worth(self, relevant: NDArray[np.int64]) -> NDArray[np.float64]:
        """What multiplies the discount of a relevant item, per query."""
        some = np.maximum(relevant, 1).astype(np.float64)
        match self.target.name:
            case "AP":
                return 1 / some
            case "nRBP":
                return np.asarray((1 - self._p) / (1 - self._p**some))
            case "P":
                return np.full(len(some), 1 / self._k)
        return np.ones(len(some))

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        swap = swaps.SWAP_PUBLISHED if self.published else _SWAPS[self.target.name]
        return _run_pairs(scores, plan, with_hessian, COST_LOGISTIC, self.alpha, swap, float(self._k), self._p)

    def _apply_bounding(
        self, values: NDArray[np.float64], measured: NDArray[np.float64] | None, plan: Plan
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        active = plan.active.astype(np.float64)
        if plan.difficulty is not None:
            active *= np.abs(get_bounding(self.bounding).apply(measured, plan.difficulty, smooth=True)[1])  # type: ignore[arg-type]
        return active * values, active

    def _reference(self, scores: Any, labels: Any) -> tuple[Any, float]:
        family, k = self.target.name, self._k or None
        if family == "nDCG":
            worth = reference.gains(labels.to(torch.float64), self.gain)
            worth = worth / reference.dcg_ideal(worth, k)
        elif family == "ERR":
            worth = (torch.exp2(labels.to(torch.float64)) - 1) / 2 ** self.target.number("max_rel")
        else:
            labels = (labels >= self.target.rel).to(torch.float64)
            worth = labels
        deltas = reference.swap_deltas(scores, worth, family, k, self._p, self.published)
        return reference.lambda_cost(scores, labels, deltas, self.alpha), self._value_now(scores, worth)

    def _value_now(self, scores: Any, worth: Any) -> float:
        if not self.bounding.endswith("distribution"):
            return 0.0
        return reference.measure_value(scores, worth, self.target.name, self._k or None, self._p)
