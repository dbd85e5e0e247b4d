"""Runs the unfinished trials of a study, in processes of this machine or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from rankbound.data.catalog import data_folder_in_use
from rankbound.errors import ArgumentError
from rankbound.parallel import ONE_THREAD, check_address, cores
from rankbound.studies.modules import own_measures, unknown_measures
from rankbound.studies.store import Store
from rankbound.studies.trial import Outcome
from rankbound.studies.trial_spec import Trial, TrialSlot
from rankbound.studies.worker import Failure, attempt, become_worker, one_thread

MOST_JOBS = 1_000  # processes; systems refuse many more
Finished = tuple[Trial, "Outcome | Failure"]
Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Tally:
    """Numbers of trials: in total, done before this run, done by this run, and failed (now or before)."""

    total: int
    before: int
    ran: int
    failed: int


def unfinished(slots: Sequence[TrialSlot], store: Store, retry_failed: bool = False) -> list[TrialSlot]:
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
    remaining = {slot.id: slot for slot in unfinished(slots, store, retry_failed)}
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
    """Results as they arrive. Each worker holds one trial at a time, so that a worker that dies affects few trials."""
    _check_measures(trials)
    yield from in_processes(attempt, iter(trials), min(jobs, len(trials)))


def in_processes(
    function: Callable[[Task], Result | Failure],
    queue: Iterator[Task],
    jobs: int,
    environment: Mapping[str, str] = ONE_THREAD,
) -> Iterator[tuple[Task, Result | Failure]]:
    """Call a function for each task in worker processes, and yield tasks with results as they arrive.

    Tasks are taken from the queue when a worker is free, after the results before have been consumed. A queue may end
    while tasks are running and continue after their results.
    """
    suspects: list[Task] = []
    while batch := list(islice(queue, 1)):
        yield from _until_one_dies(function, batch, queue, jobs, suspects, environment)
    for task in suspects:  # one at a time, which shows the task that kills its worker
        again: list[Task] = []
        yield from _until_one_dies(function, [task], iter(()), 1, again, environment)
        if again:
            yield (
                task,
                Failure("the worker process died twice while it ran this trial; it may have run out of memory"),
            )


def _check_measures(trials: list[Trial]) -> None:
    """Refuse to start when a worker process would not know the measures of users that the trials name."""
    names = own_measures(trials)
    if not names:
        return
    from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]

    context = (os.getpid(), data_folder_in_use())
    pool = ProcessPoolExecutor(1, initializer=become_worker, initargs=context, env=ONE_THREAD)
    try:
        problem = pool.submit(unknown_measures, trials[0].spec.modules, names).result()
    finally:
        pool.shutdown(wait=True, kill_workers=True)
    if problem:
        raise ArgumentError(problem)


def _until_one_dies(
    function: Callable[[Task], Result | Failure],
    first: list[Task],
    queue: Iterator[Task],
    jobs: int,
    lost: list[Task],
    environment: Mapping[str, str],
) -> Iterator[tuple[Task, Result | Failure]]:
    """Run tasks until none is left or a worker dies; the tasks that were running then are appended to ``lost``."""
    from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

    context = (os.getpid(), data_folder_in_use())
    pool = ProcessPoolExecutor(jobs, initializer=become_worker, initargs=context, env=dict(environment))
    running = {}
    try:
        for task in (*first, *islice(queue, jobs - len(first))):
            running[pool.submit(function, task)] = task
        while running:
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            died = False
            for future in finished:
                task = running.pop(future)
                error = future.exception()
                if error is None:
                    yield task, future.result()
                elif isinstance(error, BrokenProcessPool):
                    died = True
                    lost.append(task)
                else:  # the result could not be sent back; the worker is still alive
                    yield task, Failure(f"{type(error).__name__}: {error}")
            if died:
                lost.extend(running.values())
                return
            for task in islice(queue, jobs - len(running)):
                running[pool.submit(function, task)] = task
    finally:
        pool.shutdown(wait=True, kill_workers=True)
