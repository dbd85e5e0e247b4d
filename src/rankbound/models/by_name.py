"""Models by name, with the parameters of a study or of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankbound.errors import ArgumentError
from rankbound.models.options import flat_parameters

_NETWORKS = ("DirectRanker", "LinearRanker", "ListNet", "MLPRanker", "RankCNN", "RankNet")
_TREES = ("BoostingRanker", "LambdaMART", "RandomForestRanker")


def packages_of(*models: str) -> list[str]:
    """Return the packages of extras that these models need to be trained, saved and loaded; this imports no model.

    >>> packages_of("LambdaMART", "AdaRank")
    ['sklearn', 'safetensors', 'lightgbm']
    """
    needed = ["sklearn", "safetensors"] if models else []
    needed += ["torch"] if set(models) & set(_NETWORKS) else []
    return needed + (["lightgbm"] if set(models) & set(_TREES) else [])


def parameters_of(model: str) -> dict[str, Any]:
    """Return names and defaults of a model's parameters, options in place of their groups; this imports the model."""
    return flat_parameters(_class_of(model)())


def make_loss(loss: str, bounding: str, options: Mapping[str, Any]) -> Any:
    """Return the loss of a name, bounding and options; options take precedence."""
    from rankbound.losses import get_loss

    return get_loss(loss, **({} if bounding == "none" else {"bounding": bounding}) | dict(options))


def make_ranker(
    model: str,
    params: Mapping[str, Any],
    *,
    loss: str | None,
    bounding: str,
    loss_options: Mapping[str, Any],
    **preferences: Any,
) -> Any:
    """Create a model, not yet fitted; ``preferences`` (seed, measure, ...) apply if it has such a parameter.

    Options of a loss without a loss are those of nDCG, and so is a bounding. Parameters of the models of a blend have
    the name of the model in front: ``EASE.l2``.
    """
    known = parameters_of(model)
    if model == "Blend":
        params = _make_models(params, preferences.get("measure"))
    arguments = {name: _read_value(value, known.get(name)) for name, value in params.items()}
    loss_parameter = _loss_parameter(known)
    if loss_parameter == "loss" and bounding != "none":
        loss = loss or "nDCG"  # the default of a ranker may stand for no measure, such as softmax
    if loss_parameter is not None and (loss is not None or loss_options):
        if loss_options:
            arguments[loss_parameter] = make_loss(loss or "nDCG", bounding, loss_options)
        else:
            arguments[loss_parameter] = loss
            arguments |= {} if bounding == "none" else {"bounding": bounding}
    elif bounding != "none":
        arguments["bounding"] = bounding
    for preference, value in preferences.items():
        name = "random_state" if preference == "seed" else preference
        if name in known:
            arguments.setdefault(name, value)
    kind = _class_of(model)
    return kind(**arguments)


def check_ranker(model: str, params: Mapping[str, Any], loss: str | None, bounding: str) -> None:
    """Raise ArgumentError for a parameter, loss or bounding that the model does not have."""
    known = parameters_of(model)
    if model == "Blend":
        params = _check_models(params)
    unknown = [name for name in params if name not in known and not name.startswith("loss.")]
    if unknown:
        raise ArgumentError(f"{model} has no parameter {unknown[0]!r}; it has {', '.join(sorted(known))}")
    if loss is not None and _loss_parameter(known) is None:
        raise ArgumentError(f"{model} has no parameter for a loss, got {loss!r}")
    if bounding != "none" and "bounding" not in known:
        raise ArgumentError(f"{model} has no parameter for a bounding, got {bounding!r}")


def _names_of_models(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the names of the models of a blend; a single name of the command line is no tuple."""
    names = params.get("models", parameters_of("Blend")["models"])
    return tuple(names) if isinstance(names, (list, tuple)) else (names,)


def _check_models(params: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters of the models of a blend, such as EASE.l2, and return the other parameters."""
    from rankbound.models import RECOMMENDERS

    names = _names_of_models(params)
    for name in names:
        if name not in RECOMMENDERS:
            raise ArgumentError(f"models must be names of recommenders ({', '.join(RECOMMENDERS)}), got {name!r}")
    for key in params:
        name, dot, parameter = key.partition(".")
        if dot and name != "loss":
            if name not in names:
                raise ArgumentError(f"{key} must be a parameter of one of the models {', '.join(names)}, got {name!r}")
            check_ranker(name, {parameter: params[key]}, None, "none")
    return {key: value for key, value in params.items() if "." not in key}


def _make_models(params: Mapping[str, Any], measure: object) -> dict[str, Any]:
    """Return the parameters of a blend in which those of its models, such as EASE.l2, are given to the models."""
    by_model: dict[str, dict[str, Any]] = {}
    for key, value in params.items():
        name, dot, parameter = key.partition(".")
        if dot:
            by_model.setdefault(name, {})[parameter] = value
    own = {key: value for key, value in params.items() if "." not in key}
    if "models" not in own and not by_model:
        return own
    preferences = {} if measure is None else {"measure": measure}
    models = [
        make_ranker(name, by_model[name], loss=None, bounding="none", loss_options={}, **preferences)
        if name in by_model
        else name
        for name in _names_of_models(params)
    ]
    return own | {"models": models}


def _read_value(value: Any, default: Any) -> Any:
    """Convert a parameter from TOML, which has lists for tuples and no None ("none").

    The text "none" stays as it is for parameters that are texts, such as input_transform.
    """
    if isinstance(value, list):
        return tuple(_read_value(entry, default) for entry in value)
    return None if value == "none" and not isinstance(default, str) else value


def _class_of(model: str) -> Any:
    from rankbound import models

    if model not in models.RANKERS:
        raise ArgumentError(f"model must be one of {', '.join(models.RANKERS)}, got {model!r}")
    return getattr(models, model)


def _loss_parameter(known: Mapping[str, Any]) -> str | None:
    return next((name for name in ("loss", "objective") if name in known), None)
