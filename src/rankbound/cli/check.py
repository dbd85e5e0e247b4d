"""rankbound check: whether a user's own implementation of a measure is right."""

from __future__ import annotations

from typing import Annotated

import typer

from rankbound.cli import options, output
from rankbound.protocol import TIES, Empty, Ties

DISAGREES = 1  # the exit code if the function disagrees with the measure


def check(
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="The function, as my_metrics:ndcg or metrics.py:ndcg.")
    ],
    measure: Annotated[
        str, typer.Option("-m", "--measure", metavar="MEASURE", help="The plain measure that it should compute.")
    ] = "nDCG@10",
    signature: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="What it takes: labels,scores or y_true,y_score (2-D) or qrels,run or relevant_ids,ranked_ids or "
            "ranked_labels, in any order, and k if it takes the cutoff, as labels,scores,k.",
        ),
    ] = "auto",
    ties: Annotated[
        Ties,
        typer.Option(help="How equal scores should be ranked: mean over all orders, input order, or by document id."),
    ] = TIES[0],
    empty: Annotated[
        Empty, typer.Option(help="Value of queries for which the measure is not defined; skip stands for NaN or None.")
    ] = "zero",
    tolerance: Annotated[float, typer.Option(metavar="X", help="Largest difference of two values that agree.")] = 1e-6,
    examples: Annotated[int, typer.Option(metavar="N", help="Largest number of examples.")] = 500,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the examples.")] = 0,
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="CATEGORY", help="Leave out a category, such as single-document; can be repeated."),
    ] = None,
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Time after which no more is checked.")] = 60.0,
    as_json: options.Json = False,
) -> None:
    """Check your own implementation of a measure on generated examples.

    The examples cover ties, queries without relevant documents, short lists, graded and negative labels, unsorted input
    and more. The smallest failing example is printed with its probable cause. The exit code is 0 if the function agrees
    with the measure, 1 if it disagrees, and 2 if it cannot be checked. The current folder is searched for modules.

    \b
    Examples:
      rankbound check my_metrics:ndcg --measure nDCG@10
      rankbound check metrics.py:average_precision -m AP --ties input --json
    """
    from rankbound.cli.user_code import load_function
    from rankbound.io import progress_display
    from rankbound.testing import check_measure

    target = load_function(function)
    with progress_display() as display:
        report = check_measure(
            target,
            measure,
            signature=signature,
            ties=ties,
            empty=empty,
            tolerance=tolerance,
            seed=seed,
            examples=examples,
            skip=skip or [],
            budget=budget,
            progress=lambda done, total: display("checking", done, total),
        )
    if as_json:
        output.print_json(report.to_dict())
    else:
        typer.echo(str(report))
    if not report.ok:
        raise typer.Exit(DISAGREES)
