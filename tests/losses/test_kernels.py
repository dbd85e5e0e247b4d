"""The kernels as machinery: which library is used, error of the fast functions, threads, memory, hostile input."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

pytest.importorskip("torch")

import torch

from rankbound import kernels
from rankbound.errors import ArgumentError
from rankbound.kernels import ARRAY, INTEGER, Arguments, active, kernel
from rankbound.losses import LambdaRankLoss, NDCGLoss, NRBPLoss, get_loss, set_threads, threads, vectorized
from rankbound.losses.plans import sort_by_level
from rankbound.parallel import cores

pytestmark = pytest.mark.skipif(active() == "none", reason="the kernels are off, or were not built")

# ---- libraries -------------------------------------------------------------------------------------------------------

RESULTS = """
import json, sys
import numpy as np
import torch
from rankbound.kernels import active
from rankbound.losses import get_loss, gradient_and_hessian, vectorized
rng = np.random.default_rng(0)
offsets = np.array([0, 1, 40, 40, 300, 1200])
labels, scores = rng.integers(0, 3, 1200), rng.normal(size=1200)
found = {}
for name in ("nDCG", "nDCG@5", "AP", "RR", "ERR", "nRBP", "Tau", "lambda-nDCG", "RankNet", "ListMLE"):
    x = torch.tensor(scores, requires_grad=True)
    losses = get_loss(name, reduction="none")(x, labels, offsets)
    losses.sum().backward()
    hessian = gradient_and_hessian(get_loss(name), scores, labels, offsets)[1]
    found[name] = [losses.tolist(), x.grad.tolist(), hessian.tolist()]
