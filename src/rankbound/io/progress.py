"""Progress of long work: whoever does it reports how much is done, and whoever shows it watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Progress", "is_watched", "report_progress", "watched_progress"]

Progress = Callable[[str, int, int], None]
"""Called with what is done ("reading", "evaluating", "shuffling"), how much of it, and all of it, in bytes or rows."""

_watcher: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def watched_progress(progress: Progress) -> Iterator[None]:
    """Call ``progress`` for everything that is reported inside the block.

    >>> with watched_progress(lambda what, done, total: print(what, done, "of", total)):
    ...     report_progress("reading", 5, 10)
    reading 5 of 10
    >>> report_progress("reading", 6, 10)
    """
    token = _watcher.set(progress)
    try:
        yield
    finally:
        _watcher.reset(token)


def is_watched() -> bool:
    """Whether anybody watches."""
    return _watcher.get() is not None


def report_progress(what: str, done: int, total: int) -> None:
    """Report that so much of something is done."""
    progress = _watcher.get()
    if progress is not None:
        progress(what, done, total)
