"""Meta-evaluation of measures: small cases by hand, scipy, and the numbers that follow from the paper's own tables."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rankbound.difficulty import bounds
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import evaluate
from rankbound.evaluation.query_sets import expected_scores, in_query_set, query_map, type_queries
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.lists import Lists
from rankbound.studies import meta_evaluation as meta
from tests.tiers import examples

# Means over k = 5, 10, 15, 20, 30 of the paper's tables 2 to 5 and 12 to 15, methods in the order of its tables
MEANS = {
    ("MSLR", "nDCG"): [0.37094, 0.20802, 0.35808, 0.43126, 0.20850, 0.43092, 0.26924, 0.47194],
    ("MSLR", "UL2(DCG)"): [0.26556, 0.07362, 0.25156, 0.33732, 0.07428, 0.33664, 0.14744, 0.38402],
    ("MQ2007", "nDCG"): [0.45372, 0.44310, 0.45252, 0.46640, 0.45030, 0.45804, 0.45330, 0.45940],
    ("MQ2007", "UL2(DCG)"): [0.25320, 0.23582, 0.25460, 0.27970, 0.24512, 0.26366, 0.25416, 0.27474],
}


def test_rank_correlation_and_differences_of_the_papers_means_are_those_it_prints():
    assert meta.kendall_tau(MEANS["MSLR", "nDCG"], MEANS["MSLR", "UL2(DCG)"]) == 1.0
    assert meta.kendall_tau(MEANS["MQ2007", "nDCG"], MEANS["MQ2007", "UL2(DCG)"]) == pytest.approx(0.785, abs=1e-3)
    assert meta.percentage_absolute_difference(MEANS["MSLR", "UL2(DCG)"]) == pytest.approx(46.7, abs=0.05)
    assert meta.percentage_absolute_difference(MEANS["MQ2007", "nDCG"]) == pytest.approx(1.74, abs=0.02)
    assert meta.swap_rate(MEANS["MSLR", "UL2(DCG)"], MEANS["MQ2007", "UL2(DCG)"]) == pytest.approx(0.107, abs=1e-3)


means = st.lists(st.integers(0, 6), min_size=2, max_size=8)


@given(st.integers(2, 8).flatmap(lambda n: st.tuples(*(st.lists(st.integers(0, 6), min_size=n, max_size=n),) * 2)))
@examples(80)
def test_kendall_tau_is_scipys_with_ties(rankings):
    a, b = rankings
    if len(set(a)) < 2 or len(set(b)) < 2:
        with pytest.raises(DataError, match="all means are equal"):
            meta.kendall_tau(a, b)
        return
    assert meta.kendall_tau(a, b) == pytest.approx(stats.kendalltau(a, b).statistic, abs=1e-12)


def test_percentage_absolute_difference_by_hand():
    # pairs: |0.5 - 0.4| / 0.5, |0.5 - 0.2| / 0.5, |0.4 - 0.2| / 0.4
    assert meta.percentage_absolute_difference([0.5, 0.4, 0.2]) == pytest.approx(100 * (0.2 + 0.6 + 0.5) / 3)
    assert meta.percentage_absolute_difference([-0.1, -0.05]) == pytest.approx(100)  # 0.05 / |-0.05|
    with pytest.raises(DataError, match="all means are 0"):
        meta.percentage_absolute_difference([0.0, 0.0])


def test_swap_rate_counts_pairs_in_opposite_order_only():
    assert meta.swap_rate([3, 2, 1], [1, 2, 3]) == 1.0
    assert meta.swap_rate([3, 2, 1], [3, 1, 1]) == 0.0  # a tie contradicts nothing
    assert meta.swap_rate([4, 3, 2, 1], [4, 3, 1, 2]) == pytest.approx(1 / 6)


@pytest.mark.parametrize("values", [[0.3], [[0.3, 0.1]], []])
def test_one_system_cannot_be_ranked(values):
    with pytest.raises(DataError, match="at least 2 systems"):
        meta.kendall_tau(values, values)


def test_conflicts_and_power_count_the_t_tests_of_scipy(score_table):
    random = np.random.default_rng(1)
    base = random.normal(0, 1, 40)
    values = {
        name: base + shift + random.normal(0, 1, 40) for name, shift in zip("abcd", (0, 0.3, 0.6, 0.9), strict=True)
    }
    noisy = {name: value + random.normal(0, 2, 40) for name, value in values.items()}
    sharp, blunt = (ScoreMatrix.from_table(score_table(each)).paired("nDCG") for each in (values, noisy))

    def outcomes(each):
        tests = [stats.ttest_rel(each[a], each[b]) for a, b in combinations("abcd", 2)]
        return [np.sign(test.statistic) if test.pvalue < 0.05 else 0 for test in tests]

    assert meta.discriminative_power(sharp) == np.count_nonzero(outcomes(values)) > 0
    expected = sum(a != b for a, b in zip(outcomes(values), outcomes(noisy), strict=True))
    assert meta.conflict_cases(sharp, blunt) == expected > 0
    with pytest.raises(ArgumentError, match="test must be one of t, bootstrap, got 'z'"):
        meta.discriminative_power(sharp, test="z")


def test_levels_of_a_curve_fall_and_name_their_pairs(score_table):
    random = np.random.default_rng(2)
    table = score_table({name: random.normal(shift, 1, 30) for name, shift in zip("abc", (0, 0.1, 2), strict=True)})
    curve = meta.asl_curves(table, test="t")
    assert curve["level"].is_sorted(descending=True)
    assert curve["position"].to_list() == [1, 2, 3]
    expected = {
        f"{a} | {b}": stats.ttest_rel(*(table.filter(pl.col("system") == s)["nDCG"] for s in (a, b))).pvalue
        for a, b in combinations("abc", 2)
    }
    assert dict(curve.select("pair", "level").rows()) == pytest.approx(expected, rel=1e-9)


def test_a_measure_where_lower_is_better_is_turned_round(score_table):
    up = score_table({"a": [0.5, 0.6], "b": [0.3, 0.2]})
    table = up.with_columns((5 - pl.col("nDCG")).alias("U"))
    taus = meta.tau_between_measures(table)
    assert taus.filter(pl.col("first") == "nDCG", pl.col("second") == "U")["tau"].to_list() == [1.0]


def test_measures_that_tell_nothing_apart_have_no_tau(score_table):
    table = score_table({"a": [0.5, 0.5], "b": [0.5, 0.5]})
    assert meta.tau_between_measures(table)["tau"].to_list() == [None]


def test_families_are_measures_that_differ_by_the_cutoff(score_table):
    table = score_table({"a": [0.5]}).with_columns(
        *(pl.lit(0.1).alias(name) for name in ("nDCG@5", "nDCG@10", "UL2(nDCG@5)", "UL2(nDCG@10)", "AP@5"))
    )
    assert meta.measure_families(table) == {
        "nDCG": ["nDCG"],
        "nDCG@k": ["nDCG@5", "nDCG@10"],
        "UL2(nDCG@k)": ["UL2(nDCG@5)", "UL2(nDCG@10)"],
        "AP@5": ["AP@5"],
    }


# ---- sets of queries -------------------------------------------------------------------------------------------------


def test_expected_scores_are_those_of_the_numbers_of_items(score_table):
    table = score_table({"a": [0.5, 0.9], "b": [0.7, 0.8]}, measure="AP", items=[10, 4], relevant=[3, 2])
    found = expected_scores(table, "AP")
    assert found["value"].to_list() == pytest.approx([0.6, 0.85])
    assert found["expected"].to_list() == pytest.approx(
        [bounds("AP", n=10, relevant=3).expected, bounds("AP", n=4, relevant=2).expected]
    )


@pytest.mark.parametrize("bounded", ["EB(nDCG)", "UL1(nDCG)", "UL2(nDCG)"])
def test_expected_scores_of_graded_labels_are_recovered_from_a_bounded_measure(bounded):
    random = np.random.default_rng(3)
    labels, offsets = random.integers(0, 4, 400), np.arange(0, 401, 10)
    lists = [Lists(labels, offsets, scores=labels * skill + random.normal(0, 1, 400)) for skill in (0.0, 0.5, 1.0)]
    found = [evaluate(each, measures=["nDCG", bounded], bounds=True) for each in lists]
    fixed = {"data": "d", "variant": "", "fold": 0, "seed": 0, "items": 10}
    table = pl.concat(
        [
            each.per_query.select(pl.col("qid").cast(pl.String), "nDCG", bounded).with_columns(
                *(pl.lit(value).alias(key) for key, value in fixed.items()),
                pl.lit(f"s{i}").alias("system"),
                pl.Series("relevant", np.add.reduceat(labels > 0, offsets[:-1])),
            )
            for i, each in enumerate(found)
        ]
    )
    assert expected_scores(table, "nDCG")["expected"].to_numpy() == pytest.approx(
        np.asarray(found[0].bounds["nDCG"].expected), rel=1e-9
    )


def test_bounds_that_a_table_holds_are_taken_as_they_are(score_table):
    table = score_table({"a": [0.5, 0.9], "b": [0.7, 0.8]}, measure="nDCG", items=[10, 4], relevant=[3, 2])
    told = table.with_columns(
        pl.when(pl.col("items") == 10).then(value).alias(f"{part} nDCG")  # of the other query nothing is told
        for part, value in (("worst", 0.1), ("expected", 0.25), ("best", 0.95))
    )
    found, plain = expected_scores(told, "nDCG"), expected_scores(table, "nDCG")
    assert found.select("worst", "expected", "best").row(0) == (0.1, 0.25, 0.95)
    assert found.row(1) == plain.select(found.columns).row(1)


def test_query_sets_are_the_ends_of_the_gain_over_a_random_order(score_table):
    gains = np.linspace(-0.1, 0.2, 20)
    expected = bounds("nDCG", n=10, relevant=3).expected
    table = score_table({"a": expected + gains, "b": expected + gains})
    types = type_queries(table, ["nDCG"], quota=0.1)["type"]
    assert np.flatnonzero(in_query_set(types, "uninformative")).tolist() == [0, 1]
    assert np.flatnonzero(in_query_set(types, "ideal")).tolist() == [18, 19]
    assert in_query_set(types, "all").all()
    assert query_map(table, "nDCG", quota=0.1)["type"].to_list() == types.to_list()


def test_types_need_the_plain_measure(score_table):
    with pytest.raises(DataError, match="need the plain measure nDCG"):
        expected_scores(score_table({"a": [0.5]}, measure="UL2(nDCG)"), "UL2(nDCG)")


# ---- all of it -------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_sets(score_table):
    random = np.random.default_rng(5)
    parts = []
    for data, order in (("d1", (0, 1, 2)), ("d2", (1, 0, 2))):
        ease = random.uniform(0.3, 0.6, 40)
        values = {
            name: np.clip(ease + 0.05 * rank + random.normal(0, 0.01, 40), 0, 1)
            for name, rank in zip("abc", order, strict=True)
        }
        table = score_table(values, data=data)
        parts.append(table.with_columns((pl.col("nDCG") ** 2).alias("AP")))
    return pl.concat(parts)


def test_meta_evaluation_holds_every_quantity_of_every_set(two_sets):
    found = meta.meta_evaluation(two_sets)

    def value(**where):
        rows = found.filter(*(pl.col(key) == each for key, each in where.items()))
        assert len(rows) == 1
        return rows["value"][0]

    assert value(quantity="Kendall tau", measure="AP", data="d1", set="all") == 1.0
    assert value(quantity="significant pairs", measure="nDCG", data="d2", set="all") == 3
    assert value(quantity="significant fraction", measure="nDCG", data="d2", set="all") == 1.0
    assert value(quantity="conflict cases", measure="AP", data="d1", set="all") == 0
    # a and b change places between the data sets: one pair of three
    assert value(quantity="swap rate", measure="nDCG", data="d1 | d2", set="all") == pytest.approx(1 / 3)
    assert set(found["set"]) == {"all", "uninformative", "ideal", "uninformative | ideal"}
    d1 = two_sets.filter(pl.col("data") == "d1").group_by("system").agg(pl.col("nDCG").mean())["nDCG"]
    pad = value(quantity="PAD", measure="nDCG", data="d1", set="all")
    assert pad == pytest.approx(meta.percentage_absolute_difference(d1.to_numpy()))


def test_a_percentage_needs_a_measure_where_higher_is_better(two_sets):
    table = two_sets.with_columns((10 - 10 * pl.col("nDCG")).alias("U"))
    found = meta.meta_evaluation(table)
    assert set(found.filter(pl.col("quantity") == "PAD")["measure"]) == {"nDCG", "AP"}
    tau = found.filter(pl.col("quantity") == "Kendall tau", pl.col("measure") == "U", pl.col("set") == "all")["value"]
    assert tau.to_list() == [1.0, 1.0]  # a low U is a high nDCG


def test_conflicts_are_of_the_same_systems(two_sets):
    both = (ScoreMatrix.from_table(two_sets, ["nDCG"]), ScoreMatrix.from_table(two_sets, ["AP"], ["a", "b"]))
    with pytest.raises(DataError, match="both measures must be of the same systems"):
        meta.conflict_cases(*both)


def test_meta_evaluation_refuses_what_it_cannot_do(two_sets):
    with pytest.raises(DataError, match="at least 2 systems"):
        meta.meta_evaluation(two_sets.filter(pl.col("system") == "a"))
    with pytest.raises(ArgumentError, match="base must be one of nDCG, AP, got 'RR'"):
        meta.meta_evaluation(two_sets, base="RR")
    with pytest.raises(DataError, match="no column that is a measure"):
        meta.meta_evaluation(two_sets.drop("nDCG", "AP"))


def test_meta_evaluation_of_equal_scores_and_of_one_query_finds_nothing_significant(score_table):
    for values in ({"a": [0.5] * 10, "b": [0.5] * 10}, {"a": [0.5], "b": [0.7]}):
        found = meta.meta_evaluation(score_table(values)).filter(pl.col("quantity") == "significant pairs")
        assert set(found["value"]) == {0.0}
