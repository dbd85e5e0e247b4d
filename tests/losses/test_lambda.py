"""LambdaRank with its options, and the LambdaLoss family; `test_measures` has the options for every measure."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise as neighbors

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound.errors import ArgumentError, DataError
from rankbound.losses import (
    DirectRankerLoss,
    LambdaLoss,
    LambdaRankLoss,
    RankNetLoss,
    get_loss,
    gradient_and_hessian,
    lightgbm_objective,
    loss_names,
)
from rankbound.losses.noise import generator_for, logistic_noise
from rankbound.losses.padded import evaluate_formula, layout_of

SIZES = np.array([1, 2, 12, 33, 70, 150])
OFFSETS = np.concatenate(([0], np.cumsum(SIZES)))


def batch(seed=0, spread=1.0, levels=4):
    """Scores with ties, and labels, of lists of different length."""
    rng = np.random.default_rng(seed)
    return np.round(spread * rng.normal(size=OFFSETS[-1]), 2), rng.integers(0, levels, OFFSETS[-1])


# ---- kernel and formula ----------------------------------------------------------------------------------------------

FORMS = [
    {"measure": "nDCG"},
    {"measure": "nDCG@10", "alpha": 2.0},
    {"measure": "nDCG", "truncation": 7},
    {"measure": "nDCG", "truncation": 32, "normalization": "sqrt"},
    {"measure": "nDCG@50", "truncation": 40, "normalization": "lightgbm", "alpha": 0.5},
    {"measure": "P@5", "normalization": "lightgbm"},
    {"measure": "RBP(p=0.9)", "noise": 1.0, "truncation": 1},
    {"measure": "nRBP(p=0.9)", "published": True, "truncation": 9},
    {"measure": "Rprec", "noise": 0.5, "normalization": "sqrt"},
    {"measure": "AP@20", "truncation": 30},
    {"measure": "RR", "noise": 0.5},
    {"measure": "ERR@30", "normalization": "lightgbm"},
    {"measure": "Tau", "noise": 1.0},
]
SPREADS = [1.0, 0.0, 500.0]  # the last is too wide for exponentials of the scores


def by_formula(loss, scores, labels, offsets):
    """Losses, gradient and hessian per item by the formula of a loss, in float64."""
    plan, exact = loss.plan(labels, offsets), torch.tensor(scores, dtype=torch.float64)
    layout = layout_of(plan, exact.device, exact.dtype, loss._tables, loss._by_pairs)
    return [result.numpy() for result in evaluate_formula(loss, exact, layout, True, True)]


def assert_kernel_equals_formula(loss, scores, labels, offsets):
    for dtype, error in ((np.float64, 1e-11), (np.float32, 5e-6)):
        rounded = scores.astype(dtype)
        if dtype == np.float32 and getattr(loss, "noise", 0):
            continue  # noise belongs to scores of a type
        expected = by_formula(loss, rounded, labels, offsets)
        for with_hessian in (False, True):
            result = loss.value_and_gradient(rounded, loss.plan(labels, offsets), with_hessian)
            for mine, other in zip(result, expected[: 3 if with_hessian else 2], strict=False):
                np.testing.assert_allclose(mine, other, atol=error * max(1, np.abs(other).max()))
        gradient, hessian = loss.gradient_and_hessian(rounded, loss.plan(labels, offsets))
        np.testing.assert_allclose(gradient, expected[1], atol=error * max(1, np.abs(expected[1]).max()))
        np.testing.assert_allclose(hessian, expected[2], atol=error * max(1, np.abs(expected[2]).max()))


@pytest.mark.parametrize("options", FORMS, ids=str)
@pytest.mark.parametrize("spread", SPREADS)
def test_the_kernel_equals_the_formula(options, spread):
    scores, labels = batch(spread=spread)
    assert_kernel_equals_formula(LambdaRankLoss(bounding="log-distribution", **options), scores, labels, OFFSETS)
    assert_kernel_equals_formula(LambdaRankLoss(bounding="min-max", **options), scores, labels, OFFSETS)


@pytest.mark.parametrize("loss", [
    RankNetLoss(), RankNetLoss(alpha=3.0), DirectRankerLoss(), DirectRankerLoss(cost="tanh", alpha=0.5),
    LambdaLoss("1"), LambdaLoss("2", k=9), LambdaLoss("2++", mu=2.0, bounding="expectation-max"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("spread", SPREADS)
def test_the_kernel_of_other_losses_of_pairs_equals_the_formula(loss, spread):
    scores, labels = batch(spread=spread)
    assert_kernel_equals_formula(loss, scores, labels, OFFSETS)


@pytest.mark.parametrize("options", [{"measure": "nDCG@40"}, {"measure": "nDCG", "truncation": 5, "noise": 1.0}])
@pytest.mark.parametrize("spread", SPREADS)
def test_pairs_by_rank_equal_pairs_by_label(options, spread):
    """Under a cutoff or a truncation the kernel visits the pairs of an additive measure by rank."""
    scores, labels = batch(spread=spread)
    loss = LambdaRankLoss(**options)
    plan = loss.plan(labels, OFFSETS)
    assert plan.is_monotone
    by_label = replace(plan, is_monotone=False, kept={})
    for dtype, error in ((np.float64, 1e-12), (np.float32, 2e-6)):
        for mine, other in zip(
            loss.value_and_gradient(scores.astype(dtype), plan, True),
            loss.value_and_gradient(scores.astype(dtype), by_label, True),
            strict=True,
        ):
            np.testing.assert_allclose(mine, other, atol=error * max(1, np.abs(other).max()))


def test_long_lists_are_ranked_as_short_ones():
    """Ranks of few items come from buckets, of more items from the digits of their scores; ties keep their order."""
    rng = np.random.default_rng(3)
    for n in (2, 9, 128, 256, 257, 3000):
        for scores in (
            rng.normal(size=n), np.round(rng.normal(size=n), 1), np.zeros(n), -np.zeros(n),
            np.append(1e3, np.arange(n - 1) % 7), 1e-40 * rng.normal(size=n),
        ):  # fmt: skip
            labels = np.arange(n) == n // 2
            for dtype in (np.float32, np.float64):
                typed = scores.astype(dtype)
                order = np.argsort(-typed, kind="stable")
                rank = np.empty(n)
                rank[order] = np.arange(1, n + 1)
                deltas = np.abs(1 / rank - 1 / rank[n // 2])  # of a single relevant item
                expected = deltas / (1 + np.exp(np.minimum(typed[n // 2] - typed.astype(float), 700)))
                gradient, _ = gradient_and_hessian(LambdaRankLoss("RR"), typed, labels, [0, n])
                np.testing.assert_allclose(gradient[~labels], expected[~labels], atol=3e-5)


# ---- noise -----------------------------------------------------------------------------------------------------------


def test_noisy_ranks_are_a_function_of_scores_and_seed():
    scores, labels = batch()
    loss = LambdaRankLoss("nDCG", noise=1.0)
    plan = loss.plan(labels, OFFSETS)
    first, again = (loss.value_and_gradient(scores, plan) for _ in range(2))
    np.testing.assert_array_equal(first.gradient, again.gradient)
    np.testing.assert_array_equal(first.values, again.values)
    twin = LambdaRankLoss("nDCG", noise=1.0)
    np.testing.assert_array_equal(first.gradient, twin.value_and_gradient(scores, twin.plan(labels, OFFSETS)).gradient)
    other = LambdaRankLoss("nDCG", noise=1.0, seed=1).value_and_gradient(scores, plan)
    assert not np.array_equal(first.gradient, other.gradient)
    # one score that moves by less than the distance to the next gives other noise for all queries
    moved = scores.copy()
    moved[-1] += 1e-6
    elsewhere = slice(0, OFFSETS[-2])
    assert not np.array_equal(first.gradient[elsewhere], loss.value_and_gradient(moved, plan).gradient[elsewhere])
    plain = LambdaRankLoss("nDCG").value_and_gradient(scores, plan)
    np.testing.assert_array_equal(
        plain.gradient, LambdaRankLoss("nDCG", seed=5).value_and_gradient(scores, plan).gradient
    )
    tensor = torch.tensor(scores, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        LambdaRankLoss("nDCG", noise=1.0, reduction="sum")(tensor, labels, OFFSETS), tensor
    )
    np.testing.assert_array_equal(gradient.numpy(), first.gradient)


def test_noise_changes_the_order_of_two_items_but_not_the_logistic_cost():
    """Two items a distance d apart change order with the probability that two logistics differ by more than d."""
    scores, labels, d = np.array([1.5, 0.0, -50.0]), np.array([0, 1, 0]), 1.5
    flips = 0
    for seed in range(400):
        noise = logistic_noise(generator_for(seed, scores, np.array([0, 3])), scores)
        flips += noise[1] - noise[0] > d
    # 1/(1 - r) + r log(r) / (1 - r)^2 with r = exp(d) is the probability that a difference of two logistics exceeds d
    r = np.exp(d)
    probability = 1 / (1 - r) + r * d / (1 - r) ** 2
    assert flips / 400 == pytest.approx(probability, abs=4 * np.sqrt(probability * (1 - probability) / 400))
    values = [LambdaRankLoss("RR@1", noise=1.0, seed=seed)(torch.tensor(scores), labels, [0, 3]) for seed in range(20)]
    # in both orders the swap of the two upper items changes RR@1 by 1; the sigmoid sees the true distance
    assert values == pytest.approx([np.log1p(np.exp(d))] * 20)


def test_distribution_boundings_take_the_measure_of_the_true_ranking():
    scores, labels = batch()
    for measure in ("nDCG@5", "AP", "RR", "Tau"):
        slopes = []
        for options in ({}, {"noise": 5.0}):
            bounded, plain = (LambdaRankLoss(measure, bounding=name, **options) for name in ("distribution", "none"))
            by_bounding, unbounded = (
                loss.value_and_gradient(scores, loss.plan(labels, OFFSETS)) for loss in (bounded, plain)
            )
            counts = bounded.plan(labels, OFFSETS).active & (unbounded.values > 0)
            slopes.append(by_bounding.values[counts] / unbounded.values[counts])
        np.testing.assert_allclose(*slopes, rtol=1e-9)
        assert slopes[0].max() > 0


# ---- LightGBM --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("truncation", "norm"), [(30, True), (8, True), (8, False)])
def test_training_follows_lightgbms_own_lambdarank(truncation, norm):
    """LightGBM divides by the ideal DCG of the ranks within the truncation; all relevant items have room there."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    queries, size = 60, 25
    features = rng.normal(size=(queries * size, 4))
    strength = features[:, 0] + 0.5 * features[:, 1] ** 2 + rng.normal(size=len(features))
    ranks = np.argsort(np.argsort(-strength.reshape(queries, size), axis=1), axis=1).ravel()
    labels = np.maximum(3 - ranks // 2, 0)  # six items with a label
    common = {"num_leaves": 7, "min_data_in_leaf": 5, "learning_rate": 0.1, "verbose": -1, "num_threads": 1}
    common |= {"deterministic": True, "boost_from_average": False}
    theirs = {"objective": "lambdarank", "lambdarank_truncation_level": truncation, "lambdarank_norm": norm}
    loss = LambdaRankLoss("nDCG", truncation=truncation, normalization="lightgbm" if norm else "none")
    staged = []
    for objective in (theirs, {"objective": lambda scores, data: objective_of(loss, scores, labels, size)}):
        data = lightgbm.Dataset(features, labels, group=[size] * queries, params={"verbose": -1})
        booster = lightgbm.train(common | objective, data, num_boost_round=20)
        staged.append([booster.predict(features, raw_score=True, num_iteration=i) for i in (1, 5, 20)])
    for their_scores, our_scores in zip(*staged, strict=True):
        assert np.abs(their_scores).max() > 0.01
        np.testing.assert_allclose(our_scores, their_scores, atol=5e-5)  # LightGBM reads its sigmoid from a table


def objective_of(loss, scores, labels, size):
    offsets = np.arange(0, len(labels) + 1, size)
    return gradient_and_hessian(loss, np.asarray(scores, dtype=np.float64), labels, offsets)


# ---- the LambdaLoss family -------------------------------------------------------------------------------------------


def family_by_definition(form, scores, labels, k=None, mu=10.0):
    """Eqs. of Wang et al., with natural logarithm, for one query."""
    n = len(scores)
    gains = 2.0**labels - 1
    ideal = sum(g / np.log2(1 + r) for r, g in enumerate(sorted(gains, reverse=True)[:k], start=1))
    ranks = np.empty(n)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, n + 1)
    total = 0.0
    for i in range(n):
        for j in range(n):
            if labels[i] <= labels[j] or (k is not None and min(ranks[i], ranks[j]) > k):
                continue
            m = abs(ranks[i] - ranks[j])
            inverse = [1 / np.log2(1 + r) if k is None or r <= k else 0.0 for r in (ranks[i], ranks[j])]
            two = abs(1 / np.log2(1 + m) - 1 / np.log2(2 + m)) * (gains[i] - gains[j])
            swap = abs(inverse[0] - inverse[1]) * (gains[i] - gains[j])
            weight = {"1": gains[i] / np.log2(1 + ranks[i]), "2": two, "2++": mu * two + swap}[form]
            total += weight / ideal * np.log1p(np.exp(-(scores[i] - scores[j])))
    return total


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("form", ["1", "2", "2++"])
@pytest.mark.parametrize("k", [None, 3])
def test_the_family_is_that_of_the_paper(form, k):
    scores, labels = batch()
    values = LambdaLoss(form, k=k, mu=4.0, reduction="none")(torch.tensor(scores), labels, OFFSETS)
    for q, (lo, hi) in enumerate(neighbors(OFFSETS)):
        if len(np.unique(labels[lo:hi])) > 1:
            expected = family_by_definition(form, scores[lo:hi], labels[lo:hi], k, 4.0)
            assert values[q].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.full("takes seconds")
