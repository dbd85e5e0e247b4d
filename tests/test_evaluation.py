"""evaluate: every kind of input, every policy."""

from __future__ import annotations

import gzip
import io
import sys

import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples

pytest.importorskip("pandas")

import pandas as pd

import rankbound as rb
from rankbound.protocol import TIES

MEASURES = ["nDCG@3", "AP", "RR", "P@2", "U", "UL2(nDCG@3)"]
documents = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])
qrels_dicts = st.dictionaries(
    st.sampled_from(["1", "2", "3", "4"]), st.dictionaries(documents, st.integers(-1, 3), min_size=1), min_size=1
)
run_dicts = st.dictionaries(
    st.sampled_from(["2", "1", "4", "9"]),
    st.dictionaries(documents, st.integers(0, 6).map(float), min_size=1),
    min_size=1,
)


def to_frame(nested, number):
    rows = [(q, d, v) for q in nested for d, v in nested[q].items()]
    return pl.DataFrame(rows, schema={"qid": pl.String, "docid": pl.String, number: None}, orient="row")


def rows_of(result):
    return {row["qid"]: row for row in result.per_query.iter_rows(named=True)}


@given(qrels_dicts, run_dicts, st.sampled_from(["ignore", "zero"]), st.booleans(), st.sampled_from(TIES[::2]))
@examples(150)
def test_dicts_and_frames_agree_in_every_policy(qrels, run, missing, judged_only, ties):
    policy = {"missing": missing, "judged_only": judged_only, "ties": ties, "empty": "zero"}
    if not qrels.keys() & run.keys():
        with pytest.raises(rb.errors.DataError, match="no query in common"):
            rb.evaluate(qrels, run, MEASURES, **policy)
        return
    expected = rows_of(rb.evaluate(qrels, run, MEASURES, **policy))
    frames = to_frame(qrels, "label"), to_frame(run, "score")
    shuffled = [frame.sample(fraction=1, shuffle=True, seed=1) for frame in frames]
    for pair in (frames, shuffled, (qrels, frames[1]), (frames[0], run)):
        actual = rows_of(rb.evaluate(*pair, MEASURES, **policy))
        assert actual.keys() == expected.keys()
        for query, row in expected.items():
            for name in MEASURES:
                assert actual[query][name] == pytest.approx(row[name], abs=1e-12)


def test_sparse_integer_ids_go_through_the_sorted_match():
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(40) * 10**6, 50)
    doc = np.concatenate([rng.choice(10**9, 50, replace=False) for _ in range(40)])
    qrels = pl.DataFrame({"qid": query, "docid": doc, "label": rng.integers(0, 3, 2000)})
    run = pl.DataFrame({"qid": query, "docid": doc, "score": rng.normal(size=2000)})[rng.permutation(2000)]
    strings = [frame.with_columns(pl.col("qid", "docid").cast(pl.String)) for frame in (qrels, run)]
    numbers, texts = rb.evaluate(qrels, run, MEASURES).mean(), rb.evaluate(*strings, MEASURES).mean()
    lists = rb.Lists.from_frame(qrels.join(run, on=["qid", "docid"]))
    direct = rb.evaluate(lists, MEASURES).mean()
    for name in MEASURES:
        assert numbers[name] == pytest.approx(texts[name]) == pytest.approx(direct[name])


def test_pandas_frames_and_columns_named_as_in_ir_measures():
    qrels = pd.DataFrame({"query_id": ["1", "1"], "doc_id": ["a", "b"], "relevance": [0, 1]})
    run = pd.DataFrame({"query_id": ["1", "1"], "doc_id": ["a", "b"], "score": [0.9, 0.5]})
    assert rb.evaluate(qrels, run, ["RR"]).mean() == {"RR": 0.5}


QRELS = "1 0 a 1\n1 0 b 0\n2 0 a 2\n"
RUN = "1 Q0 b 1 0.9 tag\n1 Q0 a 2 0.5 tag\n2 Q0 a 1 0.1 tag\n"


