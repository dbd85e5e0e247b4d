"""Each algorithm against a slow one that shares no code with it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from rankbound import difficulty_weights, evaluate
from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError, DataError, WeightWarning
from rankbound.lists import Lists
from rankbound.measures import parse_measure
from rankbound.models import (
    AdaRank,
    CoordinateAscent,
    LambdaMART,
    LogisticRanker,
    RandomForestRanker,
    RankBoost,
    load_ranker,
)
from rankbound.models.export import export_xgboost_json
from rankbound.models.measuring import mean_measure, measure_candidates
from rankbound.models.rankers import trees
from rankbound.models.rankers.svmmap import _Dual, find_most_violated

DATA = synthetic_letor(queries=25, features=6, seed=3, documents=(4, 15))
X, LISTS = DATA.features.astype(np.float64), DATA.lists
Y, QID = LISTS.labels, LISTS.query_of_item


def rows(query: int) -> slice:
    return slice(LISTS.offsets[query], LISTS.offsets[query + 1])


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Rows of better and worse items, pair after pair."""
    found = [
        (a, b)
        for start, stop in itertools.pairwise(LISTS.offsets)
        for a in range(start, stop)
        for b in range(start, stop)
        if Y[a] > Y[b]
    ]
    better, worse = np.array(found).T
    return better, worse


@pytest.mark.parametrize("balance", [True, False])
def test_rankboost_is_the_algorithm_on_explicit_pairs(balance: bool) -> None:
    better, worse = pairs()
    weight = 1 / np.bincount(QID[better])[QID[better]] if balance else np.ones(len(better))
    weight /= weight.sum()
    scores = np.zeros(len(Y))
    for _ in range(12):
        best = (0.0, 0, 0.0)
        for k in range(X.shape[1]):
            for threshold in np.unique(X[:, k])[:-1]:
                h = X[:, k] > threshold
                r = float(weight @ (h[better].astype(float) - h[worse]))
                if abs(r) > abs(best[0]) + 1e-12:
                    best = (r, k, threshold)
        r, k, threshold = best
        alpha = 0.5 * np.log((1 + r) / (1 - r))
        h = alpha * (X[:, k] > threshold)
        scores += h
        weight = weight * np.exp(h[worse] - h[better])
        weight /= weight.sum()
    fast = RankBoost(n_estimators=12, n_thresholds=None, balance=balance).fit(X, Y, qid=QID)
    np.testing.assert_allclose(fast.predict(X), scores, atol=1e-9)


def test_rankboost_lowers_the_exponential_loss_and_stops_when_all_pairs_are_in_order() -> None:
    better, worse = pairs()
    losses = []
    for rounds in (1, 5, 25, 100):
        scores = RankBoost(n_estimators=rounds, balance=False).fit(X, Y, qid=QID).predict(X)
        losses.append(np.exp(scores[worse] - scores[better]).mean())
    assert losses == sorted(losses, reverse=True)
    assert len(RankBoost(n_estimators=500).fit([[0.0], [1.0], [2.0]], [0, 1, 1]).alphas_) < 10


def test_adarank_is_the_published_algorithm_while_every_round_moves_the_measure() -> None:
    measure = "AP"
    kept = [q for q in range(len(LISTS)) if 0 < (Y[rows(q)] > 0).mean() < 1]

    def average_precision(scores: np.ndarray) -> np.ndarray:
        values = []
        for q in kept:
            relevant = (Y[rows(q)] > 0)[np.argsort(-scores[rows(q)], kind="stable")]
            values.append(np.mean(np.cumsum(relevant)[relevant] / (np.flatnonzero(relevant) + 1)))
        return np.array(values)

    weak = [sign * X[:, k] for sign in (1, -1) for k in range(X.shape[1])]
    values = [average_precision(h) for h in weak]
    distribution = np.full(len(kept), 1 / len(kept))
    scores, best, best_scores = np.zeros(len(Y)), -1.0, None
    for _ in range(4):
        chosen = int(np.argmax([distribution @ value for value in values]))
        edge = values[chosen]
        scores = scores + 0.5 * np.log((distribution @ (1 + edge)) / (distribution @ (1 - edge))) * weak[chosen]
        reached = average_precision(scores)
        distribution = np.exp(-reached) / np.exp(-reached).sum()
        if reached.mean() > best:
            best, best_scores = reached.mean(), scores
    ranker = AdaRank(measure, n_estimators=4, tolerance=0.0, standardize=False).fit(X, Y, qid=QID)
    np.testing.assert_allclose(ranker.predict(X), best_scores, rtol=1e-9)


