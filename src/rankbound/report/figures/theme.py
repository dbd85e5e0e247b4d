"""One theme for all figures: colors that color-blind readers can distinguish, and text in the color of the page.

Figures have no background, and axes, titles and legends are drawn in ``currentColor``: on a page they take the color of
its text, in light and dark, and in a file of their own they are black.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from rankbound.packages import needed_by

with needed_by("a figure"):
    import altair

from rankbound.report.safe_text import escape_controls

alt = altair  # figures take it from here: without it, the error names the extra

Chart: TypeAlias = altair.TopLevelMixin
Specification: TypeAlias = dict[str, Any]  # of a chart, in Vega-Lite

# Okabe and Ito's colors without black and yellow, which are invisible on dark and on white; then more mid-tones
PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8C8C8C",
    "#9467BD",
    "#A6761D",
    "#66A61E",
    "#B5446E",
    "#3B8EA5",
    "#C9A227",
    "#6B7F3A",
    "#9A8FE0",
)
BETTER, WORSE, NEUTRAL = "#0072B2", "#D55E00", "#8C8C8C"
SEQUENTIAL, DIVERGING = "blues", "blueorange"
LIMIT = 5000  # rows of data in one chart

# an expression of Vega: long names are cut in the middle, so that those with a common beginning differ at their ends
SHORT_LABEL = "length(datum.label) > 34 ? slice(datum.label, 0, 16) + '…' + slice(datum.label, -17) : datum.label"
_INK = "currentColor"
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"


def theme() -> Specification:
    """The Vega-Lite configuration of every figure."""
    return {
        "background": None,
        "font": _FONT,
        "padding": 6,
        "facet": {"spacing": 30},
        "view": {"stroke": None, "continuousWidth": 320, "continuousHeight": 220},
        "range": {"category": list(PALETTE), "heatmap": {"scheme": SEQUENTIAL}, "ramp": {"scheme": SEQUENTIAL}},
        "axis": {
            "labelColor": _INK,
            "titleColor": _INK,
            "domainColor": _INK,
            "tickColor": _INK,
            "gridColor": _INK,
            "gridOpacity": 0.12,
            "domainOpacity": 0.6,
            "tickOpacity": 0.6,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelLimit": 220,
            "labelFlush": False,
            "titlePadding": 8,
        },
        "axisQuantitative": {"tickCount": 5, "labelOverlap": "greedy", "labelSeparation": 4},
        "axisDiscrete": {"labelOverlap": False},
        "legend": {
            "labelColor": _INK,
            "titleColor": _INK,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelLimit": 260,
            "titleLimit": 260,
            "symbolOpacity": 1,
            "symbolStrokeWidth": 2.5,
        },
        "header": {
            "labelColor": _INK,
            "titleColor": _INK,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelLimit": 260,
        },
        "title": {"color": _INK, "subtitleColor": _INK, "fontSize": 13, "fontWeight": "normal", "anchor": "start"},
        "text": {"color": _INK, "fontSize": 11},
        "rule": {"color": _INK},
        "line": {"strokeWidth": 2},
        "point": {"size": 36, "filled": True},
        "bar": {"color": PALETTE[0]},
    }


def apply_theme(chart: Chart) -> Specification:
    """The chart as a Vega-Lite specification with the theme, ready to be embedded in a page or converted."""
    with alt.theme.enable("none"):
        specification: Specification = _printable(chart.to_dict(validate=False))  # the tests validate all figures
    return specification | {"config": _merge(theme(), specification.get("config", {}))}


def _printable(value: Any) -> Any:
    """The value with control characters and lone surrogates of its texts written out: no SVG may contain them."""
    if isinstance(value, str):
        return value if value.isprintable() else escape_controls(value)
    if isinstance(value, dict):
        return {_printable(key): _printable(entry) for key, entry in value.items()}
    return [_printable(entry) for entry in value] if isinstance(value, list) else value


def _merge(base: Specification, more: Specification) -> Specification:
    result = dict(base)
    for key, value in more.items():
        known = result.get(key)
        result[key] = _merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result
