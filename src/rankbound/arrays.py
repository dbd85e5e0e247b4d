"""Validation of arrays that users pass in; each function returns a plain NumPy array.

Accepted are NumPy arrays of any layout, byte order and class, lists and tuples, Series of pandas and polars, torch
tensors, and arrays of Python objects that are numbers. Masked and missing entries, complex numbers, text and dates in
place of numbers, generators, mappings and None are refused with an error that names the argument. An array that is
valid already is returned without a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMBER = (bool, int, float, np.bool_, np.integer, np.floating)
_INT64 = np.dtype(np.int64)
_MOST_WEIGHT = 1e30
_MOST = 2**31  # labels are smaller, in magnitude


def array_of(name: str, values: Any) -> NDArray[Any]:
    """Return values of any kind as a plain array in native byte order."""
    array = values if type(values) is np.ndarray else _converted(name, values)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def numbers(name: str, values: Any, ndim: int | None = 1) -> NDArray[Any]:
    """Return real numbers of any type; ``ndim`` is the required number of dimensions, None allows any.

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
    """Return real numbers as contiguous float64, by default finite; ``most`` bounds their magnitude.

    >>> floats("differences", [0.5, float("nan")])
    Traceback (most recent call last):
    rankbound.errors.DataError: differences must be finite, got nan at position 1
    """
    array = numbers(name, values, ndim)
    _check_length(name, array, length)
    if array.dtype != np.float64:
        with np.errstate(over="ignore"):  # a longdouble that overflows is refused below
            array = array.astype(np.float64)
    if finite:
        check_finite(name, array)
    if most is not None and (np.abs(array) > most).any():
        raise DataError(f"{name} must be at most {most:g} in magnitude, got {np.abs(array).max():g}")
    # NumPy sums other layouts in another order, which changes the last digits
    return array if array.flags.c_contiguous else array.copy()


def integers(
    name: str, values: Any, *, ndim: int | None = 1, length: int | None = None, least: int | None = None
) -> NDArray[np.int64]:
    """Return integers as int64.

    >>> integers("group", [3, -1], least=0)
    Traceback (most recent call last):
    rankbound.errors.DataError: group must be integers of at least 0, got -1
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
    result = array.astype(np.int64, copy=False)
    if least is not None and result.size and result.min() < least:
        raise DataError(f"{name} must be integers of at least {least}, got {result.min()}")
    return result


def offsets_of(values: Any) -> NDArray[np.int64]:
    """Return validated offsets: the start of each query and the number of items, integers that never decrease."""
    offsets = integers("offsets", values)
    if len(offsets) == 0 or offsets[0] != 0:
        raise DataError(f"offsets must begin with 0, got {offsets[:1].tolist()}")
    decreases = offsets[1:] < offsets[:-1]
    if decreases.any():
        index = int(np.flatnonzero(decreases)[0])
        raise DataError(f"offsets must never decrease, got {offsets[index]} then {offsets[index + 1]}")
    return offsets


def labels_of(values: Any, name: str = "labels") -> NDArray[Any]:
    """Return validated labels: int32 if all are integers, else float64; smaller than 2^31 in magnitude."""
    is_plain = type(values) is np.ndarray and values.ndim == 1 and values.dtype in (np.float64, np.int32)
    labels = values if is_plain else numbers(name, values)
    if labels.dtype == np.int32:
        return labels
    if labels.dtype == np.float16:
        check_finite(name, labels)
    elif labels.dtype.itemsize >= 4 and len(labels):
        low, high = labels.min(), labels.max()
        if not (low >= -_MOST and high < _MOST):  # NaN is refused, too
            check_finite(name, labels)
            raise DataError(f"{name} must be below 2^31 in magnitude, got {high if high >= _MOST else low}")
    rounded = labels.astype(np.int32)
    if labels.dtype.kind != "f" or (rounded == labels).all():
        return rounded
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
    """Return validated weights: not negative, and small enough that weighted values do not overflow in 32 bits."""
    weights = floats(name, values, length=length, finite=False)
    low, high = weights.min(initial=0), weights.max(initial=0)
    if not (low >= 0 and high <= _MOST_WEIGHT):  # also refuses NaN
        rule = f"must be finite and not negative, and at most {_MOST_WEIGHT:g}"
        raise DataError(f"{name} {rule}, got {low if not low >= 0 else high}")
    return weights


def names_of(name: str, values: Any, length: int | None = None) -> NDArray[Any]:
    """Return validated names: all numbers or all texts, none of them missing, so that they can be sorted.

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
    """Return whether a value is one real number strictly between two others."""
    return isinstance(value, _NUMBER) and not isinstance(value, (bool, np.bool_)) and bool(low < value < high)


