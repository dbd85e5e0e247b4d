"""Losses of torch tensors: the kernels as a torch operation, and checks of tensors. Imported by the first such call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rankbound.packages import needed_by

with needed_by("a loss of tensors"):
    import torch

import numpy as np

from rankbound.arrays import for_kernel, weights_of
from rankbound.errors import ArgumentError, DataError
from rankbound.losses.device_settings import is_vectorized
from rankbound.losses.noise import noise_over
from rankbound.losses.padded import layout_of
from rankbound.losses.tensor_inputs import check_devices, flat_batch, flattened, is_nested, known_batch
from rankbound.parallel import Workers

if TYPE_CHECKING:
    from rankbound.losses.base import RankingLoss
    from rankbound.losses.plans import Plan

_uncompiled: list[Callable[..., Any]] = []


def call() -> Callable[..., Any]:
    """The function `_call`; inside ``torch.compile`` a graph break, because kernels and plans cannot be traced.

    The module torch._dynamo takes a second to import, so that it is left alone where nothing is compiled.
    """
    if "torch._dynamo" not in sys.modules:
        return _call
    if not _uncompiled:
        _uncompiled.append(torch.compiler.disable(_call))
    return _uncompiled[0]


def _call(loss: RankingLoss, scores: Any, labels: Any, offsets: Any, weights: Any, mask: Any, group: Any = None) -> Any:
    """Compute a loss of tensors, see `RankingLoss.__call__`; with a process group, see `LossModule`."""
    scores = checked_scores(scores)
    check_devices(scores, labels=labels, offsets=offsets, mask=mask, weights=weights)
    by_kernel = scores.device.type == "cpu" and not is_vectorized()
    if by_kernel:
        if mask is not None or offsets is None or is_nested(scores) or is_nested(labels):
            labels, offsets, shape, positions = flat_batch(scores, labels, offsets, mask)
            scores = flattened(scores, positions, shape is not None)
        plan = loss.plan(labels, offsets, tuple(scores.shape))
    else:
        scores, plan = known_batch(loss, scores, labels, offsets, mask)
    if group is not None:
        return _over_processes(scores, loss, plan, weights, by_kernel, group)
    divisor = plan.informative_queries if loss.reduction == "mean" else 1
    if by_kernel and weights is None and loss.reduction != "none":
        return ReducedKernelFunction.apply(scores, loss, plan, divisor)
    losses = LossFunction.apply(scores, loss, plan, by_kernel)
    if weights is not None:
        losses = losses * weight_tensor(weights, losses)
    return losses if loss.reduction == "none" else losses.sum() / divisor


def _over_processes(scores: Any, loss: RankingLoss, plan: Plan, weights: Any, by_kernel: bool, group: Any) -> Any:
    """Compute the loss of the lists of all processes of a group, whose gradients a trainer will average."""
    processes = Workers(torch.distributed.get_rank(group), torch.distributed.get_world_size(group), group)
    with noise_over(processes):
        losses = LossFunction.apply(scores, loss, plan, by_kernel)
    if weights is not None:
        losses = losses * weight_tensor(weights, losses)
    informative = int(plan.active.sum()) if loss.reduction == "mean" else 0
    return SumOverProcesses.apply(losses.sum(dtype=torch.float64), informative, processes).to(scores.dtype)


class SumOverProcesses(torch.autograd.Function):  # type: ignore[misc]
    """The sum of a number over all processes, divided by the sum of their informative queries, if there are any."""

    @staticmethod
    def forward(ctx: Any, total: Any, informative: int, processes: Workers) -> Any:
        """Add numbers and counts of all processes."""
        sums = torch.stack((total.detach(), total.new_tensor(float(informative))))
        torch.distributed.all_reduce(sums, group=processes.group)
        divisor = sums[1].clamp(min=1)
        ctx.factor = processes.size / divisor
        return sums[0] / divisor

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        """Scale the derivative by the number of processes, because their gradients are averaged afterwards."""
        return upstream * ctx.factor, None, None


class LossFunction(torch.autograd.Function):  # type: ignore[misc]  # torch ships no types we follow
    """The losses of the queries as a torch operation: forward keeps their gradient, backward scales it."""

    @staticmethod
    def forward(ctx: Any, scores: Any, loss: RankingLoss, plan: Plan, by_kernel: bool) -> Any:
        """Compute the losses of the queries."""
        if by_kernel:
            result = loss.value_and_gradient(scores.numpy(force=True), plan)
            ctx.gradient = torch.from_numpy(result.gradient)
            ctx.per_item = torch.from_numpy(np.repeat(np.arange(len(plan.rows)), plan.sizes))
            return torch.from_numpy(result.values).to(scores.dtype)
        layout = layout_of(plan, scores.device, scores.dtype, loss._tables, loss._by_pairs)
        losses, ctx.gradient, _ = loss._by_formula(scores.detach(), layout, ctx.needs_input_grad[0])
        ctx.per_item = layout.per_item
        return losses.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        """Scale the gradient of each query by the derivative that comes from above."""
        _refuse_second_derivative()
        return ctx.gradient * upstream[ctx.per_item], None, None, None


class ReducedKernelFunction(torch.autograd.Function):  # type: ignore[misc]
    """The kernel and the sum of its losses as one torch operation; in small batches further ones would dominate."""

    @staticmethod
    def forward(ctx: Any, scores: Any, loss: RankingLoss, plan: Plan, divisor: int) -> Any:
        """Compute the sum of the losses over a divisor, and keep its gradient."""
        result = loss.value_and_gradient(scores.numpy(force=True), plan, factor=1 / divisor)
        ctx.gradient = result.gradient
        return torch.tensor(result.values.sum() / divisor, dtype=scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        """Scale the gradient by the derivative that comes from above."""
        _refuse_second_derivative()
        return torch.from_numpy(ctx.gradient) * upstream, None, None, None


def _refuse_second_derivative() -> None:
    if torch.is_grad_enabled():  # create_graph=True: the result would look differentiable without being so
        raise RuntimeError("the losses have no second derivative: call backward without create_graph=True")


# ---- checks ----------------------------------------------------------------------------------------------------------


_LAYOUTS = (torch.strided, torch.jagged)


def checked_scores(scores: Any) -> Any:
    """Return scores as a tensor of float32 or float64, dense or nested, or raise ArgumentError."""
    if not isinstance(scores, torch.Tensor):
        raise ArgumentError(f"scores must be a torch tensor, got {type(scores).__name__}")
    ready = scores.dtype in (torch.float32, torch.float64)
    if (not ready and scores.is_complex()) or scores.layout not in _LAYOUTS or scores.is_meta:
        kind = f"{scores.dtype} with layout {scores.layout} on {scores.device}"
        raise ArgumentError(f"scores must be a dense tensor of real numbers, got {kind}")
    return scores if ready else scores.float()


def weight_tensor(weights: Any, losses: Any) -> Any:
    """Return one weight per query on the device of the losses; a tensor that requires a gradient keeps it.

    Weights on another device than the CPU are taken as they are: a check would make the device wait.
    """
    if not isinstance(weights, torch.Tensor) or weights.device.type == "cpu":
        checked = weights_of("weights", weights)
        if not isinstance(weights, torch.Tensor) or not weights.requires_grad:
            weights = torch.from_numpy(for_kernel(checked))
    if weights.shape != losses.shape:
        raise DataError(f"weights must have one entry per query, {tuple(losses.shape)}, got {tuple(weights.shape)}")
    return weights.to(dtype=losses.dtype, device=losses.device)
