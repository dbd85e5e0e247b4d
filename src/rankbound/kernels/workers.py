"""Worker threads of the kernels: a kernel that releases the interpreter's lock is called once per block of work.

Blocks are executed by whoever claims them first, a worker or the thread that waits for the result. So the work is done
even where no thread can be started, for instance while the interpreter shuts down, and threads that call kernels at the
same time cannot block each other. An interruption (Ctrl-C) or an error ends the work after the blocks in progress.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any


class _Work:
    """Blocks of one call, each of which is executed once."""

    def __init__(self, function: Callable[[Any], object], blocks: Sequence[Any]) -> None:
        self._function, self._blocks = function, iter(blocks)
        self._lock, self._idle = threading.Lock(), threading.Condition()
        self._busy = 0
        self._error: BaseException | None = None

    def execute(self) -> None:
        """Execute blocks until none is left; nothing that was claimed is in progress when `wait` returns."""
        with self._idle:
            self._busy += 1
        try:
            while (block := self._claim()) is not None:
                self._function(block)
        except BaseException as error:  # raised by `wait`, in the thread that wants the result
            self.end(error)
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()

    def _claim(self) -> Any:
        with self._lock:
            return next(self._blocks, None)

    def end(self, error: BaseException) -> None:
        """Claim all blocks that are left, and have `wait` raise the error."""
        with self._lock:
            self._blocks = iter(())
            self._error = self._error or error

    def wait(self) -> None:
        """Wait until nobody is busy; raises the first error."""
        with self._idle:
            while self._busy:
                try:
                    self._idle.wait()
                except KeyboardInterrupt as error:
                    self.end(error)
        if self._error is not None:
            raise self._error


class _Workers:
    """Daemon threads that execute work; they are started when they are needed first."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Work] = SimpleQueue()
        self._lock, self._count = threading.Lock(), 0

    def add(self, work: _Work, helpers: int) -> None:
        """Let some workers execute blocks of the work, at once if possible."""
        if self._count < helpers:
            self._start(helpers)
        for _ in range(helpers):
            self._queue.put(work)

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
            self._queue.get().execute()


_workers = _Workers()


def _forget_workers() -> None:
    """The threads of a process do not exist in its forked children."""
    global _workers
    _workers = _Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


def run_blocks(function: Callable[[Any], object], blocks: Sequence[Any], threads: int) -> None:
    """Call ``function(block)`` for each block, in this thread and in up to ``threads - 1`` workers.

    >>> seen = []
    >>> run_blocks(lambda block: seen.append(10 * block), [1, 2, 3], 2)
    >>> sorted(seen)
    [10, 20, 30]
    """
    work = _Work(function, blocks)
    if threads > 1 and len(blocks) > 1:
        _workers.add(work, min(threads, len(blocks)) - 1)
    work.execute()
    work.wait()
