"""Losses as torch modules, for trainers that expect one. Imported by `RankingLoss.as_module`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rankbound.errors import ArgumentError
from rankbound.losses.torch_calls import call
from rankbound.packages import needed_by

with needed_by("a loss of tensors"):
    import torch

if TYPE_CHECKING:
    from rankbound.losses.base import RankingLoss


class LossModule(torch.nn.Module):  # type: ignore[misc]  # torch ships no types we follow
    """A loss as a ``torch.nn.Module``: it has no parameters, no buffers and an empty state_dict.

    ``to``, ``train`` and ``eval`` change nothing: a loss is computed on the device of its scores. Modules can be copied
    and pickled. Inside ``torch.compile``, calling one is a graph break.

    Parameters
    ----------
    loss:
        The loss.
    process_group:
        None: the loss of the lists that are passed. A group of torch.distributed, such as
        ``torch.distributed.group.WORLD``: the loss of the lists that all its processes pass together, however they are
        distributed over the processes. A mean divides by the informative queries of all of them. Every process gets the
        same value, and all must call the module together, a process without lists with empty scores and offsets [0].
        The gradient is multiplied by the number of processes, so that DistributedDataParallel, which averages, ends
        with the gradient of one process with all lists. The noise of stochastic losses is that of one process, too, for
        scores on the CPU. Such a module cannot be pickled or copied.

    >>> from rankbound.losses import NDCGLoss
    >>> NDCGLoss(10, bounding="min-max").as_module()
    LossModule(NDCGLoss, bounding='min-max', k=10)
    """

    def __init__(self, loss: RankingLoss, process_group: Any = None) -> None:
        super().__init__()
        if process_group is not None:
            if loss.reduction == "none":
                raise ArgumentError("process_group requires a loss with reduction 'mean' or 'sum', got 'none'")
            if not isinstance(process_group, torch.distributed.ProcessGroup):
                raise ArgumentError(
                    "process_group must be a group of torch.distributed, which init_process_group makes, or None, got "
                    f"{type(process_group).__name__}"
                )
        self.loss, self.process_group = loss, process_group

    def forward(self, scores: Any, labels: Any, offsets: Any = None, mask: Any = None, weights: Any = None) -> Any:
        """Compute the loss of flat scores with offsets, padded scores with a mask, or nested scores.

        See `RankingLoss.__call__`.
        """
        return call()(self.loss, scores, labels, offsets, weights, mask, self.process_group)

    def extra_repr(self) -> str:
        """The class of the loss and the options that are not the default."""
        changed = [
            f"{option.name}={getattr(self.loss, option.name)!r}"
            for option in fields(self.loss)
            if option.init and getattr(self.loss, option.name) != option.default
        ]
        return ", ".join([type(self.loss).__name__, *changed])
