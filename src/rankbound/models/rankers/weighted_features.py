"""Linear rankers, and the scale that makes their weights comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.models.base import FittedState, Ranker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists

BLOCK_VALUES = 1 << 23  # of features that are converted at a time: 64 MB in float64

_HEAVY_TAIL = 6.0  # the kurtosis of the Laplace distribution; normal 3, exponential 9
_CLEAR_DECREASE = 0.5


class WeightedFeatures(Ranker):
    """A linear model: score = features · ``coef_``, plus ``intercept_`` if it predicts labels."""

    coef_: NDArray[np.float64]
    intercept_: float = 0.0

    def _scores(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
            return np.asarray(features.astype(np.float64, copy=False) @ self.coef_ + self.intercept_)

    def _fitted_state(self) -> FittedState:
        return FittedState({"coef": self.coef_, "intercept": np.array([self.intercept_])})

    def _restore_state(self, state: FittedState) -> None:
        self.coef_, self.intercept_ = state.arrays["coef"], float(state.arrays["intercept"][0])


def center_and_spread(
    features: NDArray[np.floating],
    weights: NDArray[np.float64] | None = None,
    transform: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and standard deviation of each feature over weighted rows; 1 as deviation of constant features.

    ``transform`` is applied to rows of the features before.

    >>> mean, deviation = center_and_spread(np.array([[0.0, 5.0], [4.0, 5.0]]))
    >>> mean.tolist(), deviation.tolist()
    ([2.0, 5.0], [2.0, 1.0])
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of extremely large values; the fit is then refused
        mean = _average(transform, features, weights)
        deviation = np.sqrt(_average(lambda block: (transform(block) - mean) ** 2, features, weights))
    # the deviation of equal numbers can be rounded to slightly more than 0
    largest = np.max([np.abs(transform(features[rows])).max(axis=0) for rows in row_blocks(features)], axis=0)
    varies = deviation > 1e-9 * largest.astype(np.float64)
    return mean, np.where(varies, deviation, 1.0)


def row_blocks(features: NDArray[np.floating]) -> Iterator[slice]:
    """Yield blocks of rows whose copy is small, because features may be larger than memory (mapped from a file).

    >>> [block.stop - block.start for block in row_blocks(np.zeros((5, 2)))]
    [5]
    """
    step = max(1, BLOCK_VALUES // max(features.shape[1], 1))
    for first in range(0, max(len(features), 1), step):
        yield slice(first, min(first + step, len(features)))


def _average(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    features: NDArray[np.floating],
    weights: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Return the weighted mean of a function of the features over the rows."""
    means: list[NDArray[np.float64]] = []
    totals: list[float] = []
    for rows in row_blocks(features):
        weight = None if weights is None else weights[rows]
        total = float(rows.stop - rows.start) if weight is None else float(weight.sum())
        if total > 0 or len(means) == 0:
            block = function(features[rows].astype(np.float64, copy=False))
            means.append(np.average(block, axis=0, weights=weight if total > 0 else None))
            totals.append(total)
    return np.asarray(means[0] if len(means) == 1 else np.average(means, axis=0, weights=totals))


def signed_log1p(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return sign(x) log(1 + |x|), an odd and increasing function that shortens both tails.

    >>> signed_log1p(np.array([-1.0, 0.0, np.e - 1])).tolist() == [-np.log(2), 0.0, 1.0]
    True
    """
    wide = values.astype(np.float64, copy=False)
    return np.asarray(np.copysign(np.log1p(np.abs(wide)), wide))


def find_heavy_tails(features: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which features have heavy tails that `signed_log1p` shortens.

    The kurtosis of such a feature, E (x - E x)⁴ / (E (x - E x)²)² over the rows, is above 6, and the transformation at
    least halves it. A feature with values from 0 to 1 is therefore left as it is, because the logarithm is almost
    linear there, and so is one with two values, whose kurtosis no transformation changes. A constant feature has no
    tails.

    >>> rng = np.random.default_rng(0)
    >>> normal, heavy = rng.normal(size=1000), rng.lognormal(2, 2, size=1000)
    >>> find_heavy_tails(np.stack((normal, heavy, -heavy, heavy / heavy.max(), heavy > 50), axis=1)).tolist()
    [False, True, True, False, False]
    """
    result = np.zeros(features.shape[1], dtype=np.bool_)
    if features.size > BLOCK_VALUES:  # reading single columns of a file would read all of it for each of them
        before = _kurtosis(features)
        return np.asarray((before > _HEAVY_TAIL) & (_kurtosis(features, signed_log1p) <= _CLEAR_DECREASE * before))
    for column in range(len(result)):  # one at a time, because it takes less memory
        values = features[:, column : column + 1].astype(np.float64)
        before = _kurtosis(values)
        if before[0] > _HEAVY_TAIL:
            result[column] = _kurtosis(values, signed_log1p)[0] <= _CLEAR_DECREASE * before[0]
    return result


def _kurtosis(
    features: NDArray[np.floating], transform: Callable[[NDArray[Any]], NDArray[np.float64]] = np.asarray
) -> NDArray[np.float64]:
    """Return the fourth standardized moment of each transformed feature; 0 for equal values.

    >>> _kurtosis(np.array([[-1.0, 3.0], [1.0, 3.0]])).tolist()
    [1.0, 0.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = center_and_spread(features, transform=transform)
        return _average(lambda block: ((transform(block) - mean) / deviation) ** 4, features, None)


def vary_within_queries(features: NDArray[np.floating], lists: Lists) -> NDArray[np.bool_]:
    """Return which features differ within some query; the others cannot change a ranking.

    >>> from rankbound.lists import Lists
    >>> vary_within_queries(np.array([[1.0, 1.0], [2.0, 1.0], [2.0, 3.0]]), Lists([0, 1, 0], [0, 2, 3]))
    array([ True, False])
    """
    starts = lists.offsets[:-1][lists.sizes > 0]
    low, high = np.minimum.reduceat(features, starts), np.maximum.reduceat(features, starts)
    return np.asarray((low < high).any(axis=0))
