"""evaluate_lists: plain and normalized measures of scored lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.bounding import Bounds, Difficulty
from rankbound.difficulty.p_values import PValues
from rankbound.difficulty.run_values import RunValues
from rankbound.errors import DataError
from rankbound.evaluation.coverage import judged_coverage
from rankbound.evaluation.label_uncertainty import Unjudged, labels_of_unjudged
from rankbound.evaluation.result import Evaluation
from rankbound.lists import Lists
from rankbound.measures import Measure, parse_measures
from rankbound.protocol import DEFAULT_MEASURES, EXPLICIT, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray


def evaluate_lists(
    lists: Lists,
    measures: Any = None,
    protocol: Protocol = Protocol(),  # noqa: B008  # immutable
    *,
    bounds: bool = False,
    against_random: bool = False,
    difficulties: dict[Measure, Difficulty] | None = None,
) -> Evaluation:
    """Evaluate scored lists; see `evaluate`. ``measures`` can be the result of `parse_measures` as well.

    The protocol's candidates are a rule, and its references the scores of reference runs. ``difficulties`` are those of
    another run on the same queries with the same candidates: they are used again, and what is missing is added.
    """
    requested = requested_measures(measures)
    if len(lists.offsets) < 2:
        raise DataError("there are no queries to evaluate")
    run = RunValues(lists, protocol, difficulties)
    result: dict[str, NDArray[np.float64]] = {}
    is_empty, no_choice = {}, {}
    bounds_by_name, complete = {}, {}
    for name, measure in requested.items():
        result[name], is_empty[name], without_choice = run.of_queries(measure)
        if without_choice is not None or bounds:
            no_choice[name] = run.has_no_choice(measure) if without_choice is None else without_choice
        if measure.bounding == "none" and bounds:
            difficulty = run.difficulty(measure)
            bounds_by_name[name] = Bounds(difficulty.worst, difficulty.expected, difficulty.best)
            complete[name] = run.complete(measure)
    unjudged = labels_of_unjudged(lists, requested, protocol, run.plain) if protocol.has_unknown_labels else Unjudged()
    for name, draws in unjudged.by_draws.items():
        result[name] = draws.expected_or(protocol.empty)
    described = protocol.describe() if lists.candidates is None else protocol.describe() | {"candidates": EXPLICIT}
    del described["missing"]  # lists do not say which queries the run lacks
    return Evaluation(
        run.query_ids,
        result,
        is_empty,
        bounds_by_name,
        judged_coverage(lists, run.plain, requested.values()),
        described,
        no_choice=no_choice,
        complete=complete,
        p_values=_p_values(run, requested) if against_random else {},
        protocol=protocol,
        items=run.counts.sizes if bounds else None,
        relevant=run.counts.relevant(1) if bounds else None,
        ranges=unjudged.ranges,
        label_draws=unjudged.by_draws,
    )


def _p_values(run: RunValues, requested: Mapping[str, Measure]) -> dict[str, PValues]:
    """p-values by each plain measure, under its requested name where it was requested without a bounding."""
    names = {measure.plain: str(measure.plain) for measure in requested.values()}
    names |= {measure: name for name, measure in requested.items() if measure.bounding == "none"}
    return {name: run.p_values(measure) for measure, name in names.items()}


def requested_measures(measures: Any) -> Mapping[str, Measure]:
    """Measures by their names: the default ones for None; the result of `parse_measures` is returned as it is."""
    if isinstance(measures, Mapping):
        return measures
    return parse_measures(DEFAULT_MEASURES if measures is None else measures)
