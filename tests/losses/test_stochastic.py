"""Noise on the scores: what is drawn, that the gradient belongs to the value, and the mean over many draws."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch")

import torch

from rankbound.errors import ArgumentError, DataError
from rankbound.losses import (
    LOSS_BOUNDINGS,
    APLoss,
    ERRLoss,
    KendallTauLoss,
    NDCGLoss,
    NRBPLoss,
    PrecisionLoss,
    RRLoss,
    SmoothMeasureLoss,
    SoftmaxLoss,
    get_loss,
    gradient_and_hessian,
    set_threads,
    vectorized,
)
from rankbound.losses.noise import generator_for, gumbel_noise, logistic_noise

OFFSETS = np.array([0, 6, 7, 7, 16, 19])
LABELS = np.array([2, 0, 1, 0, -1, 0, 1, 0, 0, 2, 1, 0, 0, 0, 1, 0, 0, 0, 0])
SCORES = np.random.default_rng(4).normal(size=19)
LOSSES = [
    NDCGLoss, APLoss, RRLoss, ERRLoss, NRBPLoss, KendallTauLoss, SoftmaxLoss,
    lambda **options: NDCGLoss(3, **options), lambda **options: PrecisionLoss(2, **options),
    lambda **options: SmoothMeasureLoss("R@3", **options), lambda **options: NRBPLoss(p=0.8, **options),
]  # fmt: skip


def value_and_gradient(loss, scores=SCORES, labels=LABELS, offsets=OFFSETS, dtype=torch.float64):
    scores = torch.tensor(scores, dtype=dtype, requires_grad=True)
    value = loss(scores, labels, offsets)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    return value.detach().numpy(), gradient.numpy()


def draws_of(loss, scores=SCORES, offsets=OFFSETS):
    generator = generator_for(loss.seed, scores, offsets)
    return [scores + loss.noise * gumbel_noise(generator, scores) for _ in range(loss.draws)]


# ---- the draws -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("draw", "distribution"), [(gumbel_noise, stats.gumbel_r), (logistic_noise, stats.logistic)])
def test_noise_has_its_distribution(draw, distribution):
    scores = np.zeros(20_000, dtype=np.float32)
    noise = draw(generator_for(0, scores, np.array([0, 20_000])), scores)
    assert stats.kstest(noise, distribution.cdf).pvalue > 0.01
    assert noise.mean() == pytest.approx(distribution.mean(), abs=4 * distribution.std() / math.sqrt(20_000))
    assert noise.dtype == np.float32


@pytest.mark.parametrize("draw", [gumbel_noise, logistic_noise])
def test_noise_is_finite_where_the_generator_reaches_its_ends(draw):
    class Ends:
        """A generator that only returns the ends of its range."""

        def random(self, shape, dtype):
            return np.resize(np.array([0.0, 1 - 2.0**-24], dtype=dtype), shape)

        def standard_exponential(self, shape, dtype):
            return np.resize(np.array([0.0, 100.0], dtype=dtype), shape)

    noise = draw(Ends(), np.zeros(4))
    assert noise.dtype == np.float64
    assert np.isfinite(noise).all()


def test_the_generator_is_a_function_of_seed_scores_and_offsets():
    def first(seed, scores, offsets):
        return generator_for(seed, np.asarray(scores), np.asarray(offsets)).random()

    start = first(0, [1.0, 2.0, 3.0], [0, 3])
    assert first(0, [1.0, 2.0, 3.0], [0, 3]) == start
    assert first(0, np.array([1, 2, 3], dtype=np.float32), np.array([0, 3], dtype=np.int32)) == start
    assert first(0, np.array([1.0, 9.0, 2.0, 9.0, 3.0])[::2], [0, 3]) == start
    assert first(0, np.array([1.0, 2.0, 3.0], dtype=">f8"), [0, 3]) == start
    assert len({start, first(1, [1.0, 2.0, 3.0], [0, 3]), first(0, [1.0, 3.0, 2.0], [0, 3]),
                first(0, [1.0, 2.0, 3.0], [0, 1, 3]), first(2**64 - 1, [1.0, 2.0, 3.0], [0, 3])}) == 5  # fmt: skip
    assert first(0, [0.0, 1.0], [0, 2]) == first(0, [-0.0, 1.0], [0, 2])
    assert first(0, [1e300, 0.0], [0, 2]) == first(0, [1e301, 0.0], [0, 2])  # both infinite in float32, and no warning


def test_draws_do_not_depend_on_threads_calls_or_the_global_state():
    sizes = np.random.default_rng(0).integers(2, 80, 300)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    rng = np.random.default_rng(1)
    case = rng.normal(size=offsets[-1]), rng.integers(0, 3, offsets[-1]), offsets
    results = []
    for budget in (1, 2):
        set_threads(budget)
        np.random.seed(budget)  # noqa: NPY002 - the state that must not matter
        torch.manual_seed(budget)
        results.append(value_and_gradient(NDCGLoss(noise=1.0, draws=2), *case))
        results.append(value_and_gradient(NDCGLoss(noise=1.0, draws=2), *case))
    set_threads(None)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0][1], other[1])


# ---- value, gradient, hessian ----------------------------------------------------------------------------------------


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("make", LOSSES)
def test_the_loss_is_the_mean_over_noisy_scores(make):
    noisy, exact = make(noise=0.7, draws=3, seed=5, reduction="none"), make(reduction="none")
    results = [value_and_gradient(exact, scores) for scores in draws_of(noisy)]
    value, gradient = value_and_gradient(noisy)
    np.testing.assert_allclose(value, np.mean([each[0] for each in results], axis=0), rtol=1e-12)
    np.testing.assert_allclose(gradient, np.mean([each[1] for each in results], axis=0), atol=1e-14)
    assert np.ptp([each[0].sum() for each in results]) > 1e-3
    hessians = [gradient_and_hessian(exact, scores, LABELS, OFFSETS)[1] for scores in draws_of(noisy)]
    by_objective = gradient_and_hessian(noisy, SCORES, LABELS, OFFSETS)
    np.testing.assert_allclose(by_objective[0], gradient, atol=1e-13)
    np.testing.assert_allclose(by_objective[1], np.mean(hessians, axis=0), rtol=1e-6, atol=2e-9)


@pytest.mark.parametrize("make", LOSSES)
def test_kernel_equals_formula(make):
    loss = make(noise=0.7, draws=2, reduction="none")
    value, gradient = value_and_gradient(loss)
    with vectorized():
        by_formula = value_and_gradient(loss)
    np.testing.assert_allclose(value, by_formula[0], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(gradient, by_formula[1], rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("bounding", LOSS_BOUNDINGS)
def test_boundings_apply_to_each_draw(bounding):
    """A bounding that is not affine, applied to the mean of the draws, would give another value."""
    case = SCORES[:6], LABELS[:6], np.array([0, 6])
    noisy, exact = NDCGLoss(noise=2.0, draws=4, bounding=bounding), NDCGLoss(bounding=bounding)
    results = [value_and_gradient(exact, scores, *case[1:]) for scores in draws_of(noisy, case[0], case[2])]
    value, gradient = value_and_gradient(noisy, *case)
    assert value == pytest.approx(np.mean([each[0] for each in results]), rel=1e-12)
    np.testing.assert_allclose(gradient, np.mean([each[1] for each in results], axis=0), atol=1e-13)
    with vectorized():
        assert value == pytest.approx(value_and_gradient(noisy, *case)[0], rel=1e-8)


@pytest.mark.parametrize("make", [NDCGLoss, SoftmaxLoss])
def test_the_gradient_is_that_of_finite_differences_with_the_noise_held_fixed(make):
    noisy, exact, step = make(noise=1.0, draws=2, reduction="sum"), make(reduction="sum"), 1e-5
    draws = draws_of(noisy)
    gradient = value_and_gradient(noisy)[1]
    for i in range(len(SCORES)):
        shift = np.eye(len(SCORES))[i] * step
        ends = [
            np.mean([value_and_gradient(exact, scores + sign * shift)[0] for scores in draws]) for sign in (1, -1)
        ]  # fmt: skip
        assert gradient[i] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


@pytest.mark.parametrize("make", [NDCGLoss, SoftmaxLoss])
def test_float32_meets_the_same_noise(make):
    scores = SCORES.astype(np.float32)
    loss = make(noise=1.0, draws=2, reduction="none")
    fast = value_and_gradient(loss, scores, dtype=torch.float32)
    exact = value_and_gradient(loss, scores.astype(np.float64))
    np.testing.assert_allclose(fast[0], exact[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fast[1], exact[1], atol=1e-5)
    assert fast[1].dtype == np.float32


def test_no_noise_is_the_loss_itself():
    for make in LOSSES:
        plain = value_and_gradient(make())
        for options in ({"noise": 0.0, "draws": 7, "seed": 3}, {"noise": 0}):
            for mine, expected in zip(value_and_gradient(make(**options)), plain, strict=True):
                np.testing.assert_array_equal(mine, expected)
        little = value_and_gradient(make(noise=1e-9))
        np.testing.assert_allclose(little[0], plain[0], rtol=1e-6)


def test_queries_that_are_not_informative_stay_so():
    loss = NDCGLoss(noise=3.0, draws=2, reduction="none")
    value, gradient = value_and_gradient(loss)
    assert (value != 0).tolist() == [True, False, False, True, False]
    assert np.abs(gradient[[6, 16, 17, 18]]).max() == 0
    mean = value_and_gradient(NDCGLoss(noise=3.0, draws=2))[0]
    assert mean == pytest.approx(value.sum() / 2)


@pytest.mark.full("takes seconds")
def test_extreme_scores_and_noise():
    for dtype in (torch.float32, torch.float64):
        for scores in (1e4 * SCORES, np.zeros(19)):
            for make in LOSSES:
                for noise in (1.0, 1e4):
                    value, gradient = value_and_gradient(make(noise=noise), scores, dtype=dtype)
                    assert np.isfinite(value)
                    assert np.isfinite(gradient).all()
    with pytest.raises(DataError, match="scores must be finite"):
        NDCGLoss(noise=3e38)(torch.zeros(19), LABELS, OFFSETS)


# ---- the mean over many draws ----------------------------------------------------------------------------------------


def test_steep_smooth_ndcg_with_noise_is_the_expectation_under_plackett_luce():
    """Scores with Gumbel noise are ordered as in the Plackett-Luce model of scores / noise, whose orders are summed."""
    scores, labels, noise = np.array([0.5, -0.3, 0.9]), np.array([2, 1, 0]), 0.8
    expected = 0.0
    for order in permutations(range(3)):
        probability, left = 1.0, list(order)
        while left:
            weights = [math.exp(scores[i] / noise) for i in left]
            probability *= weights[0] / sum(weights)
            left = left[1:]
        dcg = sum((2 ** int(labels[i]) - 1) / math.log2(rank + 2) for rank, i in enumerate(order))
        expected += probability * dcg / (3 / math.log2(2) + 1 / math.log2(3))
    values = [
        -NDCGLoss(alpha=1e5, noise=noise, draws=20, seed=seed)(torch.tensor(scores), labels, [0, 3]).item()
        for seed in range(200)
    ]
    assert np.mean(values) == pytest.approx(expected, abs=4 * np.std(values) / math.sqrt(len(values)))
    assert np.std(values) > 1e-3


def test_noisy_softmax_is_its_expectation_over_seeds():
    """For two items, log(1 + exp(-d)) is integrated over d = difference + noise * Logistic(0, 1)."""
    difference, noise = 0.4, 1.5
    values = [
        SoftmaxLoss(noise=noise, draws=10, seed=seed)(torch.tensor([difference, 0.0]), [1, 0], [0, 2]).item()
        for seed in range(400)
    ]
    quantiles = stats.logistic.ppf((np.arange(200_000) + 0.5) / 200_000)
    expected = np.logaddexp(0, -(difference + noise * quantiles)).mean()
    assert np.mean(values) == pytest.approx(expected, abs=4 * np.std(values) / math.sqrt(len(values)))


def test_more_draws_vary_less():
    few, many = (
        np.std([value_and_gradient(NDCGLoss(noise=1.0, draws=draws, seed=seed))[0] for seed in range(60)])
        for draws in (1, 16)
    )
    assert many < few / 2  # a quarter, in expectation


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "message"), [
    ({"noise": -0.1}, "noise must be a number of at least 0, got -0.1"),
    ({"noise": "1"}, "noise must be a number of at least 0, got '1'"),
    ({"noise": float("nan")}, "noise must be a number of at least 0, got nan"),
    ({"draws": -1}, "draws must be a positive integer, got -1"),
    ({"draws": True}, "draws must be a positive integer, got True"),
    ({"seed": None}, "seed must be an integer from 0 to 2^64 - 1, got None"),
    ({"seed": 2**64}, f"seed must be an integer from 0 to 2^64 - 1, got {2**64}"),
])  # fmt: skip
def test_options_that_are_refused(options, message):
    for make in (NDCGLoss, lambda **options: get_loss("AP", **options)):
        with pytest.raises(ArgumentError) as error:
            make(**options)
        assert str(error.value) == message


def test_losses_by_name_take_noise():
    assert get_loss("nDCG@10", noise=1.0, draws=2, seed=1) == NDCGLoss(10, noise=1.0, draws=2, seed=1)
    assert get_loss("R@3", noise=1.0).noise == 1.0
