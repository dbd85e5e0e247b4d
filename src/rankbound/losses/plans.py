"""Plans: everything that a loss derives from the labels alone, before it sees a score.

A plan is made once per batch of labels and reused while the labels are equal (their content is compared), because
boosting and full-batch training pass the same lists in every iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.kernels import ARRAY, INTEGER, Arguments, kernel, run
from rankbound.measures.label_counts import LabelCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import Difficulty


class Form(IntEnum):
    """The forms of smooth measures, see `rankbound.losses.formulas`; the kernel has the same numbers."""

    ADDITIVE, PRECISION_SUM, COUPLED, CASCADE, PAIRS, FIRST_HIT = range(6)


class Swap(IntEnum):
    """What weights pairs, see `rankbound.losses.swaps`; ``NONE`` weights all alike. The kernel has the same numbers."""

    NONE, ADDITIVE, PUBLISHED, PRECISION_SUM, FIRST_HIT, CASCADE, PAIRS, LOSS1, LOSS2, LOSS2PP = range(10)


@dataclass(frozen=True, eq=False)
class BoundedPlan:
    """What a bounding says of the queries: their difficulty and, for an affine bounding, the line of each query.

    An affine bounding turns the value x of a query into ``at_zero + slope x``; both are None for other boundings.
    """

    difficulty: Difficulty
    defined: NDArray[np.bool_]
    at_zero: NDArray[np.float64] | None = None
    slope: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Labels of a batch, sorted within each query, and which of its queries are informative.

    Attributes
    ----------
    labels, offsets:
        The labels and the offsets of the queries; negative labels count as 0.
    order:
        Items of each query sorted by level, highest first, as indices within the query; equal levels keep their input
        order.
    rows:
        Items per query that get a row in tables of pairs; 0 for queries that are not informative.
    bounding:
        What a bounded loss knows of the queries, None for a loss without bounding.
    layouts:
        The plan on devices, see `rankbound.losses.padded`.
    kept:
        What losses derive from the plan once, such as the arguments of a kernel.
    """

    labels: NDArray[Any]
    offsets: NDArray[np.int64]
    order: NDArray[np.int64]
    rows: NDArray[np.int64]
    bounding: BoundedPlan | None = None
    layouts: dict[Any, Any] = field(default_factory=dict)
    kept: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Items per query."""
        return np.diff(self.offsets)

    @property
    def counts(self) -> LabelCounts:
        """How often each label occurs in each query."""
        if "counts" not in self.kept:
            self.kept["counts"] = LabelCounts.from_labels(self.labels, self.offsets)
        return self.kept["counts"]  # type: ignore[no-any-return]

    @cached_property
    def active(self) -> NDArray[np.bool_]:
        """Whether each query is informative: these are the queries that a mean counts."""
        active = self.rows > 0
        return active if self.bounding is None else active & self.bounding.defined

    @cached_property
    def informative_queries(self) -> int:
        """The number of informative queries, which a mean divides by; at least 1."""
        return max(int(self.active.sum()), 1)

    @cached_property
    def pairs(self) -> int:
        """Pairs of a row and a column in the whole batch: the work of one kernel call."""
        return int((self.rows * self.sizes).sum())

    @cached_property
    def by_cost(self) -> NDArray[np.int64]:
        """The queries with rows, those with most pairs first: the order in which threads take them."""
        queries = np.flatnonzero(self.active)
        return queries[np.argsort(-(self.rows * self.sizes)[queries], kind="stable")]

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put one value per item into the order of ``order``."""
        return np.asarray(values[self.order + np.repeat(self.offsets[:-1], self.sizes)])

    def per_item(self, values: NDArray[Any]) -> NDArray[Any]:
        """Repeat one value per query for each of its items."""
        return np.repeat(values, self.sizes)


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothPlan(Plan):
    """The plan of a smooth measure.

    Attributes
    ----------
    weights:
        For each entry of ``order``, the weight of its term, or its stop probability.
    cuts:
        Cutoff of each query, 0 for none.
    constants:
        Added to the value of each query.
    columns_from:
        For measures of pairs: for each entry of ``order``, the first entry of a lower level.
    levels, pair_weights:
        For pairs with weights: the level of each entry of ``order``, and the weights by the levels of both items.
    """

    weights: NDArray[np.float64]
    cuts: NDArray[np.float64]
    constants: NDArray[np.float64] | None = None
    columns_from: NDArray[np.int64] | None = None
    levels: NDArray[np.int64] | None = None
    pair_weights: NDArray[np.float64] | None = None

    @property
    def relevant(self) -> NDArray[np.int64]:
        """Items per query that have a row, whether the query is informative or not."""
        return self.kept["relevant"]  # type: ignore[no-any-return]


def plan_levels(
    levels: NDArray[Any], offsets: NDArray[np.int64], counts: LabelCounts
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The order of the items by level, the rows of each query (items above its lowest level), and for each entry of the
    order the first entry of a lower level."""
    has_items = counts.sizes > 0
    lowest = np.zeros(len(counts), np.int64)
    lowest[has_items] = counts.counts[counts.starts[1:][has_items] - 1]
    return sort_by_level(levels, offsets), counts.sizes - lowest, np.repeat(counts.best_ends, counts.counts)


def count_true(values: NDArray[np.bool_], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of the values of each query are true."""
    total = np.concatenate(([0], np.cumsum(values)))
    return np.asarray(total[offsets[1:]] - total[offsets[:-1]])


def differs(values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the values of the items of each query differ."""
    result = np.zeros(len(offsets) - 1, dtype=bool)
    full = np.flatnonzero(offsets[1:] > offsets[:-1])
    if len(full):
        starts = offsets[:-1][full]
        result[full] = np.maximum.reduceat(values, starts) > np.minimum.reduceat(values, starts)
    return result


# ---- sorting ---------------------------------------------------------------------------------------------------------

_MOST_LEVELS = 256


class _CountingSort(Arguments):
    _fields_ = (("levels_below", INTEGER), ("offsets", ARRAY), ("levels", ARRAY), ("order", ARRAY))


def sort_by_level(levels: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort the items of each query by level, highest first; equal levels keep their input order."""
    queries = len(offsets) - 1
    most = int(levels.max(initial=0)) + 1 if levels.dtype.kind in "biu" else _MOST_LEVELS + 1
    counting_sort = kernel("counting_sort", _CountingSort)
    if most <= _MOST_LEVELS and counting_sort is not None:
        order = np.empty(len(levels), np.int64)
        arguments = _CountingSort(
            levels_below=most, offsets=offsets, levels=np.ascontiguousarray(levels, np.uint8), order=order
        )
        run(counting_sort, arguments, queries, len(levels))
        return order
    query = np.repeat(np.arange(queries), np.diff(offsets))
    descending = -levels.astype(np.float64 if levels.dtype.kind == "f" else np.int64)
    return np.asarray(np.lexsort((descending, query)) - offsets[query])
