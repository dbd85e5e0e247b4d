"""What can go wrong, as a tree.

RankboundError            anything rankbound itself refuses; the command line prints it and exits with 2
├── ArgumentError         an argument does not fit its rule (also a ValueError)
│   └── MeasureError      a measure's name or parameters
└── DataError             arrays, frames or files that cannot be used (also a ValueError)
    └── FileFormatError   a line of a file; carries path and line number

InferenceWarning          intervals or p-values that rest on too little data (also a UserWarning)
"""

from __future__ import annotations

from os import PathLike
from typing import Any

__all__ = ["ArgumentError", "DataError", "FileFormatError", "InferenceWarning", "MeasureError", "RankboundError"]


_LONGEST = 2_000  # characters of a message


class RankboundError(Exception):
    """Base of all errors that rankbound raises on purpose; a message that repeats endless input is cut.

    >>> len(str(RankboundError("got " + "x" * 1_000_000)))
    2000
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message if len(message) <= _LONGEST else f"{message[: _LONGEST - 304]} ... {message[-299:]}")


class ArgumentError(RankboundError, ValueError):
    """An argument does not fit its rule."""


class MeasureError(ArgumentError):
    """A measure's name or parameters cannot be used."""


class DataError(RankboundError, ValueError):
    """Arrays, frames or files that cannot be used."""


class FileFormatError(DataError):
    """A line of a file breaks the file's format.

    >>> str(FileFormatError("run.txt", 3, "expected 6 fields", "got 5: 'q1 Q0 d1 1 0.5'"))
    "run.txt:3: expected 6 fields, got 5: 'q1 Q0 d1 1 0.5'"
    """

    def __init__(self, path: str | PathLike[str], line: int | None, rule: str, came: str) -> None:
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {rule}, {came}")
        self.path, self.line, self.rule, self.came = path, line, rule, came

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.line, self.rule, self.came)  # so that it comes back from a worker process


class InferenceWarning(UserWarning):
    """Intervals or p-values rest on too little data to be relied on."""
