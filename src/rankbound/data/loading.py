"""Load data sets by name, completely or by fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankbound.data.array_cache import read_cached
from rankbound.data.catalog import DataFile, Entry, FoldFiles, find_entry, find_file
from rankbound.data.faces import read_faces
from rankbound.data.interactions import Interactions
from rankbound.data.judged_runs import JudgedRuns
from rankbound.data.letor import LetorData, group_file, read_letor, read_mapped_letor
from rankbound.data.ratings import read_mapped_ratings, read_ratings
from rankbound.data.sampling import align_interactions
from rankbound.data.set_files import obtain
from rankbound.data.splits import Fold, letor_folds
from rankbound.data.text_chunks import StrPath
from rankbound.errors import ArgumentError, DataError
from rankbound.io import cache_folder
from rankbound.lists import Lists

_LARGE = 8 << 20  # bytes on disk; the parsed arrays of larger files are cached
_LARGE_FILE = 64 << 20  # the same for files of users, which are not read again and again


def load_set(name: str) -> Any:
    """Load a complete data set of the catalog; download it if it is not on this machine.

    LETOR sets are returned as `LetorData`, ratings as `Interactions`, faces as `Faces`, judgments with one run as
    `Lists`, and judgments with many runs as `JudgedRuns`.
    """
    entry = find_entry(name)
    return read_files(entry, obtain(entry))


def load_fold(name: str, number: int) -> Fold[Any]:
    """Load a predefined fold of a data set by its number."""
    entry = find_entry(name)
    if number not in entry.fold_numbers:
        known = ", ".join(map(str, entry.fold_numbers)) or "none"
        raise ArgumentError(f"fold must be one of the folds of {name} ({known}), got {number}")
    if entry.folds == "rotation":
        fold = letor_folds(obtain(entry))[number - 1]
        return Fold(*(read_files(entry, part or ()) for part in (fold.train, fold.validation, fold.test)))
    if not isinstance(entry.folds, FoldFiles):
        raise AssertionError("an entry with fold numbers has folds")
    parts = {role: _part(entry, path) for role, path in entry.folds.files_of(number).items()}
    if entry.kind == "ratings":
        parts = dict(zip(parts, align_interactions(*parts.values()), strict=True))
    return Fold(parts["train"], parts.get("validation"), parts["test"])


def read_files(entry: Entry, files: Sequence[Path]) -> Any:
    """Read files with the reader of a set."""
    if entry.kind == "trec":
        return Lists.from_trec(files[0], files[1])
    if entry.kind == "runs":
        return JudgedRuns.in_folder(*files)
    if entry.kind == "faces":
        train_list = find_file(entry, DataFile("train.txt"))
        return read_faces(files[0], entry.image_size, None if files[0].suffix == ".npz" else train_list, entry.color)
    large = sum(file.stat().st_size for file in files) >= _LARGE
    if entry.kind == "letor":
        return _read_cached_letor(files) if large else read_letor(files)
    file, form = files[0], entry.form
    return (
        read_cached(files, lambda: read_ratings(file, form), Interactions, form) if large else read_ratings(file, form)
    )


def read_letor_file(path: str) -> LetorData:
    """Read a LETOR file of a user; the features of a large one are in the cache and mapped into memory.

    They may then be larger than memory, and the file is parsed once. A file without qids is always read into memory,
    because the file of group sizes next to it may change.
    """
    file = Path(path)
    if path == "-" or not file.is_file() or file.stat().st_size < _LARGE_FILE or group_file(file).exists():
        return read_letor(path)
    return _read_cached_letor([file])


def read_interactions_file(path: StrPath, named: Mapping[str, str | None]) -> Interactions:
    """Read a file of interactions of a user; a large one is sorted on disk, and in the cache and mapped into memory.

    It may then be larger than memory, and the file is parsed once. ``named`` are columns by their roles: user, item,
    rating and timestamp.
    """
    file = Path(path)
    if str(path) == "-" or not file.is_file() or file.stat().st_size < _LARGE_FILE:
        return read_ratings(path, **named)  # type: ignore[arg-type]

    def read() -> Interactions:
        folder = cache_folder("converted")
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                return read_mapped_ratings(path, named, folder)
        except OSError:  # the cache cannot be written
            pass
        return read_ratings(path, **named)  # type: ignore[arg-type]

    # the name is part of the options, because formats are recognized by it
    return read_cached([file], read, Interactions, f"{file.name} {sorted(named.items())}")


def _read_cached_letor(files: Sequence[Path]) -> LetorData:
    """Read files, once; afterwards their arrays are mapped into memory from the cache."""

    def read() -> LetorData:
        folder = cache_folder("converted")
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                return read_mapped_letor(files, folder)
        except OSError:  # the cache cannot be written
            pass
        return read_letor(files)

    return read_cached(files, read, LetorData)


def _part(entry: Entry, path: str) -> Any:
    file = find_file(entry, DataFile(path))
    if file is None:
        obtain(entry)
        file = find_file(entry, DataFile(path))
    if file is None:
        raise DataError(f"{entry.name}: {path} is not here; {entry.manual}")
    if entry.kind == "ratings":
        return read_ratings(file)
    return read_files(entry, [file])
