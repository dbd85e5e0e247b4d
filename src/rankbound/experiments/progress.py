"""Progress of a study: the reports that `run_study` makes, and their display on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from rankbound.experiments.trial import Outcome
    from rankbound.experiments.trial_spec import TrialSlot
    from rankbound.experiments.worker import Failure

__all__ = ["ProgressCallback", "StudyProgress", "on_stderr", "show_progress"]

_SECONDS_BETWEEN_LINES = 30.0
_STAGES = {
    "study": "reading the study ...",
    "data": "checking the data ...",
    "kernels": "preparing the loss kernels (compiled once, then cached) ...",
    "page": "writing the page ...",
}


@dataclass(frozen=True)
class StudyProgress:
    """A report of a running study.

    ``stage`` is what the study is doing. Stage "trials" is reported once at the beginning, and after each trial with
    its ``slot`` and ``result``. Stage "note" has a ``message`` for the user.
    """

    stage: Literal["study", "data", "kernels", "trials", "page", "note"]
    message: str = ""
    done: int = 0
    total: int = 0
    slot: TrialSlot | None = None
    result: Outcome | Failure | None = None


ProgressCallback = Callable[[StudyProgress], None]


Display = TypeVar("Display", bound=Callable[..., None])


@contextmanager
def on_stderr(lines: Callable[[], Display], terminal: Callable[[], Display]) -> Iterator[Display]:
    """Yield a display of progress on stderr: one for a terminal, which is stopped at the end, or one of lines."""
    if not sys.stderr.isatty():
        yield lines()
        return
    display: Any = terminal()
    try:
        yield display
    finally:
        display.stop()


def show_progress() -> AbstractContextManager[ProgressCallback]:
    """A callback for `run_study` that shows progress on stderr: a bar in a terminal, occasional lines elsewhere."""
    return on_stderr(_Lines, _Terminal)


class _Headlines:
    """The latest news about the trials: the best validation score on the data of the last trial, or a failure."""

    def __init__(self) -> None:
        self._best: dict[tuple[str, str, str], tuple[float, str]] = {}

    def of(self, slot: TrialSlot, result: Outcome | Failure) -> str:
        from rankbound.experiments.worker import Failure

        if isinstance(result, Failure):
            return f"failed: {slot.system}: {result.error.splitlines()[0]}"
        key = data, variant, measure = (slot.setting["data"], slot.variant, slot.rule.select_by)
        score = result.metadata.get("eval_score")
        if score is not None and score > self._best.get(key, (float("-inf"), ""))[0]:
            self._best[key] = (score, slot.system)
        if key not in self._best:
            return f"last: {slot.system}"
        score, system = self._best[key]
        return f"best so far on {' '.join(filter(None, (data, variant)))}: {measure} {score:.4f} ({system})"


class _Lines:
    """Notes at once, and a line about the trials every half minute and after each failure."""

    def __init__(self) -> None:
        self._headlines = _Headlines()
        self._began = self._last = time.monotonic()

    def __call__(self, report: StudyProgress) -> None:
        from rankbound.experiments.worker import Failure

        if report.stage == "note":
            _print(report.message)
        if report.stage != "trials":
            return
        now = time.monotonic()
        if report.slot is None or report.result is None:
            self._began = self._last = now
            return
        headline = self._headlines.of(report.slot, report.result)
        if now - self._last >= _SECONDS_BETWEEN_LINES or isinstance(report.result, Failure):
            self._last = now
            left = (now - self._began) / report.done * (report.total - report.done)
            _print(f"{report.done} of {report.total} trials, about {left / 60:.0f} min left; {headline}")


class _Terminal:
    """A spinner for the stages of a study, and a bar while its trials run."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.status import Status

        self._console = Console(stderr=True)
        self._headlines = _Headlines()
        self._status: Status | None = None
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, report: StudyProgress) -> None:
        if report.stage == "note":
            self._console.print(report.message, markup=False, highlight=False, soft_wrap=True)
        elif report.stage == "trials":
            self._advance(report)
        else:
            self.stop()
            self._status = self._console.status(_STAGES[report.stage])
            self._status.start()

    def _advance(self, report: StudyProgress) -> None:
        from rich import progress

        if self._bar is None or self._task is None:
            self.stop()
            columns = (
                progress.TextColumn("trials"), progress.MofNCompleteColumn(), progress.BarColumn(),
                progress.TimeElapsedColumn(), progress.TextColumn("left"), progress.TimeRemainingColumn(),
                progress.TextColumn("{task.fields[headline]}", markup=False),
            )  # fmt: skip
            self._bar = progress.Progress(*columns, console=self._console, transient=True, speed_estimate_period=600)
            self._task = self._bar.add_task("", total=report.total, headline="")
            self._bar.start()
        if report.slot is not None and report.result is not None:
            headline = self._headlines.of(report.slot, report.result)
            self._bar.update(self._task, completed=report.done, headline=headline)

    def stop(self) -> None:
        """Remove what is displayed."""
        if self._status is not None:
            self._status.stop()
        if self._bar is not None:
            self._bar.stop()
        self._status = self._bar = self._task = None


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
