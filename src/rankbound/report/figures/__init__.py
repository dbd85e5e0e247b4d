"""Figures: one function per figure from a table to an Altair chart, and a function that draws all of them."""

from rankbound.report.figures.catalog import FIGURES, PAPERS, Figure
from rankbound.report.figures.drawing import FigureOutcome, all_figures
from rankbound.report.figures.saving import save_chart
from rankbound.report.figures.theme import themed

__all__ = ["FIGURES", "PAPERS", "Figure", "FigureOutcome", "all_figures", "save_chart", "themed"]
