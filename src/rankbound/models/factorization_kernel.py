"""Kernels of matrix factorization: scores of pairs, and one optimizer step on the vectors of a batch of users.

With f_ui = p_u · q_i and g_ui the derivative of the loss in f_ui, the gradients are

    dp_u = Σ_i g_ui q_i + l2 p_u        over the rows of user u, which are contiguous
    dq_i = Σ_u g_ui p_u + l2 q_i        over the rows of item i, which an index by item lists

so every vector belongs to one thread, there are no atomic additions, and each sum has one order: results do not depend
on the number of threads. Only the vectors of the batch change. The loss comes from `rankbound.losses`.
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

__all__ = ["Batch", "Vectors", "score_pairs", "step", "update_rows"]

_DECAY, _EPSILON = (0.9, 0.999), 1e-8  # of Adam, as in Kingma & Ba
_BLOCKS = 16  # blocks of about equal work that threads share, more than a small machine has threads


# ---- data of the kernels ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of users or of items, float32, with Adam's running means of their gradients and squared gradients."""

    values: NDArray[np.float32]
    first: NDArray[np.float32]
    second: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Batch:
    """Some users with their lists, indexed by user and by item.

    ``row_users`` and ``row_items`` have an entry per row, the rows of a user contiguous. The rows of ``users[a]`` are
    ``starts[a]:starts[a + 1]``; those of ``items[b]`` are ``by_item[item_starts[b]:item_starts[b + 1]]``, and
    ``item_users`` their users. Blocks are runs of users, or of items, with about equal numbers of rows.
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
    item_blocks: NDArray[np.int64]

    @classmethod
    def of(cls, plan: Plan, row_users: NDArray[np.int32], row_items: NDArray[np.int32]) -> Self:
        """Index rows that are ordered by user, as the plan's offsets split them; every user has at least one row."""
        starts = plan.offsets
        by_item = np.argsort(row_items, kind="stable").astype(np.int32)
        sorted_items = row_items[by_item]
        first = np.flatnonzero(np.diff(sorted_items, prepend=-1))
        item_starts = np.append(first, len(row_items)).astype(np.int64)
        return cls(
            plan, row_users, row_items, row_users[starts[:-1]], starts, _even_blocks(starts),
            sorted_items[first], item_starts, by_item, row_users[by_item], _even_blocks(item_starts),
        )  # fmt: skip


