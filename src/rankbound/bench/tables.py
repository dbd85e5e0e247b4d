"""What was found as tables: rows against peers, and growth, of each part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from rankbound.bench.records import Growth, Row
from rankbound.bench.running import Outcome
from rankbound.report.tables import Cell, Table

__all__ = ["METHOD", "show_amount", "tables_of"]

METHOD = (
    "Contestants take turns on the same input, and the best run of each counts, by the smaller of wall-clock and "
    "processor time; first runs, which compile, do not. "
    "Exponent: the b of amount = a size^b, by least squares on logarithms over the upper half of the sizes. Memory: by "
    "how much the resident set of a process of its own rises above what it was with the input ready, one thread."
)


def tables_of(outcome: Outcome) -> Iterator[Table]:
    """Two tables for each part, as far as there is something to say."""
    for part, rows in outcome.rows.items():
        if rows:
            yield _rows_table(part, rows, f"Input: {outcome.inputs[part]}.")
        if outcome.growth[part]:
            yield _growth_table(part, outcome.growth[part])


def show_amount(value: float, unit: str) -> str:
    """Seconds or megabytes, with as many digits as one reads.

    >>> show_amount(2.5, "s"), show_amount(0.0123, "s"), show_amount(4.2e-5, "s"), show_amount(101.45, "MB")
    ('2.50 s', '12.3 ms', '42 us', '101.5 MB')
    """
    if unit == "MB":
        return f"{value:.1f} MB"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"


def _rows_table(part: str, rows: Sequence[Row], note: str) -> Table:
    columns = ("what", "peer", "rankbound", "peer takes", "times better", "asked for", "verdict", "values differ by")
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
    return _table(f"{part}-rows", f"{part}: against peers", columns, cells, note)


def _verdict(row: Row) -> str:
    if row.differs:
        return "VALUES DIFFER"
    if row.missed:
        return "MISSED"
    return "slower" if row.lost else "ok" if row.bar is not None else ""


def _growth_table(part: str, found: Sequence[Growth]) -> Table:
    columns = ("what", "over", "who", "sizes", "longest time", "its exponent", "most memory", "exponent of memory")
    cells = [
        (
            one.curve,
            one.over,
            one.way,
            f"{one.sizes[0]:,} to {one.sizes[-1]:,}",
            show_amount(one.seconds[-1], "s"),
            _exponent(one.time_exponent),
            "–" if one.megabytes is None else show_amount(one.megabytes[-1], "MB"),
            _exponent(one.memory_exponent),
        )
        for one in found
    ]
    return _table(f"{part}-growth", f"{part}: growth", columns, cells, "", text_columns=4)


def _exponent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _table(
    name: str, title: str, columns: tuple[str, ...], cells: Sequence[tuple[str, ...]], note: str, text_columns: int = 2
) -> Table:
    rows = tuple(tuple(map(Cell, line)) for line in cells)
    return Table(
        name, title, columns, text_columns, rows, note, pl.DataFrame(cells, schema=list(columns), orient="row")
    )
