"""Losses of whole lists and of single items: ListNet, ListMLE, pointwise regression and classification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.losses import reference
from rankbound.losses.base import KernelResult, RankingLoss, positive
from rankbound.losses.compiling import threads_for
from rankbound.losses.lazy_torch import torch
from rankbound.losses.list_kernel import LISTMLE, LISTNET, list_pass
from rankbound.losses.plans import Plan, plan_rows
from rankbound.losses.workers import run_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.buckets import Layout, Result

__all__ = ["ListMLELoss", "ListNetLoss", "PointwiseLoss"]


@dataclass(frozen=True)
class _ListLoss(RankingLoss):
    """A loss computed by `list_pass`."""

    _code: ClassVar[int]
    _by_pairs: ClassVar[bool] = False
    _tables: ClassVar[float] = 20.0

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        return plan_rows(labels, offsets, labels, only_gain=False)

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:  # noqa: ARG002
        exact = scores.astype(np.float64)
        values, gradient, hessian = np.zeros(len(plan.rows)), np.zeros_like(exact), np.zeros_like(exact)
        run_blocks(
            list_pass, plan.blocks(threads_for(10 * len(scores))),
            exact, plan.offsets, plan.order, plan.weights, plan.rows > 0, self._code, values, gradient, hessian,
        )  # fmt: skip
        return KernelResult(values, gradient.astype(scores.dtype), hessian.astype(scores.dtype))


@dataclass(frozen=True)
class ListNetLoss(_ListLoss):
    """Cross entropy of the top-one probabilities of labels and scores: -sum_i softmax(l)_i log softmax(f)_i.

    Source: Cao et al., Learning to rank: from pairwise approach to listwise approach.

    >>> import torch
    >>> ListNetLoss()(torch.tensor([0.0, 0.0]), [1, 0], [0, 2]).item()  # log(2)
    0.693147...
    """

    _code: ClassVar[int] = LISTNET

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = super()._plan(labels, offsets)
        full = np.flatnonzero(plan.sizes > 0)
        highest, mass = np.zeros(len(plan.rows)), np.ones(len(plan.rows))
        if len(full):
            starts = offsets[:-1][full]
            highest[full] = np.maximum.reduceat(labels, starts)
            probabilities = np.exp(labels - plan.per_item(highest))
            mass[full] = np.add.reduceat(probabilities, starts)
            plan.weights = plan.sorted(probabilities / plan.per_item(mass))
        return plan

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:  # noqa: ARG002
        from rankbound.losses.vector_lists import run_softmax  # needs torch

        table = layout.with_padding(scores)
        return layout.run(lambda bucket, _: run_softmax(bucket, table[bucket.items], bucket.exact_weights, 1.0))

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        return reference.list_net(scores, torch.as_tensor(labels, device=scores.device)), 0.0


@dataclass(frozen=True)
class ListMLELoss(_ListLoss):
    """-log likelihood of the order of labels under Plackett-Luce: sum_i log(sum_{j>=i} exp f_j) - f_i.

    Equal labels keep their input order. Source: Xia et al., Listwise approach to learning to rank.

    >>> import torch
    >>> ListMLELoss()(torch.tensor([0.0, 0.0, 0.0]), [2, 1, 0], [0, 3]).item()  # log(3!)
    1.791759...
    """

    _code: ClassVar[int] = LISTMLE

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:  # noqa: ARG002
        from rankbound.losses.vector_lists import run_list_mle  # needs torch

        table = layout.with_padding(scores)
        return layout.run(lambda bucket, _: run_list_mle(bucket, table[bucket.items]))

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        return reference.list_mle(scores, torch.as_tensor(labels, device=scores.device)), 0.0


@dataclass(frozen=True)
class PointwiseLoss(RankingLoss):
    """Mean over the items of a query of (f - l)² ("regression") or of the log loss of l >= rel ("classification").

    Every query with at least one item is informative here, even if all its labels are equal.

    >>> import torch
    >>> PointwiseLoss("regression")(torch.tensor([1.0, 3.0]), [0, 3], [0, 2]).item()
    0.5
    """

    kind: str = "regression"
    rel: float = field(default=1, kw_only=True)
    _by_pairs: ClassVar[bool] = False
    _tables: ClassVar[float] = 20.0

    def __post_init__(self) -> None:
        if self.kind not in ("regression", "classification"):
            raise ArgumentError(f"kind must be 'regression' or 'classification', got {self.kind!r}")
        positive("rel", self.rel)
        super().__post_init__()

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = plan_rows(labels, offsets, labels, only_gain=False)
        plan.rows = plan.sizes.copy()
        return plan

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:  # noqa: ARG002
        f, item_weight = scores.astype(np.float64), plan.per_item(1 / np.maximum(plan.sizes, 1))
        if self.kind == "regression":
            with np.errstate(over="ignore"):  # an infinite loss raises DataError later
                error = f - plan.labels
                loss, gradient, hessian = error**2, 2 * error, np.full_like(f, 2.0)
        else:
            relevant = plan.labels >= self.rel
            loss = np.logaddexp(0, np.where(relevant, -f, f))
            probability = np.exp(-np.logaddexp(0, -f))
            gradient, hessian = probability - relevant, probability * (1 - probability)
        query = plan.per_item(np.arange(len(plan.rows)))
        values = np.bincount(query, loss * item_weight, minlength=len(plan.rows)).astype(np.float64)
        gradient, hessian = gradient * item_weight, hessian * item_weight
        return KernelResult(values, gradient.astype(scores.dtype), hessian.astype(scores.dtype))

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:  # noqa: ARG002
        from rankbound.losses.vector_lists import run_pointwise  # needs torch

        is_regression, table = self.kind == "regression", layout.with_padding(scores)
        labels = layout.plan.labels if is_regression else layout.plan.labels >= self.rel
        in_order = layout.plan.sorted(labels.astype(np.float64))
        return layout.run(
            lambda bucket, _: run_pointwise(
                bucket, table[bucket.items], bucket.of_items(in_order, "targets", exact=True), is_regression
            )
        )

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        labels = torch.as_tensor(labels, device=scores.device)
        return reference.pointwise(scores, labels, self.kind, self.rel), 0.0
