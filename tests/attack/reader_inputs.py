"""Generated judgments and runs, written in every format that `evaluate` reads, and ways to change or damage a file.

Ids come in families whose members are different texts, but would become equal or unrecognizable if they were read as
numbers, dates or booleans. `mean_average_precision` is an oracle that shares no code with the package.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import zstandard

Table = dict[str, dict[str, float]]

IDS = {
    "plain": "d1 d2 d10 D1 d-1 d_1 d.1 doc1",
    "integers": "7 70 700 17 27 -7 1000 12345678901",
    "leading zeros": "7 07 007 0007 70 070 0 00",
    "decimals": "1.1 1.10 1.100 1 1. 1.0 01.1 .1",
    "exponents": "1000 1e3 1E3 1e+3 1.0e3 10e2 1e03 100",
    "signs": "7 +7 -7 +07 0 -0 +0 07",
    "long integers": "9223372036854775807 9223372036854775808 9223372036854775809 18446744073709551616 "
    "9223372036854775806 36893488147419103232 100000000000000000000 9007199254740993",
    "underscores": "10 1_0 1_000 1000 _1 1_ __ 100",
    "booleans": "true false True False TRUE yes no t",
    "nothing": "null NULL nan NaN None NA inf -inf",
    "dates": "2020-01-01 2020-01-02 2020-1-1 20200101 01/01/2020 12:00 12:00:00 1:2",
    "other scripts": "1 \uff11 \u0661 \u0967 \u00e9 e\u0301 \u65e5\u672c \u00a0x",
}
"""Families of eight ids each."""

LINE_ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}


@dataclass(frozen=True)
class Data:
    """Judgments and a run, with queries that only one side has."""

    qrels: Table
    run: Table


def generate(seed: int, queries: list[str], documents: list[str]) -> Data:
    """Judgments and scores without ties; at least one query is shared and has a relevant document."""
    rng = random.Random(seed)
    qrels: Table = {}
    run: Table = {}
    for name in queries:
        judged = rng.sample(documents, rng.randint(2, len(documents)))
        returned = rng.sample(documents, rng.randint(2, len(documents)))
        scores = rng.sample(range(-500, 500), len(returned))
        qrels[name] = {document: rng.randint(0, 2) for document in judged}
        run[name] = {document: score / 8 for document, score in zip(returned, scores, strict=True)}
    first = queries[0]
    qrels[first][next(iter(run[first]))] = 1
    if len(queries) > 2:
        del qrels[queries[-1]]
        del run[queries[-2]]
    return Data(qrels, run)


def mean_average_precision(data: Data) -> float:
    """The mean of AP over the shared queries with a relevant document."""
    values = []
    for name in data.qrels.keys() & data.run.keys():
        labels, scores = data.qrels[name], data.run[name]
        relevant = sum(label > 0 for label in labels.values())
        hits, total = 0, 0.0
        for rank, document in enumerate(sorted(scores, key=scores.__getitem__, reverse=True), start=1):
            if labels.get(document, 0) > 0:
                hits += 1
                total += hits / rank
        if relevant:
            values.append(total / relevant)
    return sum(values) / len(values)


# ---- formats ---------------------------------------------------------------------------------------------------------


def trec_lines(table: Table, side: str) -> list[str]:
    """Lines of TREC qrels or of a TREC run."""
    rows = [(q, d, value) for q, documents in table.items() for d, value in documents.items()]
    if side == "qrels":
        return [f"{q} 0 {d} {value}" for q, d, value in rows]
    return [f"{q} Q0 {d} 1 {value} tag" for q, d, value in rows]


def separated_lines(table: Table, side: str, separator: str = ",") -> list[str]:
    """A header and rows."""
    rows = [(q, d, value) for q, documents in table.items() for d, value in documents.items()]
    header = separator.join(("qid", "docid", "label" if side == "qrels" else "score"))
    return [header, *(separator.join((q, d, str(value))) for q, d, value in rows)]


def beir_lines(table: Table, side: str) -> list[str]:
    """The judgments of a BEIR folder."""
    assert side == "qrels"
    return ["query-id\tcorpus-id\tscore", *separated_lines(table, side, "\t")[1:]]


def letor_lines(table: Table, side: str) -> list[str]:
    """Judgments as LETOR lines with two features; queries must be integers."""
    assert side == "qrels"
    rows = [(q, d, value) for q, documents in table.items() for d, value in documents.items()]
    return [f"{value} qid:{q} 1:0.5 2:{at} #docid = {d}" for at, (q, d, value) in enumerate(rows)]


LINES: dict[str, Callable[[Table, str], list[str]]] = {
    "trec": trec_lines,
    "csv": separated_lines,
    "tsv": lambda table, side: separated_lines(table, side, "\t"),
    "beir": beir_lines,
    "letor": letor_lines,
}
COMPRESSION: dict[str, Callable[[bytes], bytes]] = {
    "": lambda text: text,
    ".gz": gzip.compress,
    ".zst": lambda text: zstandard.ZstdCompressor().compress(text),
}
FORMATS = {
    "qrels": ("trec", "csv", "csv.gz", "tsv", "parquet", "beir"),
    "run": ("trec", "csv", "csv.zst", "parquet"),
}


def write(folder: Path, table: Table, side: str, form: str) -> Path:
    """Write a table in a format, such as "csv.gz", and return the path for the command line."""
    kind, _, packing = form.partition(".")
    if kind == "parquet":
        rows = [(q, d, value) for q, documents in table.items() for d, value in documents.items()]
        number = "label" if side == "qrels" else "score"
        path = folder / f"{side}.parquet"
        pl.DataFrame(rows, schema=["qid", "docid", number], orient="row").write_parquet(path)
        return path
    text = "\n".join(LINES[kind](table, side)) + "\n"
    return write_bytes(folder, side, kind, text.encode(), "." + packing if packing else "")


def write_bytes(folder: Path, side: str, kind: str, text: bytes, packing: str = "") -> Path:
    """Write the bytes of a file of this kind, compressed or not, and return the path for the command line."""
    if kind == "beir":
        path = folder / "beir" / "qrels" / f"test.tsv{packing}"
        path.parent.mkdir(parents=True, exist_ok=True)
    else:
        path = folder / f"{side}.{'txt' if kind in ('trec', 'letor') else kind}{packing}"
    path.write_bytes(COMPRESSION[packing](text))
    return folder / "beir" if kind == "beir" else path


# ---- damage ----------------------------------------------------------------------------------------------------------

CONTROLS = {
    "NUL": "\0",
    "SOH": "\x01",
    "backspace": "\b",
    "vertical tab": "\v",
    "form feed": "\f",
    "escape": "\x1b",
    "unit separator": "\x1f",
    "delete": "\x7f",
    "next line": "\x85",
    "CSI": "\x9b",
    "byte-order mark": "\ufeff",
}
NUMBERS = {
    "underscore": "1_0",
    "full-width digit": "\uff11",
    "Arabic-Indic digit": "\u0661",
    "Devanagari digit": "\u0967",
    "superscript": "\u00b2",
    "minus sign": "\u22121",
    "infinite": "inf",
    "minus infinite": "-Infinity",
    "NaN": "nan",
    "beyond float64": "1e999",
    "hexadecimal": "0x1",
    "word": "one",
    "two dots": "1.0.0",
}
