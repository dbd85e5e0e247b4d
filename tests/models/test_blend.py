"""Blend: scores equal loops over users, weights behave as weights do, and nothing is lost in files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.tiers import examples

pytest.importorskip("sklearn")

from sklearn.base import clone

from rankbound.data import Interactions, synthetic_interactions
from rankbound.data.splits import monte_carlo
from rankbound.errors import ArgumentError, DataError
from rankbound.models import (
    EASE,
    Blend,
    ImplicitALS,
    ItemKNN,
    MatrixFactorization,
    Popularity,
    Recommender,
    load_ranker,
)
from rankbound.models.recommenders import full_ranking
from rankbound.models.recommenders.blend import simplex_grid

DATA = synthetic_interactions(users=50, items=30, seed=3)
(IS_TEST,) = monte_carlo(DATA, 1, 0.3, seed=0)
TRAIN, HELD_OUT = DATA.rows(~IS_TEST), DATA.rows(IS_TEST)
USERS = np.arange(len(DATA.user_names), dtype=np.int32)


def members() -> list[Recommender]:
    return [EASE(l2=20.0), ImplicitALS(factors=4, epochs=4), ItemKNN(neighbors=5), Popularity()]


def standardized(model: Recommender, train: Interactions) -> NDArray[np.float64]:
    """Scores minus their mean, divided by their deviation, over the items that a user has not, by a loop over users."""
    scores = model._score_block(USERS).astype(float)
    for user, row in enumerate(scores):
        seen = set(train.items[train.users == user].tolist())
        others = [item for item in set(train.items.tolist()) if item not in seen]
        row -= row[others].mean()
        row /= row[others].std() or 1
    return scores


@pytest.mark.parametrize("weights", [None, [1, 2, 3, 4], (0.5, 0, 0, 1.5), np.array([0, 1, 1, 0])])
def test_scores_are_weighted_sums_of_standardized_scores(weights: Any) -> None:
    model = Blend(members(), weights).fit(TRAIN)
    fractions = np.ones(4) / 4 if weights is None else np.array(weights) / np.sum(weights)
    np.testing.assert_allclose(model.weights_, fractions)
    expected = sum(
        weight * standardized(member.fit(TRAIN), TRAIN) for weight, member in zip(fractions, members(), strict=True)
    )
    np.testing.assert_allclose(model._score_block(USERS), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("index", range(4))
def test_a_single_weight_gives_exactly_the_ranking_of_its_model(index: int) -> None:
    model = Blend(members(), np.eye(4)[index] * 3).fit(TRAIN)
    single = members()[index].fit(TRAIN)
    assert model.recommend(k=30, exclude_seen=False).equals(single.recommend(k=30, exclude_seen=False))
    assert model.score(HELD_OUT) == single.score(HELD_OUT)


@examples(20)
@given(
    order=st.permutations(range(4)),
    weights=st.lists(st.one_of(st.just(0.0), st.floats(0.01, 10)), min_size=4, max_size=4).filter(any),
    factor=st.floats(0.01, 100),
)
def test_order_of_models_and_unit_of_weights_change_nothing(
    order: list[int], weights: list[float], factor: float
) -> None:
    model = Blend(members(), weights).fit(TRAIN)
    other = Blend([members()[index] for index in order], [weights[index] * factor for index in order]).fit(TRAIN)
    np.testing.assert_allclose(other.weights_, model.weights_[order])
    np.testing.assert_allclose(other._score_block(USERS), model._score_block(USERS), rtol=1e-4, atol=1e-5)


def test_two_models_in_either_order_recommend_the_same() -> None:
    first, second = EASE(l2=20.0), ImplicitALS(factors=4)
    model, other = Blend([first, second], [0.3, 0.7]).fit(TRAIN), Blend([second, first], [0.7, 0.3]).fit(TRAIN)
    assert model.recommend(k=30).equals(other.recommend(k=30))


def test_the_scale_of_a_model_does_not_matter() -> None:
    weights = np.full(len(TRAIN), 1024.0)  # popularity becomes 1024 times as large, without rounding
    heavy = Popularity().fit(TRAIN, sample_weight=weights)
    model = Blend([EASE(), Popularity()]).fit(TRAIN)
    before = model._score_block(USERS)
    model.models_ = (model.models_[0], heavy)
    np.testing.assert_allclose(model._score_block(USERS), before, rtol=1e-5, atol=1e-5)


def test_models_without_differences_and_users_without_candidates() -> None:
    everything = (np.repeat(["a", "b"], 3), ["x", "y", "z"] * 2)
    model = Blend(["Popularity", "ItemKNN"]).fit(everything)
    assert np.isfinite(model.recommend(exclude_seen=False)["score"].to_numpy()).all()
    assert model.recommend().height == 0


# ---- the selection of weights ----------------------------------------------------------------------------------------


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("measure", ["nDCG@10", "R@5", "AP"])
def test_selected_weights_are_at_least_as_good_as_every_model(measure: str) -> None:
    models = members()
    model = Blend(models, weight_steps=4, measure=measure).fit(TRAIN, eval_set=HELD_OUT)
    singles = [member.set_params(measure=measure).fit(TRAIN).score(HELD_OUT) for member in models]
    assert model.eval_score_ >= max(singles)
    assert model.eval_score_ == pytest.approx(model.score(HELD_OUT), abs=1e-12)
    by_hand = [Blend(members(), weights, measure=measure).fit(TRAIN).score(HELD_OUT) for weights in simplex_grid(4, 4)]
    assert model.eval_score_ == pytest.approx(max(by_hand), abs=1e-12)


def test_weights_are_selected_in_blocks_and_every_model_is_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Blend(["EASE", "ItemKNN"]).fit(TRAIN, eval_set=HELD_OUT)
    monkeypatch.setattr(full_ranking, "_BLOCK_SCORES", 7 * 30)
    fits: list[int] = []
    scored: list[int] = []
    fit, score = EASE._fit_interactions, EASE._score_block
    monkeypatch.setattr(EASE, "_fit_interactions", lambda self, *args: (fits.append(1), fit(self, *args))[1])
    monkeypatch.setattr(EASE, "_score_block", lambda self, users: (scored.append(len(users)), score(self, users))[1])
    model = Blend(["EASE", "ItemKNN"]).fit(TRAIN, eval_set=HELD_OUT)
    assert len(fits) == 1
    assert max(scored) <= 7
    assert sum(scored) == 2 * len(np.unique(HELD_OUT.users))  # once for its own measure, once for all weights
    np.testing.assert_array_equal(model.weights_, whole.weights_)


def test_given_weights_are_kept() -> None:
    model = Blend(["EASE", "Popularity"], weights=[0, 1]).fit(TRAIN, eval_set=HELD_OUT)
    assert model.weights_.tolist() == [0, 1]
    assert model.eval_score_ == Popularity().fit(TRAIN, eval_set=HELD_OUT).eval_score_


def test_equal_values_select_the_most_even_weights() -> None:
    model = Blend(["Popularity", "Popularity"], weight_steps=4).fit(TRAIN, eval_set=HELD_OUT)
    assert model.weights_.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("count", "steps", "size"), [(1, 5, 1), (2, 10, 11), (3, 10, 66), (4, 5, 56)])
def test_the_grid_has_all_weights(count: int, steps: int, size: int) -> None:
    grid = simplex_grid(count, steps)
    assert len({tuple(row) for row in grid.tolist()}) == len(grid) == size
    np.testing.assert_allclose(grid.sum(axis=1), 1)
    assert {tuple(row) for row in np.eye(count).tolist()} <= {tuple(row) for row in grid.tolist()}


# ---- parameters ------------------------------------------------------------------------------------------------------


def test_parameters_of_models_are_parameters_of_the_blend() -> None:
    first, second, ease = ImplicitALS(factors=4), ImplicitALS(factors=8), EASE()
    model = Blend([first, ease, second])
    params = model.get_params()
    assert (params["ImplicitALS-1__factors"], params["ImplicitALS-2__factors"]) == (4, 8)
    assert params["EASE"] is ease
    model.set_params(**{"ImplicitALS-2__factors": 5, "weights": [1, 2, 3]})
    assert (second.factors, model.weights) == (5, [1, 2, 3])
    model.set_params(EASE=ItemKNN(), weights=None)
    assert [type(entry).__name__ for entry in model.models] == ["ImplicitALS", "ItemKNN", "ImplicitALS"]
    with pytest.raises(ValueError, match="Invalid parameter 'EASE'"):
        model.set_params(EASE__l2=3)
    copied = clone(model)
    assert copied.models[0] is not first
    assert copied.models[0].get_params() == first.get_params()
    assert set(Blend().get_params()) == {"models", "weights", "weight_steps", "measure", "random_state"}


def test_models_are_cloned_and_get_the_seed() -> None:
    als = ImplicitALS(factors=4, random_state=3)
    own, seeded, again = (Blend([als, "EASE"], random_state=seed).fit(TRAIN) for seed in (None, 5, 5))
    assert not hasattr(als, "n_queries_")
    assert als.random_state == 3
    assert [model.models_[0].random_state for model in (own, seeded, again)] == [3, 5, 5]
    assert seeded.recommend().equals(again.recommend())
    assert not seeded.recommend().equals(own.recommend())


def test_named_models_have_the_measure_of_the_blend() -> None:
    model = Blend(["EASE", ItemKNN()], measure="R@5").fit(TRAIN)
    assert [entry.measure for entry in model.models_] == ["R@5", "nDCG@10"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Blend("EASE"), "models must be a list of recommenders or of their names, got 'EASE'"),
        (Blend([]), r"models must be a list of recommenders or of their names, got \[\]"),
        (Blend(["EASE", "AdaRank"]), "models must be recommenders or names of them .*, got 'AdaRank'"),
        (Blend([EASE]), "models must be recommenders or names of them .*, got <class"),
        (Blend(weights=[1]), r"weights must be 2 numbers of at least 0, one for each model .*, got \[1\]"),
        (Blend(weights=[1, -1]), r"weights must be 2 numbers of at least 0.*, got \[1, -1\]"),
        (Blend(weights=[0, 0]), r"not all of them 0, got \[0, 0\]"),
        (Blend(weights=[1, np.nan]), r"weights must be 2 numbers of at least 0.*, got \[1, nan\]"),
        (Blend(weights="even"), "weights must be 2 numbers of at least 0.*, got 'even'"),
        (Blend(weight_steps=0), "weight_steps must be at least 1, got 0"),
        (Blend(weight_steps=2.5), "weight_steps must be an integer, got 2.5"),
        (Blend(["EASE"] * 8), "weight_steps must give at most 10,000 weights to select from, got 19,448 with 10 steps"),
        (Blend([EASE(l2=0)]), "l2 must be above 0, got 0"),
        (Blend(random_state=-1), "random_state must be an integer of at least 0"),
        (Blend(measure="word"), "word"),
    ],
)
def test_arguments_are_checked(model: Blend, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        model.fit(TRAIN, eval_set=HELD_OUT)


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True])
def test_saved_blends_are_equal(nested: bool, tmp_path: Path) -> None:
    models: list[Any] = [*members(), MatrixFactorization(factors=4, epochs=3), "EASE"]
    if nested:
        models = ["Popularity", Blend(models, weights=tuple(range(6)))]
    model = Blend(models, weight_steps=2, random_state=7).fit(TRAIN, eval_set=HELD_OUT)
    model.save(tmp_path / "model")
    loaded = load_ranker(tmp_path / "model")
    assert isinstance(loaded, Blend)
    assert loaded.recommend(k=30).equals(model.recommend(k=30))
    assert (loaded.weights_.tolist(), loaded.eval_score_) == (model.weights_.tolist(), model.eval_score_)
    assert [entry.eval_score_ for entry in loaded.models_] == [entry.eval_score_ for entry in model.models_]
    assert repr(loaded.get_params(deep=False)) == repr(model.get_params(deep=False))
    assert loaded.models_[0].recommend().equals(model.models_[0].recommend())
    assert not list(tmp_path.rglob("*.pkl"))
    loaded.save(tmp_path / "again")
    assert load_ranker(tmp_path / "again").score(HELD_OUT) == model.score(HELD_OUT)


def test_weights_in_an_array_can_be_saved(tmp_path: Path) -> None:
    Blend(["EASE", "Popularity"], weights=np.array([1, 3])).fit(TRAIN).save(tmp_path / "model")
    assert load_ranker(tmp_path / "model").weights_.tolist() == [1 / 4, 3 / 4]


def change(folder: Path, **entries: Any) -> None:
    """Change the index of a model as someone would who also makes the checksum fit."""
    index = json.loads((folder / "model.json").read_text()) | entries
    del index["sha256"]
    index["sha256"] = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "models",
    [
        ["EASE"],
        ["EASE", "EASE"],
        ["EASE", {"ranker": "Path", "params": {}}],
        ["EASE", {"ranker": "AdaRank", "params": {}}],
        ["EASE", {"ranker": "Popularity", "params": {"l2": 3}}],
        "EASE",
    ],
    ids=str,
)
def test_inconsistent_files_are_refused(models: Any, tmp_path: Path) -> None:
    Blend(["EASE", Popularity()]).fit(TRAIN).save(tmp_path / "model")
    params = json.loads((tmp_path / "model" / "model.json").read_text())["params"]
    change(tmp_path / "model", params=params | {"models": models})
    with pytest.raises(DataError, match=str(tmp_path / "model")):
        load_ranker(tmp_path / "model")


def test_a_model_of_ones_own_can_be_blended_but_not_saved(tmp_path: Path) -> None:
    class Newest(Recommender):
        """Recommend the items with the highest ids."""

        def _fit_interactions(self, train: Interactions, held_out: Any, weights: Any) -> None:
            pass

        def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
            return np.tile(np.arange(len(self.item_ids_), dtype=np.float32), (len(users), 1))

    model = Blend([Newest(), "EASE"], weights=[1, 1]).fit(TRAIN)
    assert model.recommend(k=1).height > 0
    with pytest.raises(ArgumentError, match="only the rankers of rankbound can be saved"):
        model.save(tmp_path / "model")
