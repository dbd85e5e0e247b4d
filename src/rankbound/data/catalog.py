"""The data sets that rankbound knows by name, from catalog.toml: origin, license, files with checksums, folds, counts.

Files are looked for in the folder that the variable ``RANKBOUND_DATA`` names, then in the cache folder.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rankbound.errors import ArgumentError
from rankbound.io import cache_folder

_SUFFIXES = ("", ".gz", ".zst")


@dataclass(frozen=True)
class DataFile:
    """A file or folder of a set: its path in the set's folder, and the sha256 of its content if it is known."""

    path: str
    sha256: str | None = None
    partial: str | None = None  # sha256 of a known copy that is not complete
    data: bool = True  # False for companion files, which are not read as data


@dataclass(frozen=True)
class FoldFiles:
    """The names of the files of predefined folds; {} stands for the number of the fold."""

    numbers: tuple[int, ...]
    train: str
    test: str
    validation: str | None = None

    def files_of(self, number: int) -> dict[str, str]:
        """Return the files of a fold by their role.

        >>> FoldFiles((1, 2), "Fold{}/train.txt", "Fold{}/test.txt").files_of(2)
        {'train': 'Fold2/train.txt', 'test': 'Fold2/test.txt'}
        """
        roles = {"train": self.train, "validation": self.validation, "test": self.test}
        return {role: name.format(number) for role, name in roles.items() if name is not None}


@dataclass(frozen=True)
class Entry:
    """A data set of the catalog; catalog.toml explains the fields."""

    name: str
    title: str
    kind: str
    origin: str
    license: str
    citation: str
    folder: str
    files: tuple[DataFile, ...]
    otherwise: tuple[DataFile, ...] = ()
    download: tuple[str, ...] = ()
    manual: str = ""
    form: str = "auto"
    megabytes: int | None = None
    folds: str | FoldFiles | None = None
    counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    missing: str = ""
    image_size: int = 48
    color: bool = False

    @property
    def fold_numbers(self) -> tuple[int, ...]:
        """Numbers of the predefined folds."""
        if isinstance(self.folds, FoldFiles):
            return self.folds.numbers
        return tuple(range(1, len(self.files) + 1)) if self.folds == "rotation" else ()


@cache
def known_sets() -> Mapping[str, Entry]:
    """Return all data sets by name.

    >>> known_sets()["mq2008"].counts["queries"]
    784
    """
    with Path(__file__).with_name("catalog.toml").open("rb") as stream:
        tables = tomllib.load(stream)
    return MappingProxyType({name: _entry(name, dict(table)) for name, table in tables.items()})


def find_entry(name: str) -> Entry:
    """Return the data set of a name; the error for an unknown name suggests similar ones.

    >>> find_entry("mq2008").kind
    'letor'
    """
    known = known_sets()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"the known sets are {', '.join(known)}"
        raise ArgumentError(f"unknown data set {name!r}: {hint}")
    return known[name]


_chosen_folder: str | None = None


def look_for_data_in(folder: str | None) -> str | None:
    """Look for data sets in this folder in place of ``RANKBOUND_DATA``, in this process; return the one before."""
    global _chosen_folder
    before, _chosen_folder = _chosen_folder, folder
    return before


def data_folder_in_use() -> str | None:
    """The folder that was chosen, or that ``RANKBOUND_DATA`` names."""
    return _chosen_folder or os.environ.get("RANKBOUND_DATA")


def set_folders(entry: Entry) -> list[Path]:
    """Return the folders in which the files of a set are looked for, in order: the one in use, that in the cache."""
    own, cached = data_folder_in_use(), cache_folder("data", entry.folder)
    return [*([Path(own) / entry.folder] if own else []), *([cached] if cached else [])]


def find_file(entry: Entry, file: DataFile) -> Path | None:
    """Return the path of a file or folder of a set, compressed or not; None if it is not on this machine."""
    candidates = (folder / (file.path + suffix) for folder in set_folders(entry) for suffix in _SUFFIXES)
    can_be_folder = entry.kind == "runs"
    return next((path for path in candidates if path.is_file() or (can_be_folder and path.is_dir())), None)


def _entry(name: str, table: dict[str, Any]) -> Entry:
    folds = table.pop("folds", None)
    if isinstance(folds, dict):
        folds = FoldFiles(**{**folds, "numbers": tuple(folds["numbers"])})
    files = tuple(DataFile(**file) for file in table.pop("files", ()))
    if not files:  # predefined folds: the files of the first one make up the complete set
        numbers = folds.numbers
        files = tuple(
            DataFile(path, data=number == numbers[0]) for number in numbers for path in folds.files_of(number).values()
        )
    return Entry(
        name=name,
        folder=table.pop("folder", name),
        files=files,
        otherwise=tuple(DataFile(**file) for file in table.pop("otherwise", ())),
        download=tuple(table.pop("download", ())),
        counts=MappingProxyType(table.pop("counts", {})),
        folds=folds,
        **table,
    )