def for_kernel(array: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous, aligned and writeable array, as kernels and torch take them."""
    return array if array.flags.carray else array.copy()


# ---- conversion ------------------------------------------------------------------------------------------------------


def _converted(name: str, values: Any) -> NDArray[Any]:
    if values is None or isinstance(values, (str, bytes, Mapping, Set, Iterator)):
        raise DataError(f"{name} must be an array, got {values!r:.60}")
    torch = sys.modules.get("torch")  # tensors exist only if torch was imported
    if torch is not None and isinstance(values, torch.Tensor):
        return _from_tensor(name, values)
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise DataError(f"{name} must have no masked entries, got {int(np.ma.getmaskarray(values).sum())}")
        values = values.data
    try:
        array = np.asarray(values)
    except Exception as error:  # the conversion of another library can raise anything
        raise DataError(f"{name} cannot be converted to an array, got {type(values).__name__}: {error}") from error
    if array.dtype.kind == "O" and array.ndim == 0:
        raise DataError(f"{name} must be an array, got {type(values).__name__}")
    return array


def _from_tensor(name: str, tensor: Any) -> NDArray[Any]:
    try:
        if tensor.is_floating_point() and tensor.element_size() < 4:  # NumPy has no bfloat16
            tensor = tensor.float()
        array: NDArray[Any] = tensor.numpy(force=True)
    except (TypeError, RuntimeError) as error:  # a meta or sparse tensor
        what = f"{tensor.dtype} with layout {tensor.layout} on {tensor.device}"
        raise DataError(f"{name} must be a dense tensor with values, got {what}") from error
    return array


def _from_objects(array: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers of an array of objects; the array itself if some object is not a number."""
    if not all(isinstance(value, _NUMBER) for value in array.flat):
        return array
    result = np.array(array.tolist())  # integers of more than 64 bits stay objects
    return result.reshape(array.shape) if result.dtype.kind in "biuf" else array


# ---- checks ----------------------------------------------------------------------------------------------------------


def _check_length(name: str, array: NDArray[Any], length: int | None) -> None:
    if length is not None and array.shape[:1] != (length,):
        raise DataError(f"{name} must have {length} entries, got {len(array)}")


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Raise DataError that names the position of the first NaN or infinity."""
    if array.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(array.sum()):  # half the time of a look at every number
                return
    finite = np.isfinite(array)
    if not finite.all():
        index = np.unravel_index(int(np.argmin(finite)), array.shape)
        position = int(index[0]) if len(index) == 1 else tuple(int(axis) for axis in index)
        raise DataError(f"{name} must be finite, got {array[index]} at position {position}")


def offsets_of_groups(group: Any, rows: int, user: str) -> NDArray[np.int64]:
    """Return the offsets of queries with the sizes that LightGBM calls groups; they must add up to the rows.

    ``user`` is what needs them, for the message.

    >>> offsets_of_groups([2, 3], 5, "the objective").tolist()
    [0, 2, 5]
    """
    if group is None:
        raise ArgumentError(f"{user} needs the group sizes of the data: pass group=, got None")
    sizes = integers("group", group, least=0)
    if sizes.sum(dtype=np.float64) != rows:
        raise DataError(f"group must add up to the number of scores, {rows}, got {sizes.tolist()}")
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


def offsets_of_matrix(matrix: Any, user: str) -> NDArray[np.int64]:
    """Return the offsets of the queries of an XGBoost DMatrix."""
    if not hasattr(matrix, "get_uint_info"):
        raise ArgumentError(
            f"{user} needs the queries of a DMatrix, which the scikit-learn interface of XGBoost does not pass on: use "
            f"xgboost.train, got {type(matrix).__name__}"
        )
    offsets = np.asarray(matrix.get_uint_info("group_ptr"), dtype=np.int64)
    if len(offsets) == 0:
        raise ArgumentError(f"{user} needs a DMatrix with group= or qid=")
    return offsets


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # comparisons with pandas.NA have no truth value
        return True


def _shown(value: Any) -> str:
    return "NaN" if isinstance(value, (float, np.floating)) else str(value)
