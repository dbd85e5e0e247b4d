"""The exception hierarchy.

RankboundError            every error that rankbound raises itself; the command line prints it and exits with code 2
├── ArgumentError         an argument that breaks its rule (also a ValueError)
│   └── MeasureError      the name or a parameter of a measure
└── DataError             arrays, frames or files that cannot be used (also a ValueError)
    └── FileFormatError   an invalid line of a file, with path and line number

CoverageWarning           a run and judgments without a document in common, or labels that a measure takes as equal
                          (also a UserWarning)
InferenceWarning          intervals or p-values that rest on too little data (also a UserWarning)
UnknownUserWarning        users without training data, to whom popular items are recommended (also a UserWarning)
WeightWarning             weights under which few queries decide what is learned (also a UserWarning)
"""

from __future__ import annotations

from os import PathLike
from typing import Any

_LONGEST = 2_000  # characters of a message


class RankboundError(Exception):
    """Base of all errors that rankbound raises itself; messages that quote long input are shortened.

    >>> len(str(RankboundError("got " + "x" * 1_000_000)))
    2000
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message if len(message) <= _LONGEST else f"{message[: _LONGEST - 304]} ... {message[-299:]}")


class ArgumentError(RankboundError, ValueError):
    """An argument breaks its rule."""


class MeasureError(ArgumentError):
    """The name or a parameter of a measure is not valid."""


class DataError(RankboundError, ValueError):
    """Arrays, frames or files that cannot be used."""


class FileFormatError(DataError):
    """A line of a file breaks a rule of the file's format.

    >>> str(FileFormatError("run.txt", 3, "expected 6 fields", "got 5: 'q1 Q0 d1 1 0.5'"))
    "run.txt:3: expected 6 fields, got 5: 'q1 Q0 d1 1 0.5'"
    """

    def __init__(self, path: str | PathLike[str], line: int | None, rule: str, got: str) -> None:
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {rule}, {got}")
        self.path, self.line, self.rule, self.got = path, line, rule, got

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.line, self.rule, self.got)  # to be pickled when a worker process returns it


class CoverageWarning(UserWarning):
    """Judgments and a run do not fit each other or a measure.

    They have no document in common, so that every value is that of an empty ranking; or a measure that compares labels
    by their order, such as PairAcc, takes different labels below 0 as equal.
    """


class InferenceWarning(UserWarning):
    """Intervals or p-values rest on too little data to be relied on."""


class UnknownUserWarning(UserWarning):
    """Users have no training interactions, and get the most popular items."""


class WeightWarning(UserWarning):
    """Weights have an effective sample fraction below 0.5, so that few queries decide what is learned."""
