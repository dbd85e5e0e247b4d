"""The labels of a LETOR file as judgments, so that a run of its documents can be evaluated without a qrels file.

`rankbound rank` writes runs with the same names of queries and documents, which come from `document_names`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from rankbound.data.text_chunks import BOM, StrPath, refuse_packed
from rankbound.data.trec import read_qrels
from rankbound.errors import DataError, FileFormatError
from rankbound.io import open_bytes

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.data.letor import LetorData

_LABEL_AND_PAIR = re.compile(rb"\s*(\S+\s+)?(qid:|\d+:\S)")
_LONGEST = 1 << 16  # bytes of a line that are looked at


def is_letor(path: StrPath) -> bool:
    """Whether a file of judgments is LETOR or SVMlight, by its first line; False if it is TREC qrels.

    The first two fields of a LETOR line are a label and qid:q (or, if the label is missing, the first one is qid:q); in
    files with a group file, a label and index:value. TREC qrels have four fields. Any other line raises
    FileFormatError. Standard input, which can be read only once, is TREC qrels.
    """
    if str(path) == "-":
        return False
    with open_bytes(path) as stream:
        for number, line in enumerate(_lines(stream), 1):
            if number == 1:
                refuse_packed(path, line)
            if not line.strip() or line.lstrip().startswith(b"#"):
                continue
            if _LABEL_AND_PAIR.match(line):
                return True
            fields = line.split()
            if len(fields) != 4:
                rule = (
                    "judgments must be TREC qrels (4 fields: qid iteration docid label) or LETOR (label qid:q "
                    "index:value ...)"
                )
                text = line.strip()[:60].decode("utf-8", "replace")
                raise FileFormatError(path, number, rule, f"got {len(fields)} fields: {text!r}")
            return False
    return False


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines that end with a line feed, a carriage return or both; the first without byte-order mark."""
    is_first = True
    while line := stream.readline(_LONGEST):
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield from (line.removeprefix(BOM) if is_first else line).split(b"\r")
        is_first = False


def read_text_judgments(path: StrPath) -> pl.DataFrame:
    """Read TREC qrels or the labels of a LETOR file into a frame with the columns qid, docid (strings) and label."""
    return read_letor_judgments(path) if is_letor(path) else read_qrels(path)


def read_letor_judgments(path: StrPath) -> pl.DataFrame:
    """Read the labels of a LETOR file into a frame with the columns qid, docid (strings) and label."""
    import polars as pl

    from rankbound.data.letor import read_letor

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
