"""Measures in LightGBM: as evaluation metrics for early stopping and its log, and recorded for every query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import offsets_of_groups
from rankbound.errors import ArgumentError
from rankbound.integrations.history import QueryHistory
from rankbound.integrations.measured_lists import MeanMeasure

if TYPE_CHECKING:
    from rankbound.measures.measure import Measure


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


class LightGBMRecorder(QueryHistory):
    """A callback for LightGBM that records a measure for every query of the evaluation data in every round.

    Pass it in ``callbacks`` of `lightgbm.train` or `LGBMRanker.fit`, with evaluation data that have groups. It reads
    the scores that the booster holds and predicts nothing. Rounds of an earlier training are forgotten.

    Parameters
    ----------
    measure:
        Any measure, by name or as an object.
    """

    order = 15  # before record_evaluation (20) and early_stopping (30)
    before_iteration = False

    def __init__(self, measure: str | Measure = "nDCG@10") -> None:
        super().__init__(measure)

    def __call__(self, state: Any) -> None:
        """Record one round; LightGBM calls it."""
        booster = state.model
        sets = getattr(booster, "valid_sets", [])
        if not sets:
            raise ArgumentError(
                "LightGBMRecorder needs evaluation data of one booster (valid_sets of lightgbm.train, or eval_set of "
                f"LGBMRanker.fit), got {type(booster).__name__} without any"
            )
        if state.iteration == state.begin_iteration:
            self.clear()
        for name, data in zip(booster.name_valid_sets, sets, strict=True):

            def record(scores: Any, data: Any, name: str = name) -> tuple[str, float, bool]:
                offsets = offsets_of_groups(data.get_group(), len(scores), "LightGBMRecorder")
                return self.measure, self.record(name, scores, data.get_label(), offsets), True

            booster.eval(data, name, feval=record)
