"""Properties that hold for every loss, on generated lists."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples

pytest.importorskip("torch")

import torch

from rankbound.losses import (
    LOSS_BOUNDINGS,
    APLoss,
    DirectRankerLoss,
    DistillationLoss,
    ERRLoss,
    KendallTauLoss,
    LambdaLoss,
    LambdaRankLoss,
    ListMLELoss,
    ListNetLoss,
    MeasureLoss,
    NDCGLoss,
    NRBPLoss,
    PointwiseLoss,
    PrecisionLoss,
    RankNetLoss,
    RRLoss,
    SmoothMeasureLoss,
    SoftmaxLoss,
    SoftRankLoss,
    XENDCGLoss,
    vectorized,
)

SMOOTH = [
    (NDCGLoss, {}),
    (NDCGLoss, {"gain": "linear", "alpha": 3.0}),
    (NDCGLoss, {"k": 3, "beta": 2.0}),
    (NDCGLoss, {"sigmoid": "tanh"}),
    (NDCGLoss, {"sigmoid": "arctan"}),
    (NDCGLoss, {"sigmoid": "erf"}),
    (APLoss, {}),
    (APLoss, {"k": 3, "rel": 2}),
    (APLoss, {"form": "ranks", "beta": 2.0}),
    (APLoss, {"form": "ranks", "k": 4}),
    (RRLoss, {}),
    (RRLoss, {"k": 2, "sigmoid": "arctan"}),
    (RRLoss, {"form": "ranks", "beta": 2.0}),
    (RRLoss, {"form": "ranks", "k": 4}),
    (ERRLoss, {}),
    (ERRLoss, {"k": 3, "max_rel": 5}),
    (SmoothMeasureLoss, {"measure": "R@3"}),
    (NRBPLoss, {}),
    (NRBPLoss, {"p": 0.9, "k": 5}),
    (PrecisionLoss, {"k": 2}),
    (KendallTauLoss, {"alpha": 0.5}),
]
RELU = [(cls, {"sigmoid": "relu"}) for cls in (NDCGLoss, APLoss, RRLoss, NRBPLoss, KendallTauLoss)]
SOFT = [(SoftRankLoss, {}), (SoftRankLoss, {"k": 3, "noise": 0.5})]
LAMBDA = [
    (LambdaRankLoss, {"measure": name})
    for name in ("nDCG", "nDCG@3", "AP", "AP@3", "RR", "RR@2", "nRBP(p=0.9)", "P@2", "ERR", "ERR@3")
] + [
    (LambdaRankLoss, {"measure": "nRBP", "published": True, "alpha": 2.0}),
    (LambdaRankLoss, {"measure": "nDCG", "truncation": 2}),
    (LambdaRankLoss, {"measure": "AP", "truncation": 3}),
    (LambdaRankLoss, {"measure": "Tau", "truncation": 1}),
    (LambdaLoss, {"form": "1"}),
    (LambdaLoss, {"form": "2", "k": 3}),
    (LambdaLoss, {"form": "2++", "alpha": 2.0}),
    (LambdaLoss, {"form": "2++", "k": 2, "mu": 3.0, "gain": "linear"}),
]
# Their factors depend on the scores and count as constants, so that finite differences are not the gradient.
NORMALIZED = [
    (LambdaRankLoss, {"measure": "nDCG@3", "normalization": "sqrt", "alpha": 2.0}),
    (LambdaRankLoss, {"measure": "nDCG", "normalization": "lightgbm", "truncation": 4}),
    (LambdaRankLoss, {"measure": "AP", "normalization": "sqrt"}),
    (LambdaRankLoss, {"measure": "ERR", "normalization": "lightgbm", "alpha": 0.5}),
    (LambdaRankLoss, {"measure": "Tau", "normalization": "lightgbm"}),
]
# Their noise depends on all scores of a call, so that other orders, precisions and batches have other noise.
NOISY = [
    (LambdaRankLoss, {"measure": "nDCG@3", "noise": 1.0, "truncation": 4, "normalization": "sqrt"}),
    (LambdaRankLoss, {"measure": "AP", "noise": 0.5, "seed": 3}),
    (LambdaRankLoss, {"measure": "RR", "noise": 2.0}),
    (LambdaRankLoss, {"measure": "Tau", "noise": 1.0, "truncation": 2}),
]
OTHERS = [
    (RankNetLoss, {"alpha": 2.0}),
    (DirectRankerLoss, {}),
    (DirectRankerLoss, {"cost": "tanh"}),
    (SoftmaxLoss, {}),
    (SoftmaxLoss, {"target": "gains", "normalize": True, "temperature": 2.0}),
    (XENDCGLoss, {"deterministic": True}),
    (DistillationLoss, {}),
    (DistillationLoss, {"kind": "pairwise", "temperature": 2.0}),
    (ListNetLoss, {}),
    (ListMLELoss, {}),
    (PointwiseLoss, {}),
    (PointwiseLoss, {"kind": "classification"}),
]


AFFINE, BY_DISTRIBUTION = LOSS_BOUNDINGS[:4], LOSS_BOUNDINGS[4:]


def under(cls, options, boundings, reduction="none"):
    """A loss under each bounding that it takes; losses without a measure take none."""
    if not issubclass(cls, MeasureLoss):
        return [cls(reduction=reduction, **options)]
    refused = ("expectation",) if cls is KendallTauLoss or options.get("measure") == "Tau" else ()
    return [cls(reduction=reduction, bounding=name, **options) for name in boundings if name not in refused]


def named(cases):
    cases = list(cases)
    names = [f"{cls.__name__}-" + "-".join(str(value) for value in options.values()) for cls, options in cases]
    return pytest.mark.parametrize(("cls", "options"), cases, ids=names)


DIFFERENTIABLE = [*SMOOTH, *RELU, *SOFT, *LAMBDA, *OTHERS]
CASES = [*DIFFERENTIABLE, *NORMALIZED]


@st.composite
def lists(draw, longest=12, distinct=False, size=4.0, levels=4):
    """Up to 4 queries: with ties, single items, all and none relevant, negative labels."""
    sizes = draw(st.lists(st.integers(1, longest), min_size=1, max_size=4))
    n = sum(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    top = draw(st.integers(0, levels))
    labels = rng.integers(-1, top + 1, n)
    if distinct:
        scores = (rng.permutation(n) - n / 2) * (size / n) + rng.uniform(0, size / (4 * n), n)
    else:
        scores = rng.normal(size=n) * draw(st.sampled_from([0.1, 1.0, size]))
        if draw(st.booleans()):
            scores = np.round(scores)
    return scores, labels, np.concatenate(([0], np.cumsum(sizes)))


def value_and_gradient(loss, scores, labels, offsets, by_formula=False):
    scores = torch.tensor(scores, requires_grad=True)
    with vectorized() if by_formula else nullcontext():
        value = loss(scores, labels, offsets)
    gradient = torch.autograd.grad(value.sum(), scores)[0]
    return value.detach().numpy(), gradient.numpy()


def assert_kernel_equals_formula(loss, case):
    ours, theirs = value_and_gradient(loss, *case), value_and_gradient(loss, *case, by_formula=True)
    for mine, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-8, atol=1e-9 * max(1, np.abs(expected).max()))


@named([*SMOOTH, *RELU, *LAMBDA, *OTHERS, *NORMALIZED, *NOISY])
@examples(5)
@given(case=lists(longest=60))
def test_kernel_equals_formula(cls, options, case):
    """Value and gradient of the kernel in float64 equal those of the formula under autograd."""
    for loss in under(cls, options, AFFINE):
        assert_kernel_equals_formula(loss, case)


@named([*SMOOTH, *RELU, *LAMBDA, *SOFT, *NORMALIZED, *NOISY])
@examples(3)
@given(case=lists(longest=6, levels=2))
def test_kernel_equals_formula_on_short_lists(cls, options, case):
    """The same for cases in which the distribution or the formula would take long."""
    for loss in under(cls, options, LOSS_BOUNDINGS if cls is SoftRankLoss else BY_DISTRIBUTION):
        assert_kernel_equals_formula(loss, case)


@pytest.mark.parametrize("n", [1, 2, 50, 200])
def test_kernel_equals_formula_on_long_lists(n):
    rng = np.random.default_rng(n)
    case = rng.normal(size=n), rng.integers(0, 4, n), np.array([0, n])
    for cls, options in [*SMOOTH, *LAMBDA, *OTHERS, *NORMALIZED, *NOISY]:
        assert_kernel_equals_formula(cls(reduction="none", **options), case)


@named(DIFFERENTIABLE)
@examples(3)
@given(case=lists(longest=6, distinct=True, levels=2))
def test_gradient_equals_finite_differences(cls, options, case):
    """Scores are distinct here: relu has a kink and swap deltas jump where two scores meet."""
    scores, labels, offsets = case
    step = 1e-5
    for loss in under(cls, options, LOSS_BOUNDINGS, reduction="sum"):
        gradient = value_and_gradient(loss, scores, labels, offsets)[1]
        slopes = np.empty_like(scores)
        plan = loss.plan(labels, offsets)
        for i in range(len(scores)):
            up, down = scores.copy(), scores.copy()
            up[i] += step
            down[i] -= step
            slopes[i] = (
                loss.value_and_gradient(up, plan).values.sum() - loss.value_and_gradient(down, plan).values.sum()
            ) / (2 * step)
        # the smooth distribution is tabulated: its slope is that of the table to four digits
        tolerance = 2e-4 if getattr(loss, "bounding", "none") in BY_DISTRIBUTION else 1e-6
        np.testing.assert_allclose(gradient, slopes, atol=tolerance * max(1.0, np.abs(slopes).max()))


@named(CASES)
@examples(4)
@given(case=lists(longest=40))
def test_float32_is_near_float64(cls, options, case):
    scores, labels, offsets = case
    scores = scores.astype(np.float32)
    loss = cls(reduction="none", **options)
    fast = value_and_gradient(loss, scores, labels, offsets)
    exact = value_and_gradient(loss, scores.astype(np.float64), labels, offsets)
    for mine, expected in zip(fast, exact, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=3e-5 * max(1, np.abs(expected).max()))


@pytest.mark.full("takes seconds")
@named([*CASES, *NOISY])
@examples(3)
@given(case=lists(longest=6, levels=2), huge=st.sampled_from([1e2, 1e4]))
def test_finite_on_extreme_scores(cls, options, case, huge):
    scores, labels, offsets = case
    for dtype in (torch.float32, torch.float64):
        extreme = torch.tensor(np.clip(scores * huge, -1e4, 1e4), dtype=dtype, requires_grad=True)
        for loss in under(cls, options, LOSS_BOUNDINGS):
            value = loss(extreme, labels, offsets)
            (gradient,) = torch.autograd.grad(value.sum(), extreme)
            assert torch.isfinite(value).all()
            assert torch.isfinite(gradient).all()


@named(CASES)
@examples(3)
@given(case=lists(distinct=True), seed=st.integers(0, 1000))
def test_order_of_items_and_a_constant_change_nothing(cls, options, case, seed):
    scores, labels, offsets = case
    if cls is ListMLELoss:
        labels = np.arange(len(labels))  # equal labels go by input order there, by definition
    loss = cls(**options)
    before = loss(torch.tensor(scores), labels, offsets).item()
    rng = np.random.default_rng(seed)
    order = np.concatenate([lo + rng.permutation(hi - lo) for lo, hi in pairwise(offsets)])
    shift = 0.0 if cls is PointwiseLoss else 7.25
    after = loss(torch.tensor(scores[order] + shift), labels[order], offsets).item()
    assert after == pytest.approx(before, rel=1e-9, abs=1e-12)


@named(CASES)
@examples(3)
@given(case=lists())
def test_reductions_agree_and_queries_are_alone(cls, options, case):
    scores, labels, offsets = torch.tensor(case[0]), case[1], case[2]
    each = cls(reduction="none", **options)(scores, labels, offsets)
    assert each.shape == (len(offsets) - 1,)
    assert cls(reduction="sum", **options)(scores, labels, offsets).item() == pytest.approx(
        each.sum().item(), abs=1e-12
    )
    loss = cls(**options)
    active = int(loss.plan(labels, offsets).active.sum())
    assert loss(scores, labels, offsets).item() == pytest.approx(each.sum().item() / max(active, 1), abs=1e-12)
    for q, (lo, hi) in enumerate(pairwise(offsets)):
        alone = loss(scores[lo:hi], labels[lo:hi], [0, hi - lo])
        assert alone.item() == pytest.approx(each[q].item(), rel=1e-9, abs=1e-12)


@named([case for case in [*CASES, *NOISY] if case[0] not in (PointwiseLoss, DistillationLoss)])
def test_nothing_to_learn_gives_nothing(cls, options):
    """No relevant item, equal labels, a single item, an empty query: no loss, no gradient, not counted."""
    labels = np.array([0, 0, 0, 3, 3, 3, 2, -1, 0, 3, 0, 0, 0])
    offsets = np.array([0, 3, 6, 7, 9, 9, 13])
    scores = torch.linspace(-1, 1, len(labels), dtype=torch.float64, requires_grad=True)
    for loss in under(cls, options, LOSS_BOUNDINGS):
        each = loss(scores, labels, offsets)
        (gradient,) = torch.autograd.grad(each.sum(), scores)
        assert each[:-1].tolist() == [0] * 5
        assert gradient[:9].abs().max() == 0
        assert gradient[9:].abs().max() > 0
        mean = replace(loss, reduction="mean")(scores, labels, offsets)
        assert mean.item() == pytest.approx(each[-1].item())


def test_every_public_loss_is_covered():
    """Every public loss is covered by these properties."""
    import rankbound.losses

    public = {name for name in rankbound.losses.__all__ if name.endswith("Loss")} - {
        "MeasureLoss",
        "RankingLoss",
        "SmoothLoss",
        "StochasticLoss",
    }
    assert public == {cls.__name__ for cls, _ in CASES}
    assert all(issubclass(cls, MeasureLoss) for cls, _ in [*SMOOTH, *SOFT, *LAMBDA])
