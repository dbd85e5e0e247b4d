"""Generated data are the same for a seed, uneven, and can be learnt."""

from __future__ import annotations

import numpy as np
import pytest

from rankbound.data.synthetic import synthetic_images, synthetic_interactions, synthetic_letor
from rankbound.errors import ArgumentError


def test_the_seed_decides() -> None:
    np.testing.assert_array_equal(synthetic_letor(seed=3).features, synthetic_letor(seed=3).features)
    assert synthetic_letor(seed=3).features.shape != synthetic_letor(seed=4).features.shape
    np.testing.assert_array_equal(synthetic_interactions(seed=3).items, synthetic_interactions(seed=3).items)
    assert len(synthetic_interactions(seed=3)) != len(synthetic_interactions(seed=4))
    np.testing.assert_array_equal(synthetic_images(50, seed=3).images, synthetic_images(50, seed=3).images)
    assert (synthetic_images(50, seed=3).images != synthetic_images(50, seed=4).images).any()


def test_queries_differ_in_size_and_difficulty() -> None:
    data = synthetic_letor(queries=300, seed=0)
    lists = data.lists
    relevant = np.bincount(lists.query_of_item, weights=lists.labels > 0, minlength=300) / lists.sizes
    assert lists.sizes.min() < 10 < 80 < lists.sizes.max()
    assert relevant.std() > 0.1
    assert (relevant == 0).any()
    assert set(lists.labels.tolist()) == {0, 1, 2}
    assert data.features.min() == 0
    assert data.features.max() == 1


def test_features_tell_relevance() -> None:
    data = synthetic_letor(queries=300, seed=0)
    X, y = data.features, data.lists.labels
    half = len(y) // 2
    A = np.column_stack((X, np.ones(len(X))))
    weights = np.linalg.lstsq(A[:half], y[:half], rcond=None)[0]
    assert np.corrcoef(A[half:] @ weights, y[half:])[0, 1] > 0.3


def test_popularity_has_a_long_tail_and_users_differ_in_activity() -> None:
    table = synthetic_interactions(users=300, items=500, seed=0)
    popularity = np.sort(np.bincount(table.items))[::-1]
    assert popularity[:50].sum() > 2 * popularity[-200:].sum()
    assert table.per_user.max() > 5 * table.per_user.min()
    assert table.ratings is not None
    assert 0.5 <= table.ratings.min() < table.ratings.max() <= 5.0
    assert set((table.ratings * 2 % 1).tolist()) == {0.0}


def test_tastes_can_be_learnt_from_other_users() -> None:
    table = synthetic_interactions(users=300, items=300, seed=0)
    R = np.zeros((300, len(table.item_names)))
    R[table.users, table.items] = table.ratings
    known = R > 0
    hidden = known & (np.random.default_rng(0).random(R.shape) < 0.2)
    seen = known & ~hidden
    mean = R[seen].mean()
    U, s, V = np.linalg.svd(np.where(seen, R - mean, 0), full_matrices=False)
    guess = (U[:, :8] * s[:8]) @ V[:8]
    assert np.corrcoef(guess[hidden], R[hidden])[0, 1] > 0.2


def test_images_tell_age() -> None:
    faces = synthetic_images(400, size=16, seed=0)
    brightness = faces.images.reshape(400, -1).mean(axis=1)
    assert np.corrcoef(brightness, faces.ages)[0, 1] > 0.5


@pytest.mark.parametrize(
    "call",
    [
        lambda: synthetic_letor(queries=0),
        lambda: synthetic_letor(documents=(5, 2)),
        lambda: synthetic_interactions(items=3),
        lambda: synthetic_images(size=2),
    ],
)
def test_impossible_sizes_are_refused(call: object) -> None:
    with pytest.raises(ArgumentError, match="needs"):
        call()  # type: ignore[operator]
