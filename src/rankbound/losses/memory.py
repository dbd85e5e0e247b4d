"""Working memory of the kernels.

For each type of array and each set of compiler options, np.empty compiles three functions, and np.zeros and its
relatives compile more. Kernels therefore get their arrays here. `empty`, `indices` and `_empty_table` compile nothing:
the code that allocates an array is written into the kernel itself.

Arrays lie at least 1 kB apart. A compiled loop tests whether the arrays that it reads and writes are a few vectors away
from each other, and if not, another loop runs, whose sums have another order. Short arrays that the allocator puts next
to each other, or not, would give other last bits from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.extending import lower_builtin, type_callable
from numba.np.arrayobj import make_array, populate_array

from rankbound.losses.compiling import helper

__all__ = ["empty", "indices", "zero_table", "zeros"]

_APART = 1024  # bytes after each array: twice what the widest loops process at once, four times 16 numbers of float64


def empty(count: int, like: Any) -> Any:
    """An array in the precision of another one, not initialized."""
    return np.empty(count, like.dtype)


def indices(count: int) -> Any:
    """Integers, not initialized."""
    return np.empty(count, np.int64)


def _empty_table(rows: int, columns: int, like: Any) -> Any:
    return np.empty((rows, columns), like.dtype)


@helper
def zeros(count: int, like: Any) -> Any:
    """Zeros in the precision of another array."""
    result = empty(count, like)
    for j in range(count):
        result[j] = 0
    return result


@helper
def zero_table(rows: int, like: Any) -> Any:
    """Zeros in the precision of another array, in rows of its length."""
    result = _empty_table(rows, len(like), like)
    for row in range(rows):
        for j in range(len(like)):
            result[row, j] = 0
    return result


# ---- how numba compiles them: types, and code for LLVM ---------------------------------------------------------------


@type_callable(empty)  # type: ignore[untyped-decorator]
def _type_of_empty(context: Any) -> Any:
    return lambda count, like: signature(types.Array(like.dtype, 1, "C"), types.intp, like)  # noqa: ARG005


@type_callable(indices)  # type: ignore[untyped-decorator]
def _type_of_indices(context: Any) -> Any:
    return lambda count: signature(types.Array(types.int64, 1, "C"), types.intp)  # noqa: ARG005


@type_callable(_empty_table)  # type: ignore[untyped-decorator]
def _type_of_table(context: Any) -> Any:
    return lambda rows, columns, like: signature(  # noqa: ARG005
        types.Array(like.dtype, 2, "C"), types.intp, types.intp, like
    )


@lower_builtin(empty, types.intp, types.Array)  # type: ignore[untyped-decorator]
@lower_builtin(indices, types.intp)  # type: ignore[untyped-decorator]
def _allocate_vector(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    return _allocate(context, builder, call.return_type, arguments[:1])


@lower_builtin(_empty_table, types.intp, types.intp, types.Array)  # type: ignore[untyped-decorator]
def _allocate_table(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    return _allocate(context, builder, call.return_type, arguments[:2])


def _allocate(context: Any, builder: Any, array_type: Any, shape: Sequence[Any]) -> Any:
    """Write the code that allocates an array, row by row in memory, and raises MemoryError if there is none left."""
    item = context.get_data_type(array_type.dtype)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(item))
    strides = [itemsize]  # in bytes
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    size = builder.add(builder.mul(strides[0], shape[0]), context.get_constant(types.intp, _APART))
    alignment = context.get_preferred_array_alignment(array_type.dtype)
    memory = context.nrt.meminfo_alloc_aligned(builder, size, alignment)
    array = make_array(array_type)(context, builder)
    populate_array(
        array,
        data=builder.bitcast(context.nrt.meminfo_data(builder, memory), item.as_pointer()),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=itemsize,
        meminfo=memory,
    )
    return array._getvalue()
