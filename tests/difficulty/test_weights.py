"""Difficulty weights: their formulas, forms and caps, and the effective sample fraction that the default guarantees."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.data import read_letor
from rankbound.difficulty import WEIGHT_FORMS, difficulty_of, get_bounding, query_weights
from rankbound.difficulty.weights import DEFAULT_FORM, LEAST_EFFECTIVE, effective_cap, shape_weights
from rankbound.errors import ArgumentError, DataError, WeightWarning
from rankbound.measures import LabelCounts
from rankbound.testing.strategies import CATALOG, labels, measures
from tests.tiers import examples

AFFINE = ["none", "min-max", "expectation", "expectation-max"]
EXACT = {"form": "plain", "effective": None}
WEIGHTS = st.lists(st.sampled_from([0.0, 1.0, 3.0]) | st.floats(1e-9, 1e9), min_size=1, max_size=30)


def fraction_of(weights, cap=math.inf):
    """Effective sample fraction of capped weights, computed by loops."""
    capped = [min(weight, cap) for weight in weights if weight > 0]
    return math.fsum(capped) ** 2 / (len(capped) * math.fsum(weight**2 for weight in capped))


def one_misplaced(n):
    """Labels of a query whose weight grows with n: all n documents but one are relevant."""
    return [1] * (n - 1) + [0]


def rows_of(queries):
    """Labels and qid of several queries."""
    return np.concatenate(queries), np.repeat(np.arange(len(queries)), [len(query) for query in queries])


# 30 ordinary queries, and 5 of which almost every ranking is nearly the best
UNEVEN = rows_of([[1, 0, 0, 0]] * 30 + [one_misplaced(n) for n in (10, 50, 100, 200, 400)])


# ---- the formulas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounding", ["min-max", "expectation", "expectation-max"])
def test_weights_are_the_reciprocal_ranges(bounding):
    labels, qid = [1, 0, 0, 1, 1, 0, 0, 0], [7, 7, 7, 3, 3, 3, 5, 5]
    weights = rb.difficulty_weights(labels, qid, measure="AP", bounding=bounding, **EXACT)
    root = rb.difficulty_weights(labels, qid, measure="AP", bounding=bounding, form="sqrt", effective=None)
    for q, (n, p) in enumerate([(3, 1), (3, 2)]):
        b = rb.bounds("AP", n=n, relevant=p)
        span = {"min-max": b.best - b.worst, "expectation": b.expected, "expectation-max": b.best - b.expected}
        assert weights[q] == pytest.approx(1 / span[bounding])
        assert root[q] == pytest.approx(span[bounding] ** -0.5)
    assert weights[2] == root[2] == 0  # nothing relevant
    rows = rb.difficulty_weights(labels, qid, measure="AP", bounding=bounding, per="row", **EXACT)
    np.testing.assert_allclose(rows, np.repeat(weights, [3, 3, 2]))
    scaled = rb.difficulty_weights(labels, qid, measure="AP", bounding=bounding, normalize=True)
    assert scaled[scaled > 0].mean() == pytest.approx(1)


def test_row_weights_when_the_rows_of_a_query_are_not_contiguous():
    labels, qid = [1, 1, 0, 0, 0, 1], ["b", "a", "b", "a", "a", "b"]
    query = rb.difficulty_weights(labels, qid)
    rows = rb.difficulty_weights(labels, qid, per="row")
    np.testing.assert_allclose(rows, query[[0, 1, 0, 1, 1, 0]])


@pytest.mark.parametrize(("bounding", "wrapper"), [("min-max", "MM"), ("expectation", "EB"), ("expectation-max", "EM")])
def test_exact_weights_are_the_slopes_of_the_bounded_measures(bounding, wrapper):
    """A bounded loss is the plain loss times ``form="plain", effective=None``, plus a constant of the query."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(6), 8)
    labels = rng.integers(0, 3, len(qid))
    names = ["nDCG", f"{wrapper}(nDCG)"]
    first, second = (rb.evaluate(rb.Lists.from_qid(labels, qid, rng.random(len(qid))), names).values for _ in range(2))
    plain, bounded = (first[name] - second[name] for name in names)
    weights = rb.difficulty_weights(labels, qid, measure="nDCG", bounding=bounding, **EXACT)
    np.testing.assert_allclose(bounded, weights * plain, atol=1e-12)
    assert (np.abs(plain) > 1e-3).any()


