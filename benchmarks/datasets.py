"""Real data sets, where they are available: a benchmark downloads nothing."""

from __future__ import annotations

from rankbound.data.catalog import find_entry
from rankbound.data.set_files import present_files

__all__ = ["is_available"]


def is_available(name: str) -> bool:
    """Whether the files of a data set are in the folder RANKBOUND_DATA or in the cache."""
    return present_files(find_entry(name)) is not None
