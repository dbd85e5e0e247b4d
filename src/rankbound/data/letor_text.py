"""Parse lines of LETOR and SVMlight files, one block of lines at a time.

The fast way turns every separator into a line break, lets polars parse all numbers at once as a single column, and
checks with NumPy that labels, qids, indices and values are where they must be. A block that the fast way cannot read is
parsed again line by line, which either succeeds (unusual but valid) or names the first invalid line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rankbound.data.frames import polars_failures
from rankbound.data.text_chunks import CONTROL, StrPath, has_controls, is_plain_number
from rankbound.errors import FileFormatError

WIDEST = 65_536  # features are dense: a single index of 10^9 must not allocate terabytes
_TAB, _NEWLINE, _SPACE, _ZERO, _COLON = 9, 10, 32, 48, 58
_QID = np.frombuffer(b"qid:", np.uint8)
_DOCUMENT = re.compile(r"docid[ \t]*=[ \t]*([^ \t]+)")
_LONGEST_ID = 255  # characters: every entry of a NumPy text array is as wide as the longest
_LONGEST_QID = 19  # digits
_LARGEST = float(np.finfo(np.float32).max)
_EXACT = 2.0**53  # float64 represents integers exactly up to here


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a file: labels, qids if the file has them, features, and document ids from comments if there are any."""

    labels: NDArray[np.float64]
    qids: NDArray[np.int64] | None
    features: NDArray[np.float32]
    ids: NDArray[np.str_] | None = None


