"""Kernels of matrix factorization: scores of pairs, and one step of the vectors that a batch of users touches.

With f_ui = p_u · q_i and g_ui the derivative of the loss in f_ui, the gradients are

    dp_u = Σ_i g_ui q_i + l2 p_u        over the rows of user u, which stand side by side
    dq_i = Σ_u g_ui p_u + l2 q_i        over the rows of item i, which an index by item lists

so every vector belongs to one thread, nothing is added atomically, and each sum runs in one order: results do not
depend on the number of threads. Only the vectors of the batch move. The loss itself is that of `rankbound.losses`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numba import prange

from rankbound.losses.compiling import helper, kernel, running

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.plans import Plan

__all__ = ["Batch", "Vectors", "score_pairs", "step"]

_DECAY, _EPSILON = (0.9, 0.999), 1e-8  # of Adam, as in Kingma & Ba
_LANES = 16  # shares of equal work that the threads deal among them; more than any small machine has threads


# ---- what the kernels work on ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of users or of items, float32, with Adam's running means of their gradients and squared gradients."""

    values: NDArray[np.float32]
    first: NDArray[np.float32]
    second: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Batch:
    """Some users with their lists, indexed by user and by item.

    ``row_users`` and ``row_items`` have an entry per row, rows of a user side by side. The rows of ``users[a]`` are
    ``starts[a]:starts[a + 1]``; those of ``items[b]`` are ``by_item[item_starts[b]:item_starts[b + 1]]``, and
    ``item_users`` their users. Lanes are runs of users, and of items, with about equally many rows.
    """

    plan: Plan
    row_users: NDArray[np.int32]
    row_items: NDArray[np.int32]
    users: NDArray[np.int32]
    starts: NDArray[np.int64]
    blocks: NDArray[np.int64]
    items: NDArray[np.int32]
    item_starts: NDArray[np.int64]
    by_item: NDArray[np.int32]
    item_users: NDArray[np.int32]
    item_lanes: NDArray[np.int64]

    @classmethod
    def of(cls, plan: Plan, row_users: NDArray[np.int32], row_items: NDArray[np.int32]) -> Self:
        """From rows that stand user by user, as the plan's offsets cut them; every user has at least one."""
        starts = plan.offsets
        by_item = np.argsort(row_items, kind="stable").astype(np.int32)
        sorted_items = row_items[by_item]
        first = np.flatnonzero(np.diff(sorted_items, prepend=-1))
        item_starts = np.append(first, len(row_items)).astype(np.int64)
        return cls(
            plan, row_users, row_items, row_users[starts[:-1]], starts, _even_lanes(starts),
            sorted_items[first], item_starts, by_item, row_users[by_item], _even_lanes(item_starts),
        )  # fmt: skip


