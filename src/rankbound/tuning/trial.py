"""One trial: train a model on the training queries and measure it on the validation queries."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import RankboundError
from rankbound.evaluation import evaluate_lists
from rankbound.lists import Lists
from rankbound.tuning.log import TrialRecord
from rankbound.tuning.pruning import Watcher, steps_per_rung_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.models import Ranker

__all__ = ["Part", "SearchData", "Task", "attempt_task", "fit_ranker", "refit_ranker", "run_task"]


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of features, labels, and the offsets of the queries."""

    features: NDArray[Any]
    labels: NDArray[Any]
    offsets: NDArray[np.int64]

    @property
    def lists(self) -> Lists:
        """The labels as lists."""
        return Lists(np.asarray(self.labels), np.asarray(self.offsets))

    @property
    def columns(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
        """Features, labels and the query of each row, as `Ranker.fit` takes them."""
        sizes = np.diff(self.offsets)
        return self.features, np.asarray(self.labels), np.repeat(np.arange(len(sizes)), sizes)


@dataclass(frozen=True, eq=False)
class SearchData:
    """Training and validation queries."""

    train: Part
    valid: Part

    def save(self, folder: Path) -> None:
        """Write the arrays to a folder, from which worker processes map them into memory."""
        for role in ("train", "valid"):
            part = getattr(self, role)
            for name in Part.__dataclass_fields__:
                np.save(folder / f"{role}-{name}.npy", getattr(part, name), allow_pickle=False)

    @staticmethod
    @lru_cache(maxsize=1)
    def load(folder: str) -> SearchData:
        """Read the arrays, once per process."""
        parts = [
            Part(*(np.load(Path(folder) / f"{role}-{name}.npy", mmap_mode="r") for name in Part.__dataclass_fields__))
            for role in ("train", "valid")
        ]
        return SearchData(*parts)


@dataclass(frozen=True)
class Task:
    """A trial to run.

    ``limits`` are the thresholds for pruning by rung, ``seconds`` is the time that is left. The model comes back if its
    value is at least ``floor``. ``modules`` are the user's modules to import first, ``folder`` has
    the data for worker processes.
    """

    number: int
    model: str
    params: Mapping[str, Any]
    measure: str
    seed: int
    limits: Mapping[int, float] = field(default_factory=dict)
    seconds: float | None = None
    floor: float | None = None
    modules: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""


def attempt_task(task: Task) -> tuple[TrialRecord, Ranker | None]:
    """Run a task in a worker process, with the data in the folder of the task."""
    return run_task(task, SearchData.load(task.folder))


def run_task(task: Task, data: SearchData) -> tuple[TrialRecord, Ranker | None]:
    """Train and measure a model; a failure becomes a record, too."""
    from rankbound.experiments.modules import import_modules

    began = time.monotonic()
    try:
        import_modules(task.modules)
        ranker, watcher = fit_ranker(task, data, began)
        values = _values(ranker, data.valid, task.measure)
        value = float(ranker.eval_score_)
    except Exception as error:  # a trial that fails must not end the search
        message = str(error) if isinstance(error, RankboundError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, RankboundError):
            message += f"\n{traceback.format_exc()}"
        seconds = time.monotonic() - began
        nothing = np.full(len(data.valid.offsets) - 1, np.nan)
        return TrialRecord(
            task.number, task.model, task.params, "failed", float("nan"), nothing, seconds=seconds, error=message
        ), None
    record = TrialRecord(
        task.number,
        task.model,
        task.params,
        watcher.ended or "done",
        value,
        values,
        kept_steps(ranker),
        tuple(watcher.curve),
        time.monotonic() - began,
    )
    return record, ranker if task.floor is None or value >= task.floor else None


def fit_ranker(task: Task, data: SearchData, began: float) -> tuple[Any, Watcher]:
    """Train the model of a task; the validation queries select its step."""
    ranker = _ranker(task.model, task.params, task.measure, task.seed)
    seconds = task.seconds
    left = None if seconds is None else (lambda: seconds - (time.monotonic() - began))
    watcher = Watcher(task.limits, steps_per_rung_unit(task.model, task.params), left)
    ranker._on_step = watcher
    X, y, qid = data.train.columns
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # such as trees without a split, which a bad setting gives
            ranker.fit(X, y, qid=qid, eval_set=data.valid.columns)
    finally:
        del ranker._on_step
    return ranker, watcher


def refit_ranker(record: TrialRecord, data: SearchData, measure: str, seed: int) -> Any:
    """Train with the setting and the number of steps of a trial on training and validation queries together."""
    from rankbound.models.by_name import parameters_of

    known, params = parameters_of(record.model), dict(record.params)
    if record.steps is not None and "n_estimators" in known:
        params["n_estimators"] = record.steps
    elif record.steps is not None and "epochs" in known:
        params |= {"epochs": record.steps, "selection": "last"}
    ranker = _ranker(record.model, params, measure, seed)
    both = [data.train.columns, data.valid.columns]
    queries = len(data.train.offsets) - 1
    qid = np.concatenate((both[0][2], both[1][2] + queries))
    return ranker.fit(np.concatenate((both[0][0], both[1][0])), np.concatenate((both[0][1], both[1][1])), qid=qid)


def kept_steps(ranker: Any) -> int | None:
    """Return the number of rounds or epochs that a fitted model keeps; None for models without steps."""
    if hasattr(ranker, "kept_epoch_"):
        return int(ranker.kept_epoch_)
    boosters: list[Any] = getattr(ranker, "boosters_", [])
    return max(1, boosters[0].num_trees()) if len(boosters) == 1 else None


def _ranker(model: str, params: Mapping[str, Any], measure: str, seed: int) -> Any:
    from rankbound.models.by_name import make_ranker

    params = dict(params)
    bounding = params.pop("bounding", "none")  # apart from the others, in which "none" is None
    return make_ranker(model, params, loss=None, bounding=bounding, loss_options={}, seed=seed, measure=measure)


def _values(ranker: Any, part: Part, measure: str) -> NDArray[np.float64]:
    features, _, qid = part.columns
    scored = part.lists.with_scores(ranker.predict(features, qid))
    return np.asarray(evaluate_lists(scored, [measure]).values[str(measure)], dtype=np.float64)
