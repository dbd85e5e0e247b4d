"""Parsed files kept as arrays that are mapped into memory: the second time a large set opens at once.

An entry is keyed by the sha256 of its files, the reader's version and the reader's options. Checksums are remembered by
size, times of change and place on disk of a file, so that opening does not read the files again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankbound.data.files import atomic_write, locked_folder, remove_leftovers
from rankbound.data.interactions import Interactions
from rankbound.data.letor import LetorData
from rankbound.data.places import cache_folder
from rankbound.errors import DataError
from rankbound.lists import Lists

__all__ = ["READER_VERSION", "converted"]

READER_VERSION = 1  # raise it when a reader gives other arrays for the same file

Table = TypeVar("Table", bound=LetorData | Interactions)


def converted(files: Sequence[Path], read: Callable[[], Table], kind: type[Table], options: str = "") -> Table:
    """What ``read`` gives for these files, from the cache if it was read before.

    A cache that cannot be written (a full disk, a read-only place) does no harm: the result then carries a note.
    """
    checksums = [_checksum(file) for file in files]
    key = hashlib.sha256(f"{kind.__name__} {READER_VERSION} {options}{''.join(checksums)}".encode())
    folder = cache_folder() / "converted" / key.hexdigest()
    if folder.is_dir():
        try:
            return _loaded(folder, kind)
        except Exception:  # damaged, and arrays can be damaged in many ways: read the files again
            shutil.rmtree(folder, ignore_errors=True)
    table = read()
    for file, checksum in zip(files, checksums, strict=True):
        if _checksum(file) != checksum:  # what was read may be half of the one and half of the other
            raise DataError(f"{file}: was changed while it was being read; try again when it is complete")
    try:
        _store(folder, table)
        return _loaded(folder, kind)
    except Exception as error:  # the disk is full, or another process takes the entry away: it is only a cache
        note = f"not kept in the cache: {getattr(error, 'strerror', None) or error}"
        return replace(table, notes=(*table.notes, note))


def _store(folder: Path, table: LetorData | Interactions) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder.parent):
        if folder.exists():  # someone else was faster
            return
        remove_leftovers(folder.parent, ".new.*")
        workshop = Path(tempfile.mkdtemp(prefix=".new.", dir=folder.parent))
        try:
            for name, array in _arrays(table).items():
                np.save(workshop / f"{name}.npy", array, allow_pickle=False)
            (workshop / "notes.json").write_text(json.dumps(table.notes))
            workshop.rename(folder)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)


def _loaded(folder: Path, kind: type[Table]) -> Table:
    arrays = {file.stem: np.load(file, mmap_mode="r") for file in folder.glob("*.npy")}
    notes = tuple(json.loads((folder / "notes.json").read_text()))
    if issubclass(kind, LetorData):
        features = arrays.pop("features")
        if features.dtype != np.float32:
            raise ValueError("features of another type")
        return kind(Lists(**arrays), features, notes)
    table = kind(**arrays, notes=notes)
    for codes, names in ((table.users, table.user_names), (table.items, table.item_names)):
        if names.ndim != 1 or codes.dtype != np.int32 or not 0 <= codes.min() <= codes.max() < len(names):
            raise ValueError("codes without names")
    for column, kept in ((table.items, np.int32), (table.ratings, np.float32), (table.timestamps, np.int64)):
        if column is not None and (column.shape != (len(table.users),) or column.dtype != kept):
            raise ValueError("columns that do not go together")
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


def _checksum(file: Path) -> str:
    """sha256 of a file as it lies on disk, remembered while its size, times of change and place stay the same."""
    try:
        status = file.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]  # ctime cannot be set back
        name = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()
        memory = cache_folder() / "converted" / "checksums" / f"{name}.json"
        try:
            known = json.loads(memory.read_text())
            if known["stamp"] == stamp:
                return str(known["sha256"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass  # not seen before, or not what we wrote
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    try:
        with atomic_write(memory) as temporary:
            temporary.write_text(json.dumps({"stamp": stamp, "sha256": digest}))
    except DataError:
        pass  # only a convenience
    return digest
