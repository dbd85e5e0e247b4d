"""Describe data sets in numbers, and read files of any known format by their content."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankbound.data.beir import BeirData, read_beir
from rankbound.data.faces import Faces, read_faces
from rankbound.data.frames import lists_from_frame
from rankbound.data.interactions import Interactions
from rankbound.data.judged_runs import JudgedRuns
from rankbound.data.letor import LetorData, read_letor
from rankbound.data.ratings import read_ratings
from rankbound.data.text_chunks import StrPath, is_plain_number, line_chunks
from rankbound.data.trec import read_qrels, read_run
from rankbound.errors import DataError
from rankbound.lists import Lists

if TYPE_CHECKING:
    import polars as pl

_LETOR_LINE = re.compile(r"\S+\s+(qid:\S+|\d+:\S+)(\s+\d+:\S*)*\s*(#.*)?$")
Summary: TypeAlias = dict[str, Any]

_INTEGER = re.compile(r"[+-]?[0-9]+$")
_LARGEST_LABEL = 1000  # a larger number in the last of four fields is the time of a rating
_LOOKED_AT = 1 << 16  # bytes of the beginning of a file
_NAMES_OF_RATINGS = (".inter", ".csv", ".tsv", "users.dat")
_FIELDS = {"qrels": "query, iteration, document, label", "run": "query, Q0, document, rank, score, tag"}


@dataclass(frozen=True, eq=False)
class TrecFile:
    """The rows of TREC qrels (``kind`` is "qrels") or of a TREC run ("run"), and notes on how the file was read."""

    kind: str
    table: pl.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def lists(self) -> Lists | None:
        """The labels by query; None for a run, which has none."""
        return lists_from_frame(self.table.select("qid", "label")) if self.kind == "qrels" else None


def read_any(path: StrPath) -> Any:
    """Read a file or folder whose format is recognized: LETOR, TREC, ratings, faces or BEIR."""
    source = Path(path)
    if source.is_dir():
        if any(source.glob("corpus.jsonl*")):
            return read_beir(source)
        if any(source.rglob("*.jpg")) or any(source.rglob("*.png")):
            return read_faces(source)
        raise DataError(f"{path}: a folder must contain a BEIR corpus or images; name a file for the other formats")
    if not source.is_file():
        raise DataError(f"{path}: no such file, and no data set of that name (see rankbound data list)")
    if source.name.endswith((".npz", ".tar", ".tar.gz", ".tgz")):
        return read_faces(source)
    if ".parquet" in source.suffixes:
        return read_ratings(source)
    rows = _first_rows(source)
    if _LETOR_LINE.match(rows[0]):
        return read_letor(source)
    kind = None if any(ending in source.name for ending in _NAMES_OF_RATINGS) else _recognize_trec(rows)
    if kind is None:
        return _with_note(read_ratings(source), rows)
    table = read_qrels(source) if kind == "qrels" else read_run(source)
    return TrecFile(kind, table, _notes_on_reading(kind, rows))


def _recognize_trec(rows: list[str]) -> str | None:
    """Whether rows are those of TREC qrels or of a TREC run; None if they are neither.

    Lists of items, one user per line, look the same if each has three or five items, all of them numbers. The second
    field tells them apart: it is the same in all rows of a TREC file, or else stands before ids that are no numbers.

    >>> _recognize_trec(["q1 0 a 1", "q1 0 b 0"]), _recognize_trec(["1 Q0 7 1 0.5 tag"]), _recognize_trec(["u 1 2 3"])
    ('qrels', 'run', 'qrels')
    >>> _recognize_trec(["u1 5 6 7", "u2 7 6 5"])
    """
    split = [row.split() for row in rows]
    for kind, is_row in (("qrels", _is_judgment), ("run", _is_ranked)):
        alike = [fields for fields in split if is_row(fields)]
        is_constant = len({fields[1] for fields in alike}) == 1
        is_typed = all(_INTEGER.match(fields[1].replace(".", "", 1)) for fields in alike) and not all(
            _INTEGER.match(fields[2]) for fields in alike
        )
        if is_constant and 2 * len(alike) > len(split):  # a row that is damaged is refused by the reader
            return kind
        if is_typed and len(alike) == len(split):
            return kind
    return None


def _is_judgment(fields: list[str]) -> bool:
    return len(fields) == 4 and _is_number(fields[3]) and abs(float(fields[3])) < _LARGEST_LABEL


def _is_ranked(fields: list[str]) -> bool:
    return len(fields) >= 6 and bool(_INTEGER.match(fields[3])) and _is_number(fields[4])


def _is_number(field: str) -> bool:
    try:
        return is_plain_number(field) and bool(np.isfinite(float(field)))
    except ValueError:
        return False


def _with_note(data: Interactions, rows: list[str]) -> Interactions:
    """The interactions with a note if all rows of the file could also be those of a TREC file."""
    split = [row.split() for row in rows]
    if all(map(_is_judgment, split)) or all(map(_is_ranked, split)):
        note = "read as interactions; TREC files can look the same, but their second field is often that of all lines"
        return replace(data, notes=(*data.notes, note))
    return data


def _notes_on_reading(kind: str, rows: list[str]) -> tuple[str, ...]:
    """A sentence for a file that could also be read as lists of items."""
    second = {row.split()[1] for row in rows if len(row.split()) > 1}
    if second <= {"0", "Q0", "q0"} or (len(second) == 1 and len(rows) > 1):
        return ()
    name = "TREC qrels" if kind == "qrels" else "a TREC run"
    return (f"read as {name} ({_FIELDS[kind]}); lines of a user and items can look the same",)


def describe(data: object) -> Summary:
    """Return counts, labels and list sizes as plain Python values.

    >>> from rankbound.data.synthetic import synthetic_letor
    >>> summary = describe(synthetic_letor(queries=20, features=6, seed=2))
    >>> summary["queries"], summary["features"], list(summary["labels"])
    (20, 6, ['0', '1', '2'])
    """
    if isinstance(data, LetorData):
        unknown = float(np.isnan(data.features).mean()) if data.features.size else 0.0
        summary = _of_lists("letor", data.lists) | {"features": data.features.shape[1], "unknown_values": unknown}
    elif isinstance(data, Interactions):
        summary = {
            "kind": "ratings",
            "users": len(data.user_names),
            "items": len(data.item_names),
            "interactions": len(data),
            "features": 0,
            "labels": _count_labels([] if data.ratings is None else data.ratings),
            "list_sizes": _describe_sizes(data.per_user),
        }
    elif isinstance(data, Faces):
        height, width, *channels = data.images.shape[1:]
        summary = {
            "kind": "faces",
            "images": len(data),
            "height": height,
            "width": width,
            "channels": channels[0] if channels else 1,
            "features": int(np.prod(data.images.shape[1:])),
            "labels": _count_labels(data.ages),
        }
    elif isinstance(data, BeirData):
        summary = _of_lists("beir", data.lists) | {"documents": len(data.corpus)}
    elif isinstance(data, TrecFile):
        summary = _describe_trec(data)
    elif isinstance(data, JudgedRuns):
        judged = read_qrels(data.qrels)
        sizes = judged["qid"].value_counts()["count"].to_numpy().astype(np.int64)
        summary = {
            "kind": "runs",
            "judgments": len(judged),
            "queries": len(sizes),
            "runs": len(data),
            "features": 0,
            "labels": _count_labels(judged["label"].to_numpy()),
            "list_sizes": _describe_sizes(sizes),
        }
    elif isinstance(data, Lists):
        summary = _of_lists("trec", data)
    else:
        raise DataError(f"expected a data set, got {type(data).__name__}")
    return summary | {"notes": list(getattr(data, "notes", ()))}


def size_histogram(sizes: ArrayLike) -> list[dict[str, int]]:
    """Count the sizes between powers of two.

    >>> size_histogram([1, 2, 3, 9])
    [{'from': 1, 'to': 1, 'count': 1}, {'from': 2, 'to': 3, 'count': 2}, {'from': 8, 'to': 15, 'count': 1}]
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    power = np.floor(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    counts = np.bincount(power[sizes > 0])
    filled = [{"from": 2**k, "to": 2 ** (k + 1) - 1, "count": int(n)} for k, n in enumerate(counts) if n]
    empty = int((sizes == 0).sum())
    return [{"from": 0, "to": 0, "count": empty}, *filled] if empty else filled


def _describe_trec(data: TrecFile) -> Summary:
    sizes = data.table["qid"].value_counts()["count"].to_numpy().astype(np.int64)
    return {
        "kind": data.kind,
        "rows": len(data.table),
        "queries": len(sizes),
        "documents": data.table["docid"].n_unique(),
        "features": 0,
        "labels": _count_labels(data.table["label"].to_numpy() if data.kind == "qrels" else []),
        "list_sizes": _describe_sizes(sizes),
    }


def _of_lists(kind: str, lists: Lists) -> Summary:
    return {
        "kind": kind,
        "rows": len(lists.labels),
        "queries": len(lists),
        "features": 0,
        "labels": _count_labels(lists.labels),
        "list_sizes": _describe_sizes(lists.sizes),
    }


def _count_labels(labels: ArrayLike) -> dict[str, int]:
    values, counts = np.unique(np.asarray(labels), return_counts=True)
    return {f"{value:g}": int(count) for value, count in zip(values.tolist(), counts.tolist(), strict=True)}


def _describe_sizes(sizes: NDArray[np.int64]) -> Summary:
    if len(sizes) == 0:
        return {"min": 0, "median": 0.0, "max": 0, "histogram": []}
    return {
        "min": int(sizes.min()),
        "median": float(np.median(sizes)),
        "max": int(sizes.max()),
        "histogram": size_histogram(sizes),
    }


def _first_rows(path: Path) -> list[str]:
    """The rows at the beginning of a text file, without comments and empty lines; a row at least."""
    for _, text in line_chunks(path, _LOOKED_AT):
        lines = text.decode("utf-8", "replace").splitlines()
        if rows := [row for row in lines if row.strip() and not row.lstrip().startswith("#")]:
            return rows
    raise DataError(f"{path}: has no line of data")
