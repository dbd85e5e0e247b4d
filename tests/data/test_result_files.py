"""Result files of MTEB and BEIR as runs: the values of the same rankings as dicts, and one line for every fault."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import rankbound as rb
from rankbound.cli.main import run as command
from rankbound.data.result_files import read_json
from rankbound.errors import DataError, FileFormatError, InferenceWarning

QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"a": 0, "b": 1}, "q3": {"c": 1, "a": 0}}
RUN = {"q1": {"a": 0.9, "c": 0.5, "b": 0.1}, "q2": {"b": 0.8, "a": 0.3}, "q3": {}}
OTHER = {query: {document: -score for document, score in documents.items()} for query, documents in RUN.items()}
MEASURES = ["nDCG@10", "RR", "EM(nDCG@10)"]
MODEL = {"mteb_model_meta": {"model_name": "org/model", "revision": "abc"}}
# what the two programs write next to the rankings: means of measures
MEANS_OF_MTEB = {"dataset_revision": "1", "scores": {"test": [{"ndcg_at_10": 0.5}]}, "task_name": "Task"}
MEANS_OF_BEIR = {"ndcg": {"NDCG@1": 0.5}, "map": {"MAP@1": 0.5}, "recall": {"Recall@1": 0.5}, "precision": {"P@1": 0.5}}
FORMS = {
    "MTEB": MODEL | {"default": {"test": RUN}},
    "MTEB with an empty split": MODEL | {"default": {"dev": {}, "test": RUN}},
    "MTEB, first versions": RUN,
    "one split": {"test": RUN},
}


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def trec(run: dict[str, dict[str, float]]) -> str:
    """A run as BEIR's save_runfile writes it: every rank is 0."""
    rows = [(q, d, score) for q, documents in run.items() for d, score in documents.items()]
    return "".join(f"{q} Q0 {d} 0 {score} beir\n" for q, d, score in rows)


def expected(run: dict[str, dict[str, float]] = RUN, **fields: Any) -> list[Any]:
    return rb.evaluate(QRELS, run, MEASURES, **fields).per_query.rows()


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_folder", [False, True])
def test_predictions_of_mteb_are_runs(form, in_folder, tmp_path):
    path = write(tmp_path / "predictions" / "Task_predictions.json", FORMS[form])
    write(path.with_name("Task.json"), MEANS_OF_MTEB)
    assert rb.evaluate(QRELS, path.parent if in_folder else path, MEASURES).per_query.rows() == expected()


def test_a_folder_of_beir_holds_one_run(tmp_path):
    write(tmp_path / "scifact.run.trec", trec(RUN))
    write(tmp_path / "scifact.json", MEANS_OF_BEIR)
    write(tmp_path / ".hidden.run.trec", "")
    # a file of text cannot say that q3 has no document
    answered = {query: documents for query, documents in RUN.items() if documents}
    assert rb.evaluate(QRELS, str(tmp_path), MEASURES).per_query.rows() == expected(answered)
    assert rb.evaluate(QRELS, tmp_path, MEASURES, missing="zero").per_query.rows() == expected(missing="zero")


@pytest.mark.parametrize("name", ["run.json", "run.json.gz", "RUN.JSON"])
def test_json_is_compressed_or_not_and_judgments_as_well(name, tmp_path):
    text = b"\xef\xbb\xbf" + json.dumps(RUN, indent=1).replace("\n", "\r\n").encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    qrels = write(tmp_path / "qrels.json", QRELS)
    assert rb.evaluate(qrels, path, MEASURES).per_query.rows() == expected()


def test_a_part_of_a_file_is_named(tmp_path):
    path = write(tmp_path / "Task_predictions.json", MODEL | {"de": {"test": OTHER}, "en": {"dev": OTHER, "test": RUN}})
    assert rb.evaluate(QRELS, f"{path}#en/test", MEASURES).per_query.rows() == expected()
    assert rb.evaluate(QRELS, f"{path}#de", MEASURES).per_query.rows() == expected(OTHER)
    with pytest.raises(DataError, match=r"json: holds 3 runs \(de/test, en/dev, en/test\); name one"):
        rb.evaluate(QRELS, path, MEASURES)
    with pytest.raises(DataError, match=r"holds 2 runs \(en/dev, en/test\)"):
        rb.evaluate(QRELS, f"{path}#en", MEASURES)
    with pytest.raises(DataError, match="has no part 'e', only de/test, en/dev, en/test"):
        rb.evaluate(QRELS, f"{path}#e", MEASURES)
    odd = write(tmp_path / "a#b.json", RUN)
    assert rb.evaluate(QRELS, odd, MEASURES).per_query.rows() == expected()


