"""What the smooth measures tend to, and how fast: the theorems and the table of the ApproxAP/ApproxNDCG paper."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from tests.tiers import examples

pytest.importorskip("torch")

import torch

from rankbound.losses import APLoss, KendallTauLoss, NDCGLoss, NRBPLoss, PrecisionLoss, RRLoss, SoftRankLoss
from rankbound.losses.smooth import SIGMOIDS


def distinct_scores(seed, n):
    """Scores at least 0.1 apart."""
    rng = np.random.default_rng(seed)
    return rng.permutation(n) * 0.2 + rng.uniform(0, 0.1, n)


# ---- naive measures, as an independent check -------------------------------------------------------------------------


def in_order(scores, labels):
    return [labels[i] for i in sorted(range(len(scores)), key=lambda i: -scores[i])]


def naive_ndcg(ranked, k=None):
    def dcg(labels):
        return sum((2**label - 1) / math.log2(rank + 1) for rank, label in enumerate(labels[:k], start=1))

    return dcg(ranked) / dcg(sorted(ranked, reverse=True))


def naive_ap(ranked, k=None):
    hits = [i for i, label in enumerate(ranked, start=1) if label >= 1]
    return sum(n / rank for n, rank in enumerate(hits, start=1) if rank <= (k or len(ranked))) / len(hits)


def naive_rr(ranked, k=None):
    rank = next(i for i, label in enumerate(ranked, start=1) if label >= 1)
    return 1 / rank if rank <= (k or len(ranked)) else 0.0


def naive_nrbp(ranked, p, k=None):
    hits = [i for i, label in enumerate(ranked) if label >= 1]
    best = min(len(hits), k or len(hits))
    return sum(p**i for i in hits if i < (k or len(ranked))) / sum(p**i for i in range(best))


def naive_u(ranked):
    return sum(a < 1 <= b for a, b in itertools.combinations(ranked, 2))


def naive_tau(ranked):
    signs = [int(a > b) - int(a < b) for a, b in itertools.combinations(ranked, 2)]
    return sum(signs) / math.sqrt(sum(map(abs, signs)) * len(signs))


CASES = {
    "nDCG": (lambda **o: NDCGLoss(**o), naive_ndcg, -1),
    "nDCG@3": (lambda **o: NDCGLoss(3, **o), lambda ranked: naive_ndcg(ranked, 3), -1),
    "AP": (lambda **o: APLoss(**o), naive_ap, -1),
    "AP@3": (lambda **o: APLoss(3, **o), lambda ranked: naive_ap(ranked, 3), -1),
    "AP of ranks": (lambda **o: APLoss(form="ranks", **o), naive_ap, -1),
    "RR": (lambda **o: RRLoss(**o), naive_rr, -1),
    "RR of ranks": (lambda **o: RRLoss(form="ranks", **o), naive_rr, -1),
    "RR@2": (lambda **o: RRLoss(2, **o), lambda ranked: naive_rr(ranked, 2), -1),
    "nRBP": (lambda **o: NRBPLoss(p=0.8, **o), lambda ranked: naive_nrbp(ranked, 0.8), -1),
    "nRBP@4": (lambda **o: NRBPLoss(4, p=0.8, **o), lambda ranked: naive_nrbp(ranked, 0.8, 4), -1),
    "P@3": (lambda **o: PrecisionLoss(3, **o), lambda ranked: sum(label >= 1 for label in ranked[:3]) / 3, -1),
    "U": (lambda **o: NRBPLoss(**o), naive_u, 1),
    "Tau": (lambda **o: KendallTauLoss(**o), naive_tau, -1),
}


@pytest.mark.parametrize("sigmoid", [name for name in SIGMOIDS if name != "relu"])
@pytest.mark.parametrize("name", CASES)
@examples(5)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 12))
def test_large_alpha_gives_the_true_measure(name, sigmoid, seed, n):
    make, naive, sign = CASES[name]
    labels = np.random.default_rng(seed).integers(0, 4, n)
    labels[:2] = 0, 2
    scores = distinct_scores(seed, n)
    alpha = 1e9 if sigmoid == "arctan" else 1e4  # the arctan comes near its limits like 1/x only
    loss = make(alpha=alpha, beta=200.0, sigmoid=sigmoid)
    smooth = loss(torch.tensor(scores), labels, [0, n]).item()
    assert sign * smooth == pytest.approx(naive(in_order(scores, labels)), abs=1e-6)


def test_large_alpha_comes_near_in_order():
    """The error of smooth nDCG falls with every step of alpha."""
    scores, labels = torch.tensor(distinct_scores(3, 10)), np.array([0, 1, 0, 2, 0, 0, 1, 0, 0, 3])
    true = naive_ndcg(in_order(scores.tolist(), labels))
    errors = [abs(-NDCGLoss(alpha=alpha)(scores, labels, [0, 10]).item() - true) for alpha in (1.0, 10.0, 30.0, 100.0)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4


def test_little_noise_makes_soft_rank_the_true_ndcg():
    scores, labels = distinct_scores(1, 8), np.array([0, 1, 0, 2, 0, 0, 1, 0])
    loss = SoftRankLoss(noise=1e-3)(torch.tensor(scores), labels, [0, 8]).item()
    assert -loss == pytest.approx(naive_ndcg(in_order(scores, labels)), abs=1e-9)


def test_soft_rank_is_the_mean_over_noisy_rankings_of_two():
    """With more items it takes the comparisons of an item for independent, which they are not quite."""
    rng = np.random.default_rng(0)
    scores, labels = np.array([0.3, -0.2]), np.array([1, 2])
    drawn = [naive_ndcg(in_order(scores + 0.5 * rng.normal(size=2), labels)) for _ in range(20_000)]
    loss = SoftRankLoss(noise=0.5)(torch.tensor(scores), labels, [0, 2]).item()
    assert -loss == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / math.sqrt(len(drawn)))


def test_u_is_the_loss_of_the_papers():
    """Pairs (relevant, other) make sum of (R - 1) - P(P - 1)/2, because the steps of two relevant items add up to 1."""
    scores, relevant = torch.tensor(distinct_scores(5, 9)), torch.tensor([1, 0, 0, 1, 1, 0, 0, 0, 1]) > 0
    rows = torch.nonzero(relevant)[:, 0]
    ranks = 0.5 + torch.sigmoid(scores[None, :] - scores[rows, None]).sum(1)
    expected = (ranks - 1).sum() - len(rows) * (len(rows) - 1) / 2
    assert NRBPLoss()(scores, relevant, [0, 9]).item() == pytest.approx(expected.item(), rel=1e-12)


# ---- Qin, Liu & Li ---------------------------------------------------------------------------------------------------

TABLE_1 = {4.20074: 2.00118, 3.12378: 4.00000, 4.40918: 1.00000, 1.55258: 5.00000, 4.13330: 2.99882}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_table_1(dtype):
    """Smooth positions at alpha = 100, to the five decimals printed, by definition and from the kernel."""
    scores = torch.tensor(list(TABLE_1), dtype=dtype)
    positions = 0.5 + torch.sigmoid(100 * (scores[None, :] - scores[:, None])).sum(1)
    np.testing.assert_allclose(positions, list(TABLE_1.values()), atol=5.1e-6)
    for i, published in enumerate(TABLE_1.values()):
        relevant = np.arange(5) == i
        # with one relevant item the loss is its smooth position - 1
        loss = NRBPLoss(alpha=100.0)(scores, relevant, [0, 5]).item()
        assert loss + 1 == pytest.approx(published, abs=5.1e-6)


lists_of_distinct = given(seed=st.integers(0, 10**6), n=st.integers(2, 20), alpha=st.floats(1, 300))


def positions_and_error(scores, alpha):
    """True positions, smooth positions, and the bound of corollary 4."""
    true = 1 + (scores[None, :] > scores[:, None]).sum(1)
    smooth = 0.5 + expit(alpha * (scores[None, :] - scores[:, None])).sum(1)
    gaps = np.abs(scores[:, None] - scores[None, :]) + np.diag(np.full(len(scores), np.inf))
    return true, smooth, (len(scores) - 1) * expit(-alpha * gaps.min(1))


@examples(30)
@lists_of_distinct
def test_theorem_3(seed, n, alpha):
    """|R~ - R| <= (n - 1) / (exp(alpha delta) + 1), delta the distance to the nearest score; by the kernel of U."""
    scores = distinct_scores(seed, n)
    true, _, bound = positions_and_error(scores, alpha)
    for i in range(n):
        smooth = 1 + NRBPLoss(alpha=alpha)(torch.tensor(scores), np.arange(n) == i, [0, n]).item()
        assert abs(smooth - true[i]) <= bound[i] + 1e-9


@examples(30)
@lists_of_distinct
def test_theorem_5(seed, n, alpha):
    """|AP~ - AP| is below the bound of eq. 26 wherever positions are off by less than 1/2."""
    scores = distinct_scores(seed, n)
    labels = np.random.default_rng(seed).integers(0, 2, n)
    labels[:2] = 0, 1
    true, smooth, _ = positions_and_error(scores, alpha)
    off = np.abs(true - smooth).max()
    if off >= 0.5:
        return
    beta, relevant = 10.0, int(labels.sum())
    i = np.arange(1, relevant + 1)
    bound = expit(-beta * (1 - 2 * off)) * (1 / (i - off)).sum() + 2 * off * (1 / (i * (i - off))).sum()
    ours = -APLoss(form="ranks", alpha=alpha, beta=beta)(torch.tensor(scores), labels, [0, n]).item()
    assert abs(ours - naive_ap(in_order(scores, labels))) <= bound + 1e-9


@examples(30)
@lists_of_distinct
def test_theorem_6(seed, n, alpha):
    """|nDCG~ - nDCG| <= (largest error of a position) / (2 ln 2)."""
    scores = distinct_scores(seed, n)
    labels = np.random.default_rng(seed).integers(0, 4, n)
    labels[:2] = 0, 1
    true, smooth, _ = positions_and_error(scores, alpha)
    ours = -NDCGLoss(alpha=alpha)(torch.tensor(scores), labels, [0, n]).item()
    bound = np.abs(true - smooth).max() / (2 * math.log(2))
    assert abs(ours - naive_ndcg(in_order(scores, labels))) <= bound + 1e-9
