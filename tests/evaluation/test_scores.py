"""The score matrix: one value per system, query and measure."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankbound.difficulty import bounds
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate
from rankbound.evaluation.alignment import align_evaluations, align_lists, align_runs
from rankbound.evaluation.query_sets import query_map
from rankbound.evaluation.score_tables import measures_of
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.lists import Lists
from rankbound.measures import parse_measure


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


# ---- types of queries ------------------------------------------------------------------------------------------------

EASY = {"n": {"a": 1, "b": 1}}  # a query without a choice
GOOD = {q: {d: float(label) for d, label in documents.items()} for q, documents in (QRELS | EASY).items()}


def every_matrix(qrels, runs, measures, **options):
    """The same runs as paths of dicts, lists and evaluations."""
    plain = [str(name) for name in dict.fromkeys(parse_measure(name).plain for name in measures)]
    every = list(dict.fromkeys([*plain, *measures]))
    yield align_runs(qrels, runs, measures, **options)
    yield align_lists([Lists.from_dicts(qrels, run) for run in runs], measures, **options)
    yield align_evaluations([evaluate(qrels, run, every, bounds=True) for run in runs], measures, **options)


def test_queries_without_a_choice_have_their_type_even_where_a_normalized_measure_is_not_defined():
    for matrix in every_matrix(QRELS | EASY, [GOOD, GOOD], ["AP", "EM(AP)"]):
        for name in ("AP", "EM(AP)"):
            types = dict(zip(matrix.query_ids, matrix.query_types(name).tolist(), strict=True))
            assert types == {"p": "ideal", "q": "ideal", "n": "no choice"}
        assert np.isnan(matrix.values["EM(AP)"]).sum() == 2


def test_types_by_quota():
    qrels = {f"q{i}": {"a": 1, **{f"d{j}": 0 for j in range(9)}} for i in range(10)}
    run = {q: {"a": 9.5 - i, **{f"d{j}": 9.0 - j for j in range(9)}} for i, q in enumerate(qrels)}
    for matrix in every_matrix(qrels, [run, run], ["AP"], type_quota=0.2):
        types = dict(zip(matrix.query_ids, matrix.query_types("AP").tolist(), strict=True))
        assert [q for q, kind in types.items() if kind == "ideal"] == ["q0", "q1"]
        assert [q for q, kind in types.items() if kind == "hard"] == ["q8", "q9"]
        assert matrix.type_quota == 0.2


@pytest.mark.parametrize("type_quota", [None, 0.25])
def test_types_are_those_of_complete_rankings_whatever_the_order_of_the_input(type_quota):
    random = np.random.default_rng(3)
    qrels = {f"q{i}": {f"d{j}": int(random.random() < 0.3) for j in range(12)} for i in range(40)}
    runs = [{q: {d: random.random() for d in [*of, *"xyz"][:9]} for q, of in qrels.items()} for _ in range(3)]
    first, *others = every_matrix(qrels, runs, ["nDCG@5"], type_quota=type_quota)
    types = dict(zip(first.query_ids, first.query_types("nDCG@5").tolist(), strict=True))
    shuffled = [
        {q: {d: run[q][d] for d in random.permutation(list(run[q]))} for q in random.permutation(list(run))}
        for run in runs
    ]
    judged = {q: {d: qrels[q][d] for d in random.permutation(list(qrels[q]))} for q in random.permutation(list(qrels))}
    for matrix in (*others, *every_matrix(judged, shuffled[::-1], ["nDCG@5"], type_quota=type_quota)):
        assert dict(zip(matrix.query_ids, matrix.query_types("nDCG@5").tolist(), strict=True)) == types
    gain = first.difficulty["nDCG@5"]
    assert (gain.worst <= gain.complete + 1e-12).all()
    assert (gain.complete <= gain.best + 1e-12).all()


def test_a_table_of_runs_has_bounds_and_complete_values_from_which_its_types_follow():
    qrels = {f"q{i}": {"a": 2, "b": 1, "c": 0, "d": 0} for i in range(4)}
    runs = [{q: {"c": 3.0, "a": 2.0, "x": 1.0} for q in qrels}, {q: {"a": 3.0} for q in qrels}]
    matrix = align_runs(qrels, runs, ["nDCG@2", "AP"])
    table = matrix.to_table().drop("type", "expected")
    for name in ("nDCG@2", "AP"):
        known = matrix.difficulty[name]
        again = query_map(table, name)
        assert again["type"].to_list() == known.types.tolist()
        assert again["expected"].to_numpy() == pytest.approx(known.expected)
        assert again["value"].to_numpy() == pytest.approx(known.complete.mean(axis=0))
    assert measures_of(table) == ["nDCG@2", "AP"]
