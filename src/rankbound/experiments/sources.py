"""Where a trial's data come from: files with a checksum, read once per process, prepared, and cut into folds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.catalog import DataFile, Entry, FoldFiles, find_entry, find_file, set_folders
from rankbound.data.obtain import content_sha256, obtain, present_files
from rankbound.data.splits import Fold, deal, letor_folds, monte_carlo, user_folds
from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from rankbound.data.interactions import Interactions
    from rankbound.data.letor import LetorData
    from rankbound.experiments.spec import OwnData, Table

__all__ = [
    "Source",
    "Users",
    "digest_of",
    "fold_count",
    "fold_numbers",
    "here",
    "letor_fold",
    "load_whole",
    "moved_files",
    "source_of",
    "split_of",
    "users_fold",
]

_SPLIT_SEED = 0  # folds stay the same whatever seed a model has
_USUAL_FOLDS = 5
_HELD_OUT_PARTS = 5  # of the training data, one is for choosing where the data keep no part for that
_ROLES = {"train": r"train", "validation": r"vali", "test": r"test"}

moved_files: dict[str, str] = {}
"""Files of a study that this process has in another place than the runner: see `rankbound.experiments.cluster`."""


@dataclass(frozen=True)
class Source:
    """The files of a data set, and how they are to be read; ``name`` is the catalog's, or the path as written."""

    kind: str
    name: str
    known: bool
    files: tuple[str, ...] = ()
    form: str = "auto"
    folds: tuple[
        tuple[int, tuple[tuple[str, tuple[str, ...]], ...]], ...
    ] = ()  # number -> role -> files, own data only

    def fold_files(self, number: int) -> Mapping[str, tuple[str, ...]]:
        """Files of a fold of one's own data by role."""
        return dict(dict(self.folds)[number])


def source_of(data: str | OwnData, base: Path, fetch: bool = True, backbone: str | None = None) -> Source:
    """The source that a table names; with ``fetch`` its files are looked up, or downloaded if they can be.

    The file of a ``backbone`` is the last one.
    """
    if isinstance(data, str):
        entry = find_entry(data)
        found = [*_entry_files(entry), *_backbone_file(backbone, set_folders(entry))] if fetch else []
        return Source(entry.kind, data, True, tuple(map(str, found)))
    given = getattr(data, data.kind)
    paths = [(base / one).absolute() for one in ([given] if isinstance(given, str) else given)]
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise DataError(f"{missing[0]}: no such file or folder; the study names it as its data ({data.kind})")
    folds = _own_folds(paths) if data.kind == "letor" else {}
    files = [file for roles in folds.values() for part in roles.values() for file in part] or paths
    described = tuple((n, tuple((role, tuple(map(str, part))) for role, part in r.items())) for n, r in folds.items())
    files += _backbone_file(backbone, [base])
    distinct = tuple(dict.fromkeys(str(file.absolute()) for file in files))
    return Source(
        data.kind, ", ".join([given] if isinstance(given, str) else given), False, distinct, data.form, described
    )


def _backbone_file(name: str | None, folders: Sequence[Path]) -> list[Path]:
    if name is None:
        return []
    found = [folder / name for folder in folders if (folder / name).is_file()]
    if not found:
        raise DataError(
            f"the network {name} is not here. Put its file (ONNX, torch.export or TorchScript, from images of 224 x "
            f"224 in three channels to features) into {' or '.join(map(str, folders))}"
        )
    return found[:1]


def _entry_files(entry: Entry) -> list[Path]:
    """All files of a set that are here; DataError, with what to fetch, if its data are not."""
    folds = entry.folds
    if isinstance(folds, FoldFiles):
        wanted = [DataFile(path) for number in folds.numbers for path in folds.of(number).values()]
        here = [path for file in wanted if (path := find_file(entry, file)) is not None]
        if len(here) == len(wanted):
            return here
    if present_files(entry) is None:
        obtain(entry)
    return [path for file in (*entry.files, *entry.otherwise) if (path := find_file(entry, file)) is not None]


