"""Atomic writes: a file is there completely or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankbound.errors import DataError


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; it replaces ``path`` when the block succeeds.

    When the block raises, the temporary file is removed and ``path`` stays as it was. An OSError becomes a DataError
    that names ``path``. A device or a pipe, such as ``/dev/null`` or ``/dev/stdout``, is never replaced: the content is
    written into it when the block succeeds.

    Parameters
    ----------
    path:
        The file to write; its folder is created if it does not exist.
    durable:
        Force the content to disk before the rename, so that a power cut cannot leave an empty file. Caches, which are
        checked when they are read, save that time.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(f"{folder}/result.txt") as temporary:
    ...         _ = temporary.write_text("complete")
    ...     print([file.name for file in Path(folder).iterdir()])
    ['result.txt']
    """
    target = Path(path)
    is_stream = _is_stream(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = None if is_stream else target.parent  # no files are made in /dev
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=folder)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp creates private files; a result has the user's usual permissions
        yield temporary
        if is_stream:
            with temporary.open("rb") as content, target.open("wb") as stream:
                shutil.copyfileobj(content, stream)
            return
        if durable:
            with temporary.open("r+b") as written:
                os.fsync(written.fileno())
        temporary.replace(target)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or a socket, or a link to one."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove unfinished folders that killed processes left; call it only while holding the folder (`locked_folder`)."""
    for leftover in folder.glob(pattern):
        shutil.rmtree(leftover, ignore_errors=True)