@dataclass(slots=True)
class BlockParser:
    """Parser of the blocks of one file; it remembers what earlier blocks revealed about the file."""

    path: StrPath
    label_range: tuple[float, float]
    has_qid: bool | None = None  # None before the first row
    has_null: bool = False

    def parse(self, text: bytes, first_line: int) -> Block | None:
        """Parse complete lines of which the first is number ``first_line``; return None if there is no row."""
        ids = None
        body = text
        if b"#" in text:
            parts = [line.partition(b"#") for line in text.split(b"\n")]
            parts = [part for part in parts if part[0].strip()]
            body = b"\n".join(part[0].rstrip() for part in parts)
            documents = [_document(part[2]) for part in parts]
            if max(map(len, documents), default=0) > _LONGEST_ID or CONTROL.search("".join(documents)):
                raise self._invalid_id(text, first_line)
            ids = np.array(documents, dtype=np.str_)
        body = _tidy_ends(body)
        if body.isspace():
            return None
        block = self._fast(body)
        if block is None and not has_controls(body):
            block = self._fast(_tidy(body))
        if block is None:
            block = self._slowly(text, first_line)
        self.has_qid = block.qids is not None
        return block if ids is None else replace(block, ids=ids)

    # ---- all numbers at once -----------------------------------------------------------------------------------------

    def _fast(self, text: bytes) -> Block | None:
        """Parse lines ``label [qid:q] index:value ...`` with single separators; return None for any other text."""
        data = np.frombuffer(text, np.uint8).copy()
        separators = np.flatnonzero((data <= _SPACE) | (data == _COLON))
        if separators[0] == 0 or (np.diff(separators) == 1).any():
            return None
        kinds = data[separators]
        ends = np.flatnonzero(kinds == _NEWLINE)
        valid = len(ends) + sum(np.count_nonzero(kinds == kind) for kind in (_SPACE, _COLON, _TAB))
        if valid != len(kinds):  # a control character
            return None
        heads = np.concatenate(([0], ends[:-1] + 1))  # separator after the label of each line
        has_qid = _is_qid(data, separators[heads])
        if has_qid is None or self.has_qid not in (None, has_qid):
            return None
        if has_qid:  # "qid:17" becomes the number "000017", so that a line has label, qid, index, value, index, ...
            data[separators[heads, None] + np.arange(1, 5)] = ord("0")
            qid_starts = separators[heads] + 5
            qid_lengths = separators[heads + 2] - qid_starts
            keep = np.ones(len(separators), dtype=bool)
            keep[heads + 1] = False
            separators, kinds = separators[keep], kinds[keep]
            ends = ends - np.arange(1, len(ends) + 1)
        data[separators] = _NEWLINE
        numbers = self._numbers(data.tobytes())
        if numbers is None or len(numbers) != len(separators):
            return None
        parsed = _rows(numbers, kinds, ends, 2 if has_qid else 1)
        if parsed is None:
            return None
        labels, qids, features = parsed
        low, high = self.label_range
        if not ((labels >= low) & (labels <= high)).all() or np.isinf(features).any():
            return None
        if qids is None:
            return Block(labels, None, features)
        if not (qids < _EXACT).all() or (qids != np.floor(qids)).any():
            return None
        if not _have_digits_only(data, qid_starts, qid_lengths, qids):
            return None
        return Block(labels, qids.astype(np.int64), features)

    def _numbers(self, lines: bytes) -> NDArray[np.float64] | None:
        import polars as pl

        try:
            frame = pl.read_csv(
                lines,
                has_header=False,
                separator="\x01",
                quote_char=None,
                schema={"number": pl.Float64},
                null_values=["NULL"] if self.has_null else None,
            )
        except polars_failures():
            if self.has_null or b"NULL" not in lines:
                return None
            self.has_null = True
            return self._numbers(lines)
        return frame["number"].to_numpy()

    # ---- line by line ------------------------------------------------------------------------------------------------

    def _slowly(self, text: bytes, first_line: int) -> Block:
        labels, qids = [], []
        rows: list[tuple[list[int], list[float]]] = []
        for number, line in enumerate(text.split(b"\n"), first_line):
            body = line.partition(b"#")[0].decode("utf-8", "replace")
            if match := CONTROL.search(body):
                rule = "a line must have no control characters but tabs"
                raise self._error(number, rule, f"got {match.group()!r} in {_short(body)}")
            fields = [field for field in body.replace("\t", " ").split(" ") if field]  # no other white space separates
            if not fields:
                continue
            labels.append(self._label(fields[0], number))
            has_qid = len(fields) > 1 and fields[1].startswith("qid:")
            if self.has_qid is None:
                self.has_qid = has_qid
            if has_qid and not self.has_qid:
                raise self._error(number, "either all lines or none have a qid", f"got {_short(fields[1])} here only")
            if self.has_qid:
                qids.append(self._query(fields[1] if len(fields) > 1 else "nothing", number))
            rows.append(self._pairs(fields[2 if self.has_qid else 1 :], number))
        features = np.zeros((len(rows), max((indices[-1] for indices, _ in rows if indices), default=0)), np.float32)
        for row, (indices, values) in enumerate(rows):
            features[row, np.asarray(indices, np.int64) - 1] = values
        return Block(np.array(labels), np.array(qids, np.int64) if self.has_qid else None, features)

    def _label(self, field: str, line: int) -> float:
        low, high = self.label_range
        label = _float(field)
        if label is None:
            raise self._error(line, "a line must begin with a number, the label", f"got {_short(field)}")
        if not low <= label <= high:
            raise self._error(line, f"the label must lie between {low:g} and {high:g}", f"got {_short(field)}")
        return label

    def _query(self, field: str, line: int) -> int:
        name, _, value = field.partition(":")
        if name != "qid":
            raise self._error(line, "qid is missing: the second field must be qid:number", f"got {_short(field)}")
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", value) or abs(int(value)) >= 2**63:
            raise self._error(line, "qid must be an integer below 2^63", f"got {_short(field)}")
        return int(value)

    def _pairs(self, fields: list[str], line: int) -> tuple[list[int], list[float]]:
        indices: list[int] = []
        values: list[float] = []
        for field in fields:
            index, colon, value = field.partition(":")
            if not colon or not index or not value:
                raise self._error(
                    line, "a feature must be written index:value", f"got {_short(field)} (truncated line?)"
                )
            if not (index.isascii() and index.isdecimal()) or len(index) > 9 or not 1 <= int(index) <= WIDEST:
                rule = f"a feature index must be an integer from 1 to {WIDEST}"
                raise self._error(line, rule, f"got {_short(field)}")
            if indices and int(index) <= indices[-1]:
                raise self._error(line, "feature indices must increase", f"got {index} after {indices[-1]}")
            number = float("nan") if value == "NULL" else _float(value)
            if number is None or abs(number) > _LARGEST:
                raise self._error(line, "a feature value must be a finite number or NULL", f"got {_short(field)}")
            indices.append(int(index))
            values.append(number)
        return indices, values

    def _invalid_id(self, text: bytes, first_line: int) -> FileFormatError:
        """Find the first document whose id is too long or has control characters."""
        rows = ((number, line.partition(b"#")) for number, line in enumerate(text.split(b"\n"), first_line))
        names = ((number, _document(comment)) for number, (row, _, comment) in rows if row.strip())
        number, name = next((at, name) for at, name in names if len(name) > _LONGEST_ID or CONTROL.search(name))
        what = f"at most {_LONGEST_ID} characters" if len(name) > _LONGEST_ID else "no control characters"
        return self._error(number, f"a document's id must have {what}", f"got {_short(name)}")

    def _error(self, line: int, rule: str, got: str) -> FileFormatError:
        return FileFormatError(self.path, line, rule, got)


