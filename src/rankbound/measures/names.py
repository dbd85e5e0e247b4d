"""Measures as values: a name that parses, prints and hashes, and nothing else.

The syntax is that of ir_measures, ``Name(param=value, ...)@cutoff``, with one optional wrapper around it that bounds
the value by what the query allows: ``UL2(nDCG@10)``. Names of trec_eval (``ndcg_cut_10``) and ranx (``mrr@10``) are
understood.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from rankbound.errors import MeasureError

__all__ = ["BOUNDINGS", "FAMILIES", "Family", "Measure", "parse_measure"]

Value = int | float | str

# wrapper in a measure's name -> name of the bounding
BOUNDINGS: Mapping[str, str] = MappingProxyType(
    {
        "MM": "min-max",
        "EB": "expectation",
        "EM": "expectation-max",
        "DB": "distribution",
        "UL1": "UL1",
        "UL2": "UL2",
    }
)
_WRAPPER = {bounding: wrapper for wrapper, bounding in BOUNDINGS.items()}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a family of measures: its default and the rule its values obey."""

    default: Value
    rule: str
    choices: tuple[str, ...] = ()
    most: float = 2.0**31  # labels are smaller

    def check(self, measure: str, name: str, value: Value) -> Value:
        """The value in its proper type, or MeasureError."""
        if self.choices:
            fits = value in self.choices
        elif isinstance(value, str):
            fits = False
        elif isinstance(self.default, float):
            fits = 0 < value < 1
            value = float(value)
        else:
            fits = 0 < value <= self.most
        if not fits:
            raise MeasureError(f"{name} of {measure} must be {self.rule}, got {value!r}")
        return value


_REL = Parameter(1, "a positive number up to 2^31")
_DCG = Parameter("log2", "'log2' (linear gain) or 'exp-log2' (gain 2^label - 1)", ("log2", "exp-log2"))
_VARIANT = Parameter("exact", "'exact' or 'published'", ("exact", "published"))
_PERSISTENCE = Parameter(0.8, "a number between 0 and 1")


