"""rankbound bench: speed and memory beside those of peers, in tables and a chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from rankbound.bench.records import Finding
    from rankbound.bench.running import Outcome

__all__ = ["bench"]

_SHORT = 1  # exit code when less was reached than asked for


def bench(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PART",
            help="evaluation, distributions, losses, objectives, reading, factorization, scale.  [default: all]",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: shows that everything works, not how fast.")
    ] = False,
    folder: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="Folder for bench.json, .md, .svg and .html.")
    ] = "bench-results",
    scale_rows: Annotated[
        int | None, typer.Option(metavar="N", help="Rows of the largest file of part scale.  [default: 10,000,000]")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Time and memory of rankbound beside those of peers on the same input, and how both grow.

    A peer that is not installed is named and left out. Takes about 25 minutes for all parts; the exit code is 1 if less
    was reached than is asked for, or if a peer computes another value.

    \b
    Examples:
      rankbound bench
      rankbound bench losses distributions -o here
      rankbound bench scale --scale-rows 100000000
    """
    from rankbound.bench.running import SCALE_ROWS, check_parts, run_parts
    from rankbound.bench.writing import write_outcome

    rows = scale_rows if scale_rows is not None else 20_000 if quick else SCALE_ROWS
    chosen = check_parts(parts or [], rows)
    if Path(folder).exists() and not Path(folder).is_dir():
        raise ArgumentError(f"{folder}: is a file, expected a folder")
    outcome = run_parts(chosen, quick=quick, scale_rows=rows, tell=_tell)
    files = write_outcome(outcome, Path(folder))
    if as_json:
        output.print_json(outcome.to_dict() | {"files": [str(file) for file in files]})
    else:
        _print(outcome, files)
    return _SHORT if outcome.failed else 0


def _tell(part: str, finding: Finding) -> None:
    from rankbound.bench.records import Growth, Row

    if isinstance(finding, Row):
        text = f"{finding.name}: {finding.ratio:.2f} times {finding.peer}"
    elif isinstance(finding, Growth):
        text = f"{finding.curve}, over {finding.over}: {finding.way} measured"
    else:
        text = str(finding)
    typer.echo(f"{part}: {text}", err=True)


def _print(outcome: Outcome, files: list[Path]) -> None:
    from rankbound.bench.tables import METHOD, tables_of

    for table in tables_of(outcome):
        cells = [[cell.text for cell in row] for row in table.rows]
        output.print_table(table.title, table.columns, cells, text_columns=table.text_columns, note=f"{table.note}\n")
    output.print_note(f"{METHOD}\n")
    for one in outcome.missing:
        output.print_note(str(one))
    shortfalls = outcome.shortfalls
    output.print_note("\n".join(["Where we lose:", *shortfalls]) if shortfalls else "No peer is better anywhere here.")
    output.print_note(f"\nWritten: {', '.join(map(str, files))}")
