"""Measures in XGBoost: as evaluation metrics for early stopping and its log, and recorded for every query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rankbound.arrays import floats, offsets_of_matrix
from rankbound.errors import ArgumentError
from rankbound.integrations.history import QueryHistory
from rankbound.integrations.measured_lists import MeanMeasure
from rankbound.packages import import_package

if TYPE_CHECKING:
    from rankbound.measures.measure import Measure


@dataclass(frozen=True)
class _XGBoostMetric:
    """Metric for ``xgboost.train(custom_metric=...)`` on a DMatrix with groups or qid."""

    mean: MeanMeasure

    def __call__(self, scores: Any, matrix: Any) -> tuple[str, float]:
        """Compute the measure for the scores of a DMatrix."""
        if not hasattr(matrix, "get_uint_info"):
            raise ArgumentError(
                "the metric needs the queries of a DMatrix, but XGBRanker calls it for one query at a time and weights "
                "the mean by the number of rows: use xgboost.train, or XGBRanker(callbacks=[xgboost_recorder(...)]), "
                f"got {type(matrix).__name__}"
            )
        offsets = offsets_of_matrix(matrix, "the metric")
        return self.mean.name, self.mean(scores, matrix.get_label(), offsets)

    @property
    def __name__(self) -> str:
        return self.mean.name


def xgboost_metric(measure: str | Measure = "nDCG@10") -> Any:
    """Make an evaluation metric for XGBoost of any measure, normalized ones such as ``EM(nDCG@10)`` included.

    Pass it as ``custom_metric`` to `xgboost.train`, with ``maximize=True`` for early stopping (XGBoost minimizes
    otherwise) and with the parameter ``disable_default_eval_metric=1``, because XGBoost stops by the last metric.

    `XGBRanker` would call it for one query at a time, count queries of one row as 1 and weight the mean by the number
    of rows, so the metric refuses: use `xgboost_recorder` there.
    """
    return _XGBoostMetric(MeanMeasure.of(measure))


def xgboost_recorder(measure: str | Measure, matrix: Any, name: str = "valid") -> Any:
    """Make a callback for XGBoost that records a measure for every query of a DMatrix in every round.

    It works in `xgboost.train` and in `XGBRanker(callbacks=[...])`. The result is the callback itself, a
    `QueryHistory`. The mean over queries also joins the log of the training, under ``name`` and the name of the
    measure. A callback after it in the list can therefore stop by the measure, from XGBoost 3.2 on, which keeps the
    order: ``xgboost.callback.EarlyStopping(rounds=20, metric_name="nDCG@10", data_name="valid", maximize=True)``.

    Parameters
    ----------
    measure:
        Any measure, by name or as an object.
    matrix:
        A DMatrix with labels and ``qid`` or ``group``. XGBoost keeps its scores, so that a round costs only the
        scores of the new trees.
    name:
        The name of these data in the log and in the history.
    """
    return _recorder_class()(measure, matrix, name)


@cache
def _recorder_class() -> Any:
    """Return the class of the callbacks, which XGBoost demands to be derived from its own."""
    training_callback = import_package("xgboost.callback").TrainingCallback

    class XGBoostRecorder(QueryHistory, training_callback):  # type: ignore[misc, valid-type]
        """See `xgboost_recorder`."""

        def __init__(self, measure: str | Measure, matrix: Any, name: str) -> None:
            super().__init__(measure)
            self._matrix, self._name = matrix, name
            self._offsets = offsets_of_matrix(matrix, "xgboost_recorder")
            # fails before the training if there are no labels or the measure is not defined
            self._labels = floats("labels of matrix", matrix.get_label(), length=int(self._offsets[-1]))
            self.metric.lists(self._labels, self._offsets)

        def before_training(self, model: Any) -> Any:
            """Forget the rounds of an earlier training."""
            self.clear()
            return model

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
            """Record one round."""
            scores = model.predict(self._matrix, output_margin=True)
            mean = self.record(self._name, scores, self._labels, self._offsets)
            evals_log.setdefault(self._name, {}).setdefault(self.measure, []).append(mean)
            return False

    return XGBoostRecorder
