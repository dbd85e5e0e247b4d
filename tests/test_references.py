"""Reference runs: their scores, and measures that are standardized by them, in every way to give them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound.errors import ArgumentError, DataError

QRELS = {f"q{i}": {"a": 1, "b": 0, "c": int(i % 2), "d": 2} for i in range(8)}
rng = np.random.default_rng(0)


def random_run(queries=QRELS) -> dict[str, dict[str, float]]:
    return {q: dict(zip("abcdx", rng.random(5).tolist(), strict=True)) for q in queries}


RUN = random_run()
REFERENCES = {f"r{i}": random_run() for i in range(4)}


def frame(run: dict[str, dict[str, float]], number: str) -> pl.DataFrame:
    rows = [(q, d, value) for q, documents in run.items() for d, value in documents.items()]
    return pl.DataFrame(rows, schema=["qid", "docid", number], orient="row")


def test_scores_of_references_are_their_plain_values():
    scores = rb.evaluate_references(QRELS, REFERENCES, ["nDCG@2", "STD(AP)"])
    assert (scores.systems, scores.measures) == (tuple(REFERENCES), ("nDCG@2", "AP"))
    for row, run in enumerate(REFERENCES.values()):
        values = rb.evaluate(QRELS, run, ["nDCG@2", "AP"]).values
        for name in ("nDCG@2", "AP"):
            np.testing.assert_array_equal(scores.values[name][row], values[name])


def test_references_come_as_mappings_sequences_frames_paths_and_lists(tmp_path):
    expected = rb.evaluate_references(QRELS, REFERENCES, "AP").values["AP"]
    judged = frame(QRELS, "label")
    tables = [frame(run, "score") for run in REFERENCES.values()]
    np.testing.assert_allclose(rb.evaluate_references(QRELS, list(REFERENCES.values()), "AP").values["AP"], expected)
    np.testing.assert_allclose(rb.evaluate_references(judged, tables, "AP").values["AP"], expected)
    paths = []
    for name, table in zip(REFERENCES, tables, strict=True):
        paths.append(tmp_path / f"{name}.csv")
        table.write_csv(paths[-1])
    scores = rb.evaluate_references(judged, paths, "AP")
    np.testing.assert_allclose(scores.values["AP"], expected)
    assert scores.systems == tuple(map(str, paths))
    lists = [rb.Lists.from_dicts(QRELS, run) for run in REFERENCES.values()]
    np.testing.assert_allclose(rb.evaluate_references(None, lists, "AP").values["AP"], expected)


def test_queries_that_some_references_lack_are_counted():
    partial = dict(REFERENCES) | {"short": {q: RUN[q] for q in ("q1", "q2")}}
    scores = rb.evaluate_references(QRELS, partial, "AP")
    assert scores.incomplete_queries == 6
    assert np.isnan(scores.values["AP"][-1]).sum() == 6
    assert rb.evaluate_references(QRELS, partial, "AP", missing="zero").incomplete_queries == 0


@pytest.mark.parametrize(
    ("references", "error", "text"),
    [
        ({"one": RUN}, ArgumentError, "references must be at least 2 different runs, got 1"),
        ([], ArgumentError, "references must be at least 2 different runs, got 0"),
        (["run.txt", "run.txt"], ArgumentError, "references must be at least 2 different runs, got 1"),
        (7, ArgumentError, "references must be runs by name or a list of runs, got int"),
        ("runs.txt", ArgumentError, r"a \.json file of their scores, got 'runs.txt'"),
        ({"a": RUN, "b": {"x": {"a": 1.0}}}, DataError, "b: .*no query in common"),
        ({"a": RUN, "b": 3}, DataError, "b: "),
    ],
)
def test_bad_references(references, error, text):
    with pytest.raises(error, match=text):
        rb.evaluate_references(QRELS, references, "AP")
