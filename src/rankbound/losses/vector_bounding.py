"""Boundings in torch operations: the functions of `rankbound.difficulty.bounding`, on the device of the values.

Whatever does not depend on the values is computed once per layout: a shift and a slope per query for the affine
boundings, and the tables of the smooth distributions for the other two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankbound.difficulty.bounding import get_bounding
from rankbound.difficulty.distribution.smoothing import smooth_table

if TYPE_CHECKING:
    from rankbound.difficulty.bounding import Difficulty
    from rankbound.losses.buckets import Layout

__all__ = ["bounded"]

_LEAST_TAIL = 1e-12  # keeps -log(1 - F) finite, as in the boundings of measures


def bounded(name: str, values: Any, layout: Layout) -> tuple[Any, Any]:
    """Bounded values and their slopes, one per query; anything where a query is not informative."""
    bounding = get_bounding(name)
    if bounding.affine:
        shift, slope = layout.kept("affine bounding", lambda: _affine(name, layout))
        return (values - shift) * slope, slope
    value, slope = _distribution(values, layout)
    if name == "distribution":
        return value, slope
    tail = (1 - value).clamp(min=_LEAST_TAIL)
    return -torch.log(tail), slope / tail


def _affine(name: str, layout: Layout) -> tuple[Any, Any]:
    difficulty = _difficulty(layout)
    value, slope = get_bounding(name).apply(np.zeros(len(layout.plan.rows)), difficulty, smooth=True)
    shift = -value / np.where(slope == 0, 1.0, slope)
    return layout.on_device(shift, exact=True), layout.on_device(slope, exact=True)


def _distribution(x: Any, layout: Layout) -> tuple[Any, Any]:
    """Smooth fraction of random rankings that are no better, and its slope."""
    start, spacing, gain, first, last, values, slopes = layout.kept("distributions", lambda: _tables(layout))
    t = (x - start) / spacing
    node = torch.nan_to_num(t).clamp(min=0).minimum(last - 1).long()
    s, at = (t - node).clamp(0, 1), first + node
    v0, v1, d0, d1 = values[at], values[at + 1], slopes[at] * spacing, slopes[at + 1] * spacing
    c, d = 3 * (v1 - v0) - 2 * d0 - d1, d0 + d1 - 2 * (v1 - v0)
    low, high = t < 0, t > last
    decay = torch.exp(-torch.where(low, t, torch.where(high, t - last, 0.0)).abs() * (spacing * gain))
    value = torch.where(low, v0 * decay, torch.where(high, 1 - (1 - v1) * decay, v0 + s * (d0 + s * (c + s * d))))
    slope = torch.where(
        low, v0 * gain * decay,
        torch.where(high, (1 - v1) * gain * decay, (d0 + s * (2 * c + 3 * s * d)) / spacing),
    )  # fmt: skip
    value, slope = value.clamp(0, 1), slope.clamp(min=0)
    return (1 - value, -slope) if _difficulty(layout).lower_is_better else (value, slope)


def _tables(layout: Layout) -> tuple[Any, ...]:
    """The numbers of the table of each query, and the values and slopes of all tables one after another."""
    distributions: Any = _difficulty(layout).distribution()
    tables = [smooth_table(points[0], points[1]) for points in distributions.distributions]
    sizes = np.array([len(table.values) for table in tables], np.int64)
    per_query = [
        layout.on_device(np.array(column)[distributions.class_of], exact=True)
        for column in zip(*((table.start, table.spacing, table.gain) for table in tables), strict=True)
    ]
    first = layout.on_device((np.cumsum(sizes) - sizes)[distributions.class_of])
    last = layout.on_device((sizes - 1)[distributions.class_of])
    values, slopes = (
        layout.on_device(np.concatenate([getattr(table, name) for table in tables]), exact=True)
        for name in ("values", "slopes")
    )
    return *per_query, first, last, values, slopes


def _difficulty(layout: Layout) -> Difficulty:
    assert layout.plan.difficulty is not None, "MeasureLoss.plan sets the difficulty of a bounded loss"
    return layout.plan.difficulty
