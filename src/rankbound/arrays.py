"""Arrays from outside: what users hand over comes in through here, and is a plain NumPy array from then on.

Taken are NumPy arrays of any layout, byte order and class, lists and tuples, Series of pandas and polars, torch
tensors, and arrays of Python objects that are numbers. Refused, with an error that names the argument, are masked and
missing entries, complex numbers, text and dates where numbers are asked for, generators, mappings and None. An array
that is clean already comes out as it went in, without a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "array_of",
    "check_finite",
    "floats",
    "for_kernel",
    "integers",
    "is_between",
    "labels_of",
    "mask_of",
    "names_of",
    "numbers",
    "offsets_of",
    "weights_of",
]

_NUMBER = (bool, int, float, np.bool_, np.integer, np.floating)
_INT64 = np.dtype(np.int64)
_MOST_WEIGHT = 1e30
_MOST = 2**31  # labels lie below this, in magnitude


def array_of(name: str, values: Any) -> NDArray[Any]:
    """Values of any kind as a plain array in native byte order."""
    array = values if type(values) is np.ndarray else _converted(name, values)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def numbers(name: str, values: Any, ndim: int | None = 1) -> NDArray[Any]:
    """Real numbers of any type, in so many dimensions; None allows any number of them.

    >>> numbers("scores", ["a", "b"])
    Traceback (most recent call last):
    rankbound.errors.DataError: scores must be numbers, got <U1 such as 'a'
    """
    array = array_of(name, values)
    if array.dtype.kind == "O":
        array = _from_objects(array)
    if array.dtype.kind not in "biuf":
        if array.size:
            raise DataError(f"{name} must be numbers, got {array.dtype} such as {array.ravel()[:1].tolist()[0]!r:.60}")
        array = np.zeros(array.shape)
    if ndim is not None and array.ndim != ndim:
        raise DataError(f"{name} must be {ndim}-D, got shape {array.shape}")
    return array


def floats(
    name: str,
    values: Any,
    *,
    ndim: int | None = 1,
    length: int | None = None,
    finite: bool = True,
    most: float | None = None,
) -> NDArray[np.float64]:
    """Real numbers as contiguous float64, finite unless told otherwise; ``most`` bounds their magnitude.

    >>> floats("differences", [0.5, float("nan")])
    Traceback (most recent call last):
    rankbound.errors.DataError: differences must be finite, got nan at position 1
    """
    array = numbers(name, values, ndim)
    _check_length(name, array, length)
    if array.dtype != np.float64:
        with np.errstate(over="ignore"):  # of a longdouble: an infinity is refused below
            array = array.astype(np.float64)
    if finite:
        check_finite(name, array)
    if most is not None and (np.abs(array) > most).any():
        raise DataError(f"{name} must be at most {most:g} in magnitude, got {np.abs(array).max():g}")
    # sums over other layouts are taken in another order, and differ in their last digits
    return array if array.flags.c_contiguous else array.copy()


def integers(
    name: str, values: Any, *, ndim: int | None = 1, length: int | None = None, least: int | None = None
) -> NDArray[np.int64]:
    """Whole numbers, of an integer type, as int64.

    >>> integers("group", [3, -1], least=0)
    Traceback (most recent call last):
    rankbound.errors.DataError: group must be integers from 0 on, got -1
    """
    if type(values) is np.ndarray and values.dtype == _INT64 and (ndim, length, least) == (values.ndim, None, None):
        return values
    array = numbers(name, values, ndim)
    if array.dtype.kind not in "iu" and array.size:
        shape = "" if ndim is None else f"{ndim}-D "
        raise DataError(f"{name} must be {shape}integers, got {array.dtype} of shape {array.shape}")
    _check_length(name, array, length)
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise DataError(f"{name} must be below 2^63, got {array.max()}")
    whole = array.astype(np.int64, copy=False)
    if least is not None and whole.size and whole.min() < least:
        raise DataError(f"{name} must be integers from {least} on, got {whole.min()}")
    return whole


def offsets_of(values: Any) -> NDArray[np.int64]:
    """Where each query begins, and at the end the number of items: integers from 0 on that never decrease."""
    offsets = integers("offsets", values)
    if len(offsets) == 0 or offsets[0] != 0:
        raise DataError(f"offsets must begin with 0, got {offsets[:1].tolist()}")
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        at = int(np.flatnonzero(falls)[0])
        raise DataError(f"offsets must never decrease, got {offsets[at]} then {offsets[at + 1]}")
    return offsets


def labels_of(values: Any, name: str = "labels") -> NDArray[Any]:
    """Relevance of items: int32 where all are whole numbers, else float64; below 2^31 in magnitude."""
    labels = numbers(name, values)
    if labels.dtype == np.int32:
        return labels
    if labels.dtype.kind == "f":
        check_finite(name, labels)
    if labels.dtype.itemsize >= 4 and len(labels):
        low, high = labels.min(), labels.max()
        if low < -_MOST or high >= _MOST:
            raise DataError(f"{name} must be below 2^31 in magnitude, got {high if high >= _MOST else low}")
    whole = labels.astype(np.int32)
    if labels.dtype.kind != "f" or (whole == labels).all():
        return whole
    return labels.astype(np.float64)


def mask_of(name: str, values: Any, ndim: int | None = 2, length: int | None = None) -> NDArray[np.bool_]:
    """Return a boolean array from booleans or from the numbers 1 and 0."""
    mask = numbers(name, values, ndim)
    _check_length(name, mask, length)
    if mask.dtype != bool:
        if not ((mask == 0) | (mask == 1)).all():
            raise DataError(f"{name} must be true or false everywhere, got {mask[(mask != 0) & (mask != 1)][0]}")
        mask = mask.astype(bool)
    return mask


def weights_of(name: str, values: Any, length: int | None = None) -> NDArray[np.float64]:
    """Weights from 0 on, small enough that what they weigh does not overflow, not even in 32 bits."""
    weights = floats(name, values, length=length, finite=False)
    low, high = weights.min(initial=0), weights.max(initial=0)
    if not (low >= 0 and high <= _MOST_WEIGHT):  # NaN neither
        rule = f"must be finite and not negative, and at most {_MOST_WEIGHT:g}"
        raise DataError(f"{name} {rule}, got {low if not low >= 0 else high}")
    return weights


def names_of(name: str, values: Any, length: int | None = None) -> NDArray[Any]:
    """Names of queries: numbers or texts, none of them missing, that can be told apart and sorted.

    >>> names_of("qid", ["a", None])
    Traceback (most recent call last):
    rankbound.errors.DataError: qid must be known for every row, got None at row 1
    """
    names = array_of(name, values)
    if names.ndim != 1:
        raise DataError(f"{name} must be 1-D, got shape {names.shape}")
    _check_length(name, names, length)
    if names.dtype.kind in "cV":
        raise DataError(f"{name} must be numbers or texts, got {names.dtype}")
    missing = np.zeros(len(names), bool)
    if names.dtype.kind in "fmM":
        missing = names != names
    elif names.dtype.kind == "O":
        missing = np.fromiter(map(_is_missing, names), bool, len(names))
        kinds = {str if isinstance(each, str) else float if isinstance(each, _NUMBER) else type(each) for each in names}
        if not missing.any() and (len(kinds) > 1 or not kinds <= {str, float, bytes}):
            shown = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise DataError(f"{name} must be all numbers or all texts, got {shown}")
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise DataError(f"{name} must be known for every row, got {_shown(names[row])} at row {row}")
    return names


def is_between(value: Any, low: float, high: float) -> bool:
    """Whether something is one real number between two others."""
    return isinstance(value, _NUMBER) and not isinstance(value, (bool, np.bool_)) and bool(low < value < high)


def for_kernel(array: NDArray[Any]) -> NDArray[Any]:
    """The array as compiled code takes it: contiguous, aligned, writeable. For any other it would be compiled anew."""
    return array if array.flags.carray else array.copy()


# ---- conversion ------------------------------------------------------------------------------------------------------


def _converted(name: str, values: Any) -> NDArray[Any]:
    if values is None or isinstance(values, (str, bytes, Mapping, Set, Iterator)):
        raise DataError(f"{name} must be an array, got {values!r:.60}")
    torch = sys.modules.get("torch")  # who has no torch has no tensor
    if torch is not None and isinstance(values, torch.Tensor):
        return _from_tensor(name, values)
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise DataError(f"{name} must have no masked entries, got {int(np.ma.getmaskarray(values).sum())}")
        values = values.data
    try:
        array = np.asarray(values)
    except Exception as error:  # whatever another library's own conversion raises
        raise DataError(f"{name} cannot be made an array, got {type(values).__name__}: {error}") from error
    if array.dtype.kind == "O" and array.ndim == 0:
        raise DataError(f"{name} must be an array, got {type(values).__name__}")
    return array


def _from_tensor(name: str, tensor: Any) -> NDArray[Any]:
    try:
        if tensor.is_floating_point() and tensor.element_size() < 4:  # bfloat16 is not known to NumPy
            tensor = tensor.float()
        array: NDArray[Any] = tensor.numpy(force=True)
    except (TypeError, RuntimeError) as error:  # without values, or sparse
        what = f"{tensor.dtype} with layout {tensor.layout} on {tensor.device}"
        raise DataError(f"{name} must be a dense tensor with values, got {what}") from error
    return array


def _from_objects(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers out of their objects; the array as it is where one is something else."""
    if not all(isinstance(value, _NUMBER) for value in array.flat):
        return array
    found = np.array(array.tolist())  # an integer beyond 64 bits leaves objects
    return found.reshape(array.shape) if found.dtype.kind in "biuf" else array


# ---- checks ----------------------------------------------------------------------------------------------------------


def _check_length(name: str, array: NDArray[Any], length: int | None) -> None:
    if length is not None and array.shape[:1] != (length,):
        raise DataError(f"{name} must have {length} entries, got {len(array)}")


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Refuse NaN and infinities, by the place of the first."""
    finite = np.isfinite(array)
    if not finite.all():
        at = np.unravel_index(int(np.argmin(finite)), array.shape)
        where = int(at[0]) if len(at) == 1 else tuple(int(each) for each in at)
        raise DataError(f"{name} must be finite, got {array[at]} at position {where}")


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA is neither equal nor unequal to anything
        return True


def _shown(value: Any) -> str:
    return "NaN" if isinstance(value, (float, np.floating)) else str(value)
