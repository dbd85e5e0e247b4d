"""Building blocks of figures: panels in rows and columns, titled axes, tooltips, highlighting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from rankbound.evaluation.score_tables import data_label
from rankbound.report.figures.theme import PALETTE, Chart, alt

_NUMBER = ".4~f"
_BOTH = "row and column"  # the title of a panel in a grid with gaps
_DIGITS = 6  # more than a screen or a printed page can show, half of what JSON would hold


def with_panel(table: pl.DataFrame) -> pl.DataFrame:
    """Add data set and variant as one label, ``panel``; both stay, so that pages can filter by them."""
    return table.with_columns(data_label().alias("panel"))


def mark(kind: str, data: Any = alt.Undefined, **style: Any) -> Chart:
    """A layer of marks, such as "bar" or "point", in a style; without ``data`` it draws the rows of its panel."""
    return alt.Chart(data, mark=alt.MarkDef(kind, **style))


def zero_line(axis: str) -> Chart:
    """A dashed line at zero of an axis, "x" or "y"."""
    line = mark("rule", alt.Data(values=[{"zero": 0}]), color="currentColor", strokeDash=[4, 3], opacity=0.6)
    return line.encode(**{axis: "zero:Q"})


def diagonal(ends: Sequence[float], scale: Any = alt.Undefined) -> Chart:
    """A dashed line on which both axes have the same value, from the first end to the last."""
    data = alt.Data(values=[{"at": float(end)} for end in ends])
    line = mark("line", data, color="currentColor", strokeWidth=1, strokeDash=[4, 3], opacity=0.5)
    return line.encode(x=alt.X("at:Q", scale=scale), y=alt.Y("at:Q", scale=scale))


def order_of(table: pl.DataFrame, column: str) -> list[Any]:
    """Values of a column as they first appear: the order of panels and legends."""
    return list(table[column].unique(maintain_order=True))


def tips(**titles: str) -> list[alt.Tooltip]:
    """Tooltips: column -> title. A title that ends in " #" is of an integer, one that ends in " *" of text."""
    tooltips = []
    for field, title in titles.items():
        if title.endswith(" #"):
            tooltips.append(alt.Tooltip(f"{field}:Q", title=title[:-2], format=",d"))
        elif title.endswith(" *"):
            tooltips.append(alt.Tooltip(f"{field}:N", title=title[:-2]))
        else:
            tooltips.append(alt.Tooltip(f"{field}:Q", title=title, format=_NUMBER))
    return tooltips


def color(table: pl.DataFrame, column: str, title: str | None) -> alt.Color:
    """Color by a column of names, each with its position in the palette, in order of appearance."""
    names = order_of(table, column)
    scale = alt.Scale(domain=names, range=[PALETTE[i % len(PALETTE)] for i in range(len(names))])
    return alt.Color(f"{column}:N", title=title, sort=names, scale=scale)


def highlight(column: str) -> tuple[alt.Parameter, Any]:
    """A selection by clicking the legend of a column, and the opacity that fades the rest."""
    selection = alt.selection_point(fields=[column], bind="legend")
    return selection, alt.condition(selection, alt.value(1.0), alt.value(0.12))


def grid(
    layers: Sequence[Chart],
    table: pl.DataFrame,
    *,
    row: str | None = None,
    column: str | None = None,
    wrap: int = 3,
    size: tuple[int, int] = (190, 140),
    independent: Sequence[str] = (),
) -> Chart:
    """Arrange layers in panels: rows and columns by two columns of the table, or one, with ``wrap`` panels per line.

    Rows that would make a single column of panels are wrapped too, and so are all panels if a row lacks one of the
    columns. Layers without data draw the panel's rows. ``independent`` names the axes ("x", "y") that differ by panel.
    """
    table = table.with_columns(pl.col(pl.Float64).round_sig_figs(_DIGITS))
    if row is not None and column is not None:
        if table[column].n_unique() == 1:
            column = None  # one column of panels would be long and narrow
        elif table.select(row, column).n_unique() < table[row].n_unique() * table[column].n_unique():
            # Vega-Lite leaves no gap in the grid: panels after a gap would stand below the title of another column
            table = table.with_columns(pl.concat_str(row, column, separator=" · ").alias(_BOTH))
            row, column = None, _BOTH
    chart = alt.layer(*layers).properties(width=size[0], height=size[1])
    if row is not None and column is not None:
        chart = chart.facet(data=table, row=_header(alt.Row, table, row), column=_header(alt.Column, table, column))
    elif row is not None or column is not None:
        field = row or column or ""
        count = table[field].n_unique()
        line = _panels_per_line(count, wrap)
        chart = chart.facet(facet=_header(alt.Facet, table, field), data=table, columns=line)
        if count % line:  # otherwise the axes of the last line would be below empty space
            chart = chart.resolve_axis(x="independent")
    else:
        chart = alt.layer(*layers, data=table).properties(width=size[0], height=size[1])
    return chart.resolve_scale(**dict.fromkeys(independent, "independent")) if independent else chart


def _panels_per_line(panels: int, wrap: int) -> int:
    """As many panels as fit, or fewer where that leaves no gap (four as two by two, not as three and one)."""
    if panels <= wrap:
        return panels
    return next((line for line in range(wrap, 1, -1) if panels % line == 0), wrap)


def _header(kind: Any, table: pl.DataFrame, field: str) -> Any:
    return kind(f"{field}:N", title=None, sort=order_of(table, field))
