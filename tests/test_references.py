"""Reference runs: their scores, and measures that are standardized by them, in every way to give them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound.difficulty import standardize
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


# ---- standardized measures -------------------------------------------------------------------------------------------

WRAPPERS = ("STD", "STDU", "ECDF")
MEASURES = [f"{wrapper}({name})" for wrapper in WRAPPERS for name in ("nDCG@2", "AP")]


def expected(name: str, run=RUN, references=REFERENCES) -> np.ndarray:
    """The standardized values from evaluations of the single runs."""
    plain = str(rb.parse_measure(name).plain)
    scores = [rb.evaluate(QRELS, each, plain).values[plain] for each in references.values()]
    values = rb.evaluate(QRELS, run, plain).values[plain]
    return standardize(values, scores, rb.parse_measure(name).bounding)


def test_evaluate_standardizes_the_plain_values():
    result = rb.evaluate(QRELS, RUN, ["AP", *MEASURES], references=REFERENCES)
    for name in MEASURES:
        np.testing.assert_allclose(result.values[name], expected(name), atol=1e-12)
    np.testing.assert_array_equal(result.values["AP"], rb.evaluate(QRELS, RUN, "AP").values["AP"])
    assert result.to_dict()["references"] == "4 runs"


@pytest.mark.parametrize("candidates", ["judged", "returned"])
def test_evaluate_compare_and_streams_agree(tmp_path, candidates):
    options = {"references": REFERENCES, "candidates": candidates}
    result = rb.evaluate(QRELS, RUN, MEASURES, **options)
    with pytest.warns(rb.errors.InferenceWarning):
        compared = rb.compare(REFERENCES["r0"], RUN, qrels=QRELS, measures=MEASURES, **options)
    frame(RUN, "score").write_parquet(tmp_path / "run.parquet", row_group_size=7)
    streamed = rb.evaluate(frame(QRELS, "label"), tmp_path / "run.parquet", MEASURES, **options)
    order = np.argsort(np.asarray(streamed.query_ids))
    for name in MEASURES:
        np.testing.assert_allclose(compared.scores.values[name][1], result.values[name], atol=1e-12)
        np.testing.assert_allclose(streamed.values[name][order], result.values[name], atol=1e-12)
    assert compared.to_dict()["references"] == "4 runs"


def test_a_column_of_candidates_goes_with_several_runs_and_with_references(tmp_path):
    judged = frame(QRELS, "label").with_columns((pl.col("docid") != "c").alias("pool"))
    judged.write_csv(tmp_path / "judged.csv")
    for source in (judged, tmp_path / "judged.csv"):
        results = rb.evaluate(
            source,
            {"new": RUN, **REFERENCES},
            ["STD(AP)", "EM(AP)"],
            rb.Protocol(references=REFERENCES, candidates="column:pool"),
        )
        alone = rb.evaluate(judged, frame(RUN, "score"), "EM(AP)", candidates="column:pool")
        np.testing.assert_allclose(results["new"].values["EM(AP)"], alone.values["EM(AP)"], atol=1e-12)
        np.testing.assert_allclose(results["new"].values["STD(AP)"], expected("STD(AP)"), atol=1e-12)


def test_lists_have_lists_as_references():
    references = [rb.Lists.from_dicts(QRELS, run) for run in REFERENCES.values()]
    lists = rb.Lists.from_dicts(QRELS, RUN)
    result = rb.evaluate(lists, measures=MEASURES, references=references)
    with pytest.warns(rb.errors.InferenceWarning):
        compared = rb.compare(references[0], lists, measures=MEASURES, references=references)
    for name in MEASURES:
        np.testing.assert_allclose(result.values[name], expected(name), atol=1e-12)
        np.testing.assert_allclose(compared.scores.values[name][1], expected(name), atol=1e-12)


def test_the_run_itself_may_be_a_reference():
    references = {**REFERENCES, "itself": RUN}
    result = rb.evaluate(QRELS, RUN, MEASURES, references=references)
    for name in MEASURES:
        np.testing.assert_allclose(result.values[name], expected(name, references=references), atol=1e-12)
    known = result.values["ECDF(AP)"][~np.isnan(result.values["ECDF(AP)"])]
    assert (known >= 1 / 5).all()


def test_saved_scores_give_the_same_values(tmp_path):
    scores = rb.evaluate_references(QRELS, REFERENCES, MEASURES)
    scores.save(tmp_path / "factors.json")
    for references in (scores, tmp_path / "factors.json", str(tmp_path / "factors.json")):
        result = rb.evaluate(QRELS, RUN, MEASURES, references=references)
        for name in MEASURES:
            np.testing.assert_allclose(result.values[name], expected(name), atol=1e-12)
    with pytest.raises(ArgumentError, match="references must have the scores of RR; they have nDCG@2, AP"):
        rb.evaluate(QRELS, RUN, "STD(RR)", references=scores)


def test_unjudged_documents_and_the_order_of_rows_change_nothing():
    more = {q: documents | {f"u{i}": -1.0 - i for i in range(50)} for q, documents in RUN.items()}
    backwards = {q: dict(reversed(documents.items())) for q, documents in reversed(RUN.items())}
    first = rb.evaluate(QRELS, RUN, MEASURES, references=REFERENCES)
    for run in (more, backwards):
        other = rb.evaluate(QRELS, run, MEASURES, references=REFERENCES)
        assert other.mean() == pytest.approx(first.mean(), abs=1e-12)


@pytest.mark.parametrize(("empty", "value"), [("skip", np.nan), ("zero", 0.0), ("one", 1.0)])
def test_queries_without_a_scale_are_empty_queries(empty, value):
    same = {name: run | {"q3": RUN["q3"]} for name, run in REFERENCES.items()}  # all references score the same
    partial = {name: {q: run[q] for q in run if q != "q5" or name == "r0"} for name, run in same.items()}
    result = rb.evaluate(QRELS, RUN, ["AP", "STD(AP)"], references=partial, empty=empty)
    np.testing.assert_array_equal(result.values["STD(AP)"][[3, 5]], value)
    assert not np.isnan(result.values["AP"]).any()
    assert result.to_dict()["references"] == (
        "4 runs, some without a value on 1 query, all with the same value on 1 query"
    )
    if empty == "skip":
        assert result.counted_queries() == {"AP": 8, "STD(AP)": 6}


def test_references_and_standardized_measures_go_together():
    message = r"STD\(AP\) needs reference runs: references={name: run, ...} in Python, --reference PATH"
    for call in (
        lambda: rb.evaluate(QRELS, RUN, "STD(AP)"),
        lambda: rb.compare(RUN, RUN, qrels=QRELS, measures="STD(AP)"),
        lambda: rb.evaluate(rb.Lists.from_dicts(QRELS, RUN), "STD(AP)"),
    ):
        with pytest.raises(rb.errors.MeasureError, match=message):
            call()
    with pytest.raises(ArgumentError, match="references are for standardized measures"):
        rb.evaluate(QRELS, RUN, "AP", references=REFERENCES)
    evaluation = rb.evaluate(QRELS, RUN, "AP")
    with pytest.raises(ArgumentError, match="evaluations have their values already"):
        rb.compare(evaluation, evaluation, references=REFERENCES)


def test_references_without_a_common_query_are_refused():
    first, last = ({q: QRELS[q] for q in names} for names in (["q0", "q1"], ["q6", "q7"]))
    references = rb.evaluate_references(
        first, {name: {q: run[q] for q in first} for name, run in REFERENCES.items()}, "AP"
    )
    with pytest.raises(DataError, match="the reference runs must have a query in common with the run"):
        rb.evaluate(last, RUN, "STD(AP)", references=references)
    with pytest.raises(DataError, match="the reference runs must have a query in common with the run"):
        rb.compare(RUN, REFERENCES["r0"], qrels=last, measures="STD(AP)", references=references)


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
