"""The cache folder: files that rankbound can make again, kept so that it need not.

The variable ``RANKBOUND_CACHE`` decides for downloaded and converted data, distributions and compiled kernels alike:

=============  =======================================================================================
not set        the cache folder of this user on this platform, for instance ``~/.cache/rankbound``
a folder       that folder
empty          no files are kept
=============  =======================================================================================
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

_VARIABLE = "RANKBOUND_CACHE"


def caching_is_off() -> bool:
    """Return whether no files are to be kept: ``RANKBOUND_CACHE`` is set and empty."""
    return os.environ.get(_VARIABLE) == ""


def cache_folder(*names: str) -> Path | None:
    """Return the cache folder, or a folder in it; None if no files are to be kept or the user has no home folder.

    The folder need not exist, and it may be read-only: writing to it can fail.

    >>> import os
    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, RANKBOUND_CACHE="kept"):
    ...     cache_folder("data", "mq2008").as_posix()
    'kept/data/mq2008'
    >>> with mock.patch.dict(os.environ, RANKBOUND_CACHE=""):
    ...     print(cache_folder())
    None
    """
    if caching_is_off():
        return None
    if chosen := os.environ.get(_VARIABLE):
        return Path(chosen, *names)
    import platformdirs

    try:
        folder = platformdirs.user_cache_path("rankbound", appauthor=False)
    except RuntimeError:  # this user has no home folder
        return None
    return folder.joinpath(*names) if folder.is_absolute() else None  # older versions leave a "~" in the path


def is_private_and_writable(folder: Path) -> bool:
    """Return whether a folder, created if necessary, can be written by this user and by no other.

    Compiled code is loaded from such a folder and executed. The parent folder must be private too, because its owner
    can replace the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (_is_private(folder) and _is_private(folder.parent)):
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_private(folder: Path) -> bool:
    status = folder.lstat()  # of a link itself: whoever created the link decides where it leads
    if not hasattr(os, "getuid"):
        return True
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH
