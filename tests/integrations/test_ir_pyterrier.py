"""Measures of rankbound in experiments of PyTerrier. Nothing here needs its Java part."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ir_measures")
pytest.importorskip("pandas")
pytest.importorskip("pyterrier")

import ir_measures
import pandas as pd
import pyterrier as pt
from ir_measures import AP, nDCG

import rankbound as rb
from rankbound.integrations import ir_measure

pytestmark = pytest.mark.full("starts a JVM")

QUERIES = 30
EM, P_VALUE, BETTER = ir_measure("EM(nDCG@10)"), ir_measure("PValue(AP)"), ir_measure("BetterThanRandom(AP)")
MEASURES = [nDCG @ 10, AP, EM, P_VALUE, BETTER]


def generated() -> tuple[pd.DataFrame, pd.DataFrame, dict[str, pd.DataFrame]]:
    """Topics, judgments and the results of a weak and of a strong system, in the columns of PyTerrier."""
    random = np.random.default_rng(0)
    rows = [
        (f"q{q}", f"d{d}", int(random.integers(0, 3)) if d > 1 else 2 * d) for q in range(QUERIES) for d in range(15)
    ]
    qrels = pd.DataFrame(rows, columns=["qid", "docno", "label"])
    runs = {}
    for name, strength in (("weak", 0.3), ("strong", 3.0)):
        scored = qrels.assign(score=strength * qrels["label"] + random.normal(size=len(qrels)))
        runs[name] = scored.sample(frac=0.9, random_state=0)[["qid", "docno", "score"]]
    topics = pd.DataFrame({"qid": [f"q{q}" for q in range(QUERIES)], "query": "words"})
    return topics, qrels, runs


TOPICS, QRELS, RUNS = generated()


def experiment(measures=MEASURES, systems=None, **options):
    return pt.Experiment(systems or RUNS, TOPICS, QRELS, measures, **options)


def test_the_table_has_our_means_next_to_theirs():
    table = experiment().set_index("name")
    expected = rb.evaluate(QRELS, RUNS, ["EM(nDCG@10)"], missing="zero").mean()
    theirs = experiment([nDCG @ 10, AP]).set_index("name")
    for name in RUNS:
        assert table.loc[name, "EM(nDCG@10)"] == pytest.approx(expected[name]["EM(nDCG@10)"], abs=1e-14)
        assert table.loc[name, "nDCG@10"] == theirs.loc[name, "nDCG@10"]
    assert table.loc["strong", "EM(nDCG@10)"] > table.loc["weak", "EM(nDCG@10)"] > 0
    better = rb.against_random(QRELS, RUNS["strong"], "AP")["AP"].better_by_correction["none"]
    assert table.loc["strong", "BetterThanRandom(AP)"] == better / QUERIES > table.loc["weak", "BetterThanRandom(AP)"]
    assert not pt.java.started()


def test_values_per_query():
    table = experiment(perquery=True).set_index(["name", "measure", "qid"])["value"]
    result = rb.evaluate(QRELS, RUNS["weak"], ["EM(nDCG@10)", "AP"], missing="zero", against_random=True)
    for row in result.per_query.rows(named=True):
        assert table["weak", "EM(nDCG@10)", row["qid"]] == row["EM(nDCG@10)"]
        assert table["weak", "PValue(AP)", row["qid"]] == row["AP p better"]
    assert len(table) == len(MEASURES) * QUERIES * len(RUNS)


def test_significance_with_a_baseline():
    table = experiment([EM, AP], baseline="weak", correction="holm").set_index("name")
    weak, strong = (rb.evaluate(QRELS, run, "EM(nDCG@10)", missing="zero") for run in RUNS.values())
    row = rb.compare(weak, strong).rows[0]
    assert table.loc["strong", "EM(nDCG@10) p-value"] == pytest.approx(row.p_t)
    assert table.loc["strong", "EM(nDCG@10) +"] == row.wins
    assert table.loc["strong", "EM(nDCG@10) reject"]


def test_transformers_and_batches_give_the_same():
    systems = {name: pt.Transformer.from_df(run) for name, run in RUNS.items()}
    expected = experiment()
    pd.testing.assert_frame_equal(experiment(systems=systems), expected, check_like=True)
    pd.testing.assert_frame_equal(experiment(systems=systems, batch_size=7), expected, check_like=True)


def test_judged_queries_that_are_no_topics_count_as_empty_rankings():
    """In batches, PyTerrier evaluates them with an empty frame."""
    systems = [pt.Transformer.from_df(RUNS["strong"])]
    topics = TOPICS[:20]
    tables = [
        pt.Experiment(systems, topics, QRELS, [EM, AP], filter_by_topics=False, **options)
        for options in ({}, {"batch_size": 7})
    ]
    pd.testing.assert_frame_equal(*tables, check_like=True)
    first = RUNS["strong"][RUNS["strong"]["qid"].isin(topics["qid"])]
    expected = rb.evaluate(QRELS, first, "EM(nDCG@10)", missing="zero").mean()["EM(nDCG@10)"]
    assert tables[0]["EM(nDCG@10)"].item() == pytest.approx(expected)


def test_queries_without_a_value_count_if_they_should():
    qrels = pd.concat([QRELS, pd.DataFrame({"qid": "q0", "docno": ["x"], "label": [1]})])
    qrels.loc[qrels["qid"] == "q0", "label"] = 1  # no choice
    with pytest.warns(UserWarning, match="no value on 1 of 30 queries"):
        table = pt.Experiment(RUNS, TOPICS, qrels, [EM])
    assert table["EM(nDCG@10)"].isna().all()
    counted = ir_measure("EM(nDCG@10)", empty="zero")
    table = pt.Experiment(RUNS, TOPICS, qrels, [counted]).set_index("name")
    expected = rb.evaluate(qrels, RUNS["weak"], "EM(nDCG@10)", missing="zero", empty="zero").mean()["EM(nDCG@10)"]
    assert table.loc["weak", str(counted)] == pytest.approx(expected)


def test_frames_of_pyterrier_are_judgments_and_runs_of_rankbound():
    values = rb.evaluate(QRELS, RUNS["weak"], "AP", ties="docid", empty="zero").mean()["AP"]
    theirs = ir_measures.calc_aggregate([AP], pt.model.to_ir_measures(QRELS), pt.model.to_ir_measures(RUNS["weak"]))
    assert values == pytest.approx(theirs[AP])
