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

__all__ = ["KernelFunction", "checked_scores", "weight_tensor"]


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
            raise RuntimeError("the losses have no second derivative: call backward without create_graph=True")
        gradient = ctx.gradient * ctx.plan.per_item(ctx.slopes * upstream.numpy())
        return torch.from_numpy(gradient), None, None


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
