"""The tables of the comparison: in the terminal, as CSV files and as a page of the documentation."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.quality.training.analysis import GROUPS, Comparison, Mean, Pooled, analyze
from benchmarks.quality.training.methods import METHODS
from benchmarks.quality.training.ndcg import MEASURE
from benchmarks.quality.training.protocols import PROTOCOLS
from benchmarks.quality.training.sets import ROLES, SETS
from benchmarks.quality.training.store import Job, Record
from rankbound.io import atomic_write

__all__ = ["write_report"]

COMPARISON_COLUMNS = (
    "protocol", "role", "set", "method", "reference", "queries", "records", "mean", "reference_mean", "difference",
    "ci_low", "ci_high", "p", "holm_p", "outcome", "interval_outcome",
)  # fmt: skip
POOLED_COLUMNS = (
    "protocol", "group", "sets", "method", "reference", "difference", "ci_low", "ci_high", "wins", "ties", "losses",
    "intervals_above_0", "intervals_with_0", "intervals_below_0",
)  # fmt: skip
METHOD_ORDER = {name: index for index, name in enumerate(METHODS)}


def write_report(
    records: dict[Job, Record], folder: Path, expected: Sequence[Job], console: Console, name: str = "training"
) -> None:
    """Write NAME.csv, NAME-pooled.csv and NAME.md to a folder, and print the differences."""
    means, comparisons, pooled = analyze(records)
    means.sort(key=lambda m: METHOD_ORDER[m.method])
    comparisons.sort(key=lambda c: (PROTOCOLS.index(c.protocol), [*SETS].index(c.dataset), METHOD_ORDER[c.method]))
    pooled.sort(key=lambda p: (PROTOCOLS.index(p.protocol), [*GROUPS].index(p.group), METHOD_ORDER[p.method]))
    _write_csv(
        folder / f"{name}.csv", COMPARISON_COLUMNS, [*map(_alone, _without_reference(means)), *map(_row, comparisons)]
    )
    _write_csv(folder / f"{name}-pooled.csv", POOLED_COLUMNS, map(_pooled_row, pooled))
    with atomic_write(folder / f"{name}.md") as temporary:
        temporary.write_text(_page(records, means, comparisons, pooled, expected), encoding="utf-8")
    console.print(_terminal_table(pooled))


# ---- CSV -------------------------------------------------------------------------------------------------------------


def _without_reference(means: Iterable[Mean]) -> list[Mean]:
    return [mean for mean in means if not METHODS[mean.method].references]


def _alone(mean: Mean) -> list[Any]:
    role = next(role for role, sets in ROLES.items() if mean.dataset in sets)
    row = [mean.protocol, role, mean.dataset, mean.method, "", mean.queries, mean.records, f"{mean.value:.6f}"]
    return row + [""] * (len(COMPARISON_COLUMNS) - len(row))


def _row(c: Comparison) -> list[Any]:
    numbers = [c.mean, c.reference_mean, c.difference, c.low, c.high]
    return [
        c.protocol, c.role, c.dataset, c.method, c.reference, c.queries, c.records,
        *(f"{number:.6f}" for number in numbers), f"{c.p:.4g}", f"{c.corrected_p:.4g}", c.outcome, c.interval_outcome,
    ]  # fmt: skip


def _pooled_row(p: Pooled) -> list[Any]:
    numbers = [f"{number:.6f}" for number in (p.difference, p.low, p.high)]
    return [p.protocol, p.group, p.sets, p.method, p.reference, *numbers, *p.outcomes, *p.interval_outcomes]


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


# ---- the page --------------------------------------------------------------------------------------------------------


def _page(
    records: dict[Job, Record],
    means: Sequence[Mean],
    comparisons: Sequence[Comparison],
    pooled: Sequence[Pooled],
    expected: Sequence[Job],
) -> str:
    seeds = ", ".join(map(str, sorted({job.seed for job in records})))
    lines = [
        "# Training methods compared",
        "",
        f"Values are {MEASURE} of the test queries, averaged over the seeds {seeds}. Intervals are 95 % bootstrap "
        "intervals of the paired difference over queries; p-values are corrected by Holm's method over the sets of a "
        "role. **Bold** differences are significant after the correction. A pooled difference is the mean of the means "
        "of the sets, and its interval a bootstrap within each set.",
        "",
        _versions(records),
        "",
        "| set | role | folds | what it is |",
        "| --- | --- | ---: | --- |",
    ]
    for role, sets in ROLES.items():
        lines += [f"| {name} | {role} | {SETS[name].folds} | {SETS[name].note} |" for name in sets]
    missing = len(expected) - len(records)
    if missing:
        lines += ["", f"{len(expected) - missing:,} of {len(expected):,} planned runs were completed:"]
        lines += ["", *_coverage(records)]
    for protocol in PROTOCOLS:
        if any(mean.protocol == protocol for mean in means):
            lines += ["", f"## Protocol: {protocol}", ""]
            lines += _means_table([mean for mean in means if mean.protocol == protocol])
            lines += ["", "### Differences", ""]
            lines += _differences_table([c for c in comparisons if c.protocol == protocol])
            lines += ["", "### Pooled differences", ""]
            lines += _pooled_table([p for p in pooled if p.protocol == protocol])
    return "\n".join(lines) + "\n"


def _coverage(records: dict[Job, Record]) -> list[str]:
    """Return a table of the sets and seeds of each method."""
    rows = []
    for method in sorted({job.method for job in records}, key=METHOD_ORDER.__getitem__):
        for protocol in PROTOCOLS:
            jobs = [job for job in records if (job.method, job.protocol) == (method, protocol)]
            if jobs:
                seeds = ", ".join(map(str, sorted({job.seed for job in jobs})))
                rows.append([method, protocol, str(len({job.dataset for job in jobs})), seeds])
    return _markdown(("method", "protocol", "sets", "seeds"), rows)


def _versions(records: dict[Job, Record]) -> str:
    used: dict[str, set[str]] = {}
    for record in records.values():
        for library, version in record.about.get("versions", {}).items():
            used.setdefault(library, set()).add(version)
    return "Versions: " + ", ".join(f"{library} {' and '.join(sorted(v))}" for library, v in used.items()) + "."


def _means_table(means: Sequence[Mean]) -> list[str]:
    sets = [name for name in SETS if any(mean.dataset == name for mean in means)]
    cells = {(mean.method, mean.dataset): f"{mean.value:.4f}" for mean in means}
    methods = [name for name in METHODS if any(mean.method == name for mean in means)]
    queries = {mean.dataset: mean.queries for mean in means}
    rows = [["queries", *(f"{queries[name]:,}" for name in sets)]]
    rows += [[method, *(cells.get((method, name), "") for name in sets)] for method in methods]
    return _markdown(["nDCG@10", *sets], rows)


def _differences_table(comparisons: Sequence[Comparison]) -> list[str]:
    sets = [name for name in SETS if any(c.dataset == name for c in comparisons)]
    cells = {(c.method, c.reference, c.dataset): _difference(c) for c in comparisons}
    pairs = list(dict.fromkeys(key[:2] for key in cells))
    pairs.sort(key=lambda pair: METHOD_ORDER[pair[0]])
    rows = [[*pair, *(cells.get((*pair, name), "") for name in sets)] for pair in pairs]
    return _markdown(["method", "minus", *sets], rows)


def _difference(c: Comparison) -> str:
    shown = f"{c.difference:+.4f}"
    return f"{f'**{shown}**' if c.outcome != 'tie' else shown} ({c.low:+.4f} to {c.high:+.4f})"


def _pooled_table(pooled: Sequence[Pooled]) -> list[str]:
    header = ["method", "minus", "sets", "difference", "wins/ties/losses, Holm", "intervals above/with/below 0"]
    return _markdown(header, [_pooled_cells(p) for p in pooled])


def _pooled_cells(p: Pooled) -> list[str]:
    return [
        p.method, p.reference, f"{p.sets} {p.group}", f"{p.difference:+.4f} ({p.low:+.4f} to {p.high:+.4f})",
        "/".join(map(str, p.outcomes)), "/".join(map(str, p.interval_outcomes)),
    ]  # fmt: skip


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


# ---- the terminal ----------------------------------------------------------------------------------------------------


def _terminal_table(pooled: Sequence[Pooled]) -> Table:
    table = Table("protocol", "method", "minus", "sets", "difference", "Holm w/t/l", "intervals w/t/l")
    for p in pooled:
        table.add_row(p.protocol, *_pooled_cells(p))
    return table
