"""The smooth distribution, tabulated once and then looked up.

Source: algorithm 2 and equation 3.13 of Westerborg, User/query-wise metric bounding in learning to rank.

F~(s) = sum_k D_y[k] sigma(a (s - D_x[k])) with a = len(D_x) / (max D_x - min D_x). Measured in units of 1/a, F~ has a
fourth derivative of at most 0.128, so cubic interpolation of value and slope on nodes h apart errs by at most
0.128 h^4 / 384: less where no single score has much weight. The table is spaced so that the error stays below 5e-7.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

_ERROR = 4e-7
# the table reaches this far (in 1/a) beyond the distribution; there the logistic is exponential to 1e-7 of itself
_MARGIN = 16.0
_REACH = 40.0  # where a logistic is 0 or 1 in double precision
_TERMS = 6  # Taylor terms for scores between nodes


@dataclass(frozen=True, slots=True)
class SmoothTable:
    """Values and slopes (per unit of the score) at ``start + i * spacing``; ``gain`` is a."""

    start: float
    spacing: float
    gain: float
    values: NDArray[np.float64]
    slopes: NDArray[np.float64]


def smooth_table(scores: NDArray[np.float64], probabilities: NDArray[np.float64]) -> SmoothTable:
    """Tabulate F~ of a distribution. A distribution of one score has no width of its own; it gets a = 1."""
    width = float(scores[-1] - scores[0])
    gain = len(scores) / width if width > 0 else 1.0
    u = (scores - scores[0]) * gain
    even = float(len(scores) / max(len(scores) - 1, 1))  # distance of neighbors if all are equal
    nodes_per_score = np.ceil(even / _finest(u, probabilities))
    h = even / nodes_per_score
    if np.abs(u / h - np.rint(u / h)).max() > 1e-6 and h > 0.25:
        h = even / np.ceil(even / 0.25)
    before = int(np.ceil(_MARGIN / h))
    node = np.rint(u / h).astype(np.int64)
    offset = node * h - u  # (-epsilon) of the Taylor series about the node
    size = int(node[-1]) + 1 + 2 * before
    terms = 1 if np.abs(offset).max() < 1e-6 else _TERMS
    reach = int(_REACH / h)
    at = np.arange(-reach, reach + 1) * h
    sigma = 1 / (1 + np.exp(-at))
    values, slopes = np.zeros(size), np.zeros(size)
    weight = probabilities.copy()
    for term in range(terms):
        mass = np.bincount(node + before, weight, minlength=size).astype(np.float64, copy=False)
        if term == 0:  # the step itself, then what the logistic adds to it on both sides
            values += np.cumsum(mass) - mass / 2
            kernel = sigma - np.heaviside(at, 0.5)
        else:
            kernel = _derivative(term)(sigma)
        values += _convolved(mass, kernel, terms == 1)
        slopes += _convolved(mass, _derivative(term + 1)(sigma), terms == 1)
        weight = weight * offset / (term + 1)
    values = np.clip(np.maximum.accumulate(values), np.finfo(float).tiny, 1.0)
    start = float(scores[0]) - before * h / gain
    return SmoothTable(start, h / gain, gain, values, np.maximum(slopes, 0.0) * gain)


def _finest(u: NDArray[np.float64], probabilities: NDArray[np.float64]) -> float:
    """Node distance that keeps the interpolation error h^4 / 384 * |F~''''| below the bound."""
    cells = np.bincount(u.astype(np.int64), probabilities)
    worst = np.convolve(cells, _fourth_derivatives()).max()
    return float(min((384 * _ERROR / worst) ** 0.25, 1.25))


@lru_cache(maxsize=1)
def _fourth_derivatives() -> NDArray[np.float64]:
    """Largest |sigma''''| that a score in one unit cell can have on another, by the distance of the cells."""
    fine = np.arange(-12, 12, 0.01)
    size = np.abs(_derivative(4)(1 / (1 + np.exp(-fine))))
    return np.array([size[(fine >= j - 1) & (fine <= j + 1)].max() for j in range(-10, 11)])


@lru_cache(maxsize=16)
def _derivative(order: int) -> Polynomial:
    """The derivative of the logistic as a polynomial in the logistic: s' = s (1 - s)."""
    if order == 0:
        return Polynomial([0.0, 1.0])
    return _derivative(order - 1).deriv() * Polynomial([0.0, 1.0, -1.0])


def _convolved(mass: NDArray[np.float64], kernel: NDArray[np.float64], direct: bool) -> NDArray[np.float64]:
    """Mass spread by a kernel that is centered on its middle, on the same nodes."""
    half = len(kernel) // 2
    if direct:
        return np.convolve(mass, kernel)[half : half + len(mass)]
    size = 1 << (len(mass) + len(kernel)).bit_length()
    spread = np.fft.irfft(np.fft.rfft(mass, size) * np.fft.rfft(kernel, size), size)
    return spread[half : half + len(mass)]


def look_up(
    x: NDArray[np.float64],
    start: Any,
    spacing: Any,
    gain: Any,
    first: Any,
    size: Any,
    values: NDArray[np.float64],
    slopes: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Value and slope at x from tables that stand one after another; every argument but the last two may vary with x.

    Between nodes the cubic through both values and slopes; beyond the ends the exponential tails of the logistic.
    """
    last = size - 1
    with np.errstate(invalid="ignore", over="ignore"):
        t = (x - start) / spacing
        node = np.clip(np.nan_to_num(t), 0, last - 1).astype(np.int64)
    s = np.clip(t - node, 0.0, 1.0)
    at = first + node
    v0, v1, d0, d1 = values[at], values[at + 1], slopes[at] * spacing, slopes[at + 1] * spacing
    c = 3 * (v1 - v0) - 2 * d0 - d1
    d = d0 + d1 - 2 * (v1 - v0)
    value = v0 + s * (d0 + s * (c + s * d))
    slope = (d0 + s * (2 * c + 3 * s * d)) / spacing
    low, high = t < 0, t > last
    decay = np.exp(-np.abs(np.where(low, t, np.where(high, t - last, 0.0))) * (spacing * gain))
    value = np.where(low, v0 * decay, np.where(high, 1 - (1 - v1) * decay, value))
    slope = np.where(low, v0 * gain * decay, np.where(high, (1 - v1) * gain * decay, slope))
    value = np.where(np.isnan(x), np.nan, np.clip(value, 0.0, 1.0))
    return value, np.where(np.isnan(x), np.nan, np.maximum(slope, 0.0))
