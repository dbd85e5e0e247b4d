"""How far judgments and a run cover each other: counted by brute force, whatever the input comes as."""

from __future__ import annotations

import gzip
import math
import warnings
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.data import large
from rankbound.lists import Coverage
from rankbound.measures import rank, values
from rankbound.protocol import TIES
from rankbound.report.coverage import coverage_cautions, coverage_table
from tests.tiers import examples

NO_COMMON_DOCUMENT = "qrels and run have no document in common"
documents = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])
qrels_dicts = st.dictionaries(
    st.sampled_from(["1", "2", "3", "4"]), st.dictionaries(documents, st.integers(-1, 3), min_size=1), min_size=1
)
run_dicts = st.dictionaries(
    st.sampled_from(["2", "1", "4", "9"]),
    st.dictionaries(documents, st.integers(0, 3).map(float), min_size=1, max_size=5),
    min_size=1,
)


def to_frame(nested, number):
    rows = [(q, d, v) for q in nested for d, v in nested[q].items()]
    return pl.DataFrame(rows, schema={"qid": pl.String, "docid": pl.String, number: None}, orient="row")


def write_trec(folder, qrels, run):
    lines = [f"{q} 0 {d} {v}\n" for q in qrels for d, v in qrels[q].items()]
    (folder / "qrels").write_text("".join(lines))
    (folder / "run").write_text("".join(f"{q} Q0 {d} 1 {v} t\n" for q in run for d, v in run[q].items()))
    return folder / "qrels", folder / "run"


def judged_at(judged, ranked, k):
    """The mean over all orders that agree with the scores."""
    orders = [
        order
        for order in permutations(ranked)
        if all(ranked[first] >= ranked[second] for first, second in pairwise(order))
    ]
    return sum(sum(d in judged for d in order[:k]) / min(k, len(order)) for order in orders) / len(orders)


def brute_force(qrels, run, k):
    shared = [q for q in qrels if q in run]
    return {
        "judged_queries": len(qrels),
        "returned_queries": len(run),
        "shared_queries": len(shared),
        "missing_queries": sum(q not in run for q in qrels),
        "unjudged_queries": sum(q not in qrels for q in run),
        "queries_without_judged": sum(not any(d in qrels[q] for d in run[q]) for q in shared),
        "returned_documents": sum(len(run[q]) for q in shared),
        "judged_documents": sum(d in qrels[q] for q in shared for d in run[q]),
        "judged": sum(sum(d in qrels[q] for d in run[q]) / len(run[q]) for q in shared) / len(shared),
        "cutoff": k,
        "judged_at_cutoff": sum(judged_at(qrels[q], run[q], k) for q in shared) / len(shared),
    }


# ---- every way in ----------------------------------------------------------------------------------------------------


@given(qrels_dicts, run_dicts, st.sampled_from(["ignore", "zero"]), st.integers(1, 4))
@examples(120)
def test_counts_equal_brute_force_whatever_the_input(tmp_path_factory, qrels, run, missing, rows):
    if not qrels.keys() & run.keys():
        return
    folder = tmp_path_factory.mktemp("coverage")
    frames = to_frame(qrels, "label"), to_frame(run, "score")
    frames[1].write_parquet(folder / "run.parquet")
    expected = pytest.approx(brute_force(qrels, run, k=2), abs=1e-12)
    inputs = [(qrels, run), frames, write_trec(folder, qrels, run), (frames[0], folder / "run.parquet")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "ROWS", rows)
        for judgments, ranking in inputs:
            result = rb.evaluate(judgments, ranking, ["nDCG@3", "AP", "P@2"], missing=missing)
            assert result.coverage.to_dict() == expected
            assert result.to_dict()["coverage"] == result.coverage.to_dict()
            assert bool(result.warnings) == (result.coverage.judged_documents == 0)


@given(qrels_dicts, run_dicts)
@examples(60)
def test_judged_at_k_is_the_measure_of_this_name(qrels, run):
    if not qrels.keys() & run.keys():
        return
    coverage = rb.evaluate(qrels, run, ["AP", "P@3"]).coverage
    measured = rb.evaluate(qrels, run, ["Judged@3", "Judged@1000"]).mean()
    assert coverage.cutoff == 3
    assert coverage.judged_at_cutoff == pytest.approx(measured["Judged@3"])
    assert coverage.judged == pytest.approx(measured["Judged@1000"])


