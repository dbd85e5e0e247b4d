"""rankbound audit: what can a test set show, and what is wrong with it?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.report import check_page_path


def audit(
    qrels: options.Qrels,
    runs: Annotated[list[str] | None, typer.Argument(help="Runs on this test set.", metavar="[RUN...]")] = None,
    measures: Annotated[list[str] | None, options.plain_measures(("nDCG@10", "AP", "RR"))] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The documents that are ranked for each query, such as those of a first stage."
        ),
    ] = None,
    confidence: options.Confidence = 0.95,
    page: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page, an .html file.")] = None,
    as_json: options.Json = False,
) -> None:
    """Say what a test set can show, and what is wrong with it, its candidates and runs on it.

    Findings are ordered by severity: a fault makes numbers wrong, a warning limits what they show, a note is worth
    knowing. They are about the first measure. The tables say what random, reversed and perfect rankings have, and which
    differences the queries can detect.

    \b
    Example:
      rankbound audit qrels.txt
      rankbound audit qrels.txt bm25.txt dense.txt --candidates first-stage.txt --page audit.html
    """
    from rankbound.evaluation.audit import DEFAULT_MEASURES
    from rankbound.evaluation.audit import audit as run_audit
    from rankbound.evaluation.inference import Inference
    from rankbound.report.audit import audit_tables

    paths = runs or []
    if paths:
        options.with_own_run(qrels, paths, least=1)
    check_page_path(page)
    names = measures or list(DEFAULT_MEASURES)
    with output.working("auditing ..."):
        result = run_audit(
            qrels,
            {path: path for path in paths},
            names,
            candidates=candidates,
            inference=Inference(confidence),
        )
    if page is not None:
        result.page(page, title=f"Audit of {Path(qrels).name}")
    if as_json:
        output.print_json(result.to_dict() | ({} if page is None else {"page": page}))
        return
    output.print_note(f"{result.queries:,} queries, {result.documents:,} documents")
    for finding in result.findings:
        output.print_note(f"{finding.severity.upper()} ({finding.topic}): {finding.text}")
    if not result.findings:
        output.print_note("Nothing was found.")
    for table in audit_tables(result):
        output.print_note("")
        output.show_table(table)
    if page is not None:
        output.print_note(f"Page: {page}")
