"""The mean of a measure over the queries of a boosting library's data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import DataError
from rankbound.evaluation import evaluate_lists
from rankbound.lists import Lists
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MeanMeasure"]


@dataclass(frozen=True)
class MeanMeasure:
    """Compute the mean of a measure over the queries for which it is defined.

    The lists of the last labels are kept, because a booster evaluates the same data in every round.
    """

    measure: Measure
    _last: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, measure: str | Measure) -> MeanMeasure:
        """Make it from a measure by name or as an object."""
        return cls(parse_measure(measure))

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
        lists = self._lists(labels, offsets)
        value = evaluate_lists(lists.with_scores(floats("scores", scores)), [self.measure]).mean()[self.name]
        if np.isnan(value):
            raise DataError(f"{self.name} is not defined for any of the {len(lists)} queries of the evaluation data")
        return float(value)

    def _lists(self, labels: Any, offsets: NDArray[np.int64]) -> Lists:
        labels = floats("labels", labels)
        if self._last:
            known_labels, known_offsets, lists = self._last[0]
            if np.array_equal(known_labels, labels) and np.array_equal(known_offsets, offsets):
                return lists  # type: ignore[no-any-return]
        whole = labels.astype(np.int64) if (labels == np.rint(labels)).all() else labels  # boosters keep float32
        lists = Lists(whole, offsets)
        self._last[:] = [(labels.copy(), offsets.copy(), lists)]
        return lists
