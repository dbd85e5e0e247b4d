"""Read TREC files: qrels (query, iteration, document, label) and runs (query, Q0, document, rank, score, tag).

One or more spaces or tabs separate fields, so that no field is empty: a row that lacks one has too few, wherever two
separators stand side by side, and is an error. In a run, words after the tag are ignored, as trec_eval does, if the
rank is a number; it is none where an id with a space shifts the fields. Numbers have ASCII digits. A line whose first
character other than spaces is # is a comment; elsewhere control characters are errors. Candidates may come in either
form or as pairs (query, document).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.frames import polars_failures
from rankbound.data.judged import DuplicateError, from_frames
from rankbound.data.text_chunks import CONTROL, has_controls, is_plain_number, line_chunks, read_text
from rankbound.errors import FileFormatError
from rankbound.lists import Lists

if TYPE_CHECKING:
    import polars as pl

_QRELS = ("qid", "iteration", "docid", "label")
_RUN = ("qid", "q0", "docid", "rank", "score", "tag")
_SEPARATOR = re.compile("[ \t]+")
_RANK = re.compile("[+-]?[0-9]+")
_AT_ONCE = 32 << 20  # bytes of a large run
_IN_CACHE = 1 << 17  # bytes, so that intermediate arrays stay in the cache of the processor


def read_qrels(path: str | PathLike[str]) -> pl.DataFrame:
    """Read a qrels file into a frame with the columns qid, docid (strings) and label (integers)."""
    return _File(path, _QRELS, "label", int).checked()


def read_run(path: str | PathLike[str]) -> pl.DataFrame:
    """Read a run file into a frame with the columns qid, docid (strings) and score; the rank column is ignored."""
    return _File(path, _RUN, "score", float).checked()


def run_frames(path: str | PathLike[str]) -> Iterator[pl.DataFrame]:
    """Yield the rows of a run file in frames of about 32 MiB of text, which together are what `read_run` returns.

    A document that occurs twice in a query is not looked for, and the rows of a query may be in several frames.
    """
    is_empty = True
    for line, text in line_chunks(path, _AT_ONCE):
        frame = _File(path, _RUN, "score", float, text, line).frame
        if len(frame):
            is_empty = False
            yield frame
    if is_empty:
        raise _no_lines(path, _RUN)


def repeated_document(path: str | PathLike[str], query: str, document: str) -> FileFormatError | None:
    """The error for the line of a run on which a document of a query occurs again; None if it does not."""
    seen = False
    for first, text in line_chunks(path):
        for line_number, line in enumerate(text.decode("utf-8", "replace").split("\n"), start=first):
            parts = _fields(line)
            if len(parts) < len(_RUN) or parts[0].startswith("#") or (parts[0], parts[2]) != (query, document):
                continue
            if seen:
                return _occurs_again(path, line_number, query, document)
            seen = True
    return None


def read_pairs(path: str | PathLike[str]) -> pl.DataFrame:
    """Read lines of a query and a document into a frame with the columns qid and docid; lines may occur twice."""
    import polars as pl

    try:
        text = read_text(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(path, None, "text must be UTF-8", f"got byte {error.object[error.start]:#04x}") from None
    rows = []
    for line_number, line in enumerate(text.split("\n"), start=1):
        pair = _fields(line)
        if not pair or pair[0].startswith("#"):
            continue
        _check_controls(path, line_number, line)
        if len(pair) != 2:
            raise FileFormatError(path, line_number, "expected 2 fields (qid docid)", f"got {len(pair)}: {line!r:.100}")
        rows.append(pair)
    return pl.DataFrame(rows, schema={"qid": pl.String, "docid": pl.String}, orient="row")


def lists_from_trec(qrels: str | PathLike[str], run: str | PathLike[str], **policy: Any) -> Lists:
    """Combine a qrels file and a run file into Lists; see `rankbound.data.judged` for the policies."""
    judged, ranked = _File(qrels, _QRELS, "label", int), _File(run, _RUN, "score", float)
    try:
        return from_frames(judged.frame, ranked.frame, **policy)
    except DuplicateError as error:  # found while combining the frames; now find the line
        (judged if error.side == "qrels" else ranked).read_line_by_line()
        raise


class _File:
    """A TREC file, parsed in bulk if possible and otherwise line by line, which finds the first invalid line.

    ``part`` are some of its lines, the first of which has the number ``first_line``; None is the whole file, which must
    not be empty.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        fields: tuple[str, ...],
        number: str,
        convert: Callable[[str], float],
        part: bytes | None = None,
        first_line: int = 1,
    ) -> None:
        self.path, self.fields, self.number, self.convert = path, fields, number, convert
        self.raw, self.first_line = read_text(path) if part is None else part, first_line
        frame = None
        if not has_controls(self.raw):
            frame = self._bulk(self.raw)
            if frame is None:
                frame = self._bulk(_tidy(self.raw))
        self.frame = self.read_line_by_line() if frame is None else frame
        if part is None and len(self.frame) == 0:
            raise _no_lines(path, fields)

    def checked(self) -> pl.DataFrame:
        """Return the frame after checking that no document occurs twice in a query."""
        if self.frame.select("qid", "docid").n_unique() != len(self.frame):
            self.read_line_by_line()
        return self.frame

    def _bulk(self, text: bytes) -> pl.DataFrame | None:
        """Parse text whose fields are separated by single spaces; return None for any other text."""
        import polars as pl

        if b"\t" in text or not _has_single_spaces(text, len(self.fields)):
            return None
        kind = pl.Int64 if self.convert is int else pl.Float64
        try:
            frame = pl.read_csv(
                text,
                separator=" ",
                has_header=False,
                new_columns=list(self.fields),
                columns=[self.fields.index(name) for name in ("qid", "docid", self.number)],
                schema_overrides={name: kind if name == self.number else pl.String for name in self.fields},
                quote_char=None,
            )
        except polars_failures():
            return None
        finite = self.convert is int or frame[self.number].is_finite().all()
        has_gap = frame.null_count().sum_horizontal()[0] > 0
        return None if has_gap or not finite or frame["qid"].str.starts_with("#").any() else frame

    def read_line_by_line(self) -> pl.DataFrame:
        """Parse every line by itself."""
        import polars as pl

        fields, number, convert = self.fields, self.number, self.convert
        rows: dict[tuple[str, str], float] = {}
        for line_number, line in enumerate(self._text().split("\n"), start=self.first_line):
            parts = _fields(line)
            if not parts or parts[0].startswith("#"):
                continue
            _check_controls(self.path, line_number, line)
            if len(parts) != len(fields) and not (fields is _RUN and _has_more_than_a_tag(parts)):
                got = f"got {len(parts)}: {line.strip()[:100]!r}"
                raise self._error(line_number, f"expected {len(fields)} fields ({' '.join(fields)})", got)
            value = parts[fields.index(number)]
            try:
                if not is_plain_number(value):
                    raise ValueError(value)
                converted = convert(value)
            except ValueError:
                rule = f"{number} must be {'an integer' if convert is int else 'a number'}"
                raise self._error(line_number, rule, f"got {value!r}") from None
            if not abs(converted) < (2**63 if convert is int else float("inf")):
                rule = f"{number} must be {'below 2^63' if convert is int else 'finite'}"
                raise self._error(line_number, rule, f"got {value!r}")
            key = (parts[0], parts[2])
            if key in rows:
                raise _occurs_again(self.path, line_number, *key)
            rows[key] = converted
        return pl.DataFrame(
            {"qid": [q for q, _ in rows], "docid": [d for _, d in rows], number: list(rows.values())},
            schema={"qid": pl.String, "docid": pl.String, number: pl.Int64 if convert is int else pl.Float64},
        )

    def _text(self) -> str:
        try:
            return self.raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line_number = self.raw.count(b"\n", 0, error.start) + self.first_line
            got = f"got byte {self.raw[error.start]:#04x}"
            raise self._error(line_number, "text must be UTF-8", got) from None

    def _error(self, line_number: int | None, rule: str, got: str) -> FileFormatError:
        return FileFormatError(self.path, line_number, rule, got)


