"""The outcome of a gate in sentences and as Markdown, for a terminal and for the summary of a CI job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.display import plural
from rankbound.evaluation.gate import CANNOT_TELL, FAIL
from rankbound.report.numbers import show_interval, show_number
from rankbound.report.safe_text import escape_controls
from rankbound.report.tables import Table, escape_markdown

if TYPE_CHECKING:
    from rankbound.evaluation.gate import Gate, GateRow

COLUMNS = ("queries", "baseline", "new", "change", "limits", "outcome", "queries needed")
MOST_GROUPS = 10  # rows of a summary; --json has all


def gate_sentences(result: Gate) -> list[str]:
    """A sentence for each measure, and for each group that fails."""
    return [_sentence(row, result.margin) for row in result.rows] + [
        _sentence(row, result.margin) for row in result.groups if row.outcome == FAIL
    ]


def _sentence(row: GateRow, margin: float) -> str:
    where = row.measure if row.group is None else f"{row.measure} on {row.attribute} = {row.group}"
    change = f"{where}: {show_number(row.mean_baseline)} → {show_number(row.mean_run)}"
    rows = plural(row.queries, "query")
    if row.outcome == FAIL:
        loss = show_number(max(0.0, -row.upper if row.upper is not None else 0.0))
        return f"{change}: a loss is established on {rows} (at least {loss})."
    if row.outcome == CANNOT_TELL:
        if row.lower is None:
            return f"{change}: {rows}, too few for any test."
        needed = ""
        if row.queries_needed is not None:
            needed = f"; {row.queries_needed:,} queries would be needed to rule out a loss of {margin:g}"
        limits = show_interval(row.lower, row.upper, sign=True)
        return f"{change}: the change may be anything from {limits} on {rows}{needed}."
    least = show_number(row.lower, sign=True)
    return f"{change}: a loss of {margin:g} or more is ruled out on {rows} (the change is at least {least})."


def describe_limits(result: Gate) -> str:
    """What the limits are, for the foot of a table."""
    corrected = " after correction for all rows" if len(result.rows) + len(result.groups) > 1 else ""
    return f"limits: one-sided, {100 * result.inference.confidence:g} % each{corrected}; margin {result.margin:g}"


def gate_cells(row: GateRow) -> list[str]:
    """A row of the table: the cells under `COLUMNS`."""
    return [
        f"{row.queries:,}",
        show_number(row.mean_baseline),
        show_number(row.mean_run),
        show_number(row.change, sign=True),
        show_interval(row.lower, row.upper, sign=True),
        row.outcome,
        "–" if row.queries_needed is None else f"{row.queries_needed:,}",
    ]


def gate_tables(result: Gate, most_queries: int = 10) -> list[Table]:
    """The change by measure and by group, and the queries that lost most."""
    rows = [[row.measure, *gate_cells(row)] for row in result.rows]
    tables = [Table.of_texts("Change by measure", ["measure", *COLUMNS], rows, notes=[describe_limits(result)])]
    if result.groups:
        shown = result.groups[:MOST_GROUPS]
        cells = [[row.measure, f"{row.attribute} = {row.group}", *gate_cells(row)] for row in shown]
        rest = len(result.groups) - len(shown)
        notes = [f"{rest} more groups: --json has all of them"] if rest else []
        columns = ["measure", "group", *COLUMNS]
        tables.append(Table.of_texts("Change by group, the worst first", columns, cells, text_columns=2, notes=notes))
    for measure, worst in result.worst(most_queries).items():
        if worst:
            cells = [
                [row["qid"], *(show_number(row[name], sign=name == "change") for name in ("baseline", "run", "change"))]
                for row in worst
            ]
            columns = ["query", "baseline", "new", "change"]
            tables.append(Table.of_texts(f"Queries that lost most by {measure}", columns, cells))
    return tables


def gate_markdown(result: Gate) -> str:
    """The outcome as Markdown: sentences, the measures, the worst groups and the queries that lost most."""
    lines = [f"### Gate: {result.outcome}", ""]
    lines += [f"- {escape_markdown(sentence)}" for sentence in [*gate_sentences(result), *result.notes]]
    lines += ["", *(table.to_markdown() for table in gate_tables(result))]
    lines += [f"`{escape_controls(text)}`" for text in result.signatures.values()]
    return "\n".join(lines) + "\n"
