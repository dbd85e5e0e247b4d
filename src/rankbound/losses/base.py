"""What every loss has in common: how it is called, reduced, differentiated and bounded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankbound.arrays import (
    array_of,
    check_finite,
    for_kernel,
    integers,
    labels_of,
    mask_of,
    numbers,
    offsets_of,
    weights_of,
)
from rankbound.difficulty.bounding import get_bounding
from rankbound.difficulty.queries import difficulty_of
from rankbound.errors import ArgumentError, DataError
from rankbound.measures.label_counts import LabelCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.plans import Plan
    from rankbound.measures.names import Measure

__all__ = ["LOSS_BOUNDINGS", "MeasureLoss", "Pass", "RankingLoss", "positive"]

LOSS_BOUNDINGS = ("none", "min-max", "expectation", "expectation-max", "distribution", "log-distribution")
_REDUCTIONS = ("mean", "sum", "none")
_MOST_IN_32_BITS, _MOST = 1e38, 1e300  # a larger loss, or a sum of some, is no number of the scores' type


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """What a kernel gives: a value per query, its gradient and (if asked for) a positive hessian per item."""

    values: NDArray[np.float64]
    gradient: NDArray[Any]
    hessian: NDArray[Any]
    slope_at: NDArray[np.float64] | None = None  # for lambda losses, where the bounding's slope is taken


@dataclass(frozen=True, kw_only=True)
class RankingLoss(ABC):
    """A loss on flat scores and labels that offsets cut into queries.

    Parameters
    ----------
    reduction:
        "mean" over the queries that have something to teach, "sum", or "none" for one value per query.

    A query has nothing to teach if all its items are equal to the loss (none or all relevant, equal labels, a single
    item): its loss and gradient are 0 and the mean does not count it. On the CPU a fused kernel gives value and
    gradient in one pass; on other devices the plain torch form runs. Gradients of gradients are refused.
    """

    reduction: str = "mean"
    _last: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.reduction not in _REDUCTIONS:
            raise ArgumentError(f"reduction must be one of {', '.join(_REDUCTIONS)}, got {self.reduction!r}")

    def __call__(self, scores: Any, labels: Any, offsets: Any, weights: Any = None) -> Any:
        """The loss of scores (1-D torch tensor) for labels and offsets (tensors or arrays); one weight per query."""
        scores = _checked_scores(scores)
        plan = self.plan(labels, offsets, tuple(scores.shape))
        if scores.device.type == "cpu":
            losses = _Fused.apply(scores, self, plan)
        else:
            losses = self.plain(scores, plan)
        if weights is not None:
            losses = losses * _weight_tensor(weights, losses)
        if self.reduction == "none":
            return losses
        return losses.sum() / (max(int(plan.active.sum()), 1) if self.reduction == "mean" else 1)

    def padded(self, scores: Any, labels: Any, mask: Any, weights: Any = None) -> Any:
        """The loss of 2-D scores and labels (queries x longest list) where mask is true; the rest is not looked at."""
        scores, labels, mask = _checked_scores(scores), array_of("labels", labels), mask_of("mask", mask, None)
        if scores.ndim != 2 or scores.shape != mask.shape or labels.shape != mask.shape:
            raise DataError(
                "scores, labels and mask must be 2-D of one shape, got "
                f"{tuple(scores.shape)}, {tuple(labels.shape)} and {tuple(mask.shape)}"
            )
        offsets = np.concatenate(([0], np.cumsum(mask.sum(axis=1))))
        return self(scores[torch.from_numpy(for_kernel(mask)).to(scores.device)], labels[mask], offsets, weights)

    # ---- for those who need the parts --------------------------------------------------------------------------------

    def plan(self, labels: Any, offsets: Any, shape: tuple[int, ...] | None = None) -> Plan:
        """What the loss makes of labels before it sees a score; the last one is kept."""
        labels, offsets = numbers("labels", labels), integers("offsets", offsets)
        plan = None
        if self._last:
            known_labels, known_offsets, known = self._last[0]
            if np.array_equal(known_offsets, offsets) and np.array_equal(known_labels, labels):
                plan = known
        if plan is None:
            cuts, known_labels = for_kernel(offsets_of(offsets)), labels_of(labels)
            if len(known_labels) != cuts[-1]:
                raise DataError(f"labels must be 1-D with offsets[-1] = {cuts[-1]} entries, got {len(known_labels)}")
            plan = self._plan(np.maximum(known_labels, 0), cuts)
            self._last[:] = [(labels.copy(), offsets.copy(), plan)]
        if shape is not None and shape != plan.labels.shape:
            raise DataError(f"scores must be 1-D with one entry per label, {plan.labels.shape}, got {shape}")
        return plan

    def fused(self, scores: NDArray[Any], plan: Plan, hessian: bool = False) -> Pass:
        """Loss per query and its gradient per item by the kernel, bounded but not reduced."""
        done, losses, slopes = self._bounded(scores, plan, hessian)
        gradient = done.gradient * plan.per_item(slopes)
        bent = done.hessian * plan.per_item(np.abs(slopes)) if hessian else done.hessian
        return Pass(losses, gradient, bent)

    def _bounded(
        self, scores: NDArray[Any], plan: Plan, hessian: bool = False
    ) -> tuple[Pass, NDArray[np.float64], NDArray[Any]]:
        """What the kernel gives, the loss per query, and its slope in the kernel's value."""
        check_finite("scores", scores)
        done = self._run(for_kernel(scores), plan, hessian)
        losses, slopes = self._outer(done.values, done.slope_at, plan)
        if not np.abs(losses).max(initial=0) < (_MOST_IN_32_BITS if scores.dtype.itemsize == 4 else _MOST):  # or NaN
            raise DataError(f"scores must not be so large that their loss overflows, got {np.abs(scores).max()}")
        return done, losses, slopes.astype(scores.dtype)

    def plain(self, scores: Any, plan: Plan) -> Any:
        """Loss per query in plain torch operations, on any device: the reference for the kernel."""
        labels = torch.as_tensor(plan.labels, device=scores.device)
        pieces, slope_at = [], np.zeros(len(plan.rows))
        for q in range(len(plan.rows)):
            lo, hi = int(plan.offsets[q]), int(plan.offsets[q + 1])
            if plan.rows[q] > 0:
                value, slope_at[q] = self._plain(scores[lo:hi], labels[lo:hi])
            else:
                value = scores[lo:hi].sum() * 0
            pieces.append(value)
        values = torch.stack(pieces) if pieces else scores[:0]
        now = values.detach().cpu().double().numpy()
        losses, slopes = self._outer(now, slope_at, plan)
        # the bounding speaks NumPy: its value, and its slope on what torch differentiates
        losses, slopes = (torch.as_tensor(part, dtype=scores.dtype, device=scores.device) for part in (losses, slopes))
        return losses + slopes * (values - values.detach())

    @abstractmethod
    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        """Plan for labels of 0 and more."""

    @abstractmethod
    def _run(self, scores: NDArray[Any], plan: Plan, hessian: bool) -> Pass:
        """Kernel: value per query, gradient, hessian."""

    @abstractmethod
    def _plain(self, scores: Any, labels: Any) -> tuple[Any, float]:
        """Value of one query in torch, and where a lambda loss takes the slope of its bounding."""

    def _outer(
        self, values: NDArray[np.float64], slope_at: NDArray[np.float64] | None, plan: Plan  # noqa: ARG002
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
        """Loss per query and its slope in the kernel's value."""
        active = plan.active
        return np.where(active, values, 0.0), active.astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class MeasureLoss(RankingLoss):
    """A loss that stands for a measure, and so can be bounded by what each query allows.

    Parameters
    ----------
    bounding:
        "none", "min-max", "expectation", "expectation-max", "distribution" or "log-distribution".
    ranker_strength:
        For the two distributions: the distribution of a ranker whose relevant items win a comparison with this
        probability, in
        place of the random ranker's, which a good model leaves far behind and then learns nothing from.
    """

    bounding: str = "none"
    ranker_strength: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bounding not in LOSS_BOUNDINGS:
            raise ArgumentError(f"bounding must be one of {', '.join(LOSS_BOUNDINGS)}, got {self.bounding!r}")
        if self.bounding == "expectation" and self.target.info.floor < 0:
            raise ArgumentError(f"expectation bounding divides by the expected value, which is 0 for {self.target}")
        if self.ranker_strength is not None and not self.bounding.endswith("distribution"):
            raise ArgumentError(
                f"ranker_strength is for the distribution boundings, got it with bounding={self.bounding!r}"
            )

    @property
    @abstractmethod
    def target(self) -> Measure:
        """The measure that the loss stands for."""

    def plan(self, labels: Any, offsets: Any, shape: tuple[int, ...] | None = None) -> Plan:
        """The plan of the labels, with the difficulty of their queries if the bounding needs it."""
        plan = super().plan(labels, offsets, shape)
        if self.bounding != "none" and plan.difficulty is None:
            counts = LabelCounts.from_labels(plan.labels, plan.offsets)
            plan.difficulty = difficulty_of(self.target, counts, self.ranker_strength)
            plan.defined = get_bounding(self.bounding).defined(plan.difficulty)
        return plan

    def _outer(
        self, values: NDArray[np.float64], slope_at: NDArray[np.float64] | None, plan: Plan  # noqa: ARG002
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
        """Minus the bounded measure; a measure where lower is better is a loss already unless the bounding turns it."""
        active = plan.active
        lower_is_better = self.target.info.lower_is_better
        if plan.difficulty is None:
            sign = 1.0 if lower_is_better else -1.0
            return np.where(active, sign * values, 0.0), np.where(active, sign, 0.0)
        bounded, slope = get_bounding(self.bounding).apply(values, plan.difficulty, smooth=True)
        sign = 1.0 if lower_is_better and self.bounding == "expectation" else -1.0
        return np.where(active, sign * bounded, 0.0), np.where(active, sign * slope, 0.0)


class _Fused(torch.autograd.Function):  # type: ignore[misc]  # torch ships no types we follow
    """The kernel as a torch operation: forward keeps the gradient that the same pass gave, backward scales it."""

    @staticmethod
    def forward(ctx: Any, scores: Any, loss: RankingLoss, plan: Plan) -> Any:
        done, losses, slopes = loss._bounded(scores.numpy(force=True), plan)
        ctx.gradient, ctx.slopes, ctx.plan = done.gradient, slopes, plan
        return torch.from_numpy(losses).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        if torch.is_grad_enabled():  # create_graph=True: what comes out would look differentiable and not be
            raise RuntimeError("the fused losses have no second derivative: call backward without create_graph=True")
        gradient = ctx.gradient * ctx.plan.per_item(ctx.slopes * upstream.numpy())
        return torch.from_numpy(gradient), None, None


# ---- checks ----------------------------------------------------------------------------------------------------------


def _checked_scores(scores: Any) -> Any:
    """A dense tensor of float32 or float64, or ArgumentError."""
    if not isinstance(scores, torch.Tensor):
        raise ArgumentError(f"scores must be a torch tensor, got {type(scores).__name__}")
    ready = scores.dtype in (torch.float32, torch.float64)
    if (not ready and scores.is_complex()) or scores.layout is not torch.strided or scores.is_meta:
        what = f"{scores.dtype} with layout {scores.layout} on {scores.device}"
        raise ArgumentError(f"scores must be a dense tensor of real numbers, got {what}")
    return scores if ready else scores.float()


def _weight_tensor(weights: Any, losses: Any) -> Any:
    """One weight per query, as a tensor beside the losses; a tensor of floats may be learned itself."""
    checked = weights_of("weights", weights)
    if not isinstance(weights, torch.Tensor) or not weights.requires_grad:
        weights = torch.from_numpy(for_kernel(checked))
    if weights.shape != losses.shape:
        raise DataError(f"weights must have one entry per query, {tuple(losses.shape)}, got {tuple(weights.shape)}")
    return weights.to(dtype=losses.dtype, device=losses.device)


def positive(name: str, value: float | None, whole: bool = False) -> None:
    """Refuse a parameter that is not a positive number (or integer); None stands for not given."""
    if value is None:
        return
    fits = isinstance(value, int) and not isinstance(value, bool) if whole else isinstance(value, (int, float))
    if not fits or not 0 < value < float("inf"):
        raise ArgumentError(f"{name} must be a positive {'integer or None' if whole else 'number'}, got {value!r}")
