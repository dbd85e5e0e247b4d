"""Seconds of one epoch of matrix factorization on lists, by loss, on one core.

    python -m benchmarks.quality.epoch_times                           CiteULike-a and MovieLens 1M, all losses
    python -m benchmarks.quality.epoch_times ml-1m 5 nDCG              one set, ratio of negatives, and loss

Times are those of the processor, so that other programs on the machine disturb them less: the mean of several epochs,
without what a fit needs before its first one. The last column compares each loss with the first one.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from rankbound.data import keep_users, load_set, relevant_only, sample_lists, user_folds
from rankbound.models import MatrixFactorization
from rankbound.studies.worker import one_thread

LOSSES = ("nDCG", "AP", "RR", "nRBP", "lambda-nDCG", "lambda-AP", "lambda-RR", "lambda-nRBP(p=0.95)")
CASES = (("citeulike-a", 1), ("ml-1m", 5))
EPOCHS = 5


def lists_of(name: str, ratio: float) -> tuple[Any, Any, Any]:
    """Codes of users and items, and labels; users have 25 or more positive items, a fifth of which is held out."""
    table = load_set(name)
    table = keep_users(table if name == "citeulike-a" else relevant_only(table, 4), 25).compact()
    fold = user_folds(table, 5, seed=0)
    train = sample_lists(table.rows(fold != 0), table.rows(fold == 0), train_ratio=ratio)[0]
    return np.repeat(train.users, train.lists.sizes), train.items, train.lists.labels


def seconds_of(loss: str, rows: tuple[Any, Any, Any]) -> float:
    """Processor time of an epoch: the difference of two fits, after one that compiles."""
    fits = []
    for epochs in (1, 1, 1 + EPOCHS):
        began = time.process_time()
        MatrixFactorization(32, loss, optimizer="sgd", learning_rate=0.01, batch_size=None, epochs=epochs).fit(*rows)
        fits.append(time.process_time() - began)
    return (fits[2] - fits[1]) / EPOCHS


def main(words: list[str]) -> int:
    cases = [(words[0], float(words[1]))] if words else CASES
    losses = words[2:] or LOSSES
    for name, ratio in cases:
        rows = lists_of(name, ratio)
        print(f"{name}, {ratio:g} negatives per positive, {len(rows[0]):,} rows")
        reference = None
        for loss in losses:
            with one_thread():
                seconds = seconds_of(loss, rows)
            reference = reference or seconds
            print(f"  {loss:22} {seconds:7.3f} s {seconds / reference:6.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
