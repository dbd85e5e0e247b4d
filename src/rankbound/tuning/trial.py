"""One trial: train a model on the training queries and measure it on the validation queries.

A trial ends early where its best value falls behind the median of the trials before (Golovin et al., "Google Vizier: a
service for black-box optimization", 2017; Optuna's MedianPruner). It is compared at rungs of steps. They count steps at
a learning rate of 0.1 for boosting: a trial with half that rate is compared after twice as many rounds, because
otherwise every small learning rate would look bad.
"""

from __future__ import annotations

import math
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankbound.data.letor import LetorData
from rankbound.errors import RankboundError
from rankbound.evaluation import evaluate_lists
from rankbound.parallel import import_modules
from rankbound.tuning.study import Search, TrialRecord, TrialStudy

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from optuna.trial import Trial

    from rankbound.models import Ranker

RUNGS = (10, 20, 40, 80, 160, 320, 640, 1280)
_STEPS_OF_A_MODEL = 10_000  # models have rungs of their own, so that a trial is compared with those of its model
_RATE = 0.1
_SLOWEST, _FASTEST = 0.2, 5.0


class SearchData(NamedTuple):
    """Training and validation queries."""

    train: LetorData
    valid: LetorData


def run_trials(search: Search, data: SearchData, on_finished: Callable[[TrialStudy], None] | None = None) -> None:
    """Run trials until the budget is spent; others may do the same in the same folder."""
    import_modules(search.modules)
    study = TrialStudy(search)
    while (asked := study.ask()) is not None:
        study.finish(*run_trial(search, data, *asked))
        if on_finished is not None:
            on_finished(study)


def run_trial(
    search: Search, data: SearchData, trial: Trial, model: str, params: Mapping[str, Any]
) -> tuple[TrialRecord, Ranker | None]:
    """Train and measure a model; a failure becomes a record, too."""
    began = time.monotonic()
    watcher = StepWatcher(search, trial, list(search.spaces).index(model), rounds_per_step(model, params))
    status, value, steps, error = "failed", math.nan, None, ""
    values, ranker = np.full(len(data.valid.lists), np.nan), None
    try:
        ranker = fit_ranker(search, data, model, params, watcher)
        values = measure_ranker(ranker, data.valid, search.measure)
        status, value, steps = watcher.ended or "done", float(ranker.eval_score_), count_kept_steps(ranker)
    except Exception as failure:  # a trial that fails must not end the search
        error = str(failure)
        if not isinstance(failure, RankboundError):
            error = f"{type(failure).__name__}: {failure}\n{traceback.format_exc()}"
    seconds = time.monotonic() - began
    record = TrialRecord(trial.number + 1, model, params, status, value, values, steps, seconds, error=error)
    return record, None if error else ranker


class StepWatcher:
    """Follows the steps of one training, and says when to end: ``ended`` is then "pruned" or "stopped".

    ``model`` is the position of the model in the search, ``rounds`` are the rounds that count as one step.
    """

    def __init__(self, search: Search, trial: Trial, model: int, rounds: float) -> None:
        self.ended = ""
        self._search, self._trial, self._rounds = search, trial, rounds
        self._first_step = model * _STEPS_OF_A_MODEL
        self._best, self._last = -math.inf, 0
        self._rungs = list(RUNGS)

    def __call__(self, step: int, value: float) -> bool:
        """Take the value of a step; True ends the training."""
        if step <= self._last:  # a further model of the same trial
            return False
        self._last, self._best = step, max(self._best, value)
        while self._rungs and step >= self._rungs[0] * self._rounds:
            self._trial.report(self._best, self._first_step + self._rungs.pop(0))
            if self._trial.should_prune():
                self.ended = "pruned"
                return True
        if self._search.is_out_of_time:
            self.ended = "stopped"
        return bool(self.ended)


def rounds_per_step(model: str, params: Mapping[str, Any]) -> float:
    """Return the rounds that count as one step: 0.1 / learning_rate for boosting, between 0.2 and 5; 1 for others.

    >>> rounds_per_step("LambdaMART", {"learning_rate": 0.05}), rounds_per_step("MLPRanker", {})
    (2.0, 1.0)
    """
    rate = params.get("learning_rate")
    if model not in ("LambdaMART", "BoostingRanker") or not isinstance(rate, (int, float)) or rate <= 0:
        return 1.0
    return min(max(_RATE / rate, _SLOWEST), _FASTEST)


def fit_ranker(
    search: Search, data: SearchData, model: str, params: Mapping[str, Any], on_step: StepWatcher | None = None
) -> Any:
    """Train a model; the validation queries select its step."""
    ranker = _make_ranker(search, model, params)
    ranker._on_step = on_step
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # such as trees without a split, which a bad setting gives
            X, y, qid = columns_of(data.train)
            return ranker.fit(X, y, qid=qid, eval_set=columns_of(data.valid))
    finally:
        del ranker._on_step


def refit_ranker(search: Search, data: SearchData, record: TrialRecord) -> Any:
    """Train with the setting and the number of steps of a trial on training and validation queries together."""
    from rankbound.models.by_name import parameters_of

    known, params = parameters_of(record.model), dict(record.params)
    if record.steps is not None and "n_estimators" in known:
        params["n_estimators"] = record.steps
    elif record.steps is not None and "epochs" in known:
        params |= {"epochs": record.steps, "selection": "last"}
    (X, y, qid), (more_X, more_y, more_qid) = columns_of(data.train), columns_of(data.valid)
    qid = np.concatenate((qid, more_qid + len(data.train.lists)))
    ranker = _make_ranker(search, record.model, params)
    return ranker.fit(np.concatenate((X, more_X)), np.concatenate((y, more_y)), qid=qid)


def _make_ranker(search: Search, model: str, params: Mapping[str, Any]) -> Any:
    from rankbound.models.by_name import make_ranker

    params = dict(params)
    bounding = params.pop("bounding", "none")  # apart from the others, in which "none" is None
    preferences = {"seed": search.seed, "measure": search.measure}
    return make_ranker(model, params, loss=None, bounding=bounding, loss_options={}, **preferences)


def columns_of(part: LetorData) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return features, labels and the query of each row, as `Ranker.fit` takes them."""
    return part.features, part.lists.labels, part.lists.query_of_item


def measure_ranker(ranker: Ranker, part: LetorData, measure: str) -> NDArray[np.float64]:
    """Return the measure of each query."""
    scored = part.lists.with_scores(ranker.predict(part.features, part.lists.query_of_item))
    return np.asarray(evaluate_lists(scored, [measure]).values[measure], dtype=np.float64)


def count_kept_steps(ranker: Any) -> int | None:
    """Return the number of rounds or epochs that a fitted model keeps; None for models without steps."""
    if hasattr(ranker, "kept_epoch_"):
        return int(ranker.kept_epoch_)
    boosters = getattr(ranker, "boosters_", [])
    return max(1, boosters[0].num_trees()) if len(boosters) == 1 else None
