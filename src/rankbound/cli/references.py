"""rankbound references: the scores of reference runs, by which other runs are standardized."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.protocol_options import takes_protocol
from rankbound.errors import ArgumentError
from rankbound.protocol import Protocol

if TYPE_CHECKING:
    from rankbound.difficulty import ReferenceScores

_DEFAULT_MEASURES = ("nDCG@10", "AP", "RR")


@takes_protocol("empty", "candidates", "judged_outside", "references")
def references(
    qrels: options.Qrels,
    runs: Annotated[
        list[str], typer.Argument(help="Two or more reference runs: files, or folders of files.", metavar="RUN")
    ],
    path: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="File to write, with the suffix .json.")],
    measures: Annotated[list[str] | None, options.plain_measures(_DEFAULT_MEASURES)] = None,
    protocol: Protocol = Protocol(),  # noqa: B008  # immutable
    as_json: options.Json = False,
) -> None:
    """Write the scores of reference runs to a file, for STD(...), STDU(...) and ECDF(...).

    The file has the scores of every reference run and query, and their mean and standard deviation by query (the
    standardization factors). `rankbound evaluate --reference FILE` standardizes other runs by them.

    \b
    Example:
      rankbound references qrels.txt runs/ -m nDCG@10 -o factors.json
      rankbound evaluate qrels.txt new.txt -m "STD(nDCG@10)" --reference factors.json
    """
    from rankbound.evaluation import evaluate_references

    if Path(path).suffix != ".json":
        raise ArgumentError(f"{path}: the name of a file of reference scores must end with .json")
    if Path(path).is_dir():
        raise ArgumentError(f"{path}: is a folder, expected a file name")
    paths = options.files_in(runs)
    options.check_inputs(qrels, *paths)
    with output.working("evaluating reference runs ..."):
        scores = evaluate_references(qrels, {run: run for run in paths}, measures or list(_DEFAULT_MEASURES), protocol)
    scores.save(path)
    if as_json:
        summary = {
            "runs": list(scores.systems),
            "measures": list(scores.measures),
            "queries": len(scores.query_ids),
            "incomplete_queries": scores.incomplete_queries,
            "flat_queries": scores.flat_queries,
            "file": path,
        }
        output.print_json(summary)
        return
    output.print_note(describe_references(scores))
    output.print_note(f"File: {path}")


def describe_references(scores: ReferenceScores) -> str:
    """The references in a sentence."""
    return f"References: {scores.describe()}; {len(scores.query_ids)} queries; measures: {', '.join(scores.measures)}"
