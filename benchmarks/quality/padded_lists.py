"""What padded lists change in a loss: the nRBP loss of Li et al. (2021), by their formula and as their code has it.

    python -m benchmarks.quality.padded_lists                 all four variants, 150 epochs each
    python -m benchmarks.quality.padded_lists 300 code        more epochs of one variant

Their code fills the list of each user with items of score -100, up to the longest list, and the slope of its sigmoid is
0.01, because arguments are given in another order than they are declared. With this slope, an item of score -100 counts
almost as much as one of score 0: the items that fill a list push the scores of all chosen items up, whatever the scores
of the negative items are. Data: CiteULike-a, split 0, one negative item per chosen one. The published values are those
of the best epoch on the test data; the last epoch is shown here.
"""

from __future__ import annotations

import sys
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rankbound.data import load_fold, sample_lists
from rankbound.evaluation import evaluate_lists
from rankbound.experiments.results import published_number, read_published
from rankbound.experiments.spec import load_study

MEASURES = ("RR", "AP", "nDCG", "RBP(p=0.8)", "RBP(p=0.9)", "RBP(p=0.95)")
SETTING = {"table": "listwise", "data": "citeulike-a", "loss": "nRBP", "nsr": "1"}
# slope of the sigmoid, learning rate, whether lists are padded
VARIANTS = {
    "formula": (1.0, 0.01, False),
    "padded": (1.0, 0.01, True),
    "slope 0.01": (0.01, 0.1, False),
    "code": (0.01, 0.1, True),
}
BATCH, FACTORS, START, PADDING_SCORE = 256, 32, 0.01, -100.0
Array = NDArray[Any]


@numba.njit(fastmath=True)
def _add_gradients(
    users: Array, items: Array, labels: Array, offsets: Array, codes: Array, batch: Array, slope: float, padding: Array,
    to_users: Array, to_items: Array,
) -> None:  # fmt: skip
    """Add the gradient of the sum over chosen i and negative or padding j of σ(slope (f_j - f_i))."""
    for query in batch:
        rows = slice(offsets[query], offsets[query + 1])
        vector, vectors, chosen = users[query], items[codes[rows]], labels[rows] > 0
        scores = vectors @ vector
        gradient = np.zeros(len(scores))
        for i in range(len(scores)):
            if not chosen[i]:
                continue
            for j in range(len(scores)):
                if not chosen[j]:
                    step = 1 / (1 + np.exp(-slope * (scores[j] - scores[i])))
                    gradient[j] += slope * step * (1 - step)
                    gradient[i] -= slope * step * (1 - step)
            step = 1 / (1 + np.exp(-slope * (PADDING_SCORE - scores[i])))
            gradient[i] -= padding[query] * slope * step * (1 - step)
        to_users[query] += gradient @ vectors
        for row in range(len(scores)):
            to_items[codes[rows][row]] += gradient[row] * vector


def measured(slope: float, rate: float, padded: bool, epochs: int) -> list[float]:
    """Train by SGD, and return the measures on the test lists after the last epoch."""
    fold = load_fold("citeulike-a", 0)
    train, test = sample_lists(fold.train, fold.test, train_ratio=1, test_ratio=1, protocol="published", seed=0)
    rng = np.random.default_rng(0)
    users = rng.uniform(-START, START, (len(train.users), FACTORS))
    items = rng.uniform(-START, START, (len(fold.train.item_names), FACTORS))
    sizes = train.lists.sizes
    padding = (sizes.max() - sizes).astype(np.float64) * padded
    for _ in range(epochs):
        order = rng.permutation(len(users))
        for start in range(0, len(order), BATCH):
            to_users, to_items = np.zeros_like(users), np.zeros_like(items)
            _add_gradients(
                users, items, train.lists.labels, train.lists.offsets, train.items, order[start : start + BATCH], slope,
                padding, to_users, to_items,
            )  # fmt: skip
            users -= rate * to_users
            items -= rate * to_items
    row_of = np.searchsorted(train.users, np.repeat(test.users, test.lists.sizes))
    scores = np.einsum("ij,ij->i", users[row_of], items[test.items])
    means = evaluate_lists(test.lists.with_scores(scores), MEASURES).mean()
    return [means[name] for name in MEASURES]


def published() -> list[float | None]:
    """Return the published values of the measures."""
    table = read_published(load_study("insights-fig1").published_path, SETTING)
    assert table is not None  # it is a part of the package
    return [published_number(table, SETTING, name, {0}) for name in MEASURES]


def main(words: list[str]) -> int:
    epochs = int(words[0]) if words else 150
    table = Table("nRBP loss", *MEASURES)
    table.add_row("published", *(f"{value:.4f}" for value in published()))
    for name in words[1:] or VARIANTS:
        slope, rate, padded = VARIANTS[name]
        table.add_row(name, *(f"{value:.4f}" for value in measured(slope, rate, padded, epochs)))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
