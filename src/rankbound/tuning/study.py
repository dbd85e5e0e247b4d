"""A search as an Optuna study in a folder, from which it resumes and which its workers share.

================  =====================================================================================================
``tune.json``     what is searched: data, measure, spaces, seed; another search is refused
``study.log``     Optuna's journal: every trial with what it tried and found, readable by Optuna's own tools
``best/N``        the model of the best trial so far, written before its trial counts as finished
``model``         the chosen model
================  =====================================================================================================

A process that is killed at any moment loses at most the trials that were running, which are tried again.
"""

from __future__ import annotations

import math
import os
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from filelock import FileLock
from numpy.typing import NDArray
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState

from rankbound.errors import DataError
from rankbound.io import locked_folder
from rankbound.tuning.space import ModelSpace

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial

    from rankbound.models import Ranker

JOURNAL = "study.log"
_STATES = {
    "done": TrialState.COMPLETE,
    "stopped": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}
_STUDY = "tune"
_RECORD = "record"
_MODEL = "model"
_FIRST_TRIALS = 10  # before TPE suggests and any trial is pruned
_FEWEST = 4  # finished trials that reached a rung before any is pruned there
_FAILURES = 5  # a search whose first trials all fail ends


@dataclass(frozen=True, eq=False)
class TrialRecord:
    """A finished trial.

    Parameters
    ----------
    number:
        Its number, from 1. Numbers of trials that were interrupted are missing.
    model, params:
        The class of the ranker and its parameters, as plain data.
    status:
        "done", "pruned" (ended because it fell behind), "stopped" (the time budget was spent) or "failed".
    value:
        Mean of the measure over the validation queries; NaN if the trial failed.
    values:
        The measure of each validation query; NaN where it is not defined.
    steps:
        Number of rounds or epochs that the model keeps; None for models without steps.
    seconds, elapsed:
        Duration of the trial, and of the search up to its end, over all runs.
    error:
        Why the trial failed.
    """

    number: int
    model: str
    params: Mapping[str, Any]
    status: str
    value: float
    values: NDArray[np.float64]
    steps: int | None = None
    seconds: float = 0.0
    elapsed: float = 0.0
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return asdict(self) | {"values": self.values.tolist()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> TrialRecord:
        """Read what `to_dict` returned; raise ValueError or TypeError for anything else."""
        read = cls(**{**record, "values": np.array(record["values"], dtype=np.float64)})
        if read.status not in _STATES or not isinstance(read.params, dict) or not isinstance(read.value, float):
            raise ValueError(f"trial {read.number} has the status {read.status!r} and the value {read.value!r}")
        return read


@dataclass(frozen=True)
class Search:
    """What the trials of a search have in common, in plain data, which workers read.

    ``first_model_trials`` go to the first model alone, if there are several. ``modules`` are the user's modules that
    workers import, with the digest of each. The search ends after so many ``trials``, or ``seconds`` after it
    ``began``, in the seconds of `time.time` and without the time between its runs; None is no limit.
    """

    folder: Path
    measure: str
    spaces: Mapping[str, ModelSpace]
    sampler: str
    pruning: bool
    seed: int
    first_model_trials: int
    modules: Mapping[str, str]
    trials: int | None = None
    seconds: float | None = None
    began: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the search as plain data."""
        spaces = {name: space.to_dict() for name, space in self.spaces.items()}
        return vars(self) | {"spaces": spaces, "folder": str(self.folder)}

    @classmethod
    def from_dict(cls, search: Mapping[str, Any]) -> Search:
        """Read what `to_dict` returned."""
        spaces = {name: ModelSpace.from_dict(name, space) for name, space in search["spaces"].items()}
        return cls(**{**search, "spaces": spaces, "folder": Path(search["folder"])})

    @property
    def elapsed(self) -> float:
        """Seconds of the search, over all runs."""
        return time.time() - self.began

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time budget is spent."""
        return self.seconds is not None and self.elapsed >= self.seconds


class TrialStudy:
    """The trials of a search: asks Optuna for the next one, and records those that are finished."""

    def __init__(self, search: Search) -> None:
        self.search = search
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        path = search.folder / JOURNAL
        pruner = optuna.pruners.MedianPruner(n_startup_trials=_FIRST_TRIALS, n_min_trials=_FEWEST)
        try:
            self._storage = JournalStorage(JournalFileBackend(str(path), lock_obj=_JournalLock(path)))
            self._study = optuna.create_study(
                storage=self._storage,
                pruner=pruner if search.pruning else optuna.pruners.NopPruner(),
                study_name=_STUDY,
                direction="maximize",
                load_if_exists=True,
            )
            self.records()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: is damaged: {type(error).__name__}: {error}; choose another folder") from error

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states or None)

    def records(self) -> list[TrialRecord]:
        """Return the finished trials, by number."""
        found = [trial.user_attrs[_RECORD] for trial in self._trials(*_STATES.values()) if _RECORD in trial.user_attrs]
        return [TrialRecord.from_dict(record) for record in found]

    def repair(self) -> None:
        """Enqueue what is tried first, and again what was running when the process of the search was killed."""
        for setting in self._first_settings()[len(self._trials()) :]:
            self._study.enqueue_trial(setting)
        for trial in self._trials(TrialState.RUNNING):
            if _RECORD in trial.user_attrs:  # killed between the record and the state
                self._tell(TrialRecord.from_dict(trial.user_attrs[_RECORD]))
            else:
                self._study.tell(trial.number, state=TrialState.FAIL)
                self._study.enqueue_trial(trial.params)

    def _first_settings(self) -> list[dict[str, Any]]:
        """The settings to start with, those of the first model in front, which has the first trials to itself."""
        (first, space), *others = self.search.spaces.items()
        if not others:
            return space.enqueued_starts()
        settings = [{_MODEL: first} | start for start in space.enqueued_starts()]
        settings += [{_MODEL: first}] * (self.search.first_model_trials - len(settings))
        return settings + [{_MODEL: name} | start for name, other in others for start in other.enqueued_starts()]

    def _tried_trials(self) -> list[FrozenTrial]:
        """The finished and the running trials."""
        return [t for t in self._trials() if _RECORD in t.user_attrs or t.state == TrialState.RUNNING]

    def has_more(self) -> bool:
        """Whether the budget allows a further trial; there is always a first one."""
        started = self._tried_trials()
        if not started:
            return True
        if self.search.is_out_of_time or (self.search.trials is not None and len(started) >= self.search.trials):
            return False
        return len(started) < _FAILURES or any(trial.state != TrialState.FAIL for trial in started)

    def ask(self) -> tuple[Trial, str, dict[str, Any]] | None:
        """Start the next trial: return it with its model and parameters; None at the end of the search."""
        with locked_folder(self.search.folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # groups of parameters are marked as experimental
            if not self.has_more():
                return None
            # a seed for each suggestion, so that a search in several runs is the same as one without interruption
            self._study.sampler = _make_sampler(self.search, len(self._tried_trials()))
            trial = self._study.ask()
            names = list(self.search.spaces)
            model = trial.suggest_categorical(_MODEL, names) if len(names) > 1 else names[0]
            self.search.spaces[model].suggest(trial)
            return trial, *self._setting(trial.params)

    def finish(self, record: TrialRecord, ranker: Ranker | None) -> None:
        """Record a finished trial, after its model if that is the best so far."""
        folder = self.search.folder / "best"
        with locked_folder(self.search.folder):
            record = replace(record, elapsed=self.search.elapsed)
            best = find_best(self.records())
            is_best = ranker is not None and (best is None or record.value > best.value)
            if is_best and ranker is not None:
                ranker.save(folder / str(record.number))
            study_id = self._storage.get_study_id_from_name(_STUDY)
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, record.number - 1)
            self._storage.set_trial_user_attr(trial_id, _RECORD, record.to_dict())
            self._tell(record)
            if is_best:
                for path in folder.iterdir():
                    if path.name != str(record.number):
                        shutil.rmtree(path, ignore_errors=True)

    def _tell(self, record: TrialRecord) -> None:
        state = _STATES[record.status]
        self._study.tell(record.number - 1, record.value if state == TrialState.COMPLETE else None, state)

    def fail_running(self, error: str) -> None:
        """Record the running trials as failed, because their worker died."""
        for trial in self._trials(TrialState.RUNNING):
            model, params = self._setting(trial.params)
            self.finish(
                TrialRecord(trial.number + 1, model, params, "failed", math.nan, np.empty(0), error=error), None
            )

    def _setting(self, suggested: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the model and its parameters from what Optuna suggested."""
        model = suggested.get(_MODEL, next(iter(self.search.spaces)))
        return model, self.search.spaces[model].setting_of(suggested)


def find_best(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the trial with the highest value; of equal ones, that with the lowest number."""
    usable = [record for record in records if record.status != "failed"]
    return min(usable, key=lambda record: (-record.value, record.number), default=None)


def _make_sampler(search: Search, number: int) -> BaseSampler:
    """Return random search, or the tree-structured Parzen estimator of Bergstra et al. (2011)."""
    seed = int(np.random.default_rng([search.seed, number]).integers(2**32))
    if search.sampler == "random":
        return optuna.samplers.RandomSampler(seed)
    return optuna.samplers.TPESampler(
        seed=seed,
        n_startup_trials=_FIRST_TRIALS,
        multivariate=True,
        group=True,  # each model has its own parameters
        constant_liar=True,  # trials that are running repel suggestions
    )


def drop_partial_line(journal: Path) -> None:
    """Remove what a process had written of a line when it was killed."""
    if journal.exists() and not (content := journal.read_bytes()).endswith(b"\n"):
        os.truncate(journal, content.rfind(b"\n") + 1)


class _JournalLock(JournalFileOpenLock):
    """A lock that ends with its process; those of Optuna stay for half a minute when their process is killed."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._lock = FileLock(f"{path}.lock")

    def acquire(self) -> bool:
        """Hold the lock, as soon as no other process does."""
        self._lock.acquire()
        return True

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()
