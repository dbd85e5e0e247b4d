"""The score matrix: one value per system, query and measure."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankbound.analysis.runs import align_evaluations, align_lists, align_runs
from rankbound.analysis.scores import ScoreMatrix
from rankbound.difficulty import bounds
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate
from rankbound.lists import Lists


def paired(table, measure, systems=None):
    return ScoreMatrix.from_table(table, [measure], systems, by_fold=True, least=2).paired(measure)


# ---- from tables -----------------------------------------------------------------------------------------------------


def test_seeds_are_averaged_and_queries_that_one_system_lacks_left_out(score_table):
    table = pl.concat(
        [
            score_table({"a": [0.2, 0.4, 0.6], "b": [0.1, None, 0.3]}),
            score_table({"a": [0.4, 0.4, 0.6], "b": [0.1, float("nan"), 0.5]}, seed=1),
        ]
    )
    scores = paired(table, "nDCG")
    assert scores.query_ids == ("q0", "q2")
    assert scores.values["nDCG"] == pytest.approx(np.array([[0.3, 0.6], [0.1, 0.4]]))
    assert scores.pair_differences("nDCG")[:, 0] == pytest.approx([0.2, 0.2])
    assert scores.means("nDCG") == pytest.approx([0.45, 0.25])


def test_the_same_query_id_in_another_data_set_or_fold_is_another_query(score_table):
    parts = [score_table({"a": [0.1], "b": [0.2]}, **source) for source in ({}, {"data": "e"}, {"fold": 1})]
    matrix = ScoreMatrix.from_table(pl.concat(parts), by_fold=True)
    assert len(matrix) == 3
    assert matrix.queries.select("data", "fold").rows() == [("d", 0), ("d", 1), ("e", 0)]


def test_a_query_of_several_folds_counts_once_unless_folds_are_kept_apart(score_table):
    table = pl.concat([score_table({"a": [0.2, 0.4]}, fold=1), score_table({"a": [0.6]}, fold=2)])
    matrix = ScoreMatrix.from_table(table)
    assert matrix.query_ids == ("q0", "q1")
    np.testing.assert_allclose(matrix.values["nDCG"], [[0.4, 0.4]])


def test_variants_are_data_sets_of_their_own(score_table):
    table = pl.concat([score_table({"a": [0.2]}, variant="NSR 1"), score_table({"a": [0.3]}, variant="NSR 2")])
    matrix = ScoreMatrix.from_table(table)
    assert matrix.sources == (("d", "NSR 1"), ("d", "NSR 2"))
    assert matrix.data_sets == ("d · NSR 1", "d · NSR 2")
    assert matrix.in_data_set(1).tolist() == [False, True]


def test_expected_value_and_type_can_be_columns_of_the_table(score_table):
    table = score_table({"a": [0.2, 0.3]}, "AP").with_columns(expected=pl.lit(0.25), type=pl.lit("hard"))
    matrix = ScoreMatrix.from_table(table)
    assert matrix.expected_values("AP").tolist() == [0.25, 0.25]
    assert matrix.query_types("AP").tolist() == ["hard", "hard"]


def test_without_these_columns_they_follow_from_the_numbers_of_items(score_table):
    matrix = ScoreMatrix.from_table(score_table({"a": [0.2, 0.3]}, "AP"))
    assert matrix.expected_values("AP") == pytest.approx([bounds("AP", n=10, relevant=3).expected] * 2)


def test_a_matrix_and_its_table_hold_the_same(score_table):
    random = np.random.default_rng(0)
    table = pl.concat([score_table({name: random.random(5) for name in "ab"}, data=data) for data in ("d", "e")])
    matrix = ScoreMatrix.from_table(table)
    again = ScoreMatrix.from_table(matrix.to_table())
    assert (again.systems, again.query_ids, again.sources) == (matrix.systems, matrix.query_ids, matrix.sources)
    np.testing.assert_array_equal(again.values["nDCG"], matrix.values["nDCG"])
    np.testing.assert_array_equal(again.query_types("nDCG"), matrix.query_types("nDCG"))
    np.testing.assert_array_equal(again.expected_values("nDCG"), matrix.expected_values("nDCG"))


def test_the_order_of_rows_and_systems_does_not_matter(score_table):
    random = np.random.default_rng(0)
    table = score_table({name: random.random(20) for name in "abc"})
    shuffled = table.sample(fraction=1, shuffle=True, seed=1)
    first, second = (paired(each, "nDCG", ["a", "b", "c"]) for each in (table, shuffled))
    order = [second.query_ids.index(name) for name in first.query_ids]
    np.testing.assert_array_equal(second.values["nDCG"][:, order], first.values["nDCG"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t.drop("fold"), DataError, "missing: fold"),
        (lambda t: t.drop("relevant"), DataError, "missing: relevant"),
        (lambda t: t.filter(pl.col("system") == "a"), DataError, "at least 2 systems, the table has 1: a"),
        (lambda t: t.rename({"nDCG": "AP"}), ArgumentError, r"has no nDCG; its measures are \['AP'\]"),
        (lambda t: t.clear(), DataError, "no rows"),
        (
            lambda t: t.with_columns(pl.concat_str("system", "qid").alias("qid")),
            DataError,
            "no query in common that counts for nDCG: a, b",
        ),
    ],
)
def test_tables_that_cannot_be_compared_are_refused(score_table, change, error, message):
    with pytest.raises(error, match=message):
        paired(change(score_table({"a": [0.5, 0.4], "b": [0.1, 0.2]})), "nDCG")


def test_a_table_without_measures_and_unknown_systems_are_refused(score_table):
    with pytest.raises(DataError, match="no column that is a measure; its columns are data, "):
        ScoreMatrix.from_table(score_table({"a": [0.5]}, "seconds"))
    with pytest.raises(ArgumentError, match="systems must be among a, b; got c"):
        paired(score_table({"a": [0.5], "b": [0.1]}), "nDCG", ["a", "c"])


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_common_queries_have_a_value_for_every_system():
    matrix = ScoreMatrix(("a", "b"), ("p", "q"), {"AP": np.array([[0.5, 1.0], [0.25, np.nan]])})
    common = matrix.with_common_queries().values["AP"]
    np.testing.assert_array_equal(common, [[0.5, np.nan], [0.25, np.nan]])
    assert matrix.means("AP").tolist() == [0.5, 0.25]


def test_nothing_is_known_of_queries_unless_it_is_said():
    matrix = ScoreMatrix(("a",), ("p",), {"AP": np.array([[0.5]])})
    assert matrix.query_types("AP").tolist() == [""]
    assert np.isnan(matrix.expected_values("AP")).all()
    with pytest.raises(DataError, match="needs the numbers of items"):
        matrix.to_table()


def test_values_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"values of AP must have the shape \(1, 2\), systems x queries, got \(2, 1\)"):
        ScoreMatrix(("a",), ("p", "q"), {"AP": np.array([[0.5], [0.5]])})


# ---- from runs -------------------------------------------------------------------------------------------------------

QRELS = {"p": {"a": 1, "b": 0, "c": 2}, "q": {"a": 0, "b": 1}}
RUNS = ({"p": {"a": 3.0, "b": 2.0}, "q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 2.0, "x": 1.0}, "p": {"c": 3.0, "a": 1.0}})


def test_runs_share_queries_and_candidates():
    matrix = align_runs(QRELS, RUNS, ["AP", "EM(AP)"], names=["first", "second"], data="mine")
    assert (matrix.systems, matrix.query_ids, matrix.data_sets) == (("first", "second"), ("p", "q"), ("mine",))
    assert (matrix.items.tolist(), matrix.relevant.tolist()) == ([3, 2], [2, 1])  # x is no candidate of q
    expected = [bounds("AP", n=3, relevant=2).expected, bounds("AP", n=2, relevant=1).expected]
    assert matrix.expected_values("EM(AP)") == pytest.approx(expected)
    assert matrix.values["AP"] == pytest.approx(np.array([[1 / 2, 1 / 2], [1, 1]]))
    complete = np.array([[(1 + 2 / 3) / 2, 1 / 2], [1, 1]])  # the run did not return c, which follows below
    assert matrix.values["EM(AP)"] == pytest.approx((complete - expected) / (1 - np.array(expected)))


def test_lists_and_evaluations_give_the_values_of_runs():
    complete = [
        {q: {d: sign * float(rank) for rank, d in enumerate(documents)} for q, documents in QRELS.items()}
        for sign in (1, -1)
    ]
    matrix = align_runs(QRELS, complete, ["AP"])
    for other in (
        align_lists([Lists.from_dicts(QRELS, run) for run in complete], ["AP"]),
        align_evaluations([evaluate(QRELS, run, ["AP"], bounds=True) for run in complete], None),
    ):
        np.testing.assert_allclose(other.values["AP"], matrix.values["AP"])
        np.testing.assert_allclose(other.expected_values("AP"), matrix.expected_values("AP"))
        assert other.query_types("AP").tolist() == matrix.query_types("AP").tolist()
