"""Sigmoids: smooth forms of the step "j is ranked above i", as rows for the kernels and as torch functions.

========  ==========================  =====================================================================
name      σ(x)                        source
========  ==========================  =====================================================================
logistic  1 / (1 + exp(-x))           Qin, Liu & Li, ApproxNDCG, eq. 19; Westerborg 2022, eq. 2.9
tanh      (1 + tanh x) / 2            ibid., footnote 3; equal to logistic(2 x)
arctan    1/2 + arctan(x) / π         ibid.
erf       (1 + erf x) / 2             ibid.
relu      max(0, x)                   Liang et al., Top-N-Rank; not bounded by 1, and 0 rather than 1/2 at ties
========  ==========================  =====================================================================

The logistic function dominates the cost of a smooth loss, so it has two fast forms, neither of which calls ``exp`` per
pair:

- *factored*: with E_j = exp(x_j) once per item, σ(x_j - x_i) = E_j / (E_j + E_i). It is exact to rounding, but the
  range of a query's scores must be small enough that E does not overflow.
- *rational*: for any range, 1/2 + d p(d²) / q(d²) with d clipped to ±17 and p, q of degree 4, a minimax fit: its error
  is 5.3e-9 in exact arithmetic and below 2.5e-7 in float32 for all d (at the clip σ itself is 4.1e-8).

In float64 ``exp`` replaces the second form, because that path must be exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numba.extending import overload

from rankbound.errors import ArgumentError
from rankbound.losses.compiling import HELPER_OPTIONS, helper
from rankbound.losses.extremes import larger, smaller
from rankbound.losses.lazy_torch import torch
from rankbound.losses.memory import empty, zeros

__all__ = [
    "BLOCK",
    "RATIONAL_ERROR",
    "SIGMOIDS",
    "STRIDE",
    "Sigmoid",
    "add_row",
    "can_be_factored",
    "centered",
    "factors",
    "fill_exponentials",
    "get_sigmoid",
    "in_strides",
    "log_of_complement",
    "logistic",
    "padded",
    "sigmoid_row",
]

LOGISTIC, ARCTAN, ERF, RELU = range(4)


@dataclass(frozen=True, slots=True)
class Sigmoid:
    """A sigmoid: its code, a factor on x, and its torch form."""

    name: str
    code: int
    scale: float
    torch_form: Callable[[Any], Any]

    @property
    def kernel_code(self) -> int | None:
        """The code as the kernels have it: None for the logistic function, so that the others are not compiled."""
        return None if self.code == LOGISTIC else self.code


SIGMOIDS: Mapping[str, Sigmoid] = MappingProxyType(
    {
        sigmoid.name: sigmoid
        for sigmoid in (
            Sigmoid("logistic", LOGISTIC, 1.0, lambda x: torch.sigmoid(x)),
            Sigmoid("tanh", LOGISTIC, 2.0, lambda x: (1 + torch.tanh(x)) / 2),
            Sigmoid("arctan", ARCTAN, 1.0, lambda x: 0.5 + torch.atan(x) / math.pi),
            Sigmoid("erf", ERF, 1.0, lambda x: (1 + torch.erf(x)) / 2),
            Sigmoid("relu", RELU, 1.0, lambda x: torch.relu(x)),
        )
    }
)


def get_sigmoid(name: str) -> Sigmoid:
    """Look up a sigmoid by name."""
    if not isinstance(name, str) or name not in SIGMOIDS:
        raise ArgumentError(f"sigmoid must be one of {', '.join(SIGMOIDS)}, got {name!r}")
    return SIGMOIDS[name]


# ---- single values ---------------------------------------------------------------------------------------------------

f4 = np.float32
RATIONAL_ERROR = 2.5e-7  # of the float32 logistic, whatever its argument
_CLIP = f4(17.0)
_P0, _P1, _P2 = f4(0.24999998637580695), f4(8.378878038490033e-3), f4(5.50909062773909e-5)
_P3, _P4 = f4(8.250607234830328e-8), f4(1.3768781173955222e-11)
_Q0, _Q1, _Q2 = f4(1.0), f4(0.11684879060660709), f4(1.6244456491536579e-3)
_Q3, _Q4 = f4(5.212013213517982e-6), f4(3.1537546353471308e-9)
# -log(1 - t) = t (C0 + C1 t + ... + C7 t^7) on [0, 1/2], a minimax fit with an error of 3.1e-8 before rounding
_C0, _C1, _C2, _C3 = f4(0.9999940165836931), f4(0.500364639701707), f4(0.3257810851787478), f4(0.3248225502186316)
_C4, _C5, _C6, _C7 = f4(-0.20230754002499485), f4(1.384318120311901), f4(-1.8503508488582445), f4(1.5828332596510684)


def logistic(x: Any) -> Any:
    """1 / (1 + exp(-x)), by the form for the type of x."""
    return _rational(x) if type(x) is f4 else _exact(x)


def log_of_complement(t: Any) -> Any:
    """-log(1 - t) for 0 <= t <= 1/2, by the form for the type of t."""
    return _log_by_polynomial(t) if type(t) is f4 else _exact_log(t)


def exponential(x: Any) -> Any:
    """exp(x), in float32 for |x| of at most 40, by the form for the type of x."""
    return _exponential_by_series(x) if type(x) is f4 else _exact_exponential(x)


def _rational(x: Any) -> Any:
    d = smaller(larger(x, -_CLIP), _CLIP)
    y = d * d
    p = ((((_P4 * y + _P3) * y + _P2) * y + _P1) * y + _P0) * d
    q = (((_Q4 * y + _Q3) * y + _Q2) * y + _Q1) * y + _Q0
    return smaller(larger(f4(0.5) + p / q, f4(0.0)), f4(1.0))


def _exact(x: Any) -> Any:
    return 1.0 / (1.0 + math.exp(-smaller(larger(x, -700.0), 700.0)))


def _log_by_polynomial(t: Any) -> Any:
    return t * (((((((_C7 * t + _C6) * t + _C5) * t + _C4) * t + _C3) * t + _C2) * t + _C1) * t + _C0)


def _exact_log(t: Any) -> Any:
    return -math.log(1.0 - t)


def _exponential_by_series(x: Any) -> Any:
    """exp(x/64)^64, the inner one by its series: 4e-7 off at ±40, and it vectorizes."""
    y = float(x) / 64
    p = 1 + y / 6 * (1 + y / 7 * (1 + y / 8 * (1 + y / 9)))
    p = 1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * p))))
    p = p * p * (p * p)
    p = p * p * (p * p)
    return p * p * (p * p)


def _exact_exponential(x: Any) -> Any:
    return math.exp(x)


# Compiled code selects the form by type once, at compile time.


@overload(logistic, jit_options=HELPER_OPTIONS)  # type: ignore[untyped-decorator]
def _logistic_by_type(x: Any) -> Any:
    return _rational if x.bitwidth == 32 else _exact


@overload(log_of_complement, jit_options=HELPER_OPTIONS)  # type: ignore[untyped-decorator]
def _log_of_complement_by_type(t: Any) -> Any:
    return _log_by_polynomial if t.bitwidth == 32 else _exact_log


@overload(exponential, jit_options=HELPER_OPTIONS)  # type: ignore[untyped-decorator]
def _exponential_by_type(x: Any) -> Any:
    return _exponential_by_series if x.bitwidth == 32 else _exact_exponential


# ---- rows: item i against other items of its query -------------------------------------------------------------------

_FEW_ROWS = 4  # with fewer rows, N exponentials cost more than they save
STRIDE = 32  # items per step of a vectorized loop; a remainder would be processed item by item
BLOCK = 2048  # terms that are summed in the precision of the row before they are added to a float64


@helper
def centered(scores: Any, order: Any, alpha: float) -> Any:
    """alpha * (scores - midrange) in the order ``order``, and the largest absolute value of the result.

    Centering preserves the precision of differences however large the scores are.
    """
    lowest, highest = scores[0], scores[0]
    for j in range(len(scores)):
        lowest = scores[j] if scores[j] < lowest else lowest  # min and max would be functions of their own to compile
        highest = scores[j] if scores[j] > highest else highest
    half = (highest - lowest) / 2
    middle = lowest + half
    x = empty(len(scores), scores)
    for j in range(len(x)):
        x[j] = alpha * (scores[order[j]] - middle)
    return x, alpha * half


@helper
def in_strides(count: int) -> int:
    """Round up to whole strides."""
    return -(-count // STRIDE) * STRIDE


@helper
def padded(values: Any, length: int) -> Any:
    """Copy values and append zeros up to a length, which must not be smaller than their number."""
    result = zeros(length, values)
    for j in range(len(values)):
        result[j] = values[j]
    return result


@helper
def can_be_factored(x: Any, largest: float) -> bool:
    """Whether exp(x) and sums of two of them stay within the type of x."""
    return largest <= (40.0 if x.itemsize == 4 else 300.0)


@helper
def factors(x: Any, largest: float, rows: int, code: int | None) -> Any:
    """exp(x) for the factored logistic, or an empty array if rows must be computed from x itself.

    Zeros fill the last stride. They stand for items at minus infinity, which contribute nothing.
    """
    if code is not None or rows < _FEW_ROWS or not can_be_factored(x, largest):
        return x[:0]
    result = zeros(in_strides(len(x)), x)
    fill_exponentials(x, result)
    return result


@helper
def fill_exponentials(x: Any, result: Any) -> None:
    """result[j] = exp(x[j]), for |x| of at most 40 in float32."""
    for j in range(len(x)):
        result[j] = exponential(x[j])


@helper
def sigmoid_row(
    code: int | None, x: Any, exponentials: Any, i: int, start: int, end: int, value: Any, slope: Any
) -> float:  # fmt: skip
    """value[j] = σ(x_j - x_i), slope[j] = σ'(x_j - x_i) for start <= j < end, both 0 at j = i; returns sum(value).

    ``code`` is None for the logistic function. Blocks are summed in the precision of the row, which is fast, and their
    sums in float64, which is exact.
    """
    result = 0.0
    for begin in range(start, end, BLOCK):
        stop = smaller(begin + BLOCK, end)
        if code is not None:
            result += _other_block(code, x, x[i], begin, stop, value, slope)
        elif len(exponentials) > 0:
            result += _factored_block(exponentials, exponentials[i], begin, stop, value, slope)
        else:
            result += _logistic_block(x, x[i], begin, stop, value, slope)
    if start <= i < end:
        result -= value[i]
        value[i] = 0
        slope[i] = 0
    return result


# Indices are unsigned, because LLVM does not vectorize loops over indices that might be negative, and because slices
# cost more than a short row.


@helper
def _factored_block(exponentials: Any, own: float, start: int, end: int, value: Any, slope: Any) -> Any:
    one, result = value.dtype.type(1), value.dtype.type(0)
    for j in range(np.uintp(start), np.uintp(end)):
        inverse = one / (exponentials[j] + own)
        above = exponentials[j] * inverse
        value[j] = above
        slope[j] = above * (own * inverse)
        result += above
    return result


@helper
def _logistic_block(x: Any, here: float, start: int, end: int, value: Any, slope: Any) -> Any:
    one, result = value.dtype.type(1), value.dtype.type(0)
    for j in range(np.uintp(start), np.uintp(end)):
        above = logistic(x[j] - here)
        value[j] = above
        slope[j] = above * (one - above)
    for j in range(np.uintp(start), np.uintp(end)):
        result += value[j]
    return result


@helper
def _other_block(code: int, x: Any, here: float, start: int, end: int, value: Any, slope: Any) -> Any:
    zero, one, half = x.dtype.type(0), x.dtype.type(1), x.dtype.type(0.5)
    result = zero
    if code == ARCTAN:
        flat = x.dtype.type(1 / math.pi)
        for j in range(np.uintp(start), np.uintp(end)):
            d = x[j] - here
            value[j] = half + math.atan(d) * flat
            slope[j] = flat / (one + d * d)
    elif code == ERF:
        peak, far = x.dtype.type(1 / math.sqrt(math.pi)), x.dtype.type(9)
        for j in range(np.uintp(start), np.uintp(end)):
            d = smaller(larger(x[j] - here, -far), far)
            value[j] = half + half * math.erf(d)
            slope[j] = peak * math.exp(-d * d)
    else:
        for j in range(np.uintp(start), np.uintp(end)):
            d = x[j] - here
            value[j] = larger(d, zero)
            slope[j] = one if d > zero else zero
    for j in range(np.uintp(start), np.uintp(end)):
        result += value[j]
    return result


@helper
def add_row(row: Any, factor: float, start: int, end: int, out: Any) -> float:
    """Add factor * row[start:end] to the columns; returns the sum of what was added, computed by blocks as above."""
    c, result = row.dtype.type(factor), 0.0
    for begin in range(start, end, BLOCK):
        partial = row.dtype.type(0)
        for j in range(np.uintp(begin), np.uintp(smaller(begin + BLOCK, end))):
            out[j] += c * row[j]
            partial += row[j]
        result += partial
    return factor * result
