"""Binarizing, filtering, scaling, and the papers' preparations."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.data.interactions import Interactions
from rankbound.data.loading import load_fold, load_set
from rankbound.data.preparation import (
    binarize,
    binarize_queries,
    keep_queries,
    keep_users,
    prepare_citeulike,
    prepare_movielens,
    relevant_only,
    scale_per_query,
)
from rankbound.data.ratings import read_ratings
from rankbound.data.splits import user_folds
from rankbound.data.synthetic import synthetic_interactions, synthetic_letor
from rankbound.errors import ArgumentError, DataError
from tests.tiers import examples


def test_binarize_by_threshold_and_by_highest_label() -> None:
    assert binarize([0, 1, 2, -1], 2).tolist() == [0, 0, 1, 0]
    assert binarize([0, 1, 1], "highest").tolist() == [0, 1, 1]
    assert binarize([], "highest").tolist() == []
    with pytest.raises(ArgumentError, match="at_least must be a number or"):
        binarize([1], "most")


def test_binarized_keeps_everything_but_the_labels() -> None:
    data = synthetic_letor(queries=10, seed=1)
    binary = binarize_queries(data, "highest")
    assert set(binary.lists.labels.tolist()) == {0, 1}
    assert binary.lists.labels.sum() == (data.lists.labels == data.lists.labels.max()).sum()
    assert binary.features is data.features
    assert binary.lists.qids is data.lists.qids


def test_keep_queries_counts_relevant_and_other_items() -> None:
    data = synthetic_letor(queries=60, seed=2)
    kept = keep_queries(data, relevant=2, irrelevant=3)
    for start, end in itertools.pairwise(kept.lists.offsets):
        labels = kept.lists.labels[start:end]
        assert (labels >= 1).sum() >= 2
        assert (labels < 1).sum() >= 3
    assert 0 < len(kept.lists) < len(data.lists)


def test_keep_users_numbers_users_anew_and_keeps_all_items() -> None:
    table = Interactions.from_columns([1, 1, 2, 3, 3], [10, 20, 30, 10, 40])
    kept = keep_users(table, 2)
    assert kept.user_names.tolist() == [1, 3]
    assert kept.users.tolist() == [0, 0, 1, 1]
    assert len(kept.item_names) == 4
    assert kept.compact().item_names.tolist() == [10, 20, 40]


def test_choices_without_ratings_cannot_be_filtered_by_rating() -> None:
    with pytest.raises(DataError, match="interactions without ratings cannot be binarized by rating"):
        relevant_only(Interactions.from_columns([1], [1]), 4)


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    method=st.sampled_from(["min-max", "standard"]),
    seed=st.integers(0, 1000),
)
@examples(80)
def test_scaling_works_query_by_query(sizes: list[int], method: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    X = rng.integers(-3, 4, (offsets[-1], 3)).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    scaled = scale_per_query(X, offsets, method)
    for start, end in itertools.pairwise(offsets):
        for column in range(3):
            raw, got = X[start:end, column], scaled[start:end, column]
            known = raw[~np.isnan(raw)]
            if len(known) == 0:
                assert np.isnan(got).all()
                continue
            shift, width = (known.min(), np.ptp(known)) if method == "min-max" else (known.mean(), known.std())
            expected = (raw - shift) / (width if width > 1e-12 else 1)
            np.testing.assert_allclose(got, expected, atol=1e-6)


def test_unknown_scaling_is_refused() -> None:
    with pytest.raises(ArgumentError, match='method must be "min-max" or "standard", got'):
        scale_per_query([[1.0]], [0, 1], "log")


def test_movielens_preparation_of_generated_ratings() -> None:
    ratings = synthetic_interactions(users=60, items=300, seed=3)
    kept = prepare_movielens(ratings)
    assert kept.per_user.min() >= 25
    assert kept.ratings is not None
    assert kept.ratings.min() >= 4
    assert len(kept.item_names) == len(ratings.item_names)
    assert len(prepare_movielens(ratings, items="relevant").item_names) == len(np.unique(kept.items))
    with pytest.raises(ArgumentError, match='items must be "rated" or "relevant"'):
        prepare_movielens(ratings, items="all")


@pytest.mark.real_data
def test_movielens_latest_small_as_in_the_thesis(data_dir: Path) -> None:
    kept = prepare_movielens(load_set("ml-latest-small"))
    assert (len(kept.user_names), len(kept), len(kept.item_names)) == (412, 45_523, 9_724)
    fold = user_folds(kept, folds=5, seed=1)
    for number in range(5):
        assert np.bincount(kept.users[fold == number], minlength=412).min() >= 5


@pytest.mark.real_data
def test_citeulike_as_in_the_metric_optimization_study(data_dir: Path) -> None:
    kept = prepare_citeulike(read_ratings(data_dir / "citeulike-a" / "users.dat.gz"))
    assert (len(kept.user_names), len(kept.item_names), len(kept)) == (2_465, 16_702, 157_527)
    ours = set(zip(kept.user_names[kept.users].tolist(), kept.item_names[kept.items].tolist(), strict=True))
    for number in range(3):
        fold = load_fold("citeulike-a", number)
        assert (len(fold.train), len(fold.test), fold.validation) == (126_070, 31_457, None)
        pairs = [
            set(zip(part.user_names[part.users].tolist(), part.item_names[part.items].tolist(), strict=True))
            for part in (fold.train, fold.test)
        ]
        assert not pairs[0] & pairs[1]
        assert pairs[0] | pairs[1] == ours
        np.testing.assert_array_equal(fold.test.per_user, np.rint(0.2 * kept.per_user))
