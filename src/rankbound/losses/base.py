"""The base classes of all losses: how a loss is called, reduced, differentiated and bounded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

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
from rankbound.difficulty.bounding import difficulty_of, get_bounding
from rankbound.errors import ArgumentError, DataError
from rankbound.losses.lazy_torch import torch
from rankbound.losses.plans import BoundedPlan, Plan
from rankbound.packages import needed_by

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from rankbound.losses.modules import LossModule
    from rankbound.losses.padded import Bucket, Layout
    from rankbound.losses.tensor_inputs import Batch
    from rankbound.measures.measure import Measure

LOSS_BOUNDINGS = ("none", "min-max", "expectation", "expectation-max", "distribution", "log-distribution")
_REDUCTIONS = ("mean", "sum", "none")
_LARGEST_FLOAT32, _LARGEST_FLOAT64 = 1e38, 1e300  # a sum of larger losses would overflow the type of the scores


class Evaluated(NamedTuple):
    """Values per query, their gradient per item and, if requested, a positive hessian per item; else it is empty."""

    values: NDArray[np.float64]
    gradient: NDArray[Any]
    hessian: NDArray[Any]


@dataclass(slots=True, eq=False)
class PlanCache:
    """The plan of the last labels: by contents, with labels and offsets; and the batch of tensors it belongs to."""

    host: tuple[NDArray[Any], NDArray[Any], Plan] | None = None
    batch: Batch | None = None

    def replace(self, plan: Plan) -> Plan:
        """Keep this plan of the same labels."""
        assert self.host is not None
        self.host = (*self.host[:2], plan)
        return plan


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
    do, see `rankbound.losses.padded`. Second derivatives raise RuntimeError.
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

    def __call__(self, scores: Any, labels: Any, offsets: Any = None, weights: Any = None, *, mask: Any = None) -> Any:
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

    # ---- plan, kernel, formula ---------------------------------------------------------------------------------------

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

    def value_and_gradient(
        self, scores: NDArray[Any], plan: Plan, with_hessian: bool = False, factor: float = 1.0
    ) -> Evaluated:
        """Compute the bounded losses of queries on the CPU; their gradient and hessian per item are times a factor."""
        check_finite("scores", scores)
        result = self._run_bounded(for_kernel(scores), plan, with_hessian, factor)
        most = _LARGEST_FLOAT32 if scores.dtype.itemsize == 4 else _LARGEST_FLOAT64
        if not np.abs(result.values).max(initial=0) < most:  # or NaN
            raise DataError(f"scores must not be so large that their loss overflows, got {np.abs(scores).max()}")
        return result

    def gradient_and_hessian(self, scores: NDArray[Any], plan: Plan) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute gradient and hessian per item, bounded but not reduced, for boosting."""
        result = self.value_and_gradient(scores, plan, with_hessian=True)
        return result.gradient, result.hessian

    def _run_bounded(self, scores: NDArray[Any], plan: Plan, with_hessian: bool, factor: float) -> Evaluated:
        """Run the kernel; the formula is for losses without kernel, and where none was built."""
        return self._run_formula(scores, plan, with_hessian, factor)

    def _run_formula(self, scores: NDArray[Any], plan: Plan, with_hessian: bool, factor: float) -> Evaluated:
        with needed_by("a loss without compiled kernels"):
            from rankbound.losses.padded import layout_of

        tensor = torch.from_numpy(scores)
        layout = layout_of(plan, tensor.device, tensor.dtype, self._tables, self._by_pairs)
        losses, gradient, hessian = self._by_formula(tensor, layout, True, with_hessian)
        factor = scores.dtype.type(factor)
        assert gradient is not None
        curved = scores[:0] if hessian is None else factor * hessian.numpy()
        return Evaluated(losses.numpy().astype(np.float64), factor * gradient.numpy(), curved)

    def _by_formula(
        self, scores: Tensor, layout: Layout, with_gradient: bool, with_hessian: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The bounded losses of the queries by the formula in torch; their gradient and hessian per item, if needed."""
        from rankbound.losses.padded import evaluate_formula  # needs torch

        return evaluate_formula(self, scores, layout, with_gradient, with_hessian)

    def _draw(self, scores: Tensor, layout: Layout) -> Tensor | None:  # noqa: ARG002
        """A random number per item that the formula needs, or None."""
        return None

    def _checked_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Validate labels; those below 0 count as 0."""
        checked: NDArray[Any] = np.maximum(labels_of(labels), 0)
        return checked

    @abstractmethod
    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        """Make the plan for labels as `_checked_labels` returns them."""

    @abstractmethod
    def _formula(self, bucket: Bucket, x: Tensor) -> Tensor:
        """The bounded loss of each list of a bucket, see `rankbound.losses.padded`."""


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
        if self.bounding == "none":
            return plan
        if plan.bounding is None:
            plan = self._cache.replace(replace(plan, bounding=self._bounded_plan(plan)))
        return plan

    def _bounded_plan(self, plan: Plan) -> BoundedPlan:
        difficulty = difficulty_of(self.target, plan.counts, self.ranker_strength)
        bounding = get_bounding(self.bounding)
        line = bounding.apply(np.zeros(len(plan.rows)), difficulty) if bounding.affine else (None, None)
        return BoundedPlan(difficulty, bounding.defined(difficulty), *line)

    @property
    def _sign(self) -> float:
        """-1 where the loss is minus the bounded measure: unless lower values are better already."""
        return 1.0 if self._lower_is_better and self.bounding in ("none", "expectation") else -1.0

    def _bound_measured(self, measured: Evaluated, plan: Plan, factor: float = 1.0) -> Evaluated:
        """Turn the measures of queries, and their derivatives, into losses."""
        sign, values, slopes = self._sign, measured.values, np.ones(len(plan.rows))
        if plan.bounding is not None:
            values, slopes = get_bounding(self.bounding).apply(values, plan.bounding.difficulty, smooth=True)
        slopes = np.where(plan.active, sign * slopes, 0.0)
        per_item = plan.per_item((slopes * factor).astype(measured.gradient.dtype))
        hessian = measured.hessian * np.abs(per_item) if len(measured.hessian) else measured.hessian
        return Evaluated(np.where(plan.active, sign * values, 0.0), measured.gradient * per_item, hessian)

    def _bound_formula(self, values: Tensor, bucket: Bucket) -> Tensor:
        """The losses that belong to the measures of the lists of a bucket."""
        from rankbound.losses.formulas import bound_values  # needs torch

        return self._sign * bound_values(self.bounding, values, bucket)


# ---- checks ----------------------------------------------------------------------------------------------------------


def positive(name: str, value: float | None, whole: bool = False) -> None:
    """Raise ArgumentError unless a parameter is a positive number (or integer) or None."""
    if value is None:
        return
    fits = isinstance(value, int) and not isinstance(value, bool) if whole else isinstance(value, (int, float))
    if not fits or not 0 < value < float("inf"):
        raise ArgumentError(f"{name} must be a positive {'integer or None' if whole else 'number'}, got {value!r}")
