"""Checks of a ranker's parameters against the types that its constructor declares.

scikit-learn's constructors store their arguments and check nothing. `check_parameters` runs when `fit` begins, so that
a text in place of a number is reported by its name, not by whatever library meets it first.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from rankbound.models.base import Ranker

LARGEST_SEED = 2**64 - 1
_LARGEST_INTEGER = 2**63 - 1
_WORDS = {
    "int": "an integer",
    "float": "a finite number",
    "bool": "True or False",
    "str": "a text",
    "PathLike[str]": "a path",
    "None": "None",
}


def check_parameters(ranker: Ranker) -> None:
    """Raise ArgumentError for a parameter whose value has not the type that the constructor declares.

    >>> from rankbound.models import AdaRank
    >>> check_parameters(AdaRank(n_estimators="x"))
    Traceback (most recent call last):
    ...
    rankbound.errors.ArgumentError: n_estimators must be an integer, got 'x'
    """
    kind: Any = type(ranker)
    declared = _declared_types(kind)
    _check_types({name: getattr(ranker, name) for name in declared}, declared)
    for parameter, default in ranker._groups.items():
        group = default.with_value(getattr(ranker, parameter))
        kind = type(group)
        types = _declared_types(kind)
        _check_types(group.values(), {name: types[option] for name, option in group.names().items() if option in types})


def _check_types(values: Mapping[str, object], declared: Mapping[str, tuple[str, ...]]) -> None:
    for name, kinds in declared.items():
        value = values[name]
        if not any(_is_kind(value, allowed) for allowed in kinds):
            raise ArgumentError(f"{name} must be {' or '.join(_WORDS[allowed] for allowed in kinds)}, got {value!r}")
        if isinstance(value, (int, np.integer)) and abs(int(value)) > _LARGEST_INTEGER:
            raise ArgumentError(f"{name} must be below 2^63, got {value}")


def check_in_range(name: str, value: Any, low: float, high: float, *, open_low: bool = False) -> None:
    """Raise ArgumentError unless low <= value <= high, or low < value <= high.

    >>> check_in_range("num_leaves", 1, 2, 131_072)
    Traceback (most recent call last):
    ...
    rankbound.errors.ArgumentError: num_leaves must be from 2 to 131072, got 1
    """
    if (low < value if open_low else low <= value) and value <= high:
        return
    if open_low:
        rule = f"above {low:g}" + ("" if math.isinf(high) else f" and at most {high:.6g}")
    else:
        rule = f"at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:.10g}"
    raise ArgumentError(f"{name} must be {rule}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise ArgumentError unless the value is one of the choices."""
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_count(name: str, value: Any) -> None:
    """Raise ArgumentError unless the value is a positive integer."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, got {value!r}")


def check_number(name: str, value: Any, *, zero: bool = False) -> None:
    """Raise ArgumentError unless the value is a finite number above 0, or at least 0 if ``zero`` is allowed."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and 0 <= value < np.inf
    if not is_number or (value == 0 and not zero):
        rule = "a number of at least 0" if zero else "a positive number"
        raise ArgumentError(f"{name} must be {rule}, got {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Raise ArgumentError unless the value is True or False."""
    if not (isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1))):
        raise ArgumentError(f"{name} must be True or False, got {value!r}")


@cache
def _declared_types(kind: Any) -> dict[str, tuple[str, ...]]:
    """The parameters whose declared types can be checked, with the names of these types."""
    declared = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        names = tuple(str(parameter.annotation).split(" | "))
        if all(known in _WORDS for known in names) and name != "random_state":  # a seed has a limit of its own
            declared[name] = names
    return declared


def _is_kind(value: Any, kind: str) -> bool:
    is_bool = isinstance(value, (bool, np.bool_))
    if kind == "bool":
        return is_bool or (isinstance(value, (int, np.integer)) and value in (0, 1))
    if kind == "int":
        return isinstance(value, (int, np.integer)) and not is_bool
    if kind == "float":
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not is_bool
        return is_number and math.isfinite(value)
    if kind == "None":
        return value is None
    return isinstance(value, str) if kind == "str" else hasattr(value, "__fspath__")
