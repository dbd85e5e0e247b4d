"""BEIR folders."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rankbound.data.beir import read_beir
from rankbound.errors import DataError, FileFormatError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq2\td1\t1\nq1\td2\t2\nq2\td2\t0\n")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n')
    rows = '{"_id": "d1", "title": "a", "text": "A"}\n{"_id": "d2", "text": "B"}\n'
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    return tmp_path


def test_judgments_queries_and_documents_are_read(folder: Path) -> None:
    data = read_beir(folder)
    assert repr(data) == "BeirData(queries=2, judgments=3, documents=2)"
    assert data.lists.qids.tolist() == ["q2", "q1"]
    assert data.lists.ids.tolist() == ["d1", "d2", "d2"]
    assert data.lists.labels.tolist() == [1, 0, 2]
    assert data.corpus.row(1) == ("d2", "", "B")


def test_bad_files_are_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"must contain qrels/dev\.tsv, which is missing"):
        read_beir(folder, "dev")
    qrels = folder / "qrels" / "test.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\nq2\td1\tx\n")
    with pytest.raises(FileFormatError, match=r"test\.tsv:2: a label must be an integer, got 'x'"):
        read_beir(folder)
    qrels.write_text("q2 d1 1\n")
    with pytest.raises(FileFormatError, match=r"test\.tsv:1: expected three fields separated by tabs"):
        read_beir(folder)
    qrels.write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(DataError, match=r"test\.tsv: has no judgment"):
        read_beir(folder)
    qrels.write_text("q2\td1\t1\n")
    (folder / "queries.jsonl").write_text('{"_id": "q1"}\n{"text": 1}\n')
    with pytest.raises(FileFormatError, match=r"queries\.jsonl:2: a line must be a JSON object with _id, got no _id"):
        read_beir(folder)
