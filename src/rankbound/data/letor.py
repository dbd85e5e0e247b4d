"""Read LETOR 2.0 to 4.0, SVMlight with qid, and LightGBM's text format with a file of group sizes.

The labels of such a file are judgments as well, of which a run can be evaluated without a qrels file. `rankbound rank`
writes runs with the same names of queries and documents, which come from `document_names`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rankbound.data.growing_table import GrowingTable
from rankbound.data.letor_text import Block, BlockParser
from rankbound.data.text_chunks import StrPath, line_chunks, read_text
from rankbound.data.trec import read_qrels
from rankbound.errors import DataError, FileFormatError
from rankbound.lists import Lists

if TYPE_CHECKING:
    import polars as pl

LABELS = (-1.0, 31.0)  # -1 means "not judged" in LETOR; beyond 31 the gain 2^label - 1 is no longer meaningful
_LABEL_AND_PAIR = re.compile(rb"\s*(\S+\s+)?(qid:|\d+:\S)")
_BEGINNING = 1 << 16  # bytes that are read to recognize a file
_CHUNK, _SMALL_CHUNK = 2 << 20, 1 << 18  # bytes of text, whose features can be a hundred times as large


@dataclass(frozen=True, eq=False)
class LetorData:
    """Queries with a feature vector for every document.

    Parameters
    ----------
    lists:
        Labels, and document ids if the file has them.
    features:
        One float32 row per item of ``lists``. Features that a file omits are 0, NULL is NaN.
    notes:
        Remarks of the reader for the user.
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
        """Return the data of some queries, by index, in the given order."""
        chosen = np.asarray(queries, dtype=np.int64)
        lists = self.lists
        sizes = lists.sizes[chosen]
        ends = np.cumsum(sizes)
        rows = np.arange(int(sizes.sum())) + np.repeat(lists.offsets[chosen] - (ends - sizes), sizes)
        return LetorData(_take_rows(lists, rows, np.concatenate(([0], ends)), chosen), self.features[rows], self.notes)


def read_letor(
    path: StrPath | Sequence[StrPath],
    *,
    groups: StrPath | None = None,
    label_range: tuple[float, float] = LABELS,
) -> LetorData:
    """Read one file, or several files as one, compressed or not.

    Parameters
    ----------
    path:
        Files with lines ``label qid:q index:value ... # comment``. The document id is what follows ``docid =`` in the
        comment, or else its first word.
    groups:
        LightGBM's file of group sizes, one per line, for a file without qids. By default it is looked for next to the
        file, under the same name with ``.query`` appended. Queries are then numbered 0, 1, 2, ...
    label_range:
        Smallest and largest label to accept.

    Notes
    -----
    Rows of a query that are not adjacent are grouped together, and the result carries a note.
    """
    return _read(path, groups, label_range, None)


def read_mapped_letor(path: StrPath | Sequence[StrPath], folder: Path) -> LetorData:
    """Read files like `read_letor`, with features in a temporary file on the disk of a folder, mapped into memory.

    Only labels, queries and ids are in memory, so that the features may be larger than memory.
    """
    return _read(path, None, LABELS, folder)


def _read(
    path: StrPath | Sequence[StrPath],
    groups: StrPath | None,
    label_range: tuple[float, float],
    folder: Path | None,
) -> LetorData:
    features, chunk = GrowingTable(np.float32, folder), _CHUNK if folder is None else _SMALL_CHUNK
    paths = [path] if isinstance(path, (str, PathLike)) else list(path)
    labels, qids, ids = [], [], []
    for file in paths:
        rows, has_qids = 0, True
        for block in _blocks(file, label_range, chunk):
            features.append(block.features)
            labels.append(block.labels)
            ids.append(np.zeros(len(block.labels), np.str_) if block.ids is None else block.ids)
            rows += len(block.labels)
            if block.qids is None:
                has_qids = False
            else:
                qids.append(block.qids)
        if rows == 0:
            raise DataError(f"{file}: has no line of data")
        if not has_qids:
            first = int(qids[-1].max()) + 1 if qids else 0
            qids.append(first + _queries_of_groups(file, rows, groups))
    names = np.concatenate(ids)
    return _group_by_query(
        np.concatenate(labels), np.concatenate(qids), names if (names != "").any() else None, features
    )


def group_file(path: StrPath) -> Path:
    """Return the path where LightGBM expects the group sizes of a file.

    >>> group_file("rank.train.gz").name
    'rank.train.query'
    """
    plain = Path(fspath(path))
    if plain.suffix in (".gz", ".zst"):
        plain = plain.with_suffix("")
    return plain.with_name(plain.name + ".query")


def read_groups(path: StrPath) -> NDArray[np.int64]:
    """Read group sizes, one per line."""
    sizes = []
    for number, line in enumerate(read_text(path).split(b"\n"), 1):
        field = line.strip(b" \t").decode("utf-8", "replace")
        if not field:
            continue
        if not (field.isascii() and field.isdecimal()) or len(field) > 18 or int(field) == 0:
            raise FileFormatError(path, number, "a group size must be a positive integer", f"got {field!r}")
        sizes.append(int(field))
    return np.array(sizes, dtype=np.int64)