def _no_lines(path: str | PathLike[str], fields: tuple[str, ...]) -> FileFormatError:
    return FileFormatError(path, None, f"expected lines of {len(fields)} fields", "got an empty file")


def _occurs_again(path: str | PathLike[str], line_number: int, query: str, document: str) -> FileFormatError:
    got = f"got {document!r} again in query {query!r}"
    return FileFormatError(path, line_number, "a document must occur once per query", got)


def _fields(line: str) -> list[str]:
    """Split a line at spaces and tabs, and at no other white space, which an id may contain."""
    line = line.strip(" \t")
    return _SEPARATOR.split(line) if line else []


def _has_more_than_a_tag(parts: list[str]) -> bool:
    """Whether a row of a run has words after its tag, and its first fields are where they should be.

    >>> _has_more_than_a_tag("q Q0 d 1 0.5 my tag".split()), _has_more_than_a_tag("q Q0 my document 1 0.5 tag".split())
    (True, False)
    """
    return len(parts) > len(_RUN) and _RANK.fullmatch(parts[_RUN.index("rank")]) is not None


def _has_single_spaces(text: bytes, fields: int) -> bool:
    r"""Whether every line has so many fields, none of them empty, with single spaces between them.

    A reader of delimited text takes two spaces for an empty field, and shifts the fields of a row that lacks one.

    >>> [_has_single_spaces(text, 3) for text in (b"a b c\nd e f\n", b"a b c", b"a  c\nd e f\n", b"a b\nc d e f\n")]
    [True, True, False, False]
    """
    data = np.frombuffer(text if text.endswith(b"\n") else text + b"\n", np.uint8)
    seen, last = 0, -1  # separators, and the index of the last one
    for start in range(0, len(data), _IN_CACHE):
        block = data[start : start + _IN_CACHE]
        ends_line = block == ord("\n")
        at = np.flatnonzero(ends_line | (block == ord(" ")))
        should_end = np.zeros(len(at), bool)
        should_end[(fields - 1 - seen) % fields :: fields] = True
        if (ends_line[at] != should_end).any() or (np.diff(at, prepend=last - start) == 1).any():
            return False
        seen, last = seen + len(at), start + int(at[-1]) if len(at) else last
    return seen % fields == 0


def _check_controls(path: str | PathLike[str], line_number: int, line: str) -> None:
    if match := CONTROL.search(line):
        rule = "a line must have no control characters but tabs"
        raise FileFormatError(path, line_number, rule, f"got {match.group()!r} in {line[:100]!r}")


def _tidy(raw: bytes) -> bytes:
    """Put one space between fields and none at the ends of lines; remove comments and empty lines."""
    if b"\t" in raw:
        raw = raw.replace(b"\t", b" ")
    while b"  " in raw:
        raw = raw.replace(b"  ", b" ")
    if b" \n" in raw or b"\n " in raw:
        raw = raw.replace(b" \n", b"\n").replace(b"\n ", b"\n")
    raw = raw.lstrip(b" \n")
    if raw.startswith(b"#") or b"\n#" in raw:
        raw = b"\n".join(line for line in raw.split(b"\n") if not line.startswith(b"#"))
    while b"\n\n" in raw:
        raw = raw.replace(b"\n\n", b"\n")
    return raw.strip(b" \n")
