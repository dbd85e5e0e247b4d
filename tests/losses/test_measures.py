"""The losses of every registered measure that has one, and of measures that users define.

A new measure is covered by all of these tests as soon as it is registered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import rankbound.measures
from rankbound.errors import ArgumentError
from rankbound.losses import (
    LOSS_BOUNDINGS,
    LambdaRankLoss,
    SmoothMeasureLoss,
    get_loss,
    gradient_and_hessian,
    lightgbm_objective,
    loss_names,
    vectorized,
    xgboost_objective,
)
from rankbound.losses.noise import generator_for, logistic_noise
from rankbound.losses.structures import has_loss
from rankbound.measures import LabelCounts, Measure, parse_measure, unregister
from rankbound.testing import oracles
from rankbound.testing.strategies import catalog


@dataclass(frozen=True)
class Own:
    """A measure of a user, with its value by loops over a ranked list."""

    define: Callable[[str], Any]
    oracle: Callable[[Measure, Any, int], float]
    cutoff: int | None = None


def additive_oracle(gain, discount, normalize=True):
    def value(measure, labels, depth):
        k = min(measure.cutoff or len(labels), depth)
        total = sum(gain(label) * discount(rank) for rank, label in enumerate(labels[:k], start=1))
        best = sorted(map(gain, labels), reverse=True)[: measure.cutoff]
        return total / (sum(g * discount(rank) for rank, g in enumerate(best, start=1)) if normalize else 1)

    return value


def cascade_oracle(stop, discount):
    def value(measure, labels, depth):
        total, reading = 0.0, 1.0
        for rank, label in enumerate(labels[: min(measure.cutoff or len(labels), depth)], start=1):
            total += reading * stop(label) * discount(rank)
            reading *= 1 - stop(label)
        return total

    return value


def pairwise_oracle(weight):
    def value(measure, labels, depth):
        pairs = [(a, b) for i, a in enumerate(labels) for b in labels[i + 1 :] if a != b]
        right = sum(weight(a, b) for a, b in pairs if a > b)
        return right / sum(weight(max(pair), min(pair)) for pair in pairs)

    return value


OWN = {
    "Root": Own(
        lambda name: rankbound.measures.additive(name, gain=lambda x: x**0.5, discount=lambda r: 1 / (1 + r) ** 0.7),
        additive_oracle(lambda label: label**0.5, lambda rank: 1 / (1 + rank) ** 0.7),
    ),
    "RootAt3": Own(
        lambda name: rankbound.measures.additive(
            name, gain=lambda x: x**0.5, discount=lambda r: np.exp(-r / 4), slope=lambda r: -np.exp(-r / 4) / 4
        ),
        additive_oracle(lambda label: label**0.5, lambda rank: np.exp(-rank / 4)),
        cutoff=3,
    ),
    "Consolation": Own(  # items of label 0 have gain, too
        lambda name: rankbound.measures.additive(name, gain=lambda x: x + 0.5, discount="log2", normalize=False),
        additive_oracle(lambda label: label + 0.5, lambda rank: 1 / np.log2(1 + rank), normalize=False),
    ),
    "Patience": Own(  # some stops are certain, others are not
        lambda name: rankbound.measures.cascade(
            name, stop=lambda x: np.minimum(x / 3, 1), discount=lambda r: 1 / np.sqrt(r)
        ),
        cascade_oracle(lambda label: min(label / 3, 1), lambda rank: rank**-0.5),
    ),
    "PatienceAt3": Own(
        lambda name: rankbound.measures.cascade(name, stop=lambda x: np.minimum(x / 2, 1), discount="constant"),
        cascade_oracle(lambda label: min(label / 2, 1), lambda rank: 1.0),
        cutoff=3,
    ),
    "Steps": Own(
        lambda name: rankbound.measures.pairwise(name, weight=lambda high, low: high**2 - low),
        pairwise_oracle(lambda high, low: high**2 - low),
    ),
}
BUILT_IN = [str(measure) for measure in catalog(range(3, 4)) if has_loss(measure)]
every_measure = pytest.mark.parametrize("measure", [*BUILT_IN, *OWN], indirect=True)
both_losses = pytest.mark.parametrize("kind", ["smooth", "lambda"])


@pytest.fixture
def measure(request):
    if request.param not in OWN:
        yield parse_measure(request.param)
        return
    own = OWN[request.param]
    own.define(request.param)
    oracles.add(request.param, own.oracle)
    try:
        yield parse_measure(request.param + (f"@{own.cutoff}" if own.cutoff else ""))
    finally:
        oracles.remove(request.param)
        unregister(request.param)


def loss_of(measure, kind, **options):
    if kind == "smooth":
        return SmoothMeasureLoss(measure, **options)
    gain = {"gain": "exp" if dict(measure.settings).get("dcg") == "exp-log2" else "linear"}
    return LambdaRankLoss(measure, **gain, **options)


def batch(seed, longest=9, queries=4, largest=3):
    """Distinct scores and random labels of queries of different length, some of which are not informative."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, longest + 1, queries)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    scores = (rng.permutation(offsets[-1]) + rng.uniform(0, 0.5, offsets[-1])) * 0.15
    labels = rng.integers(0, largest + 1, offsets[-1])
    if queries > 1:
        labels[: sizes[0]] = rng.integers(0, largest + 1)
    return scores, labels, offsets