def test_files_plain_compressed_and_from_standard_input(tmp_path, monkeypatch):
    for name, content in (("qrels", QRELS), ("run", RUN)):
        (tmp_path / name).write_text(content)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
        (tmp_path / f"{name}.zst").write_bytes(zstandard.compress(content.encode()))
    for ending in ("", ".gz", ".zst"):
        result = rb.evaluate(tmp_path / f"qrels{ending}", str(tmp_path / f"run{ending}"), ["RR"])
        assert result.mean() == {"RR": 0.75}
    stdin = io.TextIOWrapper(io.BytesIO(RUN.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert rb.evaluate(tmp_path / "qrels", "-", ["RR"]).mean() == {"RR": 0.75}


@pytest.mark.parametrize(
    "text",
    [
        "1\tQ0\tb\t1\t0.9\ttag\n1\tQ0\ta\t2\t0.5\ttag\n2\tQ0\ta\t1\t0.1\ttag",
        "  1   Q0 b  1 0.9 tag \r\n1 Q0 a 2 0.5 tag\r\n\r\n2 Q0 a 1 0.1 tag\r\n",
        "# a comment\n1 Q0 b 1 0.9 tag\n\n1 Q0 a 2 0.5 tag\n2 Q0 a 1 0.1 tag with more words\n",
        '1 Q0 b 1 9e-1 "tag\n1 Q0 a 2 .5 tag\n2 Q0 a 1 +0.1 tag\n',
    ],
)
def test_white_space_comments_and_long_tags_are_fine(tmp_path, text):
    (tmp_path / "qrels").write_text(QRELS)
    (tmp_path / "run").write_text(text, newline="")
    assert rb.evaluate(tmp_path / "qrels", tmp_path / "run", ["RR"]).mean() == {"RR": 0.75}


@pytest.mark.parametrize(
    ("qrels", "run", "message"),
    [
        (QRELS, RUN.replace("2 0.5 tag", "0.5"), r"run:2: expected 6 fields .*, got 4: '1 Q0 a 0\.5'"),
        (QRELS, RUN.replace("0.5", "half"), "run:2: score must be a number, got 'half'"),
        (QRELS, RUN.replace("0.5", "nan"), "run:2: score must be finite, got 'nan'"),
        (QRELS, RUN.replace("0.5", "-inf"), "run:2: score must be finite, got '-inf'"),
        (
            QRELS,
            RUN.replace("Q0 a 2", "Q0 b 2"),
            "run:2: a document must occur once per query, got 'b' again in query '1'",
        ),
        (QRELS.replace("b 0", "b no"), RUN, "qrels:2: label must be an integer, got 'no'"),
        (QRELS.replace("b 0", "b 0.5"), RUN, "qrels:2: label must be an integer, got '0.5'"),
        (QRELS.replace("b 0", "b 0 x"), RUN, "qrels:2: expected 4 fields"),
        ("", RUN, "qrels: expected lines of 4 fields, got an empty file"),
        (QRELS, "# nothing\n", "run: expected lines of 6 fields, got an empty file"),
        (QRELS, RUN.replace("1 Q0", "8 Q0").replace("2 Q0", "9 Q0"), "no query in common"),
        (QRELS, "\udcff\udcfe 1", "run:1: text must be UTF-8, got byte 0xff"),
    ],
)
def test_errors_in_files_name_file_line_and_rule(tmp_path, qrels, run, message):
    (tmp_path / "qrels").write_text(qrels)
    (tmp_path / "run").write_text(run, errors="surrogateescape")
    with pytest.raises(rb.errors.DataError, match=message):
        rb.evaluate(tmp_path / "qrels", tmp_path / "run", ["RR"])


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "qrels").write_text(QRELS)
    with pytest.raises(rb.errors.DataError, match="cannot be read: No such file"):
        rb.evaluate(tmp_path / "qrels", tmp_path / "nothing", ["RR"])
    with pytest.raises(rb.errors.DataError, match=r"a folder of results must have rankings per query .*, got qrels"):
        rb.evaluate(tmp_path / "qrels", tmp_path, ["RR"])
    (tmp_path / "run.gz").write_bytes(gzip.compress(RUN.encode())[:-9])
    with pytest.raises(rb.errors.DataError, match=r"run\.gz: cannot be read"):
        rb.evaluate(tmp_path / "qrels", tmp_path / "run.gz", ["RR"])
    (tmp_path / "run.zst").write_bytes(zstandard.compress(RUN.encode())[:-3])
    with pytest.raises(rb.errors.DataError, match=r"run\.zst: cannot be read"):
        rb.evaluate(tmp_path / "qrels", tmp_path / "run.zst", ["RR"])


@pytest.mark.parametrize(
    ("qrels", "run", "message"),
    [
        ({"q": {"a": "x"}}, {"q": {"a": 1.0}}, "label of document 'a' in query 'q' must be a number, got 'x'"),
        ({"q": {"a": 1}}, {"q": {"a": "high"}}, "score of document 'a' in query 'q' must be a number, got 'high'"),
        ({"q": {"a": 1}}, {"q": {"a": float("nan")}}, "scores must be finite, got nan"),
        ({"q": {"a": float("nan")}}, {"q": {"a": 1.0}}, "labels must be finite, got nan"),
        ({"q": {"a": 1}}, {"p": {"a": 1.0}}, "the first of qrels is 'q', the first of the run 'p'"),
        ({}, {}, "no query in common"),
    ],
)
def test_errors_in_dicts_name_the_entry_and_the_rule(qrels, run, message):
    with pytest.raises(rb.errors.DataError, match=message):
        rb.evaluate(qrels, run, ["RR"])


def test_errors_in_frames_name_the_column_and_the_rule():
    qrels = pl.DataFrame({"qid": [1, 1], "docid": [1, 2], "label": [0, 1]})
    run = pl.DataFrame({"qid": [1, 1], "docid": [1, 2], "score": [0.1, 0.2]})
    double = run.with_columns(docid=pl.lit(1))
    with pytest.raises(rb.errors.DataError, match="run: document 1 occurs more than once in query 1"):
        rb.evaluate(qrels, double, ["RR"])
    with pytest.raises(rb.errors.DataError, match="qrels: document 1 occurs more than once in query 1"):
        rb.evaluate(qrels.with_columns(docid=pl.lit(1)), run, ["RR"])
    with pytest.raises(rb.errors.DataError, match="column 'score' must hold numbers"):
        rb.evaluate(qrels, run.with_columns(score=pl.lit("x")), ["RR"])
    with pytest.raises(rb.errors.DataError, match="column 'label' must have a label in every row, got 2 empty"):
        rb.evaluate(qrels.with_columns(label=pl.lit(None, dtype=pl.Int64)), run, ["RR"])
    with pytest.raises(rb.errors.DataError, match="no column for docid"):
        rb.evaluate(qrels.drop("docid"), run, ["RR"])
    texts = [frame.with_columns(pl.col("docid").cast(pl.String)) for frame in (qrels, run)]
    with pytest.raises(rb.errors.DataError, match="'docid' must have no empty entries"):
        rb.evaluate(texts[0].with_columns(docid=pl.lit(None, dtype=pl.String)), texts[1], ["RR"])


# ---- policies --------------------------------------------------------------------------------------------------------

LISTS = rb.Lists(
    [1, 0, 0, 0, 1, 1], [0, 2, 4, 6], [0.1, 0.9, 0.5, 0.4, 0.3, 0.2]
)  # one of each: mixed, none, all relevant


def test_empty_queries_are_skipped_zero_or_one_and_always_counted():
    for policy, mean in (("skip", (1 / 2 + 1) / 2), ("zero", (1 / 2 + 0 + 1) / 3), ("one", (1 / 2 + 1 + 1) / 3)):
        result = rb.evaluate(LISTS, measures=["RR"], empty=policy)
        assert result.mean()["RR"] == pytest.approx(mean)
        assert (result.queries, result.empty_queries) == (3, 1)
    assert rb.evaluate(LISTS, ["RR"]).per_query["RR"].to_list() == [0.5, None, 1.0]


def test_a_query_whose_rankings_are_all_as_good_has_no_choice():
    result = rb.evaluate(LISTS, ["MM(RR)", "UL1(RR)"])
    for name in result.measures:
        assert result.empty[name].tolist() == [False, True, False]
        assert result.no_choice[name].tolist() == [False, False, True]
    assert (result.empty_queries, result.no_choice_queries) == (1, 1)
    assert np.isnan(result.values["MM(RR)"]).tolist() == [False, True, True]
    assert np.isnan(result.values["UL1(RR)"]).tolist() == [False, True, False]


def test_a_measure_is_looked_up_by_its_name():
    result = rb.evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 1, "b": 2}}, ["AP", "EM(RR)"])
    assert (result["AP"], result["EM(RR)"]) == (result.mean()["AP"], result.mean()["EM(RR)"])
    with pytest.raises(KeyError, match=r"'nDCG' is not among the measures, which are AP, EM\(RR\)"):
        result["nDCG"]


