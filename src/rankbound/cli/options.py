"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from rankbound.analysis.inference import Inference

__all__ = [
    "DEFAULT_MEASURES",
    "RECOMMENDER_MEASURES",
    "Candidates",
    "Cluster",
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
    "JudgedOutside",
    "JudgedOutsidePolicy",
    "Measures",
    "Missing",
    "MissingPolicy",
    "MissingZero",
    "PerQuery",
    "Qrels",
    "RanksFilled",
    "References",
    "Resamples",
    "Scratch",
    "Seed",
    "Shuffle",
    "Test",
    "TestName",
    "Ties",
    "TiesPolicy",
    "TypeQuota",
    "check_inputs",
    "files_in",
    "inference",
    "plain_measures",
    "read_references",
]

DEFAULT_MEASURES = ("nDCG@10", "AP", "RR", "EM(nDCG@10)")
RECOMMENDER_MEASURES = ("nDCG@10", "R@10", "Success@10", "AP(div='min')@10")


class TiesPolicy(StrEnum):
    """How items with equal scores are ranked."""

    average = "average"
    input = "input"
    docid = "docid"


class EmptyPolicy(StrEnum):
    """How queries count for which a measure is not defined."""

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
    """How judged queries count that a run lacks."""

    ignore = "ignore"
    zero = "zero"


class JudgedOutsidePolicy(StrEnum):
    """How judged documents count that a list of candidates lacks."""

    error = "error"
    ignore = "ignore"


Qrels = Annotated[
    str,
    typer.Argument(
        help="Judgments: TREC qrels (plain, .gz, .zst, - for stdin), a LETOR file, csv/parquet, a BEIR folder, "
        "irds:ID for those of ir_datasets, or held-out interactions (csv/parquet with user and item).",
        metavar="QRELS",
    ),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help=f"As nDCG@10, AP(rel=2), EM(nDCG@10); can be repeated.  [default: {', '.join(DEFAULT_MEASURES)}]",
    ),
]
Ties = Annotated[
    TiesPolicy,
    typer.Option(help="Equal scores: mean over all orders, order of the file, or trec_eval's order by document id."),
]
Empty = Annotated[
    EmptyPolicy,
    typer.Option(help="Queries for which a measure is not defined: left out of its mean, or counted as 0 or 1."),
]
Missing = Annotated[MissingPolicy, typer.Option(help="Judged queries that a run lacks: left out, or counted as 0.")]
MissingZero = Annotated[bool, typer.Option("-c", help="Short for --missing zero, as in trec_eval.")]
JudgedOnly = Annotated[bool, typer.Option("--judged-only", help="Remove documents without a judgment from the runs.")]
Candidates = Annotated[
    str,
    typer.Option(
        metavar="judged|returned|FILE|column:NAME",
        help="Documents whose rankings bounds and normalized measures are about: the judged ones, those of them that "
        "the run returned, those in a file, or those that a column of the judgments marks.",
    ),
]
JudgedOutside = Annotated[
    JudgedOutsidePolicy, typer.Option(help="Judged documents that the file of candidates lacks: an error, or left out.")
]
TypeQuota = Annotated[
    float | None,
    typer.Option(
        metavar="FRACTION",
        help="Types of queries by rank: this fraction with the largest gaps to a random ranking is ideal, the same "
        "fraction with the smallest is uninformative.  [default: types by the gain over a random ranking]",
    ),
]
Depth = Annotated[int | None, typer.Option(metavar="N", help="Evaluate only the first N documents of each query.")]
RanksFilled = Annotated[
    int | None,
    typer.Option("--depth", metavar="D", help="Number of ranks that are filled, as by a run that returns D items."),
]
PerQuery = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write the values of each query to a .parquet, .csv or .json file.")
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="PATH",
        help="Reference run of STD(...), STDU(...) and ECDF(...); a folder of runs; or a .json file that `rankbound "
        "references` wrote. Can be repeated.",
    ),
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
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Work on parquet files by the workers of a Dask cluster: local:N for N processes of this machine, or "
        "tcp://HOST:PORT.",
    ),
]
Shuffle = Annotated[
    bool, typer.Option(help="Write tables in parts again, divided by query, if rows of a query are not adjacent.")
]
Scratch = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Folder for shuffled tables, which all workers of the cluster see."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]


def plain_measures(default: tuple[str, ...]) -> Any:
    """The option -m of commands that take plain measures."""
    text = f"Plain measure; can be repeated.  [default: {', '.join(default)}]"
    return typer.Option("-m", "--measure", metavar="MEASURE", help=text)


def inference(
    confidence: float, interval: IntervalMethod, test: TestName, correction: CorrectionName, resamples: int, seed: int
) -> Inference:
    """The policy that the options describe."""
    from rankbound.analysis.inference import Inference

    if seed < 0:
        raise ArgumentError(f"--seed must not be negative, got {seed}")
    return Inference(confidence, interval.value, test.value, correction.value, resamples, seed)


def check_inputs(*paths: str) -> None:
    """Raise ArgumentError if a file is named twice or with a slash at its end, or standard input more than once."""
    for path in paths:
        if path.endswith(("/", os.sep)) and "\0" not in path and Path(path).is_file():
            raise ArgumentError(f"{path}: is a file, and a file name does not end in a slash")
    if paths.count("-") > 1:
        raise ArgumentError("- is standard input and can be named only once")
    twice = [path for path in paths if paths.count(path) > 1]
    if twice:
        raise ArgumentError(f"{twice[0]} is named twice")


def files_in(paths: Sequence[str]) -> list[str]:
    """The paths, with the files of a folder, in order of their names, in place of the folder."""
    files = []
    for path in paths:
        if not Path(path).is_dir():
            files.append(path)
            continue
        inside = sorted(str(file) for file in Path(path).iterdir() if file.is_file() and not file.name.startswith("."))
        if not inside:
            raise ArgumentError(f"{path}: is a folder without files, expected runs")
        files += inside
    return files


def read_references(paths: Sequence[str] | None) -> Any:
    """The value of ``references`` for `rankbound.evaluate`: None, the path of a file of scores, or runs by name."""
    if not paths:
        return None
    if any(path.endswith(".json") for path in paths):
        if len(paths) > 1:
            raise ArgumentError(
                f"--reference must be runs or one .json file, got {len(paths)} paths: {', '.join(paths)}"
            )
        return paths[0]
    files = files_in(paths)
    check_inputs(*files)
    return {path: path for path in files}
