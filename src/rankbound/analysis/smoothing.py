"""A smooth curve through a cloud of points, with its band."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["penalized_spline"]

_SEGMENTS = 20  # stretches of the cubic; the penalty, not their number, decides how smooth the curve is
_PENALTIES = np.logspace(-6, 6, 61)  # relative to the data's weight
_FEWEST = 4  # distinct x that a cubic needs
_LARGEST = 1e90  # cubes, and their sums, are numbers


def penalized_spline(
    x: ArrayLike, y: ArrayLike, at: ArrayLike, *, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """A cubic spline with a penalty on its curvature (Eilers and Marx 1996): fit, low, high at the points ``at``.

    The penalty is chosen by restricted maximum likelihood, which seldom takes noise for wiggles. The band is the
    pointwise interval of the mean from the Bayesian covariance sigma^2 (B'B + penalty)^-1 (Wahba 1983), which allows
    for the smoothing's bias on average. Time is linear in the number of points.
    """
    from scipy.special import stdtrit

    x, y, at = (floats(name, each, most=_LARGEST) for name, each in (("x", x), ("y", y), ("at", at)))
    if len(x) != len(y):
        raise DataError(f"x and y must have one entry per point, got {len(x)} and {len(y)}")
    distinct = len(np.unique(x))
    if distinct < _FEWEST or len(x) < 2 * _FEWEST:
        raise DataError(
            f"a smooth fit needs {2 * _FEWEST} points at {_FEWEST} or more values of x, got {len(x)} at {distinct}"
        )
    low, high = float(x.min()), float(x.max())
    segments = min(_SEGMENTS, distinct - 1)
    basis, basis_at = (_cubic_basis((each - low) / (high - low), segments) for each in (x, at))
    gram, moment = basis.T @ basis, basis.T @ y
    second = np.diff(np.eye(segments + 3), n=2, axis=0)
    penalty = second.T @ second * (np.trace(gram) / np.trace(second.T @ second))
    penalized = gram + _PENALTIES[:, None, None] * penalty
    inverses = np.linalg.inv(penalized)
    coefficients = inverses @ moment
    # y'y - c'B'y: squared residuals plus penalty, without going through the points again for every penalty
    misfit = np.maximum(y @ y - coefficients @ moment, np.finfo(float).tiny)
    free = len(penalty) - 2  # straight lines are not penalized
    likelihood = (len(x) - 2) * np.log(misfit) + np.linalg.slogdet(penalized)[1] - free * np.log(_PENALTIES)
    best = int(np.argmin(likelihood))
    freedom = float((inverses[best] * gram).sum())  # effective number of parameters: the trace of their product
    left = max(len(x) - freedom, 1.0)
    fit = basis_at @ coefficients[best]
    error = float(((y - basis @ coefficients[best]) ** 2).sum()) / left
    spread = np.sqrt(error * ((basis_at @ inverses[best]) * basis_at).sum(axis=1))
    half = stdtrit(left, 0.5 + confidence / 2) * spread
    return fit, fit - half, fit + half


def _cubic_basis(x: NDArray[np.float64], segments: int) -> NDArray[np.float64]:
    """Uniform cubic B-splines on [0, 1], points x (segments + 3); points outside take the nearest end's polynomial."""
    scaled = x * segments
    segment = np.clip(np.floor(scaled), 0, segments - 1).astype(np.int64)
    t = scaled - segment
    pieces = np.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3], axis=1) / 6
    basis = np.zeros((len(x), segments + 3))
    basis[np.arange(len(x))[:, None], segment[:, None] + np.arange(4)] = pieces
    return basis
