"""The first items of each query by descending score, and ranks of relevant items, without sorting the others.

See ``kernels/top.cpp``. Without compiled kernels, NumPy sorts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.kernels import ARRAY, INTEGER, Arguments, kernel, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOWEST = np.finfo(np.float32).min
"""The score of an item that `top_of_rows` leaves out: below all others, and finite as they are."""
_LONG = 256  # from this k on, sorting is faster


# ---- first items of queries ------------------------------------------------------------------------------------------


class _FirstItems(Arguments):
    _fields_ = (
        ("k", INTEGER),
        ("offsets", ARRAY),
        ("scores", ARRAY),
        ("limits", ARRAY),
        ("counts", ARRAY),
        ("starts", ARRAY),
        ("order", ARRAY),
    )


def first_items(
    scores: NDArray[np.floating], offsets: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first ``k`` items of each query, all that tie with the last, and perhaps more; and their offsets.

    The items of a query descend by score; equal scores come in input order. Meant for small k: the time per item grows
    with it.

    >>> order, starts = first_items(np.array([0.1, 0.9, 0.5, 0.5, 0.7, 0.6]), np.array([0, 4, 6]), 1)
    >>> order[starts[:-1]].tolist()
    [1, 4]
    """
    queries, k = len(offsets) - 1, min(k, int(np.diff(offsets).max(initial=1)))
    count = kernel(f"first_items_count{_type_of(scores)}", _FirstItems)
    if count is None:
        return _sort_first_items(scores, offsets, k)
    limits, counts = np.empty(queries), np.empty(queries, np.int64)
    arguments = _FirstItems(
        k=k,
        offsets=np.ascontiguousarray(offsets, np.int64),
        scores=np.ascontiguousarray(scores),
        limits=limits,
        counts=counts,
    )
    run(count, arguments, queries, len(scores))
    starts = np.concatenate(([0], np.cumsum(counts)))
    order = np.empty(starts[-1], np.int64)
    arguments.set(starts=starts, order=order)
    run(kernel(f"first_items_collect{_type_of(scores)}", _FirstItems), arguments, queries, len(scores))
    return order, starts


def _sort_first_items(
    scores: NDArray[np.floating], offsets: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    sizes = np.diff(offsets)
    order = np.lexsort((-scores, np.repeat(np.arange(len(sizes)), sizes)))
    last = np.repeat(offsets[:-1] + np.minimum(k, sizes) - 1, sizes)
    kept = scores[order] >= scores[order[last]]
    return order[kept], np.concatenate(([0], np.cumsum(kept)))[offsets]


# ---- first items of dense rows ---------------------------------------------------------------------------------------


class _TopOfRows(Arguments):
    _fields_ = (("k", INTEGER), ("width", INTEGER), ("scores", ARRAY), ("items", ARRAY), ("values", ARRAY))


def top_of_rows(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the ``k`` items with the highest scores of each row, best first, and their scores; ties by code.

    Items with the score `LOWEST` are left out; where fewer than k remain, the item is -1 and the score `LOWEST`.

    >>> top_of_rows(np.array([[0.1, 0.9, 0.9], [LOWEST, 0.5, LOWEST]], np.float32), 2)[0].tolist()
    [[1, 2], [1, -1]]
    """
    rows, width = scores.shape
    k = min(k, width)
    function = kernel("top_of_rows", _TopOfRows)
    if k >= _LONG or function is None:
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
        found = np.take_along_axis(scores, order, axis=1)
        return np.where(found > LOWEST, order, -1), found
    items, values = np.full((rows, k), -1, np.int32), np.full((rows, k), LOWEST, np.float32)
    block = np.ascontiguousarray(scores, np.float32)
    arguments = _TopOfRows(k=k, width=width, scores=block, items=items, values=values)
    run(function, arguments, rows, scores.size)
    return items, values


# ---- ranks of relevant items -----------------------------------------------------------------------------------------


class _RelevantRanks(Arguments):
    _fields_ = (
        ("width", INTEGER),
        ("scores", ARRAY),
        ("labels", ARRAY),
        ("relevant", ARRAY),
        ("starts", ARRAY),
        ("above", ARRAY),
        ("equal", ARRAY),
    )


def relevant_ranks(
    scores: NDArray[np.floating], labels: NDArray[np.int8], relevant: NDArray[Any], starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each relevant item how many others of its row have a higher score, and how many the same.

    ``labels`` are 0 for these others; items with another label are not counted. ``relevant`` are the scores of the
    relevant items, ascending within each row; those of a row begin at its entry of ``starts``.

    >>> scores, labels = np.array([[0.5, 0.9, 0.5, 0.1, 0.7]]), np.array([[1, 0, 0, 1, -1]], np.int8)
    >>> relevant_ranks(scores, labels, np.array([0.1, 0.5]), np.array([0, 2]))
    (array([2, 1]), array([0, 1]))
    """
    function = kernel(f"relevant_ranks{_type_of(scores)}", _RelevantRanks)
    above, equal = np.zeros(len(relevant), np.int64), np.zeros(len(relevant), np.int64)
    if function is None:
        for row, (first, last) in enumerate(pairwise(starts)):
            others = np.sort(scores[row][labels[row] == 0])
            up_to = np.searchsorted(others, relevant[first:last], side="right")
            above[first:last] = len(others) - up_to
            equal[first:last] = up_to - np.searchsorted(others, relevant[first:last], side="left")
        return above, equal
    arguments = _RelevantRanks(
        width=scores.shape[1],
        scores=np.ascontiguousarray(scores),
        labels=np.ascontiguousarray(labels, np.int8),
        relevant=np.ascontiguousarray(relevant, scores.dtype),
        starts=np.ascontiguousarray(starts, np.int64),
        above=above,
        equal=equal,
    )
    run(function, arguments, len(scores), 2 * scores.size)
    return above, equal


def _type_of(scores: NDArray[np.floating]) -> str:
    """Return how the names of kernels for these scores end."""
    return "_f32" if scores.dtype == np.float32 else "_f64"
