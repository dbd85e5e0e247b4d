"""JSON lines with expected and retrieved ids: the values of the same data as dicts, and one line for every fault."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.cli.main import run as command
from rankbound.errors import CoverageWarning, DataError, FileFormatError, InferenceWarning
from tests.tiers import examples

MEASURES = ["nDCG@10", "RR", "R@2", "EM(nDCG@10)"]
ROWS: list[dict[str, Any]] = [
    {"id": "q1", "query": "who?", "expected_ids": ["a", "c"], "retrieved_ids": ["b", "a", "x"]},
    {"id": "q2", "query": "what?", "expected_ids": ["d"], "retrieved_ids": []},
    {"id": "q3", "query": "why?", "expected_ids": [7], "retrieved_ids": ["x", 7], "scores": [0.1, 0.9]},
    {"id": "q4", "query": "when?", "expected_ids": [], "retrieved_ids": ["x"], "latency": 0.2},
]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def refusal(path: Path, text: str | bytes, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which the command refuses a file."""
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    code = command(["evaluate", str(path), "-m", "RR", "--json"])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"rankbound: {path}")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    return err.removeprefix(f"rankbound: {path}").strip()


# ---- values ----------------------------------------------------------------------------------------------------------


def test_a_file_alone_is_judgments_and_run(tmp_path):
    path = write(tmp_path / "golden.jsonl", ROWS)
    values = rb.evaluate(path, measures=["RR", "R@2"]).per_query.rows()
    # q1: "a" stands second; q2: nothing was returned; q3: the scores put 7 first; q4 has nothing to find
    assert values == [("q1", 1 / 2, 1 / 2), ("q2", 0.0, 0.0), ("q3", 1.0, 1.0), ("q4", None, None)]
    assert rb.evaluate(path, measures="RR").mean()["RR"] == (1 / 2 + 0 + 1) / 3


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "jsonl.gz", "JSONL"])
def test_endings_and_compression(ending, tmp_path):
    path = tmp_path / f"golden.{ending}"
    text = "".join(json.dumps(row) + "\r\n\n" for row in ROWS).encode()
    path.write_bytes(b"\xef\xbb\xbf" + text if ending == "ndjson" else gzip.compress(text) if "gz" in ending else text)
    assert rb.evaluate(str(path), measures="RR").mean()["RR"] == (1 / 2 + 0 + 1) / 3


@pytest.mark.parametrize("name", ["qid", "query_id", "_id", "id", "query"])
def test_names_of_queries(name, tmp_path):
    rows = [{"query": "text", name: f"n{at}", "expected_ids": ["a"], "retrieved_ids": ["a"]} for at in range(2)]
    result = rb.evaluate(write(tmp_path / "x.jsonl", rows), measures="RR")
    assert list(result.query_ids) == ["n0", "n1"]


def test_graded_labels_by_id_and_as_lists(tmp_path):
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    graded = {"q": {"a": 1, "b": 0, "c": 2}}
    ranking = {"id": "q", "retrieved_ids": ["a", "b", "c"]}
    forms = [
        {"relevance": {"a": 1, "b": 0, "c": 2}},
        {"expected_ids": ["c", "b", "a"], "relevance": [2, 0, 1]},
        {"relevance": [1, 0, 2]},  # for the retrieved documents
    ]
    expected = rb.evaluate(graded, run, MEASURES).mean()
    for form in forms:
        path = write(tmp_path / "x.jsonl", [ranking | form])
        assert rb.evaluate(path, measures=MEASURES).mean() == pytest.approx(expected, abs=1e-15)


