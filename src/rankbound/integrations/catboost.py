"""Measures as evaluation metrics of CatBoost.

CatBoost calls a metric with scores and labels only, so the metric is bound to the queries of the data beforehand. An
objective per query is not possible: CatBoost calls a custom objective for blocks of at most 1,000 rows, which cut
through queries, in several threads. Weights work: see `rankbound.difficulty_weights` and ``group_weight`` of a Pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rankbound.arrays import floats, names_of
from rankbound.errors import ArgumentError, DataError
from rankbound.integrations.history import QueryHistory
from rankbound.integrations.measured_lists import metric_measure
from rankbound.packages import import_package

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure

_NOT_MEASURED = 0.0  # for data that the metric is not bound to; CatBoost does not accept NaN


def catboost_metric(measure: str | Measure, *pools: Any) -> CatBoostMetric:
    """Make an evaluation metric for CatBoost of any measure, normalized ones such as ``EM(nDCG@10)`` included.

    Pass it as ``eval_metric`` to `CatBoost` or `CatBoostRanker`. The overfitting detector and ``use_best_model`` then
    use the mean of the measure over the queries for which it is defined.

    CatBoost passes neither the queries nor the name of the data to a metric. The metric recognizes its pools by their
    labels, and an error ends the training if the evaluation data are not among them. CatBoost also evaluates the
    training data. Their value is shown as 0 unless their pool is given too and CatBoost leaves its rows in order: it
    shuffles them for categorical features (without ``has_time=True``) and for ``boosting_type="Ordered"``.

    Parameters
    ----------
    measure:
        The measure, by name or as an object.
    *pools:
        The Pools of ``eval_set``, in this order, with labels and ``group_id``; the Pool of the training data too, if
        its values are of interest. ``(y, qid)`` stands for a Pool.
    """
    named: type[CatBoostMetric] = type("Metric", (CatBoostMetric,), {"__module__": __name__})
    named.__name__ = str(metric_measure(measure))  # CatBoost names a metric after its class
    return named(measure, pools)


class CatBoostMetric:
    """The result of `catboost_metric`: a metric with the ``history`` of all queries.

    ``history`` is a `QueryHistory` with the data sets "pool 0", "pool 1", ... in the order of the arguments. A round is
    an evaluation; CatBoost evaluates in every iteration unless ``metric_period`` says otherwise.
    """

    no_jit = True  # CatBoost would try to compile the metric, and warn

    def __init__(self, measure: str | Measure, pools: tuple[Any, ...]) -> None:
        self.history = QueryHistory(measure)
        if not pools:
            raise ArgumentError("catboost_metric needs the Pools of the evaluation data, got none")
        self._bound = [_labels_and_offsets(pool) for pool in pools]
        for labels, offsets in self._bound:  # fails before the training if the measure is not defined
            self.history.metric.lists(labels, offsets)
        self._unknown = 0  # evaluations of unknown data since the last of known data

    def is_max_optimal(self) -> bool:
        """Whether CatBoost should maximize the measure."""
        return self.history.metric.higher_is_better

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:  # noqa: ARG002
        """Return the mean of the measure, and 1; weights are ignored."""
        scores, labels = np.asarray(approxes[0]), np.asarray(target)
        for index, (known, offsets) in enumerate(self._bound):
            if len(known) == len(labels) and np.array_equal(known, labels.astype(np.float32)):
                self._unknown = 0
                return self.history.record(f"pool {index}", scores, known, offsets), 1.0
        self._unknown += 1
        if self._unknown > 1:  # the training data are evaluated once, then the evaluation data
            sizes = ", ".join(str(len(known)) for known, _ in self._bound)
            raise DataError(
                "catboost_metric must have all Pools of eval_set, in the order of their rows: got pools of "
                f"{sizes} rows, and CatBoost evaluates {len(labels)} rows with other labels"
            )
        return _NOT_MEASURED, 1.0

    def get_final_error(self, error: float, weight: float) -> float:  # noqa: ARG002
        """Return the mean."""
        return error

    def __deepcopy__(self, memo: Any) -> Self:  # scikit-learn clones estimators, and CatBoost compares by identity
        return self


def _labels_and_offsets(pool: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the labels, as CatBoost keeps them, and the offsets of the queries."""
    if isinstance(pool, tuple) and len(pool) == 2:
        labels, qid = pool
    else:
        if not isinstance(pool, import_package("catboost").Pool):
            raise ArgumentError(f"pools must be Pools of CatBoost or (y, qid), got {type(pool).__name__}")
        labels, qid = pool.get_label(), pool.get_group_id_hash()
        if labels is None or len(labels) == 0:
            raise DataError("pools must have labels, got a Pool without any")
        if qid is None or len(qid) == 0:
            raise DataError("pools must have group_id, got a Pool without any")
    labels = floats("labels", labels)
    qid = names_of("qid", qid, length=len(labels))
    starts = np.concatenate(([0], np.flatnonzero(qid[1:] != qid[:-1]) + 1))
    if len(np.unique(qid[starts])) != len(starts):
        raise DataError("qid must have the rows of a query together, got a query whose rows are not adjacent")
    return labels.astype(np.float32), np.append(starts, len(qid)).astype(np.int64)