def test_adarank_with_many_rounds_is_at_least_as_good_as_its_best_feature() -> None:
    best = max(mean_measure(LISTS, sign * X[:, k], "nDCG") for sign in (1, -1) for k in range(X.shape[1]))
    assert AdaRank().fit(X, Y, qid=QID).score(X, Y, QID) > best


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("measure", ["nDCG@5", "AP", "EM(nDCG)", "PairAcc"])
def test_coordinate_ascent_ends_where_no_step_of_its_ladder_helps(measure: str) -> None:
    ranker = CoordinateAscent(measure, n_restarts=1, tolerance=0.0, standardize=False).fit(X, Y, qid=QID)
    reached = ranker.score(X, Y, QID)
    assert reached > mean_measure(LISTS, X.sum(axis=1), measure)
    for k in range(X.shape[1]):
        for step in (0.05, -0.05, 0.35, -0.35):
            moved = ranker.coef_.copy()
            moved[k] *= 1 + step
            assert mean_measure(LISTS, X @ moved, measure) <= reached + 1e-12
    assert np.abs(ranker.coef_).sum() == pytest.approx(1)


def test_more_restarts_are_never_worse() -> None:
    one, three = (CoordinateAscent(n_restarts=n, max_sweeps=3).fit(X, Y, qid=QID).score(X, Y, QID) for n in (1, 3))
    assert three >= one


def test_candidates_are_measured_as_if_one_by_one() -> None:
    scores = np.random.default_rng(0).normal(size=(len(Y), 7)).round(1)  # with ties
    for name in ("nDCG@5", "AP(rel=2)", "UL2(RR)"):
        together = measure_candidates(LISTS, scores, parse_measure(name))
        for k in range(7):
            alone = evaluate(LISTS.with_scores(scores[:, k]), measures=[name]).values[name]
            np.testing.assert_array_equal(together[:, k], alone)


# ---- SVMmap ----------------------------------------------------------------------------------------------------------


def test_the_most_violated_ranking_is_the_best_of_all_permutations() -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        n = int(rng.integers(2, 7))
        relevant = np.arange(n) < rng.integers(1, n)
        scores = rng.normal(size=n) * rng.choice([0.1, 1.0])
        good, other = np.flatnonzero(relevant), np.flatnonzero(~relevant)
        largest = -np.inf
        for order in itertools.permutations(range(n)):
            rank = np.argsort(order) + 1
            precision = np.mean(np.arange(1, len(good) + 1) / np.sort(rank[good]))
            psi = np.mean([(scores[i] - scores[j]) * (1 if rank[i] < rank[j] else -1) for i in good for j in other])
            largest = max(largest, 1 - precision + psi)
        weights, lost = find_most_violated(scores, relevant)
        psi_of_best = np.mean([scores[i] - scores[j] for i in good for j in other])
        assert lost + psi_of_best - weights @ scores == pytest.approx(largest)


def test_the_dual_meets_the_primal() -> None:
    rng = np.random.default_rng(2)
    dual = _Dual(3, 5.0)
    planes, losses = rng.normal(size=(6, 3)), rng.random(6)
    for plane, loss in zip(planes, losses, strict=True):
        dual.add(plane, loss)

    def primal(w: np.ndarray) -> float:
        return 0.5 * w @ w + 5.0 * max(0.0, (losses - planes @ w).max())

    reached = primal(dual.weights)
    for step in rng.normal(size=(2000, 3)) * rng.choice([1e-3, 1e-1, 1.0], size=(2000, 1)):
        assert primal(dual.weights + step) >= reached - 1e-5


# ---- trees and points ------------------------------------------------------------------------------------------------


