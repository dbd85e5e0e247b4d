"""Values of measures against the slow oracles, and properties that hold for the whole catalog."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound import Lists
from rankbound.errors import DataError
from rankbound.measures import parse_measure, rank, values
from rankbound.testing import oracles
from rankbound.testing.strategies import CATALOG, measures, scored_lists
from tests.tiers import examples


def each_query(lists):
    for q in range(len(lists)):
        part = slice(lists.offsets[q], lists.offsets[q + 1])
        yield lists.labels[part].tolist(), lists.scores[part].tolist()


@given(scored_lists(ties=False))
@examples(60)
def test_every_measure_equals_its_oracle_where_scores_are_distinct(lists):
    ranked = rank(lists)
    for measure in CATALOG:
        ours = values(ranked, measure)
        for q, (labels, scores) in enumerate(each_query(lists)):
            order = np.argsort(-np.asarray(scores))
            expected = oracles.value(measure, [labels[i] for i in order])
            assert ours[q] == pytest.approx(expected, abs=1e-12), measure


@given(scored_lists(max_queries=3, max_items=6))
@examples(40)
def test_averaged_ties_are_the_mean_over_all_tie_breaks(lists):
    ranked = rank(lists, ties="average")
    for measure in CATALOG[::3]:
        ours = values(ranked, measure)
        for q, (labels, scores) in enumerate(each_query(lists)):
            expected = oracles.mean_over_tie_breaks(measure, labels, scores)
            assert ours[q] == pytest.approx(expected, abs=1e-12), measure


@given(scored_lists(), st.integers(0, 2**32 - 1))
@examples(30)
def test_the_order_of_the_input_changes_nothing(lists, seed):
    rng = np.random.default_rng(seed)
    order = np.concatenate([lo + rng.permutation(hi - lo) for lo, hi in itertools.pairwise(lists.offsets)])
    shuffled = Lists(lists.labels[order], lists.offsets, lists.scores[order])
    before, after = rank(lists), rank(shuffled)
    for measure in CATALOG:
        np.testing.assert_allclose(values(before, measure), values(after, measure), atol=1e-12)


@given(scored_lists(), measures())
@examples(60)
def test_a_strictly_increasing_transformation_of_scores_changes_nothing(lists, measure):
    moved = lists.with_scores(lists.scores * 3 + 7)
    np.testing.assert_allclose(values(rank(lists), measure), values(rank(moved), measure), atol=1e-12)


@given(scored_lists(max_queries=4), measures())
@examples(60)
def test_queries_are_independent(lists, measure):
    together = values(rank(lists), measure)
    for q, (labels, scores) in enumerate(each_query(lists)):
        alone = values(rank(Lists(labels, [0, len(labels)], scores)), measure)
        assert together[q] == pytest.approx(alone[0], abs=1e-12)


@given(scored_lists(max_items=7), measures(), st.data())
@examples(80)
def test_items_that_were_not_returned_get_no_rank(lists, measure, data):
    """Depths cut the ranked list: the oracle sees the retrieved items in order and the rest as a tail."""
    depths = np.array([data.draw(st.integers(0, size)) for size in lists.sizes])
    scores = np.arange(len(lists.labels), 0, -1.0)  # the order of the items is the ranking
    cut = Lists(lists.labels, lists.offsets, scores, depths=depths)
    ours = values(rank(cut), measure)
    for q, (labels, _) in enumerate(each_query(cut)):
        assert ours[q] == pytest.approx(oracles.value(measure, labels, int(depths[q])), abs=1e-12)


def test_a_constant_scorer_never_looks_good():
    """All relevant items come first in the input, which a stable sort would reward."""
    labels = [1] * 5 + [0] * 95
    lists = Lists(labels, [0, 100], np.zeros(100))
    for name, probability in (("P@5", 5 / 100), ("R@5", 5 / 100), ("PairAcc", 1 / 2), ("Tau", 0.0)):
        assert values(rank(lists), parse_measure(name))[0] == pytest.approx(probability)
    assert values(rank(lists, ties="input"), parse_measure("P@5"))[0] == 1.0


def test_ties_by_document_id_follow_trec_eval():
    """Ids descend within a tie, and scores that agree as 32-bit numbers are a tie."""
    lists = Lists([0, 1, 0], [0, 3], [1.0, 1.0 + 1e-9, 0.5], ids=["b", "a", "c"])
    assert values(rank(lists, ties="docid"), parse_measure("RR"))[0] == 1 / 2
    assert values(rank(lists, ties="average"), parse_measure("RR"))[0] == 1.0


def test_docid_ties_need_ids():
    with pytest.raises(DataError, match="needs item ids"):
        rank(Lists([0, 1], [0, 2], [1.0, 1.0]), ties="docid")


@pytest.mark.parametrize("cutoff", ["", "@3", "@1000"])
def test_one_long_list_and_many_short_ones_sort_alike(cutoff):
    """Lists of very different length go through several padded matrices."""
    rng = np.random.default_rng(5)
    sizes = np.concatenate((rng.integers(1, 40, 200), [3000, 0, 1]))
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    labels, scores = rng.integers(0, 3, offsets[-1]), rng.permutation(offsets[-1]).astype(float)
    ours = values(rank(Lists(labels, offsets, scores)), parse_measure("nDCG" + cutoff))
    for q in (0, 50, 150, 200, 202):
        part = slice(offsets[q], offsets[q + 1])
        ranked = labels[part][np.argsort(-scores[part])].tolist()
        assert ours[q] == pytest.approx(oracles.value("nDCG" + cutoff, ranked), abs=1e-12)
    assert ours[201] == 0


def test_real_valued_labels_are_ranked_too():
    lists = Lists([0.5, 0.1, 0.9, 0.1], [0, 4], [3.0, 2.0, 1.0, 0.0])
    assert values(rank(lists), parse_measure("PairAcc"))[0] == pytest.approx(3 / 5)
    assert values(rank(lists), parse_measure("nDCG"))[0] == pytest.approx(oracles.value("nDCG", [0.5, 0.1, 0.9, 0.1]))


def test_err_rejects_labels_above_max_rel():
    with pytest.raises(DataError, match=r"labels must be at most max_rel=4 for ERR, got 5"):
        values(rank(Lists([5, 0], [0, 2], [1.0, 0.0])), parse_measure("ERR"))


def test_lists_without_scores_cannot_be_ranked():
    with pytest.raises(DataError, match="carry no scores"):
        rank(Lists([1], [0, 1]))
