"""Softmax cross entropy and XE-NDCG: against torch, against formulas by hand, and at their limits."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound.errors import ArgumentError, DataError
from rankbound.losses import (
    ListNetLoss,
    SoftmaxLoss,
    XENDCGLoss,
    get_loss,
    gradient_and_hessian,
    lightgbm_objective,
    vectorized,
)
from rankbound.losses.noise import generator_for

OFFSETS = np.array([0, 5, 6, 6, 13, 17])
LABELS = np.array([2, 0, 1, 0, -1, 3, 0, 1, 4, 0, 0, 2, 1, 0, 0, 0, 0])  # the second to third and the last say nothing
INFORMATIVE = [True, False, False, True, False]
SCORES = np.random.default_rng(0).normal(size=17)


def value_and_gradient(loss, scores=SCORES, labels=LABELS, offsets=OFFSETS, dtype=torch.float64):
    scores = torch.tensor(scores, dtype=dtype, requires_grad=True)
    value = loss(scores, labels, offsets)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    return value.detach(), gradient


# ---- against torch ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("target", ["labels", "gains"])
@pytest.mark.parametrize("normalize", [False, True])
def test_softmax_is_the_cross_entropy_of_torch(target, normalize, temperature):
    loss = SoftmaxLoss(target, normalize=normalize, temperature=temperature, reduction="none")
    ours, gradient = value_and_gradient(loss)
    scores = torch.tensor(SCORES, requires_grad=True)
    positive = torch.tensor(LABELS).clamp(min=0).double()
    weights = positive if target == "labels" else 2**positive - 1
    expected = torch.zeros(5, dtype=torch.float64)
    for q, (lo, hi) in enumerate(pairwise(OFFSETS)):
        if INFORMATIVE[q]:
            t = weights[lo:hi] / (weights[lo:hi].sum() if normalize else 1)
            expected[q] = torch.nn.functional.cross_entropy(scores[lo:hi] / temperature, t)
    np.testing.assert_allclose(ours, expected.detach(), rtol=1e-12)
    np.testing.assert_allclose(gradient, torch.autograd.grad(expected.sum(), scores)[0], rtol=1e-9, atol=1e-12)
    assert loss.no_choice(LABELS, OFFSETS).tolist() == [not each for each in INFORMATIVE]


def test_linear_gains_are_labels():
    for normalize in (False, True):
        by_labels = SoftmaxLoss(normalize=normalize)
        by_gains = SoftmaxLoss("gains", gain="linear", normalize=normalize)
        assert value_and_gradient(by_labels)[0] == value_and_gradient(by_gains)[0]


def test_one_relevant_item_is_the_log_loss_of_its_index():
    value = SoftmaxLoss()(torch.tensor(SCORES), np.eye(17, dtype=int)[3], [0, 17])
    expected = torch.nn.functional.cross_entropy(torch.tensor(SCORES), torch.tensor(3))
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)


def test_targets_of_zero_set_it_apart_from_list_net():
    """The gradient of ListNet vanishes at the labels; that of softmax with normalized labels at their logarithms."""
    labels, offsets = np.array([3.0, 1.0, 2.0]), [0, 3]
    at_labels, at_logarithms = torch.tensor(labels), torch.tensor(np.log(labels))
    for loss, zero, other in (
        (ListNetLoss(), at_labels, at_logarithms), (SoftmaxLoss(normalize=True), at_logarithms, at_labels)
    ):  # fmt: skip
        assert value_and_gradient(loss, zero.tolist(), labels, offsets)[1].abs().max() < 1e-15
        assert value_and_gradient(loss, other.tolist(), labels, offsets)[1].abs().max() > 0.01


# ---- hessian, limits, extremes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [
    SoftmaxLoss(), SoftmaxLoss("gains", temperature=0.5), SoftmaxLoss("gains", normalize=True),
    XENDCGLoss(deterministic=True), XENDCGLoss(gain="linear", deterministic=True),
], ids=str)  # fmt: skip
def test_the_hessian_is_the_second_derivative(loss):
    step = 1e-5
    _, hessian = gradient_and_hessian(loss, SCORES, LABELS, OFFSETS)
    for i in range(len(SCORES)):
        up, down = SCORES.copy(), SCORES.copy()
        up[i] += step
        down[i] -= step
        slopes = [gradient_and_hessian(loss, near, LABELS, OFFSETS)[0][i] for near in (up, down)]
        assert hessian[i] == pytest.approx((slopes[0] - slopes[1]) / (2 * step), abs=1e-7)


def test_the_hessian_of_equal_scores():
    _, hessian = gradient_and_hessian(SoftmaxLoss(temperature=2.0), np.zeros(4), [3, 1, 0, 0], [0, 4])
    np.testing.assert_allclose(hessian, (3 + 1) * (1 / 4) * (1 - 1 / 4) / 2**2)


def test_a_high_temperature_forgets_the_scores():
    value, gradient = value_and_gradient(SoftmaxLoss(temperature=1e6), SCORES[:4], [2, 0, 1, 0], [0, 4])
    assert value.item() == pytest.approx((2 + 1) * math.log(4), abs=1e-5)
    np.testing.assert_allclose(1e6 * gradient, [3 / 4 - 2, 3 / 4, 3 / 4 - 1, 3 / 4], atol=1e-5)


def test_a_low_temperature_counts_the_distance_from_the_top():
    value, _ = value_and_gradient(SoftmaxLoss(temperature=1e-6), [1.0, 3.0, 2.0, 0.0], [2, 0, 1, 0], [0, 4])
    assert 1e-6 * value.item() == pytest.approx(2 * (3 - 1) + 1 * (3 - 2), rel=1e-12)


@pytest.mark.parametrize("loss", [SoftmaxLoss(), XENDCGLoss(deterministic=True)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores(loss, dtype):
    value, gradient = value_and_gradient(loss, [1e4, -1e4, -1e4, 1e4], [0, 1, 0, 0], [0, 4], dtype)
    phi = [1.0] if isinstance(loss, SoftmaxLoss) else [1.5 / 3, 0.5 / 3]  # (2 - 1/2) and (1 - 1/2) over 3 of them
    expected = math.log(2) + 2e4 * (phi[0] + (phi[1] if len(phi) > 1 else 0))
    assert value.item() == pytest.approx(expected, rel=1e-6)
    others = phi[1] if len(phi) > 1 else 0.0
    np.testing.assert_allclose(gradient, [0.5 - others, -phi[0], -others, 0.5 - others], atol=1e-7)


def test_ties_have_equal_gradients():
    _, gradient = value_and_gradient(SoftmaxLoss(), [1.0, 1.0, 1.0, -2.0], [1, 0, 0, 0], [0, 4])
    assert gradient[1] == gradient[2]
    assert gradient[0] == pytest.approx(gradient[1] - 1)
    assert gradient.sum() == pytest.approx(0, abs=1e-15)


# ---- XE-NDCG ---------------------------------------------------------------------------------------------------------


def by_hand(scores, labels, gamma, gain):
    """Cross entropy by the formula of the paper, for one list."""
    phi = (2.0 ** np.maximum(labels, 0) if gain == "exp" else np.maximum(labels, 0) + 1.0) - gamma
    log_mass = math.log(sum(math.exp(score) for score in scores))
    return -sum(phi_i / phi.sum() * (score - log_mass) for phi_i, score in zip(phi, scores, strict=True))


@pytest.mark.parametrize("gain", ["exp", "linear"])
def test_xendcg_with_gamma_one_half(gain):
    values, _ = value_and_gradient(XENDCGLoss(gain=gain, deterministic=True, reduction="none"))
    for q, (lo, hi) in enumerate(pairwise(OFFSETS)):
        expected = by_hand(SCORES[lo:hi], LABELS[lo:hi], 0.5, gain) if INFORMATIVE[q] else 0.0
        assert values[q].item() == pytest.approx(expected, rel=1e-12)


def test_xendcg_draws_gamma_from_the_generator_of_its_scores():
    values, gradient = value_and_gradient(XENDCGLoss(seed=3, reduction="none"))
    gamma = generator_for(3, SCORES, OFFSETS).random(17, dtype=np.float32).astype(np.float64)
    for q, (lo, hi) in enumerate(pairwise(OFFSETS)):
        expected = by_hand(SCORES[lo:hi], LABELS[lo:hi], gamma[lo:hi], "exp") if INFORMATIVE[q] else 0.0
        assert values[q].item() == pytest.approx(expected, rel=1e-7)
    np.testing.assert_allclose(np.add.reduceat(gradient.numpy(), [0, 5, 6, 13]), 0, atol=1e-15)  # p and phi sum to 1


def test_xendcg_kernel_equals_formula():
    for loss in (XENDCGLoss(reduction="none"), XENDCGLoss(gain="linear", seed=9, reduction="none")):
        value, gradient = value_and_gradient(loss)
        with vectorized():
            by_formula = value_and_gradient(loss)
        np.testing.assert_allclose(value, by_formula[0], rtol=1e-12)
        np.testing.assert_allclose(gradient, by_formula[1], atol=1e-13)


def test_xendcg_draws_are_repeatable_and_change_with_scores_and_seed():
    loss = XENDCGLoss()
    first, again = value_and_gradient(loss), value_and_gradient(XENDCGLoss())
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], value_and_gradient(XENDCGLoss(seed=1))[1])
    shifted = value_and_gradient(loss, SCORES + 1)  # the loss is the same but for its targets
    assert (first[1] - shifted[1]).abs().max() > 0.01


def test_the_mean_over_seeds_of_xendcg_is_its_expectation():
    """For two items of labels 1 and 0 the expected target is the integral of (2 - a) / (3 - a - b) over the square."""
    scores = [0.7, -0.4]
    values = [XENDCGLoss(seed=seed)(torch.tensor(scores), [1, 0], [0, 2]).item() for seed in range(1000)]
    middles = (np.arange(1000) + 0.5) / 1000
    a, b = middles[:, None], middles[None, :]
    phi = ((2 - a) / (3 - a - b)).mean()
    log_mass = math.log(math.exp(0.7) + math.exp(-0.4))
    expected = log_mass - phi * 0.7 + (1 - phi) * 0.4
    assert np.mean(values) == pytest.approx(expected, abs=4 * np.std(values) / math.sqrt(len(values)))
    assert np.std(values) > 0.01


def test_objectives_improve_their_loss():
    """Newton steps on the scores themselves lower the loss, with a new draw in every round."""
    measured = SoftmaxLoss("gains", normalize=True)
    for name in ("softmax", "XE-NDCG"):
        objective, scores = lightgbm_objective(name), np.zeros(17)
        before = measured(torch.tensor(scores), LABELS, OFFSETS).item()
        for _ in range(30):
            gradient, hessian = objective(LABELS.astype(float), scores, None, np.diff(OFFSETS))
            scores = scores - 0.1 * gradient / (hessian + 1e-3)
        assert measured(torch.tensor(scores), LABELS, OFFSETS).item() < before - 0.3


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "message"), [
    ({"target": "label"}, "target must be 'labels' or 'gains', got 'label'"),
    ({"target": None}, "target must be 'labels' or 'gains', got None"),
    ({"gain": "log"}, "gain must be 'exp' or 'linear', got 'log'"),
    ({"normalize": 1}, "normalize must be True or False, got 1"),
    ({"temperature": 0.0}, "temperature must be a number from 1e-6 to 1e6, got 0.0"),
    ({"temperature": float("nan")}, "temperature must be a number from 1e-6 to 1e6, got nan"),
    ({"temperature": True}, "temperature must be a number from 1e-6 to 1e6, got True"),
    ({"temperature": "1"}, "temperature must be a number from 1e-6 to 1e6, got '1'"),
    ({"noise": -1.0}, "noise must be a number of at least 0, got -1.0"),
    ({"noise": float("inf")}, "noise must be a number of at least 0, got inf"),
    ({"draws": 0}, "draws must be a positive integer, got 0"),
    ({"draws": 2.0}, "draws must be a positive integer, got 2.0"),
    ({"draws": None}, "draws must be a positive integer, got None"),
    ({"seed": -1}, "seed must be an integer from 0 to 2^64 - 1, got -1"),
    ({"seed": 0.5}, "seed must be an integer from 0 to 2^64 - 1, got 0.5"),
    ({"reduction": "average"}, "reduction must be one of mean, sum, none, got 'average'"),
])  # fmt: skip
def test_options_that_softmax_refuses(options, message):
    with pytest.raises(ArgumentError) as error:
        SoftmaxLoss(**options)
    assert str(error.value) == message


@pytest.mark.parametrize(("options", "message"), [
    ({"gain": ["exp"]}, "gain must be 'exp' or 'linear', got ['exp']"),
    ({"deterministic": "yes"}, "deterministic must be True or False, got 'yes'"),
    ({"seed": True}, "seed must be an integer from 0 to 2^64 - 1, got True"),
])  # fmt: skip
def test_options_that_xendcg_refuses(options, message):
    with pytest.raises(ArgumentError) as error:
        XENDCGLoss(**options)
    assert str(error.value) == message


def test_labels_that_a_gain_cannot_take():
    scores = torch.zeros(3)
    for loss in (SoftmaxLoss("gains"), XENDCGLoss()):
        with pytest.raises(DataError, match="labels must be at most 1000 for gains"):
            loss(scores, [2000, 0, 0], [0, 3])
    with pytest.raises(DataError, match="gains that sum to at most 1e\\+30 per query, or normalize must be True"):
        SoftmaxLoss("gains")(scores, [200, 0, 0], [0, 3])
    assert SoftmaxLoss("gains", normalize=True)(scores, [200, 0, 0], [0, 3]).item() == pytest.approx(math.log(3))
    assert torch.isfinite(XENDCGLoss()(scores, [999, 999, 0], [0, 3]))


@pytest.mark.parametrize("loss", [SoftmaxLoss(), SoftmaxLoss(noise=1.0), XENDCGLoss()], ids=str)
def test_scores_that_are_not_finite_are_refused(loss):
    for bad in (float("nan"), float("inf")):
        with pytest.raises(DataError, match="scores must be finite"):
            loss(torch.tensor([0.0, bad]), [1, 0], [0, 2])
    with pytest.raises(DataError, match="scores must not be so large that their loss overflows"):
        loss(torch.tensor([1e38, -3e38]), [0, 1], [0, 2])


@pytest.mark.parametrize("loss", [SoftmaxLoss(), SoftmaxLoss(noise=1.0), XENDCGLoss()], ids=str)
def test_no_items_and_no_queries(loss):
    assert loss(torch.zeros(0), [], [0]).item() == 0
    assert loss(torch.zeros(0), [], [0, 0, 0]).item() == 0
    with vectorized():
        assert loss(torch.zeros(0), [], [0, 0, 0]).item() == 0


def test_losses_by_name():
    assert get_loss("softmax") == SoftmaxLoss()
    assert get_loss("softmax", target="gains", noise=1.0, draws=4) == SoftmaxLoss("gains", noise=1.0, draws=4)
    assert get_loss("XE-NDCG", seed=2) == XENDCGLoss(seed=2)
    with pytest.raises(ArgumentError, match="does not take these options"):
        get_loss("softmax", bounding="min-max")
