"""The distribution of an additive measure on a very long list.

The total is T = sum_r w_r g(r) with the weight w_r of rank r and the gain g(r) of the document there. Drawing gains
without replacement from n documents fixes their sum, so T does not change if the mean weight is taken from every w_r:

    T = mean + sum_r (w_r - mean of w) (g(r) - mean of g).

With these centered weights, sums of independent draws have the variance of T up to the factor n / (n - 1), which is
corrected, and the same third moment up to O(1/n); Hájek, "Some extensions of the Wald-Wolfowitz-Noether theorem", 1961,
has the limit. The characteristic function of independent draws is a product over the ranks. The factors of the first
ranks, which dominate, are used as they are, the logarithms of the others are expanded to the fourth power. A Fourier
transform gives the probabilities.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.case import Case

LEAST_DOCUMENTS = 150  # effectively; the error of the distribution function falls with their number
_HEAD, _SHORT_HEAD = 256, 32  # ranks whose factors are used as they are, with few and with many levels
_POINTS = 16_384  # of the result
_WIDTH = 12.0  # standard deviations on either side of the mean
_FREQUENCIES, _MOST_FREQUENCIES, _FEW_LEVELS = 512, 2048, 16  # the larger number with few levels
_TRUNCATED = 1e-8  # largest value of the characteristic function at the last frequency
_FACTORS = 1 << 22  # complex numbers at a time
_TAIL = 1e-13  # smaller probabilities are rounding errors of the Fourier transform


def limit_applies(case: Case) -> bool:
    """Whether the case is a sum of gains times weights of ranks, in random order, with enough documents."""
    return (
        case.random
        and case.rank_weights is not None
        and not case.measure.definition.scale_varies(case.measure)
        and _effective_documents(case) >= LEAST_DOCUMENTS
    )


def _effective_documents(case: Case) -> float:
    """Number of documents over the kurtosis of their gains: relevant documents that are rare, all that are graded."""
    fractions = np.array(case.counts) / case.n
    centered = np.array(case.labels) - fractions @ np.array(case.labels)
    centered = centered / np.abs(centered).max(initial=1e-300)
    return float(case.n * (fractions @ centered**2) ** 2 / (fractions @ centered**4))


def limit(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Scores and probabilities; None where values lie too close together, or few ranks decide."""
    assert case.rank_weights is not None
    n, gains = case.n, np.array(case.labels)
    fractions = np.array(case.counts) / n
    centered = gains - fractions @ gains
    mean_weight = case.rank_weights.sum() / n
    weights = case.rank_weights - mean_weight  # the n - len(weights) other ranks have the weight -mean_weight
    unseen = n - len(weights)
    moments = [float(fractions @ centered**power) for power in (2, 3, 4)]
    variance = moments[0] * (float(weights @ weights) + unseen * mean_weight**2) * n / (n - 1)
    worst, expected, best = case.bounds
    scale = float(case.value(case.counts)[0])
    deviation = math.sqrt(variance)
    if not deviation * scale > 1e-13 * max(1.0, abs(best)):
        return None
    head_ranks = _HEAD if len(gains) <= _FEW_LEVELS else _SHORT_HEAD
    head, tail = weights[:head_ranks], weights[head_ranks:]
    sums = [float((tail**power).sum()) + unseen * (-mean_weight) ** power for power in (2, 3, 4)]
    step = math.pi / (_WIDTH * deviation)
    frequencies = _FREQUENCIES if len(gains) > _FEW_LEVELS else _MOST_FREQUENCIES
    t = step * np.arange(frequencies)
    fourth = moments[2] - 3 * moments[0] ** 2
    correction = variance - moments[0] * (float(weights @ weights) + unseen * mean_weight**2)
    log_phi = (
        -(moments[0] * sums[0] + correction) * t**2 / 2
        - 1j * moments[1] * sums[1] * t**3 / 6
        + fourth * sums[2] * t**4 / 24
    )
    log_phi.real = np.minimum.accumulate(log_phi.real)  # where the expansion ends, it would grow again
    phi = np.exp(log_phi)
    together = max(1, _FACTORS // frequencies)
    for start in range(0, len(head), together):
        angles = np.multiply.outer(head[start : start + together], t)
        factors = np.zeros(angles.shape, dtype=np.complex128)
        for gain, fraction in zip(centered, fractions, strict=True):
            factors += fraction * np.exp(1j * gain * angles)
        phi = phi * factors.prod(axis=0)
    if abs(phi[-1]) > _TRUNCATED:
        return None  # few ranks decide, as with the discounts of RBP
    points = np.arange(_POINTS) - _POINTS // 2
    spectrum = np.zeros(_POINTS, dtype=np.complex128)
    spectrum[:frequencies] = phi
    spectrum[0] /= 2
    # p(x_j) = (1 / points) (2 Re sum_k phi_k exp(-i t_k x_j)), with x_j = j * 2 * width * deviation / points
    probabilities = np.roll(2 * np.fft.fft(spectrum).real / _POINTS, _POINTS // 2)
    scores = expected + scale * (2 * _WIDTH * deviation / _POINTS) * points
    too_small = np.flatnonzero(probabilities < _TAIL) - _POINTS // 2
    first, last = too_small[too_small < 0].max(initial=-_POINTS), too_small[too_small > 0].min(initial=_POINTS)
    real = (points > first) & (points < last) & (scores >= worst) & (scores <= best)
    scores, probabilities = scores[real], probabilities[real] / probabilities[real].sum()
    return scores + (expected - scores @ probabilities), probabilities
