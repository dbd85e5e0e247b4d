"""Matrix factorization: scores of pairs, and one optimizer step on the vectors of a batch of users.

With f_ui = p_u · q_i and g_ui the derivative of the loss in f_ui, the gradients are

    dp_u = Σ_i g_ui q_i + l2 p_u        over the rows of user u, which are contiguous
    dq_i = Σ_u g_ui p_u + l2 q_i        over the rows of item i, which an index by item lists

so every vector belongs to one thread, there are no atomic additions, and each sum has one order: results do not depend
on the number of threads. Only the vectors of the batch change. The loss comes from `rankbound.losses`. See
``kernels/factorization.cpp``; without compiled kernels, SciPy and NumPy compute the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from rankbound.kernels import ARRAY, FLOAT, INTEGER, Arguments, kernel, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.plans import Plan

_DECAY, _EPSILON = (0.9, 0.999), 1e-8  # of Adam, as in Kingma & Ba
_BLOCKS = 16  # runs of users or items of about equal work, which threads share


# ---- data ----------------------------------------------------------------------------------------------------------


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
    def from_rows(cls, plan: Plan, row_users: NDArray[np.int32], row_items: NDArray[np.int32]) -> Self:
        """Index rows that are ordered by user, as the plan's offsets split them; every user has at least one row."""
        starts = plan.offsets
        by_item = np.argsort(row_items, kind="stable").astype(np.int32)
        sorted_items = row_items[by_item]
        first = np.flatnonzero(np.diff(sorted_items, prepend=-1))
        item_starts = np.append(first, len(row_items)).astype(np.int64)
        return cls(
            plan,
            row_users,
            row_items,
            row_users[starts[:-1]],
            starts,
            _even_blocks(starts),
            sorted_items[first],
            item_starts,
            by_item,
            row_users[by_item],
            _even_blocks(item_starts),
        )


