"""Protocol: how runs are evaluated, in one frozen value with a signature.

Two evaluations of the same run differ where their protocols differ: in the order of ties, in the queries that count, in
the documents that a run is compared with. `rankbound.evaluate` and `rankbound.compare` take a `Protocol`, or its fields
as keyword arguments; commands make one from their options; and each number that comes out carries its signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import PurePath
from typing import Any, Literal, Self, TypedDict, Unpack, get_args
from typing import Protocol as StructuralType

import rankbound
from rankbound.errors import ArgumentError

# The first of the options is the default.
Ties = Literal["average", "input", "docid"]
Empty = Literal["skip", "zero", "one"]
Missing = Literal["ignore", "zero"]
CandidateRule = Literal["judged", "returned"]
JudgedOutside = Literal["error", "add", "ignore"]
Unjudged = Literal["zero", "range"]
TIES: tuple[Ties, ...] = get_args(Ties)
EMPTY: tuple[Empty, ...] = get_args(Empty)
MISSING: tuple[Missing, ...] = get_args(Missing)
CANDIDATES: tuple[CandidateRule, ...] = get_args(CandidateRule)
JUDGED_OUTSIDE: tuple[JudgedOutside, ...] = get_args(JudgedOutside)
UNJUDGED: tuple[Unjudged, ...] = get_args(Unjudged)
_OPTIONS = {"ties": TIES, "empty": EMPTY, "missing": MISSING, "judged_outside": JUDGED_OUTSIDE}

# What is evaluated if no measure is named: runs of a search engine, and lists of recommendations.
DEFAULT_MEASURES = ("nDCG@10", "AP", "RR", "EM(nDCG@10)")
MEASURES_OF_UNJUDGED = ("nDCG@10", "AP", "RR")  # normalized ones take unjudged documents out
RECOMMENDER_MEASURES = ("nDCG@10", "R@10", "Success@10", "AP(div='min')@10")

RANGE_OF = "range:"
"""Before the grades of unjudged documents, as in "range:0,1,2"."""
EXPLICIT = "explicit"
"""What signatures say of candidates and references that were given as tables."""
_ALWAYS = ("ties", "empty", "candidates")  # fields that are part of every signature
_KEYS = {
    name: "cand" if name == "candidates" else name
    for name in ("ties", "empty", "missing", "judged_only", "depth", "candidates", "judged_outside", "unjudged")
}  # of fields in a signature, in their order
_REFERENCES, _VERSION = "refs", "v"


class _Measure(StructuralType):
    """What a signature needs of a measure."""

    @property
    def is_standardized(self) -> bool: ...

    def describe_number(self) -> str: ...


class ProtocolFields(TypedDict, total=False):
    """The fields of `Protocol`, as the keyword arguments of `rankbound.evaluate` and `rankbound.compare`."""

    ties: str
    empty: str
    missing: str
    judged_only: bool
    depth: int | None
    candidates: Any
    judged_outside: str
    unjudged: object
    references: Any


def _check_unjudged(value: object) -> None:
    """Raise ArgumentError unless this is an option, a range over grades, a probability, a table, or a function."""
    if isinstance(value, str):
        grades = value.removeprefix(RANGE_OF)
        is_known = value in UNJUDGED or (_are_numbers(grades) if value != grades else _is_file_name(value))
    elif isinstance(value, bool) or value is None:
        is_known = False
    else:
        is_known = not isinstance(value, Real) or 0 <= float(value) <= 1  # readers check tables and functions
    if is_known:
        return
    raise ArgumentError(
        f"unjudged must be {', '.join(UNJUDGED)}, range:GRADES, a probability from 0 to 1, a table or file of "
        f"probabilities, or a function, got {value!r}"
    )


def _is_file_name(text: str) -> bool:
    """Whether a treatment of unjudged documents is a file of probabilities, by its suffix."""
    return not text.startswith(RANGE_OF) and not _are_numbers(text) and bool(PurePath(text).suffix)


def _are_numbers(text: str) -> bool:
    try:
        return all(float(part) >= 0 for part in text.split(","))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Protocol:
    """How runs are evaluated.

    Parameters
    ----------
    ties:
        ``"average"`` takes the mean over all orders of tied items, ``"input"`` keeps the order of the input,
        ``"docid"`` is trec_eval's order (32-bit scores, ids as text, descending). A normalized measure is normalized
        in each order before the mean is taken, which matters for UL1, UL2, UL2C and DB (`rankbound.difficulty.ties`).
    empty:
        How to count queries for which a measure is not defined: leave them out (``"skip"``), ``"zero"`` or ``"one"``.
    missing:
        Judged queries that the run lacks: ``"ignore"`` them or count them as empty rankings, ``"zero"``
        (trec_eval -c).
    judged_only:
        Leave documents without judgment out of the run (trec_eval -J).
    depth:
        Look only at the first ``depth`` documents of each query (trec_eval -M); bounds and normalized measures are
        those of rankings of which only the first ``depth`` ranks count.
    candidates:
        The documents whose rankings a query's bounds and normalized measures are about. For these, the run is read as a
        complete ranking of the candidates: other documents are taken out, and candidates that it did not return are
        tied below those that it did. Plain measures do not depend on them. ``"judged"``: the judged documents;
        ``"returned"``: the judged documents that the run returned; a path (TREC run or qrels, lines "query document",
        csv or parquet), a frame with ``qid, docid``, or ``{query: documents}``: those documents, where documents
        without a judgment have label 0; ``"column:NAME"``: the rows of the judgments, or of a table with ``qid, label,
        score``, that have true in this column.
    judged_outside:
        Judged documents that given candidates lack: an ``"error"``, ``"add"`` them, or ``"ignore"`` them, because a
        re-ranker cannot return what its first stage did not retrieve.
    unjudged:
        Returned documents without a judgment: ``"zero"`` counts them as not relevant. ``"range"`` does so too, and
        adds the smallest and largest value over all labels that they could have: those of the judgments, or given
        ones, as in ``"range:0,1,2"``. A probability, such as ``0.1``, gives expected values, each document having this
        probability of a label above 0 (and then the labels above 0 of the judgments, as often as they occur there).
        Probabilities of single documents: ``{query: {document: probability}}``; a frame, or the path of a csv, tsv or
        parquet file, with ``qid, docid, probability``, or with a column per grade, ``p_1, p_2, ...``; or a function
        of three arrays, query ids, document ids and ranks, that returns a probability for each document.
    references:
        Reference runs of standardized measures, such as ``STD(nDCG@10)``: at least two, as ``{name: run}`` or a
        sequence, in the same form as the run and evaluated by the same protocol; or the result of
        `rankbound.evaluate_references`, or the path of a ``.json`` file of it.

    >>> Protocol(ties="docid").empty
    'skip'
    >>> Protocol(ties="random")
    Traceback (most recent call last):
    ...
    rankbound.errors.ArgumentError: ties must be one of average, input, docid, got 'random'
    """

    ties: str = TIES[0]
    empty: str = EMPTY[0]
    missing: str = MISSING[0]
    judged_only: bool = False
    depth: int | None = None
    candidates: Any = CANDIDATES[0]
    judged_outside: str = JUDGED_OUTSIDE[0]
    unjudged: object = UNJUDGED[0]
    references: Any = None

    def __post_init__(self) -> None:
        for name, options in _OPTIONS.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in options:
                raise ArgumentError(f"{name} must be one of {', '.join(options)}, got {value!r}")
        _check_unjudged(self.unjudged)
        if self.judged_only is True and self.has_unknown_labels:
            raise ArgumentError("judged_only leaves out the documents that unjudged is about; pass one of the two")
        if not isinstance(self.judged_only, bool):
            raise ArgumentError(f"judged_only must be True or False, got {self.judged_only!r}")
        depth: Any = self.depth
        if depth is not None and (not isinstance(depth, Integral) or depth < 1):
            raise ArgumentError(f"depth must be a positive integer or None, got {self.depth!r}")

    @classmethod
    def trec_eval(cls) -> Self:
        """The conventions of trec_eval: ties in its order of document ids, and 0 where a measure is not defined.

        Its options are fields: ``missing="zero"`` is -c, ``judged_only=True`` is -J, ``depth=N`` is -M N.

        >>> Protocol.trec_eval()
        Protocol(ties='docid', empty='zero')
        """
        return cls(ties="docid", empty="zero")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the protocol of a signature; the measure before it and its gain may be there, and are ignored.

        ``"trec_eval"`` is `Protocol.trec_eval`. Tables of candidates and reference runs are not part of a signature:
        ArgumentError where it says that there were some.

        >>> Protocol.parse("nDCG@10|gain:linear|ties:docid|empty:zero|cand:judged|depth:100|v:0.3.0")
        Protocol(ties='docid', empty='zero', depth=100)
        """
        if not isinstance(text, str):
            raise ArgumentError(f"a signature must be text, got {text!r}")
        if text in CONVENTIONS:
            return cls(**CONVENTIONS[text].changes())
        parts = text.split("|")
        if ":" not in parts[0]:  # the measure
            parts = parts[1:]
        found = {}
        for part in parts:
            key, colon, value = part.partition(":")
            if not colon or key in found:
                raise ArgumentError(f"a signature has parts such as ties:average, each once; got {part!r} in {text!r}")
            found[key] = value.replace("%7C", "|").replace("%25", "%")
        if not parts:
            raise ArgumentError(f"a protocol must be {', '.join(CONVENTIONS)} or a signature, got {text!r}")
        return cls(**_read_fields(found, text))

    @property
    def has_unknown_labels(self) -> bool:
        """Whether unjudged documents are more than not relevant."""
        return not isinstance(self.unjudged, str) or self.unjudged != UNJUDGED[0]

    @property
    def names_file_of_unjudged(self) -> bool:
        """Whether ``unjudged`` is the path of a table of probabilities."""
        return isinstance(self.unjudged, PathLike) or (isinstance(self.unjudged, str) and _is_file_name(self.unjudged))

    def signature(self, measure: _Measure) -> str:
        """Everything that determines the numbers of a measure, besides the data, in one line of text.

        ``measure`` is what `rankbound.parse_measure` returns. Ties, empty and candidates are always part of a
        signature, other fields where they differ from the default. The version of rankbound is at the end.

        >>> from rankbound import __version__, parse_measure
        >>> text = Protocol(judged_only=True).signature(parse_measure("EM(nDCG@10)"))
        >>> text.removesuffix(__version__)
        'EM(nDCG@10)|gain:linear|ties:average|empty:skip|judged_only:true|cand:judged|v:'
        """
        shown = {*_ALWAYS, *self.changes()}
        parts = [measure.describe_number()]
        parts += [f"{key}:{_as_text(getattr(self, name))}" for name, key in _KEYS.items() if name in shown]
        if measure.is_standardized:
            parts.append(f"{_REFERENCES}:{getattr(self.references, 'digest', None) or _as_text(self.references)}")
        return "|".join([*parts, f"{_VERSION}:{rankbound.__version__}"])

    def changed(self, **fields: Unpack[ProtocolFields]) -> Self:
        """The protocol with other values of some fields.

        >>> Protocol.trec_eval().changed(depth=100)
        Protocol(ties='docid', empty='zero', depth=100)
        """
        return replace(self, **fields)

    def changes(self) -> dict[str, Any]:
        """The fields that differ from their defaults, as keyword arguments.

        >>> Protocol.trec_eval().changes()
        {'ties': 'docid', 'empty': 'zero'}
        """
        values = {part.name: (getattr(self, part.name), part.default) for part in fields(self)}
        return {
            name: value
            for name, (value, default) in values.items()
            if value is not default and not (isinstance(value, str) and value == default)
        }

    def describe(self) -> dict[str, str]:
        """What outputs say of the protocol: candidates, ties, empty and missing, as text."""
        candidates = self.candidates
        name = candidates if isinstance(candidates, (str, PathLike)) else getattr(candidates, "name", EXPLICIT)
        return {"candidates": str(name), "ties": self.ties, "empty": self.empty, "missing": self.missing}

    def __repr__(self) -> str:
        changed = ", ".join(f"{name}={value!r}" for name, value in self.changes().items())
        return f"Protocol({changed})"