def _blocks(path: StrPath, label_range: tuple[float, float], size: int) -> Iterator[Block]:
    parser = BlockParser(path, label_range)
    for line, text in line_chunks(path, size):
        block = parser.parse(text, line)
        if block is not None:
            yield block


def _queries_of_groups(path: StrPath, rows: int, groups: StrPath | None) -> NDArray[np.int64]:
    """Return the query of each row of a file without qids, counted from 0."""
    file = group_file(path) if groups is None else Path(groups)
    if not file.exists():
        raise FileFormatError(path, 1, "qid is missing: write 'label qid:q index:value ...'", f"no group file {file}")
    sizes = read_groups(file)
    if sizes.sum() != rows:
        raise DataError(f"{file}: group sizes must add up to the rows of {path}, {rows}, got {sizes.sum()}")
    return np.repeat(np.arange(len(sizes)), sizes)


def _group_by_query(
    labels: NDArray[np.float64],
    qids: NDArray[np.int64],
    ids: NDArray[np.str_] | None,
    features: GrowingTable,
) -> LetorData:
    starts = np.concatenate(([0], np.flatnonzero(np.diff(qids)) + 1))
    runs = qids[starts]
    names, first, code = np.unique(runs, return_index=True, return_inverse=True)
    if len(names) == len(runs):
        return LetorData(Lists(labels, np.append(starts, len(qids)), None, ids, runs), features.finish())
    rank = np.argsort(np.argsort(first))  # queries are ordered by their first row
    query_of_row = np.repeat(rank[code], np.diff(np.append(starts, len(qids))))
    order = np.argsort(query_of_row, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(query_of_row))))
    several = np.count_nonzero(np.bincount(code) > 1)
    note = f"the rows of {several} queries were not adjacent and were grouped together"
    lists = Lists(labels[order], offsets, None, None if ids is None else ids[order], runs[np.sort(first)])
    return LetorData(lists, features.finish(order), (note,))


def _take_rows(lists: Lists, rows: NDArray[np.int64], offsets: NDArray[np.int64], queries: NDArray[np.int64]) -> Lists:
    return Lists(
        lists.labels[rows],
        offsets,
        None if lists.scores is None else lists.scores[rows],
        None if lists.ids is None else lists.ids[rows],
        np.asarray(lists.query_ids)[queries],
    )


# ---- judgments -------------------------------------------------------------------------------------------------------


def is_letor(path: StrPath) -> bool:
    """Whether a file of judgments is LETOR or SVMlight, by its first line; False if it is TREC qrels.

    The first two fields of a LETOR line are a label and qid:q (or, if the label is missing, the first one is qid:q); in
    files with a group file, a label and index:value. TREC qrels have four fields. Any other line raises
    FileFormatError. Standard input, which can be read only once, is TREC qrels.
    """
    if str(path) == "-":
        return False
    for first, text in line_chunks(path, _BEGINNING):
        for number, line in enumerate(text.split(b"\n"), first):
            if not line.strip() or line.lstrip().startswith(b"#"):
                continue
            if _LABEL_AND_PAIR.match(line):
                return True
            fields = len(line.split())
            if fields == 4:
                return False
            rule = (
                "judgments must be TREC qrels (4 fields: qid iteration docid label) or LETOR (label qid:q "
                "index:value ...)"
            )
            shown = line.strip()[:60].decode("utf-8", "replace")
            raise FileFormatError(path, number, rule, f"got {fields} fields: {shown!r}")
    return False


def read_text_judgments(path: StrPath) -> pl.DataFrame:
    """Read TREC qrels or the labels of a LETOR file into a frame with the columns qid, docid (strings) and label."""
    import polars as pl

    if not is_letor(path):
        return read_qrels(path)
    data = read_letor(path)
    lists, (names, _) = data.lists, document_names(data, path)
    labels = lists.labels
    if (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64)
    qid = np.repeat(np.asarray(lists.query_ids).astype(np.str_), lists.sizes)
    return pl.DataFrame({"qid": qid, "docid": names, "label": labels})


def document_names(data: LetorData, path: StrPath) -> tuple[NDArray[np.str_], bool]:
    """Return a name for each document, unique within its query, and whether it is the number of the row.

    Names are the ids of the comments. If a row has none, or one with a space, or two rows of a query have the same,
    every document is named by the number of its row, counted from 1.

    >>> from rankbound.data.synthetic import synthetic_letor
    >>> document_names(synthetic_letor(queries=2, seed=1), "test.txt")[0][:2].tolist()
    ['d0', 'd1']
    """
    lists = data.lists
    if lists.ids is not None:
        names = np.asarray(lists.ids).astype(np.str_)
        keys = np.char.add(np.char.add(lists.query_of_item.astype(np.str_), " "), names)
        if all(len(name.split()) == 1 for name in names.tolist()) and len(np.unique(keys)) == len(keys):
            return names, False
    check_row_order(data, path, "where documents are named by their rows")
    return np.arange(1, len(lists.labels) + 1).astype(np.str_), True


def check_row_order(data: LetorData, path: StrPath, purpose: str) -> None:
    """Raise DataError if the reader has moved rows, so that their numbers are not those of the file."""
    for note in data.notes:
        if "not adjacent" in note:
            raise DataError(f"{path}: rows of a query must be adjacent {purpose}, but {note}")
