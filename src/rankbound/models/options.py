"""Options that travel together: frozen dataclasses, each of which is one parameter of a model.

A model lists its groups in ``_groups``, with the values that it uses by default. Each option also has its own name,
which the model takes wherever it takes parameters: in the constructor, in ``set_params``, in a search, on the command
line, in a study, in a file of 0.2. ``MLPRanker(dropout=0.1)`` stands for ``MLPRanker(network=Network(dropout=0.1))``,
except that it leaves the other options of the group as the model has them. `group_options` alone maps these names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache, wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

from rankbound.errors import ArgumentError
from rankbound.measures.measure import parse_measure
from rankbound.models.parameters import check_choice, check_count, check_flag

if TYPE_CHECKING:
    from rankbound.models.base import Ranker

ModelT = TypeVar("ModelT", bound=type)


@dataclass(frozen=True)
class OptionGroup:
    """The base of all groups; values are checked when the group is created, or with the model's when `fit` begins."""

    _main: ClassVar[str | None] = None  # the option that a plain value in place of the group sets
    _names: ClassVar[Mapping[str, str]] = {}  # option -> its name among the parameters of a model, if it differs

    @classmethod
    def from_model(cls, model: Ranker, parameter: str) -> Self:
        """Return the group that a parameter of a model is or stands for.

        >>> from rankbound.models import MatrixFactorization, Negatives
        >>> Negatives.from_model(MatrixFactorization(negatives=3), "negatives")
        Negatives(count=3, candidates=1, sampling='uniform')
        """
        group = model._groups[parameter].with_value(getattr(model, parameter))
        if not isinstance(group, cls):
            raise AssertionError(f"{parameter} of {type(model).__name__} is no {cls.__name__}")
        return group

    def with_value(self, value: Any) -> Self:
        """Return a group given as a value, or this one with a plain value as its main option; None leaves it as it is.

        >>> from rankbound.models import Negatives
        >>> Negatives(candidates=2).with_value(3)
        Negatives(count=3, candidates=2, sampling='uniform')
        """
        if isinstance(value, type(self)):
            return value
        if self._main is not None:
            return replace(self, **{self._main: value})
        if value is None:
            return self
        raise ArgumentError(f"expected {type(self).__name__}(...), got {value!r}")

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
    return {
        name: _Option(parameter, option)
        for parameter, group in kind._groups.items()
        for name, option in group.names().items()
    }


def group_options(kind: Any, params: Mapping[str, Any], present: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameters of a model's constructor, given the same with options next to or in place of groups.

    An option changes the group that is given, or else that of the parameters at ``present``, or else the default.

    >>> from rankbound.models import MatrixFactorization
    >>> group_options(MatrixFactorization, {"factors": 8, "negatives": 3, "sampling": "popularity"})
    {'factors': 8, 'negatives': Negatives(count=3, candidates=1, sampling='popularity')}
    """
    known = _options_of(kind)
    grouped: dict[str, Any] = {}
    changes: dict[str, dict[str, Any]] = {}
    for name, value in params.items():
        if name in kind._groups or name not in known:
            grouped[name] = value
        else:
            changes.setdefault(known[name].parameter, {})[known[name].option] = value
    for parameter, options in changes.items():
        group = kind._groups[parameter]
        for given in (present or {}, grouped):
            group = group.with_value(given[parameter]) if parameter in given else group
        grouped[parameter] = replace(group, **options)
    return grouped


def accept_options(kind: ModelT) -> ModelT:
    """Let the constructor of a model, a dataclass, take options by their own names, too.

    >>> from rankbound.models import MatrixFactorization
    >>> MatrixFactorization(sampling="popularity")
    MatrixFactorization(negatives=Negatives(count='all', candidates=1, sampling='popularity'))
    """
    model: Any = kind
    store = model.__init__

    @wraps(store)
    def __init__(self: Any, *values: Any, **params: Any) -> None:  # noqa: N807
        store(self, *values, **group_options(type(self), params))

    model.__init__ = __init__
    return kind


def flat_parameters(model: Ranker) -> dict[str, Any]:
    """Return the parameters of a model with the options in place of their groups."""
    flat: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        group = model._groups.get(name)
        flat |= {name: value} if group is None else group.with_value(value).values()
    return flat


@contextmanager
def show_training(model: Ranker) -> Iterator[bool]:
    """Let a model show the progress of its training inside this block; False for models that have none."""
    if "verbose" not in flat_parameters(model):
        yield False
        return
    params = model.get_params(deep=False)
    model.set_params(verbose=True)
    try:
        yield True
    finally:
        model.set_params(**params)


# ---- options of several models ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Monitoring(OptionGroup):
    """What happens in the course of a training: evaluation, selection of an epoch, checkpoints, progress.

    Parameters
    ----------
    selection:
        Which epoch is kept if there is an ``eval_set``: ``"validation"`` and ``"test"`` keep the best epoch, ``"last"``
        the last one, as does a fit without ``eval_set``. The first two compute the same; the name is stored as
        ``selection_``, so that tables can state it: results selected on the data that they are reported for are
        biased upward.
    eval_every:
        Epochs between evaluations. None: a network is evaluated after every epoch, a factorization after every fifth.
    patience:
        Epochs without improvement after which training stops (None: never).
    watch:
        Measures to record in ``history_`` next to the model's own.
    checkpoint, checkpoint_every:
        A folder to which the state of training is written atomically, every ``checkpoint_every`` epochs and at the
        end (None: every epoch of a network, every 50th of a factorization). If it holds the state of the same training,
        `fit` resumes from it and ends with the model of an uninterrupted fit; ``epochs`` may be larger than before. The
        folder of another training is refused.
    verbose:
        Show a progress bar on standard error if that is a terminal.

    >>> Monitoring(eval_every=1, patience=10).selection
    'validation'
    """

    selection: str = "validation"
    eval_every: int | None = None
    patience: int | None = None
    watch: tuple[Any, ...] = ()
    checkpoint: str | PathLike[str] | None = None
    checkpoint_every: int | None = None
    verbose: bool = False
    _main: ClassVar[str | None] = "selection"

    def __post_init__(self) -> None:
        check_choice("selection", self.selection, ("validation", "test", "last"))
        for name in ("eval_every", "patience", "checkpoint_every"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for measure in self.watch:
            parse_measure(measure)
        check_flag("verbose", self.verbose)
