"""How kernels are compiled and run: one cache folder, one thread budget, one at a time.

- Compiled kernels are kept on disk in a folder named after the source text of this room, so that no edit can meet a
  stale kernel. It lies beside the package, or in the user's cache folder where the package is read-only.
- The budget of threads is set here and nowhere else. Each query is computed by one thread from start to end, so
  results do not depend on the budget.
- Parallel kernels are entered one at a time: the plainest threading layer of numba aborts the process otherwise.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numba
import torch

from rankbound.errors import ArgumentError
from rankbound.losses.kernel_cache import KernelCache

__all__ = ["cache_folder", "helper", "kernel", "running", "set_threads", "threads"]

Function = TypeVar("Function", bound=Callable[..., object])

_lock = threading.Lock()
_budget: int | None = None


# ---- threads ---------------------------------------------------------------------------------------------------------


def threads() -> int:
    """Threads that the kernels use: `set_threads`, else the variable RANKBOUND_THREADS, else every core we may use."""
    if _budget is not None:
        return _budget
    wish = os.environ.get("RANKBOUND_THREADS", "")
    most = int(numba.config.NUMBA_NUM_THREADS)
    return min(int(wish), most) if wish.isdigit() and int(wish) > 0 else most


def set_threads(count: int | None) -> None:
    """Set how many threads the kernels use in this process; None goes back to the default.

    >>> set_threads(1)
    >>> threads()
    1
    >>> set_threads(None)
    """
    global _budget
    most = int(numba.config.NUMBA_NUM_THREADS)
    if count is not None and not (isinstance(count, int) and 1 <= count <= most):
        raise ArgumentError(f"threads must be between 1 and {most}, got {count!r}")
    _budget = count


_WORTH_A_THREAD = 100_000  # pairs of items, or as much other work: less is done before a second thread is awake


@contextmanager
def running(work: float) -> Iterator[int]:
    """Hold the kernels for this thread; gives the number of threads, as many of the budget as the work is worth."""
    with _lock:
        budget = max(1, min(threads(), int(work / _WORTH_A_THREAD)))
        before, before_in_torch = numba.get_num_threads(), torch.get_num_threads()
        numba.set_num_threads(budget)
        try:
            yield budget
        finally:
            numba.set_num_threads(before)
            if torch.get_num_threads() != before_in_torch:  # the first kernel starts OpenMP, which is torch's too
                torch.set_num_threads(before_in_torch)


# ---- compilation -----------------------------------------------------------------------------------------------------


def cache_folder(package: Path | None = None) -> Path | None:
    """Where compiled kernels are kept; None if no folder can be written.

    Beside the package, in the user's cache folder, or in a folder of this user for temporary files: the first that
    can be written. The variable NUMBA_CACHE_DIR, if set, decides alone.
    """
    here = Path(__file__).parent if package is None else package
    texts = [file.read_bytes() for file in [Path(__file__), *sorted(here.glob("*.py"))]]
    compiled = [text for text in texts if b"@helper" in text or b"@kernel" in text or b"numba.njit" in text]
    name = f"kernels-{hashlib.sha256(b''.join(compiled)).hexdigest()[:16]}"
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        folders = [Path(chosen) / "rankbound" / name]
    else:
        folders = [here / "__pycache__" / name]
        with suppress(RuntimeError):  # this user has no home
            folders.append(_user_cache() / name)
        if hasattr(os, "getuid"):
            folders.append(Path(tempfile.gettempdir()) / f"rankbound-{os.getuid()}" / name)
    return next((folder for folder in folders if _writable(folder)), None)


def _user_cache() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rankbound"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (_is_ours(folder) and _is_ours(folder.parent)):
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can put files here: compiled code is loaded from this folder and run."""
    about = folder.lstat()  # of a link itself: whoever made it decides where it leads
    if not hasattr(os, "getuid"):
        return True
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & stat.S_IWOTH


_folder = cache_folder()


def kernel(function: Function) -> Function:
    """Compile a loop over queries: parallel, with fast arithmetic, kept on disk."""
    before = numba.config.CACHE_DIR
    # numba asks for the folder when it decorates; set for that moment only, the user's own kernels stay where they are
    numba.config.CACHE_DIR = "" if _folder is None else str(_folder)
    try:
        compiled = numba.njit(parallel=True, fastmath=True, error_model="numpy", nogil=True)(function)
        if _folder is not None:
            compiled._cache = KernelCache(function)
    finally:
        numba.config.CACHE_DIR = before
    result: Function = compiled
    return result


def helper(function: Function) -> Function:
    """Compile a function that kernels call; it is kept on disk as a part of them."""
    compiled: Function = numba.njit(fastmath=True, error_model="numpy", nogil=True)(function)
    return compiled
