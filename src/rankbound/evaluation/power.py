"""How large must a difference be, or how many queries does a comparison need, to be found significant?"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from rankbound.arrays import floats, is_between
from rankbound.errors import ArgumentError
from rankbound.evaluation.intervals import non_centralities
from rankbound.evaluation.resampling import check_differences, standard_deviations

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_MOST_QUERIES = 10**9


@overload
def minimum_detectable_difference(
    differences: ArrayLike, *, queries: int | None = None, alpha: float = 0.05, power: float = 0.8
) -> float: ...
@overload
def minimum_detectable_difference(
    differences: None = None, *, sd: float, queries: int, alpha: float = 0.05, power: float = 0.8
) -> float: ...


def minimum_detectable_difference(
    differences: ArrayLike | None = None,
    *,
    sd: float | None = None,
    queries: int | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float:
    """The smallest true mean difference that a two-sided paired t test finds with the given power.

    delta s_d / sqrt(n) with n queries and s_d the standard deviation of the per-query differences. delta is the
    non-centrality at which the t statistic, which follows the non-central t distribution with n - 1 degrees of freedom,
    exceeds its critical value t_{alpha/2, n-1} with probability ``power``. The textbook formula, delta =
    t_{alpha/2, n-1} + t_{1 - power, n-1}, is more than 5 % too small with few queries and a corrected level.

    Parameters
    ----------
    differences:
        Per-query differences, from which ``sd`` and, unless it is given, ``queries`` are taken.
    sd, queries:
        The standard deviation of the differences and the number of queries, without any data.
    alpha:
        The level of the test; divide it by the number of tests for a corrected comparison.
    power:
        The probability with which the difference is to be found.

    NaN, on purpose, for fewer than two queries, which have no standard deviation.

    >>> round(minimum_detectable_difference(sd=0.2, queries=50), 4)
    0.0808
    >>> round(minimum_detectable_difference([0.1, 0.3, 0.2, 0.4, 0.0], queries=100), 4)
    0.0447
    """
    if (differences is None) == (sd is None):
        both = "neither" if sd is None else "both"
        raise ArgumentError(f"minimum_detectable_difference needs either differences or sd, got {both}")
    if differences is not None:
        d = check_differences(differences)
        sd, queries = float(standard_deviations(d[:, None])[0]), len(d) if queries is None else queries
        if len(d) < 2:
            return float("nan")
    elif queries is None:
        raise ArgumentError("minimum_detectable_difference needs queries, the number of them, with sd")
    assert sd is not None
    return float(detectable(np.array([sd]), _checked_queries(queries), alpha, power)[0])


def detectable(sd: NDArray[np.float64], queries: int, alpha: float, power: float) -> NDArray[np.float64]:
    """`minimum_detectable_difference` for several standard deviations."""
    from scipy.special import stdtrit

    _check_levels(alpha, power)
    sd = floats("sd", sd)
    if (sd < 0).any():
        raise ArgumentError(f"sd must not be negative, got {sd.min()}")
    if queries < 2:
        return np.full(len(sd), np.nan)
    critical = -stdtrit(queries - 1, alpha / 2)
    center = non_centralities(queries - 1, 1 - power, np.array([critical]))[0]
    return np.asarray(max(center, 0.0) * sd / np.sqrt(queries))


def detection_power(difference: float, *, sd: float, queries: int, alpha: float = 0.05) -> float:
    """The probability that a two-sided paired t test finds a true mean difference, exact for normal differences.

    The t statistic follows the non-central t distribution with non-centrality difference sqrt(n) / sd.

    >>> round(detection_power(0.0808, sd=0.2, queries=50), 3)  # the minimum detectable difference at a power of 0.8
    0.8
    >>> round(detection_power(0.0, sd=0.2, queries=50), 6)  # no difference: the level of the test
    0.05
    """
    from scipy.special import nctdtr, stdtrit

    _check_levels(alpha, 0.5)
    if not (np.isfinite(difference) and np.isfinite(sd) and sd >= 0):
        raise ArgumentError(f"difference and sd must be finite and sd not negative, got {difference} and {sd}")
    if _checked_queries(queries) < 2:
        return 0.0
    if sd == 0:
        return float(difference != 0)
    freedom = queries - 1
    center = abs(difference) * np.sqrt(queries) / sd
    critical = -stdtrit(freedom, alpha / 2)
    below, lower = (float(np.nan_to_num(nctdtr(freedom, center, t))) for t in (critical, -critical))
    return min(1.0, max(0.0, 1 - below + lower))


def queries_needed(difference: float, *, sd: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """The number of queries from which on the minimum detectable difference is at most ``difference``.

    >>> queries_needed(0.081, sd=0.2)
    50
    """
    if not (np.isfinite(difference) and difference > 0):
        raise ArgumentError(f"difference must be a positive number, got {difference}")
    from scipy.special import ndtri

    _check_levels(alpha, power)
    spread = np.array([sd])
    first = ((ndtri(1 - alpha / 2) + ndtri(power)) * sd / difference) ** 2  # for the normal distribution, a little less
    if not first < _MOST_QUERIES:
        raise ArgumentError(f"difference must be at least {sd} / 10,000 or so to be found at all, got {difference}")

    def is_enough(queries: int) -> bool:
        return bool(detectable(spread, queries, alpha, power)[0] <= difference)

    low = high = max(2, int(first))
    step = 1
    while not is_enough(high):
        low, high, step = high + 1, high + step, 2 * step
    while low > 2 and is_enough(low - 1):
        low, high = max(2, low - step), low - 1
        step *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return high


def _checked_queries(queries: int) -> int:
    if isinstance(queries, bool) or not isinstance(queries, (int, np.integer)) or queries < 1:
        raise ArgumentError(f"queries must be a positive integer, got {queries!r}")
    return int(queries)


def _check_levels(alpha: float, power: float) -> None:
    for name, level in (("alpha", alpha), ("power", power)):
        if not is_between(level, 0, 1):
            raise ArgumentError(f"{name} must lie between 0 and 1, got {level}")
