"""Figures: one function per figure from a table to an altair chart, and all of them from a store's tables."""

from rankbound.report.figures.catalog import FIGURES, Figure
from rankbound.report.figures.drawing import FigureOutcome, all_figures
from rankbound.report.figures.saving import save_chart
from rankbound.report.figures.theme import themed

__all__ = ["FIGURES", "Figure", "FigureOutcome", "all_figures", "save_chart", "themed"]
