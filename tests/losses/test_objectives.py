"""The losses inside LightGBM and XGBoost."""

from __future__ import annotations

import numpy as np
import pytest

from rankbound.errors import ArgumentError, DataError
from rankbound.losses import (
    NDCGLoss,
    RankNetLoss,
    get_loss,
    gradient_and_hessian,
    lightgbm_objective,
    loss_names,
    xgboost_objective,
)

RNG = np.random.default_rng(0)
SIZES = np.full(60, 12)
OFFSETS = np.concatenate(([0], np.cumsum(SIZES)))
FEATURES = RNG.normal(size=(OFFSETS[-1], 5))
LABELS = np.clip(np.round(FEATURES[:, 0] + 0.5 * RNG.normal(size=OFFSETS[-1])), 0, 3).astype(int)


def ndcg(scores):
    loss = NDCGLoss(alpha=1e3)
    return -loss.value_and_gradient(np.asarray(scores, dtype=float), loss.plan(LABELS, OFFSETS)).values.mean()


@pytest.mark.parametrize("name", loss_names(5))
def test_hessian_is_positive_and_gradient_that_of_the_sum(name):
    loss = get_loss(name)
    scores = np.random.default_rng(1).normal(size=len(LABELS))  # the same whichever tests have run before
    gradient, hessian = gradient_and_hessian(loss, scores, LABELS, OFFSETS)
    assert gradient.shape == hessian.shape == scores.shape
    assert (hessian > 0).all()
    assert np.isfinite(hessian).all()
    expected = loss.value_and_gradient(scores, loss.plan(LABELS, OFFSETS)).gradient
    np.testing.assert_allclose(gradient, expected, atol=1e-12)
    # a small Newton step goes down
    step = 0.02 * -gradient / hessian.max()
    before, after = (
        loss.value_and_gradient(s, loss.plan(LABELS, OFFSETS)).values.sum() for s in (scores, scores + step)
    )
    assert after < before or name.startswith("lambda-")  # swap deltas jump with the order


def test_hessian_of_convex_losses_is_their_curvature():
    scores = RNG.normal(size=len(LABELS))
    for name in ("RankNet", "ListNet", "ListMLE", "regression", "classification"):
        loss = get_loss(name)
        _, hessian = gradient_and_hessian(loss, scores, LABELS, OFFSETS)
        for i in (0, 13, 29):
            up, down = scores.copy(), scores.copy()
            up[i] += 1e-5
            down[i] -= 1e-5
            slopes = [gradient_and_hessian(loss, s, LABELS, OFFSETS)[0][i] for s in (up, down)]
            assert hessian[i] == pytest.approx((slopes[0] - slopes[1]) / 2e-5, rel=1e-4, abs=1e-7)


def test_bounding_scales_gradient_and_hessian_alike():
    scores = RNG.normal(size=len(LABELS))
    plain = gradient_and_hessian(NDCGLoss(), scores, LABELS, OFFSETS)
    bounded = gradient_and_hessian(NDCGLoss(bounding="expectation-max"), scores, LABELS, OFFSETS)
    touched = np.abs(plain[0]) > 1e-12
    np.testing.assert_allclose(
        bounded[0][touched] / plain[0][touched], bounded[1][touched] / plain[1][touched], rtol=1e-6
    )


def test_weights_per_query():
    scores, weights = RNG.normal(size=len(LABELS)), RNG.uniform(size=len(SIZES))
    plain = gradient_and_hessian(RankNetLoss(), scores, LABELS, OFFSETS)
    weighted = gradient_and_hessian(RankNetLoss(), scores, LABELS, OFFSETS, weights)
    np.testing.assert_allclose(weighted[0], plain[0] * np.repeat(weights, SIZES))
    with pytest.raises(DataError, match="weights must have one entry per query"):
        gradient_and_hessian(RankNetLoss(), scores, LABELS, OFFSETS, weights[:-1])


BOOSTED = ["nDCG", "AP", "nRBP", "Tau", "lambda-nDCG", "lambda-AP", "lambda-ERR"]


@pytest.mark.parametrize("bounding", ["none", "expectation-max"])
@pytest.mark.parametrize("name", BOOSTED)
def test_lightgbm_learns(name, bounding):
    lightgbm = pytest.importorskip("lightgbm")
    parameters = {
        "objective": lightgbm_objective(name, bounding=bounding),
        "num_leaves": 7, "min_data_in_leaf": 5, "min_sum_hessian_in_leaf": 1e-6, "verbose": -1, "num_threads": 1,
    }  # fmt: skip
    data = lightgbm.Dataset(FEATURES, LABELS, group=SIZES)
    booster = lightgbm.train(parameters, data, num_boost_round=20)
    assert ndcg(booster.predict(FEATURES)) > ndcg(np.zeros(len(LABELS))) + 0.15


def test_lgbm_ranker_takes_the_objective():
    lightgbm = pytest.importorskip("lightgbm")
    ranker = lightgbm.LGBMRanker(
        objective=lightgbm_objective("nDCG"), n_estimators=10, num_leaves=7, min_child_samples=5,
        min_child_weight=1e-6, verbose=-1, n_jobs=1,
    )  # fmt: skip
    ranker.fit(FEATURES, LABELS, group=SIZES, sample_weight=np.ones(len(LABELS)))
    assert ndcg(ranker.booster_.predict(FEATURES, raw_score=True)) > ndcg(np.zeros(len(LABELS))) + 0.15


