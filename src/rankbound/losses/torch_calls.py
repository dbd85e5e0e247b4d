"""Losses of torch tensors: the kernels as a torch operation, and checks of tensors. Imported by the first such call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import torch
except ImportError as error:
    raise ImportError(
        f"a loss of tensors needs torch, and {error.name} is missing: pip install 'rankbound[train]'"
    ) from error

from rankbound.arrays import for_kernel, weights_of
from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from rankbound.losses.base import RankingLoss
    from rankbound.losses.plans import Plan

__all__ = ["KernelFunction", "ReducedKernelFunction", "checked_scores", "weight_tensor"]

NO_SECOND_DERIVATIVE = "the losses have no second derivative: call backward without create_graph=True"


class KernelFunction(torch.autograd.Function):  # type: ignore[misc]  # torch ships no types we follow
    """The kernel as a torch operation: forward stores the gradient of the same pass, backward scales it."""

    @staticmethod
    def forward(ctx: Any, scores: Any, loss: RankingLoss, plan: Plan) -> Any:
        """Compute the losses of the queries, and keep their gradient."""
        result, losses, slopes = loss._run_bounded(scores.numpy(force=True), plan)
        ctx.gradient, ctx.slopes, ctx.plan = result.gradient, slopes, plan
        return torch.from_numpy(losses).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        """Scale the gradient of each query by the derivative that comes from above."""
        if torch.is_grad_enabled():  # create_graph=True: the result would look differentiable without being so
            raise RuntimeError(NO_SECOND_DERIVATIVE)
        gradient = ctx.gradient * ctx.plan.per_item(ctx.slopes * upstream.numpy())
        return torch.from_numpy(gradient), None, None


class ReducedKernelFunction(torch.autograd.Function):  # type: ignore[misc]
    """The kernel and the sum of its losses as one torch operation; in small batches further ones would dominate."""

    @staticmethod
    def forward(ctx: Any, scores: Any, loss: RankingLoss, plan: Plan, divisor: int) -> Any:
        """Compute the sum of the losses over a divisor, and keep its gradient."""
        result, losses, slopes = loss._run_bounded(scores.numpy(force=True), plan)
        ctx.gradient = result.gradient * plan.per_item(slopes / slopes.dtype.type(divisor))
        return torch.tensor(losses.sum() / divisor, dtype=scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        """Scale the gradient by the derivative that comes from above."""
        if torch.is_grad_enabled():
            raise RuntimeError(NO_SECOND_DERIVATIVE)
        return torch.from_numpy(ctx.gradient) * upstream, None, None, None


# ---- checks ----------------------------------------------------------------------------------------------------------


def checked_scores(scores: Any) -> Any:
    """Return scores as a dense tensor of float32 or float64, or raise ArgumentError."""
    if not isinstance(scores, torch.Tensor):
        raise ArgumentError(f"scores must be a torch tensor, got {type(scores).__name__}")
    ready = scores.dtype in (torch.float32, torch.float64)
    if (not ready and scores.is_complex()) or scores.layout is not torch.strided or scores.is_meta:
        kind = f"{scores.dtype} with layout {scores.layout} on {scores.device}"
        raise ArgumentError(f"scores must be a dense tensor of real numbers, got {kind}")
    return scores if ready else scores.float()


def weight_tensor(weights: Any, losses: Any) -> Any:
    """Return one weight per query on the device of the losses; a tensor that requires a gradient keeps it."""
    checked = weights_of("weights", weights)
    if not isinstance(weights, torch.Tensor) or not weights.requires_grad:
        weights = torch.from_numpy(for_kernel(checked))
    if weights.shape != losses.shape:
        raise DataError(f"weights must have one entry per query, {tuple(losses.shape)}, got {tuple(weights.shape)}")
    return weights.to(dtype=losses.dtype, device=losses.device)