def _even_blocks(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Split groups into `_BLOCKS` runs with about equal numbers of rows.

    >>> _even_blocks(np.array([0, 90, 95, 100]))[[0, 1, -1]].tolist()
    [0, 1, 3]
    """
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], _BLOCKS + 1))
    cuts[0], cuts[-1] = 0, len(starts) - 1
    return cuts.astype(np.int64)


# ---- structs of the kernels ------------------------------------------------------------------------------------------

_OPTIMIZER = (
    ("adam", INTEGER),
    ("rate", FLOAT),
    ("l2", FLOAT),
    ("factor", FLOAT),
    ("decay", FLOAT),
    ("decay_square", FLOAT),
    ("root", FLOAT),
    ("epsilon", FLOAT),
)


class _ScorePairs(Arguments):
    _fields_ = (
        ("factors", INTEGER),
        ("users", ARRAY),
        ("items", ARRAY),
        ("row_users", ARRAY),
        ("row_items", ARRAY),
        ("scores", ARRAY),
    )


class _Step(Arguments):
    _fields_ = (
        *_OPTIMIZER,
        ("factors", INTEGER),
        ("users", ARRAY),
        ("users_first", ARRAY),
        ("users_second", ARRAY),
        ("items", ARRAY),
        ("items_first", ARRAY),
        ("items_second", ARRAY),
        ("gradient", ARRAY),
        ("row_items", ARRAY),
        ("touched_users", ARRAY),
        ("starts", ARRAY),
        ("blocks", ARRAY),
        ("touched_items", ARRAY),
        ("item_starts", ARRAY),
        ("by_item", ARRAY),
        ("item_users", ARRAY),
        ("item_blocks", ARRAY),
        ("user_totals", ARRAY),
    )


class _UpdateRows(Arguments):
    _fields_ = (
        *_OPTIMIZER,
        ("factors", INTEGER),
        ("values", ARRAY),
        ("first", ARRAY),
        ("second", ARRAY),
        ("shrink", FLOAT),
        ("rows", ARRAY),
        ("gradient", ARRAY),
    )


def _optimizer(rate: float, l2: float, factor: float, adam_step: int) -> dict[str, float]:
    """Return the numbers of an optimizer; the corrections of Adam's means are in ``rate`` and ``root``."""
    corrections = [1 - decay ** max(adam_step, 1) for decay in _DECAY]
    return {
        "adam": int(adam_step > 0),
        "rate": rate / corrections[0] if adam_step else rate,
        "l2": l2,
        "factor": factor,
        "decay": _DECAY[0],
        "decay_square": _DECAY[1],
        "root": 1 / math.sqrt(corrections[1]),
        "epsilon": _EPSILON,
    }


# ---- scores and steps ------------------------------------------------------------------------------------------------


def score_pairs(
    users: NDArray[np.float32], items: NDArray[np.float32], row_users: NDArray[np.int32], row_items: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Return p_u · q_i for each row; indices must be valid."""
    function = kernel("score_pairs", _ScorePairs)
    if function is None:
        return np.asarray(np.einsum("ij,ij->i", users[row_users], items[row_items]))
    scores = np.empty(len(row_users), np.float32)
    arguments = _ScorePairs(
        factors=users.shape[1],
        users=np.ascontiguousarray(users, np.float32),
        items=np.ascontiguousarray(items, np.float32),
        row_users=np.ascontiguousarray(row_users, np.int32),
        row_items=np.ascontiguousarray(row_items, np.int32),
        scores=scores,
    )
    run(function, arguments, len(scores), len(scores) * users.shape[1] / 4)
    return scores


def step(
    batch: Batch,
    gradient: NDArray[np.float32],
    users: Vectors,
    items: Vectors,
    *,
    rate: float,
    factor: float = 1.0,
    l2: float = 0.0,
    adam_step: int = 0,
) -> None:
    """Update the vectors of a batch in place, given the gradient of the loss with respect to the scores of its rows.

    ``factor`` multiplies the gradient. ``adam_step`` = 0 is SGD: value -= rate (factor gradient + l2 value). From 1 on
    it counts the steps of Adam. The moments of vectors outside the batch do not change, as in torch's SparseAdam.
    """
    optimizer = _optimizer(rate, l2, factor, adam_step)
    if kernel("step_users", _Step) is None:
        by_user = csr_matrix((gradient, batch.row_items, batch.starts), (len(batch.users), len(items.values)))
        by_item = csr_matrix(
            (gradient[batch.by_item], batch.item_users, batch.item_starts), (len(batch.items), len(users.values))
        )
        user_totals, item_totals = by_user @ items.values, by_item @ users.values
        _update(users, batch.users, user_totals, optimizer)
        _update(items, batch.items, item_totals, optimizer)
        return
    factors = users.values.shape[1]
    arguments = _Step(
        factors=factors,
        users=users.values,
        users_first=users.first,
        users_second=users.second,
        items=items.values,
        items_first=items.first,
        items_second=items.second,
        gradient=gradient,
        row_items=batch.row_items,
        touched_users=batch.users,
        starts=batch.starts,
        blocks=batch.blocks,
        touched_items=batch.items,
        item_starts=batch.item_starts,
        by_item=batch.by_item,
        item_users=batch.item_users,
        item_blocks=batch.item_blocks,
        user_totals=np.empty((len(batch.users), factors), np.float32),
        **optimizer,
    )
    work = len(gradient) * factors / 2
    for name in ("step_user_totals", "step_items", "step_users"):  # gradients are computed before anything changes
        run(kernel(name, _Step), arguments, _BLOCKS, work)


def update_rows(
    vectors: Vectors,
    rows: NDArray[np.int64],
    gradient: NDArray[np.float32],
    *,
    rate: float,
    factor: float = 1.0,
    decay: float = 0.0,
    adam_step: int = 0,
) -> None:
    """Update some vectors in place with a gradient for each of them; other vectors and their moments do not change.

    The vectors are multiplied by 1 - rate * decay, apart from the gradient (decoupled weight decay, Loshchilov & Hutter
    2019), so that the effect of the decay does not depend on the scale of the loss. For the rest see `step`.
    """
    optimizer, shrink = _optimizer(rate, 0.0, factor, adam_step), 1 - rate * decay
    function = kernel("update_rows", _UpdateRows)
    if function is None:
        vectors.values[rows] *= np.float32(shrink)
        _update(vectors, rows, gradient, optimizer)
        return
    arguments = _UpdateRows(
        factors=gradient.shape[1],
        values=vectors.values,
        first=vectors.first,
        second=vectors.second,
        shrink=shrink,
        rows=np.ascontiguousarray(rows, np.int64),
        gradient=np.ascontiguousarray(gradient, np.float32),
        **optimizer,
    )
    run(function, arguments, len(rows), 10 * gradient.size)


def _update(vectors: Vectors, rows: NDArray[Any], total: NDArray[Any], optimizer: dict[str, float]) -> None:
    """Apply one step of SGD or Adam to distinct rows: what the kernels do."""
    n = {name: np.float32(number) for name, number in optimizer.items()}
    gradient = n["factor"] * np.asarray(total, np.float32) + n["l2"] * vectors.values[rows]
    if not optimizer["adam"]:
        vectors.values[rows] -= n["rate"] * gradient
        return
    first = n["decay"] * vectors.first[rows] + np.float32(1 - optimizer["decay"]) * gradient
    second = n["decay_square"] * vectors.second[rows] + np.float32(1 - optimizer["decay_square"]) * gradient * gradient
    vectors.first[rows], vectors.second[rows] = first, second
    vectors.values[rows] -= n["rate"] * first / (n["root"] * np.sqrt(second) + n["epsilon"])
