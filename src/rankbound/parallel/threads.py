"""The thread budget: how many threads the loss kernels, the trees and the training loop use; the size of the memory.

Results do not depend on it: each query is computed by one thread from start to end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from rankbound.errors import ArgumentError

_BUDGETS = ("RANKBOUND", "OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "POLARS_MAX")
ONE_THREAD = {f"{budget}_THREADS": "1" for budget in _BUDGETS}
"""Environment of a worker: always one thread, so that the numbers do not depend on the number of workers."""

_budget: int | None = None


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def physical_memory() -> int:
    """Return the bytes of memory of this machine, or 2^62 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def threads() -> int:
    """Return the thread budget: that of `set_threads`, else the variable ``RANKBOUND_THREADS``, else all cores.

    A variable that is not a positive integer is ignored.
    """
    if _budget is not None:
        return _budget
    requested = os.environ.get("RANKBOUND_THREADS", "")
    is_number = re.fullmatch("0*[1-9][0-9]{0,8}", requested)
    return min(int(requested), cores()) if is_number else cores()


def set_threads(count: int | None) -> None:
    """Set the thread budget of this process; None restores the default.

    It applies to the kernels of the losses, to LightGBM's trees unless a ranker has its own ``n_jobs``, and to torch
    inside `rankbound.models`. Polars reads its own variable, ``POLARS_MAX_THREADS``, once, when it is loaded.

    >>> set_threads(1)
    >>> threads()
    1
    >>> set_threads(None)
    """
    global _budget
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= cores()):
        raise ArgumentError(f"threads must be between 1 and {cores()}, got {count!r}")
    _budget = count


@contextmanager
def thread_budget(count: int) -> Iterator[None]:
    """Set the thread budget of this process inside the block."""
    global _budget
    before = _budget
    set_threads(count)
    try:
        yield
    finally:
        _budget = before