json.dump([active(), found], sys.stdout)
"""


def results_of(library):
    done = subprocess.run(
        [sys.executable, "-c", RESULTS],
        env=os.environ | {"RANKBOUND_KERNELS": library},
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return json.loads(done.stdout)


def test_every_library_gives_what_the_formulas_give():
    """Value, gradient and hessian in float64; without kernels, the losses and objectives are those of the formulas."""
    used, expected = results_of("off")
    assert used == "none"
    for library in ("baseline", "avx2", "avx512"):
        used, found = results_of(library)
        assert used in (library, "baseline")  # a processor may lack the others
        for name, parts in found.items():
            for mine, theirs in zip(parts, expected[name], strict=True):
                scale = np.abs(theirs).max()
                np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11 * scale, err_msg=f"{library} {name}")


def test_a_wrong_name_of_a_library_is_refused(monkeypatch):
    monkeypatch.setenv("RANKBOUND_KERNELS", "sse")
    with pytest.raises(ArgumentError, match="RANKBOUND_KERNELS must be one of avx512, avx2, baseline, off, got 'sse'"):
        kernels._library.__wrapped__()


def test_a_struct_of_another_size_is_refused():
    class Short(Arguments):
        _fields_ = (("levels_below", INTEGER), ("offsets", ARRAY))

    with pytest.raises(ArgumentError, match="belong to another version"):
        kernel("counting_sort", Short)


def test_arguments_keep_their_arrays_and_copies_are_independent():
    class Two(Arguments):
        _fields_ = (("count", INTEGER), ("values", ARRAY))

    first = Two(count=1, values=np.arange(3.0))
    second = first.copy(values=np.arange(5.0))
    assert (first.count, second.count, ctypes.sizeof(first)) == (1, 1, 16)
    assert [len(arguments.arrays["values"]) for arguments in (first, second)] == [3, 5]
    assert second.values == second.arrays["values"].ctypes.data != first.values


def test_no_memory_left_is_a_memory_error():
    with pytest.raises(MemoryError):
        kernels._call(lambda *_: 1, Arguments(), 0, 1)


# ---- functions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2.5e-7), (np.float64, 4e-16)])
@pytest.mark.parametrize("distance", [1e-3, 1.0, 10.0, 60.0, 600.0, 1e5])
def test_logistics_stay_within_their_error(dtype, error, distance):
    """The loss of a relevant item and another one is their logistic; 60 items share a call, most distances apart."""
    d = np.linspace(-distance, distance, 61).astype(dtype)
    for size in (2, 9):  # the relevant item and others of the same score, whose logistics add up
        labels, scores = np.tile([1] + [0] * (size - 1), 61), np.zeros((61, size), dtype)
        scores[:, 1:] = d[:, None]
        loss = NRBPLoss(reduction="none")
        plan = loss.plan(labels, size * np.arange(62))
        result = loss.value_and_gradient(scores.ravel(), plan)
        exact = expit(d.astype(float)) * (size - 1)
        slope = expit(d.astype(float)) * expit(-d.astype(float)) * (size - 1)
        np.testing.assert_allclose(result.values, exact, rtol=8 * error, atol=error * size)
        np.testing.assert_allclose(-result.gradient[::size], slope, rtol=8 * error, atol=error * size)


def test_counting_sort_is_stable():
    rng = np.random.default_rng(0)
    offsets = np.concatenate(([0], np.cumsum(rng.integers(0, 50, 200))))
    levels = rng.integers(0, 5, offsets[-1]).astype(np.int32)
    query = np.repeat(np.arange(200), np.diff(offsets))
    np.testing.assert_array_equal(sort_by_level(levels, offsets), np.lexsort((-levels, query)) - offsets[query])


@pytest.mark.parametrize("name", ["nDCG", "AP", "RR", "Tau", "nRBP"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_layout_changes_no_bit(name, dtype):
    """Scores at every offset to the lanes of a processor."""
    rng = np.random.default_rng(0)
    offsets = np.array([0, 3, 20, 77, 400, 1000])
    labels, scores = rng.integers(0, 3, 1000), rng.normal(size=1000).astype(dtype)
    loss = get_loss(name)
    plan = loss.plan(labels, offsets)
    expected = loss.value_and_gradient(scores, plan)
    for shift in range(1, 17):
        memory = np.zeros(1020, dtype)
        memory[shift : shift + 1000] = scores
        found = loss.value_and_gradient(memory[shift : shift + 1000], plan)
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.gradient, expected.gradient)


def test_ten_thousand_calls_leak_nothing():
    loss, scores = NDCGLoss(), np.linspace(0, 1, 500, dtype=np.float32)
    plan = loss.plan(np.arange(500) % 3, np.arange(0, 501, 100))
    for _ in range(500):
        loss.value_and_gradient(scores, plan)
    tracemalloc.start()
    for _ in range(10_000):
        loss.value_and_gradient(scores, plan)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 20_000


# ---- many blocks, threads --------------------------------------------------------------------------------------------

NAMES = ["nDCG", "AP", "RR", "nRBP", "nRBP(p=0.9)", "Tau", "lambda-AP", "lambda-ERR", "RankNet"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("levels", [2, 4])
def test_lists_of_many_blocks_and_of_ties(name, levels):
    """Items beyond a block of sums, and beyond a stride, some of them tied; few, or all, have a label."""
    rng = np.random.default_rng(0)
    sizes = np.array([2300, 1030, 200, 130, 64, 33])
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    labels = np.concatenate([rng.integers(0, levels, n) * (rng.random(n) < min(1, 30 / n)) for n in sizes])
    scores = np.round(3 * rng.normal(size=offsets[-1]), 1)
    loss = get_loss(name)
    plan = loss.plan(labels, offsets)
    exact = torch.tensor(scores, requires_grad=True)
    with vectorized():
        values = replace(loss, reduction="none")(exact, labels, offsets)
    values.sum().backward()
    for dtype, error in ((np.float64, 1e-9), (np.float32, 2e-5)):
        done = loss.value_and_gradient(scores.astype(dtype), plan)
        np.testing.assert_allclose(done.values, values.detach().numpy(), rtol=error)
        largest = np.abs(exact.grad.numpy()).max()
        np.testing.assert_allclose(done.gradient, exact.grad.numpy(), rtol=0, atol=error * largest)


def batch(queries=37, seed=0):
    """Lists of very different length."""
    rng = np.random.default_rng(seed)
    sizes = np.r_[rng.integers(1, 40, queries), 900]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return rng.normal(size=offsets[-1]).astype(np.float32), rng.integers(0, 3, offsets[-1]), offsets


@pytest.mark.parametrize(
    "loss",
    [
        NDCGLoss(reduction="none"),
        LambdaRankLoss("AP", reduction="none"),
        LambdaRankLoss("nDCG", noise=1.0, truncation=30, normalization="sqrt"),
    ],
)
def test_threads_change_nothing(loss):
    """A query is computed by one thread from start to end: the very same bits."""
    scores, labels, offsets = batch()
    results = []
    try:
        for count in range(1, cores() + 1):
            set_threads(count)
            assert threads() == count
            done = loss.value_and_gradient(scores, loss.plan(labels, offsets))
            results.append((done.values, done.gradient))
    finally:
        set_threads(None)
    for values, gradient in results[1:]:
        np.testing.assert_array_equal(values, results[0][0])
        np.testing.assert_array_equal(gradient, results[0][1])


def test_thread_budget_is_checked(monkeypatch):
    with pytest.raises(ArgumentError, match="threads must be between 1 and"):
        set_threads(0)
    monkeypatch.setenv("RANKBOUND_THREADS", "1")
    assert threads() == 1
    monkeypatch.setenv("RANKBOUND_THREADS", "many")
    assert threads() == cores()


def test_python_threads_may_call_at_once():
    scores, labels, offsets = batch()
    expected = NDCGLoss()(torch.tensor(scores), labels, offsets).item()
    seen = []

    def work():
        seen.extend(NDCGLoss()(torch.tensor(scores), labels, offsets).item() for _ in range(5))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert seen == [expected] * 20


def test_memory_grows_with_items_not_with_pairs():
    """Ten times the items take about ten times the memory, at most 150 bytes for each."""
    peaks = []
    for items in (20_000, 200_000):
        labels = np.zeros(items, dtype=np.int64)
        labels[:100] = 1
        scores, loss = np.linspace(0, 1, items, dtype=np.float32), NDCGLoss()
        loss.value_and_gradient(scores, loss.plan(labels, [0, items]))
        tracemalloc.start()
        loss = NDCGLoss()
        loss.value_and_gradient(scores, loss.plan(labels, [0, items]))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 12 * peaks[0]
    assert peaks[1] < 150 * 200_000


def test_import_of_the_package_leaves_torch_alone():
    code = "import sys, rankbound; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


OBJECTIVES = """
import numpy as np
import rankbound.losses
from rankbound.losses import get_loss, gradient_and_hessian, lightgbm_objective, loss_names
labels, scores = np.array([1.0, 0.0, 2.0, 0.0]), np.array([0.3, 0.1, 0.2, 0.0])
for name in ("nDCG", "noisy-lambda-AP", "RankNet", "ListMLE", "regression"):
    gradient, hessian = lightgbm_objective(name)(labels, scores, None, [4])
    assert np.abs(gradient).max() > 0 and hessian.min() > 0
    gradient_and_hessian(get_loss(name), scores, labels, [0, 4])
"""


WITHOUT_TORCH = """
import sys
print("torch" in sys.modules)
sys.modules["torch"] = None
for call in (
    lambda: get_loss("nDCG")(scores, labels, [0, 4]),
    lambda: get_loss("AP").padded([scores], [labels], [labels >= 0]),
):
    try:
        call()
    except ImportError as error:
        print(error)
"""


@pytest.mark.full("takes seconds")
def test_objectives_work_without_torch_and_tensors_name_the_extra():
    done = subprocess.run([sys.executable, "-c", OBJECTIVES + WITHOUT_TORCH], capture_output=True, text=True)
    missing = 'a loss of tensors needs torch: pip install ".[train]" in a checkout of rankbound, or pip install torch'
    assert done.stdout.splitlines() == ["False", missing, missing], done.stderr
