"""The data of a trial: files with a checksum, read once per process, prepared, and split into folds."""

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
from rankbound.data.set_files import content_sha256, obtain, present_files
from rankbound.data.splits import Fold, letor_folds, monte_carlo, random_parts, user_folds
from rankbound.errors import ArgumentError, DataError
from rankbound.models.rankers.backbone import EFFICIENTNET, efficientnet_weights
from rankbound.packages import MissingPackageError

if TYPE_CHECKING:
    from rankbound.data.interactions import Interactions
    from rankbound.data.letor import LetorData
    from rankbound.studies.spec import OwnData, Prepare, Table
    from rankbound.studies.trial_spec import TrialSpec

_SPLIT_SEED = 0  # folds do not depend on the seed of the model
_DEFAULT_FOLDS = 5
_HELD_OUT_PARTS = 5  # one fifth of the training data is held out where the data come without a validation part
_ROLES = {"train": r"train", "validation": r"vali", "test": r"test"}

moved_files: dict[str, str] = {}
"""Path of a file at the runner -> its path in this process: see `rankbound.studies.cluster`."""


@dataclass(frozen=True)
class Source:
    """The files of a data set and how to read them; ``name`` is that of the catalog, or the path in the study."""

    kind: str
    name: str
    known: bool
    files: tuple[str, ...] = ()
    form: str = "auto"
    folds: tuple[tuple[int, tuple[tuple[str, tuple[str, ...]], ...]], ...] = ()
    """Number -> role -> files, of data outside the catalog."""

    def fold_files(self, number: int) -> Mapping[str, tuple[str, ...]]:
        """Files of a fold of data outside the catalog, by role."""
        return dict(dict(self.folds)[number])


def source_of(data: str | OwnData, base: Path, fetch: bool = True, backbone: str | None = None) -> Source:
    """The source that a table names. With ``fetch`` its files are looked up, and downloaded if that is possible.

    The file of a ``backbone`` comes last.
    """
    if isinstance(data, str):
        entry = find_entry(data)
        known = [*_entry_files(entry), *_backbone_file(backbone, set_folders(entry))] if fetch else []
        return Source(entry.kind, data, True, tuple(map(str, known)))
    value = getattr(data, data.kind)
    names = [value] if isinstance(value, str) else value
    paths = [(base / name).absolute() for name in names]
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise DataError(f"{missing[0]}: no such file or folder; the study names it as its data ({data.kind})")
    folds = _own_folds(paths) if data.kind == "letor" else {}
    files = [file for roles in folds.values() for role_files in roles.values() for file in role_files] or paths
    described = tuple((n, tuple((role, tuple(map(str, f))) for role, f in roles.items())) for n, roles in folds.items())
    files += _backbone_file(backbone, [base])
    distinct = tuple(dict.fromkeys(str(file.absolute()) for file in files))
    return Source(data.kind, ", ".join(names), False, distinct, data.form, described)


def _backbone_file(name: str | None, folders: Sequence[Path]) -> list[Path]:
    if name is None:
        return []
    if name == EFFICIENTNET:
        try:
            return [efficientnet_weights()]
        except MissingPackageError as error:  # as for data sets that are not there
            raise DataError(str(error)) from error
    files = [folder / name for folder in folders if (folder / name).is_file()]
    if not files:
        raise DataError(
            f"the network {name} is not available. Put its file (ONNX, torch.export or TorchScript, from images of "
            f"224 x 224 in three channels to features) into {' or '.join(map(str, folders))}"
        )
    return files[:1]


def _entry_files(entry: Entry) -> list[Path]:
    """All files of a data set on this machine; if it is incomplete, a DataError that says what to fetch."""
    located = _fold_files(entry)
    if located is not None:
        return located
    if present_files(entry) is None:
        obtain(entry)
    return [path for file in (*entry.files, *entry.otherwise) if (path := find_file(entry, file)) is not None]


def _fold_files(entry: Entry) -> list[Path] | None:
    """The files of all predefined folds of a data set; None if one is missing, or if there are no such files."""
    folds = entry.folds
    if not isinstance(folds, FoldFiles):
        return None
    wanted = [DataFile(path) for number in folds.numbers for path in folds.files_of(number).values()]
    located = [path for file in wanted if (path := find_file(entry, file)) is not None]
    return located if len(located) == len(wanted) else None


def can_be_read(name: str) -> bool:
    """Whether a data set of the catalog is on this machine, or can be downloaded."""
    entry = find_entry(name)
    return bool(entry.download) or _fold_files(entry) is not None or present_files(entry) is not None


