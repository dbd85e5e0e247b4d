"""Models by name with the parameters that a study or the command line gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankbound.errors import ArgumentError

__all__ = ["check_ranker", "make_loss", "make_ranker", "parameters_of", "takes_loss"]


def parameters_of(model: str) -> dict[str, Any]:
    """Names and defaults of a model's parameters; the model is imported for this."""
    return dict(_class_of(model)().get_params(deep=False))


def takes_loss(model: str) -> bool:
    """Whether a model can be given a loss; others are what they are."""
    return _loss_parameter(parameters_of(model)) is not None


def make_loss(loss: str, bounding: str, options: Mapping[str, Any]) -> Any:
    """The loss object of a name, bounding and options; options go first."""
    from rankbound.losses import get_loss

    return get_loss(loss, **({} if bounding == "none" else {"bounding": bounding}) | dict(options))


def make_ranker(
    model: str,
    params: Mapping[str, Any],
    *,
    loss: str | None,
    bounding: str,
    loss_options: Mapping[str, Any],
    **wishes: Any,
) -> Any:
    """A model, not yet fitted; ``wishes`` (seed, measure, ...) are followed where it has such a parameter.

    With options of a loss and no loss, that of nDCG is meant.
    """
    known = parameters_of(model)
    given = {name: _plain(value) for name, value in params.items()}
    place = _loss_parameter(known)
    if place is not None and (loss is not None or loss_options):
        if loss_options:
            given[place] = make_loss(loss or "nDCG", bounding, loss_options)
        else:
            given[place] = loss
            given |= {} if bounding == "none" else {"bounding": bounding}
    elif bounding != "none":
        given["bounding"] = bounding
    names = {"seed": "seed" if "seed" in known else "random_state"}
    for wish, value in wishes.items():
        name = names.get(wish, wish)
        if name in known:
            given.setdefault(name, value)
    return _class_of(model)(**given)


def check_ranker(model: str, params: Mapping[str, Any], loss: str | None, bounding: str) -> None:
    """ArgumentError for a parameter that the model has not, or a loss or bounding that it does not take."""
    known = parameters_of(model)
    unknown = [name for name in params if name not in known and not name.startswith("loss.")]
    if unknown:
        raise ArgumentError(f"{model} has no parameter {unknown[0]!r}; it has {', '.join(sorted(known))}")
    if loss is not None and _loss_parameter(known) is None:
        raise ArgumentError(f"{model} is trained in its own way and takes no loss, got {loss!r}")
    if bounding != "none" and "bounding" not in known:
        raise ArgumentError(f"{model} takes no bounding, got {bounding!r}")


def _plain(value: Any) -> Any:
    """A parameter as models take it: TOML has lists in place of tuples, and "none" for what it has no word for."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return None if value == "none" else value


def _class_of(model: str) -> Any:
    from rankbound import models

    if model not in models.RANKERS:
        raise ArgumentError(f"model must be one of {', '.join(models.RANKERS)}, got {model!r}")
    return getattr(models, model)


def _loss_parameter(known: Mapping[str, Any]) -> str | None:
    return next((name for name in ("loss", "objective") if name in known), None)
