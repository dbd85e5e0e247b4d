"""Output of the commands: JSON, tables, files of per-query values, and a spinner on stderr."""

from __future__ import annotations

import io
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rankbound.errors import ArgumentError
from rankbound.report.numbers import say_p, show_correction, show_interval, show_number, show_p, show_policy
from rankbound.report.safe_text import escape_controls, without_formulas

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from rankbound.analysis.inference import Inference
    from rankbound.io import Progress
    from rankbound.lists import Coverage

__all__ = [
    "check_table_path",
    "describe_candidates",
    "describe_coverage",
    "describe_policy",
    "json_text",
    "plain_params",
    "print_json",
    "print_note",
    "print_table",
    "print_warnings",
    "say_p",
    "show_correction",
    "show_interval",
    "show_number",
    "show_p",
    "show_policy",
    "show_progress",
    "working",
    "write_table",
]

_WIDE = 4000  # columns: tables are never truncated, a narrow terminal wraps their lines
_TABLE_SUFFIXES = (".parquet", ".csv", ".json")


def print_json(value: dict[str, Any], indent: int | None = 2) -> None:
    """Print one JSON object on stdout."""
    typer.echo(json_text(value, indent))


def json_text(value: dict[str, Any], indent: int | None = 2) -> str:
    """Return an object as JSON; NaN and infinity, which JSON does not have, become null.

    >>> json_text({"mean": {"AP": float("nan")}, "queries": 3}, indent=None)
    '{"mean": {"AP": null}, "queries": 3}'
    """
    return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=False)


def plain_params(model: Any) -> dict[str, Any]:
    """Return the parameters of a model as values of JSON; objects are described."""
    params = model.get_params(deep=False)
    is_plain = (bool, int, float, str, type(None))
    return {name: value if isinstance(value, is_plain) else repr(value) for name, value in params.items()}


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1, note: str = ""
) -> None:
    """Print a table on stdout: the first ``text_columns`` columns flush left, the others flush right, then a note."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        left = index < text_columns
        table.add_column(
            Text(escape_controls(column)), justify="left" if left else "right", no_wrap=not left, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(escape_controls(cell)) for cell in row))
    console = _console(_WIDE)
    with console.capture() as drawn:
        console.print(Text(escape_controls(title), style="bold"))
        console.print(table)
    # rich pads lines with spaces
    lines = [line.rstrip() for line in drawn.get().split("\n")]
    typer.echo("\n".join(line for line in lines if line))
    if note:
        print_note(note)


def print_note(text: str) -> None:
    """Print a sentence on stdout, wrapped only in a terminal."""
    from rich.text import Text

    _console(None if sys.stdout.isatty() else _WIDE).print(Text(escape_controls(text)))


def print_warnings(sentences: Iterable[str]) -> None:
    """Print each sentence as one line on stderr."""
    for sentence in sentences:
        typer.echo(escape_controls(f"rankbound: warning: {' '.join(sentence.split())}"), err=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on stderr while the block runs, if stderr is a terminal, with the progress of long work.

    Large files that are read, tables in parts, trees and distributions report how much is done and how long the rest
    takes.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from rankbound.difficulty.distribution.many import watched_distributions
    from rankbound.io import watched_progress

    with Console(stderr=True).status(what) as status:

        def show(done: int, total: int) -> None:
            if done % 10 == 0 or done == total:
                status.update(f"{what} distribution {done:,} of {total:,}")

        with watched_distributions(show), watched_progress(show_progress(what, status.update)):
            yield


def show_progress(what: str, show: Callable[[str], None]) -> Progress:
    """A function that shows the fraction of something that is done, and the time that is left.

    The time is estimated anew for every step, and where less is done than before, because another file begins.

    >>> report = show_progress("evaluating ...", print)
    >>> report("reading", 30, 120)
    evaluating ... reading 25 %
    """
    step, began, first, before = "", 0.0, 0, 0

    def report(name: str, done: int, total: int) -> None:
        nonlocal step, began, first, before
        if name != step or done < before:
            step, began, first = name, time.monotonic(), done
        before, passed = done, time.monotonic() - began
        left = f", {passed * (total - done) / (done - first):,.0f} s left" if done > first else ""
        show(f"{what} {name} {100 * done / max(total, 1):.0f} %{left}")

    return report


def describe_policy(inference: Inference) -> dict[str, str]:
    """The policy for intervals and tests, as metadata of a page."""
    return {
        "Intervals": f"{100 * inference.confidence:g} %, {inference.interval}, {inference.resamples:,} resamples, "
        f"seed {inference.seed}",
        "Tests": show_policy(inference),
    }


def describe_coverage(coverage: Coverage, missing: str = "ignored") -> list[str]:
    """Queries that only the judgments or only the run have, and Judged@k where documents have no judgment.

    ``missing`` says how judged queries that are not in the run were treated.

    >>> from rankbound import evaluate
    >>> describe_coverage(evaluate({"q": {"a": 1}, "r": {"a": 1}}, {"q": {"a": 2.0, "b": 1.0}}, "P@2").coverage)
    ['1 judged but not in the run (ignored)', 'Judged@2: 0.5000 (1 of 2 returned documents has no judgment)']
    """
    parts = []
    if coverage.missing_queries:
        parts.append(f"{coverage.missing_queries} judged but not in the run ({missing})")
    if coverage.unjudged_queries:
        parts.append(f"{coverage.unjudged_queries} in the run but not judged (ignored)")
    if unjudged := coverage.unjudged_documents:
        verb = "has" if unjudged == 1 else "have"
        documents = f"{unjudged:,} of {coverage.returned_documents:,} returned documents {verb} no judgment"
        parts.append(f"Judged@{coverage.cutoff}: {show_number(coverage.judged_at_cutoff)} ({documents})")
    return parts


def check_table_path(path: str | None) -> None:
    """Raise ArgumentError, before any work is done, for a path that cannot become a table."""
    if path is None:
        return
    if Path(path).suffix not in _TABLE_SUFFIXES:
        raise ArgumentError(f"{path}: the name of a table must end with one of {', '.join(_TABLE_SUFFIXES)}")
    if Path(path).is_dir():
        raise ArgumentError(f"{path}: is a folder, expected a file name")


def write_table(frame: pl.DataFrame, path: str) -> None:
    """Write a frame atomically as parquet, csv or json (a list of rows)."""
    from rankbound.io import atomic_write

    check_table_path(path)
    content = io.BytesIO()  # in memory first, because polars reports a full disk in several ways
    if path.endswith(".parquet"):
        frame.write_parquet(content)
    elif path.endswith(".csv"):
        without_formulas(frame).write_csv(content)
    else:
        frame.write_json(content)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content.getvalue())


def _console(width: int | None) -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe_candidates(candidates: str) -> str:
    """Words for the documents that bounds and normalized measures are about.

    >>> describe_candidates("judged"), describe_candidates("top100.txt")
    ('judged documents', 'documents of top100.txt')
    """
    words = {
        "judged": "judged documents",
        "returned": "judged documents that the run returned",
        "catalog": "all items but the user's training items",
    }
    return words.get(candidates, f"documents of {candidates}")