def _own_folds(paths: Sequence[Path]) -> dict[int, dict[str, list[Path]]]:
    """Folds of LETOR files: train, vali and test in a folder, such folders in a folder, or files to be rotated."""
    if len(paths) == 1 and paths[0].is_dir():
        folder = paths[0]
        inner = {int(m[1]): path for path in sorted(folder.iterdir())
                 if path.is_dir() and (m := re.fullmatch(r"(?i)fold_?(\d+)", path.name))}  # fmt: skip
        if inner:
            return {number: _roles(inner[number]) for number in sorted(inner)}
        if any(file.name.lower().startswith("train") for file in folder.iterdir()):
            return {1: _roles(folder)}
        paths = [file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")]
        if len(paths) < 3:
            raise DataError(f"{folder}: expected train and test files, folders Fold1, Fold2, ..., or 3 files to rotate")
    if len(paths) < 3:
        if len(paths) == 2:
            raise DataError("data.letor: two files are neither a fold nor enough to rotate; give a folder or 3 files")
        return {}
    return {
        at: {"train": list(fold.train), "validation": list(fold.validation or ()), "test": list(fold.test)}
        for at, fold in enumerate(letor_folds(list(paths)), 1)
    }


def _roles(folder: Path) -> dict[str, list[Path]]:
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.endswith(".query")]
    found = {role: [file for file in files if re.match(pattern, file.name.lower())] for role, pattern in _ROLES.items()}
    if not found["train"] or not found["test"]:
        raise DataError(f"{folder}: expected files named train... and test..., got {[file.name for file in files]}")
    return {role: part for role, part in found.items() if part}


# ---- identity --------------------------------------------------------------------------------------------------------


def digest_of(source: Source) -> str:
    """A name for the content of all files of a source, whatever they are called and however they are compressed."""
    return hashlib.sha256("\n".join(_file_digest(here(file)) for file in source.files).encode()).hexdigest()[:32]


def _file_digest(path: str) -> str:
    about = Path(path).stat()
    return _known_digest(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=256)
def _known_digest(path: str, _size: int, _changed: int) -> str:
    return content_sha256(Path(path))


def here(path: str) -> str:
    """Where this process has a file of a source."""
    return moved_files.get(path, path)


# ---- folds -----------------------------------------------------------------------------------------------------------


def split_of(table: Table) -> str:
    """How the data of a table are split."""
    from rankbound.data.catalog import find_entry

    usual = {"letor": "query-folds", "ratings": "user-folds", "faces": "monte-carlo"}[table.kind]
    if isinstance(table.data, str):
        given = bool(find_entry(table.data).fold_numbers)
    else:
        given = table.kind == "letor" and (not isinstance(table.data.letor, str) or Path(table.data.letor).suffix == "")
    split = table.split or ("given" if given else usual)
    allowed = {"letor": ("given", "query-folds"), "ratings": ("given", "user-folds", "monte-carlo")}
    if split not in allowed.get(table.kind, ("monte-carlo",)):
        raise ArgumentError(f"split {split!r} is not for {table.kind} data")
    return split


def fold_numbers(table: Table, source: Source) -> list[int]:
    """The numbers of a table's folds."""
    if split_of(table) == "given":
        known = list(find_entry(source.name).fold_numbers) if source.known else [number for number, _ in source.folds]
        if not known:
            raise ArgumentError(f"{source.name} comes with no folds; choose another split")
        wanted = known if table.folds is None else table.folds
        if isinstance(wanted, int):
            wanted = known[:wanted]
        unknown = [number for number in wanted if number not in known]
        if unknown:
            raise ArgumentError(f"folds must be among those of {source.name}, {known}, got {unknown[0]}")
        return wanted
    if isinstance(table.folds, list):
        return table.folds
    return list(range(table.folds or (1 if table.kind == "faces" else _USUAL_FOLDS)))


def fold_count(table: Table) -> int:
    """Into how many folds the data are cut; 0 where a fold is what it is whatever their number."""
    if split_of(table) not in ("user-folds", "query-folds"):
        return 0
    if isinstance(table.folds, list):
        return max(_USUAL_FOLDS, max(table.folds) + 1)
    if split_of(table) == "query-folds" and table.folds in (1, 2):
        raise ArgumentError(f"folds must be at least 3, to train, to choose and to test by, got {table.folds}")
    return table.folds or _USUAL_FOLDS


def load_whole(source: Source) -> Any:
    """All data of a source, as the readers give them; kept for the next trial of this process."""
    return _whole(source, digest_of(source))


@lru_cache(maxsize=4)
def _whole(source: Source, _digest: str) -> Any:
    from rankbound.data.faces import read_faces
    from rankbound.data.letor import read_letor
    from rankbound.data.ratings import read_ratings
    from rankbound.data.sets import load_set

    if source.known:
        return load_set(source.name)
    files = [here(file) for file in source.files]
    if source.kind == "letor":
        return read_letor(files)
    return read_ratings(files[0], source.form) if source.kind == "ratings" else read_faces(files[0])


def letor_fold(source: Source, spec: Mapping[str, Any]) -> Fold[LetorData]:
    """A prepared fold of queries with features, with a part to choose by."""
    return _letor_fold(
        source, digest_of(source), str(spec["split"]), spec["folds"], spec["fold"], _frozen(spec["prepare"])
    )


