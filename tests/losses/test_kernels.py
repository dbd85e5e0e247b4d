"""The kernels as machinery: error of the fast functions, threads, the cache on disk, memory."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from types import FunctionType

import numba
import numpy as np
import pytest
import torch
from scipy.special import expit

from rankbound.errors import ArgumentError
from rankbound.losses import LambdaRankLoss, NDCGLoss, get_loss, set_threads, threads
from rankbound.losses.compiling import helper, kernel_folder
from rankbound.losses.pair_kernel import pair_pass_of
from rankbound.losses.sigmoids import RATIONAL_ERROR, log_of_complement, logistic
from rankbound.losses.smooth_kernel import (
    ADDITIVE,
    CASCADE,
    COUPLED,
    FIRST_HIT,
    GIVEN,
    PAIRS,
    PRECISION_SUM,
    smooth_pass_of,
)
from rankbound.measures.discounts import BUILT_IN


@numba.njit(fastmath=True)
def _logistics(x, out):
    for i in range(len(x)):
        out[i] = logistic(x[i])


@numba.njit(fastmath=True)
def _logs(t, out):
    for i in range(len(t)):
        out[i] = log_of_complement(t[i])


def test_rational_logistic_stays_within_its_error():
    """On every 64th of the float32 numbers between 2^-24 and 2^7, both signs, and far outside."""
    bits = np.arange(np.float32(2.0**-24).view(np.int32), np.float32(2.0**7).view(np.int32), 64, dtype=np.int32)
    x = bits.view(np.float32)
    x = np.concatenate([x, -x, np.float32([0, 1e4, -1e4, 3e38, -3e38])])
    out = np.empty_like(x)
    _logistics(x, out)
    assert np.abs(out - expit(x.astype(np.float64))).max() < RATIONAL_ERROR
    assert out.min() >= 0
    assert out.max() <= 1


def test_polynomial_logarithm():
    t = np.linspace(0, 0.5, 1_000_001, dtype=np.float32)
    out = np.empty_like(t)
    _logs(t, out)
    assert np.abs(out + np.log1p(-t.astype(np.float64))).max() < 2e-7
    assert out[0] == 0


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
    values = loss.reference(exact, plan)
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
        for count in range(1, int(numba.config.NUMBA_NUM_THREADS) + 1):
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
    assert threads() == int(numba.config.NUMBA_NUM_THREADS)


def test_python_threads_may_call_at_once():
    """The plainest threading layer of numba would abort the process here if calls were not made one at a time."""
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


FIRST_LOSS = """
import torch
import rankbound.losses as losses
torch.set_num_threads(1)
losses.SoftmaxLoss()(torch.tensor([1.0, 0.0]), [0, 1], [0, 2])  # has the smallest kernel
stats = losses.list_kernel.softmax_pass.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), torch.get_num_threads())
"""


def run_python(code, cache):
    """What code prints in a new process with this folder of compiled kernels."""
    environment = dict(os.environ, NUMBA_CACHE_DIR=str(cache))
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def first_loss(cache):
    """Hits and misses of the cache in a new process, and what the kernel left of torch's one thread."""
    return run_python(FIRST_LOSS, cache).split()


def test_second_process_loads_what_the_first_compiled(tmp_path):
    assert first_loss(tmp_path) == ["0", "1", "1"]
    assert first_loss(tmp_path) == ["1", "0", "1"]


def test_kernels_of_different_variants_have_different_names():
    """numba numbers functions by process, so that only names and types tell apart what different processes cached."""
    with_discount = (ADDITIVE, CASCADE, FIRST_HIT)
    kernels = [smooth_pass_of(code, discount) for code in with_discount for discount in range(len(BUILT_IN))]
    kernels += [smooth_pass_of(CASCADE, GIVEN)]
    kernels += [smooth_pass_of(code, GIVEN) for code in (PRECISION_SUM, COUPLED, PAIRS)]
    kernels += [pair_pass_of(cost, swap) for cost in range(3) for swap in range(-1, 9)]
    names = [kernel.py_func.__qualname__ for kernel in kernels]
    for kernel in kernels:  # none of them calls a function that is not compiled under a name of its own
        around = inspect.getclosurevars(kernel.py_func).nonlocals
        assert not any(isinstance(value, FunctionType) for value in around.values())
    assert len(names) == 12 + 4 + 30
    assert len(set(names)) == len(names)


