"""Score standardization: formulas against loops and the standard library, invariances, edge cases, files."""

from __future__ import annotations

import json
import math
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.difficulty.standardization import ReferenceScores, standardize
from rankbound.errors import ArgumentError, DataError
from rankbound.measures import STANDARDIZATIONS, parse_measure
from tests.tiers import examples

METHODS = tuple(STANDARDIZATIONS.values())
score = st.integers(0, 20).map(lambda value: value / 20) | st.just(math.nan)


def expected_value(x: float, scores: list[float], method: str) -> float:
    """The definition, for one query, by the standard library."""
    scores = [value for value in scores if not math.isnan(value)]
    if math.isnan(x) or len(scores) < 2 or len(set(scores)) == 1:
        return math.nan
    if method == "empirical":
        return sum(value <= x for value in scores) / len(scores)
    z = (x - mean(scores)) / stdev(scores)
    return NormalDist().cdf(z) if method == "normal" else min(max(0.5 + 0.15 * z, 0), 1)


@st.composite
def tables(draw):
    systems, references, queries = draw(st.tuples(*(st.integers(1, 5),) * 3))
    return [
        np.array(draw(st.lists(st.lists(score, min_size=queries, max_size=queries), min_size=rows, max_size=rows)))
        for rows in (systems, references)
    ]


@pytest.mark.parametrize("method", METHODS)
@given(tables())
@examples(60)
def test_values_are_those_of_the_definition(method, data):
    values, references = data
    expected = [
        [expected_value(x, column.tolist(), method) for x, column in zip(row, references.T, strict=True)]
        for row in values
    ]
    np.testing.assert_allclose(standardize(values, references, method), expected, atol=1e-12)
    np.testing.assert_array_equal(
        standardize(values[0], references, method), standardize(values, references, method)[0]
    )