def test_the_cutoff_is_the_smallest_of_the_measures_and_10_without_any():
    data = {"q": {"a": 1}}, {"q": {"a": 2.0, "b": 1.0}}
    assert rb.evaluate(*data, ["AP", "nDCG@20", "EM(P@5)"]).coverage.cutoff == 5
    assert rb.evaluate(*data, ["AP", "RR"]).coverage.cutoff == 10


def test_documents_are_counted_before_unjudged_ones_are_removed():
    qrels, run = {"q": {"a": 1}, "r": {"a": 1}}, {"q": {"b": 2.0, "a": 1.0}, "r": {"a": 1.0}}
    for data in ((qrels, run), (to_frame(qrels, "label"), to_frame(run, "score"))):
        coverage = rb.evaluate(*data, ["P@1"], judged_only=True).coverage
        assert (coverage.returned_documents, coverage.unjudged_documents, coverage.judged) == (3, 1, 3 / 4)
        assert coverage.judged_at_cutoff == 1.0


def test_candidates_change_no_coverage(tmp_path):
    qrels, run = {"q": {"a": 1, "b": 0}, "r": {"a": 1}}, {"q": {"a": 3.0, "x": 2.0, "y": 1.0}, "r": {"x": 1.0}}
    expected = rb.evaluate(qrels, run, ["EM(P@2)"]).coverage
    candidates = {"q": ["a", "b", "x", "z"], "r": ["a", "x"]}
    to_frame(run, "score").write_parquet(tmp_path / "run.parquet")
    for rule in ("judged", "returned", candidates):
        assert rb.evaluate(qrels, run, ["EM(P@2)"], candidates=rule).coverage == expected
        streamed = rb.evaluate(to_frame(qrels, "label"), tmp_path / "run.parquet", ["EM(P@2)"], candidates=rule)
        assert streamed.coverage == expected
    assert (expected.judged_documents, expected.returned_documents, expected.judged_at_cutoff) == (1, 4, 1 / 4)
    strange = {"q": {"x": 1.0}, "r": {"z": 1.0}}
    with pytest.warns(rb.errors.CoverageWarning, match="the first of qrels is 'a', the first of the run 'x'"):
        rb.evaluate(qrels, strange, ["EM(AP)"], candidates=candidates)  # a candidate is not judged by being one


def test_a_query_that_returns_nothing_has_no_fraction():
    coverage = rb.evaluate({"q": {"a": 1}, "r": {"a": 1}}, {"q": {"a": 1.0, "b": 0.5}, "r": {}}, "P@2").coverage
    assert (coverage.shared_queries, coverage.ranked_queries, coverage.queries_without_judged) == (2, 1, 0)
    assert coverage.judged == coverage.judged_at_cutoff == 1 / 2
    nothing = rb.evaluate({"q": {"a": 1}}, {"q": {}}, "P@2")
    assert math.isnan(nothing.coverage.judged)
    assert math.isnan(nothing.coverage.judged_at_cutoff)
    assert nothing.warnings == ()  # nothing was returned, so that no identifier can be wrong


def test_lists_without_judgments_of_their_own_are_fully_covered():
    coverage = rb.evaluate(rb.Lists([1, 0, 1], [0, 2, 3], [0.1, 0.2, 0.3]), "AP").coverage
    assert (coverage.shared_queries, coverage.returned_documents, coverage.judged) == (2, 3, 1.0)
    assert coverage.judged_at_cutoff == 1.0
    lists = rb.Lists([1, 0, 1], [0, 2, 3], [0.1, 0.2, 0.3], judged=[True, False, True])
    coverage = rb.evaluate(lists, "P@1").coverage
    assert (coverage.judged_documents, coverage.judged, coverage.judged_at_cutoff) == (2, 3 / 4, 1 / 2)


@given(qrels_dicts, run_dicts, st.sampled_from(TIES), st.sampled_from([None, 2]))
@examples(100)
def test_a_ranking_ranks_its_judgments_as_labels_are_ranked(qrels, run, ties, depth):
    if not qrels.keys() & run.keys():
        return
    lists = rb.Lists.from_dicts(qrels, run, missing="zero")
    ranked = rank(lists, ties, depth)
    if ranked.judgments is not None:
        again = rank(replace(lists, labels=lists.judged.astype(int), judged=None), ties, depth)
        precision = rb.parse_measure("P@2")
        assert values(ranked.judgments, precision).tolist() == pytest.approx(values(again, precision).tolist())
    if ties == "average" and depth is None:
        expected = [judged_at(qrels[q], run[q], 2) if q in run else 0 for q in lists.query_ids]
        assert values(ranked, rb.parse_measure("Judged@2")).tolist() == pytest.approx(expected)


