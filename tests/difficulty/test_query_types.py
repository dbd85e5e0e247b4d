"""Types of queries: the rules, their edges, and that nothing but the numbers decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.data.letor import read_letor
from rankbound.difficulty import QUERY_TYPES, difficulty_of
from rankbound.errors import ArgumentError
from rankbound.measures import LabelCounts, is_defined, parse_measure
from rankbound.testing import oracles
from rankbound.testing.strategies import CATALOG, catalog, labels

# ---- the rule by gain ------------------------------------------------------------------------------------------------


def by_gain(gain, expected=0.5, best=1.0, worst=0.0, **thresholds):
    """Types of queries whose systems cover this fraction of the way from random to best."""
    gain = np.asarray(gain)
    return rb.query_types(expected + gain * (best - expected), expected, best, worst, **thresholds).tolist()


def test_types_follow_the_gain():
    assert by_gain([-0.5, -0.11, -0.1, 0.0, 0.1, 0.11, 0.49, 0.5, 1.0]) == [
        "below random", "below random", "uninformative", "uninformative", "uninformative", "informative",
        "informative", "ideal", "ideal",
    ]  # fmt: skip


def test_thresholds_can_be_chosen():
    assert by_gain([-0.01, 0.0, 0.01, 0.8, 1.0], margin=0, ideal=1) == [
        "below random", "uninformative", "informative", "informative", "ideal",
    ]  # fmt: skip


def test_uninformative_queries_are_hard_or_easy_where_systems_and_random_rankings_score_low_or_high():
    assert by_gain([0.0], expected=0.05) == ["hard"]
    assert by_gain([0.0], expected=0.95) == ["easy"]
    assert by_gain([0.05], expected=0.32) == ["uninformative"]  # the systems reach 0.354, which is more than a third
    assert by_gain([0.0], expected=0.2, best=0.25) == ["easy"]  # P@20 with 5 relevant documents: no more can be reached
    assert by_gain([0.0], expected=0.5, low=0.6, high=0.9) == ["hard"]
    assert rb.query_types([-0.6], [-0.6], 1.0, -1.0, floor=-1.0).tolist() == ["hard"]
    assert rb.query_types([0.5], [0.5], 1.0, -1.0, floor=-1.0).tolist() == ["easy"]


def test_lower_values_can_be_better():
    value, expected, worst = np.array([1.0, 4.0, 6.0, 10.0, 3.0]), 6.0, np.array([12.0, 12, 12, 12, 12])
    types = rb.query_types(value, expected, 0.0, worst).tolist()
    assert types == ["ideal", "informative", "uninformative", "below random", "ideal"]
    mirrored = rb.query_types(worst - value, worst - expected, worst, 0.0).tolist()
    assert types == mirrored


def test_a_query_without_a_choice_is_a_type_of_its_own_under_both_rules():
    value = [1.0, 0.3, 0.0, 0.7, 0.2]
    for quota in (None, 0.5):
        types = rb.query_types(
            value, [1.0, 0.3, 0.0, 0.2, 0.4], [1.0, 0.3, 0.0, 1.0, 1.0], [1, 0.3, 0, 0, 0], quota=quota
        )
        assert types[:3].tolist() == ["no choice"] * 3
        assert "no choice" not in types[3:]


def test_systems_below_random_on_most_queries_do_not_make_them_informative():
    """Sixty queries of which 34 are below random, as when runs return few of the judged documents of a pool."""
    gain = np.concatenate([np.linspace(-0.9, -0.15, 34), np.linspace(-0.1, 0.1, 10), np.linspace(0.15, 0.8, 16)])
    types = np.array(by_gain(gain, expected=0.2))
    assert (types == "below random").sum() == 34
    assert np.isin(types, ["uninformative", "hard"]).sum() == 10
    assert np.isin(types, ["informative", "ideal"]).sum() == 16
    assert (np.array(by_gain(gain, expected=0.2, quota=0.1)) == "informative").sum() == 48


# ---- the rule by quota -----------------------------------------------------------------------------------------------


def test_quotas_take_the_ends_of_the_gaps():
    gap = np.array([0.6, 0.3, 0.0, -0.2, 0.5, 0.1, 0.2, 0.25, 0.05, 0.15])
    types = rb.query_types(0.3 + gap, 0.3, 1.0, 0.0, quota=0.2)
    assert np.flatnonzero(types == "ideal").tolist() == [0, 4]
    assert types[[2, 3]].tolist() == ["hard", "hard"]
    assert (types == "informative").sum() == 6


def test_a_quota_counts_queries_with_a_choice():
    value, worst = np.concatenate([np.linspace(0.4, 0.9, 10), np.ones(90)]), np.repeat([0.0, 1.0], [10, 90])
    types = rb.query_types(value, np.repeat([0.4, 1.0], [10, 90]), 1.0, worst, quota=0.1)
    assert [(types == kind).sum() for kind in ("ideal", "uninformative", "no choice")] == [1, 1, 90]


def test_equal_gaps_have_the_same_type_and_the_less_favorable_one_wins():
    types = rb.query_types([0.5, 0.5, 0.5, 0.6, 0.7, 0.7], 0.4, 1.0, 0.0, quota=1 / 6)
    assert types.tolist() == ["uninformative"] * 3 + ["informative"] * 3
    assert set(rb.query_types([0.5] * 4, 0.4, 1.0, 0.0, quota=0.25).tolist()) == {"uninformative"}
    assert rb.query_types([0.5], 0.4, 1.0, 0.0, quota=0.5).tolist() == [
        "informative"
    ]  # round(0.5 of one query) is none


def test_rounding_errors_do_not_split_equal_gaps():
    gap = np.array([0.1, 0.1 + 1e-16, 0.1 - 1e-16, 0.3 - 0.2, 0.5, 0.6])
    types = rb.query_types(0.2 + gap, 0.2, 1.0, 0.0, quota=1 / 6)
    assert set(types[:4]) == {"hard"}
    threshold = np.array([0.1, 0.3 - 0.2, (0.1 + 0.2) / 3, 0.1 + 1e-12])
    assert set(by_gain(threshold, expected=0.5)) == {"uninformative"}


def test_rounding_errors_do_not_make_a_choice():
    assert rb.query_types([0.3], [0.3], [0.1 + 0.2], [0.3]).tolist() == ["no choice"]


# ---- properties ------------------------------------------------------------------------------------------------------

numbers = st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.5, 0.7, 0.9, 1.0])
queries = st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=30)


@given(queries, st.sampled_from([None, 0.1, 0.25, 0.5]), st.randoms(use_true_random=False))
def test_the_order_of_the_queries_changes_no_type(rows, quota, random):
    order = random.sample(range(len(rows)), len(rows))
    types = rb.query_types(*np.array(rows).T, quota=quota)
    shuffled = rb.query_types(*np.array(rows)[order].T, quota=quota)
    assert shuffled.tolist() == types[order].tolist()
    assert set(types.tolist()) <= set(QUERY_TYPES)


@given(queries, st.sampled_from([None, 0.1, 0.25, 0.5]), st.integers(0, 2**32 - 1))
def test_rounding_errors_change_no_type(rows, quota, seed):
    numbers = np.array(rows)
    noise = 1 + 1e-14 * np.random.default_rng(seed).uniform(-1, 1, numbers.shape)
    # equal bounds stay equal, and the thresholds of hard and easy are no values of these queries
    thresholds = {"quota": quota, "low": 0.35, "high": 0.65}
    assert rb.query_types(*(numbers * noise).T, **thresholds).tolist() == (
        rb.query_types(*numbers.T, **thresholds).tolist()
    )


@given(st.lists(labels(max_size=5), min_size=1, max_size=3), st.sampled_from(CATALOG))
def test_no_choice_is_exactly_that_all_orders_have_the_same_value(lists, measure):
    counts = LabelCounts.from_labels(np.concatenate(lists), np.concatenate(([0], np.cumsum([len(q) for q in lists]))))
    difficulty = difficulty_of(measure, counts)
    for quota in (None, 0.5):
        best_systems = rb.query_types(
            difficulty.best, difficulty.expected, difficulty.best, difficulty.worst, quota=quota,
            floor=measure.definition.floor,
        )  # fmt: skip
        for query, kind in zip(lists, best_systems.tolist(), strict=True):
            values = [oracles.value(measure, order) for order in oracles.all_orders(query)]
            assert (kind == "no choice") == (max(values) - min(values) < 1e-12)


@pytest.mark.parametrize("measure", catalog(range(2, 5, 2)), ids=str)
def test_the_best_ranking_is_ideal_and_the_worst_below_random_for_every_measure(measure):
    counts = LabelCounts.from_labels([2, 1, 0, 0, 0, 1, 0, 0, 2, 2], [0, 5, 8, 10])
    difficulty = difficulty_of(measure, counts)
    bounds = (difficulty.expected, difficulty.best, difficulty.worst)
    choice = difficulty.informative
    types = [rb.query_types(value, *bounds, floor=measure.definition.floor) for value in bounds]
    assert set(types[1][choice].tolist()) <= {"ideal"}
    assert set(types[0][choice].tolist()) <= {"uninformative", "hard", "easy"}
    assert set(types[2][choice].tolist()) <= {"below random"}
    assert set(np.concatenate([each[~choice] for each in types]).tolist()) <= {"no choice"}


# ---- real queries ----------------------------------------------------------------------------------------------------


@pytest.mark.real_data
def test_mq2008_queries_on_which_every_order_has_the_same_precision(data_dir):
    """Precision at 10 is the same for every order of the documents of 271 queries."""
    measure = parse_measure("P@10")
    no_choice = 0
    for path in sorted((Path(data_dir) / "mq2008").glob("S*.txt.gz")):
        data = read_letor(path)
        difficulty = difficulty_of(measure, LabelCounts.from_lists(data.lists))
        defined = is_defined(LabelCounts.from_lists(data.lists), measure)
        systems = [
            rb.evaluate(data.lists.with_scores(column), ["P@10"], empty="zero") for column in data.features.T[:20]
        ]
        value = np.mean([system.values["P@10"] for system in systems], axis=0)
        for quota in (None, 0.1):
            types = rb.query_types(value, difficulty.expected, difficulty.best, difficulty.worst, quota=quota)
            assert set(types[difficulty.best == difficulty.worst].tolist()) == {"no choice"}
        no_choice += int((types[defined] == "no choice").sum())
    assert no_choice == 271


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quota": 0.9}, r"quota must be None, or greater than 0 and at most 0\.5, got 0\.9"),
        ({"margin": -0.1}, r"margin must be at least 0 and less than 1, got -0\.1"),
        ({"ideal": 0.05}, r"ideal must be greater than margin \(0\.1\) and at most 1, got 0\.05"),
        ({"low": 0.9, "high": 0.5}, r"low and high must lie between 0 and 1, low first, got 0\.9 and 0\.5"),
        ({"floor": float("nan")}, "floor must be a finite number, got nan"),
    ],
)
def test_thresholds_are_checked(settings, message):
    with pytest.raises(ArgumentError, match=message):
        rb.query_types([0.5], [0.4], [1.0], [0.0], **settings)


def test_lengths_are_checked():
    with pytest.raises(ArgumentError, match="value, expected, best and worst must have one entry per query"):
        rb.query_types([0.5, 0.5], [0.4, 0.3, 0.2], 1.0, 0.0)
    with pytest.raises(ArgumentError, match=r"value, expected, best and worst must have one number per query"):
        rb.query_types(0.5, 0.4, 1.0, 0.0)
