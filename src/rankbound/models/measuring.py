"""Measures of what a model scores: the mean that `score` reports, and many candidate rankings in one evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.queries import difficulty_of
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate_lists
from rankbound.lists import Lists
from rankbound.measures import LabelCounts
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["mean_measure", "measure_candidates", "queries_that_count", "score_measure"]

_ITEMS_AT_ONCE = 1_000_000  # what one evaluation of candidates holds: a few dozen MB


def score_measure(measure: Any) -> Measure:
    """The measure of a name, if it can be a score: higher must be better."""
    parsed = parse_measure(measure)
    if parsed.definition.lower_is_better and parsed.bounding in ("none", "expectation"):
        raise ArgumentError(f"measure must be one of which higher is better, got {measure}")
    return parsed


def mean_measure(lists: Lists, scores: NDArray[Any], measure: Any) -> float:
    """Mean of a measure over the queries for which it is defined; DataError if there is none.

    >>> round(mean_measure(Lists([1, 0, 0, 0], [0, 2, 4]), np.array([0.1, 0.3, 0.2, 0.4]), "RR"), 3)
    0.5
    """
    value = evaluate_lists(lists.with_scores(scores), [measure]).mean()[str(measure)]
    if np.isnan(value):
        raise DataError(f"{measure} is defined for none of the {len(lists)} queries: nothing relevant is in them")
    return value


def queries_that_count(lists: Lists, measure: Measure) -> NDArray[np.bool_]:
    """Queries that tell rankings apart, their best value not being their worst; DataError if there is none.

    >>> queries_that_count(Lists([1, 0, 1, 1, 0], [0, 2, 4, 5]), parse_measure("AP"))
    array([ True, False, False])
    """
    difficulty = difficulty_of(measure.plain, LabelCounts.from_lists(lists))
    counts = np.asarray(np.abs(difficulty.best - difficulty.worst) > 1e-12)
    if not counts.any():
        raise DataError(f"there is nothing to learn: {measure} is the same for every ranking of these queries")
    return counts


def measure_candidates(lists: Lists, scores: NDArray[Any], measure: Measure) -> NDArray[np.float64]:
    """Values (queries x candidates) of scores (items x candidates); NaN where a query is empty for the measure.

    All candidates are evaluated as if they were more queries, so that their number costs no Python loop.

    >>> lists = Lists([1, 0, 0], [0, 3])
    >>> measure_candidates(lists, np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]]), parse_measure("RR")).round(3).tolist()
    [[1.0, 0.333]]
    """
    items, candidates = scores.shape
    at_once = max(1, _ITEMS_AT_ONCE // max(items, 1))
    values = np.empty((len(lists), candidates))
    for first in range(0, candidates, at_once):
        part = np.ascontiguousarray(scores[:, first : first + at_once].T)
        copies = len(part)
        starts = lists.offsets[:-1] + items * np.arange(copies)[:, None]
        offsets = np.append(starts.ravel(), items * copies)
        repeated = Lists(np.tile(lists.labels, copies), offsets, part.ravel())
        found = evaluate_lists(repeated, [measure]).values[str(measure)]
        values[:, first : first + copies] = found.reshape(copies, -1).T
    return values
