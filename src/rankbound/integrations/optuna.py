"""Optuna: trials whose measure falls behind end early, in LightGBM, XGBoost and our rankers.

Each function reports the measure of every round to the trial and raises ``optuna.TrialPruned`` when the study's pruner
says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from rankbound.errors import ArgumentError
from rankbound.integrations.measured_lists import metric_measure
from rankbound.packages import import_package

if TYPE_CHECKING:
    from rankbound.measures.measure import Measure

RankerT = TypeVar("RankerT")


def lightgbm_pruning(trial: Any, measure: str | Measure = "nDCG@10", data: str | None = None) -> Callable[[Any], None]:
    """Make a callback that prunes a training of LightGBM by a measure.

    Pass it in ``callbacks`` of `lightgbm.train` or `LGBMRanker.fit`, together with `lightgbm_metric` of the same
    measure as metric.

    Parameters
    ----------
    trial:
        The trial of Optuna.
    measure:
        The measure of the metric.
    data:
        The name of the evaluation data, such as ``"valid_0"``; None takes the first that are not the training data.
    """
    report = _reporter(trial, measure)

    def prune(state: Any) -> None:
        logged: dict[str, dict[str, float]] = {}
        for entry in state.evaluation_result_list or ():
            logged.setdefault(entry[0], {})[entry[1]] = entry[2]
        report(state.iteration, _value(logged, str(metric_measure(measure)), data, train="training"))

    prune.order = 25  # type: ignore[attr-defined]  # after record_evaluation (20), before early_stopping (30)
    return prune


def xgboost_pruning(trial: Any, measure: str | Measure = "nDCG@10", data: str | None = None) -> Any:
    """Make a callback that prunes a training of XGBoost by a measure.

    Pass it in ``callbacks`` of `xgboost.train` with `xgboost_metric` of the same measure as metric, or next
    to `xgboost_recorder` in ``callbacks`` of `XGBRanker`. The parameters are those of `lightgbm_pruning`; ``data=None``
    takes the last data of the log that have the measure, by which XGBoost stops early too.
    """
    report = _reporter(trial, measure)
    return _xgboost_class()(report, str(metric_measure(measure)), data)


def ranker_pruning(trial: Any, ranker: RankerT) -> RankerT:
    """Let a trial prune the training of a ranker of `rankbound.models`, and return the ranker.

    ``ranker_pruning(trial, LambdaMART(...)).fit(X, y, qid=qid, eval_set=...)`` reports the ranker's ``measure`` on
    ``eval_set`` after each round or epoch. Trees (`LambdaMART`, `BoostingRanker`, `RandomForestRanker`) and networks
    have such steps; other rankers are trained to the end.
    """
    if not hasattr(ranker, "_on_step") or not hasattr(ranker, "measure"):
        raise ArgumentError(f"ranker must be a ranker of rankbound.models, got {type(ranker).__name__}")
    report = _reporter(trial, ranker.measure)

    def on_step(step: int, value: float) -> bool:
        report(step - 1, value)
        return False

    ranker._on_step = on_step
    return ranker


def _reporter(trial: Any, measure: str | Measure) -> Callable[[int, float], None]:
    """Return a function that reports the value of a step, and raises TrialPruned if the trial should end."""
    pruned = import_package("optuna").TrialPruned
    parsed = metric_measure(measure)
    direction = getattr(getattr(getattr(trial, "study", None), "direction", None), "name", None)
    required = "MINIMIZE" if parsed.is_lower_better else "MAXIMIZE"
    if direction not in (None, required):
        raise ArgumentError(
            f"the direction of the study must be {required.lower()} for {parsed}, got {direction.lower()}"
        )

    def report(step: int, value: float) -> None:
        trial.report(value, step=step)
        if trial.should_prune():
            raise pruned(f"Trial was pruned at step {step}, {parsed} is {value:.4f}.")

    return report


def _value(logged: Any, measure: str, data: str | None, train: str = "") -> float:
    """Return the value of a measure in the log of a round: {data: {metric: value}}."""
    candidates = [name for name in logged if name != train] if data is None else [data]
    for name in candidates:
        if measure in logged.get(name, {}):
            return float(logged[name][measure])
    known = ", ".join(f"{metric} on {name}" for name, metrics in logged.items() for metric in metrics)
    where = "the evaluation data" if data is None else f"data {data!r}"
    raise ArgumentError(f"measure must be a metric of {where}, {known or 'which log none'}, got {measure}")


@cache
def _xgboost_class() -> Any:
    """Return the class of the callbacks, which XGBoost demands to be derived from its own."""
    training_callback = import_package("xgboost.callback").TrainingCallback

    class XGBoostPruning(training_callback):  # type: ignore[misc, valid-type]
        """See `xgboost_pruning`."""

        def __init__(self, report: Callable[[int, float], None], measure: str, data: str | None) -> None:
            super().__init__()
            self._report, self._measure, self._data = report, measure, data
            self._round: tuple[int, Any] | None = None  # that was not reported yet

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
            """Keep the round until the other callbacks have seen it; XGBoost before 3.2 calls them in any order."""
            self._round = (epoch, evals_log)
            return False

        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
            """Report the last round before the next one begins."""
            self._report_round()
            return False

        def after_training(self, model: Any) -> Any:
            """Report the last round of the training."""
            self._report_round()
            return model

        def _report_round(self) -> None:
            if self._round is None:
                return
            epoch, log = self._round
            self._round = None
            logged = {
                name: {metric: values[-1] for metric, values in metrics.items()}
                for name, metrics in reversed(log.items())
            }
            self._report(epoch, _value(logged, self._measure, self._data))

    return XGBoostPruning
