"""Figures of studies: drawing those that the tables of a study allow, and writing them to files."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from rankbound.errors import ArgumentError
from rankbound.packages import DRAWING, check_packages, find_missing
from rankbound.report.figures.drawing import Tables, draw_figures

if TYPE_CHECKING:
    from rankbound.report.figures.drawing import FigureOutcome

_LARGEST_SVG = 400_000  # bytes


def check_figure_names(names: Sequence[str]) -> None:
    """Raise ArgumentError for the name of a figure that does not exist, or where the packages that draw are missing."""
    check_packages("a study with figures", *DRAWING)
    from rankbound.studies.figures.catalog import FIGURES

    for at, name in enumerate(names):
        if name not in FIGURES:
            raise ArgumentError(f"figures[{at}]: must be one of {', '.join(FIGURES)}, got {name!r}")


def draw_study_figures(tables: Tables, names: Sequence[str] | None = None) -> dict[str, FigureOutcome]:
    """The figures of a study, all or those of these names; none where altair is missing or there are no scores."""
    if find_missing(*DRAWING) or tables.scores is None or tables.scores.is_empty():
        return {}
    from rankbound.studies.figures.catalog import FIGURES

    return draw_figures(tables, FIGURES if names is None else {name: FIGURES[name] for name in names})


def write_study_figures(study: str, names: Sequence[str], folder: str | PathLike[str], tables: Tables) -> list[Path]:
    """Write the figures of these names that the tables allow, as STUDY--FIGURE.svg.

    A figure with thousands of points, whose SVG file would be large, is written as .png.
    """
    from rankbound.report.figures.saving import save_chart

    files = []
    for outcome in draw_study_figures(tables, names).values():
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