@pytest.mark.parametrize("name", ["nDCG", "lambda-AP"])
def test_xgboost_learns(name):
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(FEATURES, LABELS)
    data.set_group(SIZES)
    parameters = {"max_depth": 3, "min_child_weight": 1e-6, "base_score": 0.0, "nthread": 1, "lambda": 0.01}
    booster = xgboost.train(parameters, data, 10, obj=xgboost_objective(name, bounding="min-max"))
    assert ndcg(booster.predict(data, output_margin=True)) > ndcg(np.zeros(len(LABELS))) + 0.15


def test_groups_are_needed():
    with pytest.raises(ArgumentError, match="needs the group sizes"):
        lightgbm_objective("nDCG")([1.0, 0.0], [0.0, 0.0])


# ---- scale, weights, defaults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*BOOSTED, "noisy-lambda-nDCG", "RankNet", "ListNet"])
def test_items_have_a_typical_hessian_at_equal_scores(name):
    _, hessian = lightgbm_objective(name)(LABELS, np.zeros(len(LABELS)), None, SIZES)
    loss = get_loss(name)
    counts = np.repeat(loss.plan(LABELS, OFFSETS).active, SIZES)
    assert hessian[counts].mean() == pytest.approx(1 / 4, rel=1e-3)
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(FEATURES, LABELS, nthread=1)
    data.set_group(SIZES)
    _, hessian = xgboost_objective(name)(np.zeros(len(LABELS)), data)
    assert hessian[counts].mean() == pytest.approx(1 / 100, rel=1e-3)


@pytest.mark.parametrize("name", ["noisy-lambda-nDCG", "nDCG"])
def test_the_scale_changes_no_direction_and_is_the_same_in_every_round(name):
    objective, loss = lightgbm_objective(name), get_loss(name)
    factors = []
    for scores in (np.zeros(len(LABELS)), RNG.normal(size=len(LABELS))):
        scaled = np.concatenate(objective(LABELS, scores, None, SIZES))
        plain = np.concatenate(gradient_and_hessian(loss, scores.astype(np.float32), LABELS, OFFSETS))
        large = np.abs(plain) > 1e-3
        factors.append(scaled[large] / plain[large])
        np.testing.assert_allclose(factors[-1], factors[-1][0], rtol=1e-4)
    assert factors[0][0] == pytest.approx(factors[1][0], rel=1e-4)


def test_xgboost_learns_with_its_defaults():
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(FEATURES, LABELS, nthread=1)
    data.set_group(SIZES)
    for name in ("noisy-lambda-nDCG", "nDCG", "lambda-AP"):
        booster = xgboost.train({"nthread": 1}, data, 40, obj=xgboost_objective(name))
        assert ndcg(booster.predict(data, output_margin=True)) > ndcg(np.zeros(len(LABELS))) + 0.2


def test_lightgbm_learns_with_its_defaults():
    lightgbm = pytest.importorskip("lightgbm")
    for name in ("noisy-lambda-nDCG", "nDCG"):
        data = lightgbm.Dataset(FEATURES, LABELS, group=SIZES)
        parameters = {"objective": lightgbm_objective(name), "verbose": -1, "num_threads": 1}
        booster = lightgbm.train(parameters, data, 20)
        assert ndcg(booster.predict(FEATURES)) > ndcg(np.zeros(len(LABELS))) + 0.2


def test_the_default_is_the_recipe_and_repeats_itself():
    first, second = lightgbm_objective(), lightgbm_objective(seed=1)
    scores = RNG.normal(size=len(LABELS))
    assert first.loss == get_loss("noisy-lambda-nDCG")
    again = [first(LABELS, scores, None, SIZES)[0] for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert np.abs(again[0] - second(LABELS, scores, None, SIZES)[0]).max() > 0


def test_bounding_and_weights_together_warn():
    weights = np.repeat(RNG.uniform(1, 2, len(SIZES)), SIZES)
    objective = lightgbm_objective("nDCG", bounding="expectation-max")
    with pytest.warns(UserWarning, match="difficulty counts twice"):
        objective(LABELS, np.zeros(len(LABELS)), weights, SIZES)
    objective(LABELS, np.zeros(len(LABELS)), np.full(len(LABELS), 3.0), SIZES)  # equal weights change nothing
    lightgbm_objective("nDCG")(LABELS, np.zeros(len(LABELS)), weights, SIZES)


def test_the_curvature_of_a_smooth_pair_answers_to_its_order():
    """The step gradient / hessian of a single pair grows with how wrong its order is, as for a logistic loss."""
    steps = []
    for difference in (-3.0, -1.0, 0.0, 1.0, 2.0):  # of the wrong item over the right one
        gradient, hessian = gradient_and_hessian(NDCGLoss(), [0.0, difference], [1, 0], [0, 2])
        steps.append(-gradient[0] / hessian[0])
        assert steps[-1] == pytest.approx(3 * (1 + np.exp(difference)), rel=1e-6)
    assert steps == sorted(steps)


def test_labels_that_a_gain_cannot_take():
    with pytest.raises(DataError, match="label"):
        lightgbm_objective()([2000, 0], [0.0, 0.0], None, [2])
    with pytest.raises(DataError, match="labels must be finite"):
        lightgbm_objective()([np.nan, 0], [0.0, 0.0], None, [2])
