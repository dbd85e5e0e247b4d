"""The smaller and the larger of two numbers in kernels.

For each pair of types, min and max compile a function of their own, with machine code. These compile nothing: the
comparison is written into the kernel itself.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.core.types.misc import unliteral
from numba.core.typing import signature
from numba.extending import lower_builtin, type_callable

__all__ = ["larger", "smaller"]


def smaller(a: Any, b: Any) -> Any:
    """min(a, b) of two numbers."""
    return min(a, b)


def larger(a: Any, b: Any) -> Any:
    """max(a, b) of two numbers."""
    return max(a, b)


# ---- how numba compiles them: types, and code for LLVM ---------------------------------------------------------------


@type_callable(smaller)  # type: ignore[untyped-decorator]
@type_callable(larger)  # type: ignore[untyped-decorator]
def _type_of_both(context: Any) -> Any:
    def type_of_call(a: Any, b: Any) -> Any:
        both = context.unify_types(unliteral(a), unliteral(b))
        return signature(both, both, both)

    return type_of_call


@lower_builtin(smaller, types.Integer, types.Integer)  # type: ignore[untyped-decorator]
@lower_builtin(smaller, types.Float, types.Float)  # type: ignore[untyped-decorator]
def _select_smaller(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    a, b = arguments
    return builder.select(_is_less(builder, call.return_type, a, b), a, b)


@lower_builtin(larger, types.Integer, types.Integer)  # type: ignore[untyped-decorator]
@lower_builtin(larger, types.Float, types.Float)  # type: ignore[untyped-decorator]
def _select_larger(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    a, b = arguments
    return builder.select(_is_less(builder, call.return_type, b, a), a, b)


def _is_less(builder: Any, number: Any, a: Any, b: Any) -> Any:
    if isinstance(number, types.Float):
        return builder.fcmp_ordered("<", a, b)
    return builder.icmp_signed("<", a, b) if number.signed else builder.icmp_unsigned("<", a, b)
