"""Where trials run: in processes of this machine or on a Dask cluster, which share the folder of the search.

A worker process is ``python -m rankbound.tuning.workers``: it reads the search from its standard input and the data
from files, which it maps into memory. It ends with its parent, which holds the other end of its standard input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import numpy as np

from rankbound.data.letor import LetorData
from rankbound.errors import DataError
from rankbound.lists import Lists
from rankbound.parallel import ONE_THREAD, cores, open_client
from rankbound.tuning.study import Search, TrialStudy
from rankbound.tuning.trial import SearchData, run_trials

_DATA = ".data-"
_POLL_SECONDS = 0.2
_DIED = "the worker process died while it ran this trial; it may have run out of memory"
Watch = Callable[[TrialStudy], None]


def run_in_processes(search: Search, data: SearchData, jobs: int, watch: Watch) -> None:
    """Run the trials in worker processes; ``watch`` is called again and again meanwhile."""
    for leftover in search.folder.glob(f"{_DATA}*"):  # of a process that was killed
        rmtree(leftover, ignore_errors=True)
    study = TrialStudy(search)
    environment = os.environ | dict.fromkeys(ONE_THREAD, str(max(1, cores() // jobs)))
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109
    with tempfile.TemporaryDirectory(prefix=_DATA, dir=search.folder) as folder:
        _save_data(data, Path(folder))
        while study.has_more():  # more than once only after workers died
            finished, errors = len(study.records()), Path(folder) / "errors.txt"
            with errors.open("w+b") as stream:
                workers = [_start_worker(search, folder, environment, stream.fileno()) for _ in range(jobs)]
                try:
                    while any(worker.poll() is None for worker in workers):
                        time.sleep(_POLL_SECONDS)
                        watch(study)
                finally:
                    for worker in workers:
                        worker.kill()
                        worker.communicate()
            study.fail_running(_DIED)
            watch(study)
            if len(study.records()) == finished:
                lines = errors.read_text(errors="replace").split("\n")
                raise DataError(
                    f"the workers of the search end at once: {next(filter(None, lines[::-1]), 'no message')}"
                )


def _start_worker(search: Search, folder: str, environment: dict[str, str], errors: int) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-m", __name__, folder],
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


def run_on_cluster(search: Search, data: SearchData, address: str, watch: Watch) -> None:
    """Run the trials on a Dask cluster whose workers see the folder of the search."""
    study = TrialStudy(search)
    with open_client(address) as (client, _):
        shared = client.scatter(data, broadcast=True)  # type: ignore[no-untyped-call]
        threads = sum(client.nthreads().values())  # type: ignore[no-untyped-call]
        running = [client.submit(run_trials, search, shared, pure=False) for _ in range(max(1, threads))]
        while not all(future.done() for future in running):  # type: ignore[no-untyped-call]
            time.sleep(_POLL_SECONDS)
            watch(study)
        outcomes = [future.exception() for future in running]  # type: ignore[no-untyped-call]
    errors = [error for error in outcomes if error is not None]
    study.fail_running(_DIED)
    watch(study)
    if errors:
        raise DataError(f"a worker of the cluster failed: {type(errors[0]).__name__}: {errors[0]}") from errors[0]


def _save_data(data: SearchData, folder: Path) -> None:
    for role, part in data._asdict().items():
        arrays = {"features": part.features, "labels": part.lists.labels, "offsets": part.lists.offsets}
        for name, array in arrays.items():
            np.save(folder / f"{role}-{name}.npy", array, allow_pickle=False)


def _load_data(folder: Path) -> SearchData:
    def load(role: str) -> LetorData:
        features, labels, offsets = (
            np.load(folder / f"{role}-{name}.npy", mmap_mode="r") for name in ("features", "labels", "offsets")
        )
        return LetorData(Lists(np.asarray(labels), np.asarray(offsets)), features)

    return SearchData(load("train"), load("valid"))


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    search = Search.from_dict(json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run_trials(search, _load_data(Path(sys.argv[1])))
