"""The first items of queries and of dense rows: compared with a full sort, with ties and lists of any length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankbound.models.recommenders import top_items
from rankbound.models.recommenders.top_items import LOWEST, first_items, top_of_rows


@pytest.fixture(params=[True, False], ids=["kernels", "numpy"], autouse=True)
def with_kernels(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(top_items, "kernel", lambda *_: None)


ALSO_BY_NUMPY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@ALSO_BY_NUMPY
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


@ALSO_BY_NUMPY
@given(
    rows=st.integers(1, 4),
    width=st.integers(1, 150),
    k=st.sampled_from([1, 2, 10, 150, 300]),
    levels=st.sampled_from([1, 2, 5, 1000]),
    seed=st.integers(0, 99),
)
def test_top_of_rows_is_a_stable_sort(rows, width, k, levels, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-levels, levels, (rows, width)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.3] = LOWEST
    items, values = top_of_rows(scores.copy(), k)
    for row in range(rows):
        expected = [item for item in np.argsort(-scores[row], kind="stable") if scores[row, item] > LOWEST][:k]
        assert items[row].tolist() == expected + [-1] * (min(k, width) - len(expected))
        assert values[row, : len(expected)].tolist() == scores[row, expected].tolist()


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("k", [3, 260])
def test_top_of_sorted_rows(order, k):
    scores = np.arange(1000, dtype=np.float32)[None, :: 1 if order == "ascending" else -1].copy()
    assert top_of_rows(scores, k)[1][0].tolist() == list(range(999, 999 - k, -1))
