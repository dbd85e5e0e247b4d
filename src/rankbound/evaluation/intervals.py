"""Confidence intervals of mean differences and of effect sizes.

Every function takes d = (value of one system) - (value of the other), one number per query, or queries x comparisons
for those that end in ``_columns``. The values of a single system work just as well: its mean then has the interval.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rankbound.evaluation.resampling import (
    ROUNDING,
    blocks,
    check_confidence,
    check_differences,
    check_resamples,
    resampled_means,
    standard_deviations,
    t_statistics,
)
from rankbound.sums import deviation_of, mean_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_LARGE_T = 200.0  # beyond, the normal part of the non-central t distribution does not matter
_SECANT_STEPS = 12
_ACCURACY = 1e-10  # of a normal quantile


def student_interval_columns(differences: ArrayLike, *, confidence: float = 0.95) -> NDArray[np.float64]:
    """Student's interval of the mean of each column, mean -+ t s / sqrt(n): 2 x comparisons.

    (NaN, NaN), on purpose, for a single query.

    >>> student_interval_columns([[1.0], [2.0], [3.0]]).round(4).tolist()  # 2 -+ 4.3027 / sqrt(3)
    [[-0.4841], [4.4841]]
    """
    d = check_differences(differences, ndim=2)
    check_confidence(confidence)
    return np.array([_student_interval(column, confidence) for column in d.T]).reshape(-1, 2).T


def _student_interval(numbers: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    if len(numbers) < 2:
        return float("nan"), float("nan")
    from scipy.special import stdtrit

    mean = mean_of(numbers)
    half = (
        float(stdtrit(len(numbers) - 1, 0.5 + confidence / 2)) * deviation_of(numbers, mean) / math.sqrt(len(numbers))
    )
    return mean - half, mean + half


def bootstrap_interval(
    differences: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int | np.random.Generator = 0,
    accelerated: bool = True,
) -> tuple[float, float]:
    """Bootstrap confidence interval of the mean difference, (low, high): queries are drawn with replacement.

    The bias-corrected and accelerated interval (BCa, Efron 1987) takes quantiles of the resampled means at levels that
    allow for the bias (how many resampled means lie below the mean) and for the skewness (from leaving out one query at
    a time). With ``accelerated=False`` it is the percentile interval: the quantiles at (1 -+ confidence) / 2.

    A single query has no spread to resample: the interval is (NaN, NaN), on purpose. If all differences are equal to d,
    the interval is (d, d).

    >>> bootstrap_interval([0.2, 0.2, 0.2])
    (0.2, 0.2)
    >>> low, high = bootstrap_interval([0.1, 0.3, -0.1, 0.2, 0.4, 0.0], seed=1)
    >>> low < 0.15 < high
    True
    """
    d = check_differences(differences)
    low, high = bootstrap_interval_columns(
        d[:, None], confidence=confidence, resamples=resamples, seed=seed, accelerated=accelerated
    )[:, 0]
    return float(low), float(high)


def bootstrap_interval_columns(
    differences: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int | np.random.Generator = 0,
    accelerated: bool = True,
) -> NDArray[np.float64]:
    """`bootstrap_interval` of many comparisons, resampled together: queries x comparisons to 2 x comparisons."""
    ends = bootstrap_intervals(differences, [confidence], resamples=resamples, seed=seed, accelerated=accelerated)
    return np.asarray(ends[0])


def bootstrap_intervals(
    differences: ArrayLike,
    confidences: list[float],
    *,
    resamples: int,
    seed: int | np.random.Generator,
    accelerated: bool,
) -> NDArray[np.float64]:
    """Intervals at several levels from the same draws: levels x 2 x comparisons."""
    d = check_differences(differences, ndim=2)
    check_resamples(resamples)
    for confidence in confidences:
        check_confidence(confidence)
    result = np.full((len(confidences), 2, d.shape[1]), np.nan)
    if len(d) == 1:
        return result
    d, mirrored = _canonical(d)
    for block in blocks(d.shape[1], resamples):
        means = resampled_means(d[:, block], resamples, seed)
        bias, skewness = _bias_and_skewness(d[:, block], means) if accelerated else (0.0, 0.0)
        means.sort(axis=1)
        for number, confidence in enumerate(confidences):
            tails = ((1 - confidence) / 2, (1 + confidence) / 2)
            for side, tail in enumerate(tails):
                result[number, side, block] = _row_quantiles(means, _level(tail, bias, skewness))
    constant = standard_deviations(d) == 0
    result[:, :, constant] = d[0, constant]
    result[:, :, mirrored] = -result[:, ::-1, mirrored]
    return result


def _canonical(d: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each column in ascending order, with opposite sign where the result marks it.

    The draws then depend neither on the order of the queries nor on which of two systems is the baseline: the interval
    of -d is that of d, mirrored.
    """
    ordered = np.sort(d, axis=0)
    balance = ordered + ordered[::-1]  # -d has -balance
    first = np.argmax(balance != 0, axis=0)
    mirrored = np.take_along_axis(balance, first[None, :], axis=0)[0] < 0
    return np.where(mirrored, -ordered[::-1], ordered), mirrored


