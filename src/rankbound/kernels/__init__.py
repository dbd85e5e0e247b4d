"""The compiled kernels: value, gradient and hessian of losses, and other loops that NumPy is too slow for.

They are written in C++ and compiled when the package is installed (see ``setup.py``), once for the baseline of the
architecture and, on x86-64, for processors with AVX2 and FMA, and with AVX-512. The variable ``RANKBOUND_KERNELS``
chooses: ``avx512``, ``avx2``, ``baseline`` or ``off``. Without kernels, losses are computed by their formulas in torch.

A kernel has one argument, a struct whose fields are 64 bits each: integers, floats and pointers to arrays. It is called
for a range of its work (of queries, mostly), and the ranges are distributed over the threads of the budget. ctypes
releases the interpreter's lock meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.kernels.workers import run_blocks
from rankbound.parallel import threads

__all__ = ["ARRAY", "FLOAT", "INTEGER", "Arguments", "active", "kernel", "run", "threads_for"]

_CHOICES = ("avx512", "avx2", "baseline", "off")
_WORK_PER_THREAD = 100_000  # pairs of items, or similar work: less is done before a second thread has started
_WORK_PER_BLOCK = 50_000_000  # some tens of milliseconds: an interrupted process ends after the block it is in


class Arguments(ctypes.Structure):
    """The struct of a kernel. Subclasses list their ``_fields_``, all of type `INTEGER`, `FLOAT` or `ARRAY`.

    Assigning an array to a field stores its address, and keeps the array alive as long as the struct. Arrays must be
    contiguous; the caller answers for their types. None is a null pointer.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self.arrays: dict[str, Any] = {}
        self.set(**values)

    def set(self, **values: Any) -> None:
        """Set fields."""
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                self.arrays[name] = value
                setattr(self, name, value.ctypes.data)
            else:
                setattr(self, name, value)

    def copy(self, **values: Any) -> Self:
        """A copy with other values: what a call passes, where several threads may call at the same time."""
        result = type(self).from_buffer_copy(self)
        result.arrays = dict(self.arrays) if values else self.arrays
        result.set(**values)
        return result


INTEGER, FLOAT, ARRAY = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


# ---- libraries -------------------------------------------------------------------------------------------------------


@cache
def _library() -> tuple[str, Any]:
    """The name of the kernels that this process uses, and their library; "none" and None without any."""
    chosen = os.environ.get("RANKBOUND_KERNELS", "")
    if chosen and chosen not in _CHOICES:
        raise ArgumentError(f"RANKBOUND_KERNELS must be one of {', '.join(_CHOICES)}, got {chosen!r}")
    if chosen == "off":
        return "none", None
    baseline = _load("baseline")
    if baseline is None:
        return "none", None
    for name in ("avx512", "avx2")[2 - baseline.best_library() :]:
        if chosen in ("", name) and (library := _load(name)) is not None:
            return name, library
    return "baseline", baseline


def _load(name: str) -> Any:
    file = Path(__file__).with_name(name + (".dll" if sys.platform == "win32" else ".so"))
    try:
        return ctypes.CDLL(str(file)) if file.exists() else None
    except OSError:  # built for another platform
        return None


def active() -> str:
    """Return which kernels this process uses: "avx512", "avx2", "baseline", or "none" if not built or off."""
    return _library()[0]


@cache
def kernel(name: str, arguments: type[Arguments]) -> Any:
    """Return a kernel by name, with the struct that it takes; None where kernels are not built or are off."""
    library = _library()[1]
    if library is None:
        return None
    size = getattr(library, f"{name}_size")()
    if size != ctypes.sizeof(arguments):
        raise ArgumentError(f"the compiled kernels belong to another version ({name}: {size} bytes); install again")
    function = getattr(library, name)
    function.argtypes, function.restype = (ctypes.POINTER(arguments), ctypes.c_int64, ctypes.c_int64), ctypes.c_int
    return function


# ---- calls -----------------------------------------------------------------------------------------------------------


def threads_for(work: float) -> int:
    """Return how many threads a kernel uses: the thread budget, or less for little work."""
    return max(1, min(threads(), int(work / _WORK_PER_THREAD))) if work > _WORK_PER_THREAD else 1


def run(function: Any, arguments: Arguments, count: int, work: float) -> None:
    """Call a kernel for ``count`` entries, such as queries, which are so many pairs of ``work`` together.

    Entries should come by descending work, or be alike: a thread takes the next block when it is done with one.
    """
    most = threads_for(work)
    if most == 1 and work <= _WORK_PER_BLOCK:
        _call(function, arguments, 0, count)
        return
    blocks = min(count, max(8 * most if most > 1 else 1, int(work / _WORK_PER_BLOCK)))
    cuts = [count * block // blocks for block in range(blocks + 1)]
    run_blocks(lambda part: _call(function, arguments, *part), list(pairwise(cuts)), most)


def _call(function: Callable[..., int], arguments: Arguments, first: int, last: int) -> None:
    if function(arguments, first, last):
        raise MemoryError("a kernel of rankbound found no memory")
