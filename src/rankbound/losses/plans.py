"""Plans: everything that a loss derives from the labels alone, before it sees a score.

A plan is made once per batch of labels and reused while the labels are equal (their content is compared), because
boosting and full-batch training pass the same lists in every iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.losses.compiling import block_kernel, ranges, threads_for
from rankbound.losses.memory import indices
from rankbound.losses.workers import run_blocks
from rankbound.measures.label_counts import LabelCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import Difficulty

__all__ = ["Plan", "plan_rows"]


@dataclass(eq=False)
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
        Items per query that get a row in the kernels; 0 for queries that are not informative.
    relevant:
        Items per query whose level is above 0.
    columns_from:
        For each entry of ``order``, the first entry that it is compared with.
    weights:
        For each entry of ``order``, the weight of its term.
    constants:
        Constant per query that the smooth kernel adds to its value and the pair kernel multiplies it by.
    cuts:
        Cutoff of each query, 0 for none.
    levels, pair_weights:
        For pairs with weights: the level of each entry of ``order``, and the weights by the levels of both items. None
        otherwise.
    discounts, swap:
        For lambda losses: the discounts of the ranks 1, 2, ..., and the form of the swap deltas (-1 for other losses).
    gains, by_rank:
        For lambda losses of additive measures: the weights in input order, and the cases in which `lambda_kernel` is
        faster than the pair kernel, as (bytes of a score, whether a hessian is computed). Empty otherwise.
    scale, offset:
        For pairs: the numbers per query that turn the weight of the wrong pairs into the measure; else 1 and 0.
    layouts:
        The plan on other devices, by device and type of the scores (see `rankbound.losses.buckets`).
    """

    labels: NDArray[Any]
    offsets: NDArray[np.int64]
    order: NDArray[np.int64]
    rows: NDArray[np.int64]
    relevant: NDArray[np.int64]
    columns_from: NDArray[np.int64]
    weights: NDArray[np.float64]
    constants: NDArray[np.float64]
    cuts: NDArray[np.float64]
    levels: Any = None
    pair_weights: Any = None
    discounts: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    swap: int = -1
    gains: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    by_rank: frozenset[tuple[int, bool]] = frozenset()
    scale: Any = 1.0
    offset: Any = 0.0
    difficulty: Difficulty | None = None
    defined: NDArray[np.bool_] | None = None
    layouts: dict[Any, Any] = field(default_factory=dict)
    _blocks: dict[int, list[NDArray[np.int64]]] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Items per query."""
        return np.diff(self.offsets)

    @cached_property
    def active(self) -> NDArray[np.bool_]:
        """Whether each query is informative: these are the queries that a mean counts."""
        active = self.rows > 0
        return active if self.defined is None else active & self.defined

    @cached_property
    def informative_queries(self) -> int:
        """The number of informative queries, which a mean divides by; at least 1."""
        return max(int(self.active.sum()), 1)

    @cached_property
    def pairs(self) -> int:
        """Pairs of a row and a column in the whole batch: the work of one kernel call."""
        return int((self.rows * self.sizes).sum())

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put one value per item into the order of ``order``."""
        return np.asarray(values[self.order + np.repeat(self.offsets[:-1], self.sizes)])

    def per_item(self, values: NDArray[Any]) -> NDArray[Any]:
        """Repeat one value per query for each of its items."""
        return np.repeat(values, self.sizes)

    def blocks(self, threads: int) -> list[NDArray[np.int64]]:
        """Deal the queries to threads by descending cost, back and forth, so that all blocks have about equal work."""
        if threads not in self._blocks:
            by_cost = np.argsort(-(self.rows + 1) * self.sizes, kind="stable")
            turn = np.arange(len(by_cost)) % (2 * threads)
            block = np.minimum(turn, 2 * threads - 1 - turn)
            self._blocks[threads] = [by_cost[block == thread] for thread in range(threads)]
        return self._blocks[threads]


def plan_rows(
    labels: NDArray[Any], offsets: NDArray[np.int64], levels: NDArray[Any], only_gain: bool, lower_only: bool = False
) -> Plan:
    """Make a plan with a row for each item that has a term in the measure; terms have weight 1.

    Parameters
    ----------
    labels, offsets:
        Labels that are not negative, and the offsets of the queries.
    levels:
        What items are sorted by, highest first: the labels, or 1 and 0 for relevant and not.
    only_gain:
        Rows are the items of level > 0 instead of all items above the lowest level of their query.
    lower_only:
        Rows are compared with the columns of lower level instead of with all columns.

    A query whose levels are all equal is not informative and has no rows.
    """
    sizes = np.diff(offsets)
    counts = LabelCounts.from_labels(levels, offsets)
    with_gain = counts.sum(counts.counts * (counts.values > 0)).astype(np.int64)
    lowest = np.zeros(len(sizes), np.int64)
    lowest[sizes > 0] = counts.counts[counts.starts[1:][sizes > 0] - 1]
    rows = np.where(lowest < sizes, with_gain if only_gain else sizes - lowest, 0)
    if lower_only:
        columns_from = np.repeat(counts.best_ends, counts.counts)  # runs of equal level come as in `order`
    else:
        columns_from = np.zeros(len(labels), np.int64)
    order = _order(levels, offsets)
    return Plan(
        labels, offsets, order, rows, with_gain, columns_from,
        np.ones(len(labels)), np.zeros(len(sizes)), np.zeros(len(sizes)),
    )  # fmt: skip


# ---- sorting ---------------------------------------------------------------------------------------------------------

_MOST_LEVELS = 256
_FEW_ITEMS = 3000  # that numpy sorts in some microseconds more than the kernel, which takes half a second to compile


def _order(levels: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort the items of each query by level, highest first; equal levels keep their input order."""
    queries = len(offsets) - 1
    most = int(levels.max(initial=0)) + 1 if levels.dtype.kind in "biu" else _MOST_LEVELS + 1
    if most * queries < 1 << 16 and len(levels) <= _FEW_ITEMS and most <= _MOST_LEVELS:
        sizes = np.diff(offsets)
        keys = np.repeat(np.arange(most - 1, most * queries, most, dtype=np.uint16), sizes) - levels.astype(np.uint16)
        return np.argsort(keys, kind="stable") - np.repeat(offsets[:-1], sizes)
    order = np.empty(len(levels), np.int64)
    if most <= _MOST_LEVELS:
        blocks = ranges(queries, threads_for(len(levels)), 1)
        run_blocks(_counting_sort, blocks, levels.astype(np.uint8), offsets, most, order)
        return order
    query = np.repeat(np.arange(queries), np.diff(offsets))
    order[:] = np.lexsort((-levels, query)) - offsets[query]
    return order


@block_kernel
def _counting_sort(block: Any, levels: Any, offsets: Any, most: int, order: Any) -> None:
    for q in range(block[0], block[1]):
        lo, hi = offsets[q], offsets[q + 1]
        position = indices(most + 1)  # position[c]: where the next item of level most - 1 - c goes
        for c in range(most + 1):
            position[c] = 0
        for j in range(lo, hi):
            position[most - levels[j]] += 1
        for c in range(1, most + 1):
            position[c] += position[c - 1]
        for j in range(lo, hi):
            c = most - 1 - levels[j]
            order[lo + position[c]] = j - lo
            position[c] += 1
