"""Linear rankers, and the scale that makes their weights comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.models.base import FittedState, Ranker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists

__all__ = ["WeightedFeatures", "center_and_spread", "heavy_tailed", "signed_log1p", "vary_within_queries"]

_HEAVY_TAIL = 6.0  # the kurtosis of the Laplace distribution; normal 3, exponential 9
_CLEAR_DECREASE = 0.5


class WeightedFeatures(Ranker):
    """A linear model: score = features · ``coef_``, plus ``intercept_`` if it predicts labels."""

    coef_: NDArray[np.float64]
    intercept_: float = 0.0

    def _scores(self, features: NDArray[Any]) -> NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
            return np.asarray(features.astype(np.float64, copy=False) @ self.coef_ + self.intercept_)

    def _fitted_state(self) -> FittedState:
        return FittedState({"coef": self.coef_, "intercept": np.array([self.intercept_])})

    def _restore_state(self, state: FittedState) -> None:
        self.coef_, self.intercept_ = state.arrays["coef"], float(state.arrays["intercept"][0])


def center_and_spread(
    features: NDArray[Any], weights: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and standard deviation of each feature over weighted rows; 1 as deviation of constant features.

    >>> mean, deviation = center_and_spread(np.array([[0.0, 5.0], [4.0, 5.0]]))
    >>> mean.tolist(), deviation.tolist()
    ([2.0, 5.0], [2.0, 1.0])
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of extremely large values; the fit is then refused
        wide = features.astype(np.float64, copy=False)
        mean = np.average(wide, axis=0, weights=weights)
        deviation = np.sqrt(np.average((wide - mean) ** 2, axis=0, weights=weights))
    # the deviation of equal numbers can be rounded to slightly more than 0
    varies = deviation > 1e-9 * np.abs(features).max(axis=0).astype(np.float64)
    return mean, np.where(varies, deviation, 1.0)


def signed_log1p(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return sign(x) log(1 + |x|), an odd and increasing function that shortens both tails.

    >>> signed_log1p(np.array([-1.0, 0.0, np.e - 1])).tolist() == [-np.log(2), 0.0, 1.0]
    True
    """
    wide = values.astype(np.float64, copy=False)
    return np.asarray(np.copysign(np.log1p(np.abs(wide)), wide))


def heavy_tailed(features: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which features have heavy tails that `signed_log1p` shortens.

    The kurtosis of such a feature, E (x - E x)⁴ / (E (x - E x)²)² over the rows, is above 6, and the transformation at
    least halves it. A feature with values from 0 to 1 is therefore left as it is, because the logarithm is almost
    linear there, and so is one with two values, whose kurtosis no transformation changes. A constant feature has no
    tails.

    >>> rng = np.random.default_rng(0)
    >>> normal, heavy = rng.normal(size=1000), rng.lognormal(2, 2, size=1000)
    >>> heavy_tailed(np.stack((normal, heavy, -heavy, heavy / heavy.max(), heavy > 50), axis=1)).tolist()
    [False, True, True, False, False]
    """
    result = np.zeros(features.shape[1], dtype=np.bool_)
    for column in range(len(result)):  # one at a time, because a copy of all features may be large
        values = features[:, column].astype(np.float64)
        before = _kurtosis(values)
        if before > _HEAVY_TAIL:
            result[column] = _kurtosis(signed_log1p(values)) <= _CLEAR_DECREASE * before
    return result


def _kurtosis(values: NDArray[np.float64]) -> float:
    """Return the fourth standardized moment; 0 for equal values.

    >>> _kurtosis(np.array([-1.0, 1.0])), _kurtosis(np.array([3.0, 3.0]))
    (1.0, 0.0)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = center_and_spread(values[:, None])
        return float(np.mean(((values - mean[0]) / deviation[0]) ** 4))


def vary_within_queries(features: NDArray[Any], lists: Lists) -> NDArray[np.bool_]:
    """Return which features differ within some query; the others cannot change a ranking.

    >>> from rankbound.lists import Lists
    >>> vary_within_queries(np.array([[1.0, 1.0], [2.0, 1.0], [2.0, 3.0]]), Lists([0, 1, 0], [0, 2, 3]))
    array([ True, False])
    """
    starts = lists.offsets[:-1][lists.sizes > 0]
    low, high = np.minimum.reduceat(features, starts), np.maximum.reduceat(features, starts)
    return np.asarray((low < high).any(axis=0))
