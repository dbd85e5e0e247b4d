"""Ids of ir_datasets as judgments, runs, candidates and texts; the data sets are registered here, over local files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("ir_datasets")

import ir_datasets

import rankbound as rb
from rankbound.cli.main import run as command
from rankbound.data import read_ir_dataset
from rankbound.packages import MissingPackageError

pytestmark = pytest.mark.full("needs a tool that only .venv-all has")

QRELS = "q1 0 a 1\nq1 0 b 0\nq1 0 c 2\nq2 0 a 0\nq2 0 b 1\n"
RUN = "q1 Q0 b 1 0.9 x\nq1 Q0 a 2 0.5 x\nq1 Q0 c 3 0.1 x\nq2 Q0 b 1 0.4 x\nq2 Q0 a 2 0.2 x\n"
MEASURES = ["nDCG@10", "EM(nDCG@10)"]


@pytest.fixture
def registered(tmp_path):
    """A data set with all parts, one without judgments, and one whose file is missing."""
    (tmp_path / "qrels").write_text(QRELS)
    (tmp_path / "run.txt").write_text(RUN)
    (tmp_path / "docs.tsv").write_text("a\tfirst text\nb\tsecond text\nc\tthird text\n")
    (tmp_path / "queries.tsv").write_text("q1\tone\nq2\ttwo\n")

    def local(name: str) -> ir_datasets.util.LocalDownload:
        return ir_datasets.util.LocalDownload(tmp_path / name)

    parts = {
        "docs_tsv": tmp_path / "docs.tsv",
        "queries_tsv": tmp_path / "queries.tsv",
        "qrels_trec": tmp_path / "qrels",
    }
    complete = ir_datasets.create_dataset(**parts)
    scored = ir_datasets.formats.TrecScoredDocs(local("run.txt"))
    sets = {
        "local-test/complete": ir_datasets.Dataset(*complete._constituents, scored),
        "local-test/texts": ir_datasets.create_dataset(docs_tsv=tmp_path / "docs.tsv"),
        "local-test/missing": ir_datasets.create_dataset(qrels_trec=tmp_path / "nowhere"),
        "local-test/damaged": ir_datasets.create_dataset(qrels_trec=tmp_path / "docs.tsv"),
    }
    for name, data in sets.items():
        ir_datasets.registry.register(name, data)
    yield tmp_path
    for name in sets:
        del ir_datasets.registry._registered[name]


def test_judgments_and_runs(registered):
    expected = rb.evaluate(registered / "qrels", registered / "run.txt", MEASURES, bounds=True)
    by_id = rb.evaluate("irds:local-test/complete", registered / "run.txt", MEASURES, bounds=True)
    assert by_id.per_query.equals(expected.per_query)
    assert rb.evaluate("irds:local-test/complete", "irds:local-test/complete", MEASURES).mean() == expected.mean()
    runs = rb.evaluate("irds:local-test/complete", {"file": registered / "run.txt", "dict": {"q1": {"a": 1}}}, MEASURES)
    assert runs["file"].mean() == expected.mean()
    with pytest.warns(rb.errors.InferenceWarning):
        rows = rb.compare("irds:local-test/complete", registered / "run.txt", qrels=registered / "qrels", measures="AP")
    assert rows.rows[0].difference == 0


def test_scored_documents_are_candidates(registered):
    (registered / "shallow.txt").write_text("q1 Q0 c 1 0.9 x\nq2 Q0 b 1 0.9 x\n")
    results = [
        rb.evaluate(registered / "qrels", registered / "shallow.txt", "EM(AP)", candidates=candidates)
        for candidates in ("irds:local-test/complete", registered / "run.txt")
    ]
    assert results[0].mean() == results[1].mean()
    assert results[0].candidates == "irds:local-test/complete"


def test_texts(registered):
    data = read_ir_dataset("irds:local-test/complete")
    assert data.parts == ("docs", "queries", "qrels", "scoreddocs")
    assert data.queries.rows() == [("q1", "one"), ("q2", "two")]
    assert data.corpus.rows()[2] == ("c", "third text")
    assert data.lists.labels.tolist() == [1, 0, 2, 0, 1]
    assert list(data.lists.ids) == ["a", "b", "c", "a", "b"]
    assert read_ir_dataset("local-test/complete").name == "irds:local-test/complete"


def test_commands(registered, capsys):
    run = str(registered / "run.txt")
    assert command(["evaluate", str(registered / "qrels"), run, "-m", "EM(nDCG@10)", "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert command(["evaluate", "irds:local-test/complete", run, "-m", "EM(nDCG@10)", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] == expected["mean"]
    assert command(["compare", "irds:local-test/complete", run, "irds:local-test/texts", "-m", "AP"]) == 2
    assert "has no scoreddocs; it has docs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("irds:local-test/complet", "knows no data set of this id; nearest ids: local-test/complete"),
        ("irds:local-test/texts", "the data set has no qrels; it has docs"),
        ("irds:local-test/missing", "qrels cannot be read: FileNotFoundError: .*nowhere"),
        ("irds:local-test/damaged", "qrels cannot be read: RuntimeError: expected 4 columns, got 3"),
    ],
)
def test_what_cannot_be_read_is_one_error(registered, capsys, name, message):
    with pytest.raises(rb.errors.DataError, match=f"^{name}: .*{message}"):
        rb.evaluate(name, registered / "run.txt", MEASURES)
    assert command(["evaluate", name, str(registered / "run.txt")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


def test_without_the_package_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingPackageError, match=r'irds:x needs ir_datasets: pip install "\.\[ir-datasets\]"'):
        rb.evaluate("irds:x", Path("run.txt"), MEASURES)


def test_judgments_need_a_relevance(registered):
    class Preferences(ir_datasets.formats.BaseQrels):
        def qrels_cls(self):
            return ir_datasets.formats.GenericDocPair

        def qrels_iter(self):
            yield ir_datasets.formats.GenericDocPair("q", "a", "b")

    ir_datasets.registry.register("local-test/pairs", ir_datasets.Dataset(Preferences()))
    try:
        with pytest.raises(rb.errors.DataError, match="qrels must have the field doc_id, got query_id, doc_id_a"):
            rb.evaluate("irds:local-test/pairs", registered / "run.txt", MEASURES)
    finally:
        del ir_datasets.registry._registered["local-test/pairs"]
