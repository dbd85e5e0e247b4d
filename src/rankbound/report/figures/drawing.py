"""What a figure is, and the drawing of all figures that tables allow, with the reason for each that they do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rankbound.errors import RankboundError
from rankbound.evaluation.score_tables import without_unmeasured
from rankbound.io import atomic_write
from rankbound.packages import DRAWING, find_missing

if TYPE_CHECKING:
    from os import PathLike

    import polars as pl

    from rankbound.report.figures.theme import Chart

Cases: TypeAlias = Mapping[str, tuple[object, ...]]

_INDEX = "figures.md"
_DESCRIPTIONS = {
    "scores": "score per query",
    "results": "table of results",
    "history": "history of training",
    "examples": "pair of images",
}


@dataclass(frozen=True, slots=True)
class Tables:
    """The data of figures: scores per query, results per setting, histories of training, pairs of images.

    ``label_ranges`` are those of means over unknown labels: system, measure, label_low, label_high.
    """

    scores: pl.DataFrame | None = None
    results: pl.DataFrame | None = None
    history: pl.DataFrame | None = None
    examples: pl.DataFrame | None = None
    label_ranges: pl.DataFrame | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: words, the names of the `Tables` it ``needs``, and two functions.

    ``compute`` takes the tables and returns the arguments of ``draw`` by case: "" where there is only one, the loss
    where there is a chart for each. ``limits`` says what is shown of large tables; it is the end of the caption.
    """

    title: str
    caption: str
    needs: tuple[str, ...]
    compute: Callable[[Tables], Cases]
    draw: Callable[..., Chart]
    limits: str = ""

    def charts(self, tables: Tables) -> dict[str, Chart]:
        """The charts by case."""
        return {case: self.draw(*arguments) for case, arguments in self.compute(tables).items()}


@dataclass(frozen=True, slots=True)
class FigureOutcome:
    """A chart drawn from the tables, or the reason why it could not be drawn.

    ``holds_for_any_data``: the chart depends on no table.
    """

    name: str
    title: str
    caption: str
    chart: Chart | None
    reason: str | None = None
    holds_for_any_data: bool = False


def draw_figures(tables: Tables, figures: Mapping[str, Figure] | None = None) -> dict[str, FigureOutcome]:
    """Draw the figures that the tables allow, by default those of `FIGURES`; none where altair is missing.

    A figure with several cases (one for each loss) has several outcomes. Their names are suitable for files:
    ``gain-by-activity-ndcg``.
    """
    if find_missing(*DRAWING):
        return {}
    from altair.utils.schemapi import debug_mode

    if figures is None:
        from rankbound.report.figures.catalog import FIGURES

        figures = FIGURES
    if tables.scores is not None:
        tables = replace(tables, scores=without_unmeasured(tables.scores))
    with debug_mode(False):  # validating every part of a chart takes seconds: the tests validate all figures
        drawn = [outcome for name, figure in figures.items() for outcome in _draw(name, figure, tables)]
    return {outcome.name: outcome for outcome in drawn}


def write_figures(figures: Mapping[str, FigureOutcome], folder: str | PathLike[str]) -> list[Path]:
    """Write each figure as .svg and as interactive .html; figures.md lists them and says why others are missing."""
    from rankbound.report.figures.saving import save_chart

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


def _draw(name: str, figure: Figure, tables: Tables) -> list[FigureOutcome]:
    caption = f"{figure.caption} {figure.limits}".rstrip()
    missing = [table for table in figure.needs if _is_empty(getattr(tables, table))]
    if missing:
        reason = f"there is no {' and no '.join(_DESCRIPTIONS[table] for table in missing)}"
        return [FigureOutcome(name, figure.title, caption, None, reason)]
    try:
        charts = figure.charts(tables)
    except RankboundError as error:
        return [FigureOutcome(name, figure.title, caption, None, str(error))]
    return [
        FigureOutcome(
            f"{name}-{_file_name(case)}" if case else name,
            f"{figure.title}: {case}" if case else figure.title,
            caption,
            chart,
            holds_for_any_data=not figure.needs,
        )
        for case, chart in charts.items()
    ]


def _is_empty(table: pl.DataFrame | None) -> bool:
    return table is None or table.is_empty()


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
