"""Losses in forked and spawned children and in many threads give what they give in the parent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rankbound import kernels
from rankbound.kernels import workers
from rankbound.kernels.workers import run_blocks
from rankbound.losses import NDCGLoss, set_threads
from rankbound.parallel import cores

pytestmark = pytest.mark.full("starts processes that compile")

COMMON = """
import os, sys
import multiprocessing as mp
import numpy as np
import rankbound.kernels
from rankbound.losses import get_loss

rankbound.kernels._WORK_PER_THREAD = 1  # several threads also for small batches
sizes = np.random.default_rng(1).integers(2, 60, 50)
offsets = np.concatenate(([0], np.cumsum(sizes)))
labels = np.random.default_rng(2).integers(0, 3, offsets[-1])
losses = [get_loss(name) for name in ("nDCG", "RankNet")]

def values(seed):
    scores = np.random.default_rng(seed).normal(size=offsets[-1]).astype(np.float32)
    results = [loss.value_and_gradient(scores, loss.plan(labels, offsets)) for loss in losses]
    return [array.tobytes() for result in results for array in (result.values, result.gradient)]

def hundred(seed):
    return [values(seed + i) for i in range(100)]
"""


def run(code, timeout=240):
    """Run code in a new process, whose stdout is returned; a child that hangs fails the test."""
    done = subprocess.run(
        [sys.executable, "-c", COMMON + code], capture_output=True, text=True, check=False, timeout=timeout
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_forked_children_compute_what_the_parent_computes():
    """Four children with a hundred calls each, in a pool and by fork alone, after the parent has used its threads."""
    code = """
expected = hundred(0)
with mp.get_context("fork").Pool(4) as pool:
    assert pool.map(hundred, [0] * 4, chunksize=1) == [expected] * 4
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        os._exit(0 if hundred(0) == expected else 3)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
assert hundred(0) == expected  # the parent still has its threads
print("done")
"""
    assert run(code) == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_children_of_a_parent_that_never_used_a_loss_and_grandchildren():
    code = """
def nested(seed):
    child = os.fork()
    if child == 0:
        os._exit(0 if values(seed) == values(seed) else 3)
    return os.waitpid(child, 0)[1], values(seed)

with mp.get_context("fork").Pool(2) as pool:
    results = pool.map(nested, range(4))
assert results == [(0, values(seed)) for seed in range(4)]
print("done")
"""
    assert run(code) == "done\n"


def test_spawned_children_compute_what_the_parent_computes(tmp_path):
    """A spawned child imports the file that started it."""
    file = tmp_path / "spawning.py"
    file.write_text(
        COMMON
        + """
if __name__ == "__main__":
    expected = hundred(0)
    with mp.get_context("spawn").Pool(4) as pool:
        assert pool.map(hundred, [0] * 4, chunksize=1) == [expected] * 4
    print("done")
"""
    )
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False, timeout=240)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def batch():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 60, 100)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return rng.normal(size=offsets[-1]).astype(np.float32), rng.integers(0, 3, offsets[-1]), offsets


def test_fifty_threads_at_once(monkeypatch):
    monkeypatch.setattr(kernels, "_WORK_PER_THREAD", 1)
    scores, labels, offsets = batch()
    loss = NDCGLoss()
    expected = loss.value_and_gradient(scores, loss.plan(labels, offsets))
    barrier = threading.Barrier(50)

    def work(_):
        barrier.wait(60)
        own = NDCGLoss()
        return [own.value_and_gradient(scores, own.plan(labels, offsets)) for _ in range(5)]

    with ThreadPoolExecutor(50) as pool:
        results = [result for results in pool.map(work, range(50)) for result in results]
    assert len(results) == 250
    for result in results:
        np.testing.assert_array_equal(result.values, expected.values)
        np.testing.assert_array_equal(result.gradient, expected.gradient)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch, count):
    """Also with more threads than cores, and more threads than queries."""
    scores, labels, offsets = batch()
    loss = NDCGLoss()
    set_threads(1)
    expected = loss.value_and_gradient(scores, loss.plan(labels, offsets))
    set_threads(None)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(count), raising=False)
    monkeypatch.setattr(kernels, "_WORK_PER_THREAD", 1)
    assert cores() == kernels.threads_for(1e9) == count
    result = loss.value_and_gradient(scores, loss.plan(labels, offsets))
    np.testing.assert_array_equal(result.values, expected.values)
    np.testing.assert_array_equal(result.gradient, expected.gradient)
    few = loss.value_and_gradient(scores[: offsets[2]], loss.plan(labels[: offsets[2]], offsets[:3]))
    np.testing.assert_array_equal(few.values, expected.values[:2])


# ---- workers ---------------------------------------------------------------------------------------------------------


def test_every_block_is_computed_once_where_no_thread_can_be_started(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workers, "_workers", workers._Workers())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    seen = []
    run_blocks(seen.append, range(5), 3)
    assert sorted(seen) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("failing", [0, 1, 3])
def test_an_error_ends_the_work_and_nothing_runs_after_it_is_raised(failing, error):
    started, ended = [], []

    def work(block):
        started.append(block)
        if block == failing:
            raise error(f"block {block}")
        time.sleep(0.01)
        ended.append(block)

    with pytest.raises(error, match=f"block {failing}"):
        run_blocks(work, range(100), 2)
    assert failing in started
    assert len(started) < 20
    assert len(ended) == len(started) - 1


def test_an_interrupted_process_ends_between_blocks(tmp_path):
    """Ctrl-C during a computation that takes minutes."""
    code = """
import numpy as np, os, signal, threading, time
from rankbound.losses import RRLoss, set_threads
scores, labels = np.random.default_rng(0).normal(size=400_000), np.ones(400_000, int)
labels[::40] = 0
loss = RRLoss(sigmoid="erf")
plan = loss.plan(labels, np.arange(0, 400_001, 4000))
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process in the background lacks
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.perf_counter()
try:
    loss.value_and_gradient(scores, plan)
except KeyboardInterrupt:
    print("interrupted", time.perf_counter() - began < 20)
"""
    assert run(code) == "interrupted True\n"


def test_workers_do_the_work_at_the_same_time():
    """Blocks that wait for each other end only if each has a thread of its own."""
    barrier = threading.Barrier(3, timeout=30)
    run_blocks(lambda _: barrier.wait(), range(3), 3)


def test_nested_calls_end():
    seen = []
    run_blocks(lambda outer: run_blocks(lambda inner: seen.append((outer, inner)), range(3), 2), range(3), 2)
    assert sorted(seen) == [(outer, inner) for outer in range(3) for inner in range(3)]
