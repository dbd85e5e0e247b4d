"""What was found as files: bench.json, bench.md, bench.svg and bench.html."""

from __future__ import annotations

import json
from pathlib import Path

from rankbound.bench.contest import is_installed
from rankbound.bench.running import Outcome
from rankbound.bench.tables import METHOD, tables_of
from rankbound.io import atomic_write

__all__ = ["markdown", "write_outcome"]


def write_outcome(outcome: Outcome, folder: Path) -> list[Path]:
    """Write the files; the charts only where altair is installed."""
    drawn = is_installed("altair") and is_installed("vl_convert")
    texts = {"bench.json": json.dumps(outcome.to_dict(), indent=1) + "\n", "bench.md": markdown(outcome, drawn)}
    files = []
    for name, text in texts.items():
        files.append(folder / name)
        with atomic_write(files[-1]) as temporary:
            temporary.write_text(text, encoding="utf-8")
    if drawn:
        from rankbound.bench.chart import bench_chart
        from rankbound.report.figures import save_chart

        chart = bench_chart(outcome)
        files += [save_chart(chart, folder / f"bench{suffix}") for suffix in (".svg", ".html")]
    return files


def markdown(outcome: Outcome, drawn: bool = False) -> str:
    """The tables, where we lose, and what they were made with; the chart, where one is drawn."""
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
    if drawn:
        lines += ["![Ratios and growth](bench.svg)", "", "[The chart by itself, to look closer](bench.svg)", ""]
    if outcome.quick:
        lines += ["A quick run: sizes are too small to say anything about speed.", ""]
    lines += ["## Where we lose", ""]
    lines += [f"- {text}" for text in outcome.shortfalls] or ["Nowhere in these tables."]
    lines += ["", *(f"{one}." for one in outcome.missing), "", "## Tables", ""]
    return "\n".join(lines) + "\n" + "\n".join(table.to_markdown() for table in tables_of(outcome))
