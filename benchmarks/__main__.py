"""The command: `python -m benchmarks [PART...]`, and `python -m benchmarks compare OLD.json NEW.json`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import runner
from benchmarks.compare import TOLERANCE, compare_results, comparison_table, read_results
from benchmarks.records import Finding, Growth, Row
from benchmarks.runner import PARTS, SCALE_ROWS, Outcome, select_parts
from benchmarks.tables import METHOD, tables_of
from benchmarks.writing import write_outcome
from rankbound.errors import ArgumentError

__all__ = ["main"]

_QUICK_SCALE_ROWS = 20_000


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 1 where a bar is missed or a row got slower, and 2 for wrong arguments."""
    try:
        return _compare(arguments[1:]) if arguments[:1] == ["compare"] else _run(arguments)
    except ArgumentError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


# ---- running ---------------------------------------------------------------------------------------------------------


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time and memory of rankbound and its peers on the same input, and how both grow. All parts take "
        "about 25 minutes. A peer that is not installed is named and left out. The exit code is 1 if a bar is missed "
        "or if a peer computes other values. `python -m benchmarks compare OLD.json NEW.json` compares two results.",
    )
    parser.add_argument("parts", metavar="PART", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that everything works, not how fast")
    parser.add_argument(
        "-o", "--output", metavar="DIR", default="bench-results", help="folder for bench.json, .md, .svg, .html"
    )
    parser.add_argument(
        "--scale-rows", metavar="N", type=int, help=f"rows of the largest file of part scale (default: {SCALE_ROWS:,})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args(arguments)
    scale_rows = options.scale_rows
    if scale_rows is None:
        scale_rows = _QUICK_SCALE_ROWS if options.quick else SCALE_ROWS
    if scale_rows < 1:
        raise ArgumentError(f"--scale-rows must be at least 1, got {scale_rows}")
    folder = Path(options.output)
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"--output must be a folder, got the file {folder}")
    parts = select_parts(options.parts)
    outcome = runner.run_parts(parts, quick=options.quick, scale_rows=scale_rows, on_finding=_print_finding)
    files = write_outcome(outcome, folder)
    if options.json:
        print(json.dumps(outcome.to_dict() | {"files": [str(file) for file in files]}, indent=2))
    else:
        _print_outcome(outcome, files)
    return 1 if outcome.failed else 0


def _print_finding(part: str, finding: Finding) -> None:
    if isinstance(finding, Row):
        text = f"{finding.name}: {finding.ratio:.2f} times {finding.peer}"
    elif isinstance(finding, Growth):
        text = f"{finding.curve}, over {finding.over}: measured {finding.way}"
    else:
        text = str(finding)
    print(f"{part}: {text}", file=sys.stderr, flush=True)


def _print_outcome(outcome: Outcome, files: list[Path]) -> None:
    for table in tables_of(outcome):
        print(f"{table.to_text()}\n")
    print(f"{METHOD}\n")
    for peer in outcome.missing:
        print(peer)
    print(
        "\n".join(["Where we lose:", *outcome.shortfalls])
        if outcome.shortfalls
        else "No peer is better in these tables."
    )
    print(f"\nWritten: {', '.join(map(str, files))}")


# ---- comparing -------------------------------------------------------------------------------------------------------


def _compare(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description="Compare our own times and memory in two result files, row by row. The exit code is 1 if a row is "
        "worse by more than the tolerance.",
    )
    parser.add_argument("old", metavar="OLD.json", type=Path)
    parser.add_argument("new", metavar="NEW.json", type=Path)
    parser.add_argument(
        "--tolerance", metavar="X", type=float, default=TOLERANCE, help="a fraction (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if not options.tolerance >= 0:
        raise ArgumentError(f"--tolerance must be at least 0, got {options.tolerance}")
    old, new = read_results(options.old), read_results(options.new)
    if old.get("quick") or new.get("quick"):
        raise ArgumentError("a quick run says nothing about speed; compare full runs")
    changes, unmatched = compare_results(old, new)
    print(comparison_table(changes, options.tolerance).to_text())
    if unmatched:
        print("\nIn one of the files only:\n" + "\n".join(unmatched))
    worse = [change for change in changes if change.is_worse(options.tolerance)]
    print(f"\n{len(worse)} of {len(changes)} rows are worse by more than {100 * options.tolerance:g} %.")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
