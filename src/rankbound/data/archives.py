"""Unpack archives from the network without trusting them."""

from __future__ import annotations

import bz2
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from rankbound.errors import DataError

_FREE_BYTES, _RATIO = 1 << 30, 200  # any archive may unpack to 1 GiB, and beyond that to 200 times its own size


def is_archive(name: str) -> bool:
    """Return whether a file of that name is an archive to unpack; .gz and .zst files are read as they are.

    >>> is_archive("ml-1m.zip"), is_archive("trust_data.txt.bz2"), is_archive("S1.txt.gz")
    (True, True, False)
    """
    return name.endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".bz2"))


def unpack(archive: Path, target: Path) -> list[Path]:
    """Unpack all files into ``target``, without the top-level folder if there is only one.

    An archive is refused if a member lies outside the folder (``../``, absolute) or is a link, and if it unpacks to
    more than 1 GiB and more than 200 times its own size. Either all files are unpacked or none.
    """
    name = archive.name
    target.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".unpack.", dir=target))
    try:
        written: dict[Path, None] = {}  # of members with the same name the last one counts
        meter = _Meter(archive)
        for member, stream in _members(archive, name):
            path = temporary / _safe_path(archive, member)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as out:
                shutil.copyfileobj(meter.watched(stream), out, 1 << 20)
            written[path] = None
        inner = temporary
        while len(entries := list(inner.iterdir())) == 1 and entries[0].is_dir():
            inner = entries[0]
        return [_move_file(path, target / path.relative_to(inner)) for path in written]
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{name}: cannot be unpacked into {target}: {error.strerror or error}") from error
    except Exception as error:  # damaged files make zipfile and tarfile raise errors of a dozen types
        raise DataError(f"{name}: is damaged: {error or type(error).__name__}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class _Meter:
    """Counts the bytes that an archive unpacks to and raises DataError beyond the limit."""

    def __init__(self, archive: Path) -> None:
        self._name = archive.name
        self._remaining = max(_FREE_BYTES, _RATIO * archive.stat().st_size)
        self._stream: IO[bytes] | bz2.BZ2File | None = None

    def watched(self, stream: IO[bytes] | bz2.BZ2File) -> _Meter:
        """Return this meter as the stream of a member."""
        self._stream = stream
        return self

    def read(self, size: int = -1, /) -> bytes:
        """Read the next bytes of the member."""
        assert self._stream is not None
        block = self._stream.read(size)
        self._remaining -= len(block)
        if self._remaining < 0:
            raise DataError(f"{self._name}: must not unpack to more than {_RATIO} times its size, as no data set does")
        return block


def _members(archive: Path, name: str) -> Iterator[tuple[str, IO[bytes] | bz2.BZ2File]]:
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if (info.external_attr >> 16) & 0o170000 == 0o120000:
                    raise DataError(f"{name}: links are not allowed in an archive, got {info.filename!r}")
                if not info.is_dir():
                    with zipped.open(info) as stream:
                        yield info.filename, stream
    elif ".tar" in name or name.endswith(".tgz"):
        with tarfile.open(archive) as tarred:
            for member in tarred:
                if member.isdir():
                    continue
                content = tarred.extractfile(member) if member.isreg() else None
                if content is None:
                    raise DataError(f"{name}: links and devices are not allowed in an archive, got {member.name!r}")
                yield member.name, content
    else:
        with bz2.open(archive, "rb") as packed:
            yield Path(name).stem, packed


def _safe_path(archive: Path, member: str) -> PurePosixPath:
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or ":" in member or "\0" in member:
        raise DataError(f"{archive.name}: a member of an archive must stay inside its folder, got {member!r}")
    return path


def _move_file(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)
    return target
