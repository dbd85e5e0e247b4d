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

from benchmarks.quality.user_batches import MEASURES, measured, published
from rankbound.lists import Lists

# slope of the sigmoid, learning rate, whether lists are padded
VARIANTS = {
    "formula": (1.0, 0.01, False),
    "padded": (1.0, 0.01, True),
    "slope 0.01": (0.01, 0.1, False),
    "code": (0.01, 0.1, True),
}
BATCH, PADDING_SCORE = 256, -100.0


def gradient_with_slope(slope: float) -> Any:
    """The gradient of the sum over chosen i and negative or padding j of σ(slope (f_j - f_i))."""

    @numba.njit(fastmath=True)  # type: ignore[untyped-decorator]
    def add(scores: Any, labels: Any, padding: float, gradient: Any) -> None:
        for i in range(len(scores)):
            if labels[i] <= 0:
                continue
            for j in range(len(scores)):
                if labels[j] <= 0:
                    step = 1 / (1 + np.exp(-slope * (scores[j] - scores[i])))
                    gradient[j] += slope * step * (1 - step)
                    gradient[i] -= slope * step * (1 - step)
            step = 1 / (1 + np.exp(-slope * (PADDING_SCORE - scores[i])))
            gradient[i] -= padding * slope * step * (1 - step)

    return add


def padding_items(lists: Lists) -> NDArray[Any]:
    """How many items fill the list of each user."""
    return (lists.sizes.max() - lists.sizes).astype(np.float64)


def main(words: list[str]) -> int:
    epochs = int(words[0]) if words else 150
    table = Table("nRBP loss", *MEASURES)
    table.add_row("published", *(f"{value:.4f}" for value in published("listwise", "nRBP")))
    for name in words[1:] or VARIANTS:
        slope, rate, padded = VARIANTS[name]
        settings_of = padding_items if padded else None
        (values,) = measured(gradient_with_slope(slope), BATCH, rate, epochs, epochs, settings_of)
        table.add_row(name, *(f"{value:.4f}" for value in values))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
