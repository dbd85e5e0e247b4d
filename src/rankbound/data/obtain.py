"""Getting the files of a set, and checking those that are here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from rankbound.data.archives import is_archive, unpack
from rankbound.data.catalog import Entry
from rankbound.data.download import Progress, fetch
from rankbound.data.files import atomic_write, locked_folder, open_bytes, remove_leftovers
from rankbound.data.places import cache_folder, locate, set_folders
from rankbound.errors import DataError

__all__ = ["FileState", "check", "content_sha256", "obtain", "present_files"]


@dataclass(frozen=True)
class FileState:
    """What was found of one file; ``state`` is ok, wrong, unknown (nothing to compare with) or missing."""

    path: str
    place: Path | None
    state: str
    sha256: str | None
    expected: str | None


def present_files(entry: Entry) -> list[Path] | None:
    """The data files of a set, in order, if they are all here; else the files that may stand in for them; else None."""
    for choice in (entry.files, entry.otherwise):
        found = [locate(entry, file) for file in choice if file.data]
        if found and all(found):
            return [path for path in found if path is not None]
    return None


def obtain(entry: Entry, progress: Callable[[str], Progress] | None = None) -> list[Path]:
    """The data files of a set: those that are here, else downloaded into the cache and checked.

    ``progress`` is called with each address and gives what is to be told about its bytes.
    """
    if (here := present_files(entry)) is not None:
        return here
    if not entry.download:
        raise DataError(f"{entry.name} is not here and cannot be fetched by a program.\n{_what_to_do(entry)}")
    folder = cache_folder() / "data" / entry.folder
    with locked_folder(folder):
        if present_files(entry) is None:  # nobody fetched it while we waited
            remove_leftovers(folder, ".unpack.*")
            _download(entry, folder, progress)
    if (here := present_files(entry)) is None:
        raise DataError(f"{entry.name}: what was downloaded lacks some of its files.\n{_what_to_do(entry)}")
    return here


def _download(entry: Entry, folder: Path, progress: Callable[[str], Progress] | None) -> None:
    for url in entry.download:
        name = PurePosixPath(urlsplit(url).path).name
        target = folder / name
        try:
            fetch(url, target, progress=progress(url) if progress else None)
        except DataError as error:
            raise DataError(f"{error}\n{_what_to_do(entry)}") from error
        if is_archive(name):
            try:
                unpack(target, folder)
            finally:
                target.unlink(missing_ok=True)
    _check_downloaded(entry, folder)


def check(entry: Entry) -> list[FileState]:
    """Compare every file of a set that is here with its checksum, published or noted when it was downloaded."""
    noted = _noted()
    states = []
    for file in (*entry.files, *entry.otherwise):
        place = locate(entry, file)
        expected = file.sha256 or noted.get(f"{entry.name}/{file.path}")
        digest = content_sha256(place) if place else None
        if digest is None:
            state = "missing"
        elif expected is None:
            state = "unknown"
        else:
            state = "ok" if digest == expected else "wrong"
        states.append(FileState(file.path, place, state, digest, expected))
    return states


def content_sha256(path: Path) -> str:
    """sha256 of a file's content, decompressed."""
    digest = hashlib.sha256()
    with open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _check_downloaded(entry: Entry, folder: Path) -> None:
    """Remove and refuse what has not the published checksum; note the checksums of what has none published."""
    digests = {}
    for file in (*entry.files, *entry.otherwise):
        path = folder / file.path
        if not path.is_file():
            continue
        digest = content_sha256(path)
        if file.sha256 not in (None, digest):
            path.unlink()
            raise DataError(f"{path}: wrong checksum, expected sha256 {file.sha256}, got {digest}; it was removed")
        digests[f"{entry.name}/{file.path}"] = digest
    with locked_folder(cache_folder()), atomic_write(_notes_file()) as temporary:
        temporary.write_text(json.dumps(digests | _noted(), indent=1, sort_keys=True))


def _notes_file() -> Path:
    return cache_folder() / "checksums.json"


def _noted() -> dict[str, str]:
    try:
        return dict(json.loads(_notes_file().read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _what_to_do(entry: Entry) -> str:
    files = [file for file in entry.files if file.data and locate(entry, file) is None]
    names = ", ".join(file.path for file in files)
    where = " or ".join(str(folder) for folder in set_folders(entry))
    how = [f"Download {' and '.join(entry.download)} on a machine with a network."] if entry.download else []
    return f"{' '.join([*how, entry.manual])}\nOrigin: {entry.origin}\nPut {names} (plain, .gz or .zst) into {where}"
