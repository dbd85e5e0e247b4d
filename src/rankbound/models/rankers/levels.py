"""Classification of graded labels: one binary classifier per level, and the expected label as the score.

With the levels l_0 < l_1 < ... of the training labels, one classifier per level above the lowest predicts whether the
label is at least l_c. Their probabilities give the expected label,

    E[l] = l_0 + sum over c of (l_c - l_{c-1}) P(label >= l_c),

by which items are ranked: the ordinal form of McRank (Li, Burges & Wu, "McRank: learning to rank using multiple
classification and gradient boosting", 2007). With two levels it is binary classification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_LEVELS = 32  # each has a classifier; more levels call for regression


def label_levels(labels: NDArray[np.number]) -> NDArray[np.float64]:
    """Return the distinct labels in ascending order; there are at least two, because labels have been checked.

    >>> label_levels(np.array([2, 0, 0, 4]))
    array([0., 2., 4.])
    """
    levels = np.unique(labels).astype(np.float64)
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"classification requires at most {MAX_LEVELS} distinct labels, got {len(levels)}; use regression"
        )
    return levels


def expected_label(at_least: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected label of each row from P(label >= level), a column per level above the lowest.

    >>> expected_label(np.array([[1.0, 0.5]]), np.array([0.0, 2.0, 4.0]))
    array([3.])
    """
    score = np.full(len(at_least), levels[0])
    for column, step in enumerate(np.diff(levels)):  # in a fixed order, so that a score depends on its row only
        score += step * at_least[:, column]
    return score
