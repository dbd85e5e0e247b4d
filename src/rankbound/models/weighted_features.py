"""Linear rankers, and the scale that makes their weights comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.models.base import FittedState, Ranker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists

__all__ = ["WeightedFeatures", "center_and_spread", "vary_within_queries"]


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


def vary_within_queries(features: NDArray[Any], lists: Lists) -> NDArray[np.bool_]:
    """Return which features differ within some query; the others cannot change a ranking.

    >>> from rankbound.lists import Lists
    >>> vary_within_queries(np.array([[1.0, 1.0], [2.0, 1.0], [2.0, 3.0]]), Lists([0, 1, 0], [0, 2, 3]))
    array([ True, False])
    """
    starts = lists.offsets[:-1][lists.sizes > 0]
    low, high = np.minimum.reduceat(features, starts), np.maximum.reduceat(features, starts)
    return np.asarray((low < high).any(axis=0))
