"""Progress of a search: the reports that `tune` makes, and their display on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rankbound.experiments.progress import on_stderr

if TYPE_CHECKING:
    from rankbound.tuning.log import TrialRecord

__all__ = ["ProgressCallback", "TuneProgress", "show_progress"]

_SECONDS_BETWEEN_LINES = 30.0
_STAGES = {
    "kernels": "preparing the loss kernels (compiled once, then cached) ...",
    "final": "measuring the chosen model ...",
    "page": "writing the page ...",
}


@dataclass(frozen=True)
class TuneProgress:
    """A report of a running search.

    Parameters
    ----------
    stage:
        What the search is doing. Stage "trials" is reported at the beginning and after each trial.
    done, total:
        Finished trials, and the budget of trials or None.
    elapsed, limit:
        Seconds of the search over all runs, and the budget or None.
    measure:
        The measure of the validation queries.
    best, last:
        The best trial so far, and the one that has just finished.
    """

    stage: Literal["kernels", "trials", "final", "page"]
    done: int = 0
    total: int | None = None
    elapsed: float = 0.0
    limit: float | None = None
    measure: str = ""
    best: TrialRecord | None = None
    last: TrialRecord | None = None

    @property
    def fraction(self) -> float:
        """The part of the budget that is spent, from 0 to 1.

        >>> TuneProgress("trials", done=5, total=20, elapsed=300.0, limit=600.0).fraction
        0.5
        """
        parts = [self.done / self.total] if self.total else []
        parts += [self.elapsed / self.limit] if self.limit else []
        return min(1.0, max(parts, default=0.0))

    @property
    def headline(self) -> str:
        """The best trial so far in words."""
        if self.best is None:
            return ""
        return f"best so far: {self.measure} {self.best.value:.4f} ({self.best.model}, trial {self.best.number})"


ProgressCallback = Callable[[TuneProgress], None]


def show_progress() -> AbstractContextManager[ProgressCallback]:
    """A callback for `tune` that shows progress on stderr: a bar in a terminal, occasional lines elsewhere."""
    return on_stderr(_Lines, _Terminal)


class _Lines:
    """A line about the trials every half minute, and after each failure."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, report: TuneProgress) -> None:
        if report.stage != "trials" or report.last is None:
            return
        failed = report.last.status == "failed"
        if failed:
            _print(f"trial {report.last.number} failed: {report.last.error.splitlines()[0]}")
        elif time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            _print(f"{report.done} trials, {_left(report)}; {report.headline}")


class _Terminal:
    """A spinner for the stages of a search, and a bar while its trials run."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._status: Any = None
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, report: TuneProgress) -> None:
        if report.stage != "trials":
            self.stop()
            self._status = self._console.status(_STAGES[report.stage])
            self._status.start()
            return
        from rich import progress

        if self._bar is None:
            self.stop()
            columns = (
                progress.TextColumn("{task.fields[done]} trials"),
                progress.BarColumn(),
                progress.TextColumn("{task.fields[left]}"),
                progress.TextColumn("{task.fields[headline]}", markup=False),
            )
            self._bar = progress.Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("", total=1.0, done=report.done, left="", headline="")
            self._bar.start()
        self._bar.update(
            self._task, completed=report.fraction, done=report.done, left=_left(report), headline=report.headline
        )

    def stop(self) -> None:
        """Remove what is displayed."""
        for display in (self._status, self._bar):
            if display is not None:
                display.stop()
        self._status = self._bar = self._task = None


def _left(report: TuneProgress) -> str:
    """The time that is left: that of the budget, or as long as the trials so far suggest.

    >>> _left(TuneProgress("trials", done=5, total=10, elapsed=300.0))
    'about 5 min left'
    """
    if report.fraction == 0:
        return ""
    seconds = report.elapsed / report.fraction - report.elapsed
    if report.limit is not None:
        seconds = min(seconds, max(0.0, report.limit - report.elapsed))
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