@dataclass(frozen=True, slots=True)
class Family:
    """What is known of a family of measures from its name alone."""

    summary: str
    parameters: Mapping[str, Parameter]
    cutoff: str = "optional"  # "optional", "required" or "none"
    lower_is_better: bool = False
    floor: float = 0.0  # value of a ranking that gets nothing right


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "nDCG": Family("discounted cumulative gain over the best possible", {"dcg": _DCG}),
        "DCG": Family("discounted cumulative gain", {"dcg": _DCG}),
        "ERR": Family(
            "expected reciprocal rank of a user who stops with probability (2^label - 1) / 2^max_rel",
            {"max_rel": Parameter(4, "a positive number up to 1023", most=1023)},  # 2^max_rel is a float64
        ),
        "AP": Family(
            "average precision; div names the divisor: all relevant, min(k, relevant), k, or relevant retrieved",
            {
                "rel": _REL,
                "div": Parameter("R", "'R', 'min', 'k' or 'retrieved'", ("R", "min", "k", "retrieved")),
                "variant": _VARIANT,
            },
        ),
        "SP": Family("sum of the precisions at the ranks of relevant items", {"rel": _REL, "variant": _VARIANT}),
        "P": Family("precision", {"rel": _REL}, cutoff="required"),
        "R": Family("recall", {"rel": _REL}, cutoff="required"),
        "RR": Family("reciprocal rank of the first relevant item", {"rel": _REL}),
        "Success": Family("hit rate: 1 if a relevant item is among the first k", {"rel": _REL}, cutoff="required"),
        "Rprec": Family("precision at the number of relevant items", {"rel": _REL}, cutoff="none"),
        "RBP": Family(
            "rank-biased precision; gain='graded' weighs an item by label / largest label of the query",
            {"p": _PERSISTENCE, "rel": _REL, "gain": Parameter("binary", "'binary' or 'graded'", ("binary", "graded"))},
        ),
        "nRBP": Family("rank-biased precision over the best possible", {"p": _PERSISTENCE, "rel": _REL}),
        "U": Family(
            "Mann-Whitney: pairs (relevant, other) in the wrong order; the loss behind nRBP",
            {"rel": _REL},
            cutoff="none",
            lower_is_better=True,
        ),
        "PairAcc": Family("share of the pairs with different labels in the right order", {}, cutoff="none"),
        "Tau": Family("Kendall's tau-b between order and labels", {}, cutoff="none", floor=-1.0),
    }
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: family, parameters, cutoff, and the bounding its value goes through.

    >>> m = parse_measure("UL2(nDCG(dcg='exp-log2')@10)")
    >>> m.family, m.cutoff, m["dcg"], m.bounding
    ('nDCG', 10, 'exp-log2', 'UL2')
    >>> str(m.plain), str(parse_measure("AP(rel=1)")), parse_measure("map") == parse_measure("AP")
    ("nDCG(dcg='exp-log2')@10", 'AP', True)
    """

    family: str
    cutoff: int | None = None
    settings: tuple[tuple[str, Value], ...] = ()  # only what differs from the default, sorted by name
    bounding: str = "none"

    def __getitem__(self, name: str) -> Value:
        return dict(self.settings).get(name, self.info.parameters[name].default)

    def number(self, name: str) -> float:
        """A numeric parameter."""
        return float(self[name])

    @property
    def info(self) -> Family:
        """What is known of the measure's family."""
        return FAMILIES[self.family]

    @property
    def plain(self) -> Measure:
        """The measure without its bounding."""
        return replace(self, bounding="none")

    @property
    def rel(self) -> float:
        """Smallest label that counts as relevant."""
        return self.number("rel") if "rel" in self.info.parameters else 1

    def bounded(self, bounding: str) -> Measure:
        """The same measure through a bounding: ``none``, ``min-max``, ..., ``UL2``."""
        if bounding != "none" and bounding not in _WRAPPER:
            raise MeasureError(f"bounding must be one of none, {', '.join(_WRAPPER)}, got {bounding!r}")
        if bounding == "UL1" and (self.info.lower_is_better or self.info.floor < 0):
            raise MeasureError(f"UL1 needs a measure that is never negative and better when higher, got {self.plain}")
        if bounding == "expectation" and self.info.floor < 0:
            raise MeasureError(f"EB divides by the expected value, which is 0 for {self.plain}")
        return replace(self, bounding=bounding)

    def __str__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.settings)
        text = self.family + (f"({inner})" if inner else "") + (f"@{self.cutoff}" if self.cutoff else "")
        return text if self.bounding == "none" else f"{_WRAPPER[self.bounding]}({text})"


_LONGEST = 200  # characters of a name
_WRAPPED = re.compile(r"(MM|EB|EM|DB|UL1|UL2)\s*\((.*)\)")
_NAME = re.compile(r"([A-Za-z]\w*?)\s*(?:\(([^()]*)\))?\s*(?:@\s*(\S+))?")
_SETTING = re.compile(r"\s*(\w+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^\s'\",]+))\s*")

_ALIASES = {  # lower-case name -> family, settings
    **{name.lower(): (name, {}) for name in FAMILIES},
    "map": ("AP", {}),
    "averageprecision": ("AP", {}),
    "mrr": ("RR", {}),
    "recip_rank": ("RR", {}),
    "ndcg_burges": ("nDCG", {"dcg": "exp-log2"}),
    "dcg_burges": ("DCG", {"dcg": "exp-log2"}),
    "precision": ("P", {}),
    "recall": ("R", {}),
    "hit_rate": ("Success", {}),
    "hr": ("Success", {}),
    "r_precision": ("Rprec", {}),
    "pairwise_accuracy": ("PairAcc", {}),
    "kendall_tau": ("Tau", {}),
}
# trec_eval: name_cutoff or name.cutoff; ranx: rbp.95
_TREC = re.compile(r"(ndcg_cut|map_cut|P|recall|success)[_.](\S+)")
_TREC_FAMILY = {"ndcg_cut": "nDCG", "map_cut": "AP", "P": "P", "recall": "R", "success": "Success"}
_RANX_RBP = re.compile(r"rbp\.(\d+)")


