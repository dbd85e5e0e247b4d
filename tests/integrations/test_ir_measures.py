"""Measures of rankbound in ir_measures, compared with rankbound itself."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("ir_measures")
pytest.importorskip("pandas")

import ir_measures
import pandas as pd
from ir_measures import AP, RR, ScoredDoc, nDCG

import rankbound as rb
from rankbound.integrations import ir_measure
from rankbound.integrations.ir_measures import _register

NAMES = ["EM(nDCG@10)", "MM(AP)", "EB(RR)", "DB(nDCG@5)", "UL1(P@5)", "UL2(nDCG@10)", "UL2C(AP(rel=2))"]


def generated(queries: int = 25, seed: int = 0, prefix: str = "q") -> tuple[dict, dict]:
    """Judgments and a run with ties, unjudged documents, missing documents and one missing query."""
    random = np.random.default_rng(seed)
    qrels, run = {}, {}
    for number in range(queries):
        labels = random.integers(0, 3, 12)
        labels[:2] = (0, 2)  # there is a choice in every query
        qrels[f"{prefix}{number}"] = {f"d{i}": int(label) for i, label in enumerate(labels)}
        returned = random.permutation(15)[:10]  # d12 to d14 have no judgment
        run[f"{prefix}{number}"] = {f"d{i}": float(random.integers(0, 6)) for i in returned}
    del run[f"{prefix}3"]
    return qrels, run


QRELS, RUN = generated()


@pytest.mark.parametrize("options", [{}, {"ties": "docid"}, {"candidates": "returned", "empty": "zero"}])
def test_values_and_means_are_those_of_rankbound(options):
    expected = rb.evaluate(QRELS, RUN, NAMES, missing="zero", **options)
    measures = {name: ir_measure(name, **options) for name in NAMES}
    means, per_query = ir_measures.calc([AP, nDCG @ 10, *measures.values()], QRELS, RUN)
    assert {name: means[measure] for name, measure in measures.items()} == expected.mean()
    values = {(metric.query_id, metric.measure): metric.value for metric in per_query}
    assert len(values) == len(per_query) == len(QRELS) * (len(NAMES) + 2)
    for row in expected.per_query.rows(named=True):
        assert {name: values[row["qid"], measure] for name, measure in measures.items()} == {
            name: row[name] for name in NAMES
        }


def test_measures_of_other_providers_keep_their_values():
    alone = ir_measures.calc_aggregate([AP, nDCG @ 10], QRELS, RUN)
    both = ir_measures.calc_aggregate([AP, nDCG @ 10, ir_measure("EM(AP)")], QRELS, RUN)
    assert {measure: both[measure] for measure in alone} == alone


def test_p_values_are_those_of_against_random():
    qrels = QRELS | {"same": {"a": 1, "b": 1}, "nothing": {"a": 0, "b": 0}}  # no choice
    run = RUN | {"same": {"a": 1.0}, "nothing": {"a": 1.0}}
    expected = rb.against_random(qrels, run, "AP", missing="zero")["AP"]
    p, better = ir_measure("PValue(AP)"), ir_measure("BetterThanRandom(AP)")
    means, per_query = ir_measures.calc([p, better, RR], qrels, run)
    assert means[p] == expected.combined["fisher"]
    assert means[better] == expected.better_by_correction["none"] / len(qrels)
    values = {metric.query_id: metric.value for metric in per_query if metric.measure == p}
    assert values == dict(zip(expected.query_ids.tolist(), expected.p_values.better.tolist(), strict=True))
    assert values["same"] == values["nothing"] == 1


def test_plain_measures_average_ties_and_do_not_replace_those_of_ir_measures():
    qrels, run = {"q": {"a": 1, "b": 0}}, {"q": {"a": 0.5, "b": 0.5}}
    ours = ir_measure("RR")
    assert str(ours) == "Rankbound(RR)"
    means = ir_measures.calc_aggregate([RR, ours], qrels, run)
    assert means[ours] == (1 + 1 / 2) / 2
    assert means[RR] == 1 / 2  # by document id
    retrieved = ir_measure("NumRet")
    assert ir_measures.calc_aggregate([retrieved], QRELS, RUN)[retrieved] == sum(map(len, RUN.values()))


def test_all_forms_of_input_give_the_same():
    measure = ir_measure("EM(nDCG@10)")
    expected = measure.calc_aggregate(QRELS, RUN)
    judged = [ir_measures.Qrel(q, d, label) for q, documents in QRELS.items() for d, label in documents.items()]
    ranked = [ScoredDoc(q, d, score) for q, documents in RUN.items() for d, score in documents.items()]
    assert measure.calc_aggregate(iter(judged), iter(ranked)) == expected
    frames = pd.DataFrame(judged).assign(label=7), pd.DataFrame(ranked)  # a column that is not ir_measures'
    assert measure.calc_aggregate(*frames) == expected
    assert ir_measures.calc_aggregate([AP, measure], *frames)[measure] == expected
    evaluator = ir_measures.evaluator([measure], QRELS)
    assert evaluator.calc_aggregate(RUN)[measure] == evaluator.calc_aggregate(frames[1])[measure] == expected
    assert ir_measures.providers.registry["rankbound"].calc_aggregate([measure], QRELS, RUN)[measure] == expected


def test_tables_with_ids_of_different_types_are_compared_as_text():
    measure = ir_measure("EM(nDCG@10)")
    numbers = {int(q.removeprefix("q")): documents for q, documents in QRELS.items()}
    texts = [ScoredDoc(q.removeprefix("q"), d, score) for q, documents in RUN.items() for d, score in documents.items()]
    assert measure.calc_aggregate(numbers, pd.DataFrame(texts)) == measure.calc_aggregate(QRELS, RUN)
    assert {metric.query_id for metric in measure.iter_calc(numbers, pd.DataFrame(texts))} == set(numbers)
    with pytest.warns(rb.errors.CoverageWarning, match="no query in common"):  # dicts are looked up as they are
        assert measure.calc_aggregate(numbers, iter(texts)) == pytest.approx(0)


def test_queries_without_a_value_are_left_out_or_counted():
    qrels, run = QRELS | {"same": {"a": 1, "b": 1}}, RUN | {"same": {"a": 1.0}}
    skipping, counting = ir_measure("EM(nDCG@10)"), ir_measure("EM(nDCG@10)", empty="zero")
    with pytest.warns(UserWarning, match=r"EM\(nDCG@10\) has no value on 1 of 26 queries.*empty='zero'"):
        means, per_query = ir_measures.calc([skipping, counting, AP], qrels, run)
    assert str(counting) == "EM(nDCG@10, empty='zero')"
    assert means[skipping] == rb.evaluate(qrels, run, "EM(nDCG@10)", missing="zero").mean()["EM(nDCG@10)"]
    assert means[counting] == pytest.approx(means[skipping] * 25 / 26)
    (value,) = (metric.value for metric in per_query if metric.measure == skipping and metric.query_id == "same")
    assert np.isnan(value)


def test_runs_without_a_judged_query_are_empty_rankings():
    measure = ir_measure("EM(nDCG@10)")
    assert measure.calc_aggregate(QRELS, {}) == pytest.approx(0)  # all tied: a random ranking in expectation
    assert measure.calc_aggregate(pd.DataFrame(columns=["query_id", "doc_id", "relevance"]), RUN) != 0  # NaN
    with pytest.warns(rb.errors.CoverageWarning, match="no query in common"):
        assert ir_measures.calc_aggregate([measure, AP], QRELS, {"other": {"d1": 1.0}})[measure] == pytest.approx(0)


def test_names_are_parsed_and_printed():
    parsed = ir_measures.parse_measure("UL2(measure='nDCG')@10")
    assert parsed == ir_measure("UL2(nDCG@10)") == ir_measure("UL2(nDCG)") @ 10 == ir_measure("UL2(nDCG@5)") @ 10
    assert str(parsed) == "UL2(nDCG@10)"
    assert ir_measure("EM(ndcg_cut_10)") == ir_measure("EM(nDCG@10)") != ir_measure("EM(nDCG@5)")
    assert ir_measures.parse_measure("PValue(measure='AP',ties='docid')") == ir_measure("PValue(AP)", ties="docid")
    assert ir_measure(AP(rel=2)) == ir_measure("AP(rel=2)")
    with pytest.raises(ValueError, match="args must be named"):  # the grammar of ir_measures
        ir_measures.parse_measure("UL2(nDCG@10)")


def test_registration_is_idempotent():
    before = len(ir_measures.DefaultPipeline.providers)
    measure = ir_measure("EM(AP)")
    value = measure.calc_aggregate(QRELS, RUN)
    _register()
    _register()
    assert len(ir_measures.DefaultPipeline.providers) == before
    assert measure.calc_aggregate(QRELS, RUN) == value


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("STD(nDCG@10)", {}, "needs reference runs"),
        ("PValue(EM(AP))", {}, r"PValue takes a plain measure, got EM\(AP\)"),
        ("EM(nDGC@10)", {}, "nearest names: nDCG"),
        ("EM(AP)", {"ties": "random"}, "ties must be one of average, input, docid, got 'random'"),
        ("EM(AP)", {"empty": "NaN"}, "empty must be one of skip, zero, one, got 'NaN'"),
        ("EM(AP)", {"candidates": "all"}, "candidates must be one of judged, returned, got 'all'"),
    ],
)
def test_what_cannot_be_a_measure_is_refused(name, options, message):
    with pytest.raises(rb.errors.RankboundError, match=message):
        ir_measure(name, **options)


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match=r"unknown run format: DataFrame missing columns: \['score'\]"):
        ir_measure("EM(AP)").calc_aggregate(QRELS, pd.DataFrame({"query_id": ["q1"], "doc_id": ["d1"]}))
    with pytest.raises(ValueError, match="unknown qrels format"):
        ir_measure("EM(AP)").calc_aggregate(3, RUN)


def test_without_the_package_the_error_names_the_extra():
    code = "import sys; sys.modules['ir_measures'] = None; from rankbound.integrations import ir_measure"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'pip install ".[ir-measures]"' in done.stderr
