"""Search spaces: plain data that say which parameters of which models are searched, and over which values.

===================================  =================================================================================
``["float", low, high]``             a number, uniform
``["log", low, high]``               a number, uniform in its logarithm
``["int", low, high]``               an integer, uniform
``["int-log", low, high]``           an integer, uniform in its logarithm
``["choice", a, b, ...]``            one of several values; a list such as ``[64, 32]`` stands for a tuple
any other value                      fixed
===================================  =================================================================================
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from rankbound.errors import ArgumentError, DataError
from rankbound.io import read_bytes
from rankbound.models import RECOMMENDERS

if TYPE_CHECKING:
    from optuna.trial import Trial

KINDS = ("float", "log", "int", "int-log", "choice")
DEFAULT_MODELS = ("LambdaMART", "MLPRanker")
OBJECTIVES = ("lambdarank", "noisy-lambda-nDCG")
"""Objectives of LambdaMART in the default space: LightGBM's own, then ours."""
OTHER_DATA = (*RECOMMENDERS, "RankCNN")  # trained on users and items, or on images

# Parameters that the search sets unless a space or params do: many steps, of which the validation queries select one.
_FIXED: Mapping[str, Mapping[str, Any]] = {
    "LambdaMART": {"n_estimators": 1000, "early_stopping_rounds": 50},
    "BoostingRanker": {"n_estimators": 1000, "early_stopping_rounds": 50},
    "networks": {"patience": 10},
}


@dataclass(frozen=True)
class Range:
    """The values of one parameter: ``low`` to ``high`` (float, log, int, int-log), or ``choices``."""

    kind: str
    low: float = 0.0
    high: float = 0.0
    choices: tuple[Any, ...] = ()

    def suggest(self, trial: Trial, name: str) -> None:
        """Ask Optuna for a value."""
        is_logarithmic = self.kind in ("log", "int-log")
        if self.kind == "choice":
            trial.suggest_categorical(name, [_as_label(choice) for choice in self.choices])
        elif self.kind.startswith("int"):
            trial.suggest_int(name, int(self.low), int(self.high), log=is_logarithmic)
        else:
            trial.suggest_float(name, self.low, self.high, log=is_logarithmic)

    def contains(self, value: Any) -> bool:
        """Whether a value can be drawn.

        >>> Range("log", 0.02, 0.2).contains(0.1), Range("choice", choices=("a", [8])).contains((8,))
        (True, True)
        """
        if self.kind == "choice":
            return _as_list(value) in self.choices
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_whole = not self.kind.startswith("int") or (is_number and value == int(value))
        return is_number and self.low <= value <= self.high and is_whole


