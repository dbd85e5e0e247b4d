"""Findings as files: bench.json, bench.md, bench.svg and bench.html."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.comparison import is_installed
from benchmarks.runner import Outcome
from benchmarks.tables import METHOD, tables_of

__all__ = ["markdown", "write_outcome"]


def write_outcome(outcome: Outcome, folder: Path) -> list[Path]:
    """Write the files and return their paths; the charts only where altair is installed."""
    with_chart = is_installed("altair") and is_installed("vl_convert")
    texts = {"bench.json": json.dumps(outcome.to_dict(), indent=1) + "\n", "bench.md": markdown(outcome, with_chart)}
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, text in texts.items():
        files.append(folder / name)
        files[-1].write_text(text, encoding="utf-8")
    if with_chart:
        from benchmarks.chart import bench_chart
        from rankbound.report.figures.saving import save_chart

        chart = bench_chart(outcome)
        files += [save_chart(chart, folder / f"bench{suffix}") for suffix in (".svg", ".html")]
    return files


def markdown(outcome: Outcome, with_chart: bool = False) -> str:
    """Return the page: machine and versions, the chart if there is one, where we lose, and all tables."""
    machine, versions = outcome.machine, outcome.versions
    lines = [
        "# Speed and memory against peers",
        "",
        f"{machine['system']} on {machine['processor']}, {machine['cores']} cores, Python {machine['python']}; "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + ".",
        METHOD,
        "",
    ]
    if with_chart:
        lines += ["![Ratios and growth](bench.svg)", "", "[The chart at full size](bench.svg)", ""]
    if outcome.quick:
        lines += ["A quick run: the sizes are too small to say anything about speed.", ""]
    lines += ["## Where we lose", ""]
    lines += [f"- {text}" for text in outcome.shortfalls] or ["Nowhere in these tables."]
    lines += ["", *(f"{peer}." for peer in outcome.missing), "", "## Tables", ""]
    return "\n".join(lines) + "\n" + "\n".join(table.to_markdown() for table in tables_of(outcome))
