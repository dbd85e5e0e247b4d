"""Values of a measure for the same queries under many scores, as the rounds of a training produce them.

What depends on the labels alone is computed once: the layout of the sort, the label counts, and the worst, expected and
best values. A round then costs one sort and the sums of the measure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import floats, numbers
from rankbound.difficulty.bounding import difficulty_of, get_bounding
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import Evaluation, evaluate_lists
from rankbound.integrations.rank_sums import RankSums
from rankbound.lists import Lists
from rankbound.measures import LabelCounts, is_defined
from rankbound.measures.measure import Measure, parse_measure
from rankbound.models.recommenders.first_ranks import (
    needs_first_ranks_only,
    ranked_first_items,
    value_of_ranking,
)
from rankbound.models.recommenders.top_items import first_items

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import Difficulty

_KEPT = 8  # data sets that a metric remembers: a training evaluates a few, in turn


def metric_measure(measure: str | Measure) -> Measure:
    """Return the measure of a metric; raise ArgumentError if labels and scores alone do not determine it."""
    parsed = parse_measure(measure)
    if parsed.is_standardized:
        raise ArgumentError(f"measure must not need reference runs, which a training has none of, got {parsed}")
    return parsed


class MeasuredLists:
    """Queries whose items are scored many times.

    >>> lists = MeasuredLists(Lists([1, 0, 0, 0], [0, 2, 4]), parse_measure("RR"))
    >>> lists.values(np.array([0.1, 0.9, 0.3, 0.2])).tolist()  # the second query has no relevant item
    [0.5, nan]
    >>> lists.mean(np.array([0.9, 0.1, 0.3, 0.2]))
    1.0
    """

    def __init__(self, lists: Lists, measure: Measure) -> None:
        self.lists, self.measure = lists, measure
        if not self.has_value.any():
            raise DataError(f"{measure} is not defined for any of the {len(lists)} queries of the evaluation data")

    def values(self, scores: Any) -> NDArray[np.float64]:
        """Return the value of each query, the same as `rankbound.evaluate`; NaN where the measure is not defined."""
        scores = floats("scores", scores, length=len(self.lists.labels))
        if self._has_negative_labels:  # the plain ranking and that of the candidates differ
            return evaluate_lists(self.lists.with_scores(scores), [self.measure]).values[str(self.measure)]
        value = self._values_by_sums(scores) if self._sums is not None else self._values_by_rank(scores)
        return value if self._all_have_values else np.where(self.has_value, value, np.nan)

    def _values_by_sums(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        assert self._sums is not None
        value = self._sums.values(scores)
        if self.measure.bounding == "none":
            return value
        return get_bounding(self.measure.bounding).apply(value, self._difficulty)[0]

    def _values_by_rank(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        offsets = self.lists.offsets
        if needs_first_ranks_only(self.measure):  # down to a small cutoff
            order, offsets = first_items(scores, offsets, self.measure.cutoff or 1)
        else:
            order = self._layout.descending(scores)
        ranked = ranked_first_items(self.lists.labels[order], scores[order], offsets, self._counts)
        return value_of_ranking(self.measure, ranked, None if self.measure.bounding == "none" else self._difficulty)

    def mean(self, scores: Any) -> float:
        """Return the mean over the queries for which the measure is defined."""
        return self.mean_of(self.values(scores))

    def mean_of(self, values: NDArray[np.float64]) -> float:
        """Return the mean of these values of the queries, or what `Evaluation.mean` takes for the measure instead."""
        name = str(self.measure)
        return Evaluation(self.lists.query_ids, {name: values}, {}).mean()[name]

    @cached_property
    def has_value(self) -> NDArray[np.bool_]:
        """The queries for which the measure, with its bounding, is defined."""
        defined = is_defined(self._counts, self.measure.plain)
        if self.measure.bounding != "none":
            defined = defined & get_bounding(self.measure.bounding).defined(self._difficulty)
        return defined

    @cached_property
    def _all_have_values(self) -> bool:
        return bool(self.has_value.all())

    @cached_property
    def _has_negative_labels(self) -> bool:
        return bool(self.lists.labels.min(initial=0) < 0)

    @cached_property
    def _sums(self) -> RankSums | None:
        """The measure without its bounding by a kernel that needs no sort; None if there is none."""
        if self.measure.bounding != "none" and not get_bounding(self.measure.bounding).affine:
            return None  # it is averaged over the orders of ties
        return RankSums.of(self.measure.plain, self.lists, self._counts)

    @cached_property
    def _counts(self) -> LabelCounts:
        return LabelCounts.from_lists(self.lists)

    @cached_property
    def _difficulty(self) -> Difficulty:
        return difficulty_of(self.measure.plain, self._counts)

    @cached_property
    def _layout(self) -> _SortLayout:
        return _SortLayout(self.lists.offsets)


class _SortLayout:
    """Queries of the same size as the rows of a matrix; it depends on the sizes of the queries only.

    `rankbound.lists.sort_within_queries` finds its layout anew for every sort, and pads rows to need fewer matrices.
    """

    def __init__(self, offsets: NDArray[np.int64]) -> None:
        self._offsets, self._sizes = offsets, np.diff(offsets)
        by_size = np.argsort(self._sizes, kind="stable")
        of_size, first = np.unique(self._sizes[by_size], return_index=True)
        self._rows = [  # the queries of each matrix, and the positions of their items
            (queries, offsets[queries, None] + np.arange(size))
            for size, queries in zip(of_size, np.split(by_size, first[1:]), strict=True)
            if size > 0
        ]

    def descending(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the indices that sort the items of each query by descending score; ties come in any order."""
        keys, order = -scores, np.empty(len(scores), dtype=np.int64)
        for queries, positions in self._rows:
            ranked = np.argsort(keys[positions], axis=1)
            ranked += self._offsets[queries, None]
            order[positions] = ranked
        return order


@dataclass(frozen=True)
class MeanMeasure:
    """Compute the mean of a measure over the queries for which it is defined.

    What depends on the labels is kept for the last data sets, because a booster evaluates the same data in every round.
    """

    measure: Measure
    _kept: list[tuple[Any, NDArray[np.int64], MeasuredLists]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, measure: str | Measure) -> MeanMeasure:
        """Make it from a measure by name or as an object."""
        return cls(metric_measure(measure))

    @property
    def name(self) -> str:
        """The name of the measure, as logs and histories show it."""
        return str(self.measure)

    @property
    def higher_is_better(self) -> bool:
        """Whether a booster should maximize the measure."""
        return not self.measure.is_lower_better

    def __call__(self, scores: Any, labels: Any, offsets: NDArray[np.int64]) -> float:
        """Return the mean; DataError if the measure is not defined for any query."""
        return self.lists(labels, offsets).mean(scores)

    def lists(self, labels: Any, offsets: NDArray[np.int64]) -> MeasuredLists:
        """Return the queries of these labels, those of an earlier call if they are the same."""
        labels = numbers("labels", labels)
        for known_labels, known_offsets, lists in self._kept:
            if np.array_equal(known_offsets, offsets) and np.array_equal(known_labels, labels):
                return lists
        lists = MeasuredLists(Lists(labels, offsets), self.measure)
        self._kept[_KEPT - 1 :] = []
        self._kept.insert(0, (labels.copy(), offsets.copy(), lists))
        return lists
