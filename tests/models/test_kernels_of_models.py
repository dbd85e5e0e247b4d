"""Compiled kernels of recommenders: compared with NumPy and SciPy, and for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import random_array

from rankbound import kernels
from rankbound.losses import set_threads
from rankbound.models import ImplicitALS, MatrixFactorization, Negatives, VectorModel
from rankbound.models.recommenders import als
from rankbound.models.recommenders.factorization import negatives, steps
from rankbound.models.recommenders.factorization.negatives import draw_candidates, keep_best_negatives
from rankbound.models.recommenders.factorization.steps import Batch, Vectors, score_pairs, step, update_rows

pytestmark = pytest.mark.skipif(kernels.active() == "none", reason="no compiled kernels")
MODULES = (negatives, steps, als)


def by_both(monkeypatch, compute):
    """The results of the kernels and of NumPy."""
    with_kernels = compute()
    with monkeypatch.context() as context:
        for module in MODULES:
            context.setattr(module, "kernel", lambda *_: None)
        return with_kernels, compute()


@pytest.fixture
def threads():
    yield
    set_threads(None)


def interactions(users=40, items=30, seed=0):
    rng = np.random.default_rng(seed)
    table = np.argwhere(rng.random((users, items)) < rng.uniform(0.02, 0.6, (users, 1)))
    return table[:, 0], table[:, 1]


@pytest.mark.parametrize("factors", [1, 7, 16, 33])
@pytest.mark.parametrize("steps", [1, 3, 40])  # after enough steps, the residual is 0
def test_least_squares(monkeypatch, factors, steps):
    rng = np.random.default_rng(factors)
    table = random_array((25, 18), density=0.3, rng=rng, dtype=np.float32).tocsr()
    model = ImplicitALS(factors=factors, steps=steps)
    others = als._widen(rng.normal(size=(18, factors)).astype(np.float32))
    start = als._widen(rng.normal(size=(25, factors)).astype(np.float32))

    def solve():
        vectors = start.copy()
        model._solve(vectors, others, table)
        return vectors

    compiled, expected = by_both(monkeypatch, solve)
    assert_allclose(compiled, expected, atol=(1e-5 if steps < 40 else 1e-4) * np.abs(expected).max())
    assert not compiled[:, factors:].any()
    if steps == 40:  # the solution of the normal equations
        dense, y = table.toarray(), others[:, :factors].astype(float)
        ridge = 0.02 * ((dense != 0).sum(1) + 0.1 * 18)
        for row, x in enumerate(compiled[:, :factors]):
            matrix = 0.1 * y.T @ y + ridge[row] * np.eye(factors) + (y.T * dense[row]) @ y
            assert_allclose(x, np.linalg.solve(matrix, y.T @ dense[row]), atol=2e-4)


@pytest.mark.parametrize("factors", [1, 5, 8, 32, 45])
@pytest.mark.parametrize("adam_step", [0, 3])
def test_steps(monkeypatch, factors, adam_step):
    rng = np.random.default_rng(factors)
    rows = np.sort(rng.integers(0, 12, 90)).astype(np.int32)
    items = rng.integers(0, 20, 90).astype(np.int32)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(rows)) + 1, [90]))
    plan = type("Plan", (), {"offsets": starts})()
    batch = Batch.from_rows(plan, rows, items)
    gradient = rng.normal(size=90).astype(np.float32)
    tables = [[np.abs(rng.normal(size=(n, factors))).astype(np.float32) for _ in range(3)] for n in (12, 20)]

    def compute():
        users, own = (Vectors(*(part.copy() for part in table)) for table in tables)
        scores = score_pairs(users.values, own.values, rows, items)
        step(batch, gradient, users, own, rate=0.1, factor=0.5, l2=0.2, adam_step=adam_step)
        chosen = np.array([7, 2, 11])
        update_rows(users, chosen, tables[1][0][:3], rate=0.1, factor=2.0, decay=0.3, adam_step=adam_step)
        parts = (vectors.__dict__.values() for vectors in (users, own))
        return [scores, *(part for vectors in parts for part in vectors)]

    for compiled, expected in zip(*by_both(monkeypatch, compute), strict=True):
        assert_allclose(compiled, expected, rtol=2e-5, atol=1e-6)


@settings(deadline=None)
@given(seed=st.integers(0, 2**64 - 1), popular=st.booleans(), most=st.integers(0, 30))
def test_the_same_negatives_are_drawn(seed, popular, most):
    users, items = interactions()
    starts = np.searchsorted(users, np.arange(41))
    items = items.astype(np.int32)
    chosen = np.array([3, 8, 20, 39], np.int32)
    left = 30 - np.diff(starts)[chosen]
    counts = np.minimum(most, left // 2 if popular else left)
    with pytest.MonkeyPatch.context() as monkeypatch:
        compiled, expected = by_both(
            monkeypatch, lambda: draw_candidates(chosen, starts, items, counts, 30, seed, popular=popular)
        )
    assert_array_equal(compiled[0], expected[0])
    assert_array_equal(compiled[1], expected[1])
    for first, last in zip(compiled[1][:-1], compiled[1][1:], strict=True):
        assert len(set(compiled[0][first:last])) == last - first


@pytest.mark.parametrize("candidates", [1, 2, 5])
def test_the_same_negatives_are_kept(monkeypatch, candidates):
    rng = np.random.default_rng(candidates)
    positives = rng.integers(0, 4, 9)
    offsets = np.concatenate(([0], np.cumsum(positives + rng.integers(0, 12, 9))))
    scores = rng.integers(0, 5, offsets[-1]).astype(np.float32)
    compiled, expected = by_both(monkeypatch, lambda: keep_best_negatives(scores, offsets, positives, candidates))
    assert_array_equal(compiled[0], expected[0])
    assert_array_equal(compiled[1], expected[1])


@pytest.mark.parametrize(
    "model",
    [
        ImplicitALS(factors=20, epochs=3),
        MatrixFactorization(factors=20, epochs=3, loss="nDCG", negatives=Negatives(2, candidates=2)),
        MatrixFactorization(factors=20, epochs=3, loss="AP", vectors=VectorModel(biases=True)),
    ],
    ids=["ImplicitALS", "drawn negatives", "whole catalog"],
)
def test_vectors_do_not_depend_on_the_number_of_threads(monkeypatch, threads, model):
    monkeypatch.setattr(kernels, "_WORK_PER_THREAD", 1)
    vectors = []
    for count in (1, 2):
        set_threads(count)
        model.fit(interactions())
        vectors.append((model.user_vectors_.copy(), model.item_vectors_.copy()))
    assert_array_equal(vectors[0][0], vectors[1][0])
    assert_array_equal(vectors[0][1], vectors[1][1])
