"""The records on disk: one file per set, protocol, method, fold and seed, written completely or not at all."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.errors import DataError
from rankbound.io import atomic_write

__all__ = ["Job", "Record", "Store", "versions"]

LIBRARIES = ("rankbound", "numpy", "lightgbm", "xgboost", "catboost", "torch")


@dataclass(frozen=True, order=True)
class Job:
    """What a record is of: a method under a protocol, on a fold of a set, with a seed of the library."""

    dataset: str
    protocol: str
    method: str
    fold: int
    seed: int

    def __str__(self) -> str:
        return f"{self.method} on {self.dataset} fold {self.fold}, {self.protocol}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class Record:
    """nDCG@10 of each test query (NaN without a relevant document), and how it came about."""

    queries: NDArray[np.str_]
    values: NDArray[np.float64]
    about: dict[str, Any]


class Store:
    """A folder of records: SET/PROTOCOL/METHOD/fold-F-seed-S.npz.

    A record holds its configuration, among it the definition of the method (see `Method.definition`) and of its
    settings, and the versions of the libraries.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, job: Job) -> Path:
        """Return the file of a record."""
        name = f"fold-{job.fold}-seed-{job.seed}.npz"
        return self.folder / job.dataset / _slug(job.protocol) / _slug(job.method) / name

    def has(self, job: Job) -> bool:
        """Return whether a record is there."""
        return self.path(job).is_file()

    def write(self, job: Job, record: Record) -> None:
        """Write a record atomically; it replaces an earlier one."""
        about = json.dumps({**_labels(job), **record.about})
        with atomic_write(self.path(job)) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, queries=record.queries, values=record.values, about=np.array(about))

    def read(self, job: Job) -> Record:
        """Read a record; raise DataError if the file is damaged."""
        path = self.path(job)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                record = Record(arrays["queries"], arrays["values"], json.loads(str(arrays["about"])))
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise DataError(f"{path}: is not a record of a training: {error}") from error
        if _labels(job) != {name: record.about.get(name) for name in _labels(job)}:
            raise DataError(f"{path}: must be the record of {job}, got that of {record.about}")
        return record

    def read_all(self, jobs: Iterable[Job]) -> dict[Job, Record]:
        """Read the records that are there."""
        return {job: self.read(job) for job in jobs if self.has(job)}


def _labels(job: Job) -> dict[str, Any]:
    return {
        "set": job.dataset, "protocol": job.protocol, "method": job.method, "fold": job.fold, "seed": job.seed
    }  # fmt: skip


def _slug(name: str) -> str:
    """Return a name as a part of a path.

    >>> _slug("XGBoost rank:ndcg"), _slug("ours, weights")
    ('XGBoost-rank-ndcg', 'ours-weights')
    """
    return re.sub(r"[^\w]+", "-", name).strip("-")


@cache
def versions() -> dict[str, str]:
    """Return the versions of the libraries that are installed."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
