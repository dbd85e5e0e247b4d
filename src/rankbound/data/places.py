"""Where files are kept: the user's own data folder, and rankbound's cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rankbound.data.catalog import DataFile, Entry
from rankbound.errors import ArgumentError

__all__ = ["cache_folder", "locate", "set_folders"]

_PACKED = ("", ".gz", ".zst")


def cache_folder() -> Path:
    """``RANKBOUND_CACHE``, or the place where this platform keeps caches."""
    if chosen := os.environ.get("RANKBOUND_CACHE"):
        return Path(chosen)
    try:
        if sys.platform == "win32":  # pragma: no cover
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "rankbound" / "Cache"
        if sys.platform == "darwin":  # pragma: no cover
            return Path.home() / "Library" / "Caches" / "rankbound"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rankbound"
    except RuntimeError as error:  # this user has no home
        raise ArgumentError("there is no home folder to keep a cache in; name a folder in RANKBOUND_CACHE") from error


def set_folders(entry: Entry) -> list[Path]:
    """Folders in which the files of a set are looked for, in this order: in ``RANKBOUND_DATA``, in the cache."""
    own = os.environ.get("RANKBOUND_DATA")
    return [*([Path(own) / entry.folder] if own else []), cache_folder() / "data" / entry.folder]


def locate(entry: Entry, file: DataFile) -> Path | None:
    """Where a file of a set lies, plain or compressed; None if it is not here."""
    candidates = (folder / (file.path + packed) for folder in set_folders(entry) for packed in _PACKED)
    return next((path for path in candidates if path.is_file()), None)