def test_the_mean_over_no_queries_is_nan():
    result = rb.evaluate(rb.Lists([0, 0], [0, 2], [0.1, 0.2]), ["AP"])
    assert np.isnan(result.mean()["AP"])
    assert result.per_query["AP"].to_list() == [None]


def test_missing_queries_count_as_empty_rankings_on_request():
    qrels, run = {"1": {"a": 1}, "2": {"a": 1}}, {"1": {"a": 0.5}}
    assert rb.evaluate(qrels, run, ["AP", "nDCG"]).mean() == {"AP": 1.0, "nDCG": 1.0}
    assert rb.evaluate(qrels, run, ["AP", "nDCG"], missing="zero").mean() == {"AP": 0.5, "nDCG": 0.5}


def test_a_missing_query_is_a_random_ranking_to_normalized_measures():
    qrels, run = {"1": {"a": 1, "b": 0}, "2": {"a": 1, "b": 0}}, {"1": {"a": 0.9, "b": 0.1}}
    result = rb.evaluate(qrels, run, ["nDCG", "EM(nDCG)"], missing="zero")
    assert result.per_query["nDCG"].to_list() == [1.0, 0.0]
    assert result.per_query["EM(nDCG)"].to_list() == [1.0, 0.0]


def test_judged_only_closes_the_gaps():
    qrels, run = {"1": {"a": 1, "b": 0}}, {"1": {"x": 0.9, "a": 0.5, "b": 0.1}}
    assert rb.evaluate(qrels, run, ["RR"]).mean() == {"RR": 1 / 2}
    assert rb.evaluate(qrels, run, ["RR"], judged_only=True).mean() == {"RR": 1.0}


