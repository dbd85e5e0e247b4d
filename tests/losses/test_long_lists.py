"""Sums of logistics by series: equal to the direct sums, chosen where lists are long."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbound.losses import (
    APLoss,
    KendallTauLoss,
    NDCGLoss,
    NRBPLoss,
    PrecisionLoss,
    RRLoss,
    get_loss,
    long_lists,
    set_threads,
)
from rankbound.losses.long_lists import Boxes

SERIES = (
    NDCGLoss(),
    NDCGLoss(5, beta=2.0),
    NDCGLoss(alpha=7.0, sigmoid="tanh"),
    APLoss(),
    APLoss(20),
    NRBPLoss(),
    NRBPLoss(p=0.95),
    PrecisionLoss(10),
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
    plan = loss.plan(labels, [0, len(scores)])
    found = []
    for limit in (1, 2**62):
        monkeypatch.setattr(long_lists, "LONG", limit)
        found.append(loss.value_and_gradient(scores, plan))
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


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_each_sum_is_within_its_error(scores, seed):
    x = np.array(scores)
    weights = np.random.default_rng(seed).uniform(0, 1, len(x))
    values, slopes = Boxes(x).sums(weights, slice(None), slice(None))
    with np.errstate(over="ignore"):
        sigma = 1 / (1 + np.exp(-(x[None, :] - x[:, None])))
        slope = sigma * (1 / (1 + np.exp(x[None, :] - x[:, None])))
    np.testing.assert_allclose(values, sigma @ weights, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(slopes, slope @ weights, rtol=1e-6, atol=1e-9)


def test_long_lists_are_detected(monkeypatch):
    rows_of_calls = []
    original = long_lists.long_additive
    monkeypatch.setattr(
        long_lists, "long_additive", lambda *arguments: rows_of_calls.append(arguments[2]) or original(*arguments)
    )
    sizes = (3000, 40)
    labels = np.concatenate([np.arange(size) % 3 == 0 for size in sizes]).astype(int)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    scores = torch.tensor(np.random.default_rng(0).normal(size=len(labels)), dtype=torch.float32, requires_grad=True)
    loss = NDCGLoss(reduction="none")
    together = loss(scores, labels, offsets)
    together.sum().backward()
    assert rows_of_calls == [1000]
    expected = loss.reference(scores, loss.plan(labels, offsets))
    assert torch.allclose(together, expected, atol=2e-6)
    (gradient,) = torch.autograd.grad(expected.sum(), scores)
    assert torch.allclose(scores.grad, gradient, atol=1e-8, rtol=1e-3)


@pytest.mark.parametrize("loss", [RRLoss(), APLoss(form="ranks"), KendallTauLoss(), NDCGLoss(sigmoid="erf")], ids=repr)
def test_other_sums_stay_with_the_kernel(loss, monkeypatch):
    monkeypatch.setattr(long_lists, "LONG", 1)
    for name in ("long_additive", "long_precision_sum", "long_pairs"):
        monkeypatch.setattr(long_lists, name, lambda *arguments: pytest.fail("not a sum of logistics"))
    loss.value_and_gradient(np.arange(6.0), loss.plan([0, 1, 2, 0, 1, 2], [0, 6]))


def test_bounding_and_threads_do_not_matter(monkeypatch):
    rng = np.random.default_rng(5)
    scores, labels = rng.normal(size=4000), (rng.random(4000) < 0.3).astype(int)
    loss = get_loss("nDCG", bounding="expectation-max")
    series, direct = both_ways(loss, scores, labels, monkeypatch)
    np.testing.assert_allclose(series.values, direct.values, rtol=1e-8)
    monkeypatch.setattr(long_lists, "LONG", 1)
    try:
        set_threads(1)
        alone = loss.value_and_gradient(scores, loss.plan(labels, [0, 4000]))
    finally:
        set_threads(None)
    np.testing.assert_array_equal(alone.gradient, series.gradient)
