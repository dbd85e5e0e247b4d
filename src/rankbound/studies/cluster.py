"""Runs trials on Dask: workers of this machine (``local:4``) or of any scheduler (``tcp://host:8786``).

The data travel once per worker. A worker of ``local:N`` reads the runner's own files. To the workers of a scheduler a
plugin sends the files of the study when they join; the scheduler keeps the plugin for workers that join later. A worker
that has files with the same content in its own RANKBOUND_DATA or cache, or under the same path, uses these. Data sets
larger than `MOST_BYTES` are not sent, and workers must have them. When a worker dies, another runs its trial.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.data.catalog import find_entry, look_for_data_in, set_folders
from rankbound.errors import ArgumentError, DataError
from rankbound.parallel import no_workers, open_client, workers_of
from rankbound.studies.modules import own_measures, unknown_measures
from rankbound.studies.sources import Source, digest_of, moved_files
from rankbound.studies.trial import Outcome
from rankbound.studies.trial_spec import FORMAT, Trial
from rankbound.studies.worker import Failure, attempt

if TYPE_CHECKING:
    from distributed import Client

MOST_BYTES = 256 << 20


def on_cluster(trials: list[Trial], address: str) -> Iterator[tuple[Trial, Outcome | Failure]]:
    """Results as they arrive."""
    with open_client(address) as (client, local):
        from distributed.scheduler import KilledWorker

        from distributed import as_completed

        if not local:
            _send(client, trials)
        _check_measures(client, trials)
        futures = {client.submit(_attempt, trial, pure=False): trial for trial in trials}
        for future in as_completed(list(futures)):  # type: ignore[no-untyped-call]
            trial = futures.pop(future)
            error = future.exception()
            if error is None:
                yield trial, future.result()
            elif isinstance(error, KilledWorker):
                yield trial, Failure("workers died while they ran this trial; it may have run out of memory")
            else:
                yield trial, Failure(f"{type(error).__name__}: {error}")
            future.release()


def _attempt(trial: Trial) -> Outcome | Failure:
    if trial.spec.format != FORMAT:
        raise DataError(
            f"this worker has another version of rankbound: trials of format {FORMAT}, the runner has "
            f"{trial.spec.format}"
        )
    return attempt(trial)


def _check_measures(client: Client, trials: list[Trial]) -> None:
    """Refuse to start when a worker lacks a module or a measure; workers that join later report it as a failure."""
    modules, names = trials[0].spec.modules, own_measures(trials)
    if not modules and not names:
        return
    for worker, problem in client.run(unknown_measures, modules, names).items():
        if problem:
            raise ArgumentError(f"worker {worker}: {problem}")


# ---- sending data ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parcel:
    """A source, the digest of its content, the relative paths of its files, and their bytes if these are few enough."""

    source: Source
    digest: str
    paths: tuple[str, ...]
    content: tuple[bytes, ...] = field(repr=False, default=())


def pack(source: Source, limit: int = MOST_BYTES) -> Parcel:
    """The data of a source, to send to a worker; without content if it has more than ``limit`` bytes."""
    paths = tuple(_relative_path(source, file) for file in source.files)
    size = sum(Path(file).stat().st_size for file in source.files)
    content = tuple(Path(file).read_bytes() for file in source.files) if size <= limit else ()
    return Parcel(source, digest_of(source), paths, content)


def receive(parcel: Parcel) -> bool:
    """Make this process use the data of a parcel; False if they are neither on this machine nor in the parcel.

    Files that this machine has are linked, others are written, in a temporary folder of this process, in which the data
    sets of the catalog are looked up from then on.
    """
    source, files = parcel.source, parcel.source.files
    own = [tuple(str(folder / path) for path in parcel.paths) for folder in _own_folders(source)]
    present = next((candidate for candidate in (*own, files) if _is_content(candidate, parcel)), None)
    if present is None and not parcel.content:
        return False
    folder = _received_folder() / (find_entry(source.name).folder if source.known else parcel.digest)
    for at, (file, path) in enumerate(zip(files, parcel.paths, strict=True)):
        target = folder / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if present is None:
                target.write_bytes(parcel.content[at])
            else:
                _link(target, present[at])
        moved_files[file] = str(target)
    if source.known:
        look_for_data_in(str(_received_folder()))
    return True


def _link(target: Path, file: str) -> None:
    try:
        target.symlink_to(file)
    except OSError:  # Windows allows symbolic links to some users only
        shutil.copyfile(file, target)


def _is_content(files: tuple[str, ...], parcel: Parcel) -> bool:
    return (
        all(Path(file).is_file() for file in files) and digest_of(replace(parcel.source, files=files)) == parcel.digest
    )


@cache
def _received_folder() -> Path:
    """The folder of this process for the data of studies; it is removed when the process exits."""
    folder = tempfile.mkdtemp(prefix="rankbound-data-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _own_folders(source: Source) -> list[Path]:
    return set_folders(find_entry(source.name)) if source.known else []


def _relative_path(source: Source, file: str) -> str:
    """The path of a file within the folder of its data set; files outside the catalog get a number and their name."""
    if not source.known:
        return f"{source.files.index(file)}-{Path(file).name}"
    folders = [folder for folder in _own_folders(source) if Path(file).is_relative_to(folder)]
    return str(Path(file).relative_to(folders[0]))


def _send(client: Client, trials: list[Trial]) -> None:
    from distributed import WorkerPlugin

    parcels = [pack(source) for source in dict.fromkeys(trial.source for trial in trials)]

    class Unpack(WorkerPlugin):
        """Receives the data of the study when a worker joins."""

        name = "rankbound-data"

        def setup(self, worker: Any) -> None:  # noqa: ARG002
            for parcel in parcels:
                receive(parcel)

    client.register_plugin(Unpack())
    if not workers_of(client):
        raise no_workers()
    sources = [Parcel(parcel.source, parcel.digest, parcel.paths) for parcel in parcels]
    for worker, missing in client.run(_missing_sets, sources).items():
        if missing:
            raise DataError(
                f"worker {worker} does not have the data set {missing[0]}, which is too large to send (over "
                f"{MOST_BYTES >> 20} MB): put it into the RANKBOUND_DATA of that worker"
            )


def _missing_sets(parcels: list[Parcel]) -> list[str]:
    """Names of the data sets that this worker neither has nor received."""
    return [parcel.source.name for parcel in parcels if not _has(parcel)]


def _has(parcel: Parcel) -> bool:
    try:
        return digest_of(parcel.source) == parcel.digest
    except OSError:
        return False
