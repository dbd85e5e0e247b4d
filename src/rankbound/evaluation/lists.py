"""evaluate_lists: plain and normalized measures of scored lists, and how far judgments and runs cover each other."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.bounding import Bounds, Difficulty
from rankbound.difficulty.p_values import PValues
from rankbound.difficulty.run_values import RunValues
from rankbound.errors import CoverageWarning, DataError
from rankbound.evaluation.label_uncertainty import Unjudged, labels_of_unjudged
from rankbound.evaluation.result import Evaluation
from rankbound.lists import Coverage, Lists
from rankbound.measures import Measure, parse_measures
from rankbound.protocol import DEFAULT_MEASURES, EXPLICIT, UNJUDGED, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CUTOFF = 10  # k of Judged@k if no measure has a cutoff


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
    requested: Mapping[str, Measure] = (
        measures
        if isinstance(measures, Mapping)
        else parse_measures(DEFAULT_MEASURES if measures is None else measures)
    )
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
    unjudged = Unjudged()
    if protocol.unjudged != UNJUDGED[0]:
        unjudged = labels_of_unjudged(lists, requested, protocol, run.plain)
    for name, draws in unjudged.by_draws.items():
        result[name] = draws.expected_or(protocol.empty)
    coverage = _with_judged_fractions(lists, run, requested.values())
    if lists.candidates is not None and isinstance(protocol.candidates, str):
        protocol = replace(protocol, candidates=EXPLICIT)
    return Evaluation(
        lists.query_ids if lists.qids is None else lists.qids,
        result,
        is_empty,
        bounds_by_name,
        coverage,
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


def warn_of_coverage(sentences: Iterable[str], stacklevel: int = 3) -> None:
    """Issue a `CoverageWarning` for each sentence."""
    for sentence in sentences:
        warnings.warn(sentence, CoverageWarning, stacklevel=stacklevel)


def _with_judged_fractions(lists: Lists, run: RunValues, measures: Iterable[Measure]) -> Coverage:
    """The coverage of lists with Judged@k, where k is the smallest cutoff of the measures, or 10 if none has one."""
    coverage = lists.coverage
    if coverage is None:  # not from judgments and a run: every query is shared
        depths = judged_depths = lists.sizes if lists.depths is None else lists.depths
        if lists.judged is not None:
            judged_depths = np.bincount(lists.query_of_item[lists.returned & lists.judged], minlength=len(lists))
        coverage = Coverage(shared_queries=len(lists)).with_documents(depths, judged_depths)
    merged = 0
    merging: tuple[str, ...] = ()
    if lists.labels.min(initial=0) < 0:
        merging = tuple(str(measure) for measure in measures if measure.definition.orders_labels(measure))
        merged = _merged_documents(lists) if merging else 0
    cutoff = min(filter(None, map(operator.attrgetter("cutoff"), measures)), default=_CUTOFF)
    return replace(
        coverage,
        cutoff=cutoff,
        fractions_at_cutoff=(run.ranked.judged_fractions(cutoff),),
        merged_documents=merged,
        merging_measures=merging if merged else (),
    )


def _merged_documents(lists: Lists) -> int:
    """Documents with labels below 0 in queries where another label, at most 0, differs from theirs."""
    labels, query = np.minimum(lists.labels, 1).astype(np.float64), lists.query_of_item
    low = labels <= 0
    smallest, largest = np.full(len(lists), 0.0), np.full(len(lists), -np.inf)
    np.minimum.at(smallest, query[low], labels[low])
    np.maximum.at(largest, query[low], labels[low])
    return int(np.count_nonzero((labels < 0) & (smallest < largest)[query]))