def _is_qid(data: NDArray[np.uint8], after_label: NDArray[np.int64]) -> bool | None:
    """Return whether a qid follows the label on every line (True) or on none (False); None if lines differ."""
    if int(after_label[-1]) + 5 > len(data):  # the last line is too short for a qid
        return False
    is_qid = (data[after_label[:, None] + np.arange(1, 5)] == _QID).all(axis=1)
    return True if is_qid.all() else None if is_qid.any() else False


def _have_digits_only(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], values: NDArray[np.float64]
) -> bool:
    """Whether qids are digits only: 1e3 and 1. are numbers, too, but no names of queries.

    A qid that has the value and the length of the one before it is not looked at again.
    """
    is_new = np.ones(len(values), dtype=bool)
    is_new[1:] = (values[1:] != values[:-1]) | (lengths[1:] != lengths[:-1])
    starts, lengths = starts[is_new], lengths[is_new]
    longest = int(lengths.max())
    if longest > _LONGEST_QID:
        return False
    at = np.minimum(np.arange(longest), lengths[:, None] - 1)  # repeats the last digit of shorter ones
    digits = data[starts[:, None] + at] - np.uint8(_ZERO)  # anything below "0" wraps around
    return bool((digits < 10).all())


def _rows(
    numbers: NDArray[np.float64], kinds: NDArray[np.uint8], ends: NDArray[np.int64], head: int
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, NDArray[np.float32]] | None:
    """Return labels, qids (None when ``head`` is 1) and features; None if the numbers do not have this structure.

    ``kinds`` is the separator after each number, ``ends`` the index of the last number of each line, ``head`` the count
    of numbers that precede the pairs of index and value.
    """
    rows, per_line = len(ends), np.diff(ends, prepend=-1)
    width = int(per_line[0])
    heads = np.concatenate(([0], ends[:-1] + 1))
    if ((per_line - head) % 2).any() or (per_line < head).any():
        return None
    if (per_line == width).all():
        table, marks = numbers.reshape(rows, width), kinds.reshape(rows, width)
        if (marks[:, :head] == _COLON).any() or (marks[:, head + 1 :: 2] == _COLON).any():
            return None
        if (marks[:, head::2] != _COLON).any():
            return None
        if (table[:, head::2] == np.arange(1, (width - head) // 2 + 1)).all():
            values = table[:, head + 1 :: 2]
            return table[:, 0].copy(), table[:, 1].copy() if head == 2 else None, _single(values)
    body = np.ones(len(numbers), dtype=bool)
    body[heads] = False
    if head == 2:
        body[heads + 1] = False
    keys, values = numbers[body].reshape(-1, 2).T
    colons = kinds == _COLON
    after_key, after_value = colons[body].reshape(-1, 2).T
    if colons[~body].any() or not after_key.all() or after_value.any():
        return None
    if not ((keys >= 1) & (keys <= WIDEST)).all() or (keys != np.floor(keys)).any():
        return None
    row = np.repeat(np.arange(rows), (per_line - head) // 2)
    if ((np.diff(keys) <= 0) & (np.diff(row) == 0)).any():
        return None
    features = np.zeros((rows, int(keys.max(initial=0))), np.float32)
    features[row, keys.astype(np.int64) - 1] = _single(values)
    return numbers[heads], numbers[heads + 1] if head == 2 else None, features


def _single(values: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # the caller refuses the resulting infinity
        return values.astype(np.float32, order="C")


def _tidy_ends(text: bytes) -> bytes:
    """Remove trailing spaces and carriage returns if the first line has them; end the text with a line break."""
    if not text.endswith(b"\n"):
        text += b"\n"
    first = text.find(b"\n")
    if text[:first].endswith(b"\r"):
        text = text.replace(b"\r\n", b"\n")
        first = text.find(b"\n")
    return text.replace(b" \n", b"\n") if text[:first].endswith(b" ") else text


def _tidy(text: bytes) -> bytes:
    """Put one space between fields and none elsewhere, and remove empty lines."""
    lines = (b" ".join(line.split()) for line in text.split(b"\n"))
    return b"\n".join(line for line in lines if line) + b"\n"


def _document(comment: bytes) -> str:
    text = comment.decode("utf-8", "replace")
    match = _DOCUMENT.search(text)
    return match.group(1) if match else text.strip(" \t").partition(" ")[0]


def _float(field: str) -> float | None:
    try:
        return float(field) if is_plain_number(field) else None
    except ValueError:
        return None


def _short(field: str) -> str:
    return repr(field if len(field) <= 40 else field[:37] + "...")
