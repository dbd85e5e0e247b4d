"""What figures have in common: panels in rows and columns, titled axes, tooltips, highlighting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from rankbound.analysis.score_tables import place
from rankbound.report.figures.theme import PALETTE, alt

__all__ = ["color", "grid", "highlight", "order_of", "placed", "tips"]

_NUMBER = ".4~f"
_DIGITS = 6  # more than any screen or sheet can show, half of what JSON would hold


def placed(table: pl.DataFrame) -> pl.DataFrame:
    """The table with data set and variant as one label, ``place``; both stay, so that pages can filter by them."""
    return table.with_columns(place())


def order_of(table: pl.DataFrame, column: str) -> list[Any]:
    """Values of a column as they first appear: the order of panels and legends."""
    return list(table[column].unique(maintain_order=True))


def tips(**titles: str) -> list[Any]:
    """Tooltips: column -> title, with the numbers' digits cut. A title that ends in " #" is of whole numbers."""
    found = []
    for field, title in titles.items():
        if title.endswith(" #"):
            found.append(alt.Tooltip(f"{field}:Q", title=title[:-2], format=",d"))
        elif title.endswith(" *"):
            found.append(alt.Tooltip(f"{field}:N", title=title[:-2]))
        else:
            found.append(alt.Tooltip(f"{field}:Q", title=title, format=_NUMBER))
    return found


def color(table: pl.DataFrame, column: str, title: str | None) -> Any:
    """Color by a column of names, each with its place in the palette, in order of appearance."""
    names = order_of(table, column)
    scale = alt.Scale(domain=names, range=[PALETTE[i % len(PALETTE)] for i in range(len(names))])
    return alt.Color(f"{column}:N", title=title, sort=names, scale=scale)


def highlight(column: str) -> tuple[Any, Any]:
    """A selection by clicking the legend of a column, and the opacity that fades everything else."""
    chosen = alt.selection_point(fields=[column], bind="legend")
    return chosen, alt.condition(chosen, alt.value(1.0), alt.value(0.12))


def grid(
    layers: Sequence[Any],
    table: pl.DataFrame,
    *,
    row: str | None = None,
    column: str | None = None,
    wrap: int = 3,
    size: tuple[int, int] = (190, 140),
    independent: Sequence[str] = (),
) -> Any:
    """Layers in panels: rows and columns by two columns of the table, or by one of them, ``wrap`` panels in a line.

    Layers without data of their own draw the panel's rows. ``independent`` names the axes ("x", "y") that are each
    panel's own.
    """
    table = table.with_columns(pl.col(pl.Float64).round_sig_figs(_DIGITS))
    chart = alt.layer(*layers).properties(width=size[0], height=size[1])
    if row is not None and column is not None:
        chart = chart.facet(data=table, row=_header(alt.Row, table, row), column=_header(alt.Column, table, column))
    elif row is not None or column is not None:
        field = row or column or ""
        count = table[field].n_unique()
        line = _in_a_line(count, wrap)
        chart = chart.facet(facet=_header(alt.Facet, table, field), data=table, columns=line)
        if count % line:  # else the axes of the last line would stand below empty space
            chart = chart.resolve_axis(x="independent")
    else:
        chart = alt.layer(*layers, data=table).properties(width=size[0], height=size[1])
    return chart.resolve_scale(**dict.fromkeys(independent, "independent")) if independent else chart


def _in_a_line(panels: int, wrap: int) -> int:
    """Panels in a line: as many as fit, fewer where that leaves no gap (four stand two by two, not three and one)."""
    if panels <= wrap:
        return panels
    return next((line for line in range(wrap, 1, -1) if panels % line == 0), wrap)


def _header(kind: Any, table: pl.DataFrame, field: str) -> Any:
    return kind(f"{field}:N", title=None, sort=order_of(table, field))
