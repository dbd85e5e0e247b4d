"""Distributions on disk: computed once per machine, shared by all processes, checked when they are read.

Files are arrays without pickle in the cache folder (see `rankbound.io.caching`). If a file is damaged or the folder
cannot be used, the distribution is computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
