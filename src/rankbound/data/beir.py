"""Read BEIR folders: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import polars as pl

from rankbound.data.text_chunks import CONTROL, StrPath, has_controls, is_plain_number, line_chunks
from rankbound.errors import DataError, FileFormatError
from rankbound.lists import Lists

Rows: TypeAlias = list[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class BeirData:
    """Judgments as Lists, and the texts as frames: queries (id, text) and corpus (id, title, text)."""

    lists: Lists
    queries: pl.DataFrame
    corpus: pl.DataFrame

    def __repr__(self) -> str:
        judged = len(self.lists.labels)
        return f"BeirData(queries={len(self.lists)}, judgments={judged}, documents={len(self.corpus)})"


def read_beir(folder: StrPath, split: str = "test") -> BeirData:
    """Read a folder as BEIR distributes it; each file may be compressed (.gz, .zst)."""
    judgments = read_judgments(folder, split)
    # as objects: every entry of a text array is as wide as the longest
    qid, ids = (judgments[name].to_numpy().astype(object) for name in ("qid", "docid"))
    lists = Lists.from_qid(judgments["label"].to_numpy(), qid, ids=ids)
    queries = _read_texts(_find(folder, "queries.jsonl"), ("_id", "text"))
    corpus = _read_texts(_find(folder, "corpus.jsonl"), ("_id", "title", "text"))
    return BeirData(lists, queries, corpus)


def read_judgments(folder: StrPath, split: str = "test") -> pl.DataFrame:
    """Read only the judgments of a BEIR folder into a frame with the columns qid, docid (strings) and label."""
    path = _find(folder, f"qrels/{split}.tsv")
    rows: list[tuple[str, str, int]] = []
    for first, text in line_chunks(path):
        is_suspect = has_controls(text) or not text.isascii() or b"_" in text
        for number, row in enumerate(text.decode("utf-8", "replace").split("\n"), first):
            fields = row.split("\t")
            if not row.strip() or (number == 1 and fields[0] == "query-id"):
                continue
            if len(fields) != 3:
                raise FileFormatError(path, number, "expected three fields separated by tabs", f"got {row[:60]!r}")
            if is_suspect and (match := CONTROL.search(row)):
                rule = "a line must have no control characters but tabs"
                raise FileFormatError(path, number, rule, f"got {match.group()!r} in {row[:60]!r}")
            try:
                if is_suspect and not is_plain_number(fields[2]):
                    raise ValueError(fields[2])
                label = int(fields[2])
            except ValueError:
                raise FileFormatError(path, number, "a label must be an integer", f"got {fields[2]!r}") from None
            if abs(label) >= 2**63:
                raise FileFormatError(path, number, "a label must be below 2^63", f"got {fields[2]:.40}")
            rows.append((fields[0], fields[1], label))
    if not rows:
        raise DataError(f"{path}: has no judgment")
    return pl.DataFrame(rows, schema={"qid": pl.String, "docid": pl.String, "label": pl.Int64}, orient="row")


def _find(folder: StrPath, name: str) -> Path:
    for suffix in ("", ".gz", ".zst"):
        path = Path(folder) / (name + suffix)
        if path.is_file():
            return path
    raise DataError(f"{folder}: a BEIR folder must contain {name}, which is missing")


def _read_texts(path: Path, fields: tuple[str, ...]) -> pl.DataFrame:
    rows: Rows = []
    for first, text in line_chunks(path):
        for number, row in enumerate(text.decode("utf-8", "replace").split("\n"), first):
            if not row.strip():
                continue
            try:
                entry = json.loads(row)
                if not isinstance(entry, dict) or "_id" not in entry:
                    raise ValueError("no _id")
                values = tuple(str(entry.get(field, "")) for field in fields)
                "".join(values).encode()  # refuses half of a surrogate pair, which a JSON escape can contain
            except (ValueError, RecursionError) as error:
                raise FileFormatError(path, number, "a line must be a JSON object with _id", f"got {error}") from None
            rows.append(values)
    return pl.DataFrame(rows, schema=[(field.removeprefix("_"), pl.String) for field in fields], orient="row")
