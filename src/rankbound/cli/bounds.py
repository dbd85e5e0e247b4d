"""rankbound bounds: worst, expected and best value of a measure for one query."""

from __future__ import annotations

from typing import Annotated

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError
from rankbound.report import numbers


def bounds(
    measure: Annotated[str, typer.Argument(help="A plain measure, such as nDCG@10.", metavar="MEASURE")],
    n: Annotated[int | None, typer.Option("--n", metavar="N", help="Number of items of the query.")] = None,
    relevant: Annotated[int | None, typer.Option(metavar="P", help="Number of relevant items.")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="L,L,...", help="Label of each item, instead of --n and --relevant.")
    ] = None,
    depth: options.RanksFilled = None,
    as_json: options.Json = False,
) -> None:
    """Print the worst, expected (random ranking) and best value of a measure for one query.

    \b
    Examples:
      rankbound bounds nDCG@10 --n 9 --relevant 3
      rankbound bounds nDCG --labels 2,0,1,0
      rankbound bounds AP --n 1000 --relevant 20 --depth 100
    """
    from rankbound.difficulty.bounds import bounds as bounds_of

    if labels is None and (n is None or relevant is None):
        raise ArgumentError("one of --labels and --n with --relevant is required")
    label_list = None if labels is None else parse_labels(labels)
    bounds = bounds_of(measure, n=n, relevant=relevant, labels=label_list, depth=depth)
    values = {"worst": bounds.worst, "expected": bounds.expected, "best": bounds.best}
    if as_json:
        output.print_json(values, indent=None)
        return
    output.print_table(
        f"{measure} of {describe_query(labels, n, relevant, depth)}",
        ["", "value"],
        [[name, numbers.show_number(value, digits=6)] for name, value in values.items()],
    )


def describe_query(labels: str | None, n: int | None, relevant: int | None, depth: int | None) -> str:
    """The query of `bounds` and `distribution`, in words.

    >>> describe_query(None, 9, 3, 5)
    '9 items, 3 relevant, depth 5'
    """
    query = f"labels {labels}" if labels is not None else f"{n} items, {relevant} relevant"
    return query if depth is None else f"{query}, depth {depth}"


def parse_labels(text: str) -> list[float]:
    """Parse labels that are separated by commas.

    >>> parse_labels("2, 0,1")
    [2.0, 0.0, 1.0]
    """
    try:
        return [float(label) for label in text.split(",")]
    except ValueError:
        raise ArgumentError(f"--labels must be numbers separated by commas, such as 2,0,1, got {text!r}") from None
