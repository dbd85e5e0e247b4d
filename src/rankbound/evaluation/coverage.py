"""How far judgments and runs cover each other, with Judged@k."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rankbound.errors import CoverageWarning
from rankbound.lists import Coverage, Lists
from rankbound.measures import Measure, parse_measure
from rankbound.sums import exact_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CUTOFF = 10  # k of Judged@k if no measure has a cutoff


def warn_of_coverage(sentences: Iterable[str], stacklevel: int = 3) -> None:
    """Issue a `CoverageWarning` for each sentence."""
    for sentence in sentences:
        warnings.warn(sentence, CoverageWarning, stacklevel=stacklevel)


def judged_coverage(
    lists: Lists, plain_values: Callable[[Measure], NDArray[np.float64]], measures: Iterable[Measure]
) -> Coverage:
    """The coverage of lists with Judged@k, where k is the smallest cutoff of the measures, or 10 if none has one.

    ``plain_values`` computes a plain measure for the ranking of the lists. Nothing is ranked for lists in which every
    document is judged: their Judged@k is 1.
    """
    coverage = lists.coverage
    if coverage is None:  # not from judgments and a run: every query is shared
        depths = judged_depths = lists.sizes if lists.depths is None else lists.depths
        if lists.judged is not None:
            judged_depths = np.bincount(lists.query_of_item[lists.returned & lists.judged], minlength=len(lists))
        coverage = Coverage(shared_queries=len(lists)).with_documents(depths, judged_depths)
    measures = list(measures)
    if lists.labels.min(initial=0) < 0:
        merging = tuple(str(measure) for measure in measures if measure.definition.orders_labels(measure))
        if merging and (merged := _merged_documents(lists)):
            coverage = replace(coverage, merged_documents=merged, merging_measures=merging)
    cutoff = min(filter(None, map(operator.attrgetter("cutoff"), measures)), default=_CUTOFF)
    fractions = plain_values(parse_measure(f"Judged@{cutoff}"))
    return replace(coverage, cutoff=cutoff, sum_at_cutoff=exact_sum(fractions))


def _merged_documents(lists: Lists) -> int:
    """Documents with labels below 0 in queries where another label, at most 0, differs from theirs."""
    labels, query = np.minimum(lists.labels, 1).astype(np.float64), lists.query_of_item
    low = labels <= 0
    smallest, largest = np.full(len(lists), 0.0), np.full(len(lists), -np.inf)
    np.minimum.at(smallest, query[low], labels[low])
    np.maximum.at(largest, query[low], labels[low])
    return int(np.count_nonzero((labels < 0) & (smallest < largest)[query]))