def test_fully_judged_lists_are_not_ranked_again():
    lists = rb.Lists.from_dicts({"q": {"a": 1, "b": 0}}, {"q": {"a": 1.0, "b": 2.0}})
    ranked = rank(lists)
    assert ranked.judgments is None
    assert values(ranked, rb.parse_measure("Judged@1")).tolist() == [1.0]


# ---- sums ------------------------------------------------------------------------------------------------------------


@given(qrels_dicts, run_dicts, st.sets(st.sampled_from(["1", "2", "4"])))
@examples(60)
def test_the_coverage_of_all_queries_is_the_sum_over_parts(qrels, run, part):
    def coverage(names):
        return rb.evaluate(*({q: side[q] for q in side if q in names} for side in (qrels, run)), "P@2").coverage

    everything = qrels.keys() | run.keys()
    parts = [everything & part, everything - part]
    if not all(qrels.keys() & run.keys() & names for names in parts):
        return
    total = coverage(parts[0]) + coverage(parts[1])
    assert total.to_dict() == pytest.approx(coverage(everything).to_dict())
    assert (total.warning is None) == (coverage(everything).warning is None)


def test_nothing_is_added_by_an_empty_coverage_and_cutoffs_must_agree():
    first, second = (rb.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, f"P@{k}").coverage for k in (2, 3))
    assert first + Coverage() == Coverage() + first == first
    with pytest.raises(rb.errors.ArgumentError, match="coverages must have the same cutoff to be added, got 2 and 3"):
        first + second


# ---- no document in common -------------------------------------------------------------------------------------------

QRELS = {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 0, "d3": 2}}


@pytest.mark.parametrize("kind", ["dicts", "frames", "files", "parquet", "lists"])
def test_a_run_without_a_judged_document_raises_a_warning(tmp_path, kind):
    run = {query: {f"doc-{name}": 1.0 for name in names} for query, names in QRELS.items()}
    frames = to_frame(QRELS, "label"), to_frame(run, "score")
    frames[1].write_parquet(tmp_path / "run.parquet")
    data = {
        "dicts": (QRELS, run),
        "frames": frames,
        "files": write_trec(tmp_path, QRELS, run),
        "parquet": (frames[0], tmp_path / "run.parquet"),
        "lists": (rb.Lists.from_dicts(QRELS, run), None),
    }[kind]
    with pytest.warns(
        rb.errors.CoverageWarning, match=f"{NO_COMMON_DOCUMENT} .*'d1', the first of the run 'doc-d1'"
    ) as seen:
        result = rb.evaluate(*data, measures=["AP", "nDCG@10"])
    assert len(seen) == 1
    assert Path(seen[0].filename) == Path(__file__)  # the warning points at the call
    assert result.mean() == {"AP": 0.0, "nDCG@10": 0.0}
    assert result.warnings == tuple(str(warning.message) for warning in seen)


@pytest.mark.parametrize("measure", ["PairAcc", "Tau", "EM(PairAcc)"])
def test_labels_below_0_that_become_equal_raise_a_warning(measure):
    run = {"q": {"a": 2.0, "b": 1.0, "c": 3.0}, "p": {"a": 2.0, "b": 1.0}}
    merged = {"q": {"a": -1, "b": 0, "c": 1}, "p": {"a": -1, "b": 1}}
    with pytest.warns(rb.errors.CoverageWarning, match="labels below 0 count as 0 in .* makes 1 of them") as seen:
        result = rb.evaluate(merged, run, [measure, "AP"])
    assert len(seen) == 1
    assert result.warnings == (str(seen[0].message),)
    with pytest.warns(rb.errors.CoverageWarning, match="makes 2 of them"):
        rb.evaluate({"q": {"a": -1, "b": -2, "c": 1}, "p": {"a": -1, "b": 1}}, run, [measure])


@pytest.mark.parametrize(
    ("labels", "measure"),
    [({"a": -1, "b": 0, "c": 1}, "AP"), ({"a": -1, "b": -1, "c": 1}, "PairAcc"), ({"a": 0, "b": 1, "c": 2}, "PairAcc")],
)
def test_labels_below_0_that_change_nothing_raise_no_warning(labels, measure):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rb.evaluate({"q": labels}, {"q": {"a": 2.0, "b": 1.0, "c": 3.0}}, [measure])


def test_the_number_of_labels_that_become_equal_is_added_over_chunks():
    parts = [Coverage(merged_documents=2, merging_measures=("PairAcc",)), Coverage(), Coverage(1, 0, 1)]
    total = parts[0] + parts[1] + parts[2] + parts[0]
    assert (total.merged_documents, total.merging_measures) == (4, ("PairAcc",))


