"""Runs trials on Dask: workers of this machine (``local:4``) or of a scheduler on any (``tcp://host:8786``).

Data travel once per worker. A worker of ``local:N`` reads the runner's own files. To the workers of a scheduler the
files of the study are sent when they join, by a plugin that the scheduler keeps for those who come later; a worker
that finds the same content in its own RANKBOUND_DATA or cache, or under the same path, uses that. What is larger than
`MOST_BYTES` is not sent: workers must have it then. A worker that dies costs the trial at hand, which another runs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.data.catalog import find_entry, set_folders
from rankbound.errors import ArgumentError, DataError
from rankbound.experiments.sources import Source, digest_of, moved_files
from rankbound.experiments.trial import FORMAT, Outcome, Trial
from rankbound.experiments.worker import THREADS, Failure, attempt

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["MOST_BYTES", "Parcel", "on_cluster", "pack", "receive"]

MOST_BYTES = 256 << 20
_FAILURES_ALLOWED = 3  # deaths of workers that one trial may cause before it counts as failed


def on_cluster(trials: list[Trial], address: str) -> Iterator[tuple[Trial, Outcome | Failure]]:
    """Results as they come."""
    with _client(address) as (client, local):
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        if not local:
            _send(client, trials)
        futures = {client.submit(_attempt, trial, FORMAT, pure=False): trial for trial in trials}
        for future in as_completed(list(futures)):  # type: ignore[no-untyped-call]
            trial = futures.pop(future)
            error = future.exception()
            if error is None:
                yield trial, future.result()
            elif isinstance(error, KilledWorker):
                yield trial, Failure("workers died while they ran this trial; was there enough memory?")
            else:
                yield trial, Failure(f"{type(error).__name__}: {error}")
            future.release()


def _attempt(trial: Trial, expected_format: int) -> Outcome | Failure:
    if expected_format != FORMAT:
        raise DataError(
            f"this worker has another version of rankbound: format {FORMAT}, the runner has {expected_format}"
        )
    return attempt(trial)


@contextlib.contextmanager
def _client(address: str) -> Iterator[tuple[Client, bool]]:
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ArgumentError(f"--cluster needs {error.name}; install rankbound[cluster]") from error

    settings = {"distributed.scheduler.allowed-failures": _FAILURES_ALLOWED, "distributed.comm.timeouts.connect": "10s"}
    kind, _, rest = address.partition(":")
    with dask.config.set(settings):
        if kind == "local":
            if not rest.isdecimal() or int(rest) < 1:
                raise ArgumentError(f"--cluster local:N needs a number of workers, got {address!r}")
            with (
                LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=int(rest), threads_per_worker=1, dashboard_address=None, env=THREADS, silence_logs=50
                ) as cluster,
                Client(cluster) as client,  # type: ignore[no-untyped-call]
            ):
                yield client, True
            return
        if kind not in ("tcp", "tls", "ucx"):
            raise ArgumentError(
                f"--cluster must be local:N or the address of a scheduler, tcp://host:8786; got {address!r}"
            )
        try:
            client = Client(address)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise DataError(f"no Dask scheduler answers at {address}: {error}") from error
        with client:
            yield client, False


# ---- sending data ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parcel:
    """A source, the digest of its content, where its files lie in the set's folder, and their bytes if not too many."""

    source: Source
    digest: str
    places: tuple[str, ...]
    content: tuple[bytes, ...] = field(repr=False, default=())


def pack(source: Source, room: int = MOST_BYTES) -> Parcel:
    """What a worker needs to have the data of a source."""
    places = tuple(_place(source, file) for file in source.files)
    size = sum(Path(file).stat().st_size for file in source.files)
    content = tuple(Path(file).read_bytes() for file in source.files) if size <= room else ()
    return Parcel(source, digest_of(source), places, content)


def receive(parcel: Parcel) -> bool:
    """Use the data of a parcel in this process from now on; False if they are neither here nor in the parcel.

    What is here is linked to, what is not is written, into one folder of this process, which then is where known data
    sets are looked for.
    """
    source, files = parcel.source, parcel.source.files
    own = [tuple(str(folder / place) for place in parcel.places) for folder in _own_folders(source)]
    there = next((found for found in (*own, files) if _is_content(found, parcel)), None)
    if there is None and not parcel.content:
        return False
    folder = _received() / (find_entry(source.name).folder if source.known else parcel.digest)
    for at, (file, place) in enumerate(zip(files, parcel.places, strict=True)):
        target = folder / place
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if there is None:
                target.write_bytes(parcel.content[at])
            else:
                target.symlink_to(there[at])
        moved_files[file] = str(target)
    if source.known:
        os.environ["RANKBOUND_DATA"] = str(_received())
    return True


def _is_content(files: tuple[str, ...], parcel: Parcel) -> bool:
    return (
        all(Path(file).is_file() for file in files) and digest_of(replace(parcel.source, files=files)) == parcel.digest
    )


@cache
def _received() -> Path:
    """The folder of this process for the data of studies; it goes with the process."""
    folder = tempfile.mkdtemp(prefix="rankbound-data-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _own_folders(source: Source) -> list[Path]:
    return set_folders(find_entry(source.name)) if source.known else []


def _place(source: Source, file: str) -> str:
    """Where a file lies in its set's folder; files of one's own get a number and keep their name."""
    if not source.known:
        return f"{source.files.index(file)}-{Path(file).name}"
    folders = [folder for folder in _own_folders(source) if Path(file).is_relative_to(folder)]
    return str(Path(file).relative_to(folders[0]))


def _send(client: Client, trials: list[Trial]) -> None:
    from distributed import WorkerPlugin

    parcels = [pack(source) for source in dict.fromkeys(trial.source for trial in trials)]

    class Unpack(WorkerPlugin):
        """Takes the study's data when a worker joins."""

        name = "rankbound-data"

        def setup(self, worker: Any) -> None:  # noqa: ARG002
            for parcel in parcels:
                receive(parcel)

    client.register_plugin(Unpack())
    if not client.scheduler_info()["workers"]:
        raise DataError("the scheduler has no workers yet; start some with: dask worker ADDRESS --nthreads 1")
    sources = [Parcel(parcel.source, parcel.digest, parcel.places) for parcel in parcels]
    for where, lacking in client.run(_lacking, sources).items():
        if lacking:
            raise DataError(
                f"the worker {where} has not the data set {lacking[0]}, which is too large to send "
                f"(over {MOST_BYTES >> 20} MB): put it into the RANKBOUND_DATA of that worker"
            )


def _lacking(parcels: list[Parcel]) -> list[str]:
    """Which data this worker has neither by itself nor from the plugin."""
    return [one.source.name for one in parcels if not _has(one)]


def _has(parcel: Parcel) -> bool:
    try:
        return digest_of(parcel.source) == parcel.digest
    except OSError:
        return False
