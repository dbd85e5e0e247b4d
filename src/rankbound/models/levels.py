"""Classification of graded labels: one yes-or-no question per level, and the expected label as the score.

With the levels l_0 < l_1 < ... of the training labels, one classifier per level above the lowest answers "is the label
at least l_c?". Their probabilities give the expected label, E[l] = l_0 + sum over c of (l_c - l_{c-1}) P(label >= l_c),
by which items are ranked: the ordinal form of McRank (Li, Burges & Wu 2007). For two levels it is plain
classification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST_LEVELS", "expected_label", "label_levels"]

MOST_LEVELS = 32  # a classifier each: more levels are a regression


def label_levels(labels: NDArray[Any]) -> NDArray[np.float64]:
    """The different labels in ascending order, at least two (labels have been checked) and not too many.

    >>> label_levels(np.array([2, 0, 0, 4]))
    array([0., 2., 4.])
    """
    levels = np.unique(labels).astype(np.float64)
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"classification takes at most {MOST_LEVELS} different labels, got {len(levels)}; use regression"
        )
    return levels


def expected_label(at_least: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Expected label of each row from P(label >= level), a column per level above the lowest.

    >>> expected_label(np.array([[1.0, 0.5]]), np.array([0.0, 2.0, 4.0]))
    array([3.])
    """
    score = np.full(len(at_least), levels[0])
    for column, step in enumerate(np.diff(levels)):  # in one fixed order, so that a row's score is its own
        score += step * at_least[:, column]
    return score
