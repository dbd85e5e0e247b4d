"""Where trials run: in this process, in worker processes, or on Dask, with the pools that studies use."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rankbound.experiments.worker import Failure
from rankbound.parallel import ONE_THREAD, cores, open_client
from rankbound.tuning.log import TrialRecord
from rankbound.tuning.trial import SearchData, Task, attempt_task, run_task

if TYPE_CHECKING:
    from rankbound.models import Ranker

__all__ = ["Queue", "finished_tasks"]

Finished = tuple[TrialRecord, "Ranker | None"]
_DATA = ".data-"


class Queue(Protocol):
    """Tasks in order: it ends where the next task has to wait for results, and continues after them.

    ``folder`` has the data for worker processes; tasks name it.
    """

    folder: str

    def __iter__(self) -> Iterator[Task]: ...
    def __next__(self) -> Task: ...

    @property
    def has_more(self) -> bool:
        """Whether there is a task, now or after further results."""


def finished_tasks(
    queue: Queue, data: SearchData, jobs: int, cluster: str | None, folder: Path | None
) -> Iterator[Finished]:
    """Run the tasks of a queue and yield results as they arrive."""
    if cluster is not None:
        yield from _on_cluster(queue, data, cluster)
    elif jobs == 0:
        for task in queue:
            yield run_task(task, data)
    else:
        yield from _in_processes(queue, data, jobs, folder)


def _in_processes(queue: Queue, data: SearchData, jobs: int, folder: Path | None) -> Iterator[Finished]:
    from rankbound.experiments.runner import in_processes

    environment = dict.fromkeys(ONE_THREAD, str(max(1, cores() // jobs)))
    if folder is not None:
        for leftover in folder.glob(f"{_DATA}*"):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_DATA, dir=folder) as shared, warnings.catch_warnings():
        # loky replaces workers that grew, which is no concern of the user
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        data.save(Path(shared))
        queue.folder = shared
        while queue.has_more:  # more than once only after a worker died
            for task, result in in_processes(attempt_task, queue, jobs, environment):
                yield _checked(task, result, data)


def _on_cluster(queue: Queue, data: SearchData, address: str) -> Iterator[Finished]:
    with open_client(address) as (client, _):
        from distributed import as_completed

        shared = client.scatter(data, broadcast=True)  # type: ignore[no-untyped-call]
        tasks: dict[Any, Task] = {}
        running = as_completed()  # type: ignore[no-untyped-call]

        def submit() -> None:
            threads = sum(client.nthreads().values())  # type: ignore[no-untyped-call]
            while len(tasks) < max(1, threads) and (task := next(iter(queue), None)) is not None:
                future = client.submit(run_task, task, shared, pure=False)
                tasks[future] = task
                running.add(future)  # type: ignore[no-untyped-call]

        submit()
        for future in running:
            task, error = tasks.pop(future), future.exception()
            failure = None if error is None else Failure(f"{type(error).__name__}: {error}")
            yield _checked(task, failure or future.result(), data)
            future.release()
            submit()


def _checked(task: Task, result: Finished | Failure, data: SearchData) -> Finished:
    """Turn the failure of a worker into a record."""
    if not isinstance(result, Failure):
        return result
    nothing = np.full(len(data.valid.offsets) - 1, np.nan)
    return TrialRecord(
        task.number, task.model, task.params, "failed", float("nan"), nothing, seconds=result.seconds,
        error=result.error,
    ), None  # fmt: skip
