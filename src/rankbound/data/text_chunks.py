"""Text files in chunks of complete lines, so that readers need not hold a whole file in memory."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import TypeAlias

from rankbound.errors import FileFormatError
from rankbound.io import open_bytes

__all__ = ["StrPath", "line_chunks"]

StrPath: TypeAlias = str | PathLike[str]

_LONGEST = 64 << 20  # bytes of a line, which must fit into memory; no table has longer ones


def line_chunks(path: StrPath, size: int = 2 << 20) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of about ``size`` bytes of complete lines, each with the number of its first line."""
    line, rest = 1, b""
    with open_bytes(path) as stream:
        while True:
            block = stream.read(size)
            text = rest + block
            end = text.rfind(b"\n") + 1 if block else len(text)
            lines, rest = text[:end], text[end:]
            if len(rest) > _LONGEST:
                rule = f"a line must be shorter than {_LONGEST >> 20} MiB"
                raise FileFormatError(path, line + lines.count(b"\n"), rule, f"got {rest[:40]!r}...")
            if lines:
                yield line, lines.removeprefix(b"\xef\xbb\xbf") if line == 1 else lines
            line += lines.count(b"\n")
            if not block:
                return