CONVENTIONS: Mapping[str, Protocol] = {"trec_eval": Protocol.trec_eval()}
"""Protocols that have a name, which `Protocol.parse` and the option --protocol take."""


def as_protocol(protocol: Protocol | None, changes: Mapping[str, Any]) -> Protocol:
    """Return the protocol with some fields changed; None stands for the default protocol."""
    if protocol is None:
        return Protocol(**changes)
    if not isinstance(protocol, Protocol):
        raise ArgumentError(f"protocol must be a rankbound.Protocol, got {protocol!r:.60}")
    return replace(protocol, **changes) if changes else protocol


def _as_text(value: Any) -> str:
    """A field in a signature, in which bars separate the fields."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, PathLike, int, float)) or value is None:
        text = str(fspath(value)) if isinstance(value, PathLike) else str(value)
    else:
        text = str(getattr(value, "name", EXPLICIT))  # of a table of candidates, or candidates that have been read
    return text.replace("%", "%25").replace("|", "%7C")


def _read_fields(found: Mapping[str, str], text: str) -> dict[str, Any]:
    """The fields of a protocol from the parts of a signature."""
    names = {key: name for name, key in _KEYS.items()}
    ignored = {"gain", _VERSION}
    names_of_tables = {"cand": "candidates", "unjudged": "unjudged"}
    result: dict[str, Any] = {}
    for key, value in found.items():
        if key == _REFERENCES or (key in names_of_tables and value == EXPLICIT):
            what = names_of_tables.get(key, "references")
            raise ArgumentError(f"a signature does not hold the {what} themselves, got {text!r}: give {what}=...")
        if key in names:
            result[names[key]] = value
        elif key not in ignored:
            raise ArgumentError(f"a signature has the parts {', '.join(names)}, got {key!r} in {text!r}")
    if "depth" in result:
        if not result["depth"].isdecimal():
            raise ArgumentError(f"depth must be a positive integer, got {result['depth']!r} in {text!r}")
        result["depth"] = int(result["depth"])
    if "," not in result.get("unjudged", ",") and _are_numbers(result["unjudged"]):
        result["unjudged"] = float(result["unjudged"])
    if "judged_only" in result:
        if result["judged_only"] not in ("true", "false"):
            raise ArgumentError(f"judged_only must be true or false, got {result['judged_only']!r} in {text!r}")
        result["judged_only"] = result["judged_only"] == "true"
    return result
