"""Kernels: the first items of each query by descending score, and ranks of relevant items, without sorting the others.

`first_items` works on queries of any length: items are dealt to 2k groups in turn. The k-th largest of the maxima of
the groups cannot exceed the k-th largest score, and few items besides the first k reach it. Finding maxima, counting
and collecting need no branches that depend on the scores, which makes this several times faster than a heap.

`top_of_rows` works on a dense block of scores: the items are scanned in short runs, and a run is looked at more closely
only if its maximum exceeds the k-th best score so far, which soon becomes rare.

`relevant_ranks` counts the items before each relevant one: every other item is looked up among the sorted scores of the
relevant ones, which are few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import read_only
from rankbound.losses.compiling import block_kernel, helper, ranges, threads_for
from rankbound.losses.workers import run_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LOWEST", "first_items", "relevant_ranks", "score_of_first", "top_of_rows"]

LOWEST = np.finfo(np.float32).min
"""The score of an item that `top_of_rows` leaves out; not minus infinity, because kernels compile with fast math."""
_RUN = 32  # items
_LONG = 256  # from this k on, sorting is faster


@helper
def _sort_descending(values: Any) -> None:
    for end in range(1, len(values)):
        value, at = values[end], end
        while at > 0 and values[at - 1] < value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value


@helper
def score_of_first(scores: Any, k: int, largest: Any) -> Any:
    """Find a score that at least k items reach; there must be at least 2k, and ``largest`` must have 2k entries."""
    groups, size = 2 * k, len(scores)
    for group in range(groups):
        largest[group] = scores[group]
    for first in range(groups, size - groups + 1, groups):
        for group in range(groups):
            largest[group] = max(largest[group], scores[first + group])
    for item in range(size - size % groups, size):
        largest[item % groups] = max(largest[item % groups], scores[item])
    _sort_descending(largest)
    return largest[k - 1]


@block_kernel
def _count(block: Any, scores: Any, offsets: Any, k: int, limits: Any, counts: Any) -> None:
    """Find a score that at least k items of each query reach, or all if there are fewer, and how many reach it."""
    largest = np.empty(2 * k, scores.dtype)
    for query in range(block[0], block[1]):
        own, size = scores[offsets[query] : offsets[query + 1]], offsets[query + 1] - offsets[query]
        if size <= 2 * k:
            limits[query], counts[query] = -np.inf, size
            continue
        limit, count = score_of_first(own, k, largest), 0
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
    queries, offsets = len(offsets) - 1, read_only(offsets)
    k = min(k, int(np.diff(offsets).max(initial=1)))
    limits, counts = np.empty(queries), np.empty(queries, np.int64)
    blocks = ranges(queries, threads_for(len(scores)), 1)
    run_blocks(_count, blocks, scores, offsets, k, limits, counts)
    starts = np.concatenate(([0], np.cumsum(counts)))
    order = np.empty(starts[-1], np.int64)
    run_blocks(_collect, blocks, scores, offsets, limits, starts, order)
    return order, starts


@block_kernel
def _top_of_rows(block: Any, scores: Any, k: int, items: Any, values: Any) -> None:
    """Write the k best items of each row; ties go to the item with the lower code."""
    width = scores.shape[1]
    for row in range(block[0], block[1]):
        own = scores[row]
        for start in range(0, width, _RUN):
            end = min(start + _RUN, width)
            largest = own[start]
            for item in range(start + 1, end):
                largest = max(largest, own[item])
            if largest <= values[row, k - 1]:
                continue
            for item in range(start, end):
                value, at = own[item], k - 1
                if value <= values[row, at]:
                    continue
                while at > 0 and values[row, at - 1] < value:
                    values[row, at], items[row, at] = values[row, at - 1], items[row, at - 1]
                    at -= 1
                values[row, at], items[row, at] = value, item


def top_of_rows(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the ``k`` items with the highest scores of each row, best first, and their scores; ties by code.

    Items with the score `LOWEST` are left out; where fewer than k remain, the item is -1 and the score `LOWEST`.

    >>> top_of_rows(np.array([[0.1, 0.9, 0.9], [LOWEST, 0.5, LOWEST]], np.float32), 2)[0].tolist()
    [[1, 2], [1, -1]]
    """
    rows, width = scores.shape
    k = min(k, width)
    if k >= _LONG:
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
        found = np.take_along_axis(scores, order, axis=1)
        return np.where(found > LOWEST, order, -1), found
    items, values = np.full((rows, k), -1, np.int32), np.full((rows, k), LOWEST, np.float32)
    run_blocks(_top_of_rows, ranges(rows, threads_for(scores.size), 1), scores, k, items, values)
    return items, values


@block_kernel
def _rank_relevant(block: Any, scores: Any, labels: Any, relevant: Any, starts: Any, above: Any, equal: Any) -> None:
    """Count the other items with a higher score, and with the same score, for each relevant item of rows."""
    for row in range(block[0], block[1]):
        start, end = starts[row], starts[row + 1]
        if start == end:
            continue
        for item in range(scores.shape[1]):
            if labels[row, item] != 0:
                continue
            score, low, high = scores[row, item], start, end
            while low < high:  # the first relevant item that does not score less
                middle = (low + high) // 2
                if relevant[middle] < score:
                    low = middle + 1
                else:
                    high = middle
            if low > start:
                above[low - 1] += 1
            if low < end and relevant[low] == score:
                equal[low] += 1
        for at in range(end - 2, start - 1, -1):  # what is above an item is above all items with lower scores
            above[at] += above[at + 1]
        for at in range(start + 1, end):  # equal scores share what the first of them has
            if relevant[at] == relevant[at - 1]:
                equal[at] = equal[at - 1]


def relevant_ranks(
    scores: NDArray[Any], labels: NDArray[np.int8], relevant: NDArray[Any], starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each relevant item how many others of its row have a higher score, and how many the same.

    ``labels`` are 0 for these others; items with another label are not counted. ``relevant`` are the scores of the
    relevant items, ascending within each row; those of a row begin at its entry of ``starts``.

    >>> scores, labels = np.array([[0.5, 0.9, 0.5, 0.1, 0.7]]), np.array([[1, 0, 0, 1, -1]], np.int8)
    >>> relevant_ranks(scores, labels, np.array([0.1, 0.5]), np.array([0, 2]))
    (array([2, 1]), array([0, 1]))
    """
    above, equal = np.zeros(len(relevant), np.int64), np.zeros(len(relevant), np.int64)
    blocks = ranges(len(scores), threads_for(2 * scores.size), 1)
    run_blocks(_rank_relevant, blocks, scores, labels, relevant, starts, above, equal)
    return above, equal
