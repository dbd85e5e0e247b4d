"""Findings as tables, in the terminal and in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.records import Growth, Row
from benchmarks.runner import Outcome

__all__ = ["METHOD", "TextTable", "show_amount", "tables_of"]

METHOD = (
    "Implementations take turns on the same input, and the best run of each counts, by wall-clock time; first runs, "
    "which compile, do not count. "
    "Exponent: the b of amount = a size^b, by least squares on logarithms over the upper half of the sizes. Memory: "
    "growth of the resident set of a separate process above its size with the input ready, one thread."
)


@dataclass(frozen=True)
class TextTable:
    """Texts in rows and columns; the first ``text_columns`` are flush left, the numbers after them flush right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    text_columns: int = 2

    def to_markdown(self) -> str:
        """Return a pipe table with its title above and its note below."""
        alignment = ["---"] * self.text_columns + ["---:"] * (len(self.columns) - self.text_columns)
        lines = [list(map(_escape, self.columns)), alignment, *(list(map(_escape, row)) for row in self.rows)]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"**{_escape(self.title)}**\n\n{body}\n" + (f"\n{_escape(self.note)}\n" if self.note else "")

    def to_text(self) -> str:
        """Return the table for a terminal."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[index]) for line in lines) for index in range(len(self.columns))]

        def show(line: Sequence[str]) -> str:
            left = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            right = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            cells = [*list(left)[: self.text_columns], *list(right)[self.text_columns :]]
            return "  ".join(cells).rstrip()

        rule = "  ".join("-" * width for width in widths)
        note = [self.note] if self.note else []
        return "\n".join([self.title, "", show(self.columns), rule, *map(show, self.rows), *note])


def tables_of(outcome: Outcome) -> Iterator[TextTable]:
    """Yield up to two tables per part: rows against peers, and growth."""
    for part, rows in outcome.rows.items():
        if rows:
            yield _rows_table(part, rows, f"Input: {outcome.inputs[part]}.")
        if outcome.growth[part]:
            yield _growth_table(part, outcome.growth[part])


def show_amount(value: float, unit: str) -> str:
    """Format seconds or megabytes with a readable number of digits.

    >>> show_amount(2.5, "s"), show_amount(0.0123, "s"), show_amount(4.2e-5, "s"), show_amount(101.45, "MB")
    ('2.50 s', '12.3 ms', '42 us', '101.5 MB')
    """
    if unit == "MB":
        return f"{value:.1f} MB"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"


def _rows_table(part: str, rows: Sequence[Row], note: str) -> TextTable:
    columns = ("benchmark", "peer", "rankbound", "peer takes", "ratio", "bar", "verdict", "values differ by")
    cells = [
        (
            f"{row.name} ({row.note})" if row.note else row.name,
            row.peer,
            show_amount(row.ours, row.unit),
            show_amount(row.theirs, row.unit),
            f"{row.ratio:.2f}",
            "" if row.bar is None else f"{row.bar:.2f}",
            _verdict(row),
            "" if row.difference is None else f"{row.difference:.0e}",
        )
        for row in rows
    ]
    return TextTable(f"{part}: against peers", columns, tuple(cells), note)


def _verdict(row: Row) -> str:
    if row.differs:
        return "VALUES DIFFER"
    if row.missed:
        return "MISSED"
    return "slower" if row.lost else "ok" if row.bar is not None else ""


def _growth_table(part: str, lines: Sequence[Growth]) -> TextTable:
    columns = (
        "benchmark",
        "over",
        "library",
        "sizes",
        "longest time",
        "time exponent",
        "most memory",
        "memory exponent",
    )
    cells = [
        (
            line.curve,
            line.over,
            line.way,
            f"{line.sizes[0]:,} to {line.sizes[-1]:,}",
            show_amount(line.seconds[-1], "s"),
            _exponent(line.time_exponent),
            "–" if line.megabytes is None else show_amount(line.megabytes[-1], "MB"),
            _exponent(line.memory_exponent),
        )
        for line in lines
    ]
    return TextTable(f"{part}: growth", columns, tuple(cells), text_columns=4)


def _exponent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)
