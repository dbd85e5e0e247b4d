"""Read interactions: MovieLens, RecBole, CiteULike, Epinions, Amazon, and any csv or parquet with named columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankbound.data.frames import polars_explained, polars_failures
from rankbound.data.growing_table import GrowingTable
from rankbound.data.interactions import LONGEST_NAME, Interactions, NameCoder, count_codes, notes_of, sorted_rows
from rankbound.data.text_chunks import CONTROL, StrPath, has_controls, is_plain_number, line_chunks
from rankbound.errors import ArgumentError, DataError, FileFormatError

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "table": "csv or parquet with a header; MovieLens ratings.csv is one",
        "u.data": "user, item, rating, timestamp, separated by tabs, no header (MovieLens 100K)",
        "::": "user::item::rating::timestamp (MovieLens 1M, 10M)",
        "inter": "RecBole's atomic file: separated by tabs, header with types such as user_id:token",
        "amazon": "csv without header: user, item, rating, timestamp; item before user in the 2018 release",
        "users.dat": "CiteULike: one line per user, the number of items and then the items",
        "sequences": "one line per user, the user and then the items",
        "trust": "Epinions: who trusts whom, separated by spaces or tabs; a third column is ignored, as are # comments",
    }
)
USUAL_NAMES: Mapping[str, tuple[str, ...]] = {  # of columns, in lower case
    "user": ("user", "userid", "user_id", "uid", "reviewerid", "truster"),
    "item": ("item", "movieid", "itemid", "item_id", "movie_id", "asin", "iid", "trustee"),
    "rating": ("rating", "overall", "stars", "score"),
    "timestamp": ("timestamp", "time", "unixreviewtime"),
}
ROLES = tuple(USUAL_NAMES)
_TYPES = {"user": pl.String, "item": pl.String, "rating": pl.Float64, "timestamp": pl.Float64}  # while parsing
_NUMBERS = {"rating": np.float32, "timestamp": np.int64}  # in the result
_TOO_LARGE = {"rating": float(np.finfo(np.float32).max), "timestamp": 2.0**63}
_BLANK_LINE = re.compile(rb"(^|\n)[ \t\r]*\n")
BUCKET = 1 << 20  # rows of a file larger than memory that are sorted at once
_MOST_BUCKETS = 200  # open files
_STEP = 1 << 20  # rows that are read again at once
_ASIN = 10  # characters of an Amazon product id; ids of reviewers are longer


@dataclass(frozen=True)
class _Layout:
    """The separator of a delimited file and the index of each column."""

    separator: str
    columns: Mapping[str, int]
    width: int
    header: bool = False
    comment: bool = False


def read_ratings(
    path: StrPath,
    form: str = "auto",
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    timestamp: str | None = None,
) -> Interactions:
    """Read a file of interactions, compressed or not.

    Parameters
    ----------
    path:
        The file.
    form:
        One of `FORMATS`; "auto" recognizes the format by the file's name and first line.
    user, item, rating, timestamp:
        Columns of a table whose header has unusual names.
    """
    if form not in ("auto", *FORMATS):
        raise ArgumentError(f"form must be auto or one of {', '.join(FORMATS)}; got {form!r}")
    return _read(path, form, {"user": user, "item": item, "rating": rating, "timestamp": timestamp}, None)


def read_mapped_ratings(path: StrPath, named: Mapping[str, str | None], folder: Path) -> Interactions:
    """Read a file like `read_ratings`, with columns in temporary files on the disk of a folder, mapped into memory.

    Delimited text may be larger than memory; other formats are read at once. ``named`` are columns by their roles.
    """
    return _read(path, "auto", named, folder)


def _read(path: StrPath, form: str, named: Mapping[str, str | None], folder: Path | None) -> Interactions:
    if ".parquet" in Path(path).suffixes:
        return _read_parquet(path, named)
    first = first_line(path)
    if form == "auto":
        named_columns = any(name is not None for name in named.values())
        form = "table" if named_columns and not Path(path).name.endswith(".inter") else _recognize(path, first)
    if form in ("users.dat", "sequences"):
        return _read_sequences(path, counted=form == "users.dat")
    return _read_delimited(path, _layout(path, form, first, named), folder)


def _recognize(path: StrPath, first: str) -> str:
    name = Path(path).name.removesuffix(".gz").removesuffix(".zst")
    fields = first.split()
    if name.endswith(".inter"):
        return "inter"
    if name == "users.dat":
        return "users.dat"
    if "::" in first:
        return "::"
    if "," in first:
        return "table" if _is_header(first.split(",")) else "amazon"
    if "\t" in first and _is_header(first.split("\t")):
        return "table"
    if len(fields) == 4 and "\t" in first:
        return "u.data"
    if len(fields) > 1 and {"user", "item"} <= find_roles(fields).keys():
        rule = "a header is for tables with commas or tabs between the columns"
        raise FileFormatError(path, 1, rule, f"got {first[:60]!r}")
    return "trust" if first.startswith("#") or len(fields) in (2, 3) else "sequences"


def find_roles(header: Sequence[str]) -> dict[str, str]:
    """Return the columns of a table that hold user, item, rating and timestamp, by their usual names.

    >>> find_roles(["userId", "movieId", "title"])
    {'user': 'userId', 'item': 'movieId'}
    """
    lower = [name.lower() for name in header]
    usual = {role: next((name for name in names if name in lower), None) for role, names in USUAL_NAMES.items()}
    return {role: header[lower.index(name)] for role, name in usual.items() if name is not None}


def _is_header(fields: Sequence[str]) -> bool:
    """Whether a line names columns: one of them has a known name, or the third, a rating elsewhere, is no number."""
    names = [field.strip().strip('"').lower() for field in fields]
    known = any(name in USUAL_NAMES["user"] for name in names)
    return known or (len(names) > 2 and not _is_number(names[2], np.inf))


def first_line(path: StrPath) -> str:
    """Return the first line of a file that is not blank."""
    if str(path) == "-":
        raise ArgumentError("ratings cannot be read from standard input, because their format is recognized first")
    for _, text in line_chunks(path, 1 << 16):
        for line in text.decode("utf-8", "replace").splitlines():
            if line.strip():
                return line
    raise DataError(f"{path}: has no line of data")


# ---- delimited -------------------------------------------------------------------------------------------------------


def _layout(path: StrPath, form: str, first: str, named: Mapping[str, str | None]) -> _Layout:
    if form in ("table", "inter"):
        separator = "\t" if form == "inter" or "\t" in first else ","
        header = [field.strip().strip('"') for field in first.split(separator)]
        if form == "inter":
            header = [field.partition(":")[0] for field in header]
        return _Layout(separator, role_indices(header, named, path), len(header), header=True)
    separator = {"u.data": "\t", "::": "\t", "amazon": ",", "trust": " "}[form]
    if form == "trust":
        return _Layout(separator, {"user": 0, "item": 1}, 0, comment=True)
    fields = first.split("::" if form == "::" else separator)
    if len(fields) < 3:
        raise FileFormatError(path, 1, "expected user, item, rating and maybe a timestamp", f"got {first[:60]!r}")
    order = ["item", "user"] if form == "amazon" and len(fields[0]) == _ASIN != len(fields[1]) else ["user", "item"]
    columns = {name: at for at, name in enumerate([*order, "rating", "timestamp"][: len(fields)])}
    return _Layout(separator, columns, len(fields))


def role_indices(header: Sequence[str], named: Mapping[str, str | None], path: StrPath | None = None) -> dict[str, int]:
    """Return the index of the user, the item, ... in a header; errors name the file, if the header is from one."""
    roles = find_roles(header)
    for role, wanted in named.items():
        if wanted is not None:
            if wanted not in header:
                got = f"got {wanted!r}; the columns are {', '.join(header)}"
                raise _header_error(path, f"the {role} column must be in the header", got)
            roles[role] = wanted
    indices = {role: header.index(roles[role]) for role in ROLES if role in roles}
    for role, at in indices.items():
        if header.count(header[at]) > 1:
            got = f"got {header[at]!r} {header.count(header[at])} times"
            raise _header_error(path, f"the column of the {role} must occur once in the header", got)
    for role in ("user", "item"):
        if role not in indices:
            got = f"got the columns {', '.join(header)}; name it with {role}=... or --{role}"
            raise _header_error(path, f"the header must have a column for the {role}", got)
    return indices


def _header_error(path: StrPath | None, rule: str, got: str) -> DataError:
    return DataError(f"{rule}, {got}") if path is None else FileFormatError(path, 1, rule, got)


def _read_delimited(path: StrPath, layout: _Layout, folder: Path | None) -> Interactions:
    users, items = NameCoder(folder=folder), NameCoder(folder=folder)
    numbers = {name: GrowingTable(kind, folder) for name, kind in _NUMBERS.items() if name in layout.columns}
    rows = 0
    for line, text in line_chunks(path, 4 << 20):
        frame = _parse(path, line, text, layout)
        rows += len(frame)
        users.add(frame["user"])
        items.add(frame["item"])
        for name, column in numbers.items():
            column.append(frame[name].to_numpy())
    if rows == 0:
        raise DataError(f"{path}: has no interaction")
    if folder is not None:
        columns = {f"{name}s": column.finish().ravel() for name, column in numbers.items()}
        return _sort_on_disk(users, items, columns, folder)
    rating, timestamp = numbers.get("rating"), numbers.get("timestamp")
    return Interactions.from_codes(  # no local variable keeps the columns alive
        users.codes(),
        items.codes(),
        users.names(),
        items.names(),
        None if rating is None else rating.finish().ravel(),
        None if timestamp is None else timestamp.finish().ravel(),
    )


def _parse(path: StrPath, line: int, text: bytes, layout: _Layout) -> pl.DataFrame:
    plain = text.replace(b"::", b"\t") if b"::" in text[:200] and layout.separator == "\t" else text
    if _BLANK_LINE.search(plain):
        plain = b"\n".join(row for row in plain.splitlines() if row.strip())
    if layout.header and line == 1:
        plain = plain.partition(b"\n")[2]
        if not plain.strip():  # versions of polars disagree about a table without rows
            return _empty(layout)
    width = layout.width
    if layout.comment:  # trust files: any spaces, comments, sometimes a third column
        rows = [row.split()[:2] for row in plain.split(b"\n") if row.strip() and not row.lstrip().startswith(b"#")]
        plain, width = b"".join(b" ".join(row) + b"\n" for row in rows), 2
        if not rows:
            return _empty(layout)
    role = {at: name for name, at in layout.columns.items()}
    schema = {role.get(at, f"_{at}"): _TYPES.get(role.get(at, ""), pl.String) for at in range(width)}
    try:
        frame = pl.read_csv(
            plain,
            separator=layout.separator,
            has_header=False,
            schema=schema,
            quote_char='"' if layout.separator == "," else None,
        ).select(list(layout.columns))
    except pl.exceptions.NoDataError:
        return _empty(layout)
    except polars_failures() as error:
        raise _find_invalid_line(path, line, text, layout, str(error)) from error
    numbers = [name for name in _NUMBERS if name in layout.columns]
    if has_controls(text) and any(frame[name].str.contains(CONTROL.pattern).any() for name in ("user", "item")):
        raise _find_invalid_line(path, line, text, layout, "a name has a control character")
    if any((frame[name].str.len_bytes() > LONGEST_NAME).any() for name in ("user", "item")):
        raise _find_invalid_line(path, line, text, layout, "a name is too long")
    if any(frame.null_count().row(0)) or not all((frame[name].abs() < _TOO_LARGE[name]).all() for name in numbers):
        raise _find_invalid_line(path, line, text, layout, "a field is empty")
    return frame


def _empty(layout: _Layout) -> pl.DataFrame:
    return pl.DataFrame(schema={name: _TYPES[name] for name in layout.columns})


def _find_invalid_line(path: StrPath, first: int, text: bytes, layout: _Layout, error: str) -> FileFormatError:
    """Find the first invalid line."""
    for number, row in enumerate(text.decode("utf-8", "replace").split("\n"), first):
        if not row.strip() or (layout.header and number == 1) or (layout.comment and row.lstrip().startswith("#")):
            continue
        fields = row.replace("::", "\t").split(layout.separator) if not layout.comment else row.split()
        wanted = layout.width or 2
        if layout.separator == "," and row.count('"') % 2:
            return FileFormatError(path, number, "a field in quotes must end with a quote", f"got {row[:60]!r}")
        if len(fields) < wanted or (len(fields) > wanted and not layout.comment):
            return FileFormatError(path, number, f"expected {wanted} fields", f"got {len(fields)}: {row[:60]!r}")
        for name, at in layout.columns.items():
            if not fields[at].strip():
                return FileFormatError(path, number, f"the {name} must not be empty", f"got {row[:60]!r}")
            if name not in _NUMBERS and CONTROL.search(fields[at]):
                rule = f"the {name} must have no control characters"
                return FileFormatError(path, number, rule, f"got {fields[at][:60]!r}")
            if name not in _NUMBERS and len(fields[at].encode()) > LONGEST_NAME:
                rule = f"the {name} must have at most {LONGEST_NAME} bytes"
                return FileFormatError(path, number, rule, f"got {fields[at][:40]!r}...")
            if name in _NUMBERS and not _is_number(fields[at], np.inf):
                return FileFormatError(path, number, f"the {name} must be a finite number", f"got {fields[at]!r}")
            if name in _NUMBERS and not _is_number(fields[at], _TOO_LARGE[name]):
                rule = f"the {name} must be below {_TOO_LARGE[name]:.3g}"
                return FileFormatError(path, number, rule, f"got {fields[at]!r}")
    return FileFormatError(path, first, "the table cannot be read", error.splitlines()[0])


def _is_number(field: str, too_large: float) -> bool:
    try:
        return is_plain_number(field) and abs(float(field)) < too_large
    except ValueError:
        return False


# ---- larger than memory ----------------------------------------------------------------------------------------------


def _sort_on_disk(users: NameCoder, items: NameCoder, numbers: dict[str, NDArray[Any]], folder: Path) -> Interactions:
    """What `Interactions.from_codes` returns, with all columns in temporary files on the disk of a folder.

    The rows are written to temporary files, in buckets of users of about a million rows. Each bucket is sorted in
    memory, and the sorted rows of all buckets are the table. ``numbers`` are the columns ``ratings`` and
    ``timestamps``, where there are any. The files disappear with the last reference to the table.
    """
    user_codes, item_codes = users.provisional_codes(), items.provisional_codes()
    user_names, item_names = users.names(), items.names()
    kinds = {"users": np.dtype(np.int32), "items": np.dtype(np.int32)}
    kinds |= {name: column.dtype for name, column in numbers.items()}
    record = np.dtype(list(kinds.items()))
    counts = sum(
        (count_codes(codes, len(user_names)) for codes in _blocks(*user_codes)),
        start=np.zeros(len(user_names), np.int64),
    )
    size = max(BUCKET, -(-int(counts.sum()) // _MOST_BUCKETS))
    bucket_of = (np.cumsum(counts) - counts) // size
    buckets = [GrowingTable(record, folder) for _ in range(int(bucket_of[-1]) + 1)]
    for number, (own_users, own_items) in enumerate(zip(_blocks(*user_codes), _blocks(*item_codes), strict=True)):
        rows = np.empty(len(own_users), record)
        rows["users"], rows["items"] = own_users, own_items
        for name, column in numbers.items():
            rows[name] = column[number * _STEP : (number + 1) * _STEP]
        bucket = bucket_of[own_users]
        for chosen in np.unique(bucket).tolist():
            buckets[chosen].append(rows[bucket == chosen])
    columns = {name: GrowingTable(kind, folder) for name, kind in kinds.items()}
    repeated = 0
    while buckets:
        rows = np.array(buckets.pop(0).finish().ravel())
        pair = rows["users"].astype(np.int64) * len(item_names) + rows["items"]
        known = (np.ascontiguousarray(rows[name]) if name in numbers else None for name in ("ratings", "timestamps"))
        keep, again = sorted_rows(pair, *known)
        repeated += again
        for name, target in columns.items():
            target.append(np.ascontiguousarray(rows[name][keep]))
    mapped = {name: column.finish().ravel() for name, column in columns.items()}
    return Interactions(user_names=user_names, item_names=item_names, notes=notes_of(repeated), **mapped)


def _blocks(codes: NDArray[np.uint32], meaning: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    for start in range(0, len(codes), _STEP):
        yield meaning[codes[start : start + _STEP]]


# ---- sequences and parquet -------------------------------------------------------------------------------------------


def _read_sequences(path: StrPath, *, counted: bool) -> Interactions:
    names: list[str] = []
    sizes: list[int] = []
    items = NameCoder()
    for first, text in line_chunks(path):
        words: list[str] = []
        for number, row in enumerate(text.decode("utf-8", "replace").splitlines(), first):
            head, *chosen = row.split() or [""]
            if not head:
                continue
            if CONTROL.search(row):
                raise FileFormatError(
                    path, number, "a line must have no control characters but tabs", f"got {row[:60]!r}"
                )
            if counted and head != str(len(chosen)):
                got = f"got {head} before {len(chosen)} items"
                raise FileFormatError(path, number, "a line must begin with the number of its items", got)
            if not chosen and not counted:
                raise FileFormatError(path, number, "a line must have a user and an item", f"got {row[:60]!r}")
            names.append(str(len(names)) if counted else head)
            sizes.append(len(chosen))
            words += chosen
        items.add(pl.Series(words, dtype=pl.String))
    counts = np.array(sizes, np.int64)
    if counts.sum() == 0:
        raise DataError(f"{path}: has no interaction")
    users = NameCoder()
    users.add(pl.Series(names, dtype=pl.String))
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    order = None if counted else np.arange(len(starts)) - starts  # CiteULike sorts the items of a user
    codes = np.repeat(users.codes(), counts), items.codes()
    return Interactions.from_codes(*codes, users.names(), items.names(), timestamps=order)


def _read_parquet(path: StrPath, named: Mapping[str, str | None]) -> Interactions:
    with polars_explained(path):
        header = list(pl.read_parquet_schema(Path(path)))
        columns = {role: header[at] for role, at in role_indices(header, named, path).items()}
        frame = pl.read_parquet(Path(path), columns=list(dict.fromkeys(columns.values())))
    if frame.is_empty():
        raise DataError(f"{path}: has no interaction")
    return Interactions.from_columns(*(frame[columns[role]] if role in columns else None for role in USUAL_NAMES))
