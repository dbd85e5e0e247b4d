"""An audit as tables, for a terminal and for a page."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from rankbound.report.numbers import show_number
from rankbound.report.tables import Table

if TYPE_CHECKING:
    from rankbound.evaluation.audit import Audit


def audit_tables(result: Audit) -> list[Table]:
    """What is known about the test set, and about each run."""
    tables = [
        Table.of_texts(
            "What rankings have that know nothing, or everything",
            ["measure", "queries", "reversed", "random", "rows in order", "perfect", "ceiling"],
            [
                [one.measure, f"{one.queries:,}"]
                + [show_number(part) for part in (one.worst, one.random, one.file_order, one.best, one.ceiling)]
                for one in result.references
            ],
            notes=[
                "random: also a constant scorer with ties averaged, which has anything from reversed to perfect if "
                "ties are broken; rows in order: with ties in the order of the rows; ceiling: the best re-ranking of "
                "the candidates"
            ],
        ),
        Table.of_texts(
            "Labels", ["label", "documents"], [[label, f"{count:,}"] for label, count in result.labels.items()]
        ),
    ]
    known = result.detectable
    if known.difference is not None:
        tables.append(
            Table.of_texts(
                f"Differences in {known.measure} that a paired t test detects",
                ["difference", "queries"],
                [[show_number(known.difference), f"{known.queries:,}"]]
                + [
                    [show_number(float(difference)), "–" if count is None else f"{count:,}"]
                    for difference, count in known.needed.items()
                ],
                notes=[
                    "the first row is what these queries can detect, the others how many would be needed; standard "
                    f"deviation of a query's difference: {show_number(known.deviation)}, {known.source}"
                ],
            )
        )
    if result.runs:
        rows = []
        for run in result.runs:
            for measure, mean in run["mean"].items():
                ties = run["ties"].get(measure, {})
                numbers = (mean, ties.get("lowest"), ties.get("highest"), run["judged_at_cutoff"])
                rows.append([run["run"], measure, f"{run['queries']:,}", *map(show_number, numbers)])
        columns = ["run", "measure", "queries", "mean", "lowest over ties", "highest over ties", "judged"]
        tables.append(Table.of_texts("Runs", columns, rows, text_columns=2))
    return tables


def write_audit_page(result: Audit, path: str | PathLike[str], title: str) -> Path:
    """Write an audit as an HTML page without scripts."""
    from rankbound import __version__
    from rankbound.io import atomic_write
    from rankbound.report.page import page_templates

    template = page_templates().get_template("audit.html")
    content = template.render(title=title, result=result, tables=audit_tables(result), version=__version__)
    with atomic_write(path) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return Path(path)
