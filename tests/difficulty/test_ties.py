"""Wrapped measures of rankings with ties: the mean over the orders of the ties of the wrapped value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.difficulty import bounded_values, difficulty_of, get_bounding, ties
from rankbound.errors import MeasureError
from rankbound.measures import BOUNDINGS, is_defined, parse_measure, rank, values
from rankbound.testing import oracles
from rankbound.testing.strategies import catalog, measures, scored_lists
from tests.tiers import examples

CURVED = tuple(wrapper for wrapper, name in BOUNDINGS.items() if not get_bounding(name).affine)


def wrapped(wrapper, measure):
    """The measure in its wrapper, None if the wrapper does not take it."""
    try:
        return parse_measure(f"{wrapper}({measure})")
    except MeasureError:
        return None


def evaluated(measure, lists, depth=None):
    """The wrapped measure of each query, NaN where it is not defined."""
    ranked, bounding = rank(lists, depth=depth), get_bounding(measure.bounding)
    difficulty = difficulty_of(measure, ranked.counts)
    value = bounded_values(bounding, measure, ranked, values(ranked, measure.plain), difficulty)
    return np.where(is_defined(ranked.counts, measure.plain) & bounding.defined(difficulty), value, np.nan)


def by_oracle(measure, lists, depth=None):
    return np.array(
        [
            oracles.mean_over_tie_breaks(measure, lists.labels[a:b].tolist(), lists.scores[a:b].tolist(), depth)
            for a, b in zip(lists.offsets[:-1], lists.offsets[1:], strict=True)
        ]
    )


def lists_of(*queries):
    """Lists of (labels, scores)."""
    labels, scores = (np.concatenate([query[column] for query in queries]) for column in (0, 1))
    return rb.Lists(labels, np.cumsum([0, *(len(query[0]) for query in queries)]), scores.astype(float))


# ---- brute force -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", BOUNDINGS)
@given(lists=scored_lists(max_queries=3, max_items=6), measure=measures(), depth=st.none() | st.integers(1, 7))
@examples(100)
def test_wrappers_are_means_over_all_orders_of_ties(wrapper, lists, measure, depth):
    measure = wrapped(wrapper, measure)
    if measure is None:
        return
    result, expected = evaluated(measure, lists, depth), by_oracle(measure, lists, depth)
    checked = np.isfinite(result)
    np.testing.assert_allclose(result[checked], expected[checked], atol=1e-9)


SEVEN = lists_of(
    ([0, 2, 1, 0, 1, 3, 0], [5, 5, 5, 5, 1, 1, 1]),
    ([1, 0, 2, 0, 1, 0, 0], [9, 8, 8, 7, 7, 6, 6]),
    ([0, 1, 0, 3, 1, 2, 0], [0, 0, 0, 0, 0, 0, 0]),
    ([1, 0, 0, 1, 0, 2, 0], [4, 3, 1, 1, 1, 1, 1]),
)


@pytest.mark.parametrize("measure", catalog(range(2, 6, 3)), ids=str)
def test_every_wrapper_of_every_measure_of_seven_documents(measure):
    for each in filter(None, (wrapped(wrapper, measure) for wrapper in BOUNDINGS)):
        result = evaluated(each, SEVEN)
        expected = np.where(np.isfinite(result), by_oracle(each, SEVEN), np.nan)
        np.testing.assert_allclose(result, expected, atol=1e-9, err_msg=str(each))


@pytest.mark.parametrize("measure", catalog(range(2, 5, 2)), ids=str)
def test_a_constant_scorer_has_the_mean_of_all_rankings_under_every_wrapper(measure):
    for labels in ([1, 0, 0, 0, 0], [2, 1, 0, 0, 0], [3, 1, 1, 2, 0]):
        orders = list(oracles.all_orders(labels))
        ranking = lists_of(*((order, -np.arange(len(order))) for order in orders))
        constant = lists_of((labels, np.zeros(len(labels))))
        for each in filter(None, (wrapped(wrapper, measure) for wrapper in BOUNDINGS)):
            expected = evaluated(each, ranking).mean()  # NaN if it is not defined
            np.testing.assert_allclose(evaluated(each, constant), expected, atol=1e-9, err_msg=str(each))


# ---- draws and convolutions, against exact values --------------------------------------------------------------------


def tied_lists(seed, queries=40, n=14, step=5):
    """Blocks of ``step`` tied documents."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=queries * n, p=[0.7, 0.2, 0.1])
    return rb.Lists(labels, np.arange(queries + 1) * n, np.tile(np.arange(n) // step, queries).astype(float))


@pytest.mark.parametrize("wrapper", CURVED)
@pytest.mark.parametrize("measure", ["nDCG", "AP", "nDCG@6", "RR", "ERR", "Tau", "Bpref", "AP(div='retrieved')@6"])
def test_drawn_orders_keep_the_stated_error(monkeypatch, wrapper, measure):
    measure, lists = wrapped(wrapper, measure), tied_lists(0)
    if measure is None:
        return
    exact = evaluated(measure, lists)
    monkeypatch.setattr(ties, "_MOST_ORDERS", 1)
    drawn = evaluated(measure, lists)
    error = (drawn - exact)[np.isfinite(exact)]
    assert len(error) > 30
    assert 0 < np.sqrt(np.mean(error**2)) < 0.005  # the number that docs/reference/precision.md states
    assert np.abs(error).max() < 1 / 22


@pytest.mark.parametrize("measure", ["DB(nDCG)", "UL1(AP)", "UL2(ERR)", "DB(P@7)", "DB(RR)", "DB(Tau)", "UL2C(nDCG@6)"])
def test_binned_distributions_change_little(monkeypatch, measure):
    """A limit of 20 points leads to bins everywhere but where a measure has few values: there it stays exact."""
    measure, lists = parse_measure(measure), tied_lists(1, step=3)
    exact = evaluated(measure, lists)
    monkeypatch.setattr(ties, "_MOST_POINTS", 20)
    binned = evaluated(measure, lists)
    np.testing.assert_allclose(binned, exact, atol=1e-12 if measure.name in ("P", "RR", "Tau") else 1e-3)


def test_a_long_block_of_documents_that_were_not_returned():
    """Draws of 300 tied documents agree with a thousand random orders of them."""
    rng = np.random.default_rng(5)
    labels = np.concatenate((rng.integers(0, 2, 20), rng.permutation(np.repeat([1, 0], [30, 270]))))
    scores = np.concatenate((np.arange(320.0, 300.0, -1), np.zeros(300)))
    for name in ("UL1(AP)", "DB(AP)", "DB(nDCG)", "UL1(RBP(p=0.95))", "DB(nDCG@50)"):
        measure = parse_measure(name)
        (result,) = evaluated(measure, lists_of((labels, scores)))
        orders = [np.concatenate((labels[:20], rng.permutation(labels[20:]))) for _ in range(1_000)]
        values_in_orders = evaluated(measure, lists_of(*((order, -np.arange(320)) for order in orders)))
        standard_error = values_in_orders.std() / np.sqrt(1_000)
        assert abs(result - values_in_orders.mean()) < 5 * standard_error + 0.005


# ---- what the values depend on ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", CURVED)
@pytest.mark.parametrize("measure", ["nDCG", "AP", "nDCG@6", "ERR", "Bpref", "IPrec@0.5"])
def test_values_depend_on_the_query_alone(monkeypatch, wrapper, measure):
    """Not on the order of its rows, nor on other queries; also where orders are drawn."""
    monkeypatch.setattr(ties, "_MOST_ORDERS", 10)
    measure, lists = wrapped(wrapper, measure), tied_lists(2, queries=12)
    together = evaluated(measure, lists)
    rng = np.random.default_rng(0)
    for query in range(len(lists)):
        rows = rng.permutation(np.arange(lists.offsets[query], lists.offsets[query + 1]))
        alone = evaluated(measure, lists_of((lists.labels[rows], lists.scores[rows])))
        np.testing.assert_allclose(alone, together[query], atol=1e-12)


@given(scored_lists(max_items=10), measures(), st.sampled_from(CURVED))
@examples(100)
def test_values_lie_between_those_of_the_worst_and_the_best_order_of_the_ties(lists, measure, wrapper):
    measure = wrapped(wrapper, measure)
    if measure is None or not measure.definition.has_walk:
        return
    if measure.definition.scale_varies(measure):  # labels in descending order are not always the best
        return
    result = evaluated(measure, lists)
    order = np.argsort(lists.labels, kind="stable")
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order)) / len(order)
    better, worse = (
        evaluated(measure, lists.with_scores(lists.scores + sign * 0.1 * rank)) for sign in (1, -1)
    )  # differences of scores are 0.5 and more
    defined = np.isfinite(result)
    assert (worse[defined] - 1e-9 <= result[defined]).all()
    assert (result[defined] <= better[defined] + 1e-9).all()


def test_affine_wrappers_take_the_mean_of_the_measure_as_it_is(monkeypatch):
    def fail(*arguments):
        raise AssertionError("an affine bounding needs no orders of ties")

    monkeypatch.setattr(ties.TiedOrders, "of", fail)
    for wrapper in ("MM", "EB", "EM"):
        evaluated(wrapped(wrapper, "AP"), SEVEN)
    with pytest.raises(AssertionError):
        evaluated(wrapped("UL2", "AP"), SEVEN)


def test_unreturned_candidates_are_averaged_under_every_tie_policy():
    """Two of four judged documents are returned; the others follow in either order."""
    qrels, run = {"q": {"a": 0, "b": 1, "c": 1, "d": 0}}, {"q": {"a": 2.0, "b": 1.0}}
    for wrapper in CURVED:
        expected = oracles.mean_over_tie_breaks(f"{wrapper}(AP)", [0, 1, 1, 0], [2, 1, 0, 0])
        for policy in ("average", "input", "docid"):
            result = rb.evaluate(qrels, run, [f"{wrapper}(AP)"], ties=policy)
            assert result.mean()[f"{wrapper}(AP)"] == pytest.approx(expected, abs=1e-12)
