"""Worker threads of the kernels: a kernel that releases the interpreter's lock is called once per block of queries.

Python's own threads are used in place of numba's, because loops that numba makes parallel take several times as long to
compile, and because OpenMP ends a forked child that uses it after its parent has. A call is executed by whoever claims
it first, a worker or the thread that waits for it. So the work is done even where no thread can be started, for
instance while the interpreter shuts down, and threads that call kernels at the same time cannot block each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

__all__ = ["run_blocks"]


class _Call:
    """A call of a kernel, executed once."""

    def __init__(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._function, self._arguments = function, arguments
        self._claim, self._done = threading.Lock(), threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None

    def execute(self) -> None:
        """Call the kernel unless somebody else does or did."""
        if self._claim.acquire(blocking=False):
            try:
                self._function(*self._arguments)
            except BaseException as error:  # raised by `wait`, in the thread that wants the result
                self._error = error
            finally:
                self._done.release()

    def wait(self) -> None:
        """Wait until the call is done; raises what it raised."""
        with self._done:
            if self._error is not None:
                raise self._error


class _Workers:
    """Daemon threads that execute calls; they are started when they are needed first."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._lock, self._count = threading.Lock(), 0

    def add(self, calls: Sequence[_Call]) -> None:
        """Let the workers execute calls, at once if possible."""
        if self._count < len(calls):
            self._start(len(calls))
        for call in calls:
            self._calls.put(call)

    def _start(self, count: int) -> None:
        with self._lock:
            while self._count < count:
                try:
                    threading.Thread(target=self._work, name="rankbound kernel", daemon=True).start()
                except RuntimeError:  # no more threads can be started: the caller does the work
                    return
                self._count += 1

    def _work(self) -> None:
        while True:
            self._calls.get().execute()


_workers = _Workers()


def _forget_workers() -> None:
    """The threads of a process do not exist in its forked children."""
    global _workers
    _workers = _Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


def run_blocks(kernel: Callable[..., object], blocks: Sequence[Any], *arguments: Any) -> None:
    """Call ``kernel(block, *arguments)`` for each block: the first in this thread, the others in workers.

    >>> seen = []
    >>> run_blocks(lambda block, factor: seen.append(factor * block), [1, 2, 3], 10)
    >>> sorted(seen)
    [10, 20, 30]
    """
    calls = [_Call(kernel, (block, *arguments)) for block in blocks[1:]]
    if calls:
        _workers.add(calls)
    try:
        kernel(blocks[0], *arguments)
    finally:  # also after an error: nobody may write into the arrays of the caller once it has returned
        for call in calls:
            call.execute()
        for call in calls:
            call.wait()
