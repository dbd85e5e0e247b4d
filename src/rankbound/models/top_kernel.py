"""Kernel: the first items of each query by descending score, without sorting the others.

Items are dealt to 2k groups in turn. The k-th largest of the maxima of the groups cannot exceed the k-th largest score,
and few items besides the first k reach it. Finding maxima, counting and collecting need no branches that depend on the
scores, which makes this several times faster than a heap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.losses.compiling import block_kernel, helper, ranges, threads_for
from rankbound.losses.workers import run_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["first_items"]


@helper
def _sort_descending(values: Any) -> None:
    for end in range(1, len(values)):
        value, at = values[end], end
        while at > 0 and values[at - 1] < value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value


@block_kernel
def _count(block: Any, scores: Any, offsets: Any, k: int, limits: Any, counts: Any) -> None:
    """Find a score that at least k items of each query reach, or all if there are fewer, and how many reach it."""
    groups = 2 * k
    for query in range(block[0], block[1]):
        own, size = scores[offsets[query] : offsets[query + 1]], offsets[query + 1] - offsets[query]
        if size <= groups:
            limits[query], counts[query] = -np.inf, size
            continue
        largest = np.empty(groups, scores.dtype)
        for group in range(groups):
            largest[group] = own[group]
        for first in range(groups, size - groups + 1, groups):
            for group in range(groups):
                largest[group] = max(largest[group], own[first + group])
        for item in range(size - size % groups, size):
            largest[item % groups] = max(largest[item % groups], own[item])
        _sort_descending(largest)
        limit, count = largest[k - 1], 0
        for item in range(size):
            count += own[item] >= limit
        limits[query], counts[query] = limit, count


@block_kernel
def _collect(block: Any, scores: Any, offsets: Any, limits: Any, starts: Any, order: Any) -> None:
    """Write the items that reach the limit of their query by descending score."""
    for query in range(block[0], block[1]):
        start, end, limit = starts[query], starts[query + 1], limits[query]
        position = start
        for item in range(offsets[query], offsets[query + 1]):
            order[min(position, end - 1)] = item  # overwritten by the next item unless this one reaches the limit
            position += scores[item] >= limit
            if position == end:
                break
        for last in range(start + 1, end):
            item, at = order[last], last
            while at > start and scores[order[at - 1]] < scores[item]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = item


def first_items(
    scores: NDArray[np.float64], offsets: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first ``k`` items of each query, all that tie with the last, and perhaps more; and their offsets.

    The items of a query descend by score; equal scores come in input order. Meant for small k: the time per item grows
    with it.

    >>> first_items(np.array([0.1, 0.9, 0.5, 0.5, 0.7, 0.6]), np.array([0, 4, 6]), 1)
    (array([1, 4, 5]), array([0, 1, 3]))
    """
    queries = len(offsets) - 1
    k = min(k, int(np.diff(offsets).max(initial=1)))
    limits, counts = np.empty(queries), np.empty(queries, np.int64)
    blocks = ranges(queries, threads_for(len(scores)), 1)
    run_blocks(_count, blocks, scores, offsets, k, limits, counts)
    starts = np.concatenate(([0], np.cumsum(counts)))
    order = np.empty(starts[-1], np.int64)
    run_blocks(_collect, blocks, scores, offsets, limits, starts, order)
    return order, starts
