"""Locks between processes, by filelock on every platform.

A lock belongs to the operating system and ends with its process, however that process ends. On POSIX the folder
itself is locked, which leaves no file behind and works in a read-only folder; Windows cannot lock a folder, so a small
hidden file in it is locked instead.
"""

from __future__ import annotations

import os
import platform
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankbound.errors import DataError

_FOLDERS_CAN_BE_LOCKED = os.name != "nt"
_LOCK_FILE = ".rankbound.lock"
_POLL_SECONDS = 0.01


@contextmanager
def locked_folder(folder: str | os.PathLike[str], *, create: bool = True) -> Iterator[None]:
    """Hold a folder during the block; other processes and threads that want to hold it wait.

    Writers hold a folder while they change it, readers while they read several files that belong together.

    Parameters
    ----------
    folder:
        The folder to hold.
    create:
        Create the folder if it does not exist. With False, for readers, the block runs without a lock then.

    Notes
    -----
    Where a folder cannot be locked (some network file systems, a folder that cannot be created), the block runs
    without a lock.
    """
    from filelock import lock_descriptor

    descriptor = None
    with suppress(OSError):
        descriptor = _open(Path(folder), create=create)
        lock_descriptor(descriptor, poll_interval=_POLL_SECONDS)
    with _closed_afterwards(descriptor):
        yield


def _open(folder: Path, *, create: bool) -> int:
    if create:
        folder.mkdir(parents=True, exist_ok=True)
    if _FOLDERS_CAN_BE_LOCKED:
        return os.open(folder, os.O_RDONLY)
    return os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT)


@contextmanager
def waiting_lock(path: str | os.PathLike[str], seconds: float) -> Iterator[bool]:
    """Hold a lock file during the block, so that one process does what the others then find done.

    The block runs in any case; the value that it gets says whether the lock is held. It is not if another process
    still holds it after that many ``seconds``, or if the file cannot be created or locked. The file is removed
    afterwards. A process that comes then creates it anew, and does not wait for those that wait already: they must
    look, as it does, whether there is still something to do.
    """
    from filelock import lock_descriptor

    descriptor, is_held = None, False
    end = time.monotonic() + seconds
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        while not (is_held := lock_descriptor(descriptor, blocking=False)) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
    with _closed_afterwards(descriptor):
        try:
            yield is_held
        finally:
            if is_held:
                with suppress(OSError):  # Windows removes no file that another process has opened
                    Path(path).unlink()


_open_descriptors: set[int] = set()


@contextmanager
def _closed_afterwards(descriptor: int | None) -> Iterator[None]:
    """Unlock and close a descriptor after the block; a child that is forked during the block closes its copy at once.

    A lock ends when every copy of its descriptor is closed, or when one of them is unlocked. The child would otherwise
    hold the lock of a parent that was killed.
    """
    if descriptor is None:
        yield
        return
    from filelock import unlock_descriptor

    process = os.getpid()
    _open_descriptors.add(descriptor)
    try:
        yield
    finally:
        if os.getpid() == process:
            _open_descriptors.discard(descriptor)
            with suppress(OSError):
                unlock_descriptor(descriptor)
            os.close(descriptor)


def _close_in_child() -> None:
    for descriptor in _open_descriptors:
        with suppress(OSError):
            os.close(descriptor)
    _open_descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def locked_file(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Hold a lock file during the block; raise DataError at once if another process holds it.

    The file names its holder. It stays when the block ends, and when its process is killed, without being locked.

    Parameters
    ----------
    path:
        The lock file, created if it does not exist. An OSError is raised if that fails. Anything else than a regular
        file of its own, such as a link to another file, raises DataError: the file is written.
    what:
        What the error says another process is doing, for instance "is writing to this store".
    """
    from filelock import lock_descriptor

    if Path(path).is_symlink():
        raise DataError(f"{path}: must be a file of its own, got a symbolic link")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise DataError(f"{path}: must be a file of its own, got one with other names or no regular one")
        if not lock_descriptor(descriptor, blocking=False):
            raise DataError(f"another process ({_holder(descriptor)}) {what}")
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"\n{os.getpid()} on {platform.node()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    os.lseek(descriptor, 1, os.SEEK_SET)  # Windows locks the first byte for readers, too
    return os.read(descriptor, 200).decode(errors="replace").strip() or "unknown"