def _even_lanes(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cuts of groups into `_LANES` runs of about equally many rows.

    >>> _even_lanes(np.array([0, 90, 95, 100]))[[0, 1, -1]].tolist()
    [0, 1, 3]
    """
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], _LANES + 1))
    cuts[0], cuts[-1] = 0, len(starts) - 1
    return cuts.astype(np.int64)


# ---- kernels ---------------------------------------------------------------------------------------------------------


@helper
def _pull(weights: Any, others: Any, vectors: Any, pull: Any) -> None:
    """pull = Σ weight * vector of the other side; four at a time, so that pull itself is loaded and stored less often.

    Two indices in place of a slice of the vectors: that takes half the time.
    """
    pull[:] = 0
    fours = len(weights) - len(weights) % 4
    for r in range(0, fours, 4):
        weight0, weight1, weight2, weight3 = weights[r], weights[r + 1], weights[r + 2], weights[r + 3]
        other0, other1, other2, other3 = others[r], others[r + 1], others[r + 2], others[r + 3]
        for f in range(len(pull)):
            pull[f] += (
                weight0 * vectors[other0, f] + weight1 * vectors[other1, f]
                + weight2 * vectors[other2, f] + weight3 * vectors[other3, f]
            )  # fmt: skip
    for r in range(fours, len(weights)):
        weight, other = weights[r], others[r]
        for f in range(len(pull)):
            pull[f] += weight * vectors[other, f]


@helper
def _move(value: Any, pull: Any, first: Any, second: Any, adam: bool, numbers: Any) -> None:
    """One step of a vector by SGD or Adam; for ``numbers`` see `step`."""
    rate, l2, share = numbers[0], numbers[1], numbers[2]
    if not adam:
        for f in range(len(value)):
            value[f] -= rate * (share * pull[f] + l2 * value[f])
        return
    keep, take, keep_square, take_square = numbers[3], numbers[4], numbers[5], numbers[6]
    root, epsilon = numbers[7], numbers[8]
    for f in range(len(value)):
        gradient = share * pull[f] + l2 * value[f]
        first[f] = keep * first[f] + take * gradient
        second[f] = keep_square * second[f] + take_square * gradient * gradient
        value[f] -= rate * first[f] / (root * math.sqrt(second[f]) + epsilon)


@kernel
def _score(users: Any, items: Any, row_users: Any, row_items: Any, scores: Any) -> None:
    for r in prange(len(scores)):
        user, item = row_users[r], row_items[r]
        score = np.float32(0)
        for f in range(users.shape[1]):
            score += users[user, f] * items[item, f]
        scores[r] = score


@kernel
def _step(
    row_items: Any, touched_users: Any, starts: Any, blocks: Any,
    touched_items: Any, item_starts: Any, by_item: Any, item_users: Any, item_lanes: Any,
    gradient: Any, users: Any, users_first: Any, users_second: Any, items: Any, items_first: Any, items_second: Any,
    adam: bool, numbers: Any,
) -> None:  # fmt: skip
    factors = users.shape[1]
    pulls = np.empty((len(touched_users), factors), np.float32)
    sorted_gradient = np.empty_like(gradient)
    for block in prange(len(blocks) - 1):  # what pulls the users, while the items stand where the scores saw them
        for a in range(blocks[block], blocks[block + 1]):
            lo, hi = starts[a], starts[a + 1]
            _pull(gradient[lo:hi], row_items[lo:hi], items, pulls[a])
    for block in prange(len(item_lanes) - 1):  # the items are pulled and move, while the users still stand
        pull = np.empty(factors, np.float32)
        for b in range(item_lanes[block], item_lanes[block + 1]):
            lo, hi = item_starts[b], item_starts[b + 1]
            for r in range(lo, hi):
                sorted_gradient[r] = gradient[by_item[r]]
            _pull(sorted_gradient[lo:hi], item_users[lo:hi], users, pull)
            i = touched_items[b]
            _move(items[i], pull, items_first[i], items_second[i], adam, numbers)
    for block in prange(len(blocks) - 1):  # now the users move
        for a in range(blocks[block], blocks[block + 1]):
            u = touched_users[a]
            _move(users[u], pulls[a], users_first[u], users_second[u], adam, numbers)


# ---- calls -----------------------------------------------------------------------------------------------------------


def score_pairs(
    users: NDArray[np.float32], items: NDArray[np.float32], row_users: NDArray[np.int32], row_items: NDArray[np.int32]
) -> NDArray[np.float32]:
    """p_u · q_i for each row; indices must lie within the vectors."""
    scores = np.empty(len(row_users), np.float32)
    with running(len(scores) * users.shape[1] / 4):
        _score(users, items, row_users, row_items, scores)
    return scores


def step(
    batch: Batch, gradient: NDArray[np.float32], users: Vectors, items: Vectors,
    *, rate: float, share: float = 1.0, l2: float = 0.0, adam_step: int = 0,
) -> None:  # fmt: skip
    """Move the vectors of a batch, in place, against the gradient of the loss in its rows' scores times ``share``.

    ``adam_step`` = 0 is SGD: value -= rate (share gradient + l2 value). From 1 on it counts the steps of Adam,
    whose moments of vectors outside the batch stay as they are (torch's SparseAdam; equal to Adam if all are inside).
    """
    grown = [1 - decay ** max(adam_step, 1) for decay in _DECAY]
    numbers = np.array(
        [
            rate / grown[0] if adam_step else rate, l2, share,
            _DECAY[0], 1 - _DECAY[0], _DECAY[1], 1 - _DECAY[1], 1 / math.sqrt(grown[1]), _EPSILON,
        ],
        np.float32,
    )  # fmt: skip
    with running(len(gradient) * users.values.shape[1]):
        _step(
            batch.row_items, batch.users, batch.starts, batch.blocks,
            batch.items, batch.item_starts, batch.by_item, batch.item_users, batch.item_lanes,
            gradient, users.values, users.first, users.second, items.values, items.first, items.second,
            adam_step > 0, numbers,
        )  # fmt: skip
