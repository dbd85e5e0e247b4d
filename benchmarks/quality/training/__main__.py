"""The command line: ``run`` computes records, ``report`` compares them; see the package."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.quality.training.methods import METHODS, chosen_methods
from benchmarks.quality.training.protocols import PROTOCOLS
from benchmarks.quality.training.report import write_report
from benchmarks.quality.training.runner import SEEDS, all_jobs, outdated, run, trainings
from benchmarks.quality.training.sets import ROLES, SETS, chosen_sets
from benchmarks.quality.training.store import Job, Store
from rankbound.errors import RankboundError

REPOSITORY = Path(__file__).resolve().parents[3]


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return 1 if a record failed, 2 if the arguments or the data are wrong."""
    options = _parser().parse_args(arguments)
    store = Store(options.store)
    try:
        if store.folder.resolve().is_relative_to(REPOSITORY):
            raise RankboundError(f"store must be a folder outside the repository, got {options.store}")
        jobs = all_jobs(
            chosen_sets(options.sets), chosen_methods(options.methods), options.protocols, options.seeds, options.folds
        )
        return _report(jobs, store, options) if options.command == "report" else _run(jobs, store, options)
    except RankboundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(jobs: list[Job], store: Store, options: argparse.Namespace) -> int:
    old = outdated(jobs, store, options.rounds)
    missing = [job for job in jobs if not store.has(job)]
    if old:
        what = "computed again" if options.refresh else "kept; --refresh computes them again"
        print(f"{len(old)} records are of another definition of the method or its settings: {what}", file=sys.stderr)
    todo = sorted({*missing, *old}, key=jobs.index) if options.refresh else missing
    print(f"{len(jobs) - len(todo)} of {len(jobs)} records are finished, {len(todo)} to compute", file=sys.stderr)
    if options.dry_run:
        _print_plan(todo)
        return 0
    failures = run(todo, store, options.workers, options.rounds, options.refresh)
    for failure in failures[:3]:
        print(f"\n{failure.job}\n{failure.error}", file=sys.stderr)
    if failures:
        print(f"{len(failures)} of {len(todo)} records failed", file=sys.stderr)
    return bool(failures)


def _print_plan(jobs: list[Job]) -> None:
    counts = Counter[tuple[str, str]]()
    for job in jobs:
        counts[job.method, job.dataset] += trainings(job)
    sets = [name for name in SETS if any(job.dataset == name for job in jobs)]
    table = Table("trainings", *sets, "sum")
    for method in (name for name in METHODS if any(job.method == name for job in jobs)):
        row = [counts[method, dataset] for dataset in sets]
        table.add_row(method, *map(str, row), str(sum(row)))
    table.add_row("sum", *(str(sum(counts[m, s] for m in METHODS)) for s in sets), str(counts.total()))
    _console().print(table)


def _report(jobs: list[Job], store: Store, options: argparse.Namespace) -> int:
    records = store.read_all(jobs)
    if not records:
        raise RankboundError(f"store must hold records of these sets and methods, got none in {options.store}")
    old = outdated(records, store)
    if old:
        print(f"{len(old)} records are of another definition of the method or its settings", file=sys.stderr)
    write_report(records, options.output, jobs, _console(), options.name)
    return 0


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 180)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.training", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--store", required=True, help="folder of the records, outside the repository")
    common.add_argument(
        "--sets", nargs="+", default=[], metavar="SET", help=f"{', '.join((*ROLES, *SETS))}; default: all"
    )
    common.add_argument(
        "--methods", nargs="+", default=[], metavar="METHOD", help=f"{'; '.join(METHODS)}; default: all"
    )
    common.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS))
    common.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    common.add_argument("--folds", type=_positive, help="only the first folds of each set")
    command = commands.add_parser("run", parents=[common], help="compute the records that the store does not have")
    command.add_argument("--workers", type=_positive, default=2, help="processes of one thread each; default: 2")
    command.add_argument("--rounds", type=_positive, help="most rounds of a training, to try the program")
    command.add_argument("--refresh", action="store_true", help="also compute records of another definition again")
    command.add_argument("--dry-run", action="store_true", help="print the number of trainings and stop")
    command = commands.add_parser("report", parents=[common], help="compare the methods")
    command.add_argument("-o", "--output", type=Path, required=True, help="folder for the CSV files and the page")
    command.add_argument("--name", default="training", help="name of the files, without ending; default: training")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