def test_two_plus_plus_is_the_sum_of_form_two_and_lambda_rank():
    scores, labels = batch()
    gradients = [
        gradient_and_hessian(loss, scores, labels, OFFSETS)
        for loss in (LambdaLoss("2++", mu=3.0), LambdaLoss("2"), LambdaRankLoss("nDCG"))
    ]
    for both, two, swap in zip(*gradients, strict=True):
        np.testing.assert_allclose(both, 3 * two + swap, atol=1e-8)


# ---- names and errors ------------------------------------------------------------------------------------------------


def test_names():
    assert get_loss("noisy-lambda-nDCG@10") == LambdaRankLoss("nDCG@10", truncation=30, normalization="sqrt", noise=2.0)
    assert get_loss("noisy-lambda-AP(rel=2)", noise=0.0, truncation=None, seed=4) == LambdaRankLoss(
        "AP(rel=2)", normalization="sqrt", seed=4
    )
    assert get_loss("NDCG-Loss1", k=5) == LambdaLoss("1", k=5)
    assert get_loss("NDCG-Loss2") == LambdaLoss("2")
    assert get_loss("NDCG-Loss2++", mu=2.0) == LambdaLoss(mu=2.0)
    assert {"NDCG-Loss1", "NDCG-Loss2", "NDCG-Loss2++"} <= set(loss_names())
    assert str(LambdaLoss(k=5, gain="linear").target) == "nDCG@5"
    assert lightgbm_objective("noisy-lambda-nDCG").loss.noise == 2.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LambdaRankLoss(truncation=0), "truncation must be a positive integer or None, got 0"),
        (lambda: LambdaRankLoss(truncation=2.5), "truncation must be a positive integer or None, got 2.5"),
        (lambda: LambdaRankLoss(truncation=True), "truncation must be a positive integer or None, got True"),
        (lambda: LambdaRankLoss(normalization="x"), "normalization must be one of none, sqrt, lightgbm, got 'x'"),
        (lambda: LambdaRankLoss(normalization=None), "normalization must be one of none, sqrt, lightgbm, got None"),
        (lambda: LambdaRankLoss(noise=-1), "noise must be a number of at least 0, got -1"),
        (lambda: LambdaRankLoss(noise=float("nan")), "noise must be a number of at least 0, got nan"),
        (lambda: LambdaRankLoss(noise=float("inf")), "noise must be a number of at least 0, got inf"),
        (lambda: LambdaRankLoss(seed=-1), "seed must be an integer"),
        (lambda: LambdaRankLoss(seed=0.5), "seed must be an integer"),
        (lambda: LambdaLoss("3"), r"form must be one of 1, 2, 2\+\+, got '3'"),
        (lambda: LambdaLoss(2), r"form must be one of 1, 2, 2\+\+, got 2"),
        (lambda: LambdaLoss(mu=0), "mu must be a positive number, got 0"),
        (lambda: LambdaLoss(k=0), "k must be a positive integer or None, got 0"),
        (lambda: LambdaLoss(gain="x"), "gain must be 'exp' or 'linear', got 'x'"),
        (lambda: get_loss("noisy-lambda-Bpref"), "loss must be one of nDCG, DCG, .* got 'noisy-lambda-Bpref'"),
        (lambda: get_loss("noisy-lambda-nDCG", form="2"), "the loss 'noisy-lambda-nDCG' does not take these options"),
    ],
)
def test_options_out_of_range(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_labels_that_a_gain_cannot_take():
    for loss in (LambdaRankLoss("nDCG", noise=1.0), LambdaLoss()):
        with pytest.raises(DataError, match="labels must be at most 1000"):
            gradient_and_hessian(loss, [0.0, 1.0], [2000, 0], [0, 2])
