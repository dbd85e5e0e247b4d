"""Compile and run kernels: one cache folder, one thread budget.

- Compiled kernels are kept on disk in a folder named after the source text of this package, so that no edit can
  meet a stale kernel. See `kernel_folder`.
- The thread budget is that of `rankbound.parallel`. Each query is computed by one thread from start to end, so results
  do not depend on it.
- The kernels of the losses (`block_kernel`) are serial. `rankbound.losses.workers` calls them in several threads, each
  with its own block of queries or items. They can be called from any thread and in forked children.
- Other kernels (`kernel`) are loops that numba makes parallel. One of them runs at a time, because numba's simplest
  threading layer aborts the process otherwise, and in a forked child they are serial, because OpenMP ends children that
  use it after their parent has.

Compiling takes time, and each loss compiles what it needs alone: kernels are made for one structure of measures or one
form of pairs, arguments that do not apply are None, which removes the branches that use them, and helpers have no
entry from Python.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
from numba.core.compiler import Compiler

from rankbound.io import cache_folder, caching_is_off, is_private_and_writable
from rankbound.losses.kernel_cache import KernelCache, NoCache
from rankbound.losses.linked_helpers import helper_compiler, kernel_compiler
from rankbound.measures import discounts
from rankbound.parallel import set_threads, threads

__all__ = [
    "HELPER_OPTIONS", "block_kernel", "emitted_helper", "helper", "inlined_helper", "kernel", "kernel_folder", "ranges",
    "running", "set_threads", "threads", "threads_for",
]  # fmt: skip

Function = TypeVar("Function", bound=Callable[..., object])


# ---- threads ---------------------------------------------------------------------------------------------------------

_WORK_PER_THREAD = 100_000  # pairs of items, or similar work: less is done before a second thread has started
_STEP = 1024  # items: the boundaries of ranges are multiples of it, so that vectorized loops have the same remainders


def threads_for(work: float) -> int:
    """Return how many threads a kernel uses: the thread budget, or less for little work."""
    most = min(threads(), int(numba.config.NUMBA_NUM_THREADS))
    return max(1, min(most, int(work / _WORK_PER_THREAD)))


def ranges(count: int, blocks: int, step: int = _STEP) -> list[tuple[int, int]]:
    """Split range(count) into at least one and at most ``blocks`` ranges whose boundaries are multiples of ``step``.

    >>> ranges(5000, 2)
    [(0, 3072), (3072, 5000)]
    >>> ranges(10, 2), ranges(0, 2)
    ([(0, 10)], [(0, 0)])
    """
    steps = max(1, -(-count // step))
    size = -(-steps // blocks) * step
    return [(first, min(first + size, count)) for first in range(0, max(count, 1), size)]


class _Parallel:
    """What is known of numba's own threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_started = self.is_forked = False  # whether OpenMP runs here, and whether it ran in the parent

    def after_fork(self) -> None:
        """In a forked child: the lock may have been held by a thread that does not exist here."""
        self.lock = threading.Lock()
        self.is_forked = self.is_started


_parallel = _Parallel()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_parallel.after_fork)


@contextmanager
def running(work: float) -> Iterator[int]:
    """Run a parallel kernel in the block and yield its number of threads, see `threads_for`."""
    if _parallel.is_forked:
        yield 1
        return
    with _parallel.lock:
        _parallel.is_started = True
        budget = threads_for(work)
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
    others = [file for folder in ("integrations", "models") for file in sorted((here.parent / folder).glob("*.py"))]
    texts = [file.read_bytes() for file in [Path(__file__), *sorted(here.glob("*.py")), *others]]
    marks = (b"@helper", b"@kernel", b"block_kernel", b"helper(", b"helper_compiler", b"lower_builtin", b"numba.njit")
    compiled = [text for text in texts if any(mark in text for mark in marks)]
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
_OPTIONS: dict[str, Any] = {"fastmath": True, "error_model": "numpy", "nogil": True}
HELPER_OPTIONS: dict[str, Any] = {
    "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": helper_compiler(), **_OPTIONS
}  # fmt: skip


def block_kernel(function: Function, variant: str = "") -> Function:
    """Compile a loop over a block of queries or items: serial, with fast math, cached on disk.

    A function that is made several times, with other values around it, needs a ``variant`` for each, see `_named`.
    """
    return _cached(function, variant, parallel=False)


def kernel(function: Function) -> Function:
    """Compile a loop over queries: parallel, with fast math, cached on disk; serial in a forked child."""
    parallel, serial = _cached(function, "parallel", parallel=True), _cached(function, "serial", parallel=False)

    @wraps(function)
    def run(*arguments: Any) -> Any:
        return serial(*arguments) if _parallel.is_forked else parallel(*arguments)

    run.stats = getattr(parallel, "stats", None)  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def _named(function: Function, variant: str) -> Function:
    """Copy a function under a name that has the variant in it.

    Compiled code is found by the name of its function, the types of its arguments and a number that numba counts up in
    each process. A function with other values around it has the same name and the same types, and if another process
    has compiled it, perhaps the same number: a process that loads both from the cache would run one for the other.
    """
    if not variant or not isinstance(function, FunctionType):
        return function
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__doc__, copy.__module__ = function.__kwdefaults__, function.__doc__, function.__module__
    copy.__qualname__ = f"{function.__qualname__}_{re.sub('[^0-9a-z]+', '_', variant.replace('-', 'minus '))}"
    return copy  # type: ignore[return-value]


def _cached(function: Function, variant: str, parallel: bool) -> Function:
    function = _named(function, variant)
    before = numba.config.CACHE_DIR
    # numba reads the folder while it decorates; restored afterwards, for the sake of the user's own kernels
    numba.config.CACHE_DIR = "" if _folder is None else str(_folder)
    try:
        compiler = Compiler if parallel else kernel_compiler()
        compiled = numba.njit(parallel=parallel, no_cfunc_wrapper=True, pipeline_class=compiler, **_OPTIONS)(function)
        if compiled is not function:  # NUMBA_DISABLE_JIT leaves functions as they are
            compiled._cache = NoCache() if _folder is None else KernelCache(function, variant)
            compiled.compile = _compiling_once(compiled.compile, compiled._cache)
    finally:
        numba.config.CACHE_DIR = before
    result: Function = compiled
    return result


def _compiling_once(compile_kernel: Callable[[Any], Any], cache: KernelCache | NoCache) -> Callable[[Any], Any]:
    """Wrap a dispatcher's method, so that one of several processes compiles and the others load."""

    def compile_or_load(signature: Any) -> Any:
        with cache.compiling():
            return compile_kernel(signature)

    return compile_or_load


def helper(function: Function, variant: str = "") -> Function:
    """Compile a function that kernels call; it is cached as a part of them, and cannot be called from Python.

    For ``variant`` see `block_kernel`.
    """
    compiled: Function = numba.njit(**HELPER_OPTIONS)(_named(function, variant))
    return compiled


def emitted_helper(function: Function) -> Function:
    """The same with machine code of its own: for loops of which a kernel, as measured, is faster in this way."""
    compiled: Function = numba.njit(**{**HELPER_OPTIONS, "pipeline_class": Compiler})(function)
    return compiled


def inlined_helper(function: Function, variant: str = "") -> Function:
    """The same, inlined into its caller: for loops that LLVM optimizes better where it sees their arguments."""
    compiled: Function = numba.njit(forceinline=True, **HELPER_OPTIONS)(_named(function, variant))
    return compiled
