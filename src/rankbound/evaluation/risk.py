"""Risk: what a system loses against baselines on single queries, weighted more than what it gains.

URisk (Wang, Bennett and Collins-Thompson 2012) of the differences d to one baseline weighs a loss 1 + alpha times as
much as a gain. TRisk (Dinçer, Macdonald and Ounis 2014) divides it by its standard error: below -2 or above 2 it is
hardly an accident. GeoRisk (Dinçer, Macdonald and Ounis 2016) compares with all systems at once: the
expected value of a system on a query is that of a table without interaction, (its sum) (sum of the query) / (sum of
all), and the standardized deviations from it are weighed in the same way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rankbound.arrays import floats, is_between
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.resampling import check_differences, t_statistics

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def u_risk(differences: ArrayLike, alpha: float = 1.0) -> float:
    """URisk: the mean over queries of the gain, minus 1 + alpha times the loss; positive is better.

    >>> round(u_risk([0.2, 0.0, -0.1, 0.1], alpha=1), 4)  # (0.2 + 0.1 - 2 * 0.1) / 4
    0.025
    """
    return float(_weigh_losses(check_differences(differences), alpha).mean())


def t_risk(differences: ArrayLike, alpha: float = 1.0) -> float:
    """TRisk: URisk over its standard error, a t statistic; 0 where nothing differs, NaN for a single query.

    >>> round(t_risk([0.2, 0.0, -0.1, 0.1], alpha=1), 4)  # 0.025 / (0.1708 / 2)
    0.2928
    """
    d = check_differences(differences)
    if len(d) < 2:
        return math.nan
    return float(t_statistics(_weigh_losses(d, alpha)[:, None])[0])


def geo_risk(values: ArrayLike, alpha: float = 1.0) -> NDArray[np.float64]:
    """GeoRisk of each system of a table systems x queries of values that are not negative; larger is better.

    The geometric mean of the system's mean and Phi(ZRisk / queries).

    >>> geo_risk([[0.5, 0.5, 0.5], [0.9, 0.5, 0.1]], alpha=1).round(4).tolist()
    [0.4924, 0.4663]
    """
    from scipy.special import ndtr

    table = floats("values", values, ndim=2)
    if table.size == 0 or (table < 0).any():
        raise DataError("values must be systems x queries and not negative")
    _check_alpha(alpha)
    total = table.sum()
    expected = table.sum(axis=1)[:, None] * table.sum(axis=0)[None, :] / (total or 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(expected > 0, (table - expected) / np.sqrt(expected), 0.0)
    risk = np.where(z < 0, (1 + alpha) * z, z).sum(axis=1)
    return np.asarray(np.sqrt(table.mean(axis=1) * ndtr(risk / table.shape[1])))


def _weigh_losses(differences: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    _check_alpha(alpha)
    return np.where(differences < 0, (1 + alpha) * differences, differences)


def _check_alpha(alpha: float) -> None:
    if not is_between(alpha, -1e-300, math.inf):
        raise ArgumentError(f"alpha must be a number of at least 0, got {alpha}")
