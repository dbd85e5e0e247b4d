"""Special cases of the lambda losses; `test_measures` compares the swap deltas of all measures with true swaps."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound.losses import LambdaRankLoss, gradient_and_hessian


@pytest.mark.full("takes seconds")
def test_published_nrbp_is_eq_10_and_not_the_swap():
    scores, labels, p = np.array([2.0, 1.0]), np.array([1, 0]), 0.9
    z = (1 - p) / (1 - p)
    probability = 1 / (1 + np.exp(1.0))
    published, _ = gradient_and_hessian(LambdaRankLoss(f"nRBP(p={p})", published=True), scores, labels, [0, 2])
    exact, _ = gradient_and_hessian(LambdaRankLoss(f"nRBP(p={p})"), scores, labels, [0, 2])
    assert published[0] == pytest.approx(-z * p**0 * probability)
    assert exact[0] == pytest.approx(-z * (p**0 - p**1) * probability)


def test_ties_rank_in_input_order():
    """The first of two tied items counts as ranked first, whatever its label."""
    tied = torch.zeros(2, dtype=torch.float64)
    loss = LambdaRankLoss("RR")
    for labels in ([1, 0], [0, 1]):
        assert loss(tied, labels, [0, 2]).item() == pytest.approx((1 - 1 / 2) * np.log(2))