def _own_folds(paths: Sequence[Path]) -> dict[int, dict[str, list[Path]]]:
    """Folds of LETOR files: train, vali and test in a folder, a folder of such folders, or files to rotate."""
    if len(paths) == 1 and paths[0].is_dir():
        folder = paths[0]
        numbered = {path: re.fullmatch(r"(?i)fold_?(\d+)", path.name) for path in folder.iterdir() if path.is_dir()}
        inner = {int(match[1]): path for path, match in sorted(numbered.items()) if match}
        if inner:
            return {number: _roles(inner[number]) for number in sorted(inner)}
        if any(file.name.lower().startswith("train") for file in folder.iterdir()):
            return {1: _roles(folder)}
        paths = [file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")]
        if len(paths) < 3:
            raise DataError(f"{folder}: expected train and test files, folders Fold1, Fold2, ..., or 3 files to rotate")
    if len(paths) < 3:
        if len(paths) == 2:
            raise DataError("data.letor: must be a folder, one file, or at least 3 files to rotate, got 2 files")
        return {}
    return {
        at: {"train": list(fold.train), "validation": list(fold.validation or ()), "test": list(fold.test)}
        for at, fold in enumerate(letor_folds(list(paths)), 1)
    }


def _roles(folder: Path) -> dict[str, list[Path]]:
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.endswith(".query")]
    roles = {role: [file for file in files if re.match(pattern, file.name.lower())] for role, pattern in _ROLES.items()}
    if not roles["train"] or not roles["test"]:
        raise DataError(f"{folder}: expected files named train... and test..., got {[file.name for file in files]}")
    return {role: role_files for role, role_files in roles.items() if role_files}


# ---- identity --------------------------------------------------------------------------------------------------------


def digest_of(source: Source) -> str:
    """Digest of the content of all files of a source; it does not depend on file names or on compression."""
    return hashlib.sha256("\n".join(_file_digest(path_here(file)) for file in source.files).encode()).hexdigest()[:32]


