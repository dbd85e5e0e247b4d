"""Progress of long work: whoever does it reports how much is done, and one display on standard error shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[str, int, int], None]
"""Called with what is done ("reading", "evaluating", "shuffling"), how much of it, and all of it, in bytes or rows."""

_SECONDS_BETWEEN_LINES = 30.0
_COUNTED = 10_000  # more steps than these are shown as a percentage

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


# ---- display ---------------------------------------------------------------------------------------------------------


class ProgressDisplay:
    """What is done at the moment, how much of it, and the time that is left, as one line of text.

    The time is estimated anew for every step, and where less is done than before, because another file begins.

    >>> display = ProgressDisplay("evaluating ...", print, print)
    >>> display("reading", 30_000, 120_000)
    evaluating ... reading 25 %
    """

    def __init__(self, title: str, show: Callable[[str], None], say: Callable[[str], None]) -> None:
        self._title, self._show, self._say = title, show, say
        self._step, self._began, self._first, self._before = "", 0.0, 0, 0

    def __call__(self, step: str, done: int, total: int, news: str = "") -> None:
        """Show that so much of a step is done; ``news`` follows the time that is left."""
        if step != self._step or done < self._before:
            self._step, self._began, self._first = step, time.monotonic(), done
        self._before = done
        amount = f"{done:,} of {total:,}" if total <= _COUNTED else f"{100 * done / max(total, 1):.0f} %"
        text = f"{self._title} {step} {amount}".lstrip()
        if done > self._first:
            text += f", {describe_time_left((time.monotonic() - self._began) * (total - done) / (done - self._first))}"
        self._show(f"{text}; {news}" if news else text)

    def show_stage(self, text: str) -> None:
        """Show that something is done of which there is no measure."""
        self._step = ""
        self._show(text)

    def say(self, text: str) -> None:
        """Print a line that remains."""
        self._say(text)


def describe_time_left(seconds: float) -> str:
    """A duration in words.

    >>> describe_time_left(42.0), describe_time_left(600.0)
    ('about 42 s left', 'about 10 min left')
    """
    return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


@contextmanager
def progress_display(title: str = "", *, lines: bool = False, shown: bool = True) -> Iterator[ProgressDisplay]:
    """Show progress on standard error while the block runs: one line that changes, if that is a terminal.

    Elsewhere nothing is shown, or with ``lines`` a line every half minute. Inside a display that is watched, this is
    that display.
    """
    outer = _watcher.get()
    if isinstance(outer, ProgressDisplay):
        yield outer
        return
    if not (shown and sys.stderr.isatty()):
        say = _print_line if lines else _print_nothing
        yield ProgressDisplay(title, _every_half_minute(say), say)
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    with console.status(escape(title)) as status:
        yield ProgressDisplay(
            title,
            lambda text: status.update(escape(text)),
            lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True),
        )


def _every_half_minute(say: Callable[[str], None]) -> Callable[[str], None]:
    last = time.monotonic()

    def show(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            say(text)

    return show


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _print_nothing(text: str) -> None:
    """Where nobody watches."""