def test_the_catalog_has_measures_of_every_structure():
    names = {parse_measure(name).name for name in BUILT_IN}
    assert {
        "nDCG",
        "DCG",
        "P",
        "R",
        "Rprec",
        "RBP",
        "nRBP",
        "ERR",
        "RR",
        "Success",
        "AP",
        "SP",
        "U",
        "PairAcc",
        "Tau",
    } <= names
    assert names <= set(loss_names())


@both_losses
@every_measure
def test_kernel_equals_formula(measure, kind):
    for seed, options in ((0, {}), (1, {"alpha": 2.5}), (2, {"bounding": "min-max"})):
        scores, labels, offsets = batch(seed, longest=50)
        loss = loss_of(measure, kind, reduction="none", **options)
        plan = loss.plan(labels, offsets)
        result = loss.value_and_gradient(scores, plan)
        exact = torch.tensor(scores, requires_grad=True)
        with vectorized():
            values = loss(exact, labels, offsets)
        (gradient,) = torch.autograd.grad(values.sum(), exact)
        np.testing.assert_allclose(result.values, values.detach().numpy(), rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(result.gradient, gradient.numpy(), rtol=1e-8, atol=1e-10)


@both_losses
@every_measure
def test_gradient_equals_finite_differences(measure, kind):
    boundings = [name for name in LOSS_BOUNDINGS if name != "expectation" or measure.definition.floor >= 0]
    for seed, bounding in enumerate(boundings):
        scores, labels, offsets = batch(seed, longest=6, queries=2, largest=2)
        loss = loss_of(measure, kind, bounding=bounding)
        plan = loss.plan(labels, offsets)
        step, slopes = 1e-5, np.empty_like(scores)
        for j in range(len(scores)):
            moved = np.eye(len(scores))[j] * step
            up, down = (loss.value_and_gradient(scores + sign * moved, plan).values.sum() for sign in (1, -1))
            slopes[j] = (up - down) / (2 * step)
        # the smooth distribution is tabulated: its slope is that of the table to four digits
        tolerance = 2e-4 if bounding.endswith("distribution") else 2e-6
        gradient = loss.value_and_gradient(scores, plan).gradient
        np.testing.assert_allclose(gradient, slopes, atol=tolerance * max(1.0, np.abs(slopes).max()))


@every_measure
def test_large_alpha_gives_the_measure(measure):
    sign = 1 if measure.definition.lower_is_better else -1
    for seed in range(4):
        scores, labels, offsets = batch(seed, longest=8)
        loss = SmoothMeasureLoss(measure, alpha=1e4, beta=200.0, reduction="none")
        plan = loss.plan(labels, offsets)
        values = loss.value_and_gradient(scores, plan).values
        for q in np.flatnonzero(plan.active):
            items = slice(offsets[q], offsets[q + 1])
            ranked = labels[items][np.argsort(-scores[items])].tolist()
            assert sign * values[q] == pytest.approx(oracles.value(measure, ranked), abs=1e-6)


@every_measure
def test_the_error_falls_as_alpha_grows(measure):
    scores, labels, offsets = batch(5, longest=8)
    values = [
        SmoothMeasureLoss(measure, alpha=alpha, beta=200.0, reduction="sum")(
            torch.tensor(scores), labels, offsets
        ).item()
        for alpha in (20.0, 100.0, 1e5)
    ]
    assert abs(values[1] - values[2]) <= abs(values[0] - values[2]) + 1e-9


@every_measure
def test_swap_deltas_equal_recomputing_the_measure(measure):
    """Checks the deltas through the gradients of the kernel, in both precisions, and of the formula."""
    loss = loss_of(measure, "lambda")
    structure = loss._structure
    for seed in range(4):
        scores, labels, offsets = batch(seed, longest=8, queries=1)
        n = len(scores)
        levels = structure.levels(labels)
        expected = np.zeros(n)
        for i in range(n):
            for j in range(n):
                if levels[i] > levels[j]:
                    swapped = scores.copy()
                    swapped[[i, j]] = scores[[j, i]]
                    before, after = (oracles.value(measure, labels[np.argsort(-s)].tolist()) for s in (scores, swapped))
                    pair = abs(after - before) / (1 + np.exp(scores[i] - scores[j]))  # the lambda of the pair
                    expected[i] -= pair
                    expected[j] += pair
        np.testing.assert_allclose(gradient_and_hessian(loss, scores, labels, offsets)[0], expected, atol=1e-11)
        fast = gradient_and_hessian(loss, scores.astype(np.float32), labels, offsets)[0]
        np.testing.assert_allclose(fast, expected, atol=1e-5 * max(1, np.abs(expected).max()))
        exact = torch.tensor(scores, requires_grad=True)
        with vectorized():
            (by_formula,) = torch.autograd.grad(loss(exact, labels, offsets), exact)
        np.testing.assert_allclose(by_formula, expected, atol=1e-11)


OPTIONS = [
    {"truncation": 2},
    {"normalization": "sqrt", "alpha": 2.0},
    {"normalization": "lightgbm", "truncation": 3, "alpha": 0.5},
    {"noise": 1.5, "seed": 7},
    {"noise": 0.7, "truncation": 1, "normalization": "sqrt"},
]


def lambdas_by_definition(
    measure, levels, scores, labels, ranked_by, *, alpha=1.0, truncation=None, normalization="none"
):
    """Gradient, hessian and value of LambdaRank for one query, by swapping pairs in the ranking by ``ranked_by``."""
    n = len(scores)
    order = np.argsort(-ranked_by, kind="stable")
    ranks = np.empty(n, int)
    ranks[order] = np.arange(1, n + 1)
    gradient, hessian, value, total = np.zeros(n), np.zeros(n), 0.0, 0.0
    for i in range(n):
        for j in range(n):
            if levels[i] <= levels[j] or (truncation is not None and min(ranks[i], ranks[j]) > truncation):
                continue
            swapped = order.copy()
            swapped[[ranks[i] - 1, ranks[j] - 1]] = j, i
            before, after = (oracles.value(measure, labels[ranking].tolist()) for ranking in (order, swapped))
            weight = abs(after - before)
            if normalization == "lightgbm" and scores.max() != scores.min():
                weight /= 0.01 + abs(scores[i] - scores[j])
            probability = 1 / (1 + np.exp(alpha * (scores[i] - scores[j])))
            gradient[i] -= alpha * weight * probability
            gradient[j] += alpha * weight * probability
            hessian[[i, j]] += alpha**2 * weight * probability * (1 - probability)
            value += weight * np.log1p(np.exp(-alpha * (scores[i] - scores[j])))
            total += 2 * alpha * weight * probability
    factor = 1.0
    if total > 0:
        factor = {"none": 1.0, "sqrt": total**-0.5, "lightgbm": np.log2(1 + total) / total}[normalization]
    return factor * gradient, factor * hessian, factor * value


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@every_measure
def test_options_of_lambda_rank_equal_their_definition(measure, options):
    """Truncation, normalization and noise, in both precisions, with and without a hessian."""
    loss = loss_of(measure, "lambda", **options)
    others = {name: value for name, value in options.items() if name not in ("noise", "seed")}
    for seed in range(3):
        exact, labels, offsets = batch(seed, longest=8, queries=2)
        plan = loss.plan(labels, offsets)
        for dtype, error in ((np.float64, 1e-10), (np.float32, 2e-5)):
            scores = exact.astype(dtype)
            noise = logistic_noise(generator_for(options.get("seed", 0), scores, offsets), scores)
            ranked_by = scores + dtype(options.get("noise", 0.0)) * noise
            for with_hessian in (True, False):
                result = loss.value_and_gradient(scores, plan, with_hessian=with_hessian)
                for q in np.flatnonzero(plan.active):
                    items = slice(offsets[q], offsets[q + 1])
                    levels = loss._structure.levels(labels[items])
                    gradient, hessian, value = lambdas_by_definition(
                        measure, levels, scores[items].astype(float), labels[items], ranked_by[items], **others
                    )
                    scale = error * max(1, np.abs(gradient).max())
                    np.testing.assert_allclose(result.gradient[items], gradient, atol=scale)
                    assert result.values[q] == pytest.approx(value, rel=error, abs=error)
                    if with_hessian:
                        np.testing.assert_allclose(result.hessian[items], hessian, atol=scale)


@both_losses
@every_measure
def test_informative_queries_are_those_with_a_choice(measure, kind):
    """A query counts if and only if the best ranking of its items is better than the worst."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 300)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    labels = rng.integers(0, 4, offsets[-1]) * np.repeat(rng.integers(0, 2, len(sizes)), sizes)
    labels = np.maximum(labels, np.repeat(rng.integers(0, 2, len(sizes)), sizes))
    worst, _, best = measure.definition.bounds(measure, LabelCounts.from_labels(labels, offsets))
    active = loss_of(measure, kind).plan(labels, offsets).active
    np.testing.assert_array_equal(active, np.abs(best - worst) > 1e-12)


@both_losses
@every_measure
def test_reductions_and_objectives_agree(measure, kind):
    scores, labels, offsets = batch(7)
    each = loss_of(measure, kind, reduction="none")(torch.tensor(scores), labels, offsets)
    total = loss_of(measure, kind, reduction="sum")(torch.tensor(scores), labels, offsets)
    assert total.item() == pytest.approx(each.sum().item(), abs=1e-12)
    name = ("lambda-" if kind == "lambda" else "") + str(measure)
    loss = get_loss(name)
    gradient, hessian = gradient_and_hessian(loss, scores, labels, offsets)
    assert (hessian > 0).all()
    np.testing.assert_allclose(
        gradient, loss.value_and_gradient(scores, loss.plan(labels, offsets)).gradient, atol=1e-12
    )
    by_objective, curvature = lightgbm_objective(name)(labels, scores, None, np.diff(offsets))
    factor = np.abs(by_objective).sum() / np.abs(gradient).sum()  # objectives are scaled by one number
    for mine, expected in ((by_objective, gradient), (curvature, hessian)):
        np.testing.assert_allclose(mine, factor * expected, atol=5e-5 * factor * max(1, np.abs(expected).max()))
    assert xgboost_objective(name).loss == loss


@both_losses
@every_measure
def test_float32_is_near_float64(measure, kind):
    scores, labels, offsets = batch(3, longest=40)
    loss = loss_of(measure, kind)
    plan = loss.plan(labels, offsets)
    for spread in (1.0, 60.0):  # the second is too wide for exponentials of the scores
        single = (spread * scores).astype(np.float32)
        fast, exact = loss.value_and_gradient(single, plan), loss.value_and_gradient(single.astype(np.float64), plan)
        for mine, expected in ((fast.values, exact.values), (fast.gradient, exact.gradient)):
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=3e-5 * max(1, np.abs(expected).max()))


@pytest.mark.full("takes seconds")
@every_measure
def test_hessian_and_other_sigmoids_follow_the_same_gradient(measure):
    """With a hessian, or another sigmoid, other code paths of the kernel run."""
    scores, labels, offsets = batch(4, longest=30)
    for sigmoid in ("logistic", "tanh", "arctan", "erf", "relu"):
        loss = SmoothMeasureLoss(measure, sigmoid=sigmoid)
        plan = loss.plan(labels, offsets)
        direct, curved = (loss.value_and_gradient(scores, plan, with_hessian=flag) for flag in (False, True))
        np.testing.assert_allclose(curved.gradient, direct.gradient, atol=1e-12 * max(1, np.abs(direct.gradient).max()))
        assert (curved.hessian >= 0).all()
        exact = torch.tensor(scores, requires_grad=True)
        with vectorized():
            (gradient,) = torch.autograd.grad(replace(loss, reduction="sum")(exact, labels, offsets), exact)
        np.testing.assert_allclose(direct.gradient, gradient.numpy(), rtol=1e-8, atol=1e-10)


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", ["Root"], indirect=True)
def test_a_measure_of_a_user_has_its_losses_by_name(measure):
    assert {"Root", "lambda-Root"} <= set(loss_names())
    assert get_loss("Root@5") == SmoothMeasureLoss("Root@5")
    assert get_loss("lambda-Root@5", alpha=2.0) == LambdaRankLoss("Root@5", alpha=2.0)
    assert get_loss(measure) == get_loss("Root")


def test_the_gain_of_dcg_is_exponential_unless_told_otherwise():
    assert str(get_loss("DCG@5").target) == "DCG(dcg='exp-log2')@5"
    assert str(get_loss("DCG@5", gain="linear").target) == "DCG@5"
    assert str(SmoothMeasureLoss("DCG@5").target) == "DCG@5"
    with pytest.raises(ArgumentError, match="gain is for measures with a parameter dcg, got gain='exp' for AP"):
        SmoothMeasureLoss("AP", gain="exp")


def test_settings_that_no_named_loss_has_go_to_the_generic_loss():
    assert get_loss("AP(rel=2)@5").rel == 2
    assert get_loss("nRBP").target == parse_measure("U")
    assert get_loss("nRBP(p=0.8)").target == parse_measure("nRBP")
    assert get_loss("nRBP(p=0.9)@3").target == parse_measure("nRBP(p=0.9)@3")


@pytest.mark.parametrize("name", ["Bpref", "lambda-Bpref", "AP(div='retrieved')", "EM(nDCG)", "SetP"])
def test_measures_without_a_loss_are_refused_with_the_names_of_those_that_have_one(name):
    with pytest.raises(ArgumentError, match=r"loss must be one of nDCG, DCG, .*, lambda-nDCG, .*, RankNet"):
        get_loss(name)
    text = name.removeprefix("lambda-")
    for loss in (SmoothMeasureLoss, LambdaRankLoss):
        with pytest.raises(ArgumentError, match="measure must be one that has a loss, nDCG, DCG, "):
            loss(text)