def test_names_are_kept_as_given_and_bounds_come_on_request():
    result = rb.evaluate(LISTS, ["ndcg_cut_10", "UL2(ndcg_cut_10)"], bounds=True)
    assert result.measures == ("ndcg_cut_10", "UL2(ndcg_cut_10)")
    assert result.per_query.columns == [
        "qid",
        *result.measures,
        *(f"ndcg_cut_10 {p}" for p in ("worst", "expected", "best", "complete")),
    ]
    bounds = rb.bounds("nDCG@10", n=2, relevant=1)
    assert result.bounds["ndcg_cut_10"].expected[0] == pytest.approx(bounds.expected)


@pytest.mark.parametrize(
    ("arguments", "kwargs", "error", "message"),
    [
        ((LISTS, []), {}, rb.errors.ArgumentError, "at least one measure"),
        ((LISTS, {}, ["AP"]), {}, rb.errors.ArgumentError, "Lists carry their scores"),
        (({"q": {"a": 1}},), {}, rb.errors.ArgumentError, "needs qrels and a run"),
        (
            (LISTS, ["AP"]),
            {"empty": "drop"},
            rb.errors.ArgumentError,
            "empty must be one of skip, zero, one, got",
        ),
        (
            ({"q": {"a": 1}}, {"q": {"a": 1}}, ["AP"]),
            {"missing": "drop"},
            rb.errors.ArgumentError,
            "missing must be one of",
        ),
        ((rb.Lists([], [0], []), ["AP"]), {}, rb.errors.DataError, "no queries to evaluate"),
    ],
)
def test_arguments_are_checked(arguments, kwargs, error, message):
    with pytest.raises(error, match=message):
        rb.evaluate(*arguments, **kwargs)