@helper
def _twice(x):
    return 2 * x


@numba.njit
def _four_times(x):
    return _twice(_twice(x))


def test_helpers_are_linked_into_kernels_without_machine_code_of_their_own():
    assert _four_times(3) == 12
    for function, has_code in ((_twice, False), (_four_times, True)):
        (compiled,) = function.overloads.values()
        engine = compiled.library._codegen._engine
        assert engine.is_symbol_defined(compiled.fndesc.llvm_cpython_wrapper_name) == has_code
        assert has_code or not engine.is_symbol_defined(compiled.fndesc.llvm_func_name)


MESSAGES = """
import io, sys
class Terminal(io.StringIO):
    def isatty(self):
        return IS_TERMINAL
sys.stderr = Terminal()
import numpy as np
from rankbound.losses import kernel_cache
from rankbound.losses.plans import _counting_sort as small_kernel
def use():
    for levels in (np.zeros(2, np.uint8), np.zeros(2, np.uint16)):  # compiled for each type
        small_kernel((0, 1), levels, np.array([0, 2]), 1, np.zeros(2, np.int64))
CALL
print(sys.stderr.getvalue(), end="")
"""


def messages(cache, is_terminal=True, call="use()"):
    return run_python(MESSAGES.replace("IS_TERMINAL", str(is_terminal)).replace("CALL", call), cache)


def test_compiling_is_reported_once_and_on_terminals_alone(tmp_path):
    assert messages(tmp_path / "1") == "rankbound: compiling loss kernels, once: later processes load them\n"
    assert messages(tmp_path / "1") == ""  # loaded
    assert messages(tmp_path / "2", is_terminal=False) == ""
    assert messages(tmp_path / "3", call="with kernel_cache.without_messages(): use()") == ""


def test_compiling_without_a_cache_is_reported_as_such(monkeypatch):
    monkeypatch.setenv("RANKBOUND_CACHE", "")
    assert messages("").startswith("rankbound: compiling loss kernels, in every process")


def test_cache_of_a_package_that_cannot_be_written(tmp_path, monkeypatch):
    """The cache folder takes over; another source text means another folder."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    package = tmp_path / "package"
    package.mkdir()
    (package / "kernel.py").write_text("@kernel  # 1\n")
    assert kernel_folder(package).is_relative_to(package)
    (package / "__pycache__").rename(tmp_path / "gone")
    (package / "__pycache__").write_text("a file, so no folder can be made here, whoever we are")
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    there = kernel_folder(package)
    assert there.parent == tmp_path / "cache"
    (package / "kernel.py").write_text("@kernel  # 2\n")
    assert kernel_folder(package).name != there.name


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


def test_import_of_the_package_leaves_torch_and_numba_alone():
    code = "import sys, rankbound; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
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


def test_objectives_work_without_torch_and_tensors_name_the_extra():
    done = subprocess.run([sys.executable, "-c", OBJECTIVES + WITHOUT_TORCH], capture_output=True, text=True)
    missing = "a loss of tensors needs torch, and torch is missing: pip install 'rankbound[train]'"
    assert done.stdout.splitlines() == ["False", missing, missing], done.stderr


def test_missing_numba_names_the_extra():
    code = "import sys; sys.modules['numba'] = None\nimport rankbound.losses"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "rankbound.losses needs numba, and numba is missing: pip install 'rankbound[train]'" in done.stderr


def test_kernels_lie_beside_the_source_they_come_from():
    assert Path(kernel_folder()).name.startswith("kernels-")
