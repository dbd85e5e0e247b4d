"""Distributions that were computed before: the last ones in memory, and those of all processes on disk.

Files are arrays without pickle in the cache folder (see `rankbound.io.caching`). If a file is damaged or the folder
cannot be used, the distribution is computed again. They are checked when they are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.case import Case
from rankbound.errors import DataError
from rankbound.io import atomic_write, cache_folder, read_arrays

StoredDistribution = tuple[NDArray[np.float64], NDArray[np.float64], str]
_VERSION = 3  # of the algorithms: increase it when a distribution changes
_MOST_FILES = 5_000


def _path(key: object) -> Path | None:
    folder = cache_folder("distributions")
    return None if folder is None else folder / f"{hashlib.sha256(repr((_VERSION, key)).encode()).hexdigest()[:40]}.npz"


def load(key: object) -> StoredDistribution | None:
    """Return the distribution that was stored under a key; None if it is absent or damaged."""
    path = _path(key)
    if path is None:
        return None
    try:
        stored = read_arrays(path)
        scores, probabilities, method = stored["scores"], stored["probabilities"], str(stored["method"])
    except (DataError, KeyError):  # absent or damaged
        return None
    return (scores, probabilities, method) if _is_distribution(scores, probabilities) else None


def _is_distribution(scores: NDArray[np.float64], probabilities: NDArray[np.float64]) -> bool:
    if not (scores.dtype == probabilities.dtype == np.float64 and scores.ndim == 1 and len(scores)):
        return False
    if scores.shape != probabilities.shape or not np.isfinite(scores).all():
        return False
    return bool((np.diff(scores) > 0).all() and (probabilities >= 0).all() and abs(probabilities.sum() - 1) < 1e-9)


def store(key: object, distribution: StoredDistribution) -> None:
    """Keep a distribution, if the cache folder can be written."""
    path = _path(key)
    if path is None:
        return
    scores, probabilities, method = distribution
    with contextlib.suppress(DataError, OSError):
        with atomic_write(path, durable=False) as temporary, temporary.open("wb") as file:
            np.savez(file, scores=scores, probabilities=probabilities, method=np.array(method))
        _prune(path.parent)


def _prune(folder: Path) -> None:
    """Remove the oldest quarter when there are too many files."""
    files = list(folder.iterdir())  # unfinished files of killed processes, too
    if len(files) > _MOST_FILES:
        for old in sorted(files, key=lambda file: file.stat().st_mtime)[: len(files) // 4]:
            old.unlink(missing_ok=True)


class RecentDistributions:
    """The approximations that were used last, up to a total number of points."""

    def __init__(self, most_points: int) -> None:
        self.most_points = most_points
        self.points = 0
        self.kept: dict[tuple[Case, str], StoredDistribution] = {}
        self.lock = threading.Lock()

    def get(self, key: tuple[Case, str]) -> StoredDistribution | None:
        """The distribution of a case by a method if it is here."""
        with self.lock:
            distribution = self.kept.pop(key, None)
            if distribution is not None:
                self.kept[key] = distribution  # the last to be removed
            return distribution

    def put(self, key: tuple[Case, str], distribution: StoredDistribution) -> None:
        """Keep a distribution, and remove those that were not used for longest if there are too many points."""
        with self.lock:
            if key not in self.kept:
                self.kept[key] = distribution
                self.points += len(distribution[0])
            while self.points > self.most_points:
                oldest = next(iter(self.kept))
                self.points -= len(self.kept.pop(oldest)[0])

    def clear(self) -> None:
        """Remove all."""
        with self.lock:
            self.kept.clear()
            self.points = 0
