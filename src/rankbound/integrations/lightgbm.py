"""Measures as evaluation metrics of LightGBM, for early stopping and for its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import offsets_of_groups
from rankbound.integrations.measured_lists import MeanMeasure

if TYPE_CHECKING:
    from rankbound.measures.measure import Measure

__all__ = ["lightgbm_metric"]


@dataclass(frozen=True)
class _LightGBMMetric:
    """Metric for ``lightgbm.train(feval=...)`` and for ``LGBMRanker.fit(eval_metric=...)``."""

    mean: MeanMeasure

    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[str, float, bool]:  # noqa: ARG002
        """Accept (scores, Dataset) from lightgbm.train, or (labels, scores, weight, group) from LGBMRanker."""
        if hasattr(second, "get_label"):
            scores, labels, group = first, second.get_label(), second.get_group()
        else:
            labels, scores = first, second
        offsets = offsets_of_groups(group, len(np.asarray(scores)), "the metric")
        return self.mean.name, self.mean(scores, labels, offsets), self.mean.higher_is_better

    @property
    def __name__(self) -> str:
        return self.mean.name


def lightgbm_metric(measure: str | Measure = "nDCG@10") -> Any:
    """Make an evaluation metric for LightGBM of any measure, normalized ones such as ``EM(nDCG@10)`` included.

    Pass it as ``feval`` to `lightgbm.train` together with ``"metric": "None"``, or as ``eval_metric`` to
    `LGBMRanker.fit`. Early stopping then uses the mean of the measure over the queries for which it is defined. Weights
    are ignored: a metric says how good the rankings are.

    >>> metric = lightgbm_metric("RR")
    >>> metric([1, 0, 0, 1], [0.1, 0.9, 0.2, 0.8], None, [2, 2])  # labels, scores, weights, groups
    ('RR', 0.75, True)
    """
    return _LightGBMMetric(MeanMeasure.of(measure))
