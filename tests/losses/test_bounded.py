"""Bounding a loss: a weight and a constant for the affine ways, the distribution of the query for the others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import expit

pytest.importorskip("torch")

import torch

from rankbound.difficulty.bounding import difficulty_of, get_bounding
from rankbound.errors import ArgumentError
from rankbound.losses import (
    APLoss,
    KendallTauLoss,
    LambdaRankLoss,
    NDCGLoss,
    NRBPLoss,
    PrecisionLoss,
    RRLoss,
    SoftRankLoss,
)
from rankbound.measures.label_counts import LabelCounts

RNG = np.random.default_rng(0)
SIZES = [3, 8, 1, 15, 6]
OFFSETS = np.concatenate(([0], np.cumsum(SIZES)))
LABELS = RNG.integers(0, 3, OFFSETS[-1])
SCORES = RNG.normal(size=OFFSETS[-1])
LOSSES = [NDCGLoss, APLoss, RRLoss, NRBPLoss, PrecisionLoss, KendallTauLoss, SoftRankLoss, LambdaRankLoss]


def run(loss, scores=SCORES, labels=LABELS, offsets=OFFSETS):
    scores = torch.tensor(scores, requires_grad=True)
    values = loss(scores, labels, offsets)
    return values.detach().numpy(), torch.autograd.grad(values.sum(), scores)[0].numpy()


@pytest.mark.parametrize("cls", LOSSES)
@pytest.mark.parametrize("bounding", ["min-max", "expectation", "expectation-max"])
def test_affine_boundings_are_a_weight_and_a_constant(cls, bounding):
    if cls is KendallTauLoss and bounding == "expectation":
        pytest.skip("its expected value is 0")
    options = {"k": 2} if cls is PrecisionLoss else {}
    plain, bounded = cls(reduction="none", **options), cls(reduction="none", bounding=bounding, **options)
    difficulty = difficulty_of(plain.target, LabelCounts.from_labels(LABELS, OFFSETS))
    weight = get_bounding(bounding).weight(difficulty)
    (value, gradient), (bounded_value, bounded_gradient) = run(plain), run(bounded)
    np.testing.assert_allclose(bounded_gradient, gradient * np.repeat(weight, SIZES), rtol=1e-12, atol=1e-15)
    constant = bounded_value - weight * value
    other = RNG.normal(size=len(SCORES))
    again = run(bounded, other)[0] - weight * run(plain, other)[0]
    np.testing.assert_allclose(constant, 0.0 if cls is LambdaRankLoss else again, atol=1e-12)


def test_min_max_of_a_perfect_and_of_the_worst_ranking():
    """-1 and 0 for measures; for U, which is a loss already, the same after the bounding has turned it."""
    labels = np.array([0, 1, 0, 2, 0])
    for loss in (NDCGLoss, APLoss, RRLoss, NRBPLoss):
        sharp = loss(bounding="min-max", alpha=1e4)
        assert sharp(torch.tensor(labels * 1.0 + np.arange(5) * 0.01), labels, [0, 5]).item() == pytest.approx(
            -1, abs=1e-6
        )
        assert sharp(torch.tensor(-labels - np.arange(5) * 0.01), labels, [0, 5]).item() == pytest.approx(0, abs=1e-6)


def test_expectation_keeps_u_a_loss():
    """U / E falls as the ranking gets better, so it is minimized as it is."""
    labels, sharp = np.array([1, 0, 0]), NRBPLoss(bounding="expectation", alpha=1e4)
    good, bad = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0.0, 1.0, 2.0])
    assert sharp(good, labels, [0, 3]).item() == pytest.approx(0)
    assert sharp(bad, labels, [0, 3]).item() == pytest.approx(2 / 1)  # U = 2, E = P (N - P) / 2 = 1


def distribution_by_enumeration(true_measure, labels):
    """Dx and Dy of the thesis: the scores of all orders and how often each comes."""
    values = [true_measure(order) for order in itertools.permutations(labels)]
    scores, counts = np.unique(np.round(values, 12), return_counts=True)
    return scores, counts / counts.sum()


def algorithm_2(score, scores, probabilities):
    """Smooth distribution of the thesis, summed directly, with the gain of its eq. 3.13."""
    gain = len(scores) / (scores.max() - scores.min())
    return float((probabilities * expit(gain * (score - scores))).sum())


@pytest.mark.parametrize(
    ("loss", "true_measure"),
    [
        (NDCGLoss, lambda order: sum((2.0**label - 1) / np.log2(i + 2) for i, label in enumerate(order))),
        (APLoss, lambda order: np.mean([(n + 1) / (i + 1) for n, i in enumerate(np.flatnonzero(order))])),
        (NRBPLoss, lambda order: sum(a < b for a, b in itertools.combinations(order, 2))),
    ],
)
def test_distribution_is_algorithm_2_of_the_thesis(loss, true_measure):
    labels = np.array([1, 0, 0, 1, 0, 0, 0])
    scores, probabilities = distribution_by_enumeration(true_measure, labels)
    if loss is NDCGLoss:
        scores = scores / scores.max()
    for spread in (0.0, 0.3, 1.0, 3.0):
        case = torch.tensor(spread * np.random.default_rng(1).normal(size=len(labels)))
        value = loss()(case, labels, [0, len(labels)]).item()
        smooth = value if loss is NRBPLoss else -value
        expected = algorithm_2(smooth, scores, probabilities)
        if loss is NRBPLoss:
            expected = 1 - expected  # F speaks of orders that are no better, and less is better for U
        ours = loss(bounding="distribution")(case, labels, [0, len(labels)]).item()
        assert -ours == pytest.approx(expected, abs=1e-6)
        surprise = loss(bounding="log-distribution")(case, labels, [0, len(labels)]).item()
        assert -surprise == pytest.approx(-np.log(1 - expected), rel=1e-4, abs=2e-6)


def test_log_distribution_has_a_gradient_where_the_distribution_is_flat():
    labels = np.array([1] * 8 + [0] * 24)
    scores = labels * 4.0 + np.linspace(0, 0.1, 32)
    flat = np.abs(run(NDCGLoss(bounding="distribution", reduction="none"), scores, labels, [0, 32])[1]).max()
    steep = np.abs(run(NDCGLoss(bounding="log-distribution", reduction="none"), scores, labels, [0, 32])[1]).max()
    assert steep > 10 * flat


def test_the_distribution_of_a_stronger_ranker_is_harder_to_beat():
    labels, scores = np.array([1, 0, 0, 0, 1, 0]), torch.tensor([2.0, 0.0, 1.0, -1.0, 1.5, 0.5])
    random = NDCGLoss(bounding="distribution")(scores, labels, [0, 6]).item()
    stronger = NDCGLoss(bounding="distribution", ranker_strength=0.8)(scores, labels, [0, 6]).item()
    assert stronger > random


def test_boundings_that_do_not_apply_raise_argument_error():
    with pytest.raises(ArgumentError, match="expectation bounding divides by the expected value, which is 0 for Tau"):
        KendallTauLoss(bounding="expectation")
    with pytest.raises(ArgumentError, match="bounding must be one of none, min-max"):
        NDCGLoss(bounding="UL1")
    with pytest.raises(ArgumentError, match="ranker_strength is for the distribution boundings"):
        NDCGLoss(ranker_strength=0.7)


@pytest.mark.parametrize("bounding", ["distribution", "log-distribution"])
@pytest.mark.parametrize("measure", ["nDCG", "AP", "RR", "nRBP(p=0.8)", "P@3", "ERR"])
def test_lambda_losses_bounded_by_a_distribution_have_the_gradient_of_finite_differences(measure, bounding):
    """Pair weights and the slope of the distribution depend on the order alone, so small steps leave them as they
    are."""
    rng = np.random.default_rng(4)
    offsets = np.array([0, 7, 12, 21])
    labels = np.array([1, 0, 2, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 2, 0, 0, 1])
    scores = np.concatenate([rng.permutation(size) for size in np.diff(offsets)]) * 0.3
    loss = LambdaRankLoss(measure, bounding=bounding)
    plan = loss.plan(labels, offsets)
    step, slopes = 1e-5, np.empty(len(scores))
    for j in range(len(scores)):
        moved = np.zeros(len(scores))
        moved[j] = step
        up, down = (loss.value_and_gradient(scores + sign * moved, plan).values.sum() for sign in (1, -1))
        slopes[j] = (up - down) / (2 * step)
    assert np.abs(slopes).max() > 0
    np.testing.assert_allclose(loss.value_and_gradient(scores, plan).gradient, slopes, rtol=1e-6, atol=1e-8)
