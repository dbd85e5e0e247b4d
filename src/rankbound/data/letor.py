"""LETOR 2.0 to 4.0, SVMlight with qid, and LightGBM's text with a file of group sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankbound.data.chunks import StrPath, line_chunks
from rankbound.data.growing import GrowingTable
from rankbound.data.letor_text import Block, BlockParser
from rankbound.errors import DataError, FileFormatError
from rankbound.io import read_bytes
from rankbound.lists import Lists

__all__ = ["LABELS", "LetorData", "group_file", "read_groups", "read_letor"]

LABELS = (-1.0, 31.0)  # -1 is LETOR's "not judged"; above 31 a gain of 2^label - 1 is no longer a sensible number


@dataclass(frozen=True, eq=False)
class LetorData:
    """Queries with a vector of features for every document.

    ``features`` has one float32 row per item of ``lists``; a feature that a file leaves out is 0, NULL is NaN.
    ``notes`` are remarks for the user about what the reader had to do.
    """

    lists: Lists
    features: NDArray[np.float32]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or len(self.features) != len(self.lists.labels):
            raise DataError(
                f"features must have one row per item, {len(self.lists.labels)}, got shape {self.features.shape}"
            )

    def __repr__(self) -> str:
        rows, width = self.features.shape
        return f"LetorData(queries={len(self.lists)}, rows={rows}, features={width})"

    def take(self, queries: NDArray[np.integer] | Sequence[int]) -> LetorData:
        """The data of some queries, by position, in the order given."""
        chosen = np.asarray(queries, dtype=np.int64)
        lists = self.lists
        sizes = lists.sizes[chosen]
        ends = np.cumsum(sizes)
        rows = np.arange(int(sizes.sum())) + np.repeat(lists.offsets[chosen] - (ends - sizes), sizes)
        return LetorData(_taken(lists, rows, np.concatenate(([0], ends)), chosen), self.features[rows], self.notes)


def read_letor(
    path: StrPath | Sequence[StrPath],
    *,
    groups: StrPath | None = None,
    label_range: tuple[float, float] = LABELS,
) -> LetorData:
    """Read one file, or several as if they were one, plain or compressed.

    Parameters
    ----------
    path:
        Lines ``label qid:q index:value ... # comment``. Comments become document ids: what follows ``docid =``,
        else the first word.
    groups:
        For a file without qids: LightGBM's file of group sizes, one per line. Not given, it is looked for beside the
        file under its name plus ``.query``. Queries are then numbered 0, 1, 2, ...
    label_range:
        Smallest and largest label to accept.

    Rows of a query that are not neighbors are brought together, with a note in the result.
    """
    paths = [path] if isinstance(path, (str, PathLike)) else list(path)
    features = GrowingTable(np.float32)
    labels, qids, ids = [], [], []
    for one in paths:
        rows, numbered = 0, True
        for block in _blocks(one, label_range):
            features.append(block.features)
            labels.append(block.labels)
            ids.append(np.zeros(len(block.labels), np.str_) if block.ids is None else block.ids)
            rows += len(block.labels)
            if block.qids is None:
                numbered = False
            else:
                qids.append(block.qids)
        if rows == 0:
            raise DataError(f"{one}: holds no line of data")
        if not numbered:
            first = int(qids[-1].max()) + 1 if qids else 0
            qids.append(first + _queries_of_groups(one, rows, groups))
    names = np.concatenate(ids)
    return _assembled(
        np.concatenate(labels), np.concatenate(qids), names if (names != "").any() else None, features.finish()
    )


def group_file(path: StrPath) -> Path:
    """Where LightGBM expects the group sizes of a file.

    >>> group_file("rank.train.gz").name
    'rank.train.query'
    """
    plain = Path(fspath(path))
    if plain.suffix in (".gz", ".zst"):
        plain = plain.with_suffix("")
    return plain.with_name(plain.name + ".query")


def read_groups(path: StrPath) -> NDArray[np.int64]:
    """Group sizes, one per line."""
    sizes = []
    for number, line in enumerate(read_bytes(path).split(b"\n"), 1):
        field = line.strip().decode("utf-8", "replace")
        if not field:
            continue
        if not field.isdecimal() or len(field) > 18 or int(field) == 0:
            raise FileFormatError(path, number, "a group size must be a positive whole number", f"got {field!r}")
        sizes.append(int(field))
    return np.array(sizes, dtype=np.int64)


def _blocks(path: StrPath, label_range: tuple[float, float]) -> Iterator[Block]:
    parser = BlockParser(path, label_range)
    for line, text in line_chunks(path):
        block = parser.parse(text, line)
        if block is not None:
            yield block


def _queries_of_groups(path: StrPath, rows: int, groups: StrPath | None) -> NDArray[np.int64]:
    """The query, counted from 0, of each row of a file without qids."""
    where = group_file(path) if groups is None else Path(groups)
    if not where.exists():
        raise FileFormatError(path, 1, "qid is missing: write 'label qid:q index:value ...'", f"no group file {where}")
    sizes = read_groups(where)
    if sizes.sum() != rows:
        raise DataError(f"{where}: group sizes must add up to the rows of {path}, {rows}, got {sizes.sum()}")
    return np.repeat(np.arange(len(sizes)), sizes)


def _assembled(
    labels: NDArray[np.float64],
    qids: NDArray[np.int64],
    ids: NDArray[np.str_] | None,
    features: NDArray[np.float32],
) -> LetorData:
    starts = np.concatenate(([0], np.flatnonzero(np.diff(qids)) + 1))
    runs = qids[starts]
    names, first, code = np.unique(runs, return_index=True, return_inverse=True)
    if len(names) == len(runs):
        return LetorData(Lists(labels, np.append(starts, len(qids)), None, ids, runs), features)
    place = np.argsort(np.argsort(first))  # queries stand in the order of their first row
    place_of_row = np.repeat(place[code], np.diff(np.append(starts, len(qids))))
    order = np.argsort(place_of_row, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(place_of_row))))
    note = f"the rows of {len(np.unique(code[_repeated(code)]))} queries were not neighbors and were brought together"
    lists = Lists(labels[order], offsets, None, None if ids is None else ids[order], runs[np.sort(first)])
    return LetorData(lists, features[order], (note,))


def _repeated(code: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.bincount(code)[code] > 1


def _taken(lists: Lists, rows: NDArray[np.int64], offsets: NDArray[np.int64], queries: NDArray[np.int64]) -> Lists:
    return Lists(
        lists.labels[rows],
        offsets,
        None if lists.scores is None else lists.scores[rows],
        None if lists.ids is None else lists.ids[rows],
        np.asarray(lists.query_ids)[queries],
    )
