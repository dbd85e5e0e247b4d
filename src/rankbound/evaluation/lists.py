"""evaluate_lists: plain and normalized measures of scored lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.bounding import Bounds
from rankbound.difficulty.p_values import PValues
from rankbound.difficulty.run_values import RunValues
from rankbound.difficulty.standardization import ReferenceScores
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.coverage import judged_coverage
from rankbound.evaluation.result import Evaluation
from rankbound.lists import Lists
from rankbound.measures import Measure, parse_measures

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EMPTY", "evaluate_lists", "requested_measures"]

EMPTY = ("skip", "zero", "one")


def evaluate_lists(
    lists: Lists,
    measures: Any,
    *,
    ties: str = "average",
    empty: str = "skip",
    depth: int | None = None,
    bounds: bool = False,
    candidates: str = "judged",
    against_random: bool = False,
    references: ReferenceScores | None = None,
) -> Evaluation:
    """Evaluate scored lists; see `evaluate`. ``measures`` can be the result of `parse_measures` as well."""
    if empty not in EMPTY:
        raise ArgumentError(f"empty must be one of {', '.join(EMPTY)}, got {empty!r}")
    requested = requested_measures(measures)
    if len(lists) == 0:
        raise DataError("there are no queries to evaluate")
    run = RunValues(lists, ties=ties, depth=depth, candidates=candidates, references=references)
    result: dict[str, NDArray[np.float64]] = {}
    is_empty, no_choice = {}, {}
    bounds_by_name, complete = {}, {}
    for name, measure in requested.items():
        result[name] = run.value_or(measure, empty)
        is_empty[name] = run.is_empty(measure)
        if (measure.bounding != "none" and not measure.is_standardized) or bounds:
            no_choice[name] = run.has_no_choice(measure)
        if measure.bounding == "none" and bounds:
            difficulty = run.difficulty(measure)
            bounds_by_name[name] = Bounds(difficulty.worst, difficulty.expected, difficulty.best)
            complete[name] = run.complete(measure)
    policy = {"candidates": candidates if lists.candidates is None else "explicit", "ties": ties, "empty": empty}
    return Evaluation(
        lists.query_ids,
        result,
        is_empty,
        bounds_by_name,
        judged_coverage(lists, run.plain, requested.values()),
        policy,
        no_choice=no_choice,
        complete=complete,
        p_values=_p_values(run, requested) if against_random else {},
    )


def _p_values(run: RunValues, requested: Mapping[str, Measure]) -> dict[str, PValues]:
    """p-values by each plain measure, under its requested name where it was requested without a bounding."""
    names = {measure.plain: str(measure.plain) for measure in requested.values()}
    names |= {measure: name for name, measure in requested.items() if measure.bounding == "none"}
    return {name: run.p_values(measure) for measure, name in names.items()}


def requested_measures(measures: Any) -> Mapping[str, Measure]:
    """Measures by their names; the result of `parse_measures` is returned as it is."""
    return measures if isinstance(measures, Mapping) else parse_measures(measures)
