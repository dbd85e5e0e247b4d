"""Draws all figures that the tables of a store allow, and gives the reason for each one that they do not."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from altair.utils.schemapi import debug_mode

from rankbound.analysis.score_tables import without_unmeasured
from rankbound.errors import RankboundError
from rankbound.report.figures.catalog import FIGURES, Figure
from rankbound.report.figures.recipes import Tables

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FigureOutcome", "all_figures"]


@dataclass(frozen=True, slots=True)
class FigureOutcome:
    """A chart drawn from the tables, or the reason why it could not be drawn."""

    name: str
    title: str
    caption: str
    chart: Any | None
    reason: str | None = None


def all_figures(
    scores: pl.DataFrame,
    results: pl.DataFrame | None = None,
    history: pl.DataFrame | None = None,
    examples: pl.DataFrame | None = None,
    *,
    names: Collection[str] = FIGURES.keys(),
) -> dict[str, FigureOutcome]:
    """Draw the figures that the tables allow, all or those of some ``names``.

    A figure with several cases (one for each loss) has several outcomes. Their names are suitable for files:
    ``gain-by-activity-ndcg``.
    """
    tables = Tables(without_unmeasured(scores), results, history, examples)
    with debug_mode(
        False
    ):  # no validation of every part of a chart, which takes seconds: the tests validate all figures
        drawn = [outcome for name in names for outcome in _draw(FIGURES[name], tables)]
    return {outcome.name: outcome for outcome in drawn}


def _draw(figure: Figure, tables: Tables) -> list[FigureOutcome]:
    missing = [name for name in figure.needs if _is_empty(getattr(tables, name))]
    if missing:
        reason = f"there is no {' and no '.join(_DESCRIPTIONS[name] for name in missing)}"
        return [FigureOutcome(figure.name, figure.title, figure.caption, None, reason)]
    try:
        charts = figure.draw(tables)
    except RankboundError as error:
        return [FigureOutcome(figure.name, figure.title, figure.caption, None, str(error))]
    return [
        FigureOutcome(
            f"{figure.name}-{_slug(case)}" if case else figure.name,
            f"{figure.title}: {case}" if case else figure.title,
            figure.caption,
            chart,
        )
        for case, chart in charts.items()
    ]


_DESCRIPTIONS = {
    "scores": "score per query",
    "results": "table of results",
    "history": "history of training",
    "examples": "pair of images",
}


def _is_empty(table: pl.DataFrame | None) -> bool:
    return table is None or table.is_empty()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