def test_numbers_and_text_as_identifiers_are_named_as_they_are():
    with pytest.warns(rb.errors.CoverageWarning, match="the first of qrels is '7', the first of the run 7"):
        rb.evaluate({"q": {"7": 1}}, {"q": {7: 1.0}}, "AP")


def test_one_common_document_is_enough_to_be_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rb.evaluate(QRELS, {"q1": {"x": 1.0}, "q2": {"x": 2.0, "d3": 1.0}}, "AP")


def test_among_several_runs_the_one_is_named():

    runs = {"good": {"q1": {"d1": 1.0}}, "other ids": {"q1": {"D1": 1.0}}}
    with pytest.warns(rb.errors.CoverageWarning, match=f"^other ids: {NO_COMMON_DOCUMENT}") as seen:
        results = rb.evaluate(QRELS, runs, "AP")
    assert len(seen) == 1
    assert [len(result.warnings) for result in results.values()] == [0, 1]


# ---- several runs ----------------------------------------------------------------------------------------------------


@given(qrels_dicts, run_dicts, run_dicts, st.sampled_from(["ignore", "zero"]))
@examples(60)
@pytest.mark.filterwarnings("ignore::rankbound.errors.InferenceWarning")
def test_compared_runs_equal_brute_force(qrels, first, second, missing):
    common = qrels.keys() & first.keys() & second.keys()
    if not common:
        return
    comparison = rb.compare(first, second, qrels=qrels, measures=["P@2"], missing=missing, resamples=10)
    assert comparison.never_returned == len(qrels.keys() - first.keys() - second.keys())
    in_both = len(common)
    assert comparison.left_out == (
        0 if missing == "zero" else len(qrels.keys() & (first.keys() | second.keys())) - in_both
    )
    for run, coverage in zip((first, second), comparison.coverage.values(), strict=True):
        compared = qrels.keys() & run.keys() if missing == "zero" else common
        expected = brute_force({q: qrels[q] for q in compared}, {q: run[q] for q in compared}, k=2)
        whole = brute_force(qrels, run, k=2)
        expected |= {name: number for name, number in whole.items() if name.endswith("queries")}
        assert coverage.to_dict() == pytest.approx(expected, abs=1e-12)
    lists = [rb.Lists.from_dicts(qrels, run, missing=missing) for run in (first, second)]
    results = [rb.evaluate(qrels, run, ["P@2"], missing=missing) for run in (first, second)]
    for runs in (lists, results):
        other = rb.compare(*runs, measures=["P@2"], resamples=10)
        assert [coverage.to_dict() for coverage in other.coverage.values()] == [r.coverage.to_dict() for r in results]
        assert other.never_returned in (comparison.never_returned, None)
        assert missing == "zero" or other.never_returned is not None


@pytest.mark.filterwarnings("ignore::rankbound.errors.InferenceWarning")
def test_the_run_without_a_judged_document_is_named_among_those_compared():
    runs = [{"q1": {"d1": 1.0}}, {"q1": {"x": 1.0}}, {"q1": {"d2": 1.0}}]
    with pytest.warns(rb.errors.CoverageWarning, match=f"^odd: {NO_COMMON_DOCUMENT} .*'d1', the first of the run 'x'"):
        comparison = rb.compare(*runs, qrels=QRELS, measures="AP", names=["a", "odd", "b"], resamples=10)
    assert len(comparison.warnings) == 1
    answer = comparison.to_dict()
    assert answer["warnings"] == list(comparison.warnings)
    assert answer["coverage"]["odd"]["judged"] == 0.0
    assert answer["never_returned_queries"] == 1


def test_tables_of_scores_know_nothing_of_coverage():
    from rankbound.evaluation.scores import ScoreMatrix

    matrix = ScoreMatrix(("a",), ("p",), {"AP": np.array([[0.5]])})
    assert (matrix.coverage, matrix.never_returned, matrix.coverage_warnings()) == ((), None, ())


# ---- the page --------------------------------------------------------------------------------------------------------


def covered(judged, returned=10):
    """One query of which the first ``judged`` of the ``returned`` documents are judged, evaluated by P@10."""
    qrels = {"q": {f"d{i}": 1 for i in range(judged)}}
    return rb.evaluate(qrels, {"q": {f"d{i}": float(-i) for i in range(returned)}}, "P@10").coverage


