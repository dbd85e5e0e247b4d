"""Processes and threads that need the same kernel at the same time compile it once."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time

import numba
import numpy as np
import pytest

from rankbound.losses import compiling, kernel_cache
from rankbound.losses.compiling import block_kernel, helper

KERNEL = """
import sys, time
from pathlib import Path
import numpy as np
from rankbound.losses.plans import _counting_sort as small_kernel

def use():
    small_kernel((0, 1), np.zeros(2, np.uint8), np.array([0, 2]), 1, np.zeros(2, np.int64))
    stats = small_kernel.stats
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))

def compile_forever():
    def wait(*_):
        print("compiling", flush=True)
        time.sleep(600)
    small_kernel._compiler.compile = wait
    use()

def begin_together():
    print("ready", flush=True)
    sys.stdin.readline()
    use()
"""


@pytest.fixture
def start(tmp_path):
    """Start a process with a folder of compiled kernels that is empty at first."""
    processes = []

    def begin(call):
        process = subprocess.Popen(
            [sys.executable, "-c", KERNEL + call], env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def lock_files(folder):
    return list(folder.rglob("*.lock"))


def test_processes_that_start_at_once_compile_a_kernel_once(start, tmp_path):
    processes = [start("begin_together()") for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = sorted(process.communicate(timeout=120)[0] for process in processes)
    assert outputs == ["0 1\n", "1 0\n", "1 0\n"]  # hits and misses of the cache
    assert len(list(tmp_path.rglob("*.nbc"))) == 1
    assert lock_files(tmp_path) == []


def test_the_lock_of_a_killed_process_ends_with_it(start, tmp_path):
    holder = start("compile_forever()")
    assert holder.stdout.readline() == "compiling\n"
    waiting = start("begin_together()")
    assert waiting.stdout.readline() == "ready\n"
    waiting.stdin.write("\n")
    waiting.stdin.flush()
    time.sleep(0.5)
    assert waiting.poll() is None
    assert list(tmp_path.rglob("*.nbc")) == []
    holder.kill()
    before = time.monotonic()
    assert waiting.communicate(timeout=120)[0] == "0 1\n"
    assert time.monotonic() - before < kernel_cache._WAIT_SECONDS / 2
    assert lock_files(tmp_path) == []


# ---- in one process --------------------------------------------------------------------------------------------------


@helper
def _half(x):
    return x / 2


def _sum_of_halves(values):
    total = 0.0
    for value in values:
        total += _half(value)
    return total


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Make a kernel as a new process finds it, with a folder of its own."""
    monkeypatch.setattr(compiling, "_folder", tmp_path / "kernels")
    return lambda variant="": block_kernel(_sum_of_halves, variant)


@contextlib.contextmanager
def locked_by_somebody(kernel, values):
    """Hold the lock of a kernel for these values, as another process does."""
    signature = (numba.typeof(values),)
    path = kernel._cache._lock_file(signature, kernel.targetctx)
    with kernel_cache.waiting_lock(path, 0) as is_held:
        assert is_held
        yield path


def counts(kernel):
    return sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())


def test_a_kernel_whose_compilation_fails_is_not_locked_afterwards(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_WAIT_SECONDS", 1e6)
    kernel = fresh()
    for _ in range(2):
        with pytest.raises(numba.TypingError):
            kernel("no array of numbers")
        assert lock_files(tmp_path) == []
        assert kernel._cache._locks == []
    assert fresh()(np.ones(3)) == 1.5


def test_waiting_ends_after_some_time(fresh, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_WAIT_SECONDS", 0.3)
    kernel, values = fresh(), np.ones(3)
    with locked_by_somebody(kernel, values) as path:
        before = time.monotonic()
        assert kernel(values) == 1.5
        assert time.monotonic() - before >= 0.3
        assert path.exists()  # it belongs to the other process
    assert counts(kernel) == (0, 1)
    assert counts_after_a_call(fresh()) == (1, 0)


def counts_after_a_call(kernel):
    assert kernel(np.ones(3)) == 1.5
    return counts(kernel)


def test_a_waiting_kernel_is_loaded_when_the_other_process_has_saved_it(fresh, monkeypatch):
    """Saved, as here, while the lock is held by somebody else: the kernel that waits does not compile."""
    monkeypatch.setattr(kernel_cache, "_WAIT_SECONDS", 0.1)
    first, second, values = fresh(), fresh(), np.ones(3)
    with locked_by_somebody(first, values):
        load = kernel_cache.KernelCache._load
        calls = []

        def load_what_is_saved_in_the_meantime(cache, *arguments):
            loaded = load(cache, *arguments)
            if cache is second._cache:
                calls.append(loaded is not None)
                if len(calls) == 1:
                    assert first(values) == 1.5
            return loaded

        monkeypatch.setattr(kernel_cache.KernelCache, "_load", load_what_is_saved_in_the_meantime)
        assert second(values) == 1.5
    assert calls == [False, True]
    assert (counts(first), counts(second)) == ((0, 1), (1, 0))


def test_threads_compile_each_kernel_once_for_each_type(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_WAIT_SECONDS", 1e6)
    kernels, results = [fresh("one"), fresh("two")], []
    barrier = threading.Barrier(6)

    def work(kernel, dtype):
        barrier.wait(60)
        results.append(kernel(np.ones(3, dtype)))

    cases = [(kernel, dtype) for kernel in kernels for dtype in (np.float32, np.float64, np.float32)]
    workers = [threading.Thread(target=work, args=case) for case in cases]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert results == [1.5] * 6
    assert [counts(kernel) for kernel in kernels] == [(0, 2)] * 2
    assert lock_files(tmp_path) == []


def test_without_a_folder_that_can_be_written_kernels_are_compiled_without_a_lock(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_WAIT_SECONDS", 1e6)
    kernel = fresh()
    folder = tmp_path / "kernels"
    with contextlib.suppress(FileNotFoundError):
        folder.rename(tmp_path / "gone")
    folder.write_text("a file, so that no folder can be created here, whoever we are")
    assert counts_after_a_call(kernel) == (0, 1)
    monkeypatch.setattr(compiling, "_folder", None)
    assert fresh()(np.ones(3)) == 1.5


@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("keeps_kernels", [True, False])
def test_garbage_is_collected_again_after_a_compilation(fresh, monkeypatch, is_enabled, keeps_kernels):
    if not keeps_kernels:
        monkeypatch.setattr(compiling, "_folder", None)
    kernel, during = fresh(), []
    load = kernel._cache.load_overload
    monkeypatch.setattr(kernel._cache, "load_overload", lambda *given: during.append(gc.isenabled()) or load(*given))
    try:
        if not is_enabled:
            gc.disable()
        assert kernel(np.ones(3)) == 1.5
        with pytest.raises(numba.TypingError):
            kernel("no array of numbers")
        assert during == [False, False]
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_child_does_not_keep_the_lock_of_its_parent(tmp_path):
    """The child outlives the block in which its parent held the lock; a parent that is killed would not unlock it."""
    code = """
import os, signal, sys
from rankbound.io import waiting_lock
with waiting_lock(sys.argv[1], 0) as is_held:
    child = os.fork()
    if child == 0:
        print(is_held, flush=True)
        sys.stdin.read()
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "kernel.lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "True\n"
        assert parent.wait(60) < 0  # killed; the child waits for its input
        with kernel_cache.waiting_lock(path, 0) as is_held:
            assert is_held
        parent.stdin.close()
