"""Where trials run: in processes of this machine or on a Dask cluster, which share the folder of the search.

Every worker does the same: it maps the data from files in that folder and runs trials until the budget is spent. A
process is ``python -m rankbound.tuning.workers``, which reads the search from its standard input. It ends with its
parent, which holds the other end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import numpy as np

from rankbound.data.letor import LetorData
from rankbound.errors import DataError
from rankbound.lists import Lists
from rankbound.parallel import ONE_THREAD, cores, open_client
from rankbound.tuning.study import Search, TrialStudy
from rankbound.tuning.trial import SearchData, run_trials

_DATA, _ERRORS = ".data-", "errors.txt"
_ARRAYS = ("features", "labels", "offsets")
_POLL_SECONDS = 0.2
_DIED = "the worker process died while it ran this trial; it may have run out of memory"


def run_workers(
    search: Search, data: SearchData, jobs: int, cluster: str | None, watch: Callable[[TrialStudy], None]
) -> None:
    """Run the trials in so many processes, or on all threads of a cluster; ``watch`` is called again and again."""
    study = TrialStudy(search)
    with _shared_data(search, data) as folder:
        while study.has_more():  # more than once only after workers died
            finished = len(study.records())
            for _ in _run_on_cluster(search, folder, cluster) if cluster else _run_processes(search, folder, jobs):
                time.sleep(_POLL_SECONDS)
                watch(study)
            study.fail_running(_DIED)
            watch(study)
            if len(study.records()) == finished:
                lines = (folder / _ERRORS).read_text(errors="replace").split("\n")
                reason = next(filter(None, reversed(lines)), "no message")
                raise DataError(f"the workers of the search end at once: {reason}")


def _run_on_cluster(search: Search, folder: Path, address: str) -> Iterator[None]:
    """Start workers on a cluster and yield while they run."""
    with open_client(address) as (client, _):
        threads = sum(client.nthreads().values())  # type: ignore[no-untyped-call]
        workers = [client.submit(run_worker, search, folder, pure=False) for _ in range(max(1, threads))]
        while not all(worker.done() for worker in workers):  # type: ignore[no-untyped-call]
            yield


def _run_processes(search: Search, folder: Path, jobs: int) -> Iterator[None]:
    """Start processes and yield while they run."""
    environment = os.environ | dict.fromkeys(ONE_THREAD, str(max(1, cores() // jobs)))
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109
    with (folder / _ERRORS).open("ab") as errors:
        workers = [_start_process(search, folder, environment, errors.fileno()) for _ in range(jobs)]
    try:
        while any(worker.poll() is None for worker in workers):
            yield
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _start_process(search: Search, folder: Path, environment: dict[str, str], errors: int) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-m", __name__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=errors,
        stderr=errors,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the parent
    )
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(search.to_dict()).encode() + b"\n")
    worker.stdin.flush()
    return worker


def run_worker(search: Search, folder: Path) -> None:
    """Run trials on the data in a folder until the budget is spent."""
    parts = {}
    for role in SearchData._fields:
        paths = (folder / f"{role}-{name}.npy" for name in _ARRAYS)
        features, labels, offsets = (np.load(path, mmap_mode="r") for path in paths)
        parts[role] = LetorData(Lists(np.asarray(labels), np.asarray(offsets)), features)
    try:
        run_trials(search, SearchData(**parts))
    except Exception as error:
        with (folder / _ERRORS).open("a") as errors:
            errors.write(f"{type(error).__name__}: {error}\n")
        raise


@contextmanager
def _shared_data(search: Search, data: SearchData) -> Iterator[Path]:
    """Yield a folder with the data, which is removed after the block."""
    for leftover in search.folder.glob(f"{_DATA}*"):  # of a process that was killed
        rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_DATA, dir=search.folder.resolve()) as name:
        folder = Path(name)
        (folder / _ERRORS).touch()
        for role, part in data._asdict().items():
            arrays = (part.features, part.lists.labels, part.lists.offsets)
            for array_name, array in zip(_ARRAYS, arrays, strict=True):
                np.save(folder / f"{role}-{array_name}.npy", array, allow_pickle=False)
        yield folder


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    search = Search.from_dict(json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run_worker(search, Path(sys.argv[1]))
