"""Judgments and runs as objects of other packages: ranx, Hugging Face data sets, Arrow tables; and BEIR's files."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

pytest.importorskip("datasets")
pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("ranx")

import datasets
import pandas as pd
import pyarrow as pa
import ranx

import rankbound as rb
from tests import plain_ranx

QRELS = {"1": {"a": 1, "b": 0, "c": 2}, "2": {"a": 0, "b": 1, "d": 0}}
RUN = {"1": {"b": 0.9, "a": 0.5, "x": 0.4}, "2": {"b": 0.8, "a": 0.3, "d": 0.3}}
MEASURES = ["nDCG@10", "AP", "EM(nDCG@10)"]
EXPECTED = rb.evaluate(QRELS, RUN, MEASURES)


@pytest.fixture(autouse=True)
def _plain_ranx(request, monkeypatch):
    if not request.node.get_closest_marker("slow"):
        plain_ranx.use(monkeypatch)


@pytest.mark.slow  # ranx compiles for half a minute
def test_objects_are_those_that_ranx_itself_fills(monkeypatch):
    theirs = [ranx.Qrels(QRELS), ranx.Run(RUN)]
    plain_ranx.use(monkeypatch)
    for their, our in zip(theirs, [ranx.Qrels(QRELS), ranx.Run(RUN)], strict=True):
        assert their.to_dict() == our.to_dict()
        assert [list(their[q]) for q in their.keys()] == [list(our[q]) for q in our.keys()]  # noqa: SIM118
    assert rb.evaluate(*theirs, MEASURES).mean() == EXPECTED.mean()


def columns(data: dict, names: tuple[str, str, str]) -> dict[str, list]:
    rows = [(q, d, number) for q, documents in data.items() for d, number in documents.items()]
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def hugging_face(data: dict, *names: str) -> datasets.Dataset:
    return datasets.Dataset.from_dict(columns(data, names))


@pytest.fixture(scope="module")
def beir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beir")
    (folder / "qrels").mkdir()
    rows = [f"{q}\t{d}\t{label}" for q, documents in QRELS.items() for d, label in documents.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


def judgments(name: str, beir):
    return {
        "ranx": lambda: ranx.Qrels(QRELS),
        "Hugging Face": lambda: hugging_face(QRELS, "query_id", "doc_id", "relevance"),
        "Hugging Face, BEIR's names": lambda: hugging_face(QRELS, "query-id", "corpus-id", "score"),
        "Arrow": lambda: pa.table(columns(QRELS, ("qid", "docid", "label"))),
        "Arrow with a dictionary": lambda: pa.table(
            {
                name: pa.array(values).dictionary_encode() if name != "label" else values
                for name, values in columns(QRELS, ("qid", "docid", "label")).items()
            }
        ),
        "BEIR folder": lambda: beir,
        "BEIR folder as text": lambda: str(beir),
        "BEIR file": lambda: beir / "qrels" / "test.tsv",
        "pandas": lambda: pd.DataFrame(columns(QRELS, ("qid", "docno", "label"))),
    }[name]()


def runs(name: str):
    return {
        "ranx": lambda: ranx.Run(RUN),
        "Hugging Face": lambda: hugging_face(RUN, "query-id", "corpus-id", "score"),
        "Arrow": lambda: pa.table(columns(RUN, ("query_id", "doc_id", "score"))),
        "polars": lambda: pl.DataFrame(columns(RUN, ("qid", "docid", "score"))),
        "dict": lambda: RUN,
    }[name]()


RUNS = ["ranx", "Hugging Face", "Arrow", "polars", "dict"]


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    "qrels",
    [
        "ranx", "Hugging Face", "Hugging Face, BEIR's names", "Arrow", "Arrow with a dictionary", "BEIR folder",
        "BEIR folder as text", "BEIR file", "pandas",
    ],
)  # fmt: skip
def test_values_do_not_depend_on_the_form(qrels, run, beir):
    assert rb.evaluate(judgments(qrels, beir), runs(run), MEASURES).mean() == EXPECTED.mean()


def test_several_runs_of_any_form_and_comparisons(beir):
    several = {name: runs(name) for name in RUNS}
    results = rb.evaluate(ranx.Qrels(QRELS), several, MEASURES)
    assert results.mean() == dict.fromkeys(RUNS, EXPECTED.mean())
    assert results.table().to_dicts() == [{"run": name, **EXPECTED.mean()} for name in RUNS]
    long = results.long()
    assert long.columns == ["run", "qid", "measure", "value"]
    assert len(long) == len(RUNS) * len(QRELS) * len(MEASURES)
    row = EXPECTED.per_query.row(1, named=True)
    chosen = long.filter(run="Arrow", qid=row["qid"], measure="EM(nDCG@10)")
    assert chosen["value"].to_list() == [row["EM(nDCG@10)"]]
    with pytest.warns(rb.errors.InferenceWarning):
        comparison = rb.compare(*several.values(), qrels=beir, measures=MEASURES)
    assert {(row.mean_baseline, row.difference) for row in comparison.rows} == {
        (mean, 0.0) for mean in EXPECTED.mean().values()
    }


def test_chosen_rows_of_a_hugging_face_data_set_count():
    qrels = hugging_face(QRELS, "query_id", "doc_id", "relevance")
    first = qrels.filter(lambda row: row["query_id"] == "1").shuffle(seed=1)
    assert rb.evaluate(first, RUN, MEASURES).mean() == rb.evaluate({"1": QRELS["1"]}, RUN, MEASURES).mean()


def test_tables_with_ids_of_different_types_are_compared_as_text():
    numbers = {1: {8: 1, 9: 0}, 2: {8: 0, 9: 2}}
    texts = {str(q): {str(d): float(d) for d in documents} for q, documents in numbers.items()}
    expected = rb.evaluate({str(q): {str(d): v for d, v in docs.items()} for q, docs in numbers.items()}, texts, "AP")
    judged, ranked = (
        pl.DataFrame(columns(data, ("qid", "docid", name))) for data, name in ((numbers, "label"), (texts, "score"))
    )
    for qrels, run in [(judged, ranked), (numbers, ranked.to_arrow()), (judged.to_arrow(), texts)]:
        assert rb.evaluate(qrels, run, "AP").mean() == expected.mean()
    assert rb.evaluate(judged, ranx.Run(texts), "AP").mean() == expected.mean()
    with pytest.raises(rb.errors.DataError, match=r"no query in common .*is 1, the first of the run '1'"):  # two dicts
        rb.evaluate(numbers, ranx.Run(texts), "AP")


def test_zeros_at_the_start_of_an_id_are_kept(tmp_path):
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\n01\t007\t1\n01\t008\t0\n")
    assert rb.evaluate(tmp_path / "test.tsv", {"01": {"008": 2.0, "007": 1.0}}, "RR").mean() == {"RR": 1 / 2}


def test_judgments_of_beir_are_lists_without_scores():
    lists = rb.Lists.from_frame(hugging_face(QRELS, "query-id", "corpus-id", "score"))
    assert lists.scores is None
    assert lists.labels.tolist() == [1, 0, 2, 0, 1, 0]


@pytest.mark.parametrize(
    ("qrels", "run", "message"),
    [
        (pa.table({"query": ["1"], "text": ["a"]}), RUN, r"no column for docid \(.*\); the columns are query, text"),
        (hugging_face(RUN, "query_id", "doc_id", "score"), RUN, "no column for label"),  # a run is no judgments
        (QRELS, hugging_face(QRELS, "query_id", "doc_id", "relevance"), "no column for score"),
        (datasets.DatasetDict(test=hugging_face(QRELS, "qid", "docid", "label")), RUN, "one table, .* by name: test"),
        (QRELS, pa.table({"qid": ["1"], "docid": ["a"], "score": [[0.5]]}), "column 'score' must hold numbers"),
        (QRELS, 3, "expected a polars or pandas frame, an Arrow table or a path, got int"),
    ],
)
def test_what_is_no_table_of_judgments_or_of_a_run_is_refused(qrels, run, message):
    with pytest.raises(rb.errors.DataError, match=message):
        rb.evaluate(qrels, run, MEASURES)


def test_objects_of_ranx_without_a_common_query_are_refused():
    with pytest.raises(rb.errors.DataError, match=r"no query in common .*'1'.*'9'"):
        rb.evaluate(ranx.Qrels(QRELS), ranx.Run({"9": {"a": 1.0}}), MEASURES)


def test_folders(tmp_path):
    with pytest.raises(rb.errors.DataError, match=r"a BEIR folder must contain qrels/test\.tsv"):
        rb.evaluate(tmp_path, RUN, MEASURES)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n1\ta\t{2**63}\n")
    with pytest.raises(rb.errors.FileFormatError, match=r"test\.tsv:2: a label must be below 2\^63"):
        rb.evaluate(tmp_path, RUN, MEASURES)


def test_no_package_is_imported_to_recognize_its_objects():
    code = """
import sys
import polars as pl
import rankbound as rb
frame = pl.DataFrame({"qid": ["q", "q"], "docid": ["a", "b"], "label": [1, 0], "score": [1.0, 2.0]})
rb.evaluate(frame, {"x": frame}, "AP")
loaded = {"datasets", "pyarrow", "ranx", "ir_datasets", "ir_measures", "pandas", "pyterrier"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