def test_bounded_lambdarank_is_lambdarank_with_weights_per_query() -> None:
    settings = {"n_estimators": 5, "min_child_samples": 2}
    weights = difficulty_weights(
        Y, QID, measure="nDCG(dcg='exp-log2')", bounding="min-max", per="row", form="plain", effective=None,
        normalize=True,
    )  # fmt: skip
    bounded = LambdaMART("lambdarank", "min-max", **settings).fit(X, Y, qid=QID)
    weighted = LambdaMART("lambdarank", **settings).fit(X, Y, qid=QID, sample_weight=weights)
    np.testing.assert_allclose(bounded.predict(X), weighted.predict(X))


@pytest.mark.parametrize("objective", ["lambdarank", "noisy-lambda-nDCG"])
def test_bounding_with_weights_of_queries_warns(objective: str) -> None:
    weights = difficulty_weights(Y, QID, per="row")
    assert len(np.unique(weights)) > 1
    ranker = LambdaMART(objective, "expectation-max", n_estimators=2, min_child_samples=2)
    with pytest.warns(WeightWarning, match="difficulty counts twice"):
        ranker.fit(X, Y, qid=QID, sample_weight=weights)
    ranker.fit(X, Y, qid=QID, sample_weight=np.full(len(Y), 2.0))  # equal weights say nothing about difficulty


