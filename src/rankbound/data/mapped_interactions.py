"""Interactions of a file that is larger than memory: sorted on disk, and mapped into memory.

The rows are written to temporary files, in buckets of users of about a million rows. Each bucket is sorted in memory,
and the sorted rows of all buckets are the table that the file read at once would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.data.growing_table import GrowingFile
from rankbound.data.interactions import Interactions, count_codes, notes_of, sorted_rows

BUCKET = 1 << 20  # rows that are sorted at once
_MOST_BUCKETS = 200  # open files
_STEP = 1 << 20  # rows that are read at once


def sort_on_disk(
    users: tuple[NDArray[np.uint32], NDArray[np.int32]],
    items: tuple[NDArray[np.uint32], NDArray[np.int32]],
    user_names: NDArray[Any],
    item_names: NDArray[Any],
    numbers: dict[str, NDArray[Any]],
    folder: Path,
) -> Interactions:
    """What `Interactions.from_codes` returns, with all columns in temporary files on the disk of a folder.

    Parameters
    ----------
    users, items:
        A provisional code for each row, and the code that each provisional code stands for.
    user_names, item_names:
        Sorted names.
    numbers:
        The columns ``ratings`` and ``timestamps``, where there are any.
    folder:
        The folder of the temporary files, which disappear with the last reference to the table.
    """
    kinds = {"users": np.dtype(np.int32), "items": np.dtype(np.int32)}
    kinds |= {name: column.dtype for name, column in numbers.items()}
    record = np.dtype(list(kinds.items()))
    counts = sum(
        (count_codes(codes, len(user_names)) for codes in _blocks(*users)), start=np.zeros(len(user_names), np.int64)
    )
    size = max(BUCKET, -(-int(counts.sum()) // _MOST_BUCKETS))
    bucket_of = (np.cumsum(counts) - counts) // size
    buckets = [GrowingFile(record, folder) for _ in range(int(bucket_of[-1]) + 1)]
    for number, (own_users, own_items) in enumerate(zip(_blocks(*users), _blocks(*items), strict=True)):
        rows = np.empty(len(own_users), record)
        rows["users"], rows["items"] = own_users, own_items
        for name, column in numbers.items():
            rows[name] = column[number * _STEP : (number + 1) * _STEP]
        bucket = bucket_of[own_users]
        for chosen in np.unique(bucket).tolist():
            buckets[chosen].append(rows[bucket == chosen])
    columns = {name: GrowingFile(kind, folder) for name, kind in kinds.items()}
    repeated = 0
    while buckets:
        rows = np.array(buckets.pop(0).finish().ravel())
        pair = rows["users"].astype(np.int64) * len(item_names) + rows["items"]
        known = (np.ascontiguousarray(rows[name]) if name in numbers else None for name in ("ratings", "timestamps"))
        keep, again = sorted_rows(pair, *known)
        repeated += again
        for name, target in columns.items():
            target.append(np.ascontiguousarray(rows[name][keep]))
    mapped = {name: column.finish().ravel() for name, column in columns.items()}
    return Interactions(user_names=user_names, item_names=item_names, notes=notes_of(repeated), **mapped)


def _blocks(codes: NDArray[np.uint32], meaning: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    for start in range(0, len(codes), _STEP):
        yield meaning[codes[start : start + _STEP]]
