"""The base classes of all losses: how a loss is called, reduced, differentiated and bounded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import (
    array_of,
    check_finite,
    for_kernel,
    integers,
    labels_of,
    mask_of,
    numbers,
    offsets_of,
)
from rankbound.difficulty.bounding import get_bounding
from rankbound.difficulty.queries import difficulty_of
from rankbound.errors import ArgumentError, DataError
from rankbound.losses.lazy_torch import torch
from rankbound.measures.label_counts import LabelCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.plans import Plan
    from rankbound.measures.measure import Measure

__all__ = ["LOSS_BOUNDINGS", "KernelResult", "MeasureLoss", "RankingLoss", "positive"]

LOSS_BOUNDINGS = ("none", "min-max", "expectation", "expectation-max", "distribution", "log-distribution")
_REDUCTIONS = ("mean", "sum", "none")
_LARGEST_FLOAT32, _LARGEST_FLOAT64 = 1e38, 1e300  # a sum of larger losses would overflow the type of the scores


@dataclass(frozen=True, slots=True, eq=False)
class KernelResult:
    """Result of a kernel: a value per query, its gradient per item and, if requested, a positive hessian per item."""

    values: NDArray[np.float64]
    gradient: NDArray[Any]
    hessian: NDArray[Any]
    measured: NDArray[np.float64] | None = None  # lambda losses: the measure of the present ranking, per query


@dataclass(frozen=True, kw_only=True)
class RankingLoss(ABC):
    """A loss on flat scores and labels that offsets cut into queries.

    Parameters
    ----------
    reduction:
        "mean" over the informative queries, "sum", or "none" for one value per query.

    A query is informative if its gradient can differ from zero. Queries whose items are all alike to the loss (no or
    only relevant items, equal labels, a single item) are not: their loss and gradient are 0, and the mean does not
    count them. On the CPU a compiled kernel computes value and gradient in one pass; on other devices the reference
    form in torch runs. Second derivatives raise RuntimeError.
    """

    reduction: str = "mean"
    _last_plan: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.reduction not in _REDUCTIONS:
            raise ArgumentError(f"reduction must be one of {', '.join(_REDUCTIONS)}, got {self.reduction!r}")

    def __call__(self, scores: Any, labels: Any, offsets: Any, weights: Any = None) -> Any:
        """Compute the loss of a 1-D tensor of scores.

        ``labels`` and ``offsets`` are tensors, arrays or lists; ``weights`` has one entry per query.
        """
        from rankbound.losses import torch_calls  # only calls with tensors need torch

        scores = torch_calls.checked_scores(scores)
        plan = self.plan(labels, offsets, tuple(scores.shape))
        divisor = plan.informative_queries if self.reduction == "mean" else 1
        on_cpu = scores.device.type == "cpu"
        if on_cpu and weights is None and self.reduction != "none":
            return torch_calls.ReducedKernelFunction.apply(scores, self, plan, divisor)
        losses = torch_calls.KernelFunction.apply(scores, self, plan) if on_cpu else self.reference(scores, plan)
        if weights is not None:
            losses = losses * torch_calls.weight_tensor(weights, losses)
        return losses if self.reduction == "none" else losses.sum() / divisor

    def padded(self, scores: Any, labels: Any, mask: Any, weights: Any = None) -> Any:
        """Compute the loss of padded 2-D scores and labels (queries x longest list); only entries in the mask count."""
        from rankbound.losses.torch_calls import checked_scores

        scores, labels, mask = checked_scores(scores), array_of("labels", labels), mask_of("mask", mask, None)
        if scores.ndim != 2 or scores.shape != mask.shape or labels.shape != mask.shape:
            raise DataError(
                "scores, labels and mask must be 2-D of one shape, got "
                f"{tuple(scores.shape)}, {tuple(labels.shape)} and {tuple(mask.shape)}"
            )
        offsets = np.concatenate(([0], np.cumsum(mask.sum(axis=1))))
        return self(scores[torch.from_numpy(for_kernel(mask)).to(scores.device)], labels[mask], offsets, weights)

    def no_choice(self, labels: Any, offsets: Any) -> NDArray[np.bool_]:
        """Which queries have no choice: whatever the scores, their loss and gradient are 0, and no mean counts them.

        ``no_choice(labels, offsets).sum()`` is their number.
        """
        return ~self.plan(labels, offsets).active

    # ---- plan, kernel, reference -------------------------------------------------------------------------------------

    def plan(self, labels: Any, offsets: Any, shape: tuple[int, ...] | None = None) -> Plan:
        """Prepare labels for the kernel; the plan of the last labels is cached."""
        labels, offsets = numbers("labels", labels), integers("offsets", offsets)
        plan = None
        if self._last_plan:
            known_labels, known_offsets, known = self._last_plan[0]
            if np.array_equal(known_offsets, offsets) and np.array_equal(known_labels, labels):
                plan = known
        if plan is None:
            cuts, known_labels = for_kernel(offsets_of(offsets)), self._checked_labels(labels)
            if len(known_labels) != cuts[-1]:
                raise DataError(f"labels must be 1-D with offsets[-1] = {cuts[-1]} entries, got {len(known_labels)}")
            plan = self._plan(known_labels, cuts)
            self._last_plan[:] = [(labels.copy(), offsets.copy(), plan)]
        if shape is not None and shape != plan.labels.shape:
            raise DataError(f"scores must be 1-D with one entry per label, {plan.labels.shape}, got {shape}")
        return plan

    def value_and_gradient(self, scores: NDArray[Any], plan: Plan, with_hessian: bool = False) -> KernelResult:
        """Compute the loss per query and its gradient per item with the kernel, bounded but not reduced."""
        result, losses, slopes = self._run_bounded(scores, plan, with_hessian)
        gradient = result.gradient * plan.per_item(slopes)
        hessian = result.hessian * plan.per_item(np.abs(slopes)) if with_hessian else result.hessian
        return KernelResult(losses, gradient, hessian)

    def gradient_and_hessian(self, scores: NDArray[Any], plan: Plan) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute gradient and hessian per item, bounded but not reduced, for boosting."""
        result = self.value_and_gradient(scores, plan, with_hessian=True)
        return result.gradient, result.hessian

    def _run_bounded(
        self, scores: NDArray[Any], plan: Plan, with_hessian: bool = False
    ) -> tuple[KernelResult, NDArray[np.float64], NDArray[Any]]:
        """Run the kernel; returns its result, the losses, and their derivatives in the kernel's values."""
        check_finite("scores", scores)
        result = self._run_kernel(for_kernel(scores), plan, with_hessian)
        losses, slopes = self._apply_bounding(result.values, result.measured, plan)
        if not np.abs(losses).max(initial=0) < (
            _LARGEST_FLOAT32 if scores.dtype.itemsize == 4 else _LARGEST_FLOAT64
        ):  # or NaN
            raise DataError(f"scores must not be so large that their loss overflows, got {np.abs(scores).max()}")
        return result, losses, slopes.astype(scores.dtype)

    def reference(self, scores: Any, plan: Plan) -> Any:
        """Compute the loss per query in torch operations, on any device. The kernels are tested against this form."""
        values_of_queries, measured = self._reference_values(scores, plan)
        values = torch.stack(values_of_queries) if values_of_queries else scores[:0]
        losses, slopes = self._apply_bounding(values.detach().cpu().double().numpy(), measured, plan)
        # The bounding is computed in NumPy, which torch cannot differentiate: pass its slope on explicitly.
        losses, slopes = (torch.as_tensor(x, dtype=scores.dtype, device=scores.device) for x in (losses, slopes))
        return losses + slopes * (values - values.detach())

    def _reference_values(self, scores: Any, plan: Plan) -> tuple[list[Any], NDArray[np.float64]]:
        """The values of all queries and, for lambda losses, the measures of their present rankings."""
        return self._reference_by_query(scores, plan)

    def _reference_by_query(self, scores: Any, plan: Plan, *others: Any) -> tuple[list[Any], NDArray[np.float64]]:
        """The same by `_reference`, which is passed its query's part of the scores, labels and other tensors."""
        values, measured = [], np.zeros(len(plan.rows))
        for q in range(len(plan.rows)):
            items = slice(int(plan.offsets[q]), int(plan.offsets[q + 1]))
            if plan.rows[q] > 0:
                value, measured[q] = self._reference(scores[items], plan.labels[items], *(x[items] for x in others))
            else:
                value = scores[items].sum() * 0
            values.append(value)
        return values, measured

    def _checked_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Validate labels; those below 0 count as 0."""
        checked: NDArray[Any] = np.maximum(labels_of(labels), 0)
        return checked

    @abstractmethod
    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        """Make the plan for labels as `_checked_labels` returns them."""

    @abstractmethod
    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        """Run the kernel: value per query, gradient and, if requested, hessian per item."""

    @abstractmethod
    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        """Compute the value of one query in torch and, for lambda losses, the measure of its present ranking."""

    def _apply_bounding(
        self, values: NDArray[np.float64], measured: NDArray[np.float64] | None, plan: Plan  # noqa: ARG002
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
        """Turn the kernel's values into losses; returns the losses and their derivatives in these values."""
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
        For the two distribution boundings: refer to the distribution of a ranker whose relevant items win a comparison
        with this probability. Under the distribution of the random ranker, the default, a good model reaches the far
        tail, where the gradient vanishes.
    """

    bounding: str = "none"
    ranker_strength: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bounding not in LOSS_BOUNDINGS:
            raise ArgumentError(f"bounding must be one of {', '.join(LOSS_BOUNDINGS)}, got {self.bounding!r}")
        if self.bounding == "expectation" and self.target.definition.floor < 0:
            raise ArgumentError(f"expectation bounding divides by the expected value, which is 0 for {self.target}")
        if self.ranker_strength is not None and not self.bounding.endswith("distribution"):
            raise ArgumentError(
                f"ranker_strength is for the distribution boundings, got it with bounding={self.bounding!r}"
            )

    @property
    @abstractmethod
    def target(self) -> Measure:
        """The measure that the loss stands for."""

    @cached_property
    def _lower_is_better(self) -> bool:
        return bool(self.target.definition.lower_is_better)

    def plan(self, labels: Any, offsets: Any, shape: tuple[int, ...] | None = None) -> Plan:
        """Prepare labels for the kernel, with the difficulty of their queries if the bounding needs it."""
        plan = super().plan(labels, offsets, shape)
        if self.bounding != "none" and plan.difficulty is None:
            counts = LabelCounts.from_labels(plan.labels, plan.offsets)
            plan.difficulty = difficulty_of(self.target, counts, self.ranker_strength)
            plan.defined = get_bounding(self.bounding).defined(plan.difficulty)
        return plan

    def _apply_bounding(
        self, values: NDArray[np.float64], measured: NDArray[np.float64] | None, plan: Plan  # noqa: ARG002
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
        """Negate the bounded measure, unless lower values are better already."""
        active = plan.active
        lower_is_better = self._lower_is_better
        if plan.difficulty is None:
            sign = 1.0 if lower_is_better else -1.0
            return np.where(active, sign * values, 0.0), np.where(active, sign, 0.0)
        bounded, slope = get_bounding(self.bounding).apply(values, plan.difficulty, smooth=True)
        sign = 1.0 if lower_is_better and self.bounding == "expectation" else -1.0
        return np.where(active, sign * bounded, 0.0), np.where(active, sign * slope, 0.0)


# ---- checks ----------------------------------------------------------------------------------------------------------


def positive(name: str, value: float | None, whole: bool = False) -> None:
    """Raise ArgumentError unless a parameter is a positive number (or integer) or None."""
    if value is None:
        return
    fits = isinstance(value, int) and not isinstance(value, bool) if whole else isinstance(value, (int, float))
    if not fits or not 0 < value < float("inf"):
        raise ArgumentError(f"{name} must be a positive {'integer or None' if whole else 'number'}, got {value!r}")
