"""Small tables in HTML that notebooks show in place of the text of an object.

A table takes its colors from the notebook, so that it is readable on light and dark backgrounds, and needs nothing but
itself. Every text goes through `_escaped`.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

__all__ = ["ROWS", "html_table", "remaining"]

ROWS = 20  # rows of one table; a note names how many there are in all
_LONGEST = 80  # characters of a cell; a longer text is cut

_STYLE = (
    ".rankbound-result{overflow-x:auto;margin:.3em 0;color:inherit}"
    ".rankbound-result table{border-collapse:collapse;margin:0;width:auto;color:inherit;font-size:.92em;"
    "font-variant-numeric:tabular-nums}"
    ".rankbound-result caption{caption-side:top;text-align:left;font-weight:600;padding:.2em 0 .4em;color:inherit}"
    ".rankbound-result th,.rankbound-result td{padding:.25em .9em .25em 0;text-align:right;white-space:nowrap;"
    "color:inherit;background:none;border:0}"
    ".rankbound-result .text{text-align:left;font-weight:400}"
    ".rankbound-result thead th,.rankbound-result thead th.text{font-weight:600;"
    "border-bottom:1px solid rgba(128,128,128,.6)}"
    ".rankbound-result tbody tr{background:none;border-bottom:1px solid rgba(128,128,128,.22)}"
    ".rankbound-result p{margin:.5em 0 0;font-size:.85em;opacity:.8;max-width:60em}"
)


def html_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    notes: Sequence[str] = (),
    text_columns: int = 1,
) -> str:
    """A table with its title above and its notes below; the first ``text_columns`` are aligned to the left.

    >>> "<td>0.5000</td>" in html_table("Means", ["measure", "mean"], [["AP", "0.5000"]])
    True
    >>> "&lt;b&gt;" in html_table("<b>", [], [])
    True
    """
    head = "".join(_cell("th", name, index < text_columns, ' scope="col"') for index, name in enumerate(columns))
    body = "".join(f"<tr>{_row(row, text_columns)}</tr>" for row in rows)
    below = "".join(f"<p>{_escaped(note)}</p>" for note in notes)
    return (
        f'<div class="rankbound-result"><style>{_STYLE}</style><table class="rankbound-table">'
        f"<caption>{_escaped(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
    )


def remaining(shown: int, total: int, rest: str) -> list[str]:
    """The note on rows that are not shown, if there are any; ``rest`` says where they are.

    >>> remaining(20, 50, "in per_query"), remaining(5, 5, "in per_query")
    (['The first 20 of 50 rows; all of them are in per_query.'], [])
    """
    return [f"The first {shown:,} of {total:,} rows; all of them are {rest}."] if total > shown else []


def _row(row: Sequence[str], text_columns: int) -> str:
    first = _cell("th", row[0], True, ' scope="row"') if text_columns else _cell("td", row[0], False, "")
    return first + "".join(_cell("td", text, index < text_columns, "") for index, text in enumerate(row[1:], start=1))


def _cell(element: str, text: str, is_text: bool, scope: str) -> str:
    kind = ' class="text"' if is_text else ""
    full = f' title="{_escaped(text)}"' if len(text) > _LONGEST else ""
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f"<{element}{scope}{kind}{full}>{_escaped(shown)}</{element}>"


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
