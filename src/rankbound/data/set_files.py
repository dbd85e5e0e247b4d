"""Download the files of a set, and verify those that are on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from rankbound.data.archives import is_archive, unpack
from rankbound.data.catalog import Entry, find_file, set_folders
from rankbound.data.download import Progress, fetch
from rankbound.errors import DataError
from rankbound.io import atomic_write, cache_folder, locked_folder, open_bytes, remove_leftovers


@dataclass(frozen=True)
class FileState:
    """The state of one file of a set: ok, partial, wrong, unknown (no checksum to compare with) or missing.

    A partial file is a known copy that is not complete.
    """

    name: str
    path: Path | None
    state: str
    sha256: str | None
    expected: str | None


def present_files(entry: Entry) -> list[Path] | None:
    """Return the data files of a set, in order, or the files that may replace them; None if some are missing."""
    for choice in (entry.files, entry.otherwise):
        paths = [find_file(entry, file) for file in choice if file.data]
        if paths and all(paths):
            return [path for path in paths if path is not None]
    return None


def obtain(entry: Entry, progress: Callable[[str], Progress] | None = None) -> list[Path]:
    """Return the data files of a set; download them into the cache and verify them if they are not on this machine.

    ``progress`` is called with each address and returns a function that receives the number of downloaded bytes.
    """
    if (present := present_files(entry)) is not None:
        return present
    if not entry.download:
        raise DataError(f"{entry.name} is not here and cannot be downloaded by a program.\n{_what_to_do(entry)}")
    cache = cache_folder()
    if cache is None:
        raise DataError(
            f"{entry.name} is not here and there is no folder to download it to: RANKBOUND_CACHE is empty or this user "
            f"has no home folder; name a folder in RANKBOUND_CACHE.\n{_what_to_do(entry)}"
        )
    folder = cache / "data" / entry.folder
    with locked_folder(folder):
        if present_files(entry) is None:  # no other process downloaded it in the meantime
            remove_leftovers(folder, ".unpack.*")
            _download(entry, folder, progress)
            _check_downloaded(entry, folder, cache)
    if (present := present_files(entry)) is None:
        raise DataError(f"{entry.name}: the download lacks some of its files.\n{_what_to_do(entry)}")
    return present


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


def check(entry: Entry) -> list[FileState]:
    """Compare every file of a set with its checksum, which was published or recorded when it was downloaded."""
    cache = cache_folder()
    recorded = {} if cache is None else _read_recorded(cache)
    states = []
    for file in (*entry.files, *entry.otherwise):
        path = find_file(entry, file)
        expected = file.sha256 or recorded.get(f"{entry.name}/{file.path}")
        digest = content_sha256(path) if path else None
        if digest is None:
            state = "missing"
        elif digest == file.partial:
            state = "partial"
        elif expected is None:
            state = "unknown"
        else:
            state = "ok" if digest == expected else "wrong"
        states.append(FileState(file.path, path, state, digest, expected))
    return states


def content_sha256(path: Path) -> str:
    """Return the sha256 of a file's decompressed content; of a folder, that of its files' names and checksums."""
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(path.iterdir()):
            digest.update(f"{content_sha256(file)}  {plain_name(file)}\n".encode())
        return digest.hexdigest()
    with open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def plain_name(file: Path) -> str:
    """Return the name of a file without the suffix of its compression.

    >>> plain_name(Path("runs/bm25.gz")), plain_name(Path("10x10.prf"))
    ('bm25', '10x10.prf')
    """
    return file.name.removesuffix(".gz").removesuffix(".zst")


def _check_downloaded(entry: Entry, folder: Path, cache: Path) -> None:
    """Remove and refuse a file that differs from its published checksum; record the checksums of the others."""
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
    with locked_folder(cache), atomic_write(_record_file(cache)) as temporary:
        temporary.write_text(json.dumps(digests | _read_recorded(cache), indent=1, sort_keys=True))


def _record_file(cache: Path) -> Path:
    return cache / "checksums.json"


def _read_recorded(cache: Path) -> dict[str, str]:
    try:
        return dict(json.loads(_record_file(cache).read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _what_to_do(entry: Entry) -> str:
    names = ", ".join(file.path for file in entry.files if file.data and find_file(entry, file) is None)
    folders = " or ".join(str(folder) for folder in set_folders(entry)) or f"{entry.folder} in RANKBOUND_DATA"
    how = [f"Download {' and '.join(entry.download)} on a machine with a network."] if entry.download else []
    return f"{' '.join([*how, entry.manual])}\nOrigin: {entry.origin}\nPut {names} (plain, .gz or .zst) into {folders}"
