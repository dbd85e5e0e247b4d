"""The report of `check_measure`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_CAUSES = 3  # that are printed after the first


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The smallest failing example of a category.

    ``labels`` and ``scores`` are those of the documents in the order of the input, one list per query if there are
    several queries. ``k`` is the cutoff, ``expected`` the right value and ``returned`` what came: a number, one per
    query, or a text such as "raises ZeroDivisionError: division by zero". ``cause`` is a sentence on the probable
    cause, and ``is_convention`` says that it is not a mistake but another convention. ``call`` is the example as Python
    code, and ``failed`` of ``examples`` examples of the category failed.
    """

    category: str
    labels: list[Any]
    scores: list[Any]
    k: int | None
    expected: float | list[float]
    returned: float | list[float] | str
    cause: str
    is_convention: bool
    call: str
    failed: int
    examples: int

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `check_measure`.

    ``agreements`` has the number of examples of each category on which function and measure agree, ``disagreements``
    the smallest failing example of each category that has one; the categories come in the order in which they should be
    looked at. ``conventions`` names what the function does by another convention, and ``notes`` what is remarkable but
    not wrong. ``complete`` is False if the time budget ended the check.
    """

    function: str
    measure: str
    signature: str
    ties: str
    empty: str
    tolerance: float
    seed: int
    examples: int
    agreements: Mapping[str, int] = field(default_factory=dict)
    disagreements: Mapping[str, Disagreement] = field(default_factory=dict)
    conventions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    complete: bool = True

    @property
    def ok(self) -> bool:
        """Whether the function agrees with the measure on all examples, of which every category has at least one."""
        return not self.disagreements and min(self.agreements.values(), default=0) > 0

    @property
    def first(self) -> Disagreement | None:
        """The first disagreement: the category in which the cause is probably easiest to see."""
        return next(iter(self.disagreements.values()), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "ok": self.ok,
            **{name: getattr(self, name) for name in ("function", "measure", "signature", "ties", "empty")},
            **{name: getattr(self, name) for name in ("tolerance", "seed", "examples", "complete")},
            "agreements": dict(self.agreements),
            "disagreements": {name: entry.to_dict() for name, entry in self.disagreements.items()},
            "conventions": list(self.conventions),
            "notes": list(self.notes),
            "skipped": list(self.skipped),
        }

    def __str__(self) -> str:
        policy = f"called with ({self.signature.replace(',', ', ')}); ties: {self.ties}; empty queries: {self.empty}"
        if self.ok:
            lines = [f"{self.function} agrees with {self.measure} on {self.examples} examples; {policy}"]
        else:
            failed = sum(entry.failed for name, entry in self.disagreements.items() if name in self.agreements)
            lines = [f"{self.function} disagrees with {self.measure} on {failed} of {self.examples} examples; {policy}"]
        if self.first is not None:
            lines += ["", f"First disagreement: {self.first.category}", *_example_lines(self.first)]
            others: dict[str, Disagreement] = {}
            for entry in self.disagreements.values():
                if entry.cause != self.first.cause:
                    others.setdefault(entry.cause, entry)
            for entry in list(others.values())[:_MOST_CAUSES]:
                lines += ["", f"Another disagreement: {entry.category}", *_example_lines(entry)]
            if len(others) > _MOST_CAUSES:
                lines += ["", f"{len(others) - _MOST_CAUSES} more disagreements are in the JSON of this report."]
        width = max(map(len, self.agreements), default=0)
        lines += ["", "Examples that agree:"]
        for name, count in self.agreements.items():
            total = self.disagreements[name].examples if name in self.disagreements else count
            lines.append(f"  {name:{width}}  {count:3} of {total:3}" + ("" if count == total else "  <-"))
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines)


def _example_lines(entry: Disagreement) -> list[str]:
    expected, returned = _number_text(entry.expected), _number_text(entry.returned)
    return [
        f"  {entry.call}",
        f"  expected {expected}, " + (returned if isinstance(entry.returned, str) else f"returned {returned}"),
        f"  {'Convention' if entry.is_convention else 'Probable cause'}: {entry.cause}",
    ]


def _number_text(value: float | list[float] | str) -> str:
    if isinstance(value, str):
        return value
    return ", ".join(f"{each:.6g}" for each in value) if isinstance(value, list) else f"{value:.6g}"
