"""Checks and random draws that tests and intervals share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rankbound.arrays import floats, is_between
from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

ROUNDING = 1e-12  # sums that differ by less than this fraction are equal
_SMALLEST_ALPHA = 1e-15  # a finer level rounds to 0
MOST_RESAMPLES = 10_000_000  # draws; 1,000 times the default, minutes for hundreds of queries
_CHUNK = 1 << 17  # random numbers drawn at a time: few enough to stay in the cache
_BLOCK = 1 << 22  # numbers of a block of comparisons: 32 MB
_LARGEST = 1e90  # so that cubes of differences, and their sums, do not overflow


def check_differences(values: ArrayLike, ndim: int = 1) -> NDArray[np.float64]:
    """Differences as an array: one per query, or queries x comparisons."""
    d = floats("differences", values, ndim=None)
    if d.ndim != ndim or len(d) == 0:
        raise DataError(f"differences must hold one number per query, got shape {d.shape}")
    largest = np.abs(d).max(axis=0, initial=0.0)
    if ((largest != 0) & ~((largest > 1 / _LARGEST) & (largest < _LARGEST))).any():
        raise DataError(
            f"the largest of the differences must be 0 or lie between {1 / _LARGEST:g} and {_LARGEST:g}, got {largest}"
        )
    return d


def check_resamples(resamples: int) -> None:
    """Raise ArgumentError unless there is at least one draw."""
    if isinstance(resamples, bool) or not isinstance(resamples, (int, np.integer)) or resamples < 1:
        raise ArgumentError(f"resamples must be a positive integer, got {resamples}")
    if resamples > MOST_RESAMPLES:
        raise ArgumentError(
            f"resamples must be at most {MOST_RESAMPLES:,}, got {resamples:,}: more draws change no interval or "
            "p-value by more than 0.001, and would take hours"
        )


def check_confidence(confidence: float, smallest_alpha: float = _SMALLEST_ALPHA) -> None:
    """Raise ArgumentError unless the level lies strictly between 0 and 1, by more than rounding."""
    if not is_between(confidence, 0, 1):
        raise ArgumentError(f"confidence must lie between 0 and 1, got {confidence}")
    if confidence > 1 - smallest_alpha:
        raise ArgumentError(f"confidence must be at most 1 - {smallest_alpha:g}, got {confidence!r}")


def standard_deviations(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample standard deviation of each column; exactly 0 where all entries are equal or there is only one."""
    if len(d) < 2:
        return np.zeros(d.shape[1])
    return np.where((d == d[0]).all(axis=0), 0.0, d.std(axis=0, ddof=1))


def t_statistics(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over standard error of each column; 0 where all differences are zero, infinite where equal and not zero."""
    mean = np.where(d.any(axis=0), d.mean(axis=0), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = mean / (standard_deviations(d) / np.sqrt(len(d)))
    return np.asarray(np.where(np.isnan(t), 0.0, t))


def draws(resamples: int, queries: int) -> list[int]:
    """Numbers of draws to make at a time, so that memory stays bounded for any number of queries."""
    rows = max(1, _CHUNK // queries)
    return [min(rows, resamples - start) for start in range(0, resamples, rows)]


def blocks(columns: int, numbers_per_column: int) -> Iterator[slice]:
    """Blocks of columns, so that memory stays bounded for any number of comparisons."""
    size = max(1, _BLOCK // max(1, numbers_per_column))
    return (slice(start, min(start + size, columns)) for start in range(0, columns, size))


def resampled_means(d: NDArray[np.float64], resamples: int, seed: int | np.random.Generator) -> NDArray[np.float64]:
    """Means of queries drawn with replacement: comparisons x resamples, the same draws for every comparison."""
    random = np.random.default_rng(seed)
    queries = len(d)
    means = np.empty((d.shape[1], resamples))
    start = 0
    for rows in draws(resamples, queries):
        drawn = random.integers(queries, size=(rows, queries), dtype=np.int32)
        drawn = drawn.astype(np.int64) + np.arange(rows)[:, None] * queries
        times = np.bincount(drawn.ravel(), minlength=rows * queries).reshape(rows, queries)
        means[:, start : start + rows] = d.T @ times.T.astype(np.float64) / queries
        start += rows
    return means
