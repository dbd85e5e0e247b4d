"""Files: read compressed input, write atomically, lock folders, and find the cache folder.

Every other package reads and writes through these functions, so each rule exists once.
"""

from __future__ import annotations

from rankbound.io.caching import cache_folder, caching_is_off, is_private_and_writable
from rankbound.io.locks import locked_file, locked_folder, waiting_lock
from rankbound.io.progress import Progress, ProgressDisplay, progress_display, report_progress, watched_progress
from rankbound.io.reading import open_bytes, read_arrays, read_bytes
from rankbound.io.writing import atomic_write, remove_leftovers

__all__ = [
    "Progress",
    "ProgressDisplay",
    "atomic_write",
    "cache_folder",
    "caching_is_off",
    "is_private_and_writable",
    "locked_file",
    "locked_folder",
    "open_bytes",
    "progress_display",
    "read_arrays",
    "read_bytes",
    "remove_leftovers",
    "report_progress",
    "waiting_lock",
    "watched_progress",
]
