"""Options that several commands share, with one wording."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from rankbound.analysis.inference import Inference

__all__ = [
    "DEFAULT_MEASURES",
    "Confidence",
    "Correction",
    "CorrectionName",
    "Depth",
    "Empty",
    "EmptyPolicy",
    "Interval",
    "IntervalMethod",
    "Json",
    "JudgedOnly",
    "Measures",
    "Missing",
    "MissingPolicy",
    "MissingZero",
    "PerQuery",
    "Qrels",
    "Resamples",
    "Seed",
    "Test",
    "TestName",
    "Ties",
    "TiesPolicy",
    "check_inputs",
    "inference",
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


class IntervalMethod(StrEnum):
    """How confidence intervals are computed."""

    bca = "bca"
    percentile = "percentile"
    t = "t"


class TestName(StrEnum):
    """The test that decides what is significant."""

    __test__ = False  # no test of ours, whatever pytest may think

    t = "t"
    wilcoxon = "wilcoxon"
    randomization = "randomization"


class CorrectionName(StrEnum):
    """How p-values are corrected for several tests."""

    holm = "holm"
    bonferroni = "bonferroni"
    benjamini_hochberg = "benjamini-hochberg"
    none = "none"


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
Confidence = Annotated[
    float, typer.Option(metavar="C", help="Level of the confidence intervals; tests are at the level 1 - C.")
]
Interval = Annotated[
    IntervalMethod, typer.Option(help="Confidence intervals: BCa bootstrap, percentile bootstrap, or Student's.")
]
Test = Annotated[TestName, typer.Option(help="Test that decides what is significant.")]
Correction = Annotated[CorrectionName, typer.Option(help="Correction of p-values for several tests.")]
Resamples = Annotated[int, typer.Option(metavar="N", help="Number of draws of bootstrap and randomization test.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of these draws.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def inference(
    confidence: float, interval: IntervalMethod, test: TestName, correction: CorrectionName, resamples: int, seed: int
) -> Inference:
    """The policy that the options describe."""
    from rankbound.analysis.inference import Inference

    if seed < 0:
        raise ArgumentError(f"--seed must not be negative, got {seed}")
    return Inference(confidence, interval.value, test.value, correction.value, resamples, seed)


def check_inputs(*paths: str) -> None:
    """Standard input can be read once."""
    if paths.count("-") > 1:
        raise ArgumentError("- stands for standard input and can be given for one file only")
    twice = [path for path in paths if paths.count(path) > 1]
    if twice:
        raise ArgumentError(f"{twice[0]} is given twice")
