"""Random-effects meta-analysis: the mean of an effect over data sets that differ more than their errors explain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["RandomEffects", "dependent_mean", "random_effects"]

_SMALLEST, _LARGEST = 1e-30, 1e30  # of a standard error: fourth powers of it are finite numbers


@dataclass(frozen=True)
class RandomEffects:
    """The pooled effect of several studies.

    Attributes
    ----------
    mean, error, low, high:
        The mean effect, its standard error by Hartung and Knapp, and the confidence interval by Student's distribution.
    spread:
        Standard deviation of the true effects between studies, by DerSimonian and Laird.
    i2:
        Fraction of the variance of the observed effects that is due to differences between studies.
    prediction_low, prediction_high:
        Interval that contains the true effect of a further study; NaN for fewer than three studies.
    studies:
        Number of studies.
    """

    mean: float
    error: float
    low: float
    high: float
    spread: float
    i2: float
    prediction_low: float
    prediction_high: float
    studies: int


def random_effects(effects: ArrayLike, errors: ArrayLike, *, confidence: float = 0.95) -> RandomEffects:
    """Pool the effects of independent studies, given their standard errors.

    An observed effect is the true effect of its study plus an error of known variance :math:`s_i^2`; true effects vary
    with variance :math:`\\tau^2` around the mean. The variance is estimated by moments (DerSimonian and Laird 1986),
    the mean is weighted by :math:`1 / (s_i^2 + \\tau^2)`, and its interval uses the weighted variance of the effects
    and Student's distribution (Hartung and Knapp 2001), because intervals of the normal distribution are too narrow for
    few studies. A single study keeps its own error and the normal distribution.

    >>> pooled = random_effects([0.1, 0.3, 0.2], [0.1, 0.1, 0.1])
    >>> round(pooled.mean, 3), pooled.spread, round(pooled.high, 3)
    (0.2, 0.0, 0.448)
    """
    from scipy.special import ndtri, stdtrit

    if not 0 < confidence < 1:
        raise ArgumentError(f"confidence must be between 0 and 1, got {confidence}")
    effect, error = _checked(effects, errors)
    count, level = len(effect), 0.5 + confidence / 2
    variance = error**2
    if count == 1:
        half = float(ndtri(level)) * float(error[0])
        mean = float(effect[0])
        return RandomEffects(mean, float(error[0]), mean - half, mean + half, 0.0, 0.0, math.nan, math.nan, 1)
    fixed = 1 / variance
    around = float(np.average(effect, weights=fixed))
    q = float((fixed * (effect - around) ** 2).sum())
    surplus = q - (count - 1)
    tau2 = max(0.0, surplus / float(fixed.sum() - (fixed**2).sum() / fixed.sum()))
    weight = 1 / (variance + tau2)
    mean = float(np.average(effect, weights=weight))
    pooled_variance = float((weight * (effect - mean) ** 2).sum() / ((count - 1) * weight.sum()))
    half = float(stdtrit(count - 1, level)) * math.sqrt(pooled_variance)
    reach = math.nan
    if count > 2:
        reach = float(stdtrit(count - 2, level)) * math.sqrt(tau2 + pooled_variance)
    return RandomEffects(
        mean,
        math.sqrt(pooled_variance),
        mean - half,
        mean + half,
        math.sqrt(tau2),
        max(0.0, surplus / q) if q > 0 else 0.0,
        mean - reach,
        mean + reach,
        count,
    )


def dependent_mean(effects: ArrayLike, errors: ArrayLike) -> tuple[float, float]:
    """The mean of effects that were measured on the same queries, and the largest standard error that it can have.

    Such effects are correlated in an unknown way. The error of their mean is largest if the correlation is 1: it is
    then the mean of their errors.

    >>> mean, error = dependent_mean([0.1, 0.3], [0.05, 0.15])
    >>> round(mean, 3), round(error, 3)
    (0.2, 0.1)
    """
    effect, error = _checked(effects, errors)
    return float(effect.mean()), float(error.mean())


def _checked(effects: ArrayLike, errors: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    effect = floats("effects", effects)
    error = floats("errors", errors, length=len(effect))
    if not len(effect):
        raise DataError("effects must have at least one entry, got none")
    if np.abs(effect).max() > _LARGEST:
        raise DataError(f"effects must be at most {_LARGEST:g} in magnitude, got {np.abs(effect).max():g}")
    if not ((error >= _SMALLEST) & (error <= _LARGEST)).all():
        raise DataError(f"errors must be from {_SMALLEST:g} to {_LARGEST:g}, got {error.min():g} to {error.max():g}")
    return effect, error
