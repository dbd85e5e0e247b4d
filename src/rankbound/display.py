"""How results show themselves: as a table, as a plot, as a page, and as plain values.

Results do not know their renderer. `table_of`, `plot_of` and `page_of` are generic functions of the result's class, and
`rankbound.report.display` registers how each class is shown; its name, `RENDERERS`, is all that is known here. It is
imported when something is shown for the first time, and for your own class you can register one yourself:
``rankbound.display.table_of.register(MyResult, my_table)``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.packages import import_package

if TYPE_CHECKING:
    from os import PathLike

    import polars as pl

    from rankbound.report.display.plot import Plot
    from rankbound.report.tables import Table

RENDERERS = "rankbound.report.display"


@dataclass(frozen=True)
class TrainingHistory:
    """Loss and measures of a ranker by epoch, to be plotted: the class of the ranker, and its attributes."""

    ranker: str
    history: list[dict[str, Any]] | None
    kept_epoch: int | None


@singledispatch
def table_of(result: Any, *, complete: bool = False) -> Table:
    """The table that shows a result; without ``complete``, the first rows and a note where the others are."""
    table: Table = _renderer(table_of, result)(result, complete=complete)
    return table


@singledispatch
def plot_of(result: Any, **options: Any) -> Plot:
    """The plot of a result."""
    plot: Plot = _renderer(plot_of, result)(result, **options)
    return plot


@singledispatch
def page_of(result: Any, path: str | PathLike[str], *, title: str, about: Mapping[str, str] | None = None) -> Path:
    """Write the page about a result to an HTML file and return its path."""
    written: Path = _renderer(page_of, result)(result, path, title=title, about=about)
    return written


def _renderer(function: Any, result: Any) -> Callable[..., Any]:
    """What is registered for the class of a result, after the renderers have been imported."""
    importlib.import_module(RENDERERS)
    renderer: Callable[..., Any] = function.dispatch(type(result))
    if renderer is function.dispatch(object):
        raise TypeError(f"{function.__name__} knows no {type(result).__name__}")
    return renderer


# ---- plain values ----------------------------------------------------------------------------------------------------


def pandas_frame(columns: pl.DataFrame | Mapping[str, Any]) -> Any:
    """Return columns as a pandas frame; ``polars.DataFrame.to_pandas`` would need pyarrow.

    Missing numbers become NaN, and other missing values None.
    """
    pd = import_package("pandas", "to_pandas")
    import polars as pl

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
    elif hasattr(value, "to_list"):  # a polars Series
        value = value.to_list()
    if isinstance(value, Mapping):
        return {str(key): plain_values(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


# ---- numbers in sentences --------------------------------------------------------------------------------------------


def plural(count: int, noun: str) -> str:
    """The count with its noun.

    >>> plural(1, "query"), plural(1200, "query"), plural(0, "run")
    ('1 query', '1,200 queries', '0 runs')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def percent(part: float, whole: float) -> str:
    """A fraction as a percentage.

    >>> percent(1, 3), percent(999, 1000)
    ('33 %', '99.9 %')
    """
    value = 100 * part / whole if whole else 0.0
    return f"{value:.1f} %" if 0 < value < 1 or 99 < value < 100 else f"{value:.0f} %"