def parse_measure(name: str | Measure) -> Measure:
    """Read a measure's name.

    >>> str(parse_measure("ndcg_cut_10")), str(parse_measure("rbp.95")), str(parse_measure("AP(rel=2,div='min')@5"))
    ('nDCG@10', 'RBP(p=0.95)', "AP(div='min', rel=2)@5")
    >>> parse_measure("nDGC@10")
    Traceback (most recent call last):
    rankbound.errors.MeasureError: unknown measure 'nDGC@10'; nearest names: nDCG, DCG
    """
    if isinstance(name, Measure):
        return name
    if not isinstance(name, str):
        raise MeasureError(f"a measure must be a name such as 'nDCG@10', got {name!r}")
    if len(name) > _LONGEST:
        raise MeasureError(f"a measure's name has at most {_LONGEST} characters, got {name[:40]!r}...")
    return _parse(name)


@lru_cache(maxsize=1024)
def _parse(name: str) -> Measure:
    text = name.strip()
    if wrapped := _WRAPPED.fullmatch(text):
        inner = _parse(wrapped[2])
        if inner.bounding != "none":
            raise MeasureError(f"a measure takes one bounding, got two in {name!r}")
        return inner.bounded(BOUNDINGS[wrapped[1]])
    if text == "rbp":  # trec_eval's own settings
        return _build(name, "RBP", {"p": 0.9, "gain": "graded"}, None)
    if match := _RANX_RBP.fullmatch(text):
        return _build(name, "RBP", {"p": float(f"0.{match[1]}")}, None)
    if match := _TREC.fullmatch(text):
        return _build(name, _TREC_FAMILY[match[1]], {}, match[2])
    match = _NAME.fullmatch(text)
    if match is None:
        raise MeasureError(f"cannot read measure {name!r}; the form is Name(param=value)@cutoff")
    family, settings = _family(match[1], name)
    return _build(name, family, settings | _settings(match[2] or "", name), match[3])


def _family(word: str, name: str) -> tuple[str, dict[str, Value]]:
    if word in FAMILIES:
        return word, {}
    if word.lower() in _ALIASES:
        family, settings = _ALIASES[word.lower()]
        return family, dict(settings)
    lower = difflib.get_close_matches(word.lower(), _ALIASES, n=3, cutoff=0.5)
    near = list(dict.fromkeys(_ALIASES[alias][0] for alias in lower)) or list(FAMILIES)
    raise MeasureError(f"unknown measure {name!r}; nearest names: {', '.join(near)}")


def _settings(text: str, name: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    at = 0
    while at < len(text):
        match = _SETTING.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise MeasureError(f"cannot read the parameters of {name!r}; the form is param=value, ...")
        quoted = match[2] if match[2] is not None else match[3]
        found[match[1]] = quoted if quoted is not None else _number(match[4])
        at = match.end() + 1
    return found


def _number(text: str) -> Value:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def _build(name: str, family: str, settings: Mapping[str, Value], cutoff: str | None) -> Measure:
    info = FAMILIES[family]
    kept: dict[str, Value] = {}
    for key, value in settings.items():
        if key not in info.parameters:
            allowed = ", ".join(info.parameters) or "no parameters"
            raise MeasureError(f"{family} has no parameter {key!r} (it takes {allowed}) in {name!r}")
        value = info.parameters[key].check(family, key, value)
        if value != info.parameters[key].default:
            kept[key] = value
    k: int | None = None
    if cutoff is not None:
        if not re.fullmatch(r"[1-9]\d{0,8}", cutoff):
            raise MeasureError(f"the cutoff k must be a positive integer, got {cutoff} in {name!r}")
        k = int(cutoff)
    if k is None and info.cutoff == "required":
        raise MeasureError(f"{family} needs a cutoff, as in {family}@10; got {name!r}")
    if k is not None and info.cutoff == "none":
        raise MeasureError(f"{family} takes no cutoff, got {name!r}")
    if k is None and kept.get("div") in ("k", "min"):
        raise MeasureError(f"AP(div={kept['div']!r}) needs a cutoff, as in AP(div={kept['div']!r})@10; got {name!r}")
    if family == "AP" and kept.get("variant") == "published" and kept.get("div") != "k":
        raise MeasureError(f"AP(variant='published') is defined for div='k' only, got {name!r}")
    return Measure(family, k, tuple(sorted(kept.items())))
