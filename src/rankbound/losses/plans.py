"""Plans: what a loss needs to know of its labels before it sees a score.

Made once per batch of labels and kept while the labels stay the same (they are compared, not trusted), because boosting
and full-batch training ask for the same lists again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import prange

from rankbound.losses.compiling import kernel, running
from rankbound.measures.label_counts import LabelCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import Difficulty

__all__ = ["Plan", "plan_rows"]


@dataclass(eq=False)
class Plan:
    """Labels of a batch, sorted within each query, and which of its queries have something to teach.

    Attributes
    ----------
    labels, offsets:
        As given; labels below 0 count as 0.
    order:
        Position within its query of the item that comes at this place when high levels come first (equal ones in input
        order).
    rows:
        Items per query that need a row in the kernels; 0 where there is nothing to learn.
    relevant:
        Items per query at the top level or levels that count as relevant.
    columns_from:
        For each place of ``order`` the first place it is compared with.
    weights:
        For each place of ``order`` the weight of its term.
    constants:
        What is added to each query's measure.
    """

    labels: NDArray[Any]
    offsets: NDArray[np.int64]
    order: NDArray[np.int64]
    rows: NDArray[np.int64]
    relevant: NDArray[np.int64]
    columns_from: NDArray[np.int64]
    weights: NDArray[np.float64]
    constants: NDArray[np.float64]
    difficulty: Difficulty | None = None
    defined: NDArray[np.bool_] | None = None
    _blocks: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Items per query."""
        return np.diff(self.offsets)

    @cached_property
    def active(self) -> NDArray[np.bool_]:
        """Queries that have something to teach: the ones a mean counts."""
        active = self.rows > 0
        return active if self.defined is None else active & self.defined

    @cached_property
    def pairs(self) -> int:
        """Pairs of a row and a column in the whole batch: the work of one pass."""
        return int((self.rows * self.sizes).sum())

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values per item, put into the order of ``order``."""
        return np.asarray(values[self.order + np.repeat(self.offsets[:-1], self.sizes)])

    def per_item(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values per query, repeated for each of its items."""
        return np.repeat(values, self.sizes)

    def blocks(self, threads: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Queries dealt to threads by cost, dearest first, back and forth: every block gets about the same work."""
        if threads not in self._blocks:
            queries = len(self.rows)
            dearest = np.argsort(-(self.rows + 1) * self.sizes, kind="stable")
            turn = np.arange(queries) % (2 * threads)
            block = np.minimum(turn, 2 * threads - 1 - turn)
            starts = np.concatenate(([0], np.cumsum(np.bincount(block, minlength=threads))))
            self._blocks[threads] = dearest[np.argsort(block, kind="stable")], starts
        return self._blocks[threads]


def plan_rows(
    labels: NDArray[Any], offsets: NDArray[np.int64], levels: NDArray[Any], only_gain: bool, lower_only: bool = False
) -> Plan:
    """A plan with a row for each item that the measure looks at; terms have weight 1.

    Parameters
    ----------
    labels, offsets:
        Labels of 0 and more, cut into queries.
    levels:
        What items are sorted by, highest first: whether they are relevant, or their labels.
    only_gain:
        Rows are the items of level > 0, not all those above the lowest level of their query.
    lower_only:
        Rows are compared with the columns of lower level, not with all.

    A query whose levels are all the same has nothing to teach, and no rows.
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
        labels, offsets, order, rows, with_gain, columns_from, np.ones(len(labels)), np.zeros(len(sizes))
    )  # fmt: skip


# ---- sorting ---------------------------------------------------------------------------------------------------------

_MOST_LEVELS = 256


def _order(levels: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions within each query, highest level first, equal levels in input order."""
    order = np.empty(len(levels), np.int64)
    if levels.dtype.kind in "biu" and (len(levels) == 0 or levels.max() < _MOST_LEVELS):
        small = levels.astype(np.uint8)
        with running(len(levels)):
            _counting_sort(small, offsets, int(small.max(initial=0)) + 1, order)
        return order
    query = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order[:] = np.lexsort((-levels, query)) - offsets[query]
    return order


@kernel
def _counting_sort(levels: Any, offsets: Any, most: int, order: Any) -> None:
    for q in prange(len(offsets) - 1):
        lo, hi = offsets[q], offsets[q + 1]
        place = np.zeros(most + 1, np.int64)  # place[c]: where the next item of level most - 1 - c goes
        for j in range(lo, hi):
            place[most - levels[j]] += 1
        for c in range(1, most + 1):
            place[c] += place[c - 1]
        for j in range(lo, hi):
            c = most - 1 - levels[j]
            order[lo + place[c]] = j - lo
            place[c] += 1