def test_the_default_objective_is_seeded_by_random_state() -> None:
    first, again, other = (
        LambdaMART(n_estimators=5, min_child_samples=2, random_state=seed).fit(X, Y, qid=QID).predict(X)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0


# ---- missing values and categories -----------------------------------------------------------------------------------


def with_categories() -> tuple[Any, Any, Any]:
    """The relevance depends on the parity of a category, which a few thresholds cannot express, and on a NaN."""
    rng = np.random.default_rng(6)
    features = np.stack([rng.integers(0, 24, 1200).astype(float), rng.normal(size=1200)], axis=1)
    missing = rng.random(1200) < 0.3
    labels = (features[:, 0] % 2).astype(int) + missing
    features[missing, 1] = np.nan
    return features, labels, np.repeat(np.arange(60), 20)


def test_lambdamart_learns_from_missing_values_and_categories(tmp_path: Path) -> None:
    features, labels, qid = with_categories()
    settings = {"n_estimators": 8, "num_leaves": 4, "min_child_samples": 5}
    numeric = LambdaMART(**settings).fit(features, labels, qid=qid)
    ranker = LambdaMART(categorical_features=(0,), **settings).fit(features, labels, qid=qid)
    assert ranker.score(features, labels, qid) > numeric.score(features, labels, qid) + 0.02
    assert ranker.score(features, labels, qid) > 0.99
    ranker.save(tmp_path / "model")
    np.testing.assert_array_equal(load_ranker(tmp_path / "model").predict(features), ranker.predict(features))
    frame = pl.DataFrame(features, schema=["kind", "size"])
    named = LambdaMART(categorical_features=("kind",), **settings).fit(frame, labels, qid=qid)
    np.testing.assert_array_equal(named.predict(frame), ranker.predict(features))
    with pytest.raises(ArgumentError, match="requires numeric features, got a split by categories"):
        export_xgboost_json(ranker, tmp_path / "trees.json")


@pytest.mark.parametrize(
    ("columns", "value", "message"),
    [
        ((2,), 0.0, "categorical_features must be columns, by name or index below 2, got 2"),
        (("kind",), 0.0, "got 'kind'"),
        ((0,), 0.5, r"integers from 0 to 1000000, got 0\.5 in 0"),
        ((0,), -1.0, r"got -1\.0 in 0"),
    ],
)
def test_wrong_categories_are_named(columns: tuple[Any, ...], value: float, message: str) -> None:
    features, labels, qid = with_categories()
    features[3, 0] = value
    with pytest.raises((ArgumentError, DataError), match=message):
        LambdaMART(categorical_features=columns).fit(features, labels, qid=qid)


def test_missing_values_take_their_side_in_the_exported_trees(tmp_path: Path) -> None:
    features, labels, qid = with_categories()
    ranker = LambdaMART(n_estimators=5, min_child_samples=5).fit(features, labels, qid=qid)
    export_xgboost_json(ranker, tmp_path / "trees.json")

    def leaf(node: dict[str, Any], row: dict[str, float]) -> float:
        while "leaf" not in node:
            value = row[node["split"]]
            side = "missing" if np.isnan(value) else "yes" if value < node["split_condition"] else "no"
            node = next(child for child in node["children"] if child["nodeid"] == node[side])
        return float(node["leaf"])

    trees = json.loads((tmp_path / "trees.json").read_text())
    features = features.astype(np.float32)
    scores = [sum(leaf(tree, {"f0": a, "f1": b}) for tree in trees) for a, b in features[:200]]
    np.testing.assert_allclose(scores, ranker.predict(features)[:200], rtol=1e-5, atol=1e-6)


@pytest.mark.full("takes seconds")
def test_lambdarank_says_which_labels_it_takes_and_other_objectives_take_any() -> None:
    with pytest.raises(DataError, match=r"integer labels from 0 to 30.*got 0\.5"):
        LambdaMART("lambdarank").fit(X, Y / 2, qid=QID)
    with pytest.raises(DataError, match="got 31"):
        LambdaMART("lambdarank").fit(X, Y + 29, qid=QID)
    assert LambdaMART(n_estimators=3, min_child_samples=2).fit(X, Y / 2, qid=QID).score(X, Y, QID) > 0.5
    assert LambdaMART("RankNet", n_estimators=3, min_child_samples=2).fit(X, Y / 2, qid=QID).score(X, Y, QID) > 0.5


def test_early_stopping_keeps_the_best_round() -> None:
    rng = np.random.default_rng(0)
    noise = (rng.random((200, 6)), rng.integers(0, 2, 200), np.repeat(np.arange(10), 20))
    ranker = LambdaMART(n_estimators=200, min_child_samples=2, early_stopping_rounds=5)
    ranker.fit(X, Y, qid=QID, eval_set=noise)
    assert ranker.boosters_[0].num_trees() < 150


def test_histograms_that_are_computed_again_give_the_same_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A histogram of 1,000 features with 100 values takes 1.6 MB: of 31 leaves, few fit into 4 MB."""
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 100, (400, 1000)).astype(np.float64)
    labels, qid = (wide[:, :3].sum(axis=1) > 150).astype(float), np.repeat(np.arange(20), 20)
    settings = {"n_estimators": 3, "num_leaves": 31, "min_child_samples": 2, "max_features": 0.5}
    scores = []
    for megabytes in (4096, 4):
        monkeypatch.setattr(trees, "_HISTOGRAM_MEGABYTES", megabytes)
        scores.append(RandomForestRanker(**settings).fit(wide, labels, qid=qid).predict(wide))
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-9)


def test_a_forest_of_two_labels_is_the_same_for_both_tasks() -> None:
    settings = {"n_estimators": 5, "min_child_samples": 2}
    one, other = (RandomForestRanker(t, **settings).fit(X, Y > 0, qid=QID) for t in ("regression", "classification"))
    np.testing.assert_allclose(one.predict(X), other.predict(X), atol=1e-12)


def test_logistic_scores_are_expected_labels_and_l1_drops_features() -> None:
    scores = LogisticRanker().fit(X, Y, qid=QID).predict(X)
    assert scores.min() >= 0
    assert scores.max() <= 2
    assert scores.mean() == pytest.approx(Y.mean(), abs=0.01)
    sparse = LogisticRanker("l1", C=0.1).fit(X, Y, qid=QID)
    assert 0 < np.count_nonzero(sparse.coef_) < sparse.coef_.size


def test_pointwise_models_refuse_more_levels_than_classes() -> None:
    with pytest.raises(DataError, match="at most 32 distinct labels, got 40"):
        LogisticRanker().fit(np.arange(40.0)[:, None], np.arange(40))


def test_lists_that_are_not_neighbors_come_together() -> None:
    assert Lists.from_qid([1, 0, 0], ["a", "b", "a"], ids=np.arange(3)).ids.tolist() == [0, 2, 1]
