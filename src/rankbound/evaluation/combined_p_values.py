"""Combine the p-values of many queries into one: do they, all together, look like those of random rankings?

The hypothesis that is tested is the same everywhere: no query is better than random. The methods differ in what they
look for and in what they assume:

====================  ============================================  ============================================
method                most sensitive to                             level holds
====================  ============================================  ============================================
`fisher`              many queries that are somewhat better         if the p-values are independent
`higher_criticism`    a few queries that are clearly better         if the p-values are independent
`harmonic_mean`       a few queries that are much better            whatever the dependence is
====================  ============================================  ============================================
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import ArgumentError
from rankbound.evaluation.resampling import check_resamples

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_SMALLEST = 1e-300  # its logarithm, reciprocal and square root are finite
_CELLS = 4_000_000  # random numbers in memory at a time
_MOST_CELLS = 400_000_000  # random numbers in all


def fisher(p_values: ArrayLike) -> float:
    """Fisher's combination: P(chi-squared with 2m degrees of freedom >= -2 * sum of ln p) of m p-values.

    Exact for independent p-values that are uniform under the hypothesis. The p-values of a discrete distribution are
    larger than that, and the result is conservative. Mid-p-values (Lancaster, Significance tests in discrete
    distributions, 1961) make up for it. Each is the mean of a uniform variable given the data, so the mean of -2 ln p
    is at most 2, as it is for uniform p-values, and the level holds closely though it is not guaranteed
    (Rubin-Delanchy, Heard & Lawson, Meta-analysis of mid-p-values: some new results based on the convex order, 2019).
    1 without any p-value.

    >>> round(fisher([0.01, 0.04, 0.5]), 5)
    0.00916
    """
    from scipy.special import chdtrc

    p = _checked(p_values)
    return float(chdtrc(2 * len(p), -2 * np.log(p).sum())) if len(p) else 1.0


def harmonic_mean(p_values: ArrayLike) -> float:
    """The harmonic mean of m p-values times the factor that makes it a p-value under any dependence, at most 1.

    The factor is 2 for m = 2 and about ln m for many (7.5 for 100); Vovk & Wang, Combining p-values via averaging
    (2020), proposition 6. Wilson (The harmonic mean p-value for combining dependent tests, 2019) uses the harmonic mean
    almost without a factor, which is valid approximately and for small p-values. 1 without any p-value.

    >>> round(harmonic_mean([0.01, 0.04]), 4)  # 2 * 2 / (1 / 0.01 + 1 / 0.04)
    0.032
    """
    p = _checked(p_values)
    return min(1.0, _harmonic_factor(len(p)) * len(p) / float((1 / p).sum())) if len(p) else 1.0


def _harmonic_factor(m: int) -> float:
    if m <= 2:
        return float(m)
    from scipy.optimize import brentq

    y = brentq(lambda y: y * y - m * ((y + 1) * np.log1p(y) - y), 1e-3, 1e3 * m)
    return float((y + m) ** 2 / ((y + 1) * m))


def higher_criticism(p_values: ArrayLike, *, resamples: int = 10_000, seed: int = 0) -> float:
    """Higher criticism of m p-values: how far the fraction of small p-values exceeds what uniform ones give.

    The statistic of Donoho & Jin (Higher criticism for detecting sparse heterogeneous mixtures, 2004) is the maximum of
    sqrt(m) (i/m - p_i) / sqrt(p_i (1 - p_i)) over the smaller half of the sorted p-values p_1 <= p_2 <= ... It
    falls when any p-value grows, so p-values that are larger than uniform ones make it conservative. The result is its
    Monte Carlo p-value, (1 + number of samples that reach it) / (1 + resamples), from samples of m uniform variables;
    above 40,000 p-values fewer samples are drawn. It is at least 1 / (1 + resamples). 1 without any p-value.

    >>> higher_criticism([0.001, 0.002, 0.004, 0.3, 0.6, 0.9]) < 0.01
    True
    """
    check_resamples(resamples)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ArgumentError(f"seed must be an integer of at least 0, got {seed!r}")
    p = _checked(p_values)
    if len(p) == 0:
        return 1.0
    half = (len(p) + 1) // 2
    observed = _criticism(np.sort(p)[None, :half], len(p))[0]
    draws = min(resamples, max(1000, _MOST_CELLS // len(p)))
    reached = int((_random_criticisms(len(p), draws, int(seed)) >= observed).sum())
    return (1 + reached) / (1 + draws)


@lru_cache(maxsize=4)  # the systems of a comparison have equally many queries
def _random_criticisms(m: int, draws: int, seed: int) -> NDArray[np.float64]:
    """The statistics of samples of m uniform variables."""
    rng, half, rows = np.random.default_rng(seed), (m + 1) // 2, max(1, _CELLS // (m + 1))
    parts = []
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        sums = np.cumsum(rng.standard_exponential((size, m + 1)), axis=1)  # sorted uniform variables, scaled
        parts.append(_criticism(sums[:, :half] / sums[:, -1:], m))
    return np.concatenate(parts)


def _criticism(smallest: NDArray[np.float64], m: int) -> NDArray[np.float64]:
    """The statistic of each row, which holds the smaller half of m p-values in ascending order."""
    p = np.clip(smallest, _SMALLEST, 1 - 1e-16)
    expected = np.arange(1, p.shape[1] + 1) / m
    return np.asarray((np.sqrt(m) * (expected - p) / np.sqrt(p * (1 - p))).max(axis=1))


def _checked(values: ArrayLike) -> NDArray[np.float64]:
    p = floats("p_values", values)
    if ((p < 0) | (p > 1)).any():
        raise ArgumentError(f"p_values must be numbers between 0 and 1 in one dimension, got {values!r}")
    return np.maximum(p, _SMALLEST)
