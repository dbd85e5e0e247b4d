"""Parsed files kept as arrays that are mapped into memory: a large set opens at once the second time.

The key of an entry is the sha256 of its files, the reader's version and the reader's options. The checksum of a file is
remembered together with the file's size, times of change and inode, so that opening does not read the file again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankbound.data.interactions import Interactions
from rankbound.data.letor import LetorData
from rankbound.errors import DataError
from rankbound.io import atomic_write, cache_folder, locked_folder, remove_leftovers
from rankbound.lists import Lists

READER_VERSION = 1  # increase it when a reader returns other arrays for the same file

Table = TypeVar("Table", bound=LetorData | Interactions)


def read_cached(files: Sequence[Path], read: Callable[[], Table], kind: type[Table], options: str = "") -> Table:
    """Return what ``read`` returns for these files, from the cache if they were read before.

    A cache that cannot be written (a full disk, a read-only folder) costs time only: the result then carries a note.
    """
    folder = cache_folder("converted")
    if folder is None:
        return read()
    checksums = [_checksum(file, folder) for file in files]
    key = hashlib.sha256(f"{kind.__name__} {READER_VERSION} {options}{''.join(checksums)}".encode())
    entry = folder / key.hexdigest()
    if entry.is_dir():
        try:
            return _loaded(entry, kind)
        except Exception:  # arrays can be damaged in many ways: read the files again
            shutil.rmtree(entry, ignore_errors=True)
    table = read()
    for file, checksum in zip(files, checksums, strict=True):
        if _checksum(file, folder) != checksum:  # the table may mix the old and the new content
            raise DataError(f"{file}: was changed while it was being read; try again when it is complete")
    try:
        _store(entry, table)
        return _loaded(entry, kind)
    except Exception as error:  # the disk is full, or another process removed the entry: it is only a cache
        note = f"not kept in the cache: {getattr(error, 'strerror', None) or error}"
        return replace(table, notes=(*table.notes, note))


def _store(entry: Path, table: LetorData | Interactions) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    with locked_folder(entry.parent):
        if entry.exists():  # another process was faster
            return
        remove_leftovers(entry.parent, ".new.*")
        temporary = Path(tempfile.mkdtemp(prefix=".new.", dir=entry.parent))
        try:
            for name, array in _arrays(table).items():
                np.save(temporary / f"{name}.npy", array, allow_pickle=False)
            (temporary / "notes.json").write_text(json.dumps(table.notes))
            temporary.rename(entry)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _loaded(folder: Path, kind: type[Table]) -> Table:
    arrays = {file.stem: np.load(file, mmap_mode="r") for file in folder.glob("*.npy")}
    notes = tuple(json.loads((folder / "notes.json").read_text()))
    if issubclass(kind, LetorData):
        features = arrays.pop("features")
        if features.dtype != np.float32:
            raise ValueError("the features have another type")
        return kind(Lists(**arrays), features, notes)
    table = kind(**arrays, notes=notes)
    for codes, names in ((table.users, table.user_names), (table.items, table.item_names)):
        if names.ndim != 1 or codes.dtype != np.int32 or not 0 <= codes.min() <= codes.max() < len(names):
            raise ValueError("the codes do not fit the names")
    for column, kept in ((table.items, np.int32), (table.ratings, np.float32), (table.timestamps, np.int64)):
        if column is not None and (column.shape != (len(table.users),) or column.dtype != kept):
            raise ValueError("the columns do not fit each other")
    return table


def _arrays(table: LetorData | Interactions) -> dict[str, NDArray[Any]]:
    if isinstance(table, LetorData):
        lists = table.lists
        columns = {"labels": lists.labels, "offsets": lists.offsets, "ids": lists.ids, "qids": lists.qids}
        columns["features"] = table.features
    else:
        names = ("users", "items", "user_names", "item_names", "ratings", "timestamps")
        columns = {name: getattr(table, name) for name in names}
    return {name: column for name, column in columns.items() if column is not None}


def _checksum(file: Path, folder: Path) -> str:
    """Return the sha256 of a file's bytes, remembered while its size, times of change and inode stay the same."""
    try:
        status = file.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]  # ctime cannot be set back
        name = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()
        memory = folder / "checksums" / f"{name}.json"
        try:
            known = json.loads(memory.read_text())
            if known["stamp"] == stamp:
                return str(known["sha256"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass  # not seen before, or damaged
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    with suppress(DataError), atomic_write(memory, durable=False) as temporary:
        temporary.write_text(json.dumps({"stamp": stamp, "sha256": digest}))
    return digest
