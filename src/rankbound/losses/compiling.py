"""Compile and run kernels: one cache folder, one thread budget, one kernel at a time.

- Compiled kernels are kept on disk in a folder named after the source text of this package, so that no edit can
  meet a stale kernel. See `kernel_folder`.
- The thread budget is that of `rankbound.parallel`. Each query is computed by one thread from start to end, so results
  do not depend on it.
- One parallel kernel runs at a time, because numba's simplest threading layer aborts the process otherwise.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numba

from rankbound.io import cache_folder, caching_is_off, is_private_and_writable
from rankbound.losses.kernel_cache import KernelCache
from rankbound.measures import discounts
from rankbound.parallel import set_threads, threads

__all__ = ["helper", "inlined_helper", "kernel", "kernel_folder", "running", "set_threads", "threads"]

Function = TypeVar("Function", bound=Callable[..., object])

_lock = threading.Lock()


# ---- threads ---------------------------------------------------------------------------------------------------------

_WORK_PER_THREAD = 100_000  # pairs of items, or similar work: less is done before a second thread has started


@contextmanager
def running(work: float) -> Iterator[int]:
    """Run a kernel in the block and yield its number of threads: the thread budget, or less for little work."""
    with _lock:
        most = min(threads(), int(numba.config.NUMBA_NUM_THREADS))
        budget = max(1, min(most, int(work / _WORK_PER_THREAD)))
        torch = sys.modules.get("torch")  # if it was imported, its number of threads is restored below
        before_in_torch = torch.get_num_threads() if torch is not None and hasattr(torch, "get_num_threads") else None
        before = numba.get_num_threads()
        numba.set_num_threads(budget)
        try:
            yield budget
        finally:
            numba.set_num_threads(before)
            # the first call of numba starts OpenMP, which torch uses, too, and resets its number of threads
            if torch is not None and before_in_torch not in (None, torch.get_num_threads()):
                torch.set_num_threads(before_in_torch)


# ---- compilation -----------------------------------------------------------------------------------------------------


def kernel_folder(package: Path | None = None) -> Path | None:
    """Return the folder in which compiled kernels are kept; None if there is none.

    The variable NUMBA_CACHE_DIR, if set, decides alone. Otherwise kernels are kept next to the package, as Python's
    own bytecode is, in rankbound's cache folder, or in a folder of this user for temporary files: the first of them
    that this user, and no other, can write. An empty RANKBOUND_CACHE means that no kernels are kept.
    """
    here = Path(__file__).parent if package is None else package
    texts = [file.read_bytes() for file in [Path(__file__), *sorted(here.glob("*.py"))]]
    compiled = [text for text in texts if b"@helper" in text or b"@kernel" in text or b"numba.njit" in text]
    compiled.append(Path(discounts.__file__).read_bytes())  # the kernels compile its functions, too
    name = f"kernels-{hashlib.sha256(b''.join(compiled)).hexdigest()[:16]}"
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        folders = [Path(chosen) / "rankbound" / name]
    elif caching_is_off():
        return None
    else:
        folders = [here / "__pycache__" / name]
        if (cache := cache_folder(name)) is not None:
            folders.append(cache)
        if hasattr(os, "getuid"):
            folders.append(Path(tempfile.gettempdir()) / f"rankbound-{os.getuid()}" / name)
    return next((folder for folder in folders if is_private_and_writable(folder)), None)


_folder = kernel_folder()


def kernel(function: Function) -> Function:
    """Compile a loop over queries: parallel, with fast math, cached on disk."""
    before = numba.config.CACHE_DIR
    # numba reads the folder while it decorates; restored afterwards, for the sake of the user's own kernels
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
    """Compile a function that kernels call; it is cached as a part of them."""
    compiled: Function = numba.njit(fastmath=True, error_model="numpy", nogil=True)(function)
    return compiled


def inlined_helper(function: Function) -> Function:
    """The same, inlined into its caller: for loops that LLVM optimizes better where it sees their arguments."""
    compiled: Function = numba.njit(fastmath=True, error_model="numpy", nogil=True, forceinline=True)(function)
    return compiled
