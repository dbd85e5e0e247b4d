"""Losses as torch modules, for trainers that expect one. Imported by `RankingLoss.as_module`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rankbound.losses.torch_calls import torch

if TYPE_CHECKING:
    from rankbound.losses.base import RankingLoss

__all__ = ["LossModule"]


class LossModule(torch.nn.Module):  # type: ignore[misc]  # torch ships no types we follow
    """A loss as a ``torch.nn.Module``: it has no parameters, no buffers and an empty state_dict.

    ``to``, ``train`` and ``eval`` change nothing: a loss is computed on the device of its scores. Modules can be copied
    and pickled. Inside ``torch.compile``, calling one is a graph break.

    >>> from rankbound.losses import NDCGLoss
    >>> NDCGLoss(10, bounding="min-max").as_module()
    LossModule(NDCGLoss, bounding='min-max', k=10)
    """

    def __init__(self, loss: RankingLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, scores: Any, labels: Any, offsets: Any = None, mask: Any = None, weights: Any = None) -> Any:
        """Compute the loss of flat scores with offsets, padded scores with a mask, or nested scores.

        See `RankingLoss.__call__`.
        """
        return self.loss(scores, labels, offsets, weights, mask=mask)

    def extra_repr(self) -> str:
        """The class of the loss and the options that are not the default."""
        changed = [
            f"{option.name}={getattr(self.loss, option.name)!r}"
            for option in fields(self.loss)
            if option.init and getattr(self.loss, option.name) != option.default
        ]
        return ", ".join([type(self.loss).__name__, *changed])
