"""Matrix factorization by SGD on batches of users, for variants of the losses of Li et al. (2021) that we do not offer.

A variant is a compiled function ``score_gradient(scores, labels, setting, gradient)`` that adds the gradient of one
user's loss with respect to the scores. Data: CiteULike-a, split 0, one negative item per chosen one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from rankbound.data import load_fold, sample_lists
from rankbound.evaluation import evaluate_lists
from rankbound.lists import Lists
from rankbound.studies.results import published_number, read_published
from rankbound.studies.study_files import load_study

__all__ = ["MEASURES", "measured", "published"]

MEASURES = ("RR", "AP", "nDCG", "RBP(p=0.8)", "RBP(p=0.9)", "RBP(p=0.95)")
FACTORS, START = 32, 0.01
Array = NDArray[Any]


@numba.njit(fastmath=True, error_model="numpy")
def _epoch(
    score_gradient: Any, settings: Array, users: Array, items: Array, labels: Array, offsets: Array, codes: Array,
    order: Array, size: int, rate: float,
) -> None:  # fmt: skip
    """One step for each batch of users: all gradients of a batch are those of the vectors before its step."""
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        ends = np.cumsum(offsets[batch + 1] - offsets[batch])
        gradient, moves = np.zeros(ends[-1]), np.zeros((len(batch), users.shape[1]))
        for at, user in enumerate(batch):
            rows = slice(offsets[user], offsets[user + 1])
            vectors, own = items[codes[rows]], gradient[ends[at] - (rows.stop - rows.start) : ends[at]]
            score_gradient(vectors @ users[user], labels[rows], settings[user], own)
            moves[at] = own @ vectors
        for at, user in enumerate(batch):
            first, last = offsets[user], offsets[user + 1]
            own = gradient[ends[at] - (last - first) : ends[at]]
            for row in range(last - first):
                items[codes[first + row]] -= rate * own[row] * users[user]
        for at, user in enumerate(batch):
            users[user] -= rate * moves[at]


def measured(
    score_gradient: Any, size: int, rate: float, epochs: int, every: int,
    settings_of: Callable[[Lists], Array] | None = None,
) -> Iterator[list[float]]:  # fmt: skip
    """Train on batches of ``size`` users, and yield the measures on the test lists after ``every`` epochs.

    ``settings_of`` maps the training lists to a number per user, which the gradient gets; None: 0.
    """
    fold = load_fold("citeulike-a", 0)
    train, test = sample_lists(fold.train, fold.test, train_ratio=1, test_ratio=1, protocol="published", seed=0)
    rng = np.random.default_rng(0)
    users = rng.uniform(-START, START, (len(train.users), FACTORS))
    items = rng.uniform(-START, START, (len(fold.train.item_names), FACTORS))
    lists = train.lists
    settings = np.zeros(len(lists)) if settings_of is None else settings_of(lists)
    row_of = np.searchsorted(train.users, np.repeat(test.users, test.lists.sizes))
    for epoch in range(1, epochs + 1):
        order = rng.permutation(len(users))
        _epoch(score_gradient, settings, users, items, lists.labels, lists.offsets, train.items, order, size, rate)
        if not np.isfinite(users).all():  # it diverges
            return
        if epoch % every == 0:
            scores = np.einsum("ij,ij->i", users[row_of], items[test.items])
            means = evaluate_lists(test.lists.with_scores(scores), MEASURES).mean()
            yield [means[name] for name in MEASURES]


def published(table: str, loss: str) -> list[float]:
    """The published values of the measures for this loss, on split 0 with one negative item per chosen one."""
    setting = {"table": table, "data": "citeulike-a", "loss": loss, "nsr": "1"}
    numbers = read_published(load_study("insights-fig1").published_path, setting)
    assert numbers is not None  # it is a part of the package
    found = [published_number(numbers, setting, name, {0}) for name in MEASURES]
    return [float("nan") if value is None else value for value in found]
