"""Options that travel together: frozen dataclasses, each of which is one parameter of a model.

A model lists its groups in ``_groups``. Where text describes a model (the command line, a study, a file of 0.2), the
options are parameters like any other, and `group_options` collects them: ``patience=2`` becomes
``monitoring=Monitoring(patience=2)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from rankbound.errors import ArgumentError


@dataclass(frozen=True)
class OptionGroup:
    """The base of all groups; a group checks its values when it is created."""

    _main: ClassVar[str | None] = None  # the option that a plain value in place of the group sets
    _names: ClassVar[Mapping[str, str]] = {}  # option -> its name among the parameters of a model, if it differs

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Return a group, or the group in which a plain value is the main option.

        >>> from rankbound.models import Negatives
        >>> Negatives.from_value(3), Negatives.from_value(Negatives(3, candidates=2))
        (Negatives(count=3, candidates=1, sampling='uniform'), Negatives(count=3, candidates=2, sampling='uniform'))
        """
        if isinstance(value, cls):
            return value
        if cls._main is None:
            raise ArgumentError(f"expected {cls.__name__}(...), got {value!r}")
        return cls(**{cls._main: value})

    @classmethod
    def names(cls) -> dict[str, str]:
        """Return the options by their names among the parameters of a model."""
        return {cls._names.get(option.name, option.name): option.name for option in fields(cls)}

    def values(self) -> dict[str, Any]:
        """Return the values of the options by these names."""
        return {name: getattr(self, option) for name, option in self.names().items()}


class _Option(NamedTuple):
    """Where an option is found: the parameter of the model, and the name in its group."""

    parameter: str
    option: str


@cache
def _options_of(kind: Any) -> dict[str, _Option]:
    groups: dict[str, type[OptionGroup]] = getattr(kind, "_groups", {})
    return {
        name: _Option(parameter, option)
        for parameter, group in groups.items()
        for name, option in group.names().items()
    }


def group_options(kind: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model's constructor, given the same with options next to or in place of groups.

    >>> from rankbound.models import MatrixFactorization
    >>> group_options(MatrixFactorization, {"factors": 8, "negatives": 3, "sampling": "popularity"})
    {'factors': 8, 'negatives': Negatives(count=3, candidates=1, sampling='popularity')}
    """
    known, groups = _options_of(kind), getattr(kind, "_groups", {})
    grouped: dict[str, Any] = {}
    changes: dict[str, dict[str, Any]] = {}
    for name, value in params.items():
        if name in groups or name not in known:
            grouped[name] = value
        else:
            changes.setdefault(known[name].parameter, {})[known[name].option] = value
    for parameter, options in changes.items():
        given = grouped.get(parameter, inspect.signature(kind).parameters[parameter].default)
        grouped[parameter] = replace(groups[parameter].from_value(given), **options)
    return grouped


def flat_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of a model with the options in place of their groups."""
    groups: dict[str, type[OptionGroup]] = getattr(type(model), "_groups", {})
    flat: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        flat |= groups[name].from_value(value).values() if name in groups else {name: value}
    return flat


@contextmanager
def show_training(model: Any) -> Iterator[bool]:
    """Let a model show the progress of its training inside this block; False for models that have none."""
    params = model.get_params(deep=False)
    if "verbose" not in flat_parameters(model):
        yield False
        return
    model.set_params(**group_options(type(model), params | {"verbose": True}))
    try:
        yield True
    finally:
        model.set_params(**params)


# ---- checks of options -----------------------------------------------------------------------------------------------


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
