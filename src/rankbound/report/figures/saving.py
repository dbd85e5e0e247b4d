"""Saves charts in the format of the file's suffix, without network access."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

from rankbound.errors import ArgumentError
from rankbound.io import atomic_write
from rankbound.report.figures.theme import Chart, Specification, alt, apply_theme

SUFFIXES = (".html", ".svg", ".png", ".pdf", ".json")
_FOLLOW_SCREEN = (
    "<style>:root { color-scheme: light dark }</style>"  # text and background follow the reader's preference
)
_MARK = "\ufdd0"  # replaces "<", which vl-convert does not escape, while it makes a page; no text contains it
_PIXELS = 2.0  # pixels of a PNG per point, enough for print at column width


def save_chart(chart: Chart, path: str | PathLike[str]) -> Path:
    """Write a chart as .html (interactive, one self-contained file), .svg, .png, .pdf or .json (Vega-Lite).

    SVG and HTML have no background and take the color of the surrounding text; PNG and PDF have a white background.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ArgumentError(f"a chart is saved as {', '.join(SUFFIXES)}, got {path.name!r}")
    content = _content(apply_theme(chart), suffix)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return path


def chart_svg(specification: Specification, *, inline: bool = False) -> str:
    """A Vega-Lite specification as SVG.

    An image of its own has dark or light text as the reader prefers; ``inline`` in a page, it has the page's color.
    """
    import vl_convert

    svg = str(vl_convert.vegalite_to_svg(specification, vl_version=_vegalite_version()))
    return svg if inline else adaptive(svg)


def _vegalite_version() -> str:
    return ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def _content(specification: Specification, suffix: str) -> bytes:
    import vl_convert

    version = _vegalite_version()
    if suffix == ".json":
        return json.dumps(specification, indent=1).encode()
    if suffix == ".svg":
        return chart_svg(specification).encode()
    if suffix == ".html":
        marked = json.loads(json.dumps(specification).replace("<", _MARK))
        page = str(vl_convert.vegalite_to_html(marked, vl_version=version, bundle=True, renderer="svg"))
        page = page.replace("<head>", f"<head>{_FOLLOW_SCREEN}", 1)
        return page.replace(_MARK, "\\u003c").encode()  # a "</script>" in a name would end the script element
    white = specification | {"background": "white"}
    if suffix == ".png":
        return bytes(vl_convert.vegalite_to_png(white, vl_version=version, scale=_PIXELS))
    return bytes(vl_convert.vegalite_to_pdf(white, vl_version=version))


def adaptive(svg: str) -> str:
    """Make the text light where the reader prefers dark, also inside an <img> element."""
    style = "<style>@media (prefers-color-scheme: dark) { .rankbound-figure { color: #e6e6e6 } }</style>"
    svg = svg.replace('class="marks"', 'class="marks rankbound-figure"', 1)
    opening = svg.index(">", svg.index("<svg")) + 1
    return svg[:opening] + style + svg[opening:]
