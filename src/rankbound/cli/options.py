"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rankbound.errors import ArgumentError
from rankbound.protocol import DEFAULT_MEASURES

if TYPE_CHECKING:
    from rankbound.evaluation.inference import Inference


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


Qrels = Annotated[
    str,
    typer.Argument(
        help="Judgments: TREC qrels (plain, .gz, .zst, - for stdin), a LETOR file, csv/parquet, JSON lines with "
        "expected_ids and retrieved_ids, which are a run as well (.jsonl), a BEIR folder, irds:ID for those of "
        "ir_datasets, or held-out interactions (csv/parquet with user and item).",
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
PlainMeasure = Annotated[str, typer.Argument(help="A plain measure, such as nDCG@10.", metavar="MEASURE")]
Items = Annotated[int | None, typer.Option("--n", metavar="N", help="Number of items of the query.")]
Relevant = Annotated[int | None, typer.Option(metavar="P", help="Number of relevant items.")]
Labels = Annotated[
    str | None, typer.Option(metavar="L,L,...", help="Label of each item, instead of --n and --relevant.")
]
Jobs = Annotated[int | None, typer.Option(metavar="N", help="Number of worker processes.  [default: all cores]")]
WorkerModules = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Module (or .py file) to import in every worker, to define measures; repeat for more."
    ),
]
NoPage = Annotated[bool, typer.Option("--no-page", help="Write no page.")]
TypeQuota = Annotated[
    float | None,
    typer.Option(
        metavar="FRACTION",
        help="Types of queries by rank: this fraction with the largest gaps to a random ranking is ideal, the same "
        "fraction with the smallest is uninformative.  [default: types by the gain over a random ranking]",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Attributes of queries: csv, parquet or jsonl with qid and a column per attribute."
    ),
]
RanksFilled = Annotated[
    int | None,
    typer.Option("--depth", metavar="D", help="Number of ranks that are filled, as by a run that returns D items."),
]
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
    str | None, typer.Option(metavar="FOLDER", help="Folder for shuffled tables, which all workers of the cluster see.")
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
    from rankbound.evaluation.inference import Inference

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


class Query(NamedTuple):
    """A query of `bounds` and `distribution`: numbers of items, or labels, and how many ranks are filled."""

    n: int | None
    relevant: int | None
    labels: list[float] | None
    depth: int | None

    @classmethod
    def parse(cls, n: int | None, relevant: int | None, labels: str | None, depth: int | None) -> Query:
        """The query that the options describe.

        >>> Query.parse(None, None, "2, 0,1", None).labels
        [2.0, 0.0, 1.0]
        """
        if labels is None and (n is None or relevant is None):
            raise ArgumentError("one of --labels and --n with --relevant is required")
        try:
            return cls(n, relevant, None if labels is None else [float(label) for label in labels.split(",")], depth)
        except ValueError:
            raise ArgumentError(
                f"--labels must be numbers separated by commas, such as 2,0,1, got {labels!r}"
            ) from None

    def __str__(self) -> str:
        labels = "" if self.labels is None else f"labels {','.join(f'{label:g}' for label in self.labels)}"
        query = labels or f"{self.n} items, {self.relevant} relevant"
        return query if self.depth is None else f"{query}, depth {self.depth}"


def with_own_run(qrels: str, runs: Sequence[str] | None, least: int) -> list[str]:
    """The runs; a file of JSON lines that is given as judgments is the first run as well, if there is one too few."""
    from rankbound.data.json_lines import is_json_lines
    from rankbound.evaluation.ranks import is_rank_table

    found = list(runs or ())
    if len(found) == least - 1 and is_json_lines(qrels):
        return [qrels, *found]
    if not found and least == 1 and is_rank_table(qrels):
        return [qrels]
    if not found:
        raise ArgumentError("Missing argument 'RUN...': judgments need a run, unless they are JSON lines with both")
    is_run_as_well = is_json_lines(qrels) and qrels in found
    check_inputs(*(() if is_run_as_well else (qrels,)), *found)
    return found


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