def test_cautions_name_few_systems_and_count_many():
    low = {f"s{i}": covered(i) for i in (8, 5, 6, 7)}
    assert coverage_cautions({"good": covered(9)}) == []
    assert len(coverage_cautions({"good": covered(10)} | dict(list(low.items())[:3]))) == 3
    assert coverage_cautions({"good": covered(9)} | low) == [
        "Judged@10 is below 0.9 for 4 of 5 systems. It is lowest for s5, 0.50: 50 % of its top 10 documents have no "
        "judgment, and plain measures count them as not relevant."
    ]
    assert coverage_cautions({}, never_returned=2) == ["2 judged queries are in none of the runs."]


def test_the_table_has_judged_at_k_only_where_documents_are_unjudged():
    assert coverage_table({"complete": covered(10)}).rows == ()
    assert coverage_table({}).rows == ()
    table = coverage_table({"complete": covered(10), "partial": covered(5)})
    assert table.columns[-2:] == ("Judged@10", "Judged")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["complete", "1", "0", "0", "0", "10", "10", "1.0000", "1.0000"],
        ["partial", "1", "0", "0", "0", "10", "5", "0.5000", "0.5000"],
    ]
    assert [row[-2].bold for row in table.rows] == [False, True]
    assert table.data["judged_documents"].to_list() == [10, 5]
    missing = coverage_table({"run": covered(10) + Coverage(missing_queries=3)})
    assert not any("Judged" in column for column in missing.columns)
    assert missing.rows[0][2].text == "3"


# ---- real runs -------------------------------------------------------------------------------------------------------


def read_trec(path, number):
    nested = {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            fields = line.split()
            nested.setdefault(fields[0], {})[fields[2]] = float(fields[number])
    return nested


@pytest.mark.real_data
def test_real_runs_equal_brute_force(tmp_path, data_dir):
    folder = data_dir / "trec-eval-test"
    paths = folder / "qrels.comment.test.gz", folder / "results.comment.test.gz"
    qrels, run = read_trec(paths[0], 3), read_trec(paths[1], 4)
    result = rb.evaluate(*paths, ["AP", "P@10"], ties="docid")
    shared = [q for q in qrels if q in run]
    assert len(shared) > 0
    counts = result.coverage.to_dict()
    assert counts["shared_queries"] == len(shared)
    assert counts["returned_documents"] == sum(len(run[q]) for q in shared)
    assert (
        counts["judged_documents"] == sum(d in qrels[q] for q in shared for d in run[q]) < counts["returned_documents"]
    )
    top = {q: sorted(sorted(run[q], reverse=True), key=run[q].get, reverse=True)[:10] for q in shared}
    fractions = [sum(d in qrels[q] for d in top[q]) / len(top[q]) for q in shared]
    assert counts["judged_at_cutoff"] == pytest.approx(sum(fractions) / len(shared))
    to_frame(run, "score").sort("qid", maintain_order=True).write_parquet(tmp_path / "run.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "ROWS", 5_000)
        streamed = rb.evaluate(to_frame(qrels, "label"), tmp_path / "run.parquet", ["AP", "P@10"], ties="docid")
    assert streamed.coverage.to_dict() == pytest.approx(counts)


@pytest.mark.real_data
def test_real_runs_are_covered_alike_by_every_command(tmp_path, capsys, monkeypatch, data_dir):
    import json

    from rankbound.cli.main import run as command_line

    monkeypatch.setattr("rankbound.studies.figures.draw_figures", lambda *_: {})
    folder = data_dir / "trec-covid-round1"
    qrels = folder / "qrels.covid-round1.txt.gz"
    runs = sorted((folder / "runs").glob("B*.gz"))[:3]

    def answer(*arguments):
        assert command_line([*map(str, arguments), "-m", "nDCG@10", "-m", "AP", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    evaluated = answer("evaluate", qrels, *runs)["runs"]
    compared = answer("compare", qrels, *runs, "--resamples", "100")["coverage"]
    reported = answer("report", qrels, *runs, "-o", tmp_path / "page.html", "--resamples", "100")["coverage"]
    judged = read_trec(qrels, 3)
    for path in runs:
        ranking = read_trec(path, 4)
        expected = evaluated[str(path)]["coverage"]
        assert expected["judged_documents"] == sum(d in judged[q] for q in ranking if q in judged for d in ranking[q])
        assert expected["judged_at_cutoff"] == pytest.approx(rb.evaluate(qrels, path, "Judged@10").mean()["Judged@10"])
        assert compared[str(path)] == pytest.approx(expected)
        assert reported[path.name] == pytest.approx(expected)