def _even_blocks(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Split groups into `_BLOCKS` runs with about equal numbers of rows.

    >>> _even_blocks(np.array([0, 90, 95, 100]))[[0, 1, -1]].tolist()
    [0, 1, 3]
    """
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], _BLOCKS + 1))
    cuts[0], cuts[-1] = 0, len(starts) - 1
    return cuts.astype(np.int64)


# ---- kernels ---------------------------------------------------------------------------------------------------------


@helper
def _weighted_sum(weights: Any, others: Any, vectors: Any, total: Any) -> None:
    """Set total = Σ weight * vectors[other], four rows at a time, so that total is loaded and stored less often.

    Indexing by two numbers takes half the time of a slice of the vectors.
    """
    total[:] = 0
    fours = len(weights) - len(weights) % 4
    for r in range(0, fours, 4):
        weight0, weight1, weight2, weight3 = weights[r], weights[r + 1], weights[r + 2], weights[r + 3]
        other0, other1, other2, other3 = others[r], others[r + 1], others[r + 2], others[r + 3]
        for f in range(len(total)):
            total[f] += (
                weight0 * vectors[other0, f] + weight1 * vectors[other1, f]
                + weight2 * vectors[other2, f] + weight3 * vectors[other3, f]
            )  # fmt: skip
    for r in range(fours, len(weights)):
        weight, other = weights[r], others[r]
        for f in range(len(total)):
            total[f] += weight * vectors[other, f]


@helper
def _update(value: Any, total: Any, first: Any, second: Any, adam: bool, numbers: Any) -> None:
    """Apply one step of SGD or Adam to a vector; for ``numbers`` see `step`."""
    rate, l2, factor = numbers[0], numbers[1], numbers[2]
    if not adam:
        for f in range(len(value)):
            value[f] -= rate * (factor * total[f] + l2 * value[f])
        return
    decay, rest, decay_square, rest_square = numbers[3], numbers[4], numbers[5], numbers[6]
    root, epsilon = numbers[7], numbers[8]
    for f in range(len(value)):
        gradient = factor * total[f] + l2 * value[f]
        first[f] = decay * first[f] + rest * gradient
        second[f] = decay_square * second[f] + rest_square * gradient * gradient
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
    touched_items: Any, item_starts: Any, by_item: Any, item_users: Any, item_blocks: Any,
    gradient: Any, users: Any, users_first: Any, users_second: Any, items: Any, items_first: Any, items_second: Any,
    adam: bool, numbers: Any,
) -> None:  # fmt: skip
    factors = users.shape[1]
    user_totals = np.empty((len(touched_users), factors), np.float32)
    sorted_gradient = np.empty_like(gradient)
    for block in prange(len(blocks) - 1):  # gradients of users, before the items change
        for a in range(blocks[block], blocks[block + 1]):
            lo, hi = starts[a], starts[a + 1]
            _weighted_sum(gradient[lo:hi], row_items[lo:hi], items, user_totals[a])
    for block in prange(len(item_blocks) - 1):  # gradients and steps of items, before the users change
        total = np.empty(factors, np.float32)
        for b in range(item_blocks[block], item_blocks[block + 1]):
            lo, hi = item_starts[b], item_starts[b + 1]
            for r in range(lo, hi):
                sorted_gradient[r] = gradient[by_item[r]]
            _weighted_sum(sorted_gradient[lo:hi], item_users[lo:hi], users, total)
            i = touched_items[b]
            _update(items[i], total, items_first[i], items_second[i], adam, numbers)
    for block in prange(len(blocks) - 1):  # steps of users
        for a in range(blocks[block], blocks[block + 1]):
            u = touched_users[a]
            _update(users[u], user_totals[a], users_first[u], users_second[u], adam, numbers)


# ---- calls -----------------------------------------------------------------------------------------------------------


def score_pairs(
    users: NDArray[np.float32], items: NDArray[np.float32], row_users: NDArray[np.int32], row_items: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Return p_u · q_i for each row; indices must be valid."""
    scores = np.empty(len(row_users), np.float32)
    with running(len(scores) * users.shape[1] / 4):
        _score(users, items, row_users, row_items, scores)
    return scores


def step(
    batch: Batch, gradient: NDArray[np.float32], users: Vectors, items: Vectors,
    *, rate: float, factor: float = 1.0, l2: float = 0.0, adam_step: int = 0,
) -> None:  # fmt: skip
    """Update the vectors of a batch in place, given the gradient of the loss with respect to the scores of its rows.

    ``factor`` multiplies the gradient. ``adam_step`` = 0 is SGD: value -= rate (factor gradient + l2 value). From 1 on
    it counts the steps of Adam. The moments of vectors outside the batch do not change, as in torch's SparseAdam.
    """
    numbers = _step_numbers(rate, l2, factor, adam_step)
    with running(len(gradient) * users.values.shape[1]):
        _step(
            batch.row_items, batch.users, batch.starts, batch.blocks,
            batch.items, batch.item_starts, batch.by_item, batch.item_users, batch.item_blocks,
            gradient, users.values, users.first, users.second, items.values, items.first, items.second,
            adam_step > 0, numbers,
        )  # fmt: skip


def _step_numbers(rate: float, l2: float, factor: float, adam_step: int) -> NDArray[np.float32]:
    """Return the numbers that `_update` needs."""
    corrections = [1 - decay ** max(adam_step, 1) for decay in _DECAY]
    return np.array(
        [
            rate / corrections[0] if adam_step else rate, l2, factor,
            _DECAY[0], 1 - _DECAY[0], _DECAY[1], 1 - _DECAY[1], 1 / math.sqrt(corrections[1]), _EPSILON,
        ],
        np.float32,
    )  # fmt: skip


@kernel
def _update_rows(
    rows: Any, gradient: Any, values: Any, first: Any, second: Any, shrink: Any, adam: bool, numbers: Any
) -> None:
    for a in prange(len(rows)):
        row = rows[a]
        values[row] *= shrink
        _update(values[row], gradient[a], first[row], second[row], adam, numbers)


def update_rows(
    vectors: Vectors, rows: NDArray[np.int64], gradient: NDArray[np.float32],
    *, rate: float, factor: float = 1.0, decay: float = 0.0, adam_step: int = 0,
) -> None:  # fmt: skip
    """Update some vectors in place with a gradient for each of them; other vectors and their moments do not change.

    The vectors are multiplied by 1 - rate * decay, apart from the gradient (decoupled weight decay, Loshchilov & Hutter
    2019), so that the effect of the decay does not depend on the scale of the loss. For the rest see `step`.
    """
    with running(10 * gradient.size):
        _update_rows(
            rows, gradient, vectors.values, vectors.first, vectors.second, np.float32(1 - rate * decay),
            adam_step > 0, _step_numbers(rate, 0.0, factor, adam_step),
        )  # fmt: skip
