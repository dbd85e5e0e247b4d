"""Text files as all readers see them, whole or in chunks of complete lines.

A byte-order mark at the start is no part of the text. A line ends with a line feed, a carriage return, or both. Control
characters other than tabs and line ends belong to no format: `has_controls` finds them fast, `CONTROL` matches them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike
from typing import BinaryIO, TypeAlias

import numpy as np

from rankbound.errors import DataError, FileFormatError
from rankbound.io import open_bytes, read_bytes

StrPath: TypeAlias = str | PathLike[str]

BOM = b"\xef\xbb\xbf"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff]")  # and the byte-order mark, which nobody can see
_IN_UTF_8 = re.compile(rb"\xc2[\x80-\x9f]")  # the control characters U+0080 to U+009F
_AT_ONCE = 1 << 17  # bytes, so that intermediate arrays stay in the cache of the processor
_PACKED = re.compile(rb"(?P<bzip2>BZh[1-9]1AY&SY)|(?P<xz>\xfd7zXZ\x00)|(?P<lz4>\x04\x22\x4d\x18)|(?P<zip>PK\x03\x04)")
_LONGEST = 64 << 20  # bytes of a line, which must fit into memory; no table has longer ones


def line_chunks(path: StrPath, size: int = 2 << 20) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of about ``size`` bytes of complete lines, each with the number of its first line."""
    line, rest = 1, b""
    with open_bytes(path) as stream:
        block = stream.read(size)
        refuse_packed(path, block)
        while True:
            block = _with_line_feeds(_whole_line_ends(stream, block))
            text = rest + block
            end = text.rfind(b"\n") + 1 if block else len(text)
            lines, rest = text[:end], text[end:]
            if len(rest) > _LONGEST:
                rule = f"a line must be shorter than {_LONGEST >> 20} MiB"
                raise FileFormatError(path, line + lines.count(b"\n"), rule, f"got {rest[:40]!r}...")
            if lines:
                yield line, lines.removeprefix(BOM) if line == 1 else lines
            line += lines.count(b"\n")
            if not block:
                return
            block = stream.read(size)


def _whole_line_ends(stream: BinaryIO, block: bytes) -> bytes:
    """The block, with the next byte where it ends between a carriage return and what may be its line feed."""
    while block.endswith(b"\r") and (more := stream.read(1)):
        block += more
    return block


def _with_line_feeds(text: bytes) -> bytes:
    if b"\r" not in text:
        return text
    data = np.frombuffer(text, np.uint8)
    pairs = 0
    for at in range(0, len(data), _AT_ONCE):
        part = data[at : at + _AT_ONCE + 1]
        pairs += int(np.count_nonzero((part[:-1] == ord("\r")) & (part[1:] == ord("\n"))))
    if pairs == count_byte(text, b"\r"):
        return text.translate(None, b"\r")  # several times as fast as replacing many pairs
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def read_text(path: StrPath) -> bytes:
    """Return the decompressed bytes of a file without byte-order mark, with line feeds as line ends."""
    text = read_bytes(path)
    refuse_packed(path, text)
    return _with_line_feeds(text.removeprefix(BOM))


def refuse_packed(path: StrPath, text: bytes) -> None:
    """Raise DataError for the beginning of a compressed file that is not read; gzip and zstandard are by `open_bytes`.

    >>> refuse_packed("run.txt.bz2", b"BZh91AY&SY...")
    Traceback (most recent call last):
    ...
    rankbound.errors.DataError: run.txt.bz2: compression must be gzip or zstandard, got bzip2; decompress the file first
    """
    if found := _PACKED.match(text):
        rule = "compression must be gzip or zstandard"
        raise DataError(f"{path}: {rule}, got {found.lastgroup}; decompress the file first")


def has_controls(text: bytes) -> bool:
    """Whether a text has control characters other than tabs and line feeds, or a byte-order mark in the middle.

    >>> has_controls(b"q1 0\\td1 1\\n"), has_controls(b"q1 0 d\\x001 1\\n"), has_controls("q\\x85".encode())
    (False, True, True)
    """
    data = np.frombuffer(text, np.uint8)
    low = sum(np.count_nonzero(data[at : at + _AT_ONCE] < 32) for at in range(0, len(data), _AT_ONCE))
    if low != count_byte(text, b"\n") + (count_byte(text, b"\t") if b"\t" in text else 0) or b"\x7f" in text:
        return True
    if b"\xef" in text and BOM in text:
        return True
    return b"\xc2" in text and _IN_UTF_8.search(text) is not None


def count_byte(text: bytes, byte: bytes) -> int:
    """``text.count(byte)``, which takes several times as long where the byte is frequent.

    >>> count_byte(b"one two three", b" ")
    2
    """
    data = np.frombuffer(text, np.uint8)
    return sum(int(np.count_nonzero(data[at : at + _AT_ONCE] == byte[0])) for at in range(0, len(data), _AT_ONCE))


def is_plain_number(field: str) -> bool:
    """Whether Python's ``int`` and ``float`` may read a field: they also take underscores and digits of other scripts.

    >>> [is_plain_number(field) for field in ("-1.5e3", "1_0", "\uff11")]
    [True, False, False]
    """
    return field.isascii() and "_" not in field
