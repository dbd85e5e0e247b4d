"""Dicts are evaluated in parts: the result is that of the whole, in little memory."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest

import rankbound
from rankbound.data import judged
from rankbound.errors import DataError

MEASURES = ["nDCG@3", "AP", "RR", "bpref", "Judged@5", "EM(nDCG@3)", "UL2(AP)", "DB(RR)"]


def collection(queries, seed=0):
    """Queries of very different size: unjudged and missing documents, ties, negative labels, queries of one side."""
    rng = np.random.default_rng(seed)
    qrels, run = {}, {}
    for q in range(queries):
        documents = [f"d{d}" for d in range(int(rng.integers(1, 12)))]
        if q % 7 != 3:
            kept = [d for d in documents if rng.random() < 0.7]
            qrels[f"q{q}"] = {d: int(rng.integers(-1, 3)) for d in kept}
        if q % 7 != 5:
            kept = [d for d in documents if rng.random() < 0.7]
            run[f"q{q}"] = {d: float(rng.integers(0, 4)) for d in kept}
    return qrels, run


@pytest.mark.parametrize("size", [1, 5, 37])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"missing": "zero"},
        {"judged_only": True},
        {"ties": "docid", "depth": 3},
        {"bounds": True, "against_random": True, "empty": "zero"},
        {"candidates": "returned"},
    ],
)
def test_parts_give_what_the_whole_gives(monkeypatch, size, options):
    qrels, run = collection(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = rankbound.evaluate(qrels, run, MEASURES, **options)
        monkeypatch.setattr(judged, "CHUNK", size)
        parts = rankbound.evaluate(qrels, run, MEASURES, **options)
    assert len(list(judged.dict_chunks(qrels, run))) > 1
    assert parts.query_ids.tolist() == whole.query_ids.tolist()
    assert parts.mean() == pytest.approx(whole.mean(), nan_ok=True)
    for name in MEASURES:
        np.testing.assert_allclose(parts.values[name], whole.values[name], rtol=1e-12)
        np.testing.assert_array_equal(parts.empty[name], whole.empty[name])
    assert parts.warnings == whole.warnings
    ours, theirs = parts.coverage, whole.coverage
    assert ours.judged == pytest.approx(theirs.judged)
    assert (ours.missing_queries, ours.unjudged_queries, ours.shared_queries, ours.returned_documents) == (
        theirs.missing_queries, theirs.unjudged_queries, theirs.shared_queries, theirs.returned_documents,
    )  # fmt: skip


def test_ids_that_never_match_are_reported_whatever_the_parts(monkeypatch):
    qrels, run = {f"q{q}": {"a": 1, "b": 0} for q in range(9)}, {f"q{q}": {"x": 1.0} for q in range(9)}
    monkeypatch.setattr(judged, "CHUNK", 2)
    with pytest.warns(UserWarning, match="'a'"):
        rankbound.evaluate(qrels, run, "AP")
    run["q8"]["a"] = 0.5  # one document of the last part is judged
    assert rankbound.evaluate(qrels, run, "AP").coverage.first_ids is None


def test_errors_of_later_parts_name_the_document(monkeypatch):
    qrels, run = collection(30)
    run["q29"], qrels["q29"] = {"d": "high"}, {"d": 1}
    monkeypatch.setattr(judged, "CHUNK", 3)
    with pytest.raises(DataError, match="score of document 'd' in query 'q29' must be a number, got 'high'"):
        rankbound.evaluate(qrels, run, "AP")


def test_memory_does_not_grow_with_the_documents(monkeypatch):
    """Beyond a part, a query adds its results and its name, not its hundred documents."""
    monkeypatch.setattr(judged, "CHUNK", 50_000)
    peaks = []
    for queries in (2500, 5000):
        names = [f"d{d}" for d in range(100)]
        scores = np.random.default_rng(0).random((queries, 100)).tolist()
        run = {f"q{q}": dict(zip(names, row, strict=True)) for q, row in enumerate(scores)}
        qrels = {q: dict.fromkeys(names[::2], 1) for q in run}
        rankbound.evaluate(qrels, run, ["nDCG@10", "AP"])
        tracemalloc.start()
        rankbound.evaluate(qrels, run, ["nDCG@10", "AP"])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 2500 * 200  # bytes; documents would add 100 x 8 for every array
