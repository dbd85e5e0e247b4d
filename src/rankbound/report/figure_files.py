"""Writes every figure to a file, with a list of those that could not be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankbound.io import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from rankbound.report.figures import FigureOutcome

__all__ = ["write_figures"]

_INDEX = "figures.md"


def write_figures(figures: Mapping[str, FigureOutcome], folder: str | PathLike[str]) -> list[Path]:
    """Write each figure as .svg and as interactive .html; figures.md lists them and says why others are missing."""
    from rankbound.report.figures import save_chart

    lines, files = ["# Figures", ""], []
    for outcome in figures.values():
        if outcome.chart is None:
            continue
        files += [save_chart(outcome.chart, Path(folder) / f"{outcome.name}{suffix}") for suffix in (".svg", ".html")]
        lines.append(f"- [{outcome.title}]({outcome.name}.svg) ([interactive]({outcome.name}.html)): {outcome.caption}")
    missing = [outcome for outcome in figures.values() if outcome.chart is None]
    if missing:
        lines += ["", "Not drawn:", "", *(f"- {outcome.title}: {outcome.reason}" for outcome in missing)]
    files.append(Path(folder) / _INDEX)
    with atomic_write(files[-1]) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files
