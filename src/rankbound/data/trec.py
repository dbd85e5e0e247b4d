"""TREC files: qrels (query, iteration, document, label) and runs (query, Q0, document, rank, score, tag)."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING

from rankbound.data.files import read_bytes
from rankbound.data.judged import from_frames
from rankbound.errors import FileFormatError
from rankbound.lists import Lists

if TYPE_CHECKING:
    import polars as pl

__all__ = ["lists_from_trec", "read_qrels", "read_run"]

_QRELS = ("qid", "iteration", "docid", "label")
_RUN = ("qid", "q0", "docid", "rank", "score", "tag")


def read_qrels(path: str | PathLike[str]) -> pl.DataFrame:
    """A qrels file as a frame with the columns qid, docid (strings) and label (integer)."""
    return _read(path, _QRELS, "label", int)


def read_run(path: str | PathLike[str]) -> pl.DataFrame:
    """A run file as a frame with the columns qid, docid (strings) and score; the rank column is not used."""
    return _read(path, _RUN, "score", float)


def lists_from_trec(
    qrels: str | PathLike[str], run: str | PathLike[str], *, missing: str = "ignore", judged_only: bool = False
) -> Lists:
    """Lists from a qrels and a run file; the policies are those of `rankbound.data.judged`."""
    return from_frames(read_qrels(qrels), read_run(run), missing=missing, judged_only=judged_only)


def _read(
    path: str | PathLike[str], fields: tuple[str, ...], number: str, convert: Callable[[str], float]
) -> pl.DataFrame:
    """One bulk parse of a tidied copy; what that does not take is read line by line, to say what is wrong where."""
    import polars as pl

    raw = read_bytes(path)
    kind = pl.Int64 if convert is int else pl.Float64
    try:
        frame = pl.read_csv(
            _tidy(raw),
            separator=" ",
            has_header=False,
            new_columns=list(fields),
            columns=[fields.index(name) for name in ("qid", "docid", number)],
            schema_overrides={name: kind if name == number else pl.String for name in fields},
            quote_char=None,
        )
    except (pl.exceptions.PolarsError, OSError):
        return _read_line_by_line(path, raw, fields, number, convert)
    finite = convert is int or frame[number].is_finite().all()
    if frame.null_count().sum_horizontal()[0] or not finite or frame.select("qid", "docid").n_unique() != len(frame):
        return _read_line_by_line(path, raw, fields, number, convert)
    return frame


def _tidy(raw: bytes) -> bytes:
    """One space between fields, none at the ends of lines, no comments or empty lines."""
    if b"\t" in raw or b"\r" in raw:
        raw = raw.translate(bytes.maketrans(b"\t\r", b"  "))
    while b"  " in raw:
        raw = raw.replace(b"  ", b" ")
    if b" \n" in raw or b"\n " in raw:
        raw = raw.replace(b" \n", b"\n").replace(b"\n ", b"\n")
    if raw.startswith(b"#") or b"\n#" in raw:
        raw = b"\n".join(line for line in raw.split(b"\n") if not line.startswith(b"#"))
    while b"\n\n" in raw:
        raw = raw.replace(b"\n\n", b"\n")
    return raw.strip()


def _read_line_by_line(
    path: str | PathLike[str], raw: bytes, fields: tuple[str, ...], number: str, convert: Callable[[str], float]
) -> pl.DataFrame:
    """The careful way; the last field of a run, its tag, may hold spaces."""
    import polars as pl

    rows: dict[tuple[str, str], float] = {}
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line_number = raw.count(b"\n", 0, error.start) + 1
        raise FileFormatError(path, line_number, "text must be UTF-8", f"got byte {raw[error.start]:#04x}") from None
    for line_number, line in enumerate(text.split("\n"), start=1):
        parts = line.split(maxsplit=len(fields) - 1)
        if not parts or line.startswith("#"):
            continue
        if len(parts) != len(fields) or (fields is _QRELS and len(parts[-1].split()) > 1):
            names = " ".join(fields)
            came = f"got {len(line.split())}: {line.strip()[:100]!r}"
            raise FileFormatError(path, line_number, f"expected {len(fields)} fields ({names})", came)
        value = parts[fields.index(number)].strip()
        try:
            converted = convert(value)
        except ValueError:
            rule = f"{number} must be {'an integer' if convert is int else 'a number'}"
            raise FileFormatError(path, line_number, rule, f"got {value!r}") from None
        if not abs(converted) < float("inf"):
            raise FileFormatError(path, line_number, f"{number} must be finite", f"got {value!r}")
        key = (parts[0], parts[2])
        if key in rows:
            rule = "a document must occur once per query"
            raise FileFormatError(path, line_number, rule, f"got {key[1]!r} again in query {key[0]!r}")
        rows[key] = converted
    if not rows:
        raise FileFormatError(path, None, f"expected lines of {len(fields)} fields", "got an empty file")
    return pl.DataFrame(
        {"qid": [q for q, _ in rows], "docid": [d for _, d in rows], number: list(rows.values())},
        schema_overrides={number: pl.Int64 if convert is int else pl.Float64},
    )
