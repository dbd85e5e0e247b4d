"""Swap deltas equal the change of the measure when two items do swap."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbound.losses import LambdaLoss, gradient_and_hessian
from rankbound.losses.reference import measure_value, swap_deltas

MEASURES = ["nDCG", "nDCG@3", "AP", "AP@3", "RR", "RR@2", "nRBP(p=0.9)", "nRBP(p=0.5)@3", "P@2", "P@4", "ERR", "ERR@3"]


def worth_of(loss, labels):
    """What the measure makes of labels: gain over ideal, stop probability, or relevant or not."""
    family = loss.target.name
    if family == "nDCG":
        gains = 2.0**labels - 1
        best = np.sort(gains)[::-1][: loss.target.cutoff]
        return gains / (best / np.log2(np.arange(2, len(best) + 2))).sum()
    if family == "ERR":
        return (2.0**labels - 1) / 16
    return (labels >= 1).astype(float)


def true_value(loss, scores, labels):
    """The measure by naive loops."""
    worth, target = worth_of(loss, labels), loss.target
    ranked = [worth[i] for i in sorted(range(len(scores)), key=lambda i: -scores[i])]
    k = target.cutoff or len(ranked)
    total, hits, reach = 0.0, 0, 1.0
    for rank, gain in enumerate(ranked, start=1):
        hits += gain > 0
        seen = rank <= k
        match target.name:
            case "nDCG":
                total += seen * gain / np.log2(rank + 1)
            case "AP":
                total += seen * (gain > 0) * hits / rank / sum(worth)
            case "RR":
                total = max(total, seen * gain / rank)
            case "nRBP":
                p = target.number("p")
                total += seen * gain * p ** (rank - 1) * (1 - p) / (1 - p ** sum(worth))
            case "P":
                total += seen * gain / k
            case "ERR":
                total += seen * gain * reach / rank
                reach *= 1 - gain
    return total


@pytest.mark.parametrize("name", MEASURES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(5, 9))
def test_deltas_equal_recomputing_the_measure(name, seed, n):
    """Checks the deltas of the reference and, through the gradient, those of the kernel."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    labels[:2] = 0, 1
    scores = rng.permutation(n).astype(float)
    loss = LambdaLoss(name)
    worth = torch.tensor(worth_of(loss, labels))
    deltas = swap_deltas(torch.tensor(scores), worth, loss.target.name, loss.target.cutoff, loss._p, False)
    now = true_value(loss, scores, labels)
    assert measure_value(torch.tensor(scores), worth, loss.target.name, loss.target.cutoff, loss._p) == pytest.approx(
        now
    )
    binary = loss.target.name not in ("nDCG", "ERR")
    levels = (labels >= 1).astype(int) if binary else labels
    expected = np.zeros(n)
    for i in range(n):
        for j in range(n):
            if levels[i] > levels[j]:
                swapped = scores.copy()
                swapped[[i, j]] = scores[[j, i]]
                change = abs(true_value(loss, swapped, labels) - now)
                assert deltas[i, j].item() == pytest.approx(change, abs=1e-12)
                # lambda of the pair: |delta| / (1 + exp(f_i - f_j))
                expected[i] -= change / (1 + np.exp(scores[i] - scores[j]))
                expected[j] += change / (1 + np.exp(scores[i] - scores[j]))
    gradient, _ = gradient_and_hessian(loss, scores, labels, [0, n])
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_published_nrbp_is_eq_10_and_not_the_swap():
    scores, labels, p = np.array([2.0, 1.0]), np.array([1, 0]), 0.9
    z = (1 - p) / (1 - p)
    probability = 1 / (1 + np.exp(1.0))
    published, _ = gradient_and_hessian(LambdaLoss(f"nRBP(p={p})", published=True), scores, labels, [0, 2])
    exact, _ = gradient_and_hessian(LambdaLoss(f"nRBP(p={p})"), scores, labels, [0, 2])
    assert published[0] == pytest.approx(-z * p**0 * probability)
    assert exact[0] == pytest.approx(-z * (p**0 - p**1) * probability)


def test_ties_rank_in_input_order():
    """The first of two tied items counts as ranked first, whatever its label."""
    tied = torch.zeros(2, dtype=torch.float64)
    loss = LambdaLoss("RR")
    for labels in ([1, 0], [0, 1]):
        assert loss(tied, labels, [0, 2]).item() == pytest.approx((1 - 1 / 2) * np.log(2))