@given(
    st.dictionaries(
        st.sampled_from("pqrs"),
        st.tuples(
            st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), min_size=1),
            st.dictionaries(st.sampled_from("abcdefxy"), st.integers(-4, 4).map(lambda score: score / 4)),
        ),
        min_size=1,
    )
)
@examples(60)
def test_values_are_those_of_dicts(tmp_path_factory, data):
    """As judgments, as run, as both, and next to a TREC file, also where nothing was returned."""
    folder = tmp_path_factory.mktemp("lines")
    qrels = {query: labels for query, (labels, _) in data.items()}
    run = {query: scores for query, (_, scores) in data.items()}
    rows = [
        {"id": query, "relevance": labels, "retrieved_ids": list(scores), "scores": list(scores.values())}
        for query, (labels, scores) in data.items()
    ]
    path = write(folder / "x.jsonl", rows)
    trec = folder / "qrels.txt"
    trec.write_text("".join(f"{query} 0 {d} {label}\n" for query in qrels for d, label in qrels[query].items()))
    options = {"empty": "zero", "missing": "zero"}
    expected = rb.evaluate(qrels, run, MEASURES, **options).per_query.sort("qid").rows()
    for judgments, ranking in ((path, None), (path, path), (qrels, path), (path, run), (trec, path)):
        assert rb.evaluate(judgments, ranking, MEASURES, **options).per_query.sort("qid").rows() == expected
    if any(run.values()):
        result = rb.evaluate(trec, path, "RR", empty="zero")  # nothing returned is a ranking, not a missing one
        assert len(result.query_ids) == len(data)


