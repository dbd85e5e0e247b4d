"""What one sees while trials run: a bar in a terminal, a line now and then elsewhere. All on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rankbound.experiments.expansion import Planned
from rankbound.experiments.trial import Outcome
from rankbound.experiments.worker import Failure

__all__ = ["show_progress"]

Tell = Callable[[Planned, "Outcome | Failure"], None]
_SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def show_progress(todo: Sequence[Planned]) -> Iterator[Tell]:
    """Gives what to call after each trial: trials done, time left, and the best so far on the data of the last one."""
    best: dict[tuple[str, str, str], tuple[float, str]] = {}

    def news(one: Planned, result: Outcome | Failure) -> str:
        where = (one.setting["data"], one.variant, one.rule.select_by)
        if isinstance(result, Failure):
            return f"failed: {one.system}: {result.error.splitlines()[0]}"
        value = result.metadata.get("eval_score")
        if value is not None and value > best.get(where, (float("-inf"), ""))[0]:
            best[where] = (value, one.system)
        if where not in best:
            return f"last: {one.system}"
        (data, variant, measure), (value, system) = where, best[where]
        return f"best so far on {' '.join(filter(None, (data, variant)))}: {measure} {value:.4f} ({system})"

    if sys.stderr.isatty():
        with _bar(len(todo), news) as tell:
            yield tell
    else:
        yield _lines(len(todo), news)


@contextmanager
def _bar(total: int, news: Callable[[Planned, Outcome | Failure], str]) -> Iterator[Tell]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("trials"), progress.MofNCompleteColumn(), progress.BarColumn(),
        progress.TimeElapsedColumn(), progress.TextColumn("left"), progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[news]}"),
    )  # fmt: skip
    with progress.Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=600) as bar:
        task = bar.add_task("", total=total, news="")
        yield lambda one, result: bar.update(task, advance=1, news=news(one, result))


def _lines(total: int, news: Callable[[Planned, Outcome | Failure], str]) -> Tell:
    began = last = time.monotonic()
    done = 0

    def tell(one: Planned, result: Outcome | Failure) -> None:
        nonlocal last, done
        done += 1
        now = time.monotonic()
        said = news(one, result)
        if now - last >= _SECONDS_BETWEEN_LINES or isinstance(result, Failure):
            last = now
            left = (now - began) / done * (total - done)
            print(f"{done} of {total} trials, about {left / 60:.0f} min left; {said}", file=sys.stderr, flush=True)  # noqa: T201

    return tell
