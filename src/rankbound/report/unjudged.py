"""What unjudged documents leave open, for tables, pages and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rankbound.report.numbers import show_interval
from rankbound.report.tables import Table

if TYPE_CHECKING:
    import polars as pl

    from rankbound.evaluation.unjudged import Decision


def decisions_table(decisions: Sequence[Decision]) -> Table:
    """A row per measure and pair: the range of the difference, and what it says about order and significance."""
    rows = [
        [
            row.measure,
            f"{row.run} − {row.baseline}",
            show_interval(row.low, row.high, sign=True),
            "decided" if row.is_decided else "open",
            f"{row.decided_queries} of {row.queries}",
            row.significance,
            ", ".join(f"{document.docid} ({document.qid})" for document in row.documents[:2]) or "–",
        ]
        for row in decisions
    ]
    bounds = "" if all(row.is_exact for row in decisions) else ", or bounds of them for measures such as AP and RR"
    note = (
        f"difference: its smallest and largest value over all labels of documents without a judgment{bounds}; queries "
        "decided: those with the same order whatever the labels are"
    )
    columns = ("measure", "run", "difference", "order", "queries decided", "significance", "depends most on")
    title = "Whatever the unjudged documents are"
    return replace(Table.of_texts(title, columns, rows, text_columns=2, notes=[note]), name="decisions")


def ranges_of_means(ranges: Mapping[str, Mapping[str, tuple[float, float]]]) -> pl.DataFrame:
    """Ranges by system and measure as a table: system, measure, label_low, label_high."""
    import polars as pl

    rows = [(system, measure, *ends) for system, of in ranges.items() for measure, ends in of.items()]
    texts, numbers = dict.fromkeys(("system", "measure"), pl.String), ("label_low", "label_high")
    return pl.DataFrame(rows, schema={**texts, **dict.fromkeys(numbers, pl.Float64)}, orient="row")
