"""Is the difference real? Paired tests, intervals and corrections on arrays of per-query differences.

Everything here takes d = (value of one system) - (value of the other), one number per query, and asks about its mean.
Where the queries hold no evidence (all differences zero, a single query for the t test) a p-value is 1, never NaN. All
tests are two-sided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankbound.arrays import floats, is_between
from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "WinTieLoss",
    "benjamini_hochberg",
    "bootstrap_interval",
    "bootstrap_interval_columns",
    "effect_size",
    "effect_size_interval",
    "holm",
    "paired_t",
    "paired_t_columns",
    "randomization",
    "randomization_columns",
    "studentized_bootstrap",
    "studentized_bootstrap_columns",
    "wilcoxon",
    "win_tie_loss",
]

EXACT_RANDOMIZATION = 18  # up to this many non-zero differences all 2^n sign patterns are gone through
EXACT_WILCOXON = 50  # up to this many the distribution of the rank sum is computed exactly
_CHUNK = 1 << 17  # random numbers drawn at a time: few enough to stay in the cache
_LARGEST = 1e90  # cubes of differences, and their sums, are numbers
_ROUNDING = 1e-12  # sums that differ by less than this share are equal


def effect_size(differences: ArrayLike) -> float:
    """Mean difference over the standard deviation of the differences (Cohen's d for pairs, d_z).

    0 where all differences are zero. NaN, on purpose, where there is no standard deviation: fewer than two queries, or
    all differences equal but not zero.

    >>> round(effect_size([0.1, 0.3, 0.2]), 6)  # 0.2 / 0.1
    2.0
    """
    d = _differences(differences)
    if not d.any():
        return 0.0
    spread = _spread(d)
    return float(d.mean() / spread) if spread > 0 else float("nan")


def effect_size_interval(differences: ArrayLike, *, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of `effect_size`, (low, high), exact where the differences are normal.

    t = d_z sqrt(n) follows the non-central t distribution; the interval holds the non-centralities, over sqrt(n),
    that leave
    (1 - confidence) / 2 on either side of the t that was seen (Steiger and Fouladi 1997). (NaN, NaN), on purpose, where
    the effect size has no spread to be measured in: fewer than two queries, or all differences equal.

    >>> low, high = effect_size_interval([0.1, 0.3, 0.2, 0.4, 0.0])
    >>> round(low, 3), round(high, 3)
    (0.013, 2.447)
    """
    d = _differences(differences)
    _check_confidence(confidence)
    if _spread(d) == 0:
        return float("nan"), float("nan")
    from scipy.optimize import brentq
    from scipy.special import nctdtr

    freedom, root = len(d) - 1, np.sqrt(len(d))
    t = effect_size(d) * root
    reach = 10 + abs(t)  # the distribution of t around its non-centrality has a spread of about 1 + |t| / sqrt(2n)

    def below(center: float) -> float:
        share = float(nctdtr(freedom, center, t))
        return share if np.isfinite(share) else float(center < t)  # scipy gives NaN far out in the tails

    def non_centrality(share_below: float) -> float:
        return float(brentq(lambda center: below(center) - share_below, t - reach, t + reach))

    tail = (1 - confidence) / 2
    return float(non_centrality(1 - tail) / root), float(non_centrality(tail) / root)


def paired_t(differences: ArrayLike) -> float:
    """p-value of Student's paired t test: t = mean(d) / (s / sqrt(n)) with n - 1 degrees of freedom.

    1 with fewer than two queries or where all differences are zero; 0, the limit, where all are equal and not zero.

    >>> round(paired_t([1.0, 2.0, 3.0]), 6)  # t = 2 sqrt(3), 2 degrees of freedom
    0.07418
    """
    return float(paired_t_columns(_differences(differences)[:, None])[0])


def paired_t_columns(differences: ArrayLike) -> NDArray[np.float64]:
    """`paired_t` of many comparisons: queries x comparisons, one p-value for each column.

    >>> paired_t_columns([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]).round(6).tolist()
    [0.07418, 1.0]
    """
    from scipy.special import stdtr

    d = _differences(differences, ndim=2)
    if len(d) < 2:
        return np.ones(d.shape[1])
    return np.asarray(2 * stdtr(len(d) - 1, -np.abs(_t_statistics(d))))


def wilcoxon(differences: ArrayLike) -> float:
    """p-value of Wilcoxon's signed-rank test; differences of zero are left out (Wilcoxon 1945).

    W, the sum of the ranks of |d| over positive d, has mean S/2 and variance sum(rank^2)/4 when every sign is a coin
    toss, S the sum of all ranks. Tied |d| share their mean rank. Up to 50 non-zero differences the distribution of W
    is exact,
    ties included (twice a mean rank is whole, so the sums lie on a grid); beyond, it is normal without continuity
    correction.

    >>> wilcoxon([0.1, 0.2, 0.3, 0.4, 0.5])  # 2 of the 32 sign patterns are as extreme
    0.0625
    """
    d = _differences(differences)
    d = d[d != 0]
    if len(d) == 0:
        return 1.0
    ranks = _mean_ranks(np.abs(d))
    gap = abs(2 * ranks[d > 0].sum() - ranks.sum())  # |W+ - W-|
    if len(d) > EXACT_WILCOXON:
        from scipy.special import ndtr

        return float(min(1.0, 2 * ndtr(-gap / np.sqrt((ranks**2).sum()))))
    steps = np.rint(2 * ranks).astype(np.int64)
    total = int(steps.sum())
    distribution = np.zeros(total + 1)  # distribution[w]: share of sign patterns with 2 W+ = w
    distribution[0] = 1.0
    for step in steps:
        distribution[step:] = 0.5 * (distribution[step:] + distribution[: total + 1 - step])
        distribution[:step] *= 0.5
    extreme = np.abs(2 * np.arange(total + 1) - total) >= np.rint(2 * gap)
    return float(min(1.0, distribution[extreme].sum()))


def randomization(differences: ArrayLike, *, resamples: int = 10_000, seed: int | np.random.Generator = 0) -> float:
    """p-value of Fisher's randomization (sign-flip) test of the mean: what if the systems changed places at random?

    The share of the 2^n ways to flip signs that give a |mean| at least as large. Up to 18 non-zero differences all ways
    are gone through; beyond, ``resamples`` of them are drawn and p = (1 + hits) / (1 + resamples), which is never 0
    (Phipson and Smyth 2010).

    >>> randomization([0.1, 0.2, 0.3])  # only +++ and --- are as extreme, of 8
    0.25
    """
    d = _differences(differences)
    return float(randomization_columns(d[:, None], resamples=resamples, seed=seed)[0])


def randomization_columns(
    differences: ArrayLike, *, resamples: int = 10_000, seed: int | np.random.Generator = 0
) -> NDArray[np.float64]:
    """`randomization` of many comparisons: queries x comparisons, every column tested with the same draws.

    >>> randomization_columns([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]]).tolist()
    [0.25, 1.0]
    """
    d = _differences(differences, ndim=2)
    _check_resamples(resamples)
    p = np.ones(d.shape[1])
    drawn = []
    for column, values in enumerate(d.T):
        moving = values[values != 0]  # flipping a zero changes nothing
        if len(moving) > EXACT_RANDOMIZATION:
            drawn.append(column)
        elif len(moving):
            p[column] = _all_sign_flips(moving)
    if drawn:
        p[drawn] = _drawn_sign_flips(d[:, drawn], resamples, np.random.default_rng(seed))
    return p


def bootstrap_interval(
    differences: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int | np.random.Generator = 0,
) -> tuple[float, float]:
    """Bootstrap confidence interval of the mean difference, (low, high): queries drawn anew with replacement.

    The bias-corrected and accelerated interval (BCa, Efron 1987): quantiles of the resampled means at levels that allow
    for the bias (how many resampled means lie below the mean) and the skewness (from leaving out one query at a time).

    One query has no spread to resample: the interval is (NaN, NaN), on purpose. All differences equal give (d, d).

    >>> bootstrap_interval([0.2, 0.2, 0.2])
    (0.2, 0.2)
    >>> low, high = bootstrap_interval([0.1, 0.3, -0.1, 0.2, 0.4, 0.0], seed=1)
    >>> low < 0.15 < high
    True
    """
    d = _differences(differences)
    low, high = bootstrap_interval_columns(d[:, None], confidence=confidence, resamples=resamples, seed=seed)[:, 0]
    return float(low), float(high)


def bootstrap_interval_columns(
    differences: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int | np.random.Generator = 0,
) -> NDArray[np.float64]:
    """`bootstrap_interval` of many comparisons: queries x comparisons resampled together, to 2 x comparisons."""
    d = _differences(differences, ndim=2)
    _check_resamples(resamples)
    _check_confidence(confidence)
    if len(d) == 1:
        return np.full((2, d.shape[1]), np.nan)
    means = _resampled_means(d, resamples, np.random.default_rng(seed))
    return np.stack([_bca(column, means[:, c], confidence) for c, column in enumerate(d.T)], axis=1)


def studentized_bootstrap(
    differences: ArrayLike, *, resamples: int = 1000, seed: int | np.random.Generator = 0
) -> float:
    """Achieved significance level of Sakai's paired bootstrap test (2006): how often probability alone gives a |t|
    as large.

    Queries are drawn anew from the differences minus their mean, where the hypothesis of no difference holds; t is the
    mean over its standard error in each draw. 1 with fewer than two queries or where all differences are zero; 0, the
    limit, where all are equal and not zero.

    >>> d = [0.12, 0.05, 0.2, -0.03, 0.1, 0.08, 0.15, 0.02]
    >>> 0.001 < studentized_bootstrap(d) < 0.05
    True
    """
    d = _differences(differences)
    return float(studentized_bootstrap_columns(d[:, None], resamples=resamples, seed=seed)[0])


def studentized_bootstrap_columns(
    differences: ArrayLike, *, resamples: int = 1000, seed: int | np.random.Generator = 0
) -> NDArray[np.float64]:
    """`studentized_bootstrap` of many comparisons: queries x comparisons, every column tested with the same draws."""
    d = _differences(differences, ndim=2)
    _check_resamples(resamples)
    queries = len(d)
    if queries < 2:
        return np.ones(d.shape[1])
    seen = np.abs(_t_statistics(d))
    centered = d - d.mean(axis=0)
    # drawn together with their squares: the variance of a draw is the mean of squares minus the square of the mean
    moments = _resampled_means(np.hstack([centered, centered**2]), resamples, np.random.default_rng(seed))
    mean, square = moments[:, : d.shape[1]], moments[:, d.shape[1] :]
    noise = _ROUNDING * (centered**2).mean(axis=0)
    variance = square - mean**2
    variance[variance <= noise] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.abs(mean) / np.sqrt(variance / (queries - 1))
    drawn[np.isnan(drawn)] = 0.0
    level = (drawn >= seen * (1 - _ROUNDING)).mean(axis=0)
    return np.asarray(np.select([seen == 0, np.isinf(seen)], [1.0, 0.0], level))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down correction (1979): the i-th smallest of m p-values times m - i + 1, made monotone, at most 1.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[np.float64]:
    """Benjamini and Hochberg's correction (1995), which bounds the share of false findings among all findings.

    The i-th smallest of m p-values times m / i, made monotone from the largest down.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    p = _p_values(p_values)
    order = np.argsort(-p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    return corrected


@dataclass(frozen=True, slots=True)
class WinTieLoss:
    """On how many queries the difference is positive, zero, negative."""

    wins: int
    ties: int
    losses: int


def win_tie_loss(differences: ArrayLike) -> WinTieLoss:
    """Count the queries with a positive, a zero and a negative difference.

    >>> win_tie_loss([0.2, 0.0, -0.1, 0.3])
    WinTieLoss(wins=2, ties=1, losses=1)
    """
    d = _differences(differences)
    return WinTieLoss(int((d > 0).sum()), int((d == 0).sum()), int((d < 0).sum()))


# ---- the machinery ---------------------------------------------------------------------------------------------------


def _differences(values: ArrayLike, ndim: int = 1) -> NDArray[np.float64]:
    d = floats("differences", values, ndim=None)
    if d.ndim != ndim or len(d) == 0:
        raise DataError(f"differences must hold one number per query, got shape {d.shape}")
    largest = np.abs(d).max(axis=0, initial=0.0)
    if ((largest != 0) & ~((largest > 1 / _LARGEST) & (largest < _LARGEST))).any():
        raise DataError(
            f"the largest of the differences must be 0 or lie between {1 / _LARGEST:g} and {_LARGEST:g}, got {largest}"
        )
    return d


def _check_resamples(resamples: int) -> None:
    if not isinstance(resamples, (int, np.integer)) or resamples < 1:
        raise ArgumentError(f"resamples must be a positive integer, got {resamples}")


def _check_confidence(confidence: float) -> None:
    if not is_between(confidence, 0, 1):
        raise ArgumentError(f"confidence must lie between 0 and 1, got {confidence}")


def _p_values(values: ArrayLike) -> NDArray[np.float64]:
    p = floats("p_values", values)
    if ((p < 0) | (p > 1)).any():
        raise ArgumentError(f"p_values must be numbers between 0 and 1 in one dimension, got {values!r}")
    return p


def _t_statistics(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over standard error of each column; 0 where all differences are zero, infinite where equal and not zero."""
    spread = np.where((d == d[0]).all(axis=0), 0.0, d.std(axis=0, ddof=1))
    mean = np.where(d.any(axis=0), d.mean(axis=0), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = mean / (spread / np.sqrt(len(d)))
    return np.asarray(np.where(np.isnan(t), 0.0, t))


def _spread(d: NDArray[np.float64]) -> float:
    """Sample standard deviation; exactly 0 where all differences are equal or there is only one."""
    return 0.0 if len(d) < 2 or (d == d[0]).all() else float(d.std(ddof=1))


def _mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1, ascending; equal values share the mean of their ranks."""
    _, code, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[code]


def _at_least(sums: NDArray[np.float64], differences: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Flipped sums (flips x comparisons) that are no smaller than that of the differences (queries x comparisons)."""
    slack = _ROUNDING * np.abs(differences).sum(axis=0)
    return np.asarray(np.abs(sums) >= np.abs(differences.sum(axis=0)) - slack)


def _all_sign_flips(d: NDArray[np.float64]) -> float:
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate((sums + value, sums - value))
    return float(_at_least(sums, d).mean())


def _drawn_sign_flips(d: NDArray[np.float64], resamples: int, random: np.random.Generator) -> NDArray[np.float64]:
    queries = len(d)
    hits = np.zeros(d.shape[1])
    for rows in _chunks(resamples, queries):
        bits = np.unpackbits(np.frombuffer(random.bytes(-(-rows * queries // 8)), np.uint8), count=rows * queries)
        # sum of d with flipped signs = sum(d) - 2 sum(d where flipped)
        sums = d.sum(axis=0) - 2 * (bits.reshape(rows, queries).astype(np.float64) @ d)
        hits += _at_least(sums, d).sum(axis=0)
    return np.asarray((1 + hits) / (1 + resamples))


def _resampled_means(d: NDArray[np.float64], resamples: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Means of queries drawn with replacement, resamples x comparisons."""
    queries = len(d)
    means = []
    for rows in _chunks(resamples, queries):
        drawn = random.integers(queries, size=(rows, queries), dtype=np.int32)
        drawn = drawn.astype(np.int64) + np.arange(rows)[:, None] * queries
        times = np.bincount(drawn.ravel(), minlength=rows * queries).reshape(rows, queries)
        means.append(times.astype(np.float64) @ d / queries)
    return np.concatenate(means)


def _chunks(resamples: int, queries: int) -> list[int]:
    """Rows to draw at a time, so that memory stays bounded whatever the number of queries."""
    rows = max(1, _CHUNK // queries)
    return [min(rows, resamples - start) for start in range(0, resamples, rows)]


def _bca(d: NDArray[np.float64], means: NDArray[np.float64], confidence: float) -> NDArray[np.float64]:
    if _spread(d) == 0:
        return np.array([d[0], d[0]])
    from scipy.special import ndtr, ndtri

    slack = _ROUNDING * np.abs(d).mean()
    below = (means < d.mean() - slack).mean() + 0.5 * (np.abs(means - d.mean()) <= slack).mean()
    # one resample at least on either side, or the interval would shrink to a point
    bias = ndtri(np.clip(below, 1 / len(means), 1 - 1 / len(means))) if len(means) > 1 else 0.0
    # leaving out query i moves the mean by -(d_i - mean) / (n - 1); the common factor cancels
    centered = d - d.mean()
    skewness = (centered**3).sum() / (6 * (centered**2).sum() ** 1.5)
    tail = (1 - confidence) / 2
    normal = bias + ndtri(np.array([tail, 1 - tail]))
    levels = ndtr(bias + normal / np.maximum(1 - skewness * normal, _ROUNDING))
    return np.asarray(np.quantile(means, levels))
