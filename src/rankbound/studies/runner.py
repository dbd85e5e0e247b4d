"""Runs the unfinished trials of a study, in processes of this machine or on a cluster."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from rankbound.data.catalog import data_folder_in_use
from rankbound.errors import ArgumentError
from rankbound.parallel import check_address, cores
from rankbound.studies.modules import own_measures
from rankbound.studies.store import Store
from rankbound.studies.trial import Outcome
from rankbound.studies.trial_spec import Trial, TrialSlot
from rankbound.studies.worker import Failure, Orders, attempt, exchange_trial, one_thread, send_orders, start_worker

MOST_JOBS = 1_000  # processes; systems refuse many more
_DIED = "the worker process died twice while it ran this trial; it may have run out of memory"
Finished = tuple[Trial, Outcome | Failure]


@dataclass(frozen=True)
class Tally:
    """Numbers of trials: in total, done before this run, done by this run, and failed (now or before)."""

    total: int
    before: int
    ran: int
    failed: int


def unfinished_slots(slots: Sequence[TrialSlot], store: Store, retry_failed: bool = False) -> list[TrialSlot]:
    """One slot of each trial that remains to be run, ordered by seed and fold.

    In this order every row of the table has its first fold early, and a worker uses the same data for many trials.
    """
    finished = {trial for trial, state in store.states().items() if state == "done" or not retry_failed}
    remaining: dict[str, TrialSlot] = {}
    for slot in slots:
        if slot.id not in finished:
            remaining.setdefault(slot.id, slot)
    return sorted(remaining.values(), key=lambda slot: (slot.seed, slot.fold))


def estimated_seconds(
    remaining: Sequence[TrialSlot], slots: Sequence[TrialSlot], store: Store | None, workers: int
) -> float:
    """Expected duration of the remaining trials.

    A trial is expected to take as long as finished trials of its setting, or else of its table, or else as long as the
    study file says.
    """
    known = {} if store is None else store.seconds()
    durations: dict[object, list[float]] = {}
    for slot in slots:
        if slot.trial.digest and slot.id in known:
            for key in (_setting(slot), slot.setting["table"]):
                durations.setdefault(key, []).append(known[slot.id])
    seconds = 0.0
    for slot in remaining:
        similar = durations.get(_setting(slot)) or durations.get(slot.setting["table"]) or [slot.seconds]
        seconds += sum(similar) / len(similar)
    return seconds / max(1, min(workers, len(remaining)))


def _setting(slot: TrialSlot) -> tuple[tuple[str, str], ...]:
    return tuple(slot.setting.items())


def worker_count(jobs: int | None, cluster: str | None) -> int:
    """The number of workers that ``jobs`` and ``cluster`` stand for, as far as it is known beforehand.

    >>> worker_count(3, None), worker_count(None, "local:4")
    (3, 4)
    """
    if jobs is not None and jobs < 0:
        raise ArgumentError(f"jobs must be a positive integer, 0 or None, got {jobs}")
    if cluster is not None:
        check_address(cluster)
        kind, _, number = cluster.partition(":")
        if kind == "local":
            return int(number)
    return cores() if jobs is None else min(max(1, jobs), MOST_JOBS)


def run_trials(
    slots: Sequence[TrialSlot],
    store: Store,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    on_result: Callable[[TrialSlot, Outcome | Failure], None] | None = None,
) -> Tally:
    """Run the unfinished trials and store each result as soon as it arrives; a failed trial does not stop the others.

    Parameters
    ----------
    slots:
        The trials of the study.
    store:
        Where results go. The caller holds its lock.
    jobs:
        Worker processes; all cores if None. With 0, trials run one after another in this process, which then knows
        measures that were registered in it.
    cluster:
        Address of a Dask scheduler, or ``local:N``.
    retry_failed:
        Run trials that failed before again.
    on_result:
        Called after each trial has been stored.

    The numbers do not depend on where the trials run.
    """
    worker_count(jobs, cluster)  # checks both
    remaining = {slot.id: slot for slot in unfinished_slots(slots, store, retry_failed)}
    states = store.states()
    ids = {slot.id for slot in slots}
    before = sum(states.get(trial) == "done" for trial in ids)
    ran = 0
    if remaining:
        for trial, result in _results([slot.trial for slot in remaining.values()], jobs, cluster):
            if isinstance(result, Failure):
                store.put_failure(trial, result.error, result.seconds)
            else:
                store.put(trial, result)
                ran += 1
            if on_result is not None:
                on_result(remaining[trial.id], result)
    return Tally(len(ids), before, ran, len(ids & store.failures().keys()))


def tally_of(slots: Sequence[TrialSlot], store: Store) -> Tally:
    """The tally of a study when nothing is run."""
    states = store.states()
    ids = {slot.id for slot in slots}
    done = sum(states.get(trial) == "done" for trial in ids)
    return Tally(len(ids), done, 0, len(ids & store.failures().keys()))


def _results(trials: list[Trial], jobs: int | None, cluster: str | None) -> Iterator[Finished]:
    if cluster is not None:
        from rankbound.studies.cluster import on_cluster

        return on_cluster(trials, cluster)
    return _in_this_process(trials) if jobs == 0 else _in_processes(trials, jobs or cores())


def _in_this_process(trials: list[Trial]) -> Iterator[Finished]:
    for trial in trials:
        with one_thread():
            result = attempt(trial)
        yield trial, result


# ---- processes -------------------------------------------------------------------------------------------------------


def _in_processes(trials: list[Trial], jobs: int) -> Iterator[Finished]:
    """Results as they arrive. A worker holds one trial at a time, so that one that dies affects no other trial."""
    orders = Orders(data_folder_in_use(), trials[0].spec.modules, own_measures(trials))
    suspects = []
    with _Workers(orders, min(jobs, len(trials))) as workers:
        for trial, result in workers.attempt_all(trials):
            if result is None:
                suspects.append(trial)
            else:
                yield trial, result
        for suspect in suspects:  # one at a time, which shows the trial that kills its worker
            yield from ((trial, result or Failure(_DIED)) for trial, result in workers.attempt_all([suspect]))


class _Workers(contextlib.AbstractContextManager["_Workers"]):
    """Worker processes (`rankbound.studies.worker`), each started when a trial finds none that is idle."""

    def __init__(self, orders: Orders, count: int) -> None:
        self._orders, self._lock = orders, threading.Lock()
        self._threads = ThreadPoolExecutor(count)  # one for each worker, which waits for its answers
        self._is_closed = False
        self._started: list[subprocess.Popen[bytes]] = []
        self._idle: list[subprocess.Popen[bytes]] = []

    def attempt_all(self, trials: list[Trial]) -> Iterator[tuple[Trial, Outcome | Failure | None]]:
        """Trials with their results as they arrive; None where the worker died."""
        running = {self._threads.submit(self._attempt, trial): trial for trial in trials}
        for finished in as_completed(running):
            yield running[finished], finished.result()

    def _attempt(self, trial: Trial) -> Outcome | Failure | None:
        worker = self._take_worker()
        if worker is None:
            return None
        try:
            result = exchange_trial(worker, trial)
        except (EOFError, OSError):
            return None
        self._idle.append(worker)
        return result

    def _take_worker(self) -> subprocess.Popen[bytes] | None:
        """An idle worker, or a new one; ArgumentError if it cannot run these trials."""
        with self._lock:
            if self._is_closed:
                return None
            if self._idle:
                return self._idle.pop()
            self._started.append(worker := start_worker())
        if problem := send_orders(worker, self._orders):
            raise ArgumentError(problem)
        return worker

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
        for worker in self._started:
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._started:
            worker.communicate()
