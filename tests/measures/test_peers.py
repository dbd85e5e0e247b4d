"""The same numbers as independent tools, on random graded data without ties."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import scipy.stats

pytest.importorskip("ir_measures")
pytest.importorskip("pytrec_eval")
pytest.importorskip("sklearn")

import ir_measures
import pytrec_eval
import sklearn.metrics

import rankbound as rb


@pytest.fixture(scope="module", params=[0, 1, 2])
def data(request):
    """Fifty queries of 1 to 60 judged documents; runs return some of them and some that nobody judged."""
    rng = np.random.default_rng(request.param)
    qrels, run = {}, {}
    for q in range(50):
        size = int(rng.integers(1, 60))
        labels = rng.choice([0, 1, 2, 3], size=size, p=[0.6, 0.2, 0.15, 0.05])
        labels[rng.integers(size)] = 1
        qrels[f"{q + 100}"] = {f"d{d}": int(label) for d, label in enumerate(labels)}
        returned = rng.choice(size + 20, size=int(rng.integers(1, size + 20)), replace=False)
        scores = rng.permutation(1000)[: len(returned)] / 8
        run[f"{q + 100}"] = {f"d{d}": float(s) for d, s in zip(returned, scores, strict=True)}
    return qrels, run


def per_query(qrels, run, measures, **kwargs):
    frame = rb.evaluate(qrels, run, measures, **kwargs).per_query
    return {row["qid"]: row for row in frame.iter_rows(named=True)}


def test_pytrec_eval(data):
    qrels, run = data
    names = {
        "map": "AP",
        "ndcg": "nDCG",
        "recip_rank": "RR",
        "Rprec": "Rprec",
        **{f"ndcg_cut_{k}": f"nDCG@{k}" for k in (1, 5, 10, 20)},
        **{f"map_cut_{k}": f"AP@{k}" for k in (5, 10)},
        **{f"P_{k}": f"P@{k}" for k in (1, 5, 10, 100)},
        **{f"recall_{k}": f"R@{k}" for k in (5, 10, 100)},
        **{f"success_{k}": f"Success@{k}" for k in (1, 5)},
    }
    theirs = pytrec_eval.RelevanceEvaluator(
        qrels,
        {"map", "ndcg", "recip_rank", "Rprec", "ndcg_cut.1,5,10,20", "map_cut.5,10", "P.1,5,10,100"}
        | {"recall.5,10,100", "success.1,5"},
    ).evaluate(run)
    ours = per_query(qrels, run, list(names.values()), ties="docid", empty="zero")
    for query, expected in theirs.items():
        for their_name, our_name in names.items():
            assert ours[query][our_name] == pytest.approx(expected[their_name], abs=1e-9), (query, our_name)


def test_pytrec_eval_measures_of_judgments_and_sets(data):
    """Unjudged documents, and pooled ones outside a sample (label -1), are what these measures are about."""
    qrels, run = data
    unsampled = {"d1": -1, "d7": -1}
    qrels = {query: {doc: unsampled.get(doc, label) for doc, label in docs.items()} for query, docs in qrels.items()}
    qrels = {query: docs for query, docs in qrels.items() if max(docs.values()) > 0}
    names = {
        "bpref": "Bpref", "infAP": "infAP", "set_P": "SetP", "set_recall": "SetR", "set_F": "SetF",
        "num_ret": "NumRet", "num_rel": "NumRel", "num_rel_ret": "NumRet(rel=1)",
        "iprec_at_recall_0.00": "IPrec@0", "iprec_at_recall_0.70": "IPrec@0.7", "iprec_at_recall_1.00": "IPrec@1",
    }  # fmt: skip
    requested = {name for name in names if not name.startswith("iprec")} | {"iprec_at_recall"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, requested).evaluate(run)
    ours = per_query(qrels, run, list(names.values()), ties="docid", empty="zero")
    for query, expected in theirs.items():
        for their_name, our_name in names.items():
            assert ours[query][our_name] == pytest.approx(expected[their_name], abs=1e-9), (query, our_name)


def test_objects_of_ir_measures_are_measures(data):
    qrels, run = data
    measures = [
        ir_measures.nDCG @ 10, ir_measures.AP(rel=2), ir_measures.P @ 5, ir_measures.RR, ir_measures.Judged @ 10,
        ir_measures.Bpref, ir_measures.SetF, ir_measures.IPrec @ 1.0, ir_measures.NumRet(rel=1),
    ]  # fmt: skip
    theirs = ir_measures.calc_aggregate(measures, qrels, run)
    ours = rb.evaluate(qrels, run, measures, ties="docid", empty="zero").mean()
    for measure in measures:
        assert ours[str(measure)] == pytest.approx(theirs[measure], abs=1e-9), measure
    alone = rb.evaluate(qrels, run, ir_measures.nDCG @ 10, ties="docid", empty="zero").mean()
    assert alone == {"nDCG@10": ours["nDCG@10"]}


def test_trec_eval_names_mean_the_same_as_ours(data):
    qrels, run = data
    ours = rb.evaluate(qrels, run, ["ndcg_cut_10", "nDCG@10", "map", "AP", "recip_rank", "mrr", "RR"]).mean()
    assert ours["ndcg_cut_10"] == ours["nDCG@10"]
    assert ours["map"] == ours["AP"]
    assert ours["recip_rank"] == ours["mrr"] == ours["RR"]


NAMES = ["nDCG@10", "nDCG", "AP(rel=2)", "AP(rel=2)@10", "P(rel=2)@5", "R@20", "RR(rel=2)"]
NAMES += ["RR@5", "Success@5", "Rprec"]


@pytest.mark.parametrize("name", NAMES)
def test_ir_measures(data, name):
    qrels, run = data
    theirs = {m.query_id: m.value for m in ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)}
    ours = per_query(qrels, run, [name], ties="docid", empty="zero")
    for query in qrels:
        assert ours[query][name] == pytest.approx(theirs[query], abs=1e-9), query


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval, which ir_measures uses here, is a perl program")
@pytest.mark.parametrize("name", ["ERR@20", "ERR@5", "nDCG(dcg='exp-log2')@5", "nDCG(dcg='exp-log2')@20"])
def test_gdeval_through_ir_measures(data, name):
    qrels, run = data
    theirs = {m.query_id: m.value for m in ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)}
    ours = per_query(qrels, run, [name], ties="docid", empty="zero")
    for query in qrels:
        assert ours[query][name] == pytest.approx(theirs[query], abs=5.1e-6), query  # it prints five decimals


def test_scikit_learn():
    """Whole lists with every item ranked: nDCG with both gains, average precision, pairwise accuracy (AUC)."""
    rng = np.random.default_rng(3)
    for size in (2, 3, 10, 50):
        labels = rng.integers(0, 4, size)
        labels[:2] = (0, 1)
        scores = rng.permutation(size).astype(float)
        for k in (None, 1, 5, 20):
            at = "" if k is None else f"@{k}"
            ours = rb.evaluate(rb.Lists(labels, [0, size], scores), [f"nDCG{at}", f"nDCG(dcg='exp-log2'){at}"]).mean()
            assert ours[f"nDCG{at}"] == pytest.approx(sklearn.metrics.ndcg_score([labels], [scores], k=k))
            assert ours[f"nDCG(dcg='exp-log2'){at}"] == pytest.approx(
                sklearn.metrics.ndcg_score([2**labels - 1], [scores], k=k)
            )
        binary = labels > 0
        ours = rb.evaluate(rb.Lists(binary, [0, size], scores), ["AP", "PairAcc", "Tau"]).mean()
        assert ours["AP"] == pytest.approx(sklearn.metrics.average_precision_score(binary, scores))
        assert ours["PairAcc"] == pytest.approx(sklearn.metrics.roc_auc_score(binary, scores))


def test_averaged_ties_agree_with_scikit_learn():
    """scikit-learn averages DCG over ties as well."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        labels, scores = rng.integers(0, 4, 12), rng.integers(0, 4, 12).astype(float)
        labels[0] = 1
        for k in (None, 3, 7):
            at = "" if k is None else f"@{k}"
            ours = rb.evaluate(rb.Lists(labels, [0, 12], scores), [f"nDCG{at}"]).mean()[f"nDCG{at}"]
            assert ours == pytest.approx(sklearn.metrics.ndcg_score([labels], [scores], k=k))


def test_scipy_kendall_and_mann_whitney():
    rng = np.random.default_rng(6)
    for _ in range(20):
        labels, scores = rng.integers(0, 4, 15), rng.permutation(15).astype(float)
        labels[:2] = (0, 1)
        lists = rb.Lists(labels, [0, 15], scores)
        ours = rb.evaluate(lists, ["Tau", "U"]).mean()
        assert ours["Tau"] == pytest.approx(scipy.stats.kendalltau(labels, scores).statistic)
        u = scipy.stats.mannwhitneyu(scores[labels == 0], scores[labels > 0]).statistic
        assert ours["U"] == pytest.approx(u)
