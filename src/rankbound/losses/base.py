"""The base classes of all losses: how a loss is called, reduced, differentiated and bounded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import (
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

    from rankbound.losses.buckets import Layout, Result
    from rankbound.losses.modules import LossModule
    from rankbound.losses.plans import Plan
    from rankbound.losses.tensor_inputs import Batch
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


@dataclass(slots=True, eq=False)
class PlanCache:
    """The plan of the last labels: by contents, with labels and offsets; and the batch of tensors it belongs to."""

    host: tuple[NDArray[Any], NDArray[Any], Plan] | None = None
    batch: Batch | None = None


@dataclass(frozen=True, kw_only=True)
class RankingLoss(ABC):
    """A loss on flat scores and labels that offsets cut into queries.

    Parameters
    ----------
    reduction:
        "mean" over the informative queries, "sum", or "none" for one value per query.

    A query is informative if its gradient can differ from zero. Queries whose items are all alike to the loss (no or
    only relevant items, equal labels, a single item) are not: their loss and gradient are 0, and the mean does not
    count them. On the CPU a compiled kernel computes value and gradient in one pass; on other devices torch operations
    do, see `rankbound.losses.vector_path`. Second derivatives raise RuntimeError.
    """

    reduction: str = "mean"
    _cache: PlanCache = field(default_factory=PlanCache, init=False, repr=False, compare=False)
    _by_pairs: ClassVar[bool] = True  # whether torch operations need tables of pairs
    _tables: ClassVar[float] = 6.0  # how many of them exist at a time, in the type of the scores

    def __post_init__(self) -> None:
        if self.reduction not in _REDUCTIONS:
            raise ArgumentError(f"reduction must be one of {', '.join(_REDUCTIONS)}, got {self.reduction!r}")

    def __getstate__(self) -> dict[str, Any]:
        """The options alone: neither plans nor what was derived from the options are pickled or copied."""
        options = {option.name: getattr(self, option.name) for option in fields(self) if option.name != "_cache"}
        return options | {"_cache": PlanCache()}

    def __call__(
        self, scores: Any, labels: Any, offsets: Any = None, weights: Any = None, *, mask: Any = None
    ) -> Any:  # fmt: skip
        """Compute the loss of a tensor of scores.

        Flat scores need ``offsets``. Scores of shape (queries, items) are padded: only entries in the ``mask`` count,
        without a mask all of them. The lists of nested scores (layout torch.jagged) are known. ``labels`` and
        ``offsets`` are tensors, arrays or lists, on the CPU or on the device of the scores; the labels of nested scores
        are nested alike or flat. ``weights`` has one entry per query. Scores in half precision are computed in float32.

        >>> import torch
        >>> from rankbound.losses import RankNetLoss
        >>> loss, scores = RankNetLoss(), torch.tensor([1.0, 1.0, 0.5, 0.5])
        >>> loss(scores, [1, 0, 0, 1], [0, 2, 4]).item() == loss(scores.reshape(2, 2), [[1, 0], [0, 1]]).item()
        True
        """
        from rankbound.losses import torch_calls  # only calls with tensors need torch

        return torch_calls.call()(self, scores, labels, offsets, weights, mask)

    def padded(self, scores: Any, labels: Any, mask: Any, weights: Any = None) -> Any:
        """Compute the loss of padded 2-D scores and labels (queries x longest list); only entries in the mask count."""
        return self(scores, labels, weights=weights, mask=mask_of("mask", mask, None) if mask is None else mask)

    def as_module(self, process_group: Any = None) -> LossModule:
        """Return the loss as a ``torch.nn.Module`` without parameters or buffers, for trainers that expect one.

        With a process group of torch.distributed, it is the loss of the lists of all its processes together, for
        DistributedDataParallel; see `rankbound.losses.modules.LossModule`.

        >>> import torch
        >>> from rankbound.losses import NDCGLoss
        >>> criterion = NDCGLoss(10).as_module()
        >>> criterion(torch.tensor([[2.0, 0.0, 1.0]]), torch.tensor([[1, 0, 0]])).item() < 0
        True
        """
        from rankbound.losses.modules import LossModule

        return LossModule(self, process_group)

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
        if self._cache.host is not None:
            known_labels, known_offsets, known = self._cache.host
            if np.array_equal(known_offsets, offsets) and np.array_equal(known_labels, labels):
                plan = known
        if plan is None:
            cuts, known_labels = for_kernel(offsets_of(offsets)), self._checked_labels(labels)
            if len(known_labels) != cuts[-1]:
                raise DataError(f"labels must be 1-D with offsets[-1] = {cuts[-1]} entries, got {len(known_labels)}")
            plan = self._plan(known_labels, cuts)
            self._cache.host = (labels.copy(), offsets.copy(), plan)
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
        """Compute the loss per query in torch operations, one query at a time, as the papers have it.

        The kernels and the vectorized form are tested against this form, which is slow.
        """
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
    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:
        """Compute values, their gradient and, for lambda losses, the measures of all queries in torch operations."""

    def _vectorized_losses(self, scores: Any, layout: Layout, with_gradient: bool) -> tuple[Any, Any]:
        """The bounded losses of the queries in torch operations, and their gradient if it is needed."""
        values, gradient, measured = self._vectorized(scores, layout, with_gradient)
        losses, slopes = self._bound_tensors(values, measured, layout)
        if gradient is not None:
            gradient = gradient * slopes.to(gradient.dtype)[layout.per_item]
        return losses, gradient

    def _bound_tensors(self, values: Any, measured: Any, layout: Layout) -> tuple[Any, Any]:  # noqa: ARG002
        """The same as `_apply_bounding` on the device of the values."""
        return values, layout.active.to(values.dtype)

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

    def _bound_tensors(self, values: Any, measured: Any, layout: Layout) -> tuple[Any, Any]:  # noqa: ARG002
        sign = 1.0 if self._lower_is_better and self.bounding in ("none", "expectation") else -1.0
        value, slope = self._bounded(values, layout)
        return torch.where(layout.active, sign * value, 0.0), torch.where(layout.active, sign * slope, 0.0)

    def _bounded(self, values: Any, layout: Layout) -> tuple[Any, Any]:
        """Bounded measures on a device, and the slopes of the bounding."""
        if self.bounding == "none":
            return values, torch.ones_like(values)
        from rankbound.losses.vector_bounding import bounded  # needs torch

        return bounded(self.bounding, values, layout)


# ---- checks ----------------------------------------------------------------------------------------------------------


def positive(name: str, value: float | None, whole: bool = False) -> None:
    """Raise ArgumentError unless a parameter is a positive number (or integer) or None."""
    if value is None:
        return
    fits = isinstance(value, int) and not isinstance(value, bool) if whole else isinstance(value, (int, float))
    if not fits or not 0 < value < float("inf"):
        raise ArgumentError(f"{name} must be a positive {'integer or None' if whole else 'number'}, got {value!r}")
