"""Progress of a search: the reports that `tune` makes, and their display on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rankbound.io import progress_display
from rankbound.io.progress import describe_time_left

if TYPE_CHECKING:
    from rankbound.tuning.study import TrialRecord


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

    stage: Literal["trials", "final", "page"]
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

    def describe(self) -> str:
        """Describe the state of the search in one line.

        >>> TuneProgress("trials", done=5, total=10, elapsed=300.0).describe()
        '5 trials, about 5 min left'
        """
        if self.stage != "trials":
            return "measuring the chosen model ..." if self.stage == "final" else "writing the page ..."
        parts = [f"{self.done} trials"]
        if self.fraction > 0:  # the time of the budget, or as long as the trials so far suggest
            seconds = self.elapsed / self.fraction - self.elapsed
            limit = seconds if self.limit is None else max(0.0, self.limit - self.elapsed)
            parts.append(describe_time_left(min(seconds, limit)))
        if self.best is not None:
            parts.append(
                f"best so far: {self.measure} {self.best.value:.4f} ({self.best.model}, trial {self.best.number})"
            )
        return ", ".join(parts)


ProgressCallback = Callable[[TuneProgress], None]


@contextmanager
def show_progress() -> Iterator[ProgressCallback]:
    """A callback for `tune` that shows progress on stderr: a line in a terminal, occasional lines elsewhere."""
    with progress_display(lines=True) as display:

        def show(report: TuneProgress) -> None:
            if report.last is not None and report.last.status == "failed":
                display.say(f"trial {report.last.number} failed: {report.last.error.splitlines()[0]}")
            display.show_stage(report.describe())

        yield show