def _level(
    tail: float, bias: NDArray[np.float64] | float, skewness: NDArray[np.float64] | float
) -> NDArray[np.float64] | float:
    """The level of the quantile that BCa takes for a tail of the normal distribution (Efron 1987, section 3)."""
    from scipy.special import ndtr, ndtri

    if isinstance(bias, float):
        return tail
    normal = bias + ndtri(tail)
    return np.asarray(ndtr(bias + normal / np.maximum(1 - skewness * normal, ROUNDING)))


def _bias_and_skewness(
    d: NDArray[np.float64], means: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from scipy.special import ndtri

    mean, resamples = d.mean(axis=0), means.shape[1]
    slack = ROUNDING * np.abs(d).mean(axis=0)
    below = (means < (mean - slack)[:, None]).mean(axis=1)
    above = (means > (mean + slack)[:, None]).mean(axis=1)
    below = below + 0.5 * (1 - below - above)  # resampled means that equal the mean count half
    if resamples > 1:  # at least one draw on either side, or the interval would shrink to a point
        bias = ndtri(np.clip(below, 1 / resamples, 1 - 1 / resamples))
    else:
        bias = np.zeros(len(below))
    # leaving out query i moves the mean by -(d_i - mean) / (n - 1); the common factor cancels
    centered = d - mean
    squares = (centered**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness = (centered**3).sum(axis=0) / (6 * squares**1.5)
    return bias, np.nan_to_num(skewness, posinf=0.0, neginf=0.0)


def _row_quantiles(rows: NDArray[np.float64], levels: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """A quantile of each row of sorted numbers, linear between neighbors, at a level of its own."""
    position = np.broadcast_to(levels, len(rows)) * (rows.shape[1] - 1)
    lower = np.floor(position).astype(np.int64)
    upper = np.minimum(lower + 1, rows.shape[1] - 1)
    index = np.arange(len(rows))
    low, high = rows[index, lower], rows[index, upper]
    return np.asarray(low + (high - low) * (position - lower))


def effect_size_interval(differences: ArrayLike, *, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of `effect_size`, (low, high), exact where the differences are normal.

    t = d_z sqrt(n) follows the non-central t distribution; the interval holds the non-centralities, over sqrt(n), that
    leave (1 - confidence) / 2 on either side of the observed t (Steiger and Fouladi 1997). It is (NaN, NaN), on
    purpose, where the differences have no spread: fewer than two queries, or all differences equal.

    >>> low, high = effect_size_interval([0.1, 0.3, 0.2, 0.4, 0.0])
    >>> round(low, 3), round(high, 3)
    (0.013, 2.447)
    """
    d = check_differences(differences)
    low, high = effect_size_interval_columns(d[:, None], confidence=confidence)[:, 0]
    return float(low), float(high)


def effect_size_interval_columns(differences: ArrayLike, *, confidence: float = 0.95) -> NDArray[np.float64]:
    """`effect_size_interval` of many comparisons: queries x comparisons to 2 x comparisons."""
    d = check_differences(differences, ndim=2)
    check_confidence(confidence)
    result = np.full((2, d.shape[1]), np.nan)
    spread = standard_deviations(d) > 0
    if spread.any():
        t, tail = t_statistics(d[:, spread]), (1 - confidence) / 2
        for side, below in enumerate((1 - tail, tail)):
            result[side, spread] = non_centralities(len(d) - 1, below, t) / np.sqrt(len(d))
    return result


def non_centralities(freedom: int, below: float, t: NDArray[np.float64]) -> NDArray[np.float64]:
    """The non-centralities c for which a non-central t variable lies below t with probability ``below``.

    In units of the normal distribution that probability is nearly linear in c, so that the secant method needs few
    steps. Beyond |t| = 200 the variable is c / sqrt(chi^2 / freedom) but for a vanishing part.
    """
    from scipy.special import chdtri, nctdtr, ndtri

    upper = np.where(t > 0, below, 1 - below)
    result = np.asarray(t * np.sqrt(chdtri(freedom, upper) / freedom))  # chdtri: the upper tail of chi^2
    near = np.abs(t) <= _LARGE_T
    if not near.any():
        return result
    seen = t[near]
    scale = np.sqrt(1 + seen**2 / (2 * freedom))
    target = ndtri(below)

    def gap(center: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(ndtri(np.clip(nctdtr(freedom, center, seen), 1e-300, 1 - 1e-16)) - target)

    last = seen - target * scale
    gap_last = gap(last)
    center = last + 0.1 * scale * np.sign(gap_last)
    for _ in range(_SECANT_STEPS):
        gap_now = gap(center)
        if np.nanmax(np.abs(gap_now)) < _ACCURACY:
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            step = gap_now * (center - last) / (gap_now - gap_last)
        last, gap_last = center, gap_now
        center = center - np.where(np.isfinite(step), step, 0.0)
    result[near] = center
    return result
