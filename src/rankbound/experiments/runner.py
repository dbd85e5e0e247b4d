"""Runs the trials of a study that are not done yet, in processes of this machine or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from itertools import islice

from rankbound.errors import ArgumentError
from rankbound.experiments.expansion import Planned
from rankbound.experiments.store import Store
from rankbound.experiments.trial import Outcome, Trial
from rankbound.experiments.worker import THREADS, Failure, attempt, become_worker
from rankbound.parallel import cores

__all__ = ["Tally", "estimated_seconds", "run_trials", "tally_of", "waiting"]

Done = tuple[Trial, "Outcome | Failure"]


@dataclass(frozen=True)
class Tally:
    """What a run did: trials in all, done before it, done by it, and failed (now or before)."""

    total: int
    before: int
    ran: int
    failed: int


def waiting(planned: Sequence[Planned], store: Store | None, retry_failed: bool = False) -> list[Planned]:
    """The trials that are still to be run, each once, the first fold of everything first.

    In this order a table is complete early, with wide intervals, and a worker's data serve many trials.
    """
    states = {} if store is None else store.states()
    finished = {name for name, state in states.items() if state == "done" or not retry_failed}
    todo: dict[str, Planned] = {}
    for one in planned:
        if one.trial.id not in finished:
            todo.setdefault(one.trial.id, one)
    return sorted(todo.values(), key=lambda one: (one.trial.spec["seed"], one.trial.spec["fold"]))


def estimated_seconds(todo: Sequence[Planned], planned: Sequence[Planned], store: Store | None, workers: int) -> float:
    """What the trials will take: as those of their setting took, else of their table, else as the file says."""
    known = {} if store is None else store.seconds()
    took: dict[object, list[float]] = {}
    for one in planned:
        if one.trial.digest and one.trial.id in known:
            for key in (_kind(one), one.setting["table"]):
                took.setdefault(key, []).append(known[one.trial.id])
    seconds = 0.0
    for one in todo:
        like = took.get(_kind(one)) or took.get(one.setting["table"]) or [one.seconds]
        seconds += sum(like) / len(like)
    return seconds / max(1, min(workers, len(todo)))


def _kind(one: Planned) -> tuple[tuple[str, str], ...]:
    return tuple(one.setting.items())


def run_trials(
    planned: Sequence[Planned],
    store: Store,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    tell: Callable[[Planned, Outcome | Failure], None] | None = None,
) -> Tally:
    """Run what is not done, keep what it gives as soon as it comes, and go on when a trial fails.

    ``jobs`` is the number of worker processes (all cores unless given), ``cluster`` the address of a Dask scheduler or
    ``local:N``; ``tell`` is called after each trial was kept. Numbers are the same whoever runs the trials.
    """
    if jobs is not None and jobs < 1:
        raise ArgumentError(f"jobs must be a positive number, got {jobs}")
    todo = waiting(planned, store, retry_failed)
    place = {one.trial.id: one for one in todo}
    states = store.states()
    wanted = {one.trial.id for one in planned}
    before = sum(states.get(name) == "done" for name in wanted)
    ran = 0
    if todo:
        trials = [one.trial for one in todo]
        for trial, result in (
            _in_processes(trials, jobs or cores()) if cluster is None else _on_cluster(trials, cluster)
        ):
            if isinstance(result, Failure):
                store.put_failure(trial, result.error, result.seconds)
            else:
                store.put(trial, result)
                ran += 1
            if tell is not None:
                tell(place[trial.id], result)
    return Tally(len(wanted), before, ran, len(wanted & store.failures().keys()))


def tally_of(planned: Sequence[Planned], store: Store) -> Tally:
    """How far a study is, when nothing is run."""
    states = store.states()
    wanted = {one.trial.id for one in planned}
    done = sum(states.get(name) == "done" for name in wanted)
    return Tally(len(wanted), done, 0, len(wanted & store.failures().keys()))


def _on_cluster(trials: list[Trial], address: str) -> Iterator[Done]:
    from rankbound.experiments.cluster import on_cluster

    return on_cluster(trials, address)


# ---- processes -------------------------------------------------------------------------------------------------------


def _in_processes(trials: list[Trial], jobs: int) -> Iterator[Done]:
    """Results as they come. No more trials are handed out than there are workers: who dies takes few with them."""
    suspects: list[Trial] = []
    queue = iter(trials)
    while batch := list(islice(queue, 1)):
        yield from _until_one_dies([*batch], queue, min(jobs, len(trials)), suspects)
    for trial in suspects:  # alone, so that it is known who it was
        again: list[Trial] = []
        yield from _until_one_dies([trial], iter(()), 1, again)
        if again:
            yield trial, Failure("the worker process died while it ran this trial, twice; was there enough memory?")


def _until_one_dies(first: list[Trial], queue: Iterator[Trial], jobs: int, lost: list[Trial]) -> Iterator[Done]:
    """Run trials until none is left or a worker dies; what was being run then is ``lost``."""
    from joblib.externals.loky import (  # type: ignore[import-untyped]
        BrokenProcessPool,
        ProcessPoolExecutor,
    )

    pool = ProcessPoolExecutor(jobs, initializer=become_worker, initargs=(os.getpid(),), env=THREADS)
    running = {}
    try:
        for trial in (*first, *islice(queue, jobs - len(first))):
            running[pool.submit(attempt, trial)] = trial
        while running:
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            died = False
            for future in finished:
                trial = running.pop(future)
                error = future.exception()
                if error is None:
                    yield trial, future.result()
                elif isinstance(error, BrokenProcessPool):
                    died = True
                    lost.append(trial)
                else:  # what came back could not be sent: not the fault of the worker
                    yield trial, Failure(f"{type(error).__name__}: {error}")
            if died:
                lost.extend(running.values())
                return
            for trial in islice(queue, jobs - len(running)):
                running[pool.submit(attempt, trial)] = trial
    finally:
        pool.shutdown(wait=True, kill_workers=True)