def _file_digest(path: str) -> str:
    status = Path(path).stat()
    return _known_digest(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _known_digest(path: str, _size: int, _changed: int) -> str:
    return content_sha256(Path(path))


def path_here(path: str) -> str:
    """The path of a source's file in this process."""
    return moved_files.get(path, path)


# ---- folds -----------------------------------------------------------------------------------------------------------


def split_of(table: Table) -> str:
    """How the data of a table are split."""
    default = {"letor": "query-folds", "ratings": "user-folds", "faces": "monte-carlo"}[table.kind]
    if isinstance(table.data, str):
        has_folds = bool(find_entry(table.data).fold_numbers)
    else:
        letor = table.data.letor
        has_folds = table.kind == "letor" and (not isinstance(letor, str) or Path(letor).suffix == "")
    split = table.split or ("given" if has_folds else default)
    allowed = {"letor": ("given", "query-folds"), "ratings": ("given", "user-folds", "monte-carlo")}
    if split not in allowed.get(table.kind, ("monte-carlo",)):
        raise ArgumentError(f"split {split!r} does not apply to {table.kind} data")
    return split


def fold_numbers(table: Table, source: Source) -> list[int]:
    """The numbers of a table's folds."""
    if split_of(table) == "given":
        known = list(find_entry(source.name).fold_numbers) if source.known else [number for number, _ in source.folds]
        if not known:
            raise ArgumentError(f"{source.name} comes without folds; choose another split")
        wanted = known if table.folds is None else table.folds
        if isinstance(wanted, int):
            wanted = known[:wanted]
        unknown = [number for number in wanted if number not in known]
        if unknown:
            raise ArgumentError(f"folds must be among those of {source.name}, {known}, got {unknown[0]}")
        return wanted
    if isinstance(table.folds, list):
        return table.folds
    return list(range(table.folds or (1 if table.kind == "faces" else _DEFAULT_FOLDS)))


def fold_count(table: Table) -> int:
    """The number of folds that the data are split into; 0 where a fold does not depend on that number."""
    if split_of(table) not in ("user-folds", "query-folds"):
        return 0
    if isinstance(table.folds, list):
        return max(_DEFAULT_FOLDS, max(table.folds) + 1)
    if split_of(table) == "query-folds" and table.folds in (1, 2):
        raise ArgumentError(f"folds must be at least 3 (training, validation and test), got {table.folds}")
    return table.folds or _DEFAULT_FOLDS


def load_whole(source: Source) -> Any:
    """All data of a source as its reader returns them, cached for the next trial of this process."""
    return _whole(source, digest_of(source))


@lru_cache(maxsize=4)
def _whole(source: Source, _digest: str) -> Any:
    from rankbound.data.faces import read_faces
    from rankbound.data.letor import read_letor
    from rankbound.data.loading import load_set
    from rankbound.data.ratings import read_ratings

    if source.known:
        return load_set(source.name)
    files = [path_here(file) for file in source.files]
    if source.kind == "letor":
        return read_letor(files)
    return read_ratings(files[0], source.form) if source.kind == "ratings" else read_faces(files[0])


def letor_fold(source: Source, spec: TrialSpec) -> Fold[LetorData]:
    """A prepared fold of queries with features; it always has a validation part."""
    return _letor_fold(source, digest_of(source), spec.split, spec.folds, spec.fold, spec.prepare)


@lru_cache(maxsize=2)
def _letor_fold(source: Source, _digest: str, split: str, count: int, number: int, prepare: Prepare) -> Fold[LetorData]:
    from rankbound.data.letor import read_letor
    from rankbound.data.loading import load_fold

    if split == "query-folds":
        whole = load_whole(source)
        fold_of_query = random_parts(np.asarray(whole.lists.query_ids), count, seed=_SPLIT_SEED)
        queries = [np.flatnonzero(fold_of_query == at) for at in range(count)]
        train = np.concatenate([queries[at] for at in range(count) if at not in (number, (number + 1) % count)])
        fold = Fold(*(whole.take(rows) for rows in (np.sort(train), queries[(number + 1) % count], queries[number])))
    elif source.known:
        fold = load_fold(source.name, number)
    else:
        roles = source.fold_files(number)
        read = {role: read_letor([path_here(file) for file in files]) for role, files in roles.items()}
        fold = Fold(read["train"], read.get("validation"), read["test"])
    train, validation = fold.train, fold.validation
    if validation is None:
        apart = random_parts(np.asarray(train.lists.query_ids), _HELD_OUT_PARTS, seed=_SPLIT_SEED)
        train, validation = train.take(np.flatnonzero(apart > 0)), train.take(np.flatnonzero(apart == 0))
    parts = (train, validation, fold.test)
    width = max(data.features.shape[1] for data in parts)
    return Fold(*(_prepare(data, width, prepare) for data in parts))


def _prepare(data: LetorData, width: int, prepare: Prepare) -> LetorData:
    from rankbound.data.letor import LetorData
    from rankbound.data.preparation import binarize_queries, keep_queries, scale_per_query

    features = data.features
    if features.shape[1] < width:  # files leave out zeros, and so may lack the last columns
        features = np.pad(features, ((0, 0), (0, width - features.shape[1])))
    if prepare.scale:
        features = scale_per_query(features, data.lists.offsets, prepare.scale)
    if prepare.fill is not None:
        features = np.where(np.isnan(features), np.float32(prepare.fill), features)
    data = LetorData(data.lists, features, data.notes)
    if prepare.binarize is not None:
        data = binarize_queries(data, prepare.binarize)
    if prepare.relevant:
        data = keep_queries(data, relevant=prepare.relevant)
    return data.take(np.arange(min(len(data.lists), prepare.first))) if prepare.first else data


@dataclass(frozen=True, eq=False)
class Users:
    """A fold of the choices of users: ``train`` and ``test``, and ``train`` split into ``learn`` and ``choose``."""

    train: Interactions
    test: Interactions
    learn: Interactions
    choose: Interactions


def users_fold(source: Source, spec: TrialSpec) -> Users:
    """A prepared fold of the choices of users."""
    fold = _UsersFold(spec.split, spec.folds, spec.fold, spec.users.test_fraction, spec.prepare)
    return _users_fold(source, digest_of(source), fold)


@dataclass(frozen=True)
class _UsersFold:
    """What a fold of users depends on besides its data."""

    split: str
    count: int
    number: int
    test_fraction: float
    prepare: Prepare


@lru_cache(maxsize=2)
def _users_fold(source: Source, digest: str, fold: _UsersFold) -> Users:
    from rankbound.data.loading import load_fold

    number, first = fold.number, fold.prepare.first
    if fold.split == "given":
        loaded = load_fold(source.name, number)
        train, test = (data if first is None else data.rows(data.users < first) for data in (loaded.train, loaded.test))
    else:
        table = _prepared_users(source, digest, fold.prepare)
        if fold.split == "user-folds":
            of_row = user_folds(table, fold.count, _SPLIT_SEED)
            held_out = (number + 1) % fold.count
            train, test = table.rows(of_row != number), table.rows(of_row == number)
            return Users(
                train, test, table.rows((of_row != number) & (of_row != held_out)), table.rows(of_row == held_out)
            )
        tested = monte_carlo(table, number + 1, fold.test_fraction, _SPLIT_SEED)[number]
        train, test = table.rows(~tested), table.rows(tested)
    apart = user_folds(train, _HELD_OUT_PARTS, _SPLIT_SEED) == 0
    return Users(train, test, train.rows(~apart), train.rows(apart))


@lru_cache(maxsize=2)
def _prepared_users(source: Source, _digest: str, prepare: Prepare) -> Interactions:
    from rankbound.data.preparation import keep_users, relevant_only

    table: Interactions = load_whole(source)
    if prepare.relevant_from is not None:
        table = relevant_only(table, prepare.relevant_from)
    table = keep_users(table, prepare.users_with)
    if len(table) == 0:
        applied = prepare.model_dump(exclude_defaults=True)
        raise DataError(f"{source.name}: no user is left after the preparation {applied}")
    if prepare.first:
        table = keep_users(table.rows(table.users < prepare.first), 1)
    return table.compact() if prepare.items == "chosen" else table
