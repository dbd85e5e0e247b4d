"""Losses in torch operations, for scores on other devices than the CPU: no loop over queries, no copy to the host.

A plan is made on the host, once per labels; what the losses need of it is kept on the device (see `buckets`). Value and
gradient of the lists of a bucket are computed in one go, chunk by chunk, by the explicit formulas of `vector_smooth`,
`vector_pairs` and `vector_lists`. Autograd stores none of the tables: forward keeps the gradient, one number per item,
and backward scales it. All sums have a fixed order, so that results can be repeated bit by bit.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from rankbound.losses.buckets import Layout, layout_of

if TYPE_CHECKING:
    from rankbound.losses.base import RankingLoss
    from rankbound.losses.plans import Plan

__all__ = ["VectorizedFunction", "losses_and_gradient"]

NO_SECOND_DERIVATIVE = "the losses have no second derivative: call backward without create_graph=True"


class VectorizedFunction(torch.autograd.Function):  # type: ignore[misc]  # torch ships no types we follow
    """The losses of the queries as a torch operation: forward keeps the gradient, backward scales it."""

    @staticmethod
    def forward(ctx: Any, scores: Any, loss: RankingLoss, plan: Plan) -> Any:
        """Compute the losses of the queries."""
        layout = layout_of(plan, scores, loss._tables, loss._by_pairs)
        losses, gradient = losses_and_gradient(loss, scores, layout, ctx.needs_input_grad[0])
        ctx.gradient, ctx.per_item = gradient, layout.per_item
        return losses

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        """Scale the gradient of each query by the derivative that comes from above."""
        if torch.is_grad_enabled():  # create_graph=True: the result would look differentiable without being so
            raise RuntimeError(NO_SECOND_DERIVATIVE)
        return ctx.gradient * upstream[ctx.per_item], None, None


def losses_and_gradient(loss: RankingLoss, scores: Any, layout: Layout, with_gradient: bool) -> tuple[Any, Any]:
    """The bounded losses of the queries, and their gradient per item if it is needed."""
    with torch.no_grad(), _no_autocast(scores.device.type):
        losses, gradient = loss._vectorized_losses(scores.detach(), layout, with_gradient)
    return losses.to(scores.dtype), gradient


def _no_autocast(device_type: str) -> Any:
    """No operation is to be computed in half precision."""
    if torch.amp.is_autocast_available(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
