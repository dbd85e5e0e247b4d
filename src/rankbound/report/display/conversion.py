"""Results as pandas frames and as plain Python values, without pyarrow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from rankbound.packages import required_package

__all__ = ["pandas_frame", "plain_values"]


def pandas_frame(columns: pl.DataFrame | Mapping[str, Any]) -> Any:
    """Return columns as a pandas frame; ``polars.DataFrame.to_pandas`` would need pyarrow.

    Missing numbers become NaN, and other missing values None.
    """
    pd = required_package("pandas", "notebook", "to_pandas")
    table = columns if isinstance(columns, pl.DataFrame) else pl.DataFrame(columns)
    return pd.DataFrame({column.name: _pandas_column(column) for column in table.iter_columns()})


def _pandas_column(column: pl.Series) -> Any:
    if column.dtype.is_float() or (column.dtype.is_integer() and not column.has_nulls()):
        return column.to_numpy()
    return column.to_list()


def plain_values(value: Any) -> Any:
    """Return a value as what ``json.dumps`` accepts: arrays as lists, NaN and infinity, which JSON lacks, as None.

    >>> plain_values({"mean": np.float64("nan"), "sizes": np.array([3, 2]), "names": ("a", "b")})
    {'mean': None, 'sizes': [3, 2], 'names': ['a', 'b']}
    """
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind in "biu" or (value.dtype.kind == "f" and np.isfinite(value).all()):
            return value.tolist()
        value = value.tolist()
    elif isinstance(value, pl.Series):
        value = value.to_list()
    if isinstance(value, Mapping):
        return {str(key): plain_values(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
