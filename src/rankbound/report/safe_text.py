"""Texts that come from files, made safe for terminals and spreadsheets, and long names made short."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

# C0 and C1 controls except the line feed, marks of direction, separators of lines, lone surrogates, what XML forbids
_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_FORMULA = r"^[=+\-@\t\r]"  # what Excel, LibreOffice and Google Sheets take for the beginning of a formula
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def escape_controls(text: str) -> str:
    r"""The text with control characters, such as the beginning of a terminal's escape sequence, written out.

    >>> print(escape_controls("a\x1b[31mb\u202e"))
    a\x1b[31mb\u202e
    """
    return _CONTROLS.sub(lambda found: repr(found.group())[1:-1], text)


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with an apostrophe before texts, in cells and column names, that a spreadsheet would run as a formula.

    The Open Worldwide Application Security Project (OWASP) recommends this against CSV injection. Texts that are
    numbers, such as -1, stay as they are.

    >>> import polars as pl
    >>> without_formulas(pl.DataFrame({"qid": ["=1+1", "-1", "a=b"]}))["qid"].to_list()
    ["'=1+1", '-1', 'a=b']
    """
    import polars as pl

    text = pl.selectors.string()
    runs = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    safe = frame.with_columns(pl.when(runs).then(pl.lit("'") + text).otherwise(text).name.keep())
    return safe.rename({name: f"'{name}" for name in frame.columns if re.match(_FORMULA, name)})


def shorten(text: str, longest: int) -> str:
    """The text cut in the middle, so that names with a common beginning differ at their ends.

    >>> shorten("experiment-2024-bm25-stemmed-07", 16)
    'experim…emmed-07'
    """
    if len(text) <= longest:
        return text
    left = (longest - 1) // 2
    return f"{text[:left]}…{text[len(text) - (longest - 1 - left) :]}"
