"""Which records are missing, and worker processes that compute them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.quality.training.methods import METHODS
from benchmarks.quality.training.ndcg import FastNDCG
from benchmarks.quality.training.protocols import limited, outcome_of
from benchmarks.quality.training.sets import SETS, load_parts
from benchmarks.quality.training.store import Job, Record, Store, versions
from rankbound.errors import RankboundError

__all__ = ["SEEDS", "Failure", "all_jobs", "compute", "definition", "outdated", "run", "trainings"]

SEEDS = (0, 1, 2)
SECONDS_BETWEEN_LINES = 30.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Failure:
    """A record that could not be computed."""

    job: Job
    error: str


def all_jobs(
    sets: Sequence[str],
    methods: Sequence[str],
    protocols: Sequence[str],
    seeds: Sequence[int],
    folds: int | None = None,
) -> list[Job]:
    """Return the records of a study, all sets with the first seed first; ``folds`` limits it to the first folds."""
    return [
        Job(dataset, protocol, method, fold, seed)
        for seed in seeds
        for dataset in sets
        for fold in range(1, min(SETS[dataset].folds, folds or SETS[dataset].folds) + 1)
        for protocol in protocols
        for method in methods
    ]


def trainings(job: Job) -> int:
    """Return the number of trainings that a record takes."""
    return len(METHODS[job.method].settings[job.protocol])


def definition(job: Job, rounds: int | None = None) -> str:
    """Return method and settings of a record in words, by which a record of an earlier definition is recognized."""
    method = METHODS[job.method]
    return f"{method.definition()}; {limited(method.settings[job.protocol], rounds)}"


def outdated(jobs: Iterable[Job], store: Store, rounds: int | None = None) -> list[Job]:
    """Return the records that are there but come from another definition of the method or of its settings."""
    current: dict[tuple[str, str], str] = {}
    found = []
    for job in jobs:
        if not store.has(job):
            continue
        key = (job.method, job.protocol)
        if key not in current:
            try:
                current[key] = definition(job, rounds)
            except (RankboundError, ImportError, AttributeError) as error:  # the method cannot be made any more
                current[key] = f"none: {error}"
        if store.read(job).about.get("definition") != current[key]:
            found.append(job)
    return found


def compute(job: Job, folder: Path, rounds: int | None = None, replace: bool = False) -> float | Failure:
    """Compute and store a record, unless another process has stored it; return the seconds that it took."""
    store, began = Store(folder), time.perf_counter()
    if store.has(job) and not replace:
        return 0.0
    try:
        method, parts = METHODS[job.method], load_parts(job.dataset, job.fold)
        outcome = outcome_of(method, parts, limited(method.settings[job.protocol], rounds), job.seed)
        values = FastNDCG(parts.test.lists)(np.asarray(outcome.test_scores, dtype=np.float64))
        seconds = time.perf_counter() - began
        about = {
            "definition": definition(job, rounds), "setting": asdict(outcome.setting), "round": outcome.round,
            "validation": outcome.validation, "seconds": round(seconds, 3), "versions": versions(),
        }  # fmt: skip
        store.write(job, Record(parts.test_queries, values, about))
    except Exception:  # one method that fails must not end a study of hours
        return Failure(job, traceback.format_exc())
    return seconds


def run(
    jobs: Sequence[Job], store: Store, workers: int = 1, rounds: int | None = None, replace: bool = False
) -> list[Failure]:
    """Compute the records of the jobs in worker processes of one thread each; return those that failed."""
    work = partial(compute, folder=store.folder, rounds=rounds, replace=replace)
    progress, failures = Progress(jobs), []
    for job, result in _in_order(jobs, work) if workers == 1 else _in_processes(jobs, work, workers):
        if isinstance(result, Failure):
            failures.append(result)
        progress.report(job, result)
    return failures


def _in_order(jobs: Sequence[Job], work: partial[float | Failure]) -> Iterator[tuple[Job, float | Failure]]:
    for job in jobs:
        yield job, work(job)


def _in_processes(
    jobs: Sequence[Job], work: partial[float | Failure], workers: int
) -> Iterator[tuple[Job, float | Failure]]:
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # read by the libraries of the workers when they load
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        futures = {pool.submit(work, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _one_thread() -> None:
    import rankbound

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends the run; what is being computed is stored
    rankbound.set_threads(1)


class Progress:
    """A line on standard error every half minute, after the last record and after each failure."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._left = Counter({job: _work(job) for job in jobs})
        self._total, self._all_work = len(jobs), sum(self._left.values())
        self._began = self._last = time.monotonic()

    def report(self, job: Job, result: float | Failure) -> None:
        """Count a record as done, and say so if it is time."""
        del self._left[job]
        now = time.monotonic()
        if isinstance(result, Failure):
            print(f"failed: {job}: {result.error.splitlines()[-1]}", file=sys.stderr, flush=True)
        if now - self._last >= SECONDS_BETWEEN_LINES or not self._left:
            self._last = now
            work_left = sum(self._left.values())
            left = (now - self._began) * work_left / max(self._all_work - work_left, 1)
            done = self._total - len(self._left)
            print(
                f"{done} of {self._total} records, about {_duration(left)} left; last: {job}",
                file=sys.stderr,
                flush=True,
            )


def _work(job: Job) -> int:
    """Return an amount of work that is roughly proportional to the time of a record."""
    method = METHODS[job.method]
    rounds = sum(setting.rounds for setting in method.settings[job.protocol])
    return round(SETS[job.dataset].rows * rounds * method.cost)


def _duration(seconds: float) -> str:
    """Return a duration for people.

    >>> _duration(42), _duration(5400)
    ('42 s', '1 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
