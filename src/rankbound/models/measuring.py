"""Measures of a model's scores: the mean that `score` reports, and evaluation of many candidates at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.difficulty.bounding import difficulty_of
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.lists import Lists
from rankbound.measures import LabelCounts
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_ITEMS = 1_000_000  # of one evaluation of candidates, which takes a few dozen MB


def score_measure(measure: str | Measure) -> Measure:
    """Return the measure of a name; raise ArgumentError if higher values are not better."""
    parsed = parse_measure(measure)
    if parsed.is_lower_better:
        raise ArgumentError(f"measure must be one for which higher is better, got {measure}")
    return parsed


def mean_measure(lists: Lists, scores: NDArray[np.floating], measure: str | Measure) -> float:
    """Return the mean of a measure over the queries for which it is defined; raise DataError if there is none.

    >>> round(mean_measure(Lists([1, 0, 0, 0], [0, 2, 4]), np.array([0.1, 0.3, 0.2, 0.4]), "RR"), 3)
    0.5
    """
    value = evaluate_lists(lists.with_scores(scores), [measure]).mean()[str(measure)]
    if np.isnan(value):
        raise DataError(
            f"{measure} is not defined for any of the {len(lists)} queries, because none has a relevant item"
        )
    return value


def informative_queries(lists: Lists, measure: Measure) -> NDArray[np.bool_]:
    """Return which queries distinguish rankings (best value != worst value); raise DataError if none does.

    >>> informative_queries(Lists([1, 0, 1, 1, 0], [0, 2, 4, 5]), parse_measure("AP"))
    array([ True, False, False])
    """
    difficulty = difficulty_of(measure.plain, LabelCounts.from_lists(lists))
    counts = np.asarray(np.abs(difficulty.best - difficulty.worst) > 1e-12)
    if not counts.any():
        raise DataError(
            f"{measure} must distinguish rankings of at least one query, got queries on which all rankings are equal"
        )
    return counts


def measure_candidates(lists: Lists, scores: NDArray[np.floating], measure: Measure) -> NDArray[np.float64]:
    """Return values (queries x candidates) of scores (items x candidates); NaN where the measure is not defined.

    Candidates are evaluated as additional queries, without a Python loop over them.

    >>> lists = Lists([1, 0, 0], [0, 3])
    >>> measure_candidates(lists, np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]]), parse_measure("RR")).round(3).tolist()
    [[1.0, 0.333]]
    """
    items, candidates = scores.shape
    at_once = max(1, _MAX_ITEMS // max(items, 1))
    values = np.empty((len(lists), candidates))
    for first in range(0, candidates, at_once):
        chunk = np.ascontiguousarray(scores[:, first : first + at_once].T)
        copies = len(chunk)
        starts = lists.offsets[:-1] + items * np.arange(copies)[:, None]
        offsets = np.append(starts.ravel(), items * copies)
        repeated = Lists(np.tile(lists.labels, copies), offsets, chunk.ravel())
        evaluated = evaluate_lists(repeated, [measure]).values[str(measure)]
        values[:, first : first + copies] = evaluated.reshape(copies, -1).T
    return values
