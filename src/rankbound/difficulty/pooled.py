"""The pooled index: a mean over queries between that of random rankings (0) and that of the best ones (1), and its z.

EM normalizes each query and then takes the mean; the pooled index takes means first, (mean x - mean E) / (mean B -
mean E), so that queries whose best ranking is little better than a random one weigh little. With one relevant document
per query these are the adjusted measures of PyKEEN (Hoyt et al. 2022): its adjusted mean reciprocal rank index is the
pooled index of RR, its adjusted hits at k that of Success@k, its adjusted mean rank index that of U, and its z-scores
are those here. `adjusted_rank_metrics` has them under its names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rankbound.difficulty.bounding import Bounds


@dataclass(frozen=True, slots=True)
class PooledIndex:
    """``index`` is 0 for random rankings and 1 for the best ones; ``z`` is in standard errors of random rankings.

    NaN where all rankings of all queries have the same value.
    """

    index: float
    z: float


def pooled_index(values: ArrayLike, bounds: Bounds) -> PooledIndex:
    """The pooled index of one value per query, with the bounds of the queries by `rankbound.bounds`.

    A positive z is better than random, also where lower values are better.

    >>> from rankbound import bounds
    >>> pooled_index([1.0, 0.5], bounds("RR", n=[10, 10], relevant=1))
    PooledIndex(index=0.6464..., z=2.4576...)
    """
    value, worst, expected, best, variance = _arrays(values, bounds)
    spread = float(variance.sum())
    excess = float(np.sign((best - worst).sum())) * float((value - expected).sum())
    return PooledIndex(pooled_gain(value, expected, best), excess / spread**0.5 if spread > 0 else float("nan"))


def pooled_gain(value: NDArray[np.float64], expected: NDArray[np.float64], best: NDArray[np.float64]) -> float:
    """How far values lie from those of random rankings (0) to the best ones (1), by their sums; NaN if both are equal.

    >>> pooled_gain(np.array([0.5, 1.0]), np.array([0.5, 0.5]), np.array([1.0, 1.0]))
    0.5
    """
    most = float((best - expected).sum())
    return float((value - expected).sum()) / most if most else float("nan")


def z_scores(values: ArrayLike, bounds: Bounds) -> NDArray[np.float64]:
    """How many standard deviations of random rankings each value lies above their mean; NaN where there is no choice.

    >>> from rankbound import bounds
    >>> z_scores([1.0, 0.5], bounds("RR", n=[10, 2], relevant=1)).round(3).tolist()
    [2.688, -1.0]
    """
    value, worst, expected, best, variance = _arrays(values, bounds)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            np.where(variance > 0, np.sign(best - worst) * (value - expected) / np.sqrt(variance), np.nan)
        )


def adjusted_rank_metrics(ranks: ArrayLike, candidates: ArrayLike, k: int = 10) -> dict[str, float]:
    """The adjusted metrics of PyKEEN, by its names, from the rank of the one right answer of each query.

    ``candidates`` are the numbers of documents that the answers are ranked among, its own included. A rank of an answer
    that ties can be a mean, such as 1.5; its reciprocal is then taken, as PyKEEN does. Expected values and variances
    are those of ranks that are uniform on 1, ..., candidates for each query.

    >>> found = adjusted_rank_metrics([1, 3, 40], [50, 4, 200])
    >>> {name: round(value, 3) for name, value in found.items() if "mean_rank" in name}
    {'adjusted_arithmetic_mean_rank': 0.342, 'adjusted_arithmetic_mean_rank_index': 0.673, 'z_arithmetic_mean_rank':
    1.42, 'adjusted_inverse_harmonic_mean_rank': 0.304, 'z_inverse_harmonic_mean_rank': 2.105}
    """
    from rankbound.difficulty.bounds import bounds

    rank, n = floats("ranks", ranks), np.asarray(candidates)
    if (rank < 1).any() or n.shape != rank.shape or (rank > n).any():
        raise ArgumentError("ranks must lie between 1 and the number of candidates of the same query")
    by_rank = pooled_index(rank - 1, bounds("U", n=n, relevant=1))  # as many wrong pairs as documents above the answer
    by_reciprocal = pooled_index(1 / rank, bounds("RR", n=n, relevant=1))
    by_hits = pooled_index((rank <= k).astype(np.float64), bounds(f"Success@{k}", n=n, relevant=1))
    return {
        "adjusted_arithmetic_mean_rank": float(rank.sum() / ((n + 1) / 2).sum()),
        "adjusted_arithmetic_mean_rank_index": by_rank.index,
        "z_arithmetic_mean_rank": by_rank.z,
        "adjusted_inverse_harmonic_mean_rank": by_reciprocal.index,
        "z_inverse_harmonic_mean_rank": by_reciprocal.z,
        f"adjusted_hits_at_{k}": by_hits.index,
        f"z_hits_at_{k}": by_hits.z,
    }


def _arrays(values: ArrayLike, bounds: Bounds) -> list[NDArray[np.float64]]:
    value = floats("values", values)
    parts = (bounds.worst, bounds.expected, bounds.best, bounds.variance)
    try:
        return [value, *(np.broadcast_to(np.asarray(part, dtype=np.float64), value.shape) for part in parts)]
    except ValueError:
        shape = np.shape(bounds.best)
        raise ArgumentError(f"values must have one number per query of bounds, got {len(value)} for {shape}") from None
