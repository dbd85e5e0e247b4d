"""The three forms of a batch of tensors, flat, padded and nested, as flat scores and a plan.

========  ===========================  ========================================  ====================================
form      scores                       labels                                    lists
========  ===========================  ========================================  ====================================
flat      1-D tensor                   tensor, array or list                     ``offsets``
padded    2-D tensor, a row per list   tensor, array or list of the same shape   ``mask``; without it, whole rows
nested    2-D tensor, torch.jagged     nested alike, or flat                     those of the scores
========  ===========================  ========================================  ====================================

Labels, offsets and mask may be on the CPU or on the device of the scores. Their plan is made on the host. On the CPU
their contents are compared with those of the last call. On other devices that would copy them to the host in every
call: there a tensor is known by its identity and its version, which changes with every in-place change. Only a new
tensor is copied to the host, once.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankbound.arrays import array_of, mask_of
from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from rankbound.losses.base import RankingLoss
    from rankbound.losses.plans import Plan


def is_nested(values: Any) -> bool:
    """Whether values are a nested tensor with layout torch.jagged."""
    return isinstance(values, torch.Tensor) and values.layout is torch.jagged


def check_devices(scores: Any, **inputs: Any) -> None:
    """Raise ArgumentError unless tensors are on the CPU or on the device of the scores."""
    for name, values in inputs.items():
        if isinstance(values, torch.Tensor) and values.device.type != "cpu" and values.device != scores.device:
            raise ArgumentError(
                f"{name} must be on the CPU or on the device of the scores, {scores.device}, got {values.device}"
            )


# ---- forms -----------------------------------------------------------------------------------------------------------


def flat_batch(scores: Any, labels: Any, offsets: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """Flat labels and offsets, the shape that scores must have, and the positions of the items in padded scores.

    The positions are None for scores that are not padded, or that have no padding.
    """
    if is_nested(scores):
        _refuse(offsets=offsets, mask=mask)
        return *_nested(scores, labels), None, None
    if is_nested(labels):
        raise ArgumentError("labels must not be a nested tensor unless the scores are one, too")
    if mask is None and scores.ndim != 2:
        if offsets is None:
            raise ArgumentError(
                "offsets are required for flat scores, got None; pass [0, len(scores)] for a single list"
            )
        return labels, offsets, None, None
    if offsets is not None:
        if mask is None:
            return labels, offsets, None, None  # raises an error that names the shape of the scores
        _refuse(offsets=offsets)
    return _padded(scores, labels, mask)


def _nested(scores: Any, labels: Any) -> tuple[Any, Any]:
    offsets = scores.offsets()
    if scores.lengths() is not None or scores.values().ndim != 1:
        raise ArgumentError(
            f"nested scores must be contiguous with one score per item, got shape {tuple(scores.shape)}"
        )
    if is_nested(labels):
        if labels.lengths() is not None or labels.values().ndim != 1:
            raise ArgumentError(f"nested labels must be contiguous with one label per item, got {tuple(labels.shape)}")
        own = labels.offsets()
        if own is not offsets and not torch.equal(own.cpu(), offsets.cpu()):
            raise DataError(
                f"labels must have lists of the same lengths as the scores, {offsets.diff().tolist()}, "
                f"got {own.diff().tolist()}"
            )
        labels = labels.values()
    return labels.detach() if isinstance(labels, torch.Tensor) else labels, offsets


def _padded(scores: Any, labels: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    labels = array_of("labels", labels)
    marked = np.ones(tuple(scores.shape), bool) if mask is None else mask_of("mask", mask, None)
    if scores.ndim != 2 or tuple(scores.shape) != marked.shape or labels.shape != marked.shape:
        what = "scores and labels" if mask is None else "scores, labels and mask"
        shapes = [tuple(scores.shape), labels.shape, *(() if mask is None else (marked.shape,))]
        shown = f"{', '.join(map(str, shapes[:-1]))} and {shapes[-1]}"
        raise DataError(f"{what} must be 2-D of one shape, got {shown}")
    offsets = np.concatenate(([0], np.cumsum(marked.sum(axis=1))))
    positions = None if mask is None else torch.from_numpy(np.flatnonzero(marked))
    return labels[marked], offsets, tuple(scores.shape), positions


def _refuse(**inputs: Any) -> None:
    for name, values in inputs.items():
        if values is not None:
            other = "scores are padded" if name == "offsets" and "mask" not in inputs else "scores are a nested tensor"
            raise ArgumentError(f"{name} must be None where {other}, got {type(values).__name__}")


def flattened(scores: Any, positions: Any, is_padded: bool) -> Any:
    """The scores of the items."""
    if is_nested(scores):
        return scores.values()
    if not is_padded:
        return scores
    flat = scores.reshape(-1)
    return flat if positions is None else flat.index_select(0, positions)


# ---- batches that were seen before -----------------------------------------------------------------------------------


def is_on_host(values: Any) -> bool:
    """Whether the contents of values can be read without a copy between devices."""
    return not isinstance(values, torch.Tensor) or (values.device.type == "cpu" and not is_nested(values))


class Seen:
    """An input of the last call: a tensor of a device by identity and version, anything else by a copy."""

    def __init__(self, values: Any) -> None:
        self._tensor = None if is_on_host(values) else weakref.ref(values)
        self._version = _version(values)
        self._copy = None if values is None or self._tensor is not None else array_of("values", values).copy()

    def is_same(self, values: Any) -> bool:
        """Whether values are the ones that were seen, and unchanged; never looks into a tensor of a device."""
        if not is_on_host(values):
            return self._tensor is not None and self._tensor() is values and self._version == _version(values) >= 0
        if values is None or self._copy is None:
            return values is None and self._copy is None and self._tensor is None
        return np.array_equal(self._copy, array_of("values", values))


def _version(values: Any) -> int:
    """The version of a tensor; -1 if it has none, as tensors that were made in inference mode."""
    if not isinstance(values, torch.Tensor) or values.is_inference():
        return -1
    return int(values.values()._version if is_nested(values) else values._version)


@dataclass(eq=False)
class Batch:
    """A batch that was seen: its plan, and how its scores become flat."""

    inputs: tuple[Seen, ...]
    plan: Plan
    shape: tuple[int, ...] | None
    positions: Any


def known_batch(loss: RankingLoss, scores: Any, labels: Any, offsets: Any, mask: Any) -> tuple[Any, Plan]:
    """Flat scores and their plan; nothing is copied to the host if labels, offsets and mask were seen in the last call.

    The version counter does not see changes that bypass autograd, such as those by ``tensor.data``.
    """
    inputs = (labels, scores.offsets() if is_nested(scores) else offsets, mask)
    batch = loss._cache.batch
    if batch is None or not all(seen.is_same(values) for seen, values in zip(batch.inputs, inputs, strict=True)):
        flat_labels, flat_offsets, shape, positions = flat_batch(scores, labels, offsets, mask)
        plan = loss.plan(flat_labels, flat_offsets)
        batch = Batch(tuple(map(Seen, inputs)), plan, shape, positions)
        loss._cache.batch = batch
    if batch.shape is not None and tuple(scores.shape) != batch.shape:
        raise DataError(f"scores must have the shape of the labels, {batch.shape}, got {tuple(scores.shape)}")
    if batch.positions is not None and batch.positions.device != scores.device:
        batch.positions = batch.positions.to(scores.device)
    flat = flattened(scores, batch.positions, batch.shape is not None)
    if tuple(flat.shape) != batch.plan.labels.shape:
        wanted = batch.plan.labels.shape
        raise DataError(f"scores must be 1-D with one entry per label, {wanted}, got {tuple(flat.shape)}")
    return flat, batch.plan
