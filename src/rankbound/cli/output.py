"""Output of the commands: JSON, tables, files of per-query values, and a spinner on stderr."""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rankbound.errors import ArgumentError
from rankbound.report.numbers import show_number
from rankbound.report.safe_text import escape_controls

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from rankbound.lists import Coverage
    from rankbound.report.tables import Table

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
    from rankbound.models.options import flat_parameters

    params = flat_parameters(model)
    is_plain = (bool, int, float, str, type(None))
    return {name: value if isinstance(value, is_plain) else repr(value) for name, value in params.items()}


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1, note: str = ""
) -> None:
    """Print a table on stdout, in a terminal as wide as that is, and a note below it."""
    from rankbound.report.tables import Table

    show_table(Table.of_texts(title, columns, rows, text_columns=text_columns, notes=[note] if note else []))


def show_table(table: Table) -> None:
    """Print a table on stdout, in a terminal as wide as that is, and its note below it."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    typer.echo(table.to_text(width), nl=False)
    if table.note:
        print_note(table.note)


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
    """Show on stderr what is done while the block runs, if that is a terminal, with the progress of long work.

    Large files that are read, tables in parts, trees and distributions report how much is done and how long the rest
    takes.
    """
    from rankbound.io import progress_display, watched_progress

    with progress_display(what) as display, watched_progress(display):
        yield


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
    """Write a frame atomically as parquet, csv or json (a list of rows).

    These are data, which commands and scripts read again, so no text is altered for spreadsheets.
    """
    from rankbound.io import atomic_write

    check_table_path(path)
    content = io.BytesIO()  # in memory first, because polars reports a full disk in several ways
    if path.endswith(".parquet"):
        frame.write_parquet(content)
    elif path.endswith(".csv"):
        frame.write_csv(content)
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
