"""Data sets by name, whole or by fold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankbound.data.catalog import DataFile, Entry, FoldFiles, find_entry, find_file
from rankbound.data.converted import converted
from rankbound.data.faces import read_faces
from rankbound.data.interactions import Interactions
from rankbound.data.letor import LetorData, read_letor
from rankbound.data.obtain import obtain
from rankbound.data.ratings import read_ratings
from rankbound.data.sampling import aligned
from rankbound.data.splits import Fold, letor_folds
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists

__all__ = ["load_fold", "load_set", "read_files"]

_LARGE = 8 << 20  # bytes on disk from which on the parsed arrays are kept


def load_set(name: str) -> Any:
    """A whole data set of the catalog; it is downloaded if it is not here and can be.

    LETOR sets come as `LetorData`, ratings as `Interactions`, faces as `Faces`, TREC files as `Lists`.
    """
    entry = find_entry(name)
    return read_files(entry, obtain(entry))


def load_fold(name: str, number: int) -> Fold[Any]:
    """A fold that the data set comes with, by its number there."""
    entry = find_entry(name)
    if number not in entry.fold_numbers:
        known = ", ".join(map(str, entry.fold_numbers)) or "none"
        raise ArgumentError(f"fold must be one of the folds of {name} ({known}), got {number}")
    if entry.folds == "rotation":
        fold = letor_folds(obtain(entry))[number - 1]
        return Fold(*(read_files(entry, part or ()) for part in (fold.train, fold.validation, fold.test)))
    if not isinstance(entry.folds, FoldFiles):
        raise AssertionError("an entry with fold numbers has folds")
    parts = {role: _part(entry, path) for role, path in entry.folds.of(number).items()}
    if entry.kind == "ratings":
        parts = dict(zip(parts, aligned(*parts.values()), strict=True))
    return Fold(parts["train"], parts.get("validation"), parts["test"])


def read_files(entry: Entry, files: Sequence[Path]) -> Any:
    """Read files with the reader of a set."""
    if entry.kind == "trec":
        return Lists.from_trec(files[0], files[1])
    if entry.kind == "faces":
        return read_faces(files[0])
    large = sum(file.stat().st_size for file in files) >= _LARGE
    if entry.kind == "letor":
        return converted(files, lambda: read_letor(files), LetorData) if large else read_letor(files)
    file, form = files[0], entry.form
    return converted(files, lambda: read_ratings(file, form), Interactions, form) if large else read_ratings(file, form)


def _part(entry: Entry, path: str) -> Any:
    place = find_file(entry, DataFile(path))
    if place is None:
        obtain(entry)
        place = find_file(entry, DataFile(path))
    if place is None:
        raise DataError(f"{entry.name}: {path} is not here; {entry.manual}")
    if entry.kind == "ratings":
        return read_ratings(place)
    return read_files(entry, [place])
