"""A text file in chunks of whole lines, so that no reader holds a whole file."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import TypeAlias

from rankbound.errors import FileFormatError
from rankbound.io import open_bytes

__all__ = ["StrPath", "line_chunks"]

StrPath: TypeAlias = str | PathLike[str]

_LONGEST = 64 << 20  # bytes of a line: what goes on without end is no table, and would have to be held whole


def line_chunks(path: StrPath, size: int = 2 << 20) -> Iterator[tuple[int, bytes]]:
    """Pairs of the number of a first line and the text from there on, about ``size`` bytes of whole lines."""
    line, rest = 1, b""
    with open_bytes(path) as stream:
        while True:
            came = stream.read(size)
            text = rest + came
            cut = text.rfind(b"\n") + 1 if came else len(text)
            whole, rest = text[:cut], text[cut:]
            if len(rest) > _LONGEST:
                rule = f"a line must be shorter than {_LONGEST >> 20} MiB"
                raise FileFormatError(path, line + whole.count(b"\n"), rule, f"got {rest[:40]!r}...")
            if whole:
                yield line, whole.removeprefix(b"\xef\xbb\xbf") if line == 1 else whole
            line += whole.count(b"\n")
            if not came:
                return
