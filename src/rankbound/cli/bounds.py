"""rankbound bounds: what any ranking of a query could score."""

from __future__ import annotations

from typing import Annotated

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError

__all__ = ["bounds", "parse_labels"]


def bounds(
    measure: Annotated[str, typer.Argument(help="A plain measure, as nDCG@10.", metavar="MEASURE")],
    n: Annotated[int | None, typer.Option("--n", metavar="N", help="Items of the query.")] = None,
    relevant: Annotated[int | None, typer.Option(metavar="P", help="How many of them are relevant.")] = None,
    labels: Annotated[str | None, typer.Option(metavar="L,L,...", help="Or the label of each item.")] = None,
    as_json: options.Json = False,
) -> None:
    """Worst, expected (random ranking) and best value of a measure for one query.

    \b
    Examples:
      rankbound bounds nDCG@10 --n 9 --relevant 3
      rankbound bounds nDCG --labels 2,0,1,0
    """
    from rankbound.difficulty.bounds import bounds as bounds_of

    if labels is None and (n is None or relevant is None):
        raise ArgumentError("give --n and --relevant, or --labels")
    three = bounds_of(measure, n=n, relevant=relevant, labels=None if labels is None else parse_labels(labels))
    found = {"worst": three.worst, "expected": three.expected, "best": three.best}
    if as_json:
        output.print_json(found, indent=None)
        return
    query = f"labels {labels}" if labels is not None else f"{n} items, {relevant} relevant"
    output.print_table(
        f"{measure} of {query}",
        ["", "value"],
        [[name, output.show_number(value, digits=6)] for name, value in found.items()],
    )


def parse_labels(text: str) -> list[float]:
    """Labels from a list with commas.

    >>> parse_labels("2, 0,1")
    [2.0, 0.0, 1.0]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"labels must be numbers with commas between, as 2,0,1; got {text!r}") from None
