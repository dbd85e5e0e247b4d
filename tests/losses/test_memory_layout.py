"""Results do not depend on where in memory the arrays of a kernel lie, nor on the number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from rankbound import kernels
from rankbound.losses import get_loss, gradient_and_hessian, loss_names

OFFSETS = np.array([0, 4, 6, 10])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", loss_names(3))
def test_every_alignment_of_scores_gives_the_same_bits(name, dtype):
    rng = np.random.default_rng(0)
    labels = np.array([2, 0, 1, 0, 1, 0, 0, 2, 1, 0])
    scores = rng.normal(size=10).astype(dtype)
    loss, results = get_loss(name), set()
    memory = np.empty(100, dtype)
    for first in range(0, 80, 3):
        placed = memory[first : first + 10]
        placed[:] = scores
        result = loss.value_and_gradient(placed, loss.plan(labels, OFFSETS), with_hessian=True)
        results.add(b"".join(array.tobytes() for array in result))
    assert len(results) == 1


@pytest.mark.parametrize("name", loss_names(3))
def test_every_number_of_threads_gives_the_same_bits(name, monkeypatch):
    rng = np.random.default_rng(1)
    sizes = rng.integers(2, 90, 150)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    labels, scores = rng.integers(0, 3, offsets[-1]), rng.normal(size=offsets[-1]).astype(np.float32)
    loss, results = get_loss(name), set()
    for threads in (1, 2, 5):
        monkeypatch.setattr(kernels, "threads", lambda threads=threads: threads)
        result = loss.value_and_gradient(scores, loss.plan(labels, offsets), with_hessian=True)
        results.add(b"".join(array.tobytes() for array in result))
    assert len(results) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", loss_names(3))
def test_calls_give_the_same_bits_whatever_was_allocated_before(name, dtype):
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 40, 30)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    labels, scores = rng.integers(0, 3, offsets[-1]), rng.normal(size=offsets[-1]).astype(dtype)
    loss, kept = get_loss(name), []
    results = set()
    for _ in range(40):
        kept.append(np.empty(rng.integers(1, 5000)))
        if len(kept) > 10:
            del kept[rng.integers(0, 10)]
        results.add(b"".join(array.tobytes() for array in gradient_and_hessian(loss, scores, labels, offsets)))
    assert len(results) == 1
