"""Options that several commands share, with one wording."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rankbound.errors import ArgumentError

__all__ = [
    "DEFAULT_MEASURES",
    "Depth",
    "Empty",
    "EmptyPolicy",
    "Json",
    "JudgedOnly",
    "Measures",
    "Missing",
    "MissingPolicy",
    "MissingZero",
    "PerQuery",
    "Qrels",
    "Ties",
    "TiesPolicy",
    "check_inputs",
]

DEFAULT_MEASURES = ("nDCG@10", "AP", "RR", "UL2(nDCG@10)")


class TiesPolicy(StrEnum):
    """What items with one score count as."""

    average = "average"
    input = "input"
    docid = "docid"


class EmptyPolicy(StrEnum):
    """What queries without anything to find count as."""

    skip = "skip"
    zero = "zero"
    one = "one"


class MissingPolicy(StrEnum):
    """What judged queries that a run lacks count as."""

    ignore = "ignore"
    zero = "zero"


Qrels = Annotated[
    str, typer.Argument(help="Judgments: TREC qrels (plain, .gz, .zst, - for stdin), or csv/parquet.", metavar="QRELS")
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help=f"As nDCG@10, AP(rel=2), UL2(nDCG@10); repeat for more.  [default: {', '.join(DEFAULT_MEASURES)}]",
    ),
]
Ties = Annotated[
    TiesPolicy,
    typer.Option(help="Equal scores: mean over all orders, order of the file, or trec_eval's order by document id."),
]
Empty = Annotated[
    EmptyPolicy, typer.Option(help="Queries with nothing to find: left out of means, or counted as 0 or 1.")
]
Missing = Annotated[MissingPolicy, typer.Option(help="Judged queries that a run lacks: left out, or counted as 0.")]
MissingZero = Annotated[bool, typer.Option("-c", help="The same as --missing zero, as in trec_eval.")]
JudgedOnly = Annotated[bool, typer.Option("--judged-only", help="Take documents without judgment out of the runs.")]
Depth = Annotated[int | None, typer.Option(metavar="N", help="Look at the first N documents of each query only.")]
PerQuery = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write the values of each query to a .parquet, .csv or .json file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def check_inputs(*paths: str) -> None:
    """Standard input can be read once."""
    if paths.count("-") > 1:
        raise ArgumentError("- stands for standard input and can be given for one file only")
    twice = [path for path in paths if paths.count(path) > 1]
    if twice:
        raise ArgumentError(f"{twice[0]} is given twice")
