"""Plot: a chart that a notebook shows without network access."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.packages import DRAWING, check_packages

if TYPE_CHECKING:
    from rankbound.report.figures.theme import Chart, Specification

# descriptions of every axis and mark, half of the size of a chart; the title describes the image as a whole
_WORDS = re.compile(r' (?:aria-[a-z]+|role)="[^"]*"')


def check_can_plot() -> None:
    """Raise MissingPackageError where altair or vl-convert is missing."""
    check_packages("plot", *DRAWING)


@dataclass(frozen=True, eq=False, repr=False)
class Plot:
    """The result of a method ``plot``: ``chart`` is the Altair chart, which can be changed and combined further.

    A notebook shows the chart as SVG inside the page, in the color of its text, or from the Vega-Lite specification
    where it can draw one itself. Neither loads anything from a network.

    >>> from rankbound import bounds
    >>> plot = bounds("AP", n=3, relevant=2).plot()
    >>> plot, sorted(plot._repr_mimebundle_())[1:]
    (Plot('Bounds of a query'), ['image/svg+xml', 'text/html', 'text/plain'])
    """

    chart: Chart
    title: str

    @cached_property
    def specification(self) -> Specification:
        """The Vega-Lite specification with the theme of rankbound."""
        from rankbound.report.figures.theme import apply_theme

        return apply_theme(self.chart)

    @cached_property
    def _svg(self) -> str:
        from rankbound.report.figures.saving import chart_svg

        return _WORDS.sub("", chart_svg(self.specification, inline=True))

    def to_svg(self) -> str:
        """The chart as an SVG image, with dark or light text as the reader's screen prefers."""
        from rankbound.report.figures.saving import adaptive

        return adaptive(self._svg)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the chart as .html (interactive, one self-contained file), .svg, .png, .pdf or .json (Vega-Lite)."""
        from rankbound.report.figures.saving import save_chart

        return save_chart(self.chart, path)

    def _repr_html_(self) -> str:
        label = html.escape(self.title, quote=True)
        return f'<div class="rankbound-plot" role="img" aria-label="{label}" style="overflow-x:auto">{self._svg}</div>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:  # noqa: ARG002
        version = self.specification["$schema"].rpartition("/v")[2].partition(".")[0]
        return {
            f"application/vnd.vegalite.v{version}+json": self.specification,
            "image/svg+xml": self.to_svg(),
            "text/html": self._repr_html_(),
            "text/plain": repr(self),
        }

    def __repr__(self) -> str:
        return f"Plot({self.title!r})"
