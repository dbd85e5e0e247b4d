"""Measures as values: a definition with its settings, which parses, prints and hashes.

The syntax is that of ir_measures, ``Name(param=value, ...)@cutoff``, with one optional wrapper around it that
normalizes the value by what the query allows, ``EM(nDCG@10)``, or standardizes it by what reference runs score,
``STD(nDCG@10)``. Names of trec_eval (``ndcg_cut_10``) and ranx (``mrr@10``) and the measure objects of ir_measures are
understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from rankbound.errors import ArgumentError, MeasureError
from rankbound.measures.definition import Definition, Value
from rankbound.measures.registry import find

# wrapper in a measure's name -> name of the bounding
BOUNDINGS: Mapping[str, str] = MappingProxyType(
    {
        "MM": "min-max",
        "EB": "expectation",
        "EM": "expectation-max",
        "Z": "z-score",
        "DB": "distribution",
        "UL1": "UL1",
        "UL2": "UL2",
        "UL2C": "UL2-centered",
    }
)
# wrapper in a measure's name -> name of the standardization by reference runs
STANDARDIZATIONS: Mapping[str, str] = MappingProxyType({"STD": "normal", "STDU": "uniform", "ECDF": "empirical"})
_WRAPPER = {name: wrapper for wrapper, name in (*BOUNDINGS.items(), *STANDARDIZATIONS.items())}


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: its definition, settings and cutoff, and the bounding or standardization that normalizes its value.

    >>> m = parse_measure("UL2(nDCG(dcg='exp-log2')@10)")
    >>> m.name, m.cutoff, m["dcg"], m.bounding
    ('nDCG', 10, 'exp-log2', 'UL2')
    >>> str(m.plain), str(parse_measure("AP(rel=1)")), parse_measure("map") == parse_measure("AP")
    ("nDCG(dcg='exp-log2')@10", 'AP', True)
    """

    definition: Definition
    cutoff: int | None = None
    settings: tuple[tuple[str, Value], ...] = ()  # only what differs from the default, sorted by name
    bounding: str = "none"

    def __getitem__(self, name: str) -> Value:
        return dict(self.settings).get(name, self.definition.parameters[name].default)

    def number(self, name: str) -> float:
        """A numeric parameter."""
        return float(self[name])

    @property
    def name(self) -> str:
        """The name of its definition."""
        return self.definition.name

    @property
    def plain(self) -> Measure:
        """The measure without its bounding."""
        return self if self.bounding == "none" else replace(self, bounding="none")

    @property
    def is_standardized(self) -> bool:
        """Whether the value is standardized by reference runs, as that of ``STD(nDCG@10)`` is."""
        return self.bounding in STANDARDIZATIONS.values()

    @property
    def rel(self) -> float:
        """Smallest label that counts as relevant."""
        return self.number("rel") if "rel" in self.definition.parameters else 1

    @property
    def is_lower_better(self) -> bool:
        """Whether lower values are better; boundings other than "none" and "expectation" reverse such a measure."""
        return self.definition.lower_is_better and self.bounding in ("none", "expectation")

    def bounded(self, bounding: str) -> Measure:
        """The same measure through a bounding (``none``, ``min-max``, ...) or a standardization (``normal``, ...)."""
        if bounding != "none" and bounding not in _WRAPPER:
            raise MeasureError(f"bounding must be one of none, {', '.join(_WRAPPER)}, got {bounding!r}")
        if bounding == "UL1" and (self.definition.lower_is_better or self.definition.floor < 0):
            raise MeasureError(f"UL1 needs a measure that is never negative and better when higher, got {self.plain}")
        if bounding == "expectation" and self.definition.floor < 0:
            raise MeasureError(f"EB divides by the expected value, which is 0 for {self.plain}")
        return replace(self, bounding=bounding)

    def describe_number(self) -> str:
        """The name and, where the measure has a choice, the gain of labels: the measure's part of a signature.

        >>> parse_measure("ndcg_burges@10").describe_number()
        "nDCG(dcg='exp-log2')@10|gain:exponential"
        """
        gain = self.definition.describe_gain(self)
        return f"{self}|gain:{gain}" if gain else str(self)

    def __str__(self) -> str:
        at, settings = self.definition.at, self.settings
        if at is not None:
            settings = tuple((name, value) for name, value in settings if name != at)
        inner = ", ".join(f"{name}={value!r}" for name, value in settings)
        text = self.name + (f"({inner})" if inner else "")
        if at is not None:
            text += f"@{self.number(at)!r}".removesuffix(".0")
        elif self.cutoff:
            text += f"@{self.cutoff}"
        return text if self.bounding == "none" else f"{_WRAPPER[self.bounding]}({text})"


_LONGEST = 200  # characters of a name
_WRAPPED = re.compile(rf"({'|'.join(_WRAPPER.values())})\s*\((.*)\)")
_NAME = re.compile(r"([A-Za-z][\w-]*?)\s*(?:\(([^()]*)\))?\s*(?:@\s*(\S+))?")
_SETTING = re.compile(r"\s*(\w+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^\s'\",]+))\s*")
# trec_eval writes name_number or name.number; ranx writes rbp.95
_TREC = re.compile(r"(ndcg_cut|map_cut|P|recall|success|iprec_at_recall|Rprec_mult)[_.](\S+)")
_TREC_NAME = {
    "ndcg_cut": "nDCG",
    "map_cut": "AP",
    "P": "P",
    "recall": "R",
    "success": "Success",
    "iprec_at_recall": "IPrec",
}
_RANX_RBP = re.compile(r"rbp\.(\d+)")


