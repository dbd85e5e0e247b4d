"""Results do not depend on where in memory the arrays of a kernel lie.

Compiled loops test at run time whether arrays could overlap, and count arrays as overlapping that lie within a few
vectors of each other, as those of a few items often do. The loop that runs then must give the same bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from rankbound.losses import (
    distillation,
    get_loss,
    gradient_and_hessian,
    listwise,
    loss_names,
    pairwise,
    smooth,
    softmax,
    workers,
)

MODULES = (distillation, listwise, pairwise, smooth, softmax)
OFFSETS = np.array([0, 4, 6, 10])
SLOT = 128  # bytes from the start of an array to that of its neighbor; arrays of 10 float64 take 80


def run_in_arena(monkeypatch, permutation):
    """Let kernels work on copies of their small arrays, neighbors in memory in the order of a permutation."""

    def run_blocks(kernel, blocks, *arguments):
        small = [at for at, each in enumerate(arguments) if isinstance(each, np.ndarray) and 0 < each.nbytes <= SLOT]
        order = np.random.default_rng(permutation).permutation(len(small))
        arena = np.zeros(SLOT * len(small) + 64, np.uint8)
        start = -arena.ctypes.data % 64
        placed = list(arguments)
        for slot, at in zip(order, small, strict=True):
            first, array = start + SLOT * int(slot), arguments[at]
            placed[at] = arena[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
            placed[at][...] = array
        workers.run_blocks(kernel, blocks, *placed)
        for at in small:
            if arguments[at].flags.writeable:
                arguments[at][...] = placed[at]

    for module in MODULES:
        monkeypatch.setattr(module, "run_blocks", run_blocks)


@pytest.mark.parametrize("name", loss_names(3))
def test_neighbors_in_memory_give_the_same_bits(name, monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.array([2, 0, 1, 0, 1, 0, 0, 2, 1, 0])
    cases = [(10 ** rng.uniform(-1, 1) * rng.normal(size=10)) for _ in range(5)]
    loss = get_loss(name)
    expected = [gradient_and_hessian(loss, scores, labels, OFFSETS) for scores in cases]
    for permutation in range(8):
        run_in_arena(monkeypatch, permutation)
        for scores, (gradient, hessian) in zip(cases, expected, strict=True):
            found = gradient_and_hessian(loss, scores, labels, OFFSETS)
            np.testing.assert_array_equal(found[0], gradient)
            np.testing.assert_array_equal(found[1], hessian)


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
