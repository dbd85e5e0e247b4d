"""Measures as evaluation metrics of XGBoost, for early stopping and for its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rankbound.arrays import offsets_of_matrix
from rankbound.integrations.measured_lists import MeanMeasure

if TYPE_CHECKING:
    from rankbound.measures.measure import Measure

__all__ = ["xgboost_metric"]


@dataclass(frozen=True)
class _XGBoostMetric:
    """Metric for ``xgboost.train(custom_metric=...)`` on a DMatrix with groups or qid."""

    mean: MeanMeasure

    def __call__(self, scores: Any, matrix: Any) -> tuple[str, float]:
        """Compute the measure for the scores of a DMatrix."""
        offsets = offsets_of_matrix(matrix, "the metric")
        return self.mean.name, self.mean(scores, matrix.get_label(), offsets)


def xgboost_metric(measure: str | Measure = "nDCG@10") -> Any:
    """Make an evaluation metric for XGBoost of any measure, normalized ones such as ``EM(nDCG@10)`` included.

    Pass it as ``custom_metric`` to `xgboost.train`, with ``maximize=True`` for early stopping (XGBoost minimizes
    otherwise) and with the parameter ``disable_default_eval_metric=1``, because XGBoost stops by the last metric.
    """
    return _XGBoostMetric(MeanMeasure.of(measure))
