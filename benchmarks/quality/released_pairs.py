"""The pairwise losses of Li et al. (2021), by their formulas and as their code has them, on CiteULike-a.

    python -m benchmarks.quality.released_pairs                all losses, 120 epochs each
    python -m benchmarks.quality.released_pairs 60 AP          fewer epochs of one loss

By the formulas, LambdaRank moves each pair of a chosen item i and a negative item j by |Δ| σ(f_j - f_i), where Δ is the
change of the measure if the two swap their ranks. The code differs in two ways:

- It sums |Δ| σ(f_j - f_i) over pairs and differentiates the sum, which moves a pair by |Δ| σ (1 - σ): a pair in a very
  wrong order hardly moves.
- Its Δ are others: that of DCG is not divided by the ideal DCG, so that users with many items count more; those of AP
  and RR are zero for pairs in the right order, and that of RR for all chosen items but the first. The one of RBP we did
  not see.

It trains on batches of 16 users, by default for 120 epochs. The values are those of the epoch that is best on the test
data by the measure of the loss, looked at every tenth epoch. Data: split 0, one negative item per chosen one.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numba
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.quality.user_batches import MEASURES, measured, published

FORMS = ("formula", "code")
RATES = (0.001, 0.01, 0.1)
BATCH, EVERY = 16, 10


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def ranked_terms(chosen: Any) -> Any:
    """The number of chosen items down to each rank, the sum of their reciprocal ranks, and the ideal DCG."""
    ranks = np.arange(1.0, 1 + len(chosen))
    count = np.cumsum(chosen)
    return count, np.cumsum(chosen / ranks), (1 / np.log2(1 + ranks[: int(count[-1])])).sum()


# |Δ| of a chosen item at rank i and a negative one at rank j, counted from 0, with the terms above.


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def _ndcg(count: Any, inverse: Any, ideal: float, i: int, j: int, as_code: bool) -> float:
    change: float = abs(1 / np.log2(2.0 + i) - 1 / np.log2(2.0 + j))
    return change if as_code else change / ideal


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def _ap(count: Any, inverse: Any, ideal: float, i: int, j: int, as_code: bool) -> float:
    low, high = min(i, j), max(i, j)
    before = count[low] + (1.0 if j < i else 0.0)  # down to the better rank, with the chosen item there
    between = inverse[high] - inverse[low] - (1.0 / (high + 1) if j < i else 0.0)
    change: float = (before / (low + 1) - count[high] / (high + 1) + between) / count[-1]
    return 0.0 if as_code and i < j else change


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def _rr(count: Any, inverse: Any, ideal: float, i: int, j: int, as_code: bool) -> float:
    first = np.searchsorted(count, 1)
    if i == first and i < j:
        following = min(np.searchsorted(count, 2), j)
        return 0.0 if as_code else 1.0 / (first + 1) - 1.0 / (following + 1)
    if j > first or (as_code and i != first):
        return 0.0
    return 1.0 / (j + 1) - 1.0 / (first + 1)


SWAPS = {"nDCG": _ndcg, "AP": _ap, "RR": _rr}


def gradient_of(loss: str, form: str) -> Any:
    """The gradient of a loss by its formula, or as the code has it."""
    swap, as_code = SWAPS[loss], form == "code"

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def add(scores: Any, labels: Any, _: float, gradient: Any) -> None:
        order = np.argsort(-scores)
        chosen = (labels[order] > 0).astype(np.float64)
        count, inverse, ideal = ranked_terms(chosen)
        for i in range(len(order)):
            if not chosen[i]:
                continue
            for j in range(len(order)):
                if not chosen[j]:
                    wrong = 1 / (1 + np.exp(scores[order[i]] - scores[order[j]]))
                    weight = swap(count, inverse, ideal, i, j, as_code)
                    move = weight * wrong * ((1 - wrong) if as_code else 1.0)
                    gradient[order[j]] += move
                    gradient[order[i]] -= move

    return add


def main(words: list[str]) -> int:
    epochs = int(words[0]) if words else 120
    for loss in words[1:] or SWAPS:
        own = MEASURES.index(loss)
        table = Table("loss", "rate", *MEASURES, title=f"lambda-{loss}, {epochs} epochs")
        table.add_row("published", "", *(f"{value:.4f}" for value in published("pairwise", f"lambda-{loss}")))
        for form, rate in itertools.product(FORMS, RATES):
            found = measured(gradient_of(loss, form), BATCH, rate, epochs, EVERY)
            best = max(found, key=lambda values: values[own], default=[])
            table.add_row(form, f"{rate:g}", *(f"{value:.4f}" for value in best or [np.nan] * len(MEASURES)))
        Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
