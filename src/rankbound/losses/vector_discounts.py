"""Discounts at smooth ranks in torch operations: the built-in ones by their formula, others from a table.

A measure of a user's own has a discount in NumPy. It is evaluated once, at points that are evenly spaced in the
logarithm of the rank, and interpolated by the cubic through values and slopes. For discounts that are smooth in the
logarithm of the rank, as powers, logarithms and exponentials are, the error is below 1e-9 of the first discount.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankbound.losses.sigmoids import RELU
from rankbound.losses.smooth_kernel import GIVEN

if TYPE_CHECKING:
    from rankbound.losses.buckets import Layout

__all__ = ["discount_function"]

_POINTS = 1024  # per factor e of the rank
_FAR = 1e9  # ranks by relu, which is not bounded by 1


def discount_function(structure: Any, sigmoid: int, layout: Layout) -> Callable[[Any], tuple[Any, Any]]:
    """The values and slopes of the discount of a structure, as a function of real ranks."""
    if structure.discount == GIVEN:
        return _tabulated(structure, _FAR if sigmoid == RELU else float(layout.plan.sizes.max(initial=1)), layout)
    function, parameter = _BUILT_IN[structure.discount], structure.parameter
    return lambda ranks: function(ranks, parameter)


def _log2(ranks: Any, parameter: float) -> tuple[Any, Any]:
    shifted = 1 + ranks
    value = torch.log2(shifted).reciprocal_()
    return value, (value * value).div_(shifted).mul_(-1 / math.log(2))


def _geometric(ranks: Any, parameter: float) -> tuple[Any, Any]:
    value = parameter ** (ranks - 1)
    return value, value * math.log(parameter)


def _constant(ranks: Any, parameter: float) -> tuple[Any, Any]:
    return torch.ones_like(ranks), torch.zeros_like(ranks)


def _reciprocal(ranks: Any, parameter: float) -> tuple[Any, Any]:
    return 1 / ranks, -1 / ranks**2


_BUILT_IN = (_log2, _geometric, _constant, _reciprocal)  # in the order of `rankbound.measures.discounts.BUILT_IN`


def _tabulated(structure: Any, last: float, layout: Layout) -> Callable[[Any], tuple[Any, Any]]:
    nodes = math.ceil(math.log(last + 1) * _POINTS) + 2

    def make() -> tuple[Any, Any]:
        ranks = np.exp(np.arange(nodes) / _POINTS)
        with np.errstate(all="ignore"):
            value = structure.definition.discounts(structure.measure, ranks)
            slope = structure.definition.discount_slopes(structure.measure, ranks) * ranks / _POINTS  # per node
        return layout.on_device(value, exact=True), layout.on_device(slope, exact=True)

    values, slopes = layout.kept("discount table", make)

    def function(ranks: Any) -> tuple[Any, Any]:
        ranks = ranks.clamp(min=1)
        at = torch.log(ranks) * _POINTS
        node = at.detach().clamp(max=nodes - 2).long()
        s = (at - node).clamp(max=1)
        v0, v1, d0, d1 = values[node], values[node + 1], slopes[node], slopes[node + 1]
        c, d = 3 * (v1 - v0) - 2 * d0 - d1, d0 + d1 - 2 * (v1 - v0)
        return v0 + s * (d0 + s * (c + s * d)), (d0 + s * (2 * c + 3 * s * d)) * _POINTS / ranks

    return function