@lru_cache(maxsize=2)
def _letor_fold(
    source: Source, _digest: str, split: str, count: int, number: int, prepare: tuple[tuple[str, Any], ...]
) -> Fold[LetorData]:
    from rankbound.data.letor import read_letor
    from rankbound.data.sets import load_fold

    if split == "query-folds":
        whole = load_whole(source)
        part = deal(np.asarray(whole.lists.query_ids), count, seed=_SPLIT_SEED)
        queries = [np.flatnonzero(part == at) for at in range(count)]
        train = np.concatenate([queries[at] for at in range(count) if at not in (number, (number + 1) % count)])
        fold = Fold(*(whole.take(rows) for rows in (np.sort(train), queries[(number + 1) % count], queries[number])))
    elif source.known:
        fold = load_fold(source.name, number)
    else:
        roles = source.fold_files(number)
        read = {role: read_letor([here(file) for file in files]) for role, files in roles.items()}
        fold = Fold(read["train"], read.get("validation"), read["test"])
    train, validation = fold.train, fold.validation
    if validation is None:
        apart = deal(np.asarray(train.lists.query_ids), _HELD_OUT_PARTS, seed=_SPLIT_SEED)
        train, validation = train.take(np.flatnonzero(apart > 0)), train.take(np.flatnonzero(apart == 0))
    parts = (train, validation, fold.test)
    width = max(part.features.shape[1] for part in parts)
    return Fold(*(_prepared(part, width, dict(prepare)) for part in parts))


def _prepared(data: LetorData, width: int, prepare: Mapping[str, Any]) -> LetorData:
    from rankbound.data.letor import LetorData
    from rankbound.data.preparation import binarized, keep_queries, scale_per_query

    features = data.features
    if features.shape[1] < width:  # files leave out what is 0, also the last columns
        features = np.pad(features, ((0, 0), (0, width - features.shape[1])))
    if prepare.get("scale"):
        features = scale_per_query(features, data.lists.offsets, prepare["scale"])
    if prepare.get("fill") is not None:
        features = np.where(np.isnan(features), np.float32(prepare["fill"]), features)
    data = LetorData(data.lists, features, data.notes)
    if prepare.get("binarize") is not None:
        data = binarized(data, prepare["binarize"])
    if prepare.get("relevant"):
        data = keep_queries(data, relevant=prepare["relevant"])
    return data.take(np.arange(min(len(data.lists), prepare["first"]))) if prepare.get("first") else data


@dataclass(frozen=True, eq=False)
class Users:
    """A fold of users' choices: ``train`` and ``test``, and ``train`` cut into ``learn`` and ``choose``."""

    train: Interactions
    test: Interactions
    learn: Interactions
    choose: Interactions


def users_fold(source: Source, spec: Mapping[str, Any]) -> Users:
    """A prepared fold of users' choices."""
    prepare = _frozen(spec["prepare"])
    return _users_fold(
        source, digest_of(source), spec["split"], spec["folds"], spec["fold"], spec["test_share"], prepare
    )


@lru_cache(maxsize=2)
def _users_fold(
    source: Source, digest: str, split: str, count: int, number: int, test_share: float,
    prepare: tuple[tuple[str, Any], ...],
) -> Users:  # fmt: skip
    from rankbound.data.sets import load_fold

    if split == "given":
        fold = load_fold(source.name, number)
        first = dict(prepare).get("first")
        train, test = (part if first is None else part.rows(part.users < first) for part in (fold.train, fold.test))
    else:
        table = _prepared_users(source, digest, prepare)
        if split == "user-folds":
            of_row = user_folds(table, count, _SPLIT_SEED)
            held_out = (number + 1) % count
            return Users(*(table.rows(rows) for rows in (
                of_row != number, of_row == number, (of_row != number) & (of_row != held_out), of_row == held_out
            )))  # fmt: skip
        tested = monte_carlo(table, number + 1, test_share, _SPLIT_SEED)[number]
        train, test = table.rows(~tested), table.rows(tested)
    apart = user_folds(train, _HELD_OUT_PARTS, _SPLIT_SEED) == 0
    return Users(train, test, train.rows(~apart), train.rows(apart))


@lru_cache(maxsize=2)
def _prepared_users(source: Source, _digest: str, prepare: tuple[tuple[str, Any], ...]) -> Interactions:
    from rankbound.data.preparation import keep_users, relevant_only

    table: Interactions = load_whole(source)
    asked = dict(prepare)
    if asked.get("relevant_from") is not None:
        table = relevant_only(table, asked["relevant_from"])
    table = keep_users(table, asked.get("users_with", 1))
    if len(table) == 0:
        raise DataError(f"{source.name}: no user is left after the preparation {asked}")
    if asked.get("first"):
        table = keep_users(table.rows(table.users < asked["first"]), 1)
    return table.compact() if asked.get("items") == "chosen" else table


def _frozen(mapping: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(mapping.items()))