def test_runs_are_accepted_wherever_runs_are(tmp_path, capsys):
    qrels = write(tmp_path / "qrels.json", QRELS)
    old = write(tmp_path / "old" / "Task_predictions.json", FORMS["MTEB"]).parent
    new = write(tmp_path / "new.json", OTHER)
    named = {"qrels": QRELS, "names": ["old", "new"], "measures": ["RR"]}
    with pytest.warns(InferenceWarning):
        assert rb.compare(old, new, **named).per_query.equals(rb.compare(RUN, OTHER, **named).per_query)
    assert rb.evaluate(QRELS, {"x": old, "y": new}, MEASURES)["y"].per_query.rows() == expected(OTHER)
    rb.evaluate(qrels, old, MEASURES, candidates=new, judged_outside="add")
    assert rb.audit(qrels, {"old": old}).to_dict()
    assert rb.gate(qrels, old, new, "RR", margin=0.9)
    for arguments in (
        ["evaluate", qrels, old, "-m", "RR"],
        ["compare", qrels, old, new, "-m", "RR"],
        ["gate", qrels, old, new, "-m", "RR", "--margin", "0.9"],
        ["audit", qrels, old, new],
    ):
        assert command([str(argument) for argument in [*arguments, "--json"]]) in (0, 1, 3), arguments
        values, errors = capsys.readouterr()
        assert isinstance(json.loads(values), dict)
        assert "cannot be read" not in errors


def test_an_empty_ranking_counts_in_the_command(tmp_path, capsys):
    qrels, run = write(tmp_path / "qrels.json", QRELS), write(tmp_path / "run.json", RUN)
    other = write(tmp_path / "other" / "T_predictions.json", FORMS["MTEB"]).parent
    assert command(["compare", str(qrels), str(run), str(other), "-m", "RR", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 3


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MEANS_OF_MTEB, "expected rankings per query, {query: {document: number}}, got dataset_revision, scores"),
        (MEANS_OF_BEIR, "expected rankings per query, {query: {document: number}}, got ndcg, map, recall, precision"),
        (MODEL, "expected {query: {document: number}}, got no query"),
        ({}, "expected {query: {document: number}}, got no query"),
        ({"a": {"b": {"c": {"d": {"e": 1}}}}}, "the scores of query 'c' must be numbers, got {'e': 1}"),
        ({"q": [["d", 1]]}, "expected rankings per query, {query: {document: number}}, got q"),
        ({"q": {"d": "1"}}, "the scores of query 'q' must be numbers, got '1'"),
        ({"q": {"d": True}}, "the scores of query 'q' must be numbers, got True"),
        ('{"q": {"d": NaN}}', "the scores of query 'q' must be finite, got nan"),
        ('{"q": {"d": 1e999}}', "the scores of query 'q' must be finite, got inf"),
        ({"q": {"": 1}}, "the scores of query 'q' must not be empty, got ''"),
        ({"q\x00": {"d": 1}}, "a query must have no control characters and no half of a surrogate pair"),
        ('{"q": {"d": 1, "d": 2}}', "a key must occur once in an object, got 'd'"),
        ("[1]", "a file must be one JSON object, got [1]"),
        ('{"q":\n {"d": }}', "2: a file must be one JSON object, got Expecting value"),
        ("[" * 100_000, "a file must be one JSON object"),
        ('{"q": ' * 900 + "1" + "}" * 900, "must be numbers, got"),
        ("", "a file must be one JSON object, got Expecting value"),
    ],
)
def test_a_file_without_rankings_is_refused_in_one_line(content, message, tmp_path, capsys):
    path = write(tmp_path / "run.json", content)
    qrels = write(tmp_path / "qrels.json", QRELS)
    assert command(["evaluate", str(qrels), str(path), "-m", "RR", "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"rankbound: {path}:")
    assert err.count("\n") == 1
    assert len(err) < 600
    assert message in err


def test_a_file_that_is_no_text_or_missing_is_refused(tmp_path):
    path = tmp_path / "run.json"
    with pytest.raises(DataError, match=r"run\.json: cannot be read: No such file"):
        read_json(path, "score")
    path.write_bytes(b'{"q": {"\xff": 1}}')
    with pytest.raises(FileFormatError, match="text must be UTF-8, got byte 0xff"):
        read_json(path, "score")


def test_folders_without_one_run_are_refused_in_one_line(tmp_path, capsys):
    qrels = write(tmp_path / "qrels.json", QRELS)
    folder = write(tmp_path / "results" / "scifact.json", MEANS_OF_BEIR).parent
    refusals = []
    for runs in ([], ["b_predictions.json", "a.run.trec"]):
        for name in runs:
            write(folder / name, RUN)
        assert command(["evaluate", str(qrels), str(folder), "-m", "RR", "--json"]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        refusals.append(err.removeprefix(f"rankbound: {folder}: ").strip())
    assert refusals == [
        "a folder of results must have rankings per query (*_predictions.json or *.run.trec), got scifact.json; MTEB "
        "saves them with prediction_folder=..., BEIR with util.save_runfile",
        "a folder that is a run must have one, got a.run.trec, b_predictions.json; name the file",
    ]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="got no file; MTEB saves them"):
        rb.evaluate(QRELS, empty, ["RR"])
