"""rankbound judge: which documents to judge next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError


def judge(
    qrels: options.Qrels,
    runs: Annotated[
        list[str], typer.Argument(help="Two or more runs to compare: files, or folders of files.", metavar="RUN")
    ],
    budget: Annotated[int, typer.Option(metavar="N", help="How many documents to list.")] = 50,
    measure: Annotated[str, typer.Option("-m", "--measure", metavar="MEASURE", help="A plain measure.")] = "nDCG@10",
    filled: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A file of this command with labels filled in. Can be repeated."),
    ] = None,
    path: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="File to write instead of printing.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the documents whose labels do most to decide which of the runs are better, to be judged next.

    Each line is a judgment of TREC with a question mark in place of the label. Replace question marks by labels and
    give the file back with --filled: the list continues from there. Such files, without the lines that still have a
    question mark, can be appended to the judgments.

    \b
    Example:
      rankbound judge qrels.txt bm25.txt dense.txt --budget 50 -o next.txt
      rankbound judge qrels.txt bm25.txt dense.txt --budget 50 --filled next.txt
    """
    from rankbound.evaluation.judge import next_judgments, read_filled, with_judgments
    from rankbound.io import atomic_write

    if path is not None and Path(path).is_dir():
        raise ArgumentError(f"{path}: is a folder, expected a file name")
    paths = options.files_in(runs)
    options.check_inputs(qrels, *paths, *(filled or []))
    judgments = with_judgments(qrels, [line for file in filled for line in read_filled(file)]) if filled else qrels
    with output.working("comparing runs ..."):
        plan = next_judgments(judgments, {run: run for run in paths}, measure, budget=budget)
    if path is not None:
        with atomic_write(path) as temporary:
            temporary.write_text(plan.lines(), encoding="utf-8")
    if as_json:
        output.print_json(plan.to_dict() | ({} if path is None else {"file": path}))
        return
    if path is None:
        typer.echo(plan.lines(), nl=False)
        return
    part = plan.reduction / plan.width if plan.width > 0 else 0.0
    output.print_note(
        f"{plan.decided} of {plan.comparisons} comparisons by {plan.measure} are decided whatever the labels are. "
        f"{len(plan.documents)} documents to judge, with {100 * part:.0f} % of the width of the others' ranges."
    )
    output.print_note(f"File: {path}")
