"""Mutations of lines, fields, numbers and headers, which random byte changes would take too long to find."""

from __future__ import annotations

import random
import re

__all__ = ["SEPARATOR", "TOKENS", "mutated"]

SEPARATOR = b"\n--8<--\n"  # between the files of an input with several files

_NUMBERS = (
    b"0", b"-0", b"-1", b"1", b"00", b"1.5", b".5", b"1.", b"1e5", b"1e39", b"1e308", b"1e999", b"-1e999", b"1e-400",
    b"nan", b"inf", b"-inf", b"NULL", b"0x10", b"1_0", b"+1", b"2147483647", b"2147483648", b"4294967296",
    b"9007199254740993", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809",
    b"18446744073709551616", b"9" * 400, b"9" * 5000, "١٢".encode(), "²".encode(), b"true", b"", b" 1", b"[1]", b"{}",
    b'"1"', b"1970-01-01", b"65536", b"65537", b"100000000",
)  # fmt: skip
TOKENS = (
    *_NUMBERS,
    b"\x00", b"\xef\xbb\xbf", b"\xff\xfe", b"\r", b"\r\n", b"\n", b"\n\n", b"\t", b" ", b"  ", b",", b":", b"::", b"#",
    b'"', b"'", b"=", b"[", b"]", b"{", b"}", b"(", b")", b"@", b"\\", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\x80",
    b"\xc2\x85", b"\xe2\x80\xa8", b"\xf0\x9f\x98\x80", b"qid:", b"docid = ", b"null", b"NaN",
    b"[" * 2000, b'{"a":' * 800,
    b"../", b"/", b"x" * 300, b"a" * 5000,
)  # fmt: skip
_EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**40, 2**62, 2**63, 2**64 - 1)
_NUMBER = re.compile(rb"-?\d+(\.\d*)?([eE][+-]?\d+)?")
_WORD = re.compile(rb"[^\s,:;=\"'(){}\[\]]+")


def mutated(data: bytes, choice: random.Random) -> bytes:
    """Return the data with one to four changes."""
    for _ in range(choice.choice((1, 1, 2, 4))):
        data = choice.choice(_CHANGES)(data, choice)
    return data


def _flip(data: bytes, choice: random.Random) -> bytes:
    index = choice.randrange(len(data) or 1)
    return data[:index] + bytes([choice.randrange(256)]) + data[index + 1 :]


def _bit(data: bytes, choice: random.Random) -> bytes:
    if not data:
        return b"\0"
    index = choice.randrange(len(data))
    return data[:index] + bytes([data[index] ^ (1 << choice.randrange(8))]) + data[index + 1 :]


def _cut(data: bytes, choice: random.Random) -> bytes:
    return data[: choice.randrange(len(data) + 1)]


def _without(data: bytes, choice: random.Random) -> bytes:
    index = choice.randrange(len(data) + 1)
    return data[:index] + data[index + choice.choice((1, 2, 4, 16, 64)) :]


def _token(data: bytes, choice: random.Random) -> bytes:
    index = choice.randrange(len(data) + 1)
    return data[:index] + choice.choice(TOKENS) + data[index:]


def _number(data: bytes, choice: random.Random) -> bytes:
    return _replaced(data, choice, _NUMBER, choice.choice(_NUMBERS))


def _word(data: bytes, choice: random.Random) -> bytes:
    other = choice.choice(_WORD.findall(data) or [b""])
    return _replaced(data, choice, _WORD, choice.choice((other, choice.choice(TOKENS))))


def _replaced(data: bytes, choice: random.Random, pattern: re.Pattern[bytes], new: bytes) -> bytes:
    spans = [match.span() for match in pattern.finditer(data)]
    if not spans:
        return data + new
    start, end = choice.choice(spans)
    return data[:start] + new + data[end:]


def _lines(data: bytes, choice: random.Random) -> bytes:
    """Duplicate, drop or swap lines, or remove the last field of one."""
    lines = data.split(b"\n")
    at, to = choice.randrange(len(lines)), choice.randrange(len(lines))
    match choice.randrange(4):
        case 0:
            lines.insert(to, lines[at])
        case 1:
            del lines[at]
        case 2:
            lines[at], lines[to] = lines[to], lines[at]
        case _:
            lines[at] = lines[at].rpartition(choice.choice((b" ", b"\t", b",", b":")))[0]
    return b"\n".join(lines)


def _endings(data: bytes, choice: random.Random) -> bytes:
    return data.replace(b"\n", choice.choice((b"\r\n", b"\r", b" \n", b"\n\n")))


def _width(data: bytes, choice: random.Random) -> bytes:
    """Set a length or offset of a binary header to one of its limits."""
    size = choice.choice((1, 2, 4, 8))
    edge = (choice.choice(_EDGES) & (256**size - 1)).to_bytes(size, choice.choice(("little", "big")))
    index = choice.randrange(len(data) + 1)
    return data[:index] + edge + data[index + size :]


def _spliced(data: bytes, choice: random.Random) -> bytes:
    at, start = choice.randrange(len(data) + 1), choice.randrange(len(data) + 1)
    return data[:at] + data[start : start + choice.choice((4, 16, 64, 256))] + data[at:]


_CHANGES = (_flip, _bit, _cut, _without, _token, _number, _number, _word, _lines, _lines, _endings, _width, _spliced)
