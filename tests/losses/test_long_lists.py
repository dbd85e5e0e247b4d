"""Sums of logistics by series: equal to the direct sums, chosen where lists are long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound.losses import (
    APLoss,
    KendallTauLoss,
    NDCGLoss,
    NRBPLoss,
    PrecisionLoss,
    RRLoss,
    get_loss,
    set_threads,
    smooth,
    vectorized,
)

SERIES = (
    NDCGLoss(),
    NDCGLoss(5, beta=2.0),
    NDCGLoss(alpha=7.0, sigmoid="tanh"),
    APLoss(),
    APLoss(20),
    NRBPLoss(),
    NRBPLoss(p=0.95),
    PrecisionLoss(10),
    RRLoss(),
    RRLoss(4, form="ranks"),
    APLoss(form="ranks", beta=2.0),
    KendallTauLoss(),
)
SCORES = {
    "usual": lambda rng, n: rng.normal(size=n),
    "tied": lambda rng, n: rng.integers(0, 4, n).astype(float),
    "equal": lambda rng, n: np.full(n, 3.5),
    "wide": lambda rng, n: 100 * rng.normal(size=n),
    "far apart": lambda rng, n: rng.choice([-1e4, 0.0, 1e4, 1e9], n) + rng.normal(size=n),
    "on the edges of boxes": lambda rng, n: 2.0 * rng.integers(-30, 30, n),
}


def both_ways(loss, scores, labels, monkeypatch):
    found = []
    for limit in (1, 2**62):
        monkeypatch.setattr(smooth, "LONG", limit)
        own = replace(loss)  # has no plan yet
        found.append(own.value_and_gradient(scores, own.plan(labels, [0, len(scores)])))
    return found


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("loss", SERIES, ids=repr)
def test_series_equal_direct_sums(loss, kind, monkeypatch):
    rng = np.random.default_rng(3)
    for n, relevant in ((700, 90), (60, 59), (30, 1)):
        scores, labels = SCORES[kind](rng, n), np.zeros(n, np.int64)
        labels[rng.permutation(n)[:relevant]] = 1 if n < 700 else rng.integers(1, 4, relevant)
        series, direct = both_ways(loss, scores, labels, monkeypatch)
        np.testing.assert_allclose(series.values, direct.values, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(
            series.gradient, direct.gradient, rtol=1e-6, atol=1e-7 * np.abs(direct.gradient).max() + 1e-15
        )


def test_long_lists_are_near_the_formula_in_float32():
    sizes = (3000, 40)
    labels = np.concatenate([np.arange(size) % 3 == 0 for size in sizes]).astype(int)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    scores = torch.tensor(np.random.default_rng(0).normal(size=len(labels)), dtype=torch.float32, requires_grad=True)
    for loss in (NDCGLoss(), APLoss(), RRLoss(), APLoss(form="ranks"), KendallTauLoss(), NRBPLoss()):
        loss = replace(loss, reduction="none")
        together = loss(scores, labels, offsets)
        (gradient,) = torch.autograd.grad(together.sum(), scores)
        with vectorized():
            expected = loss(scores.double(), labels, offsets)
        (exact,) = torch.autograd.grad(expected.sum(), scores)
        torch.testing.assert_close(together.double(), expected, rtol=2e-6, atol=2e-6)
        torch.testing.assert_close(gradient, exact, rtol=1e-3, atol=2e-6 * float(exact.abs().max()))


def test_bounding_and_threads_do_not_matter(monkeypatch):
    rng = np.random.default_rng(5)
    scores, labels = rng.normal(size=4000), (rng.random(4000) < 0.3).astype(int)
    loss = get_loss("nDCG", bounding="expectation-max")
    series, direct = both_ways(loss, scores, labels, monkeypatch)
    np.testing.assert_allclose(series.values, direct.values, rtol=1e-8)
    monkeypatch.setattr(smooth, "LONG", 1)
    try:
        set_threads(1)
        alone = replace(loss).value_and_gradient(scores, replace(loss).plan(labels, [0, 4000]))
    finally:
        set_threads(None)
    np.testing.assert_array_equal(alone.gradient, series.gradient)
