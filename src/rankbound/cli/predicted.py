"""What evaluate and compare do with --predicted: labels of a model for all queries, those of people for a sample."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError, CoverageWarning, InferenceWarning
from rankbound.protocol import Protocol
from rankbound.report import numbers

if TYPE_CHECKING:
    from rankbound.evaluation.predicted import Agreement, PredictedEvaluation, PredictedRow

Predicted = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Labels that a model predicted for all queries, as judgments; QRELS are then those of people for a random "
        "sample of the queries. Queries for which a measure is not defined count as 0, or 1 with --empty one.",
    ),
]


def estimate_with_predictions(
    files: tuple[str, str],
    runs: Sequence[str],
    measures: Sequence[str] | None,
    protocol: Protocol,
    confidence: float,
    others: Mapping[str, bool],
) -> PredictedEvaluation:
    """Means and differences from judgments and predicted labels, ``files``.

    ``others`` says which options of the command that have no meaning here are given: an ArgumentError for any of them.
    """
    from rankbound.data.sources import can_be_dict, to_frame
    from rankbound.evaluation.predicted import evaluate_predicted

    given = [name for name, is_given in others.items() if is_given]
    if protocol.has_unknown_labels:
        given.append("--unjudged")
    if given:
        raise ArgumentError(f"--predicted cannot be used with {given[0]}")
    options.check_inputs(*files, *(run for run in runs if run != files[0]))
    with output.working("evaluating ..."), warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # the judgments are a sample
        warnings.simplefilter("ignore", InferenceWarning)  # they are printed below
        result = evaluate_predicted(
            *files,
            {run: run if can_be_dict(run) else to_frame(run, "score") for run in runs},
            measures or None,
            confidence=confidence,
            protocol=protocol,
            empty="one" if protocol.empty == "one" else "zero",
        )
    output.print_warnings(result.warnings)
    return result


def print_estimates(result: PredictedEvaluation, *, with_differences: bool) -> None:
    """Print the means, or the differences as well, and how far the labels agree."""
    level = f"{100 * result.confidence:g} % interval"
    columns = ["measure", "run", "mean", level, "people alone", level, "model alone", "weight"]
    means = [row for row in result.rows if row.baseline is None]
    title = "Means by the labels of people and of a model"
    output.print_table(title, columns, [_cells(row) for row in means], text_columns=2, note=_note(means[0]))
    differences = [row for row in result.rows if row.baseline is not None]
    if with_differences and differences:
        output.print_note("")
        columns[2] = "difference"
        output.print_table("Differences", columns, [_cells(row) for row in differences], text_columns=2)
    output.print_note("")
    _print_agreement(result.agreement)


def _cells(row: PredictedRow) -> list[str]:
    found, is_difference = row.result, row.baseline is not None
    return [
        row.measure,
        f"{row.run} − {row.baseline}" if is_difference else row.run,
        numbers.show_number(found.mean, sign=is_difference),
        numbers.show_interval(found.low, found.high, sign=is_difference),
        numbers.show_number(found.human_mean, sign=is_difference),
        numbers.show_interval(found.human_low, found.human_high, sign=is_difference),
        numbers.show_number(found.predicted_mean, sign=is_difference),
        numbers.show_number(found.weight, digits=2),
    ]


def _note(row: PredictedRow) -> str:
    return (
        f"{row.result.queries} queries with predicted labels, {row.result.human_queries} of them with people's labels; "
        "weight: that of the predictions, between 0 and 1; the intervals hold if the queries that people labeled are a "
        "random sample"
    )


def _print_agreement(agreement: Agreement) -> None:
    grades = [f"{grade:g}" for grade in agreement.grades]
    output.print_table(
        "Labels of people (rows) and of the model (columns)",
        ["label", *grades],
        [[grade, *(str(count) for count in counts)] for grade, counts in zip(grades, agreement.confusion, strict=True)],
        note=f"{agreement.documents} documents with both labels; Cohen's kappa "
        f"{numbers.show_number(agreement.kappa, digits=2)}",
    )
