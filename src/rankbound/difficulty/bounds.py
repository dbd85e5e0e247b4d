"""Worst, expected and best value of a measure for a query: `bounds` for users, `bounds_of` for many queries at once.

The closed forms are part of the measures' definitions in `rankbound.measures`. The expected value is the mean over all
N! orders. It equals the value of a constant scorer when ties are averaged, and the tests check that the two agree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import labels_of, numbers
from rankbound.difficulty.bounding import Bounds
from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.measures import LabelCounts, Measure, parse_measure
from rankbound.measures.additive import Additive
from rankbound.measures.ranked import LARGEST_DEPTH

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MOST_ITEMS = 100_000_000  # of one query; sums over ranks take memory for each item


def bounds(
    measure: str | Measure,
    *,
    n: ArrayLike | None = None,
    relevant: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    depth: int | None = None,
) -> Bounds:
    """Worst, expected and best value of a measure over all rankings of a query.

    Describe the query by ``n`` items of which ``relevant`` are relevant (numbers, or arrays of the same shape for many
    queries), or by the ``labels`` of its items. With ``depth`` only the first ``depth`` ranks are filled, as by a run
    that returns its first items; unlike a cutoff this does not change what the measure divides by.

    >>> b = bounds("AP", n=3, relevant=2)
    >>> print(f"{b.worst:.4f} {b.expected:.4f} {b.best:.4f}")  # 7/12, 29/36, 1
    0.5833 0.8056 1.0000
    >>> bounds("P@2", labels=[0, 2, 0, 1])
    Bounds(worst=0.0, expected=0.5, best=1.0)
    >>> bounds("RR", n=[2, 3], relevant=1).expected
    array([0.75      , 0.61111111])
    >>> bounds("AP", n=3, relevant=2, depth=1)  # one of two relevant items can be found
    Bounds(worst=0.0, expected=0.3333333333333333, best=0.5)
    """
    measure = plain_measure(measure)
    depth = check_depth(depth)
    if labels is not None:
        if n is not None or relevant is not None:
            raise ArgumentError("pass either labels or n and relevant, got both")
        counts = LabelCounts.from_labels(*one_query(labels))
        shape: tuple[int, ...] = ()
    else:
        sizes, hits = counts_of("n", n), counts_of("relevant", relevant)
        try:
            shape = np.broadcast_shapes(sizes.shape, hits.shape)
        except ValueError:
            raise ArgumentError(
                f"n and relevant must have the same shape, got {sizes.shape} and {hits.shape}"
            ) from None
        if (hits > sizes).any():
            raise ArgumentError(f"relevant must not exceed n, got up to {hits.max()} relevant of {sizes.max()} items")
        counts = LabelCounts.binary(sizes, hits, label=max(1, int(np.ceil(measure.rel))))
    if depth is not None:
        counts = replace(counts, depths=np.minimum(counts.sizes, depth))
    flat = bounds_of(measure, counts)
    arrays = [np.reshape(array, shape) for array in (flat.worst, flat.expected, flat.best)]

    def variance() -> Any:
        found = np.reshape(variances_of(measure, counts), shape)
        return float(found) if shape == () else found

    worst, expected, best = (float(array) if shape == () else array for array in arrays)
    return Bounds(worst, expected, best, variance_of=variance)


def plain_measure(measure: str | Measure) -> Measure:
    """Parse a measure, and raise MeasureError if it is bounded."""
    measure = parse_measure(measure)
    if measure.bounding != "none":
        raise MeasureError(f"measure must be a plain measure, such as {measure.plain}, got {measure}")
    return measure


def check_depth(depth: object) -> int | None:
    """Return the number of ranks that are filled, a positive integer or None, or raise ArgumentError."""
    if depth is None:
        return None
    if isinstance(depth, (bool, np.bool_)) or not isinstance(depth, (int, np.integer)) or depth < 1:
        raise ArgumentError(f"depth must be a positive integer or None, got {depth!r}")
    return min(int(depth), LARGEST_DEPTH)


def one_query(labels: ArrayLike) -> tuple[NDArray[Any], list[int]]:
    """Validate the labels of one query and return them with their offsets."""
    try:
        array = labels_of(labels)
    except DataError as error:
        raise ArgumentError(f"labels must be finite numbers, at least one, got: {error}") from error
    if len(array) == 0:
        raise ArgumentError(f"labels must be finite numbers, at least one, got {labels!r}")
    return array, [0, len(array)]


def counts_of(name: str, value: ArrayLike | None) -> NDArray[np.int64]:
    """Validate non-negative integers of any shape."""
    number: Any = value
    if isinstance(number, int) and number > MOST_ITEMS:  # before NumPy makes an object of an integer beyond 64 bits
        raise ArgumentError(f"{name} must be at most {MOST_ITEMS:,}, got {number}")
    array = np.zeros(1) if value is None else numbers(name, value, ndim=None)
    if array.dtype.kind not in "iu" or (array < 0).any():
        raise ArgumentError(f"{name} must be non-negative integers, got {value!r}")
    if (array > MOST_ITEMS).any():
        raise ArgumentError(f"{name} must be at most {MOST_ITEMS:,}, got {array.max()}")
    return array.astype(np.int64)


def bounds_of(measure: Measure, counts: LabelCounts) -> Bounds:
    """Worst, expected and best value of a plain measure for each query."""
    worst, expected, best = measure.definition.bounds(measure, counts)
    return Bounds(np.asarray(worst, np.float64), np.asarray(expected, np.float64), np.asarray(best, np.float64))


def variances_of(measure: Measure, counts: LabelCounts) -> NDArray[np.float64]:
    """Variance of a plain measure over all orders, for each query: in closed form, or from its distribution."""
    definition = measure.definition
    if isinstance(definition, Additive):
        return definition.variance(measure, counts)
    from rankbound.difficulty.distribution.many import distributions_of

    distributions = distributions_of(measure, counts)
    mean = distributions.expectation(lambda scores, _: scores)
    return distributions.expectation(lambda scores, query: (scores - mean[query]) ** 2)
