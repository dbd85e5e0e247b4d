"""Hostile variations of an array: other forms of the same numbers, bad values, bad shapes, things that are no array."""

from __future__ import annotations

import array
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

pytest.importorskip("pandas")
pytest.importorskip("torch")

import pandas as pd
import torch

__all__ = ["VARIATIONS", "Variation", "same_content"]

SAME, CLOSE, REFUSED, EITHER = "same", "close", "refused", "either"


@dataclass(frozen=True)
class Variation:
    """One way to hand over an array, and what may come of it.

    ``expect``: "same" result as of the clean array (or "close", within 32-bit precision), "refused" with an error of
    ours, or "either" of them where a result must be sound (no NaN, no infinity). ``make`` gives None where the
    variation does not fit the array.
    """

    name: str
    expect: str
    make: Callable[[np.ndarray], Any]


class _Sub(np.ndarray):
    """An array of another class."""


class _Protocol:
    """What NumPy can make an array of, and nothing else."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values.astype(dtype or self.values.dtype)


# ---- the same numbers in another form --------------------------------------------------------------------------------


def _unaligned(clean: np.ndarray) -> np.ndarray:
    shifted = np.frombuffer(b"\0" + clean.tobytes(), dtype=np.uint8)[1:].copy()
    buffer = np.empty(len(shifted) + 1, np.uint8)
    buffer[1:] = shifted
    return buffer[1:].view(clean.dtype).reshape(clean.shape)


def _read_only(clean: np.ndarray) -> np.ndarray:
    copy = clean.copy()
    copy.flags.writeable = False
    return copy


def _series(clean: np.ndarray) -> Any:
    """An index that is neither in order nor of the positions, so that a look-up by label goes wrong."""
    if clean.ndim != 1:
        return None
    return pd.Series(clean, index=np.arange(len(clean))[::-1] + 7)


def _nullable(clean: np.ndarray) -> Any:
    return None if clean.ndim != 1 or clean.dtype.kind not in "if" else _series(clean).convert_dtypes()


def _polars(clean: np.ndarray) -> Any:
    return pl.Series(clean) if clean.ndim == 1 else None


def _chunked(clean: np.ndarray) -> Any:
    if clean.ndim != 1 or len(clean) < 2:
        return None
    return pl.concat([pl.Series(clean[:1]), pl.Series(clean[1:])], rechunk=False)


def _tensor(clean: np.ndarray) -> Any:
    return torch.from_numpy(clean.copy()) if clean.dtype.kind in "bif" else None


def _wants_gradient(clean: np.ndarray) -> Any:
    return torch.from_numpy(clean.copy()).requires_grad_() if clean.dtype.kind == "f" else None


def _buffer(clean: np.ndarray) -> Any:
    codes = {"f": "d", "i": "q"}
    return (
        array.array(codes[clean.dtype.kind], clean.tolist()) if clean.ndim == 1 and clean.dtype.kind in "if" else None
    )


def _stride_zero(clean: np.ndarray) -> Any:
    return np.broadcast_to(clean.flat[0], clean.shape) if clean.size and (clean == clean.flat[0]).all() else None


def _of_type(kind: Any) -> Callable[[np.ndarray], Any]:
    def make(clean: np.ndarray) -> Any:
        if clean.dtype.kind not in "biuf" or clean.dtype == np.dtype(kind):
            return None
        with np.errstate(all="ignore"):
            other = clean.astype(kind)
            fits = np.array_equal(other.astype(clean.dtype), clean) and np.array_equal(other, clean)
        return other if fits else None

    return make


FORMS = [
    Variation("strided", SAME, lambda a: np.repeat(a, 2, axis=0)[::2]),
    Variation("strided column", SAME, lambda a: np.stack([a, a], axis=-1)[..., 1]),
    Variation("reversed", SAME, lambda a: a[::-1].copy()[::-1]),
    Variation("Fortran", SAME, lambda a: np.asfortranarray(a) if a.ndim > 1 else None),
    Variation("stride 0", SAME, _stride_zero),
    Variation("unaligned", SAME, lambda a: _unaligned(a) if a.dtype.itemsize > 1 else None),
    Variation("read-only", SAME, _read_only),
    Variation("big-endian", SAME, lambda a: a.astype(a.dtype.newbyteorder(">")) if a.dtype.kind in "ifU" else None),
    Variation("list", SAME, lambda a: a.tolist()),
    Variation("tuple", SAME, lambda a: tuple(a.tolist())),
    Variation("list of NumPy numbers", SAME, list),
    Variation("objects", SAME, lambda a: a.astype(object)),
    Variation("subclass", SAME, lambda a: a.copy().view(_Sub)),
    Variation("masked array without mask", SAME, lambda a: np.ma.masked_array(a.copy())),
    Variation("array protocol", SAME, _Protocol),
    Variation("buffer", SAME, _buffer),
    Variation("memoryview", SAME, lambda a: memoryview(a.copy()) if a.dtype.kind in "if" else None),
    Variation("pandas Series", SAME, _series),
    Variation("nullable pandas Series", SAME, _nullable),
    Variation("pandas Index", SAME, lambda a: pd.Index(a) if a.ndim == 1 else None),
    Variation("polars Series", SAME, _polars),
    Variation("polars Series in chunks", SAME, _chunked),
    Variation("torch tensor", SAME, _tensor),
    Variation("torch tensor with gradient", SAME, _wants_gradient),
    *(
        Variation(f"as {kind}", SAME, _of_type(kind))
        for kind in "bool int8 uint8 int16 int32 uint32 int64 uint64 float16 float32 float64 longdouble".split()
    ),
]


# ---- bad values ------------------------------------------------------------------------------------------------------


def _with(value: Any, kind: Any = np.float64) -> Callable[[np.ndarray], Any]:
    """The array with its last entry replaced (an entry that every query needs), as numbers of another type."""

    def make(clean: np.ndarray) -> Any:
        if clean.dtype.kind not in "biuf" or not clean.size:
            return None
        bad = clean.astype(kind)
        bad.flat[-1] = value
        return bad

    return make


def _all(value: Any, kind: Any = np.float64) -> Callable[[np.ndarray], Any]:
    return lambda clean: np.full(clean.shape, value, dtype=kind) if clean.dtype.kind in "biuf" else None


def _masked(clean: np.ndarray) -> Any:
    mask = np.zeros(clean.shape, bool)
    mask.flat[-1:] = True
    return np.ma.masked_array(clean, mask)


def _polars_with_null(clean: np.ndarray) -> Any:
    return pl.Series([*clean.tolist()[:-1], None]) if clean.ndim == 1 and clean.size else None


def _pandas_with_null(clean: np.ndarray) -> Any:
    if clean.ndim != 1 or not clean.size or clean.dtype.kind not in "iu":
        return None
    return pd.Series(pd.array([*clean.tolist()[:-1], None], dtype="Int64"))


def _last_object(value: Any) -> Callable[[np.ndarray], Any]:
    def make(clean: np.ndarray) -> Any:
        bad = clean.astype(object)
        if bad.size:
            bad[np.unravel_index(bad.size - 1, bad.shape)] = value
        return bad

    return make


TOP = np.iinfo(np.uint64).max
VALUES = [
    Variation("NaN", REFUSED, _with(np.nan)),
    Variation("float32 NaN", REFUSED, _with(np.nan, np.float32)),
    Variation("all NaN", REFUSED, _all(np.nan)),
    Variation("inf", REFUSED, _with(np.inf)),
    Variation("-inf", REFUSED, _with(-np.inf)),
    Variation("float16 inf", REFUSED, _with(np.inf, np.float16)),
    Variation("beyond float64", REFUSED, _with(np.longdouble("1e4000"), np.longdouble)),
    Variation("-0.0", EITHER, _with(-0.0)),
    Variation("subnormal", EITHER, _with(5e-324)),
    Variation("all subnormal", EITHER, _all(5e-324)),
    Variation("1e-308", EITHER, _with(1e-308)),
    Variation("all 1e-308", EITHER, _all(1e-308)),
    Variation("1e308", EITHER, _with(1e308)),
    Variation("-1e308", EITHER, _with(-1e308)),
    Variation("all 1e308", EITHER, _all(1e308)),
    Variation("1e150", EITHER, _with(1e150)),
    Variation("float32 3e38", EITHER, _with(3e38, np.float32)),
    Variation("5000", EITHER, _with(5000, np.int64)),
    Variation("all 1000", EITHER, _all(1000, np.int64)),
    Variation("2^31", EITHER, _with(2**31, np.int64)),
    Variation("2^53 + 1", EITHER, _with(2**53 + 1, np.int64)),
    Variation("2^63 - 1", EITHER, _with(2**63 - 1, np.int64)),
    Variation("-2^63", EITHER, _with(-(2**63), np.int64)),
    Variation("all -2^63", EITHER, _all(-(2**63), np.int64)),
    Variation("2^64 - 1", EITHER, lambda a: _with(TOP, np.uint64)(np.maximum(a, 0) if a.dtype.kind in "if" else a)),
    Variation("all 2^64 - 1", EITHER, _all(TOP, np.uint64)),
    Variation("2^70", REFUSED, _last_object(2**70)),
    Variation("negative", EITHER, _with(-1)),
    Variation("all negative", EITHER, _all(-1, np.int64)),
    Variation("a half", EITHER, _with(0.5)),
    Variation("all equal", EITHER, _all(1.0)),
    Variation("complex", REFUSED, lambda a: a.astype(complex) if a.dtype.kind in "biuf" else None),
    Variation("text", REFUSED, lambda a: a.astype(str) if a.dtype.kind in "biuf" else None),
    Variation("bytes", REFUSED, lambda a: a.astype("S8") if a.dtype.kind in "biuf" else None),
    Variation("list of text", REFUSED, lambda a: a.astype(str).tolist() if a.dtype.kind in "biuf" else None),
    Variation("dates", REFUSED, lambda a: a.astype(np.int64).astype("M8[s]") if a.dtype.kind in "biuf" else None),
    Variation("durations", REFUSED, lambda a: a.astype(np.int64).astype("m8[s]") if a.dtype.kind in "biuf" else None),
    Variation("records", REFUSED, lambda a: np.zeros(a.shape, dtype=[("x", "f8")])),
    Variation("masked entry", REFUSED, _masked),
    Variation("polars null", REFUSED, _polars_with_null),
    Variation("pandas NA", REFUSED, _pandas_with_null),
    Variation("object None", REFUSED, _last_object(None)),
    Variation("object text", REFUSED, lambda a: _last_object("x")(a) if a.dtype.kind in "biuf" else None),
    Variation("object list", REFUSED, _last_object([1])),
    Variation("meta tensor", REFUSED, lambda a: torch.zeros(a.shape, device="meta") if a.dtype.kind in "bif" else None),
    Variation("sparse tensor", REFUSED, lambda a: torch.zeros(a.shape).to_sparse() if a.dtype.kind in "bif" else None),
    Variation("complex tensor", REFUSED, lambda a: torch.zeros(a.shape, dtype=torch.complex64)),
    Variation("sparse matrix", REFUSED, lambda a: csr_array(np.ones((3, 3))) if a.ndim else None),
]


# ---- bad shapes and no arrays ----------------------------------------------------------------------------------------


def _matrix(clean: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # NumPy's own, of the class
        return np.asmatrix(clean) if clean.ndim == 1 else None


def _generator(clean: np.ndarray) -> Iterator[Any]:
    return (value for value in clean.tolist())


SHAPES = [
    Variation("empty", EITHER, lambda a: a[:0]),
    Variation("empty list", EITHER, lambda a: []),
    Variation("one entry", EITHER, lambda a: a[:1]),
    Variation("one too few", REFUSED, lambda a: a[:-1]),
    Variation("one too many", REFUSED, lambda a: np.concatenate([a, a[-1:]])),
    Variation("0-d", REFUSED, lambda a: a.flat[0].reshape(()) if a.size else None),
    Variation("number", REFUSED, lambda a: a.flat[0].item()),
    Variation("a dimension more", REFUSED, lambda a: np.stack([a, a])),
    Variation("no entries in two dimensions", REFUSED, lambda a: np.zeros((0, *a.shape), a.dtype)),
    Variation("matrix", REFUSED, _matrix),
    Variation("ragged", REFUSED, lambda a: [a.tolist(), a.tolist()[:-1]]),
    Variation("None", REFUSED, lambda a: None),
    Variation("generator", REFUSED, _generator),
    Variation("dict", REFUSED, lambda a: dict(enumerate(a.tolist()))),
    Variation("set", REFUSED, lambda a: set(map(str, a.ravel().tolist()))),
    Variation("word", REFUSED, lambda a: "word"),
    Variation("object", REFUSED, lambda a: object()),
    Variation("pandas frame", REFUSED, lambda a: pd.DataFrame({"a": a, "b": a}) if a.ndim == 1 else None),
    Variation("polars frame", REFUSED, lambda a: pl.DataFrame({"a": a, "b": a}) if a.ndim == 1 else None),
]
NOTHING = "None"  # the one variation that is None on purpose
VARIATIONS = {variation.name: variation for variation in (*FORMS, *VALUES, *SHAPES)}
assert len(VARIATIONS) == len(FORMS) + len(VALUES) + len(SHAPES)


def same_content(first: Any, second: Any) -> bool:
    """Whether two hand-overs of one variation hold the same: what a call must not have changed."""
    if isinstance(first, torch.Tensor):
        if first.device.type == "meta" or first.layout != torch.strided:
            return True
        return torch.equal(first.detach().nan_to_num(7), second.detach().nan_to_num(7))
    if isinstance(first, (np.ndarray, pd.Series, pl.Series)):
        return str(first) == str(second) and str(first.dtype) == str(second.dtype)
    if isinstance(first, (_Protocol, memoryview)):
        return np.array_equal(np.asarray(first), np.asarray(second))
    return isinstance(first, (csr_array, Iterator)) or str(first) == str(second) or type(first) is object
