"""Real data sets, where they are here: a benchmark downloads nothing."""

from __future__ import annotations

from rankbound.data.catalog import find_entry
from rankbound.data.obtain import present_files

__all__ = ["is_here"]


def is_here(name: str) -> bool:
    """Whether the files of a set are in the folder RANKBOUND_DATA or in the cache."""
    return present_files(find_entry(name)) is not None