def parse_measure(name: Any) -> Measure:
    """Read a measure's name, or take a measure object of ir_measures.

    >>> str(parse_measure("ndcg_cut_10")), str(parse_measure("rbp.95")), str(parse_measure("AP(rel=2,div='min')@5"))
    ('nDCG@10', 'RBP(p=0.95)', "AP(div='min', rel=2)@5")
    >>> parse_measure("nDGC@10")
    Traceback (most recent call last):
    rankbound.errors.MeasureError: unknown measure 'nDGC@10'; nearest names: nDCG, DCG
    """
    if isinstance(name, Measure):
        return name
    if type(name).__module__.partition(".")[0] == "ir_measures":
        name = str(name)
    if not isinstance(name, str):
        raise MeasureError(f"a measure must be a name such as 'nDCG@10', got {name!r}")
    if len(name) > _LONGEST:
        raise MeasureError(f"a measure's name has at most {_LONGEST} characters, got {name[:40]!r}...")
    return _parse(name)


def parse_measures(measures: Any) -> dict[str, Measure]:
    """One measure or an iterable of them, as a mapping from the names that they were requested by.

    >>> list(parse_measures(["nDCG@10", "map"]))
    ['nDCG@10', 'map']
    """
    single = isinstance(measures, (str, Measure)) or type(measures).__module__.partition(".")[0] == "ir_measures"
    if not single and not isinstance(measures, Iterable):
        raise MeasureError(f"measures must be names such as 'nDCG@10', got {measures!r}")
    requested = {}
    for measure in [measures] if single else measures:
        requested[str(measure)] = parse_measure(measure)
    if not requested:
        raise ArgumentError("measures must name at least one measure, got none")
    return requested


def forget_parsed_names() -> None:
    """Read names anew: another measure may have one of them now."""
    _parse.cache_clear()


@lru_cache(maxsize=1024)
def _parse(name: str) -> Measure:
    text = name.strip()
    if wrapped := _WRAPPED.fullmatch(text):
        inner = _parse(wrapped[2])
        if inner.bounding != "none":
            raise MeasureError(f"a measure takes one bounding, got two in {name!r}")
        return inner.bounded({**BOUNDINGS, **STANDARDIZATIONS}[wrapped[1]])
    if text == "rbp":  # trec_eval's own settings
        return _build(name, *find("RBP", name), {"p": 0.9, "gain": "graded"}, None)
    if match := _RANX_RBP.fullmatch(text):
        return _build(name, *find("RBP", name), {"p": float(f"0.{match[1]}")}, None)
    if match := _TREC.fullmatch(text):
        if match[1] == "Rprec_mult":
            return _build(name, *find("Rprec", name), {"mult": _number(match[2])}, None)
        return _build(name, *find(_TREC_NAME[match[1]], name), {}, match[2])
    match = _NAME.fullmatch(text)
    if match is None:
        raise MeasureError(f"cannot read measure {name!r}; the form is Name(param=value)@cutoff")
    return _build(name, *find(match[1], name), _settings(match[2] or "", name), match[3])


def _settings(text: str, name: str) -> dict[str, Value]:
    settings: dict[str, Value] = {}
    start = 0
    while start < len(text):
        match = _SETTING.match(text, start)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise MeasureError(f"cannot read the parameters of {name!r}; the form is param=value, ...")
        quoted = match[2] if match[2] is not None else match[3]
        settings[match[1]] = quoted if quoted is not None else _number(match[4])
        start = match.end() + 1
    return settings


def _number(text: str) -> Value:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def _build(
    text: str,
    definition: Definition,
    preset: Mapping[str, Value],
    settings: Mapping[str, Value],
    cutoff: str | None,
) -> Measure:
    name, requested = definition.name, dict(preset) | dict(settings)
    if definition.at is not None and cutoff is not None:
        requested[definition.at], cutoff = _number(cutoff), None
    changed: dict[str, Value] = {}
    for key, value in requested.items():
        if key not in definition.parameters:
            allowed = ", ".join(definition.parameters) or "no parameters"
            raise MeasureError(f"{name} has no parameter {key!r} (it takes {allowed}) in {text!r}")
        value = definition.parameters[key].check(name, key, value)
        if value != definition.parameters[key].default:
            changed[key] = value
    k: int | None = None
    if cutoff is not None:
        if not re.fullmatch(r"[1-9]\d{0,8}", cutoff):
            raise MeasureError(f"the cutoff k must be a positive integer, got {cutoff} in {text!r}")
        k = int(cutoff)
    if k is None and definition.cutoff == "required":
        raise MeasureError(f"{name} needs a cutoff, as in {name}@10; got {text!r}")
    if k is not None and definition.cutoff == "none":
        raise MeasureError(f"{name} takes no cutoff, got {text!r}")
    definition.check_settings(k, changed, text)
    return Measure(definition, k, tuple(sorted(changed.items())))