def test_compare_counts_queries_for_which_nothing_was_returned(tmp_path, capsys):
    old = write(tmp_path / "old.jsonl", ROWS[:3])
    new = write(tmp_path / "new.jsonl", [row | {"retrieved_ids": row["expected_ids"], "scores": None} for row in ROWS])
    with pytest.warns(InferenceWarning):
        comparison = rb.compare(old, new, measures="RR")
    assert comparison.queries == 3
    assert comparison.mean() == {"old.jsonl": {"RR": 1 / 2}, "new.jsonl": {"RR": 1.0}}
    assert command(["compare", str(old), str(new), "-m", "RR", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] == {str(old): {"RR": 1 / 2}, str(new): {"RR": 1.0}}
    assert command(["evaluate", str(old), str(old), str(new), "-m", "RR", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert {name: result["mean"]["RR"] for name, result in runs.items()} == {str(old): 1 / 2, str(new): 1.0}


def test_files_that_are_compared_have_the_same_judgments(tmp_path):
    old = write(tmp_path / "old.jsonl", ROWS)
    new = write(tmp_path / "new.jsonl", [ROWS[0] | {"expected_ids": ["b"]}, *ROWS[1:]])
    with pytest.raises(DataError, match=r"new\.jsonl: .* the same judgments, those of query 'q1' differ from .*old"):
        rb.compare(old, new, measures="RR")
    with pytest.warns(InferenceWarning):
        assert rb.compare(old, new, qrels=old, measures="RR").mean()["new.jsonl"]["RR"] == (1 / 2 + 0 + 1) / 3
    bare = write(tmp_path / "bare.jsonl", [{"id": "q1", "retrieved_ids": ["c"]}])
    with pytest.warns(InferenceWarning):
        assert rb.compare(old, bare, measures="RR").mean() == {"old.jsonl": {"RR": 1 / 2}, "bare.jsonl": {"RR": 1.0}}


def test_expected_ids_get_candidates(tmp_path):
    """Of relevant documents alone every order scores the same; those that were returned give a choice."""
    path = write(tmp_path / "golden.jsonl", ROWS[:3])
    assert rb.evaluate(path, measures="EM(RR)").no_choice["EM(RR)"].tolist() == [True, True, True]
    (note,) = rb.evaluate(path, measures=["RR", "EM(RR)", "UL2(AP)"]).notes
    assert re.match(r"EM\(RR\), UL2\(AP\) have no value on any query.*--candidates RUN --judged-outside add\)", note)
    result = rb.evaluate(path, measures="EM(RR)", candidates=path, judged_outside="add")
    assert result.notes == ()
    # q1: of a, b, c, x two are relevant: E = 1/2 + 1/2 (1/3) + 1/3 (1/6); q2 has d alone; q3: the first of two
    expected = 1 / 2 * 1 + 1 / 3 * 1 / 2 + 1 / 6 * 1 / 3
    assert result.values["EM(RR)"].tolist()[::2] == pytest.approx([(1 / 2 - expected) / (1 - expected), 1.0])
    assert result.no_choice["EM(RR)"].tolist() == [False, True, False]
    with pytest.raises(DataError, match="judged_outside='add'"):
        rb.evaluate(path, measures="EM(RR)", candidates=path)


def test_a_message_for_nothing_in_common(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"id": "q", "expected_ids": ["a"], "retrieved_ids": ["x"]}])
    with pytest.warns(CoverageWarning, match="'a'.*'x'"):
        assert rb.evaluate(path, measures="RR").mean() == {"RR": 0.0}


# ---- untrusted files -------------------------------------------------------------------------------------------------

FAULTS = {
    "no JSON": ("x", r"a line must be a JSON object, got Expecting value"),
    "cut short": ('{"id": "q1", "expected_ids": ["a"', r"a line must be a JSON object, got Expecting"),
    "a list": ('["q1", ["a"], ["b"]]', r"a line must be a JSON object, got \['q1'"),
    "a number": ("7", "a line must be a JSON object, got 7"),
    "null": ("null", "a line must be a JSON object, got None"),
    "deep nesting": ('{"id":' + "[" * 100_000, "a line must be a JSON object, got maximum recursion"),
    "deep nesting in an unknown key": ('{"x":' + '{"a":' * 50_000, "a line must be a JSON object, got maximum"),
    "a key twice": ('{"id": "q1", "id": "q2"}', "a key must occur once in an object, got 'id'"),
    "an inner key twice": (
        '{"id": "q9", "relevance": {"a": 1, "a": 0}, "retrieved_ids": []}',
        "a key must occur once in an object, got 'a'",
    ),
    "no name": ('{"expected_ids": ["a"], "retrieved_ids": []}', "must have 'id', as the first line has"),
    "no judgments": ('{"id": "q9", "retrieved_ids": []}', "must have expected_ids or relevance"),
    "no ranking": ('{"id": "q9", "expected_ids": ["a"]}', "must have retrieved_ids"),
    "the query again": ('{"id": "q1", "expected_ids": [], "retrieved_ids": []}', "a query must occur once, got 'q1'"),
    "integer and text": ('{"id": 1, "expected_ids": ["7", 7], "retrieved_ids": []}', "a document once, got '7'"),
    "a document twice": ('{"id": "q9", "expected_ids": [], "retrieved_ids": ["a", "a"]}', "a document once, got 'a'"),
    "text for a list": (
        '{"id": "q9", "expected_ids": "a", "retrieved_ids": []}',
        "expected_ids must be a list, got 'a'",
    ),
    "null for a list": ('{"id": "q9", "expected_ids": ["a"], "retrieved_ids": null}', "must be a list, got None"),
    "a list of lists": ('{"id": "q9", "expected_ids": [["a"]], "retrieved_ids": []}', r"or integers, got \['a'\]"),
    "true as id": ('{"id": "q9", "expected_ids": [true], "retrieved_ids": []}', "text or integers, got True"),
    "null as id": ('{"id": null, "expected_ids": [], "retrieved_ids": []}', "text or integers, got None"),
    "a decimal as id": ('{"id": 1.5, "expected_ids": [], "retrieved_ids": []}', "text or integers, got 1.5"),
    "an empty id": ('{"id": "q9", "expected_ids": [""], "retrieved_ids": []}', "must not be empty"),
    "NUL": ('{"id": "q\\u0000", "expected_ids": [], "retrieved_ids": []}', "no control characters"),
    "an escape sequence": (
        '{"id": "q9", "expected_ids": ["\\u001b[2J"], "retrieved_ids": []}',
        "no control characters",
    ),
    "half a pair": ('{"id": "\\ud800", "expected_ids": [], "retrieved_ids": []}', "half of a surrogate pair"),
    "a raw half": ('{"id": "\ud800", "expected_ids": [], "retrieved_ids": []}', "text must be UTF-8, got byte 0xed"),
    "Latin-1": (b'{"id": "\xe9"}', "text must be UTF-8, got byte 0xe9"),
    "a huge integer": (
        '{"id": ' + "9" * 5_000 + ', "expected_ids": [], "retrieved_ids": []}',
        "a line must be a JSON object, got Exceeds the limit",
    ),
    "true as score": (
        '{"id": "q9", "expected_ids": [], "retrieved_ids": ["a"], "scores": [true]}',
        "scores must be numbers, got True",
    ),
    "text as score": (
        '{"id": "q9", "expected_ids": [], "retrieved_ids": ["a"], "scores": ["1"]}',
        "scores must be numbers, got '1'",
    ),
    "NaN": ('{"id": "q9", "expected_ids": [], "retrieved_ids": ["a"], "scores": [NaN]}', "be finite, got nan"),
    "infinite": ('{"id": "q9", "expected_ids": [], "retrieved_ids": ["a"], "scores": [-1e999]}', "be finite, got -inf"),
    "beyond float64": (
        '{"id": "q9", "expected_ids": [], "retrieved_ids": ["a"], "scores": [1' + "0" * 400 + "]}",
        "be finite, got 1000",
    ),
    "too few scores": (
        '{"id": "q9", "expected_ids": [], "retrieved_ids": ["a", "b"], "scores": [1]}',
        "a number for each of the 2 retrieved_ids, got '1 numbers'",
    ),
    "scores by id": (
        '{"id": "q9", "expected_ids": [], "retrieved_ids": ["a"], "scores": {"a": 1}}',
        "a number for each of the 1 retrieved_ids, got {'a': 1}",
    ),
    "too many labels": (
        '{"id": "q9", "expected_ids": ["a"], "relevance": [1, 2], "retrieved_ids": []}',
        "a number for each of the 1 expected_ids, got '2 numbers'",
    ),
    "true as label": ('{"id": "q9", "relevance": {"a": true}, "retrieved_ids": []}', "relevance must be numbers, got"),
    "labels twice": (
        '{"id": "q9", "expected_ids": ["a"], "relevance": {"a": 2}, "retrieved_ids": []}',
        "must not have both expected_ids and relevance by id",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.cases(12)
def test_every_fault_is_one_line_with_file_line_rule_and_value(name, tmp_path, capsys):
    text, rule = FAULTS[name]
    good = '{"id": "q1", "expected_ids": ["a"], "retrieved_ids": ["a"]}\n\n'
    raw = good.encode() + (text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text) + b"\n"
    message = refusal(tmp_path / "x.jsonl", raw, capsys)
    assert message.startswith(":3: ")
    assert re.search(rule, message), message


def test_files_without_a_line(tmp_path, capsys):
    for text in ("", "\n\n", " \r\n"):
        assert refusal(tmp_path / "x.jsonl", text, capsys) == ": expected lines of JSON objects, got an empty file"
    with pytest.raises(FileFormatError, match="a line must name its query by one of qid, query_id, _id, id, query"):
        rb.evaluate(write(tmp_path / "x.jsonl", [{"expected_ids": []}]), measures="RR")
    with pytest.raises(DataError, match=r"none\.jsonl: cannot be read: No such file"):
        rb.evaluate(tmp_path / "none.jsonl", measures="RR")


def test_unusual_ids_stay_as_they_are(tmp_path):
    names = ["007", "7.0", "1e3", "\U0001f600", "a b", "\u2028", "x" * 10_000, "null"]
    rows = [{"id": name, "expected_ids": [name], "retrieved_ids": [name, "zz"]} for name in names]
    result = rb.evaluate(write(tmp_path / "x.jsonl", rows), measures="RR")
    assert list(result.query_ids) == names
    assert result.mean() == {"RR": 1.0}


def test_a_run_needs_judgments(tmp_path, capsys):
    assert command(["evaluate", str(tmp_path / "qrels.txt")]) == 2
    assert "judgments need a run, unless they are JSON lines with both" in capsys.readouterr().err
