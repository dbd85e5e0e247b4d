"""Progress of a study: the reports that `run_study` makes, and their display on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rankbound.io import ProgressDisplay, progress_display

if TYPE_CHECKING:
    from rankbound.studies.trial import Outcome
    from rankbound.studies.trial_spec import TrialSlot
    from rankbound.studies.worker import Failure

_STAGES = {"study": "reading the study ...", "data": "checking the data ...", "page": "writing the page ..."}


@dataclass(frozen=True)
class StudyProgress:
    """A report of a running study.

    ``stage`` is what the study is doing. Stage "trials" is reported once at the beginning, and after each trial with
    its ``slot`` and ``result``. Stage "note" has a ``message`` for the user.
    """

    stage: Literal["study", "data", "trials", "page", "note"]
    message: str = ""
    done: int = 0
    total: int = 0
    slot: TrialSlot | None = None
    result: Outcome | Failure | None = None


ProgressCallback = Callable[[StudyProgress], None]


@contextmanager
def show_progress() -> Iterator[ProgressCallback]:
    """A callback for `run_study` that shows progress on stderr: a line in a terminal, occasional lines elsewhere."""
    with progress_display(lines=True) as display:
        yield _StudyDisplay(display)


class _StudyDisplay:
    """Shows notes and failures at once; with the trials, the best validation score on the data of the last one."""

    def __init__(self, display: ProgressDisplay) -> None:
        self._display = display
        self._best: dict[tuple[str, str, str], tuple[float, str]] = {}

    def __call__(self, report: StudyProgress) -> None:
        from rankbound.studies.worker import Failure

        if report.stage == "note":
            self._display.say(report.message)
        elif report.stage != "trials":
            self._display.show_stage(_STAGES[report.stage])
        elif report.slot is None or report.result is None:
            self._display("trials", 0, report.total)
        else:
            if isinstance(report.result, Failure):
                self._display.say(f"failed: {report.slot.system}: {report.result.error.splitlines()[0]}")
                news = ""
            else:
                news = self._best_so_far(report.slot, report.result)
            self._display("trials", report.done, report.total, news)

    def _best_so_far(self, slot: TrialSlot, result: Outcome) -> str:
        key = data, variant, measure = (slot.setting["data"], slot.variant, slot.rule.select_by)
        score = result.metadata.get("eval_score")
        if score is not None and score > self._best.get(key, (float("-inf"), ""))[0]:
            self._best[key] = (score, slot.system)
        if key not in self._best:
            return f"last: {slot.system}"
        score, system = self._best[key]
        return f"best so far on {' '.join(filter(None, (data, variant)))}: {measure} {score:.4f} ({system})"
