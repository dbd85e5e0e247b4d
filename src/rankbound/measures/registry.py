"""The registered measures: built-in ones, those of installed packages, and users' own."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rankbound.errors import MeasureError
from rankbound.measures.average_precision import AveragePrecision
from rankbound.measures.bpref import Bpref
from rankbound.measures.counts import NumQ, NumRel, NumRet
from rankbound.measures.dcg import DCG
from rankbound.measures.err import ERR
from rankbound.measures.inferred_ap import InferredAP
from rankbound.measures.interpolated_precision import InterpolatedPrecision
from rankbound.measures.judged import Judged
from rankbound.measures.kendall_tau import KendallTau
from rankbound.measures.letor_ndcg import LetorNDCG
from rankbound.measures.mann_whitney import MannWhitney
from rankbound.measures.ndcg import NDCG
from rankbound.measures.nrbp import NRBP
from rankbound.measures.pair_accuracy import PairAccuracy
from rankbound.measures.precision import Precision
from rankbound.measures.r_precision import RPrecision
from rankbound.measures.rbp import RBP
from rankbound.measures.recall import Recall
from rankbound.measures.reciprocal_rank import ReciprocalRank
from rankbound.measures.set_measures import SetF, SetPrecision, SetRecall
from rankbound.measures.success import Success
from rankbound.measures.sum_of_precisions import SumOfPrecisions

if TYPE_CHECKING:
    from rankbound.measures.definition import Definition, Value

# A new built-in measure is a file next to this one and a line here; the tests of the whole catalog then cover it.
_BUILT_IN: tuple[Definition, ...] = (
    NDCG(),
    DCG(),
    LetorNDCG(),
    ERR(),
    AveragePrecision(),
    SumOfPrecisions(),
    Precision(),
    Recall(),
    ReciprocalRank(),
    Success(),
    RPrecision(),
    RBP(),
    NRBP(),
    MannWhitney(),
    PairAccuracy(),
    KendallTau(),
    Bpref(),
    InferredAP(),
    InterpolatedPrecision(),
    SetPrecision(),
    SetRecall(),
    SetF(),
    Judged(),
    NumRet(),
    NumRel(),
    NumQ(),
)
_by_name: dict[str, Definition] = {}
_by_alias: dict[str, tuple[str, Mapping[str, Value]]] = {}  # lower-case name -> name, settings
_PLUGINS = "rankbound.measures"  # entry points of other packages: modules that register measures when imported
_plugins_loaded = False


def definitions() -> Iterator[Definition]:
    """All registered measures, built-in ones first."""
    return iter(tuple(_by_name.values()))


def get_definition(name: str) -> Definition:
    """The measure with exactly this name.

    >>> get_definition("nDCG").summary
    'discounted cumulative gain over the best possible'
    """
    if name not in _by_name:
        _load_plugins()
    if name not in _by_name:
        raise MeasureError(f"unknown measure {name!r}; nearest names: {', '.join(_nearest(name))}")
    return _by_name[name]


def find(word: str, text: str) -> tuple[Definition, dict[str, Value]]:
    """The measure of a name or alias, and the settings that the alias stands for; ``text`` is what the user wrote."""
    for attempt in range(2):
        if word in _by_name:
            return _by_name[word], {}
        if word.lower() in _by_alias:
            name, settings = _by_alias[word.lower()]
            return _by_name[name], dict(settings)
        if attempt == 0:
            _load_plugins()
    raise MeasureError(f"unknown measure {text!r}; nearest names: {', '.join(_nearest(word))}")


def _nearest(word: str) -> list[str]:
    lower = difflib.get_close_matches(word.lower(), _by_alias, n=3, cutoff=0.5)
    return list(dict.fromkeys(_by_alias[alias][0] for alias in lower)) or list(_by_name)


def register(definition: Definition, *, replace: bool = False) -> None:
    """Make a measure known under its name and aliases.

    Raises MeasureError if another measure has the name or an alias; ``replace`` overwrites a user's own measure.
    """
    taken = [alias for alias in _names_of(definition) if _owner(alias) not in (None, definition.name)]
    if taken:
        raise MeasureError(f"the name {taken[0]!r} is taken by the measure {_owner(taken[0])}")
    known = _by_name.get(definition.name)
    if known is not None:
        if known.built_in:
            raise MeasureError(f"the name {definition.name!r} is taken by a built-in measure")
        if not replace:
            raise MeasureError(f"the name {definition.name!r} is taken; give replace=True to define it anew")
        unregister(definition.name)
    _by_name[definition.name] = definition
    _by_alias[definition.name.lower()] = (definition.name, {})
    for alias, settings in definition.aliases.items():
        _by_alias[alias.lower()] = (definition.name, settings)
    _forget_parsed_names()


def unregister(name: str) -> None:
    """Remove a user's own measure."""
    known = _by_name.get(name)
    if known is None or known.built_in:
        raise MeasureError(f"only a measure of your own can be removed, got {name!r}")
    del _by_name[name]
    for alias in [alias for alias, (owner, _) in _by_alias.items() if owner == name]:
        del _by_alias[alias]
    _forget_parsed_names()


def _names_of(definition: Definition) -> list[str]:
    return [definition.name.lower(), *(alias.lower() for alias in definition.aliases)]


def _owner(alias: str) -> str | None:
    return _by_alias[alias][0] if alias in _by_alias else None


def _forget_parsed_names() -> None:
    from rankbound.measures import measure

    measure.forget_parsed_names()


def _load_plugins() -> None:
    """Import the modules that installed packages name in the entry point group ``rankbound.measures``, once."""
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    from importlib.metadata import entry_points

    for plugin in entry_points(group=_PLUGINS):
        plugin.load()


for _definition in _BUILT_IN:
    _by_name[_definition.name] = _definition
    _by_alias[_definition.name.lower()] = (_definition.name, {})
    _by_alias.update({_alias.lower(): (_definition.name, _set) for _alias, _set in _definition.aliases.items()})
