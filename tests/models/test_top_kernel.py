"""The first items of queries: compared with a full sort, with ties and queries of any length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbound.models.top_kernel import first_items


@settings(deadline=None)  # the first call compiles
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    k=st.integers(1, 12),
    levels=st.sampled_from([1, 2, 5, 1000]),
    seed=st.integers(0, 99),
)
def test_the_first_items_and_their_ties_are_there_in_order(sizes, k, levels, seed):
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    scores = np.random.default_rng(seed).integers(0, levels, offsets[-1]).astype(np.float64)
    order, starts = first_items(scores, offsets, k)
    for query, size in enumerate(sizes):
        own = scores[offsets[query] : offsets[query + 1]]
        items = order[starts[query] : starts[query + 1]] - offsets[query]
        by_score = np.argsort(-own, kind="stable")
        needed = int((own >= own[by_score[k - 1]]).sum()) if size > k else size
        assert len(items) >= needed
        assert items.tolist() == by_score[: len(items)].tolist()


@pytest.mark.parametrize("scores", [np.arange(500.0), -np.arange(500.0), np.zeros(500), np.r_[np.zeros(499), 1.0]])
def test_sorted_and_constant_scores(scores):
    order, starts = first_items(scores, np.array([0, 500]), 3)
    assert order[:3].tolist() == np.argsort(-scores, kind="stable")[:3].tolist()
    assert starts.tolist() == [0, len(order)]
