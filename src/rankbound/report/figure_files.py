"""Writes figures to files: all of them with a list of those that could not be drawn, or those of a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankbound.errors import ArgumentError
from rankbound.io import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    import polars as pl

    from rankbound.report.figures import FigureOutcome

__all__ = ["check_figure_names", "write_figures", "write_study_figures"]

_INDEX = "figures.md"
_LARGEST_SVG = 400_000  # bytes


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


def check_figure_names(names: Sequence[str]) -> None:
    """Raise ArgumentError for the name of a figure that does not exist, or where the packages that draw are missing."""
    try:
        from rankbound.report.figures import FIGURES
    except ImportError:
        raise ArgumentError("the figures of a study need altair and vl-convert; install rankbound[report]") from None
    for at, name in enumerate(names):
        if name not in FIGURES:
            raise ArgumentError(f"figures[{at}]: must be one of {', '.join(FIGURES)}, got {name!r}")


def write_study_figures(
    study: str, names: Sequence[str], folder: str | PathLike[str], *tables: pl.DataFrame | None
) -> list[Path]:
    """Write the figures of these names that the tables (see `all_figures`) allow, as STUDY--FIGURE.svg.

    A figure with thousands of points, whose SVG file would be large, is written as .png.
    """
    from rankbound.report.figures import all_figures, save_chart

    scores, *others = tables
    if scores is None or scores.is_empty():
        return []
    files = []
    for outcome in all_figures(scores, *others, names=names).values():
        if outcome.chart is None:
            continue
        drawing, picture = (Path(folder) / f"{study}--{outcome.name}{suffix}" for suffix in (".svg", ".png"))
        save_chart(outcome.chart, drawing)
        is_large = drawing.stat().st_size > _LARGEST_SVG
        if is_large:
            save_chart(outcome.chart, picture)
        (drawing if is_large else picture).unlink(missing_ok=True)
        files.append(picture if is_large else drawing)
    return files