# ---- the effective sample fraction -----------------------------------------------------------------------------------


def test_effective_sample_fraction_of_known_weights():
    assert rb.effective_sample_fraction([3, 3, 0, 3]) == 1
    assert rb.effective_sample_fraction([1, 2, 3]) == pytest.approx((1 + 2 + 3) ** 2 / (3 * (1 + 4 + 9)))
    assert rb.effective_sample_fraction([1e-200, 1e200, 1e-200, 1e-200]) == pytest.approx(1 / 4)
    assert rb.effective_sample_fraction([5e-324, 5e-324]) == rb.effective_sample_fraction([1e308, 1e308]) == 1
    assert math.isnan(rb.effective_sample_fraction([0, 0]))
    assert math.isnan(rb.effective_sample_fraction([]))


@pytest.mark.parametrize("weights", [[1, -1], [1, math.nan], [math.inf], ["a"], [[1, 2]]])
def test_effective_sample_fraction_refuses_what_is_no_weight(weights):
    with pytest.raises(DataError, match="weights must"):
        rb.effective_sample_fraction(weights)


@given(WEIGHTS, st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
@examples(200)
def test_the_fraction_never_increases_with_the_cap(weights, first, second):
    assume(any(weights))
    low, high = (rb.effective_sample_fraction(np.minimum(weights, cap)) for cap in sorted((first, second)))
    assert low >= high - 1e-12
    assert low == pytest.approx(fraction_of(weights, min(first, second)))


def largest_cap(weights, effective):
    """The largest cap that reaches the fraction, by bisection."""
    low, high = min(weight for weight in weights if weight > 0), max(weights)
    if fraction_of(weights) >= effective:
        return high
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fraction_of(weights, middle) >= effective else (low, middle)
    return low


@given(WEIGHTS, st.floats(0.01, 0.999) | st.just(0.5))
@examples(300)
def test_the_cap_is_the_largest_that_reaches_the_fraction(weights, effective):
    assume(any(weights))
    cap = min(effective_cap(weights, effective), max(weights))
    assert rb.effective_sample_fraction(np.minimum(weights, cap)) >= effective
    # the fraction can be almost flat in the cap, so the fractions are compared, not the caps
    assert fraction_of(weights, cap) == pytest.approx(fraction_of(weights, largest_cap(weights, effective)), rel=1e-7)
    assert fraction_of(weights, cap * 1.01) <= effective * (1 + 1e-8) or cap == max(weights)


def test_the_cap_in_closed_form():
    """Three weights of 1 and one of c: (3 + c)^2 = 2 (3 + c^2), so c = 3 + sqrt(12)."""
    assert effective_cap([1, 1, 1, 97], 0.5) == pytest.approx(3 + math.sqrt(12), rel=1e-8)
    assert effective_cap([1, 1, 1, 5], 0.5) == math.inf
    assert effective_cap([1, 2, 4, 0], 1) == 1
    assert effective_cap([2, 2], 1) >= 2
    assert effective_cap([0, 0]) == math.inf


@given(WEIGHTS)
@examples(100)
def test_at_least_half_of_the_weights_stay_as_they_are(weights):
    assume(any(weights))
    positive = sorted(weight for weight in weights if weight > 0)
    assert effective_cap(weights) >= positive[(len(positive) - 1) // 2]


@given(
    st.lists(st.sampled_from([0.0, math.inf]) | st.floats(1e-300, 1e300), min_size=1, max_size=20),
    st.sampled_from(sorted(WEIGHT_FORMS)),
    st.none() | st.floats(0.01, 100),
    st.booleans(),
)
@examples(300)
def test_weights_of_any_size_reach_the_fraction_and_keep_their_order(raw, form, cap, normalize):
    raw = np.array(raw)
    weights, capped = shape_weights(raw, form=form, cap=cap, normalize=normalize)
    assert np.isfinite(weights).all()
    np.testing.assert_array_equal(weights[raw == 0], 0)
    if (raw > 0).any():
        assert rb.effective_sample_fraction(weights) >= 0.5
    assert (np.diff(weights[np.argsort(raw, kind="stable")]) >= 0).all()
    assert len(np.unique(weights[capped])) <= 1
    assert (weights[capped] == weights.max()).all()


@given(WEIGHTS, st.integers(-20, 20), st.sampled_from(sorted(WEIGHT_FORMS)), st.none() | st.floats(0.1, 10))
@examples(100)
def test_the_unit_of_the_weights_does_not_matter(weights, power, form, cap):
    raw, factor = np.array(weights), 4.0**power  # exact in floating point, and so is its root
    first, second = (shape_weights(scale * raw, form=form, cap=cap)[0] for scale in (1.0, factor))
    np.testing.assert_array_equal(second, WEIGHT_FORMS[form](np.array(factor)) * first)
    first, second = (shape_weights(scale * raw, form=form, cap=cap, normalize=True)[0] for scale in (1.0, 0.3))
    assert np.isclose(first.max(), second.max(), rtol=1e-6)


def test_a_cap_is_a_multiple_of_the_median_of_the_weights_that_are_not_zero():
    raw = np.array([0.0, 0.0, 1.0, 2.0, 3.0, 9.0, 50.0])
    weights, capped = shape_weights(raw, form="plain", cap=2, effective=None)
    assert weights.tolist() == [0, 0, 1, 2, 3, 2 * 3, 2 * 3]
    assert capped.tolist() == [False] * 5 + [True] * 2
    np.testing.assert_allclose(
        shape_weights(raw, form="sqrt", cap=2, effective=None)[0][5:], [9**0.5, 2 * 3**0.5]
    )  # fmt: skip
    assert (shape_weights(np.zeros(2), cap=2)[0] == 0).all()


# ---- every measure and bounding --------------------------------------------------------------------------------------


@given(
    st.lists(labels() | st.integers(2, 60).map(one_misplaced), min_size=1, max_size=12),
    measures(),
    st.sampled_from(AFFINE),
    st.sampled_from(sorted(WEIGHT_FORMS)),
    st.booleans(),
)
@examples(200)
def test_the_default_guarantees_half_of_the_queries(queries, measure, bounding, form, normalize):
    rows, qid = rows_of(queries)
    options = {"measure": measure, "bounding": bounding, "form": form}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeightWarning)
        raw = rb.difficulty_weights(rows, qid, **options, effective=None)
    weights = rb.difficulty_weights(rows, qid, **options, normalize=normalize)
    if (raw > 0).any():
        assert rb.effective_sample_fraction(weights) >= LEAST_EFFECTIVE == 0.5
    assert (np.diff(weights[np.argsort(raw, kind="stable")]) >= 0).all()
    np.testing.assert_array_equal(weights == 0, raw == 0)
    for q, query in enumerate(queries):
        bounds = rb.bounds(measure, labels=query)
        if bounds.best == bounds.worst:
            assert weights[q] == 0


def test_uneven_queries_under_every_measure():
    """Lists of up to 400 documents with one that is not relevant have the largest weights."""
    counts, exploded = LabelCounts.from_lists(rb.Lists.from_qid(*UNEVEN)), dict.fromkeys(AFFINE, 0)
    for measure in CATALOG:
        difficulty = difficulty_of(measure, counts)
        for bounding in AFFINE:
            raw = get_bounding(bounding).weight(difficulty)
            exploded[bounding] += rb.effective_sample_fraction(raw) < 0.5
            for form in WEIGHT_FORMS:
                weights, _ = shape_weights(raw, form=form)
                assert not rb.effective_sample_fraction(weights) < 0.5, (measure, bounding)
    assert exploded["none"] == 0
    assert min(exploded["min-max"], exploded["expectation-max"]) > 20  # the cap was needed


def test_labels_that_differ_by_rounding_errors_have_finite_weights():
    """B - E can be 0 after rounding although B is not W, or any small number."""
    rng = np.random.default_rng(0)
    rows = 1 + rng.integers(0, 3, 400) * np.finfo(float).eps
    weights = rb.difficulty_weights(rows, np.repeat(np.arange(100), 4))
    assert np.isfinite(weights).all()
    assert not rb.effective_sample_fraction(weights) < 0.5


# ---- what is reported ------------------------------------------------------------------------------------------------


def test_uneven_weights_warn_only_without_the_guard():
    with pytest.warns(WeightWarning, match=r"effective sample fraction of 0\.073 \(median 2\.78, maximum") as seen:
        weights = rb.difficulty_weights(*UNEVEN, **EXACT)
    assert seen[0].filename == __file__
    with pytest.warns(rb.errors.WeightWarning, match=r"of 0\.3 .*effective=0\.5 caps them"):
        rb.difficulty_weights(*UNEVEN, form="plain", effective=0.3)
    assert issubclass(WeightWarning, UserWarning)
    default = rb.difficulty_weights(*UNEVEN)  # warnings are errors in this test suite
    assert rb.effective_sample_fraction(default) >= 0.5 > rb.effective_sample_fraction(weights)


def test_weights_per_row_are_judged_per_query():
    rows, qid = rows_of([[1] + [0] * 999, one_misplaced(20)])
    weights = rb.difficulty_weights(rows, qid, per="row", **EXACT)  # does not warn
    assert rb.effective_sample_fraction(weights) < 0.1
    assert rb.effective_sample_fraction(rb.difficulty_weights(rows, qid, **EXACT)) > 0.5
    with pytest.warns(WeightWarning):
        rb.difficulty_weights(*UNEVEN, per="row", **EXACT)


def test_query_weights_report_what_was_done():
    exact, safe = (query_weights(*UNEVEN, form="plain", effective=effective) for effective in (None, 0.5))
    summary = safe.summary()
    assert summary["effective_sample_fraction"] == pytest.approx(0.5, rel=1e-8)
    assert summary["median"] == exact.median == pytest.approx(np.median(exact.weights))
    assert summary["maximum"] == safe.weights.max() < exact.maximum
    assert summary["capped"] == (safe.weights < exact.weights).sum() > 0
    assert safe.qids.tolist() == list(range(35))
    assert (exact.summary()["capped"], safe.warning) == (0, None)
    np.testing.assert_array_equal(safe.per_row([3, 34, 3]), safe.weights[[3, 34, 3]])
    with pytest.raises(DataError, match=r"qid must be one of the queries that have a weight, got .*35"):
        safe.per_row([0, 35])


def test_data_without_a_choice_have_no_fraction_and_no_warning():
    result = query_weights([0, 0, 1], [1, 1, 2])
    assert result.weights.tolist() == [0, 0]
    assert all(math.isnan(result.summary()[name]) for name in ("effective_sample_fraction", "median", "maximum"))
    assert result.warning is None
    assert rb.difficulty_weights([], []).tolist() == []
    assert rb.difficulty_weights([], [], per="row", normalize=True).tolist() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per": "list"}, "per must be 'query' or 'row', got 'list'"),
        ({"form": "x"}, "form must be one of plain, sqrt, got 'x'"),
        ({"form": None}, "form must be one of plain, sqrt, got None"),
        ({"cap": 0}, "cap must be None or a finite number greater than 0, got 0"),
        ({"cap": math.inf}, "cap must be None or a finite number greater than 0, got inf"),
        ({"cap": "2"}, "cap must be None or a finite number greater than 0, got '2'"),
        ({"effective": 2}, "effective must be None, or greater than 0 and at most 1, got 2"),
        ({"effective": 0}, "effective must be None, or greater than 0 and at most 1, got 0"),
        ({"effective": math.nan}, "effective must be None, or greater than 0 and at most 1, got nan"),
        ({"effective": True}, "effective must be None, or greater than 0 and at most 1, got True"),
        ({"bounding": "UL2"}, "bounding must be affine"),
    ],
)
def test_weights_check_their_arguments(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        rb.difficulty_weights([1, 0], [1, 1], **arguments)


@pytest.mark.real_data
def test_weights_of_real_queries_do_not_explode(data_dir):
    data = read_letor([data_dir / "mq2007-agg" / f"A{number}.txt.gz" for number in range(1, 6)])
    rows = (data.lists.labels, data.lists.query_of_item)
    measure = "nDCG(dcg='exp-log2')"
    exact, default = (query_weights(*rows, measure=measure, **options) for options in (EXACT, {}))
    assert exact.effective_sample_fraction == pytest.approx(0.2, abs=0.01)
    assert (exact.median, exact.maximum) == (pytest.approx(2.3, abs=0.05), pytest.approx(120, abs=1))
    assert default.effective_sample_fraction >= 0.5
    capped = query_weights(*rows, measure=measure, form="plain")
    assert capped.effective_sample_fraction == pytest.approx(0.5, rel=1e-8)
    assert 0 < capped.summary()["capped"] < 0.02 * len(capped.weights)
    assert DEFAULT_FORM in WEIGHT_FORMS