@pytest.mark.parametrize("method", METHODS)
def test_an_affine_change_of_a_topics_scores_changes_nothing(method):
    rng = np.random.default_rng(0)
    values, references = rng.random((4, 6)), rng.random((9, 6))
    shift, scale = rng.normal(size=6), rng.uniform(0.1, 10, size=6)
    changed = standardize(shift + scale * values, shift + scale * references, method)
    np.testing.assert_allclose(changed, standardize(values, references, method), atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_order_of_references_and_of_queries_does_not_matter_and_values_lie_in_the_unit_interval(method):
    rng = np.random.default_rng(1)
    values, references = 3 * rng.normal(size=(4, 6)), rng.normal(size=(9, 6))
    result = standardize(values, references, method)
    order = rng.permutation(6)
    np.testing.assert_allclose(standardize(values, references[rng.permutation(9)], method), result, atol=1e-12)
    np.testing.assert_allclose(
        standardize(values[:, order], references[:, order], method), result[:, order], atol=1e-12
    )
    assert ((result >= 0) & (result <= 1)).all()
    # a better value never gets a lower standardized one
    assert (np.diff(standardize(np.sort(values, axis=0), references, method), axis=0) >= 0).all()


def test_the_reference_systems_themselves_have_the_mean_one_half():
    references = np.random.default_rng(2).random((50, 8))
    assert standardize(references, references, "uniform").mean(axis=0) == pytest.approx([0.5] * 8)
    # ranks 1 to 50 over 50
    assert standardize(references, references, "empirical").mean(axis=0) == pytest.approx([51 / 100] * 8)


@pytest.mark.parametrize("method", METHODS)
def test_lower_is_better_reverses_the_order(method):
    references = np.array([[1.0], [2.0], [4.0]])
    value, reverse = (standardize([[1.0], [4.0]], references, method, lower_is_better=flag) for flag in (False, True))
    assert value[1] > value[0]
    assert reverse[0] > reverse[1]
    np.testing.assert_allclose(reverse, standardize([[-1.0], [-4.0]], -references, method))


def test_rounding_neither_makes_a_scale_nor_breaks_a_tie():
    third = 0.1 + 0.2  # differs from 0.3 in the last digit
    assert np.isnan(standardize([0.5], [[0.3], [third], [0.3]])).all()
    assert standardize([0.3], [[third], [0.1], [0.9]], "empirical") == pytest.approx([2 / 3])


@pytest.mark.parametrize(
    ("values", "references", "method", "error", "text"),
    [
        ([0.1], [[0.1], [0.2]], "z", ArgumentError, "method must be one of normal, uniform, empirical, got 'z'"),
        ([0.1, 0.2], [[0.1], [0.2]], "normal", ArgumentError, "one entry for each of the 1 queries"),
        (0.1, [[0.1], [0.2]], "normal", ArgumentError, "one entry for each of the 1 queries"),
        ([0.1], [0.1, 0.2], "normal", DataError, "references must be 2-D"),
        ([math.inf], [[0.1], [0.2]], "normal", DataError, "values must be at most 1e"),
        (["a"], [[0.1], [0.2]], "normal", DataError, "values must be numbers"),
    ],
)
def test_bad_input(values, references, method, error, text):
    with pytest.raises(error, match=text):
        standardize(values, references, method)


# ---- the scores of reference runs ------------------------------------------------------------------------------------


def references() -> ReferenceScores:
    scores = np.array([[0.1, 0.5, 0.2], [0.3, np.nan, 0.2], [0.8, 0.7, 0.2]])
    return ReferenceScores(("a", "b", "c"), (10, 2, 33), {"nDCG@10": scores, "U": 10 * scores})


def test_queries_are_found_by_their_id_as_text_in_any_order():
    for ids in ([33, 2, 5, 10], ["33", "2", "5", "10"], np.array([33, 2, 5, 10], object)):
        result = references().standardize("ECDF(nDCG@10)", ids, [0.2, 0.6, 0.9, 0.3])
        np.testing.assert_allclose(result, [np.nan, 1 / 2, np.nan, 2 / 3])
        assert references().covers(ids).tolist() == [True, True, False, True]
    assert references().incomplete_queries == 1
    with pytest.raises(DataError, match=r"must have a query in common with the run; their first queries are \[10\]"):
        references().check_covers(["5", "6"])


def test_a_measure_where_lower_is_better_is_reversed():
    values = references().standardize("ECDF(U)", [10], [1.0])
    assert values.tolist() == [1.0]  # the lowest of 1, 3, 8
    assert not parse_measure("STD(U)").is_lower_better


def test_wrong_measures_are_refused():
    with pytest.raises(ArgumentError, match="references must have the scores of AP; they have nDCG@10, U"):
        references().standardize("STD(AP)", [10], [0.5])
    with pytest.raises(ArgumentError, match=r"measure must have one of the wrappers STD, STDU, ECDF, got EM\(AP\)"):
        references().standardize("EM(AP)", [10], [0.5])
    references().check([parse_measure("nDCG@10"), parse_measure("STD(U)")])
    with pytest.raises(ArgumentError, match="references must have the scores of AP"):
        references().check([parse_measure("ECDF(AP)")])


def test_two_references_of_different_names_and_the_right_shape_are_needed():
    with pytest.raises(ArgumentError, match="references must be at least 2 runs, got 1"):
        ReferenceScores(("a",), ("q",), {"AP": np.ones((1, 1))})
    with pytest.raises(ArgumentError, match="different names, got a, a"):
        ReferenceScores(("a", "a"), ("q",), {"AP": np.ones((2, 1))})
    with pytest.raises(DataError, match=r"reference scores of AP must have the shape \(2, 1\)"):
        ReferenceScores(("a", "b"), ("q",), {"AP": np.ones((2, 2))})


def test_a_saved_file_gives_the_same_values_and_has_the_factors(tmp_path):
    path = tmp_path / "factors.json"
    references().save(path)
    loaded = ReferenceScores.load(path)
    assert (loaded.systems, loaded.query_ids, loaded.measures) == (("a", "b", "c"), ("10", "2", "33"), ("nDCG@10", "U"))
    for wrapper in STANDARDIZATIONS:
        name, ids, values = f"{wrapper}(nDCG@10)", [2, 10, 33], [0.55, 0.2, 0.4]
        np.testing.assert_array_equal(
            loaded.standardize(name, ids, values), references().standardize(name, ids, values)
        )
    factors = json.loads(path.read_text())["factors"]["nDCG@10"]
    assert factors["mean"] == pytest.approx([mean([0.1, 0.3, 0.8]), mean([0.5, 0.7]), 0.2])
    assert factors["standard_deviation"] == pytest.approx([stdev([0.1, 0.3, 0.8]), stdev([0.5, 0.7]), 0], abs=1e-12)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "no JSON",
        '{"format": "other", "version": 1}',
        '{"format": "rankbound reference scores", "version": 2}',
        '{"format": "rankbound reference scores", "version": 1, "systems": ["a", "b"], "queries": ["q"], '
        '"scores": {"AP": [[1]]}}',
        '{"format": "rankbound reference scores", "version": 1, "systems": ["a", "b"], "queries": ["q"], '
        '"scores": {"AP": [["x"], [1]]}}',
        '{"format": "rankbound reference scores", "version": 1, "systems": ["a"], "queries": ["q"], '
        '"scores": {"AP": [[1]]}}',
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "factors.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"factors\.json: expected a file of reference scores"):
        ReferenceScores.load(path)


@pytest.mark.parametrize("name", ["STD(nDCG@10)", "STDU(AP(rel=2)@5)", "ECDF(U)"])
def test_names_of_standardized_measures_are_read_and_printed(name):
    measure = parse_measure(name)
    assert str(measure) == name
    assert measure.is_standardized
    assert not measure.plain.is_standardized
    assert not measure.is_lower_better
