"""A progress bar with the time that is left, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(what: str, total: int, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of steps that are done; a bar is drawn only in a terminal.

    >>> with progress_bar("epoch", 3, shown=False) as show:
    ...     show(1)
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda _done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
