"""Distributions on disk: computed once per machine, shared by all processes, never trusted blindly.

Files lie in the folder that ``RANKBOUND_CACHE`` names (empty: no files), else in the user's cache folder. They are
plain arrays without pickle. Where a file is damaged, or the folder is out of reach, the distribution is computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankbound.data.files import read_arrays
from rankbound.errors import DataError

__all__ = ["cache_folder", "load", "store"]

StoredLaw = tuple[NDArray[np.float64], NDArray[np.float64], str]
_VERSION = 1  # of the algorithms: raise it when a distribution would come out different
_MOST_FILES = 5_000


def cache_folder() -> Path | None:
    """Where distributions are kept, or None if they are not."""
    named = os.environ.get("RANKBOUND_CACHE")
    if named is not None:
        return Path(named) / "distributions" if named else None
    try:
        if sys.platform == "win32":  # pragma: no cover
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":  # pragma: no cover
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home folder
        return None
    return base / "rankbound" / "distributions"


def _path(key: object) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / f"{hashlib.sha256(repr((_VERSION, key)).encode()).hexdigest()[:40]}.npz"


def load(key: object) -> StoredLaw | None:
    """The distribution that was stored under a key, if it is there and whole."""
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


def store(key: object, distribution: StoredLaw) -> None:
    """Keep a distribution: written beside its place, then moved there, so that no reader ever sees half a file."""
    path = _path(key)
    if path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, scores=distribution[0], probabilities=distribution[1], method=np.array(distribution[2]))
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _prune(path.parent)


def _prune(folder: Path) -> None:
    """Drop the oldest quarter when there are too many."""
    files = list(folder.iterdir())  # also what killed processes left half-written
    if len(files) > _MOST_FILES:
        for old in sorted(files, key=lambda file: file.stat().st_mtime)[: len(files) // 4]:
            old.unlink(missing_ok=True)
