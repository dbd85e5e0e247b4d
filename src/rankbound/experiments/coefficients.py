"""The weights of a linear model of images, one per pixel, which can be drawn as an image."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from rankbound.analysis.learning import COEFFICIENT
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from rankbound.experiments.trial import Fitted

__all__ = ["coefficients"]


def coefficients(fitted: Fitted) -> Iterator[tuple[int, str, float]]:
    """The weights of a linear model of square images after training, as "coefficient ROW,COLUMN".

    The weights of the three colors of a pixel are added: this is its weight if only the brightness changes.
    """
    weights = getattr(fitted.model, "coef_", None)
    if weights is None:
        raise ArgumentError(f"{type(fitted.model).__name__} has no coefficients to record; only linear models have")
    weights = np.ravel(weights)
    side, color_side = isqrt(len(weights)), isqrt(len(weights) // 3)
    if 3 * color_side * color_side == len(weights):  # never a square at the same time
        side, weights = color_side, weights.reshape(-1, 3).sum(axis=1)
    elif side * side != len(weights):
        raise ArgumentError(f"coefficients are recorded for square images only, got {len(weights)} coefficients")
    epoch = int(getattr(fitted.model, "kept_epoch_", 0))
    for index, weight in enumerate(weights.tolist()):
        yield epoch, f"{COEFFICIENT}{index // side},{index % side}", weight
