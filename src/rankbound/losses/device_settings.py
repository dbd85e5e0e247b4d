"""Settings of the losses in torch operations: how much memory pairs may take, and whether the CPU uses them too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rankbound.errors import ArgumentError

_DEFAULT, _DEFAULT_ON_CPU = 256.0, 8.0  # megabytes; on the CPU what caches hold is fastest
_forced: ContextVar[bool] = ContextVar("vectorized", default=False)
_chosen: list[float] = []


@contextmanager
def vectorized() -> Iterator[None]:
    """Compute losses in torch operations inside the block even on the CPU, as on other devices.

    The compiled kernels are faster on the CPU; this is for tests and for comparisons with a run on another device.

    >>> import torch
    >>> from rankbound.losses import NDCGLoss
    >>> with vectorized():
    ...     NDCGLoss(alpha=50.0)(torch.tensor([2.0, 0.0, 1.0]), [1, 0, 0], [0, 3]).item()
    -1.0
    """
    token = _forced.set(True)
    try:
        yield
    finally:
        _forced.reset(token)


def is_vectorized() -> bool:
    """Whether the CPU computes losses in torch operations."""
    return _forced.get()


def set_pair_memory(megabytes: float | None) -> None:
    """Limit the memory that pairs of items take at a time in losses that are computed in torch operations.

    The default, None, is 256 MB on other devices and 8 MB on the CPU. More memory means fewer and larger operations.
    A single row of pairs of a very long list may exceed a small limit. Tables with one entry per item, of which there
    are a few dozen, are not counted, and neither is a table of levels x items that lambda losses of pairwise measures
    need, such as Kendall's tau. Results do not depend on the limit, up to the rounding of sums.

    >>> set_pair_memory(64)
    >>> set_pair_memory(None)
    """
    if megabytes is None:
        _chosen.clear()
        return
    if isinstance(megabytes, bool) or not isinstance(megabytes, (int, float)) or not 0 < megabytes < float("inf"):
        raise ArgumentError(f"megabytes must be a positive number or None, got {megabytes!r}")
    _chosen[:] = [float(megabytes)]


def pair_memory(device: Any = "cpu") -> float:
    """The limit in megabytes for a device, see `set_pair_memory`."""
    if _chosen:
        return _chosen[0]
    return _DEFAULT_ON_CPU if getattr(device, "type", str(device)) == "cpu" else _DEFAULT