@dataclass(frozen=True)
class ModelSpace:
    """The search space of one model: fixed parameters, ranges of the others, and settings to try first."""

    model: str
    fixed: Mapping[str, Any]
    ranges: Mapping[str, Range]
    starts: tuple[Mapping[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the space as plain data, by which a folder identifies its search."""
        ranges = {
            name: [r.kind, *(r.choices if r.kind == "choice" else (r.low, r.high))] for name, r in self.ranges.items()
        }
        return {"fixed": dict(self.fixed), "ranges": ranges, "starts": [dict(start) for start in self.starts]}

    @classmethod
    def from_dict(cls, model: str, space: Mapping[str, Any]) -> ModelSpace:
        """Read what `to_dict` returned."""
        ranges = {name: read_range(f"{model}.{name}", value) for name, value in space["ranges"].items()}
        return cls(model, space["fixed"], ranges, tuple(space["starts"]))

    def suggest(self, trial: Trial) -> None:
        """Ask Optuna for the parameters of a trial."""
        for name, one in self.ranges.items():
            one.suggest(trial, f"{self.model}.{name}")

    def setting_of(self, suggested: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that Optuna's suggestions stand for."""
        setting = dict(self.fixed)
        for name, one in self.ranges.items():
            value = suggested[f"{self.model}.{name}"]
            setting[name] = next((choice for choice in one.choices if _as_label(choice) == value), value)
        return setting

    def enqueued_starts(self) -> list[dict[str, Any]]:
        """Return the settings to try first, as Optuna enqueues them."""
        return [{f"{self.model}.{name}": _as_label(value) for name, value in start.items()} for start in self.starts]


def read_space(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a search space from a TOML file with a table for each model."""
    content = read_bytes(path)
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not TOML: {error}") from error


def make_spaces(
    models: Sequence[str] | None,
    space: Mapping[str, Any] | None,
    params: Mapping[str, Any] | None,
    *,
    accepts_lambdarank: bool = True,
) -> dict[str, ModelSpace]:
    """Return the space of each model; raise ArgumentError for unknown models and parameters, and for bad ranges.

    ``accepts_lambdarank`` says whether the labels are integers that LightGBM's objective accepts.
    """
    from rankbound.models import RANKERS

    usable = [name for name in RANKERS if name not in OTHER_DATA]
    tables = _tables(space, models, usable)
    if models is None:
        names = tuple(tables) or DEFAULT_MODELS
    elif isinstance(models, str):
        names = (models,)
    else:
        names = tuple(dict.fromkeys(models))
    if not names:
        raise ArgumentError("models must name at least one model, got none")
    for name in (*names, *tables):
        if name not in usable:
            raise ArgumentError(f"models must be among {', '.join(usable)}, got {name!r}")
    if unused := [name for name in tables if name not in names]:
        raise ArgumentError(f"space must be of the models {', '.join(names)}, got one of {unused[0]!r}")
    spaces = {name: _model_space(name, tables.get(name), params or {}, accepts_lambdarank) for name in names}
    for key in params or {}:
        if not any(key in one.fixed for one in spaces.values()):
            raise ArgumentError(f"none of {', '.join(names)} has a parameter {key!r}")
    return spaces


def _tables(
    space: Mapping[str, Any] | None, models: Sequence[str] | None, usable: Iterable[str]
) -> dict[str, Mapping[str, Any]]:
    if space is None:
        return {}
    if not isinstance(space, Mapping):
        raise ArgumentError(f"space must be a dict of models, got {type(space).__name__}")
    if not space or all(isinstance(table, Mapping) for table in space.values()):
        return dict(space)
    names = [models] if isinstance(models, str) else list(models or ())
    if len(names) == 1 and not any(key in usable for key in space):
        return {names[0]: space}
    raise ArgumentError(
        "space must be a dict of models, each with a dict of parameters (with one model in models, a dict of "
        f"parameters), got {next(key for key, table in space.items() if not isinstance(table, Mapping))!r} next to them"
    )


def _model_space(
    model: str, table: Mapping[str, Any] | None, params: Mapping[str, Any], accepts_lambdarank: bool
) -> ModelSpace:
    from rankbound.models.by_name import check_ranker, parameters_of

    known = parameters_of(model)
    if table is None:
        table = _default_table(model, known, accepts_lambdarank)
    own = {key: value for key, value in params.items() if key in known}
    table = {**_fixed_params(model, known), **table, **own}
    check_ranker(model, table, None, "none")
    fixed, ranges = {}, {}
    for name, value in table.items():
        if isinstance(value, (list, tuple)) and name not in own:
            ranges[name] = read_range(f"{model}.{name}", value)
        else:
            fixed[name] = _as_list(value)
    for name in ("loss", "objective"):
        values = ranges[name].choices if name in ranges else (fixed.get(name),)
        _check_losses(value for value in values if value is not None)
    return ModelSpace(model, fixed, ranges, _starts(model, known, ranges))


def read_range(name: str, value: Sequence[Any]) -> Range:
    """Read a range, as in the table at the head of this module."""
    if not value or value[0] not in KINDS:
        raise ArgumentError(
            f'{name} must be a value or a list that begins with one of {", ".join(KINDS)}, as ["log", 0.01, 0.1], '
            f"got {list(value)!r}"
        )
    kind, *rest = value
    if kind == "choice":
        if not rest:
            raise ArgumentError(f"{name} must have at least one choice, got none")
        return Range(kind, choices=tuple(_as_list(choice) for choice in rest))
    numbers = [v for v in rest if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)]
    if len(rest) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise ArgumentError(f"{name} must have two numbers, the smaller one first, after {kind!r}, got {rest!r}")
    low, high = numbers
    if kind in ("log", "int-log") and low <= 0:
        raise ArgumentError(f"{name} must have positive numbers after {kind!r}, got {rest!r}")
    if kind.startswith("int") and (low != int(low) or high != int(high)):
        raise ArgumentError(f"{name} must have integers after {kind!r}, got {rest!r}")
    return Range(kind, low, high)


def _check_losses(names: Iterable[Any]) -> None:
    from rankbound.losses import get_loss

    for name in names:
        if name != "lambdarank":
            get_loss(name)


# ---- defaults --------------------------------------------------------------------------------------------------------


def _fixed_params(model: str, known: Mapping[str, Any]) -> dict[str, Any]:
    is_network = "patience" in known and known["patience"] is None
    return dict(_FIXED.get(model) or (_FIXED["networks"] if is_network else {}))


def _default_table(model: str, known: Mapping[str, Any], accepts_lambdarank: bool) -> dict[str, Any]:
    trees: dict[str, Any] = {
        "learning_rate": ["log", 0.02, 0.2],
        "num_leaves": ["int-log", 7, 127],
        "min_child_samples": ["int-log", 5, 100],
        "subsample": ["float", 0.5, 1.0],
        "colsample_bytree": ["float", 0.4, 1.0],
        "reg_lambda": ["float", 0.0, 10.0],
    }
    if model == "LambdaMART":
        objectives = OBJECTIVES if accepts_lambdarank else OBJECTIVES[1:]
        return {"objective": ["choice", *objectives], "bounding": ["choice", "none", "expectation-max"], **trees}
    if model == "BoostingRanker":
        return {"task": ["choice", "regression", "classification"], **trees}
    if model == "RandomForestRanker":
        return {
            "num_leaves": ["int-log", 31, 511],
            "min_child_samples": ["int-log", 2, 50],
            "max_features": ["float", 0.1, 1.0],
        }
    table: dict[str, Any] = {}
    if "epochs" in known:
        table["learning_rate"] = ["log", known["learning_rate"] / 5, known["learning_rate"] * 5]
    if "hidden" in known:
        widths = [_as_list(known["hidden"]), [64], [256, 128], [512, 256, 128]]
        table["hidden"] = ["choice", *(width for index, width in enumerate(widths) if width not in widths[:index])]
    if "dropout" in known:
        table["dropout"] = ["float", 0.0, 0.5]
    return table


def _starts(model: str, known: Mapping[str, Any], ranges: Mapping[str, Range]) -> tuple[Mapping[str, Any], ...]:
    """Return settings to try first: the model's defaults with a few changes, as far as the ranges contain them."""
    changes: list[dict[str, Any]] = [{}]
    if model == "LambdaMART":
        changes = [{"objective": name, "learning_rate": rate} for rate in (0.1, 0.05) for name in OBJECTIVES]
    starts: list[Mapping[str, Any]] = []
    for change in changes:
        start = {name: _as_list(change.get(name, known.get(name))) for name in ranges}
        if all(r.contains(start[name]) for name, r in ranges.items()) and start not in starts:
            starts.append(start)
    return tuple(starts)


def _as_list(value: Any) -> Any:
    """Convert tuples to lists, as JSON and TOML have them."""
    return [_as_list(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _as_label(value: Any) -> Any:
    """Return a choice as Optuna stores it: lists as text."""
    return json.dumps(value) if isinstance(value, list) else value
