"""Candidates: normalized measures compare a run with all rankings of a query's documents."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.data.candidates import read_candidates
from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.evaluation.alignment import align_runs
from rankbound.measures import BOUNDINGS, parse_measure
from rankbound.protocol import TIES, Protocol
from rankbound.testing.strategies import catalog
from tests.tiers import examples

PLAIN = [str(measure) for measure in catalog(range(3, 4))]
ROUNDING = 1e-9
documents = st.sampled_from(["a", "b", "c", "d", "e", "f"])
queries = st.sampled_from(["1", "2", "3"])
qrels_dicts = st.dictionaries(queries, st.dictionaries(documents, st.integers(-1, 3), min_size=1), min_size=1)
run_dicts = st.dictionaries(
    queries, st.dictionaries(st.sampled_from("abcdefxyz"), st.integers(0, 5).map(float), min_size=1), min_size=1
)


def wrapped(name):
    """Every wrapper that the measure allows."""
    for wrapper in BOUNDINGS:
        try:
            yield str(parse_measure(f"{wrapper}({name})"))
        except RankboundError:
            continue


def candidate_dict(qrels, run, rule):
    """Candidates as a dict, the same documents that the rule stands for."""
    if rule == "judged":
        return {query: list(judged) for query, judged in qrels.items()}
    if rule == "returned":
        return {query: [d for d in judged if d in run.get(query, {})] for query, judged in qrels.items()}
    return {query: [*judged, "x", "w"] for query, judged in qrels.items()}


# ---- the value lies between worst and best ---------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["judged", "returned", "explicit"])
@given(qrels_dicts, run_dicts, st.sampled_from(TIES), st.sampled_from([None, 1, 3]))
@examples(40)
def test_worst_value_best(rule, qrels, run, ties, depth):
    if not qrels.keys() & run.keys():
        return
    candidates = candidate_dict(qrels, run, rule) if rule == "explicit" else rule
    result = rb.evaluate(qrels, run, PLAIN, bounds=True, empty="zero", ties=ties, depth=depth, candidates=candidates)
    for name in PLAIN:
        bounds, value = result.bounds[name], result.complete[name]
        low, high = np.minimum(bounds.worst, bounds.best), np.maximum(bounds.worst, bounds.best)
        assert (low - ROUNDING <= value).all(), name
        assert (value <= high + ROUNDING).all(), name


WRAPPED = [name for plain in PLAIN for name in wrapped(plain) if not name.startswith(("EB", "UL1(", "Z("))]
# EB, UL1 and Z have other ranges
LEAST = {"MM": 0.0, "DB": 0.0, "UL2": -1.0}  # of the other wrappers it depends on the query


@pytest.mark.parametrize("name", WRAPPED)
@given(qrels_dicts, run_dicts, st.sampled_from(["judged", "returned"]), st.sampled_from(TIES))
@examples(4)
def test_normalized_values_stay_in_their_ranges(name, qrels, run, rule, ties):
    if not qrels.keys() & run.keys():
        return
    value = rb.evaluate(qrels, run, name, ties=ties, candidates=rule, empty="zero").values[name]
    assert (value <= 1 + ROUNDING).all()
    assert (value >= LEAST.get(name.partition("(")[0], -np.inf) - ROUNDING).all()


def test_a_run_that_returns_some_candidates_is_the_mean_over_the_orders_of_the_others():
    qrels = {"q": {"a": 2, "b": 0, "c": 1, "d": 0, "e": 1}}
    run = {"q": {"x": 9.0, "b": 3.0, "a": 2.0}}
    for ties in TIES:
        result = rb.evaluate(qrels, run, PLAIN, bounds=True, ties=ties)
        orders = [
            {"q": {d: float(-rank) for rank, d in enumerate(["b", "a", *rest])}}
            for rest in itertools.permutations("cde")
        ]
        for name in PLAIN:
            each = [rb.evaluate(qrels, order, name).values[name][0] for order in orders]
            assert result.complete[name][0] == pytest.approx(np.mean(each)), (name, ties)


# ---- what must not change a value ------------------------------------------------------------------------------------


@given(qrels_dicts, run_dicts, st.sampled_from(["average", "docid"]), st.sampled_from(["judged", "returned"]))
@examples(25)
def test_documents_without_judgment_change_no_normalized_value(qrels, run, ties, rule):
    if not qrels.keys() & run.keys():
        return
    names = ["EM(nDCG@3)", "MM(AP)", "DB(nDCG)", "UL1(RR)", "UL2(nDCG@3)", "EM(PairAcc)"]
    more = {query: scored | {f"new{i}": float(i) for i in range(9)} for query, scored in run.items()}
    before, after = (rb.evaluate(qrels, each, names, ties=ties, candidates=rule) for each in (run, more))
    for name in names:
        np.testing.assert_allclose(before.values[name], after.values[name], atol=1e-12)


@given(qrels_dicts, run_dicts, st.randoms(use_true_random=False))
@examples(25)
def test_the_order_of_rows_changes_no_value(qrels, run, random):
    if not qrels.keys() & run.keys():
        return

    def shuffled(nested):
        return {q: dict(random.sample(list(nested[q].items()), len(nested[q]))) for q in nested}

    names = ["nDCG", "EM(nDCG)", "UL2(AP)", "DB(RR)", "UL1(nDCG@3)"]
    before = rb.evaluate(qrels, run, names, bounds=True)
    after = rb.evaluate(shuffled(qrels), shuffled(run), names, bounds=True)
    for name in names:
        np.testing.assert_allclose(before.values[name], after.values[name], atol=1e-12)


@pytest.mark.parametrize("rule", ["judged", "returned", "explicit"])
@given(qrels_dicts, run_dicts)
@examples(15)
def test_every_way_in_gives_the_same_values(rule, tmp_path_factory, qrels, run):
    if not qrels.keys() & run.keys():
        return
    folder = tmp_path_factory.mktemp("ways")
    candidates = candidate_dict(qrels, run, rule) if rule == "explicit" else rule
    judged = pl.DataFrame(
        [(q, d, v) for q in qrels for d, v in qrels[q].items()], ["qid", "docid", "label"], orient="row"
    )
    scored = pl.DataFrame([(q, d, v) for q in run for d, v in run[q].items()], ["qid", "docid", "score"], orient="row")
    scored.write_parquet(folder / "run.parquet")
    Path(folder / "qrels.txt").write_text("".join(f"{q} 0 {d} {v}\n" for q, d, v in judged.rows()))
    Path(folder / "run.txt").write_text("".join(f"{q} Q0 {d} 0 {v} t\n" for q, d, v in scored.rows()))
    names = ["nDCG@3", "AP", "EM(nDCG@3)", "UL2(AP)", "DB(RR)"]
    expected = rb.evaluate(qrels, run, names, candidates=candidates).per_query.sort("qid")
    ways = (
        (judged, scored), (judged, folder / "run.parquet"), (folder / "qrels.txt", folder / "run.txt"),
    )  # fmt: skip
    for left, right in ways:
        result = rb.evaluate(left, right, names, candidates=candidates).per_query.sort("qid")
        np.testing.assert_allclose(result.drop("qid").to_numpy(), expected.drop("qid").to_numpy(), atol=1e-12)
    matrix = align_runs(qrels, [run, run], names, Protocol(candidates=candidates))
    order = np.argsort(np.array(matrix.query_ids))
    for name in names:
        np.testing.assert_allclose(matrix.values[name][1][order], expected[name].cast(float).to_numpy(), atol=1e-12)


@given(qrels_dicts, run_dicts, st.sampled_from(["judged", "returned"]))
@examples(25)
def test_a_rule_and_the_list_of_its_documents_agree(qrels, run, rule):
    if not qrels.keys() & run.keys():
        return
    names = ["nDCG@3", "EM(nDCG@3)", "UL2(AP)", "MM(RR)"]
    by_rule = rb.evaluate(qrels, run, names, candidates=rule, empty="zero")
    by_list = rb.evaluate(
        qrels, run, names, candidates=candidate_dict(qrels, run, rule), judged_outside="ignore", empty="zero"
    )
    a, b = by_rule.per_query.sort("qid"), by_list.per_query.sort("qid")
    np.testing.assert_allclose(a.drop("qid").to_numpy(), b.drop("qid").to_numpy(), atol=1e-12)


def test_plain_measures_do_not_depend_on_the_candidates():
    qrels = {"q": {"a": 1, "b": 0, "c": 1}}
    run = {"q": {"x": 5.0, "a": 4.0, "y": 3.0}}
    expected = rb.evaluate(qrels, run, PLAIN, empty="zero").mean()
    for candidates in ("returned", {"q": ["a", "b", "c", "x", "w", "v"]}):
        assert rb.evaluate(qrels, run, PLAIN, empty="zero", candidates=candidates).mean() == expected


# ---- candidates without a choice, added candidates, columns ----------------------------------------------------------


def test_all_documents_relevant_is_no_choice_and_not_empty():
    qrels, run = {"q": {"a": 1, "b": 1, "c": 1}, "r": {"a": 1, "b": 0}}, {"q": {"a": 1.0}, "r": {"a": 1.0}}
    result = rb.evaluate(qrels, run, ["AP", "MM(AP)", "UL2(AP)", "DB(AP)"])
    assert result.values["AP"].tolist() == [pytest.approx(1 / 3), 1.0]
    for name in ("MM(AP)", "UL2(AP)", "DB(AP)"):
        assert result.no_choice[name].tolist() == [True, False]
        assert not result.empty[name].any()
        assert np.isnan(result.values[name][0])
    assert (result.empty_queries, result.no_choice_queries) == (0, 1)


def test_added_candidates_have_label_0_and_make_a_query_harder():
    qrels, run = {"q": {"a": 1}}, {"q": {"a": 1.0, "b": 2.0}}
    result = rb.evaluate(qrels, run, ["RR"], bounds=True, candidates={"q": ["a", "b", "c", "d"]})
    assert result.values["RR"].tolist() == [1 / 2]
    assert result.complete["RR"].tolist() == [1 / 2]
    assert result.bounds["RR"].worst.tolist() == [1 / 4]
    assert result.candidates == "explicit"


def test_a_column_marks_the_candidates(tmp_path):
    table = pl.DataFrame(
        {"qid": ["q"] * 4, "docid": list("abcd"), "label": [1, 0, None, 0], "pool": [True, True, True, False]}
    )
    run = {"q": {"b": 2.0, "a": 1.0, "d": 3.0}}
    result = rb.evaluate(table, pl.DataFrame([("q", d, s) for d, s in run["q"].items()], ["qid", "docid", "score"],
                                             orient="row"), ["RR"], bounds=True, candidates="column:pool")  # fmt: skip
    assert result.values["RR"].tolist() == [1 / 3]
    assert result.complete["RR"].tolist() == [1 / 2]
    assert result.bounds["RR"].worst.tolist() == [1 / 3]
    scored = pl.DataFrame({"qid": ["q"] * 3, "label": [0, 1, 0], "score": [3.0, 2.0, 1.0], "pool": [False, True, True]})
    scored.write_parquet(tmp_path / "scored.parquet")
    result = rb.evaluate(tmp_path / "scored.parquet", measures=["RR"], bounds=True, candidates="column:pool")
    assert (result.values["RR"][0], result.complete["RR"][0], result.bounds["RR"].worst[0]) == (1 / 2, 1.0, 1 / 2)


def test_files_of_candidates_come_in_four_forms(tmp_path):
    rows = [("q", "a"), ("q", "b"), ("r", "a")]
    texts = {
        "pairs.txt": "".join(f"{q}\t{d}\n" for q, d in rows) + "q a\n",
        "qrels.txt": "".join(f"{q} 0 {d} 1\n" for q, d in rows),
        "run.txt": "# first stage\n" + "".join(f"{q} Q0 {d} 1 0.5 tag\n" for q, d in rows),
        "table.csv": "query_id,doc_id\n" + "".join(f"{q},{d}\n" for q, d in rows),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert read_candidates(tmp_path / name).table.rows() == rows


@pytest.mark.parametrize(
    ("candidates", "rule"),
    [
        (
            {"q": ["a"]},
            "candidates must contain every judged document, got 1 that they lack, the first is 'b'",
        ),
        ({}, "candidates must contain every judged document"),
        ({"q": "ab"}, "query 'q' of candidates must have a collection of documents"),
        ("column:pool", "needs judgments in a frame"),
        ("nowhere.txt", "nowhere.txt"),
        (7, "candidates must be 'judged', 'returned'"),
        (pl.DataFrame({"qid": ["q"]}), "no column for docid"),
    ],
)
def test_wrong_candidates_are_refused(candidates, rule):
    with pytest.raises((ArgumentError, DataError), match=rule):
        rb.evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 1.0}}, ["EM(AP)"], candidates=candidates)


def test_lists_take_a_rule_only():
    lists = rb.Lists([1, 0], [0, 2], [0.2, 0.1])
    with pytest.raises(ArgumentError, match="candidates must be 'judged' or 'returned' for lists"):
        rb.evaluate(lists, ["EM(AP)"], candidates={"q": ["a"]})


@pytest.mark.parametrize("lines", ["q a b\n", "q\n", "", "q a\nq\n", "q 0 a x\n"])
def test_a_damaged_file_of_candidates_is_refused_with_its_line(tmp_path, lines):
    (tmp_path / "candidates.txt").write_text(lines)
    with pytest.raises(DataError, match=r"candidates\.txt"):
        read_candidates(tmp_path / "candidates.txt")
