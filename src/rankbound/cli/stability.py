"""rankbound stability: which normalization orders systems most reliably?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.protocol_options import takes_protocol
from rankbound.errors import ArgumentError
from rankbound.protocol import Protocol
from rankbound.report import numbers

if TYPE_CHECKING:
    import polars as pl

_DEFAULT_MEASURES = ("nDCG@10", "AP")


@takes_protocol("empty", "references")
def stability(
    qrels: options.Qrels,
    runs: Annotated[list[str], typer.Argument(help="Runs of the systems: TREC files, csv or parquet.", metavar="RUN")],
    measures: Annotated[list[str] | None, options.plain_measures(_DEFAULT_MEASURES)] = None,
    wrappers: Annotated[
        list[str] | None,
        typer.Option("--wrapper", metavar="NAME", help="Wrapper to compare; can be repeated.  [default: all]"),
    ] = None,
    splits: Annotated[int, typer.Option(metavar="N", help="Number of random splits of the queries into halves.")] = 200,
    partitions: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="How often the runs are divided into evaluated runs and reference runs; 0 leaves this protocol out.",
        ),
    ] = 5,
    same_prefix: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Keep runs whose names begin with the same N characters on the same side, as runs of one team.",
        ),
    ] = None,
    protocol: Protocol = Protocol(),  # noqa: B008  # immutable
    confidence: options.Confidence = 0.95,
    test: options.Test = options.TestName.t,
    correction: options.Correction = options.CorrectionName.holm,
    resamples: options.Resamples = 10_000,
    seed: options.Seed = 0,
    rows: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write every row to a .parquet, .csv or .json file.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare normalizations of a measure by how reliably they order systems.

    For each wrapper: Kendall's tau and the swap rate between the orders of the systems on two random halves of the
    queries, and the fraction of significant pairs of systems on all queries, with the difference from the plain measure
    and its jackknife interval over queries. STD, STDU and ECDF have the runs themselves as reference runs; in a second
    table, the reference runs are those that are not evaluated.

    \b
    Example:
      rankbound stability qrels.txt runs/*.gz -m nDCG@10 --wrapper EM --wrapper STD --rows stability.csv
    """
    from rankbound.evaluation.alignment import run_names
    from rankbound.evaluation.stability import compare_normalizations

    options.check_inputs(qrels, *runs)
    output.check_table_path(rows)
    if same_prefix is not None and same_prefix < 1:
        raise ArgumentError(f"--same-prefix must be a positive integer, got {same_prefix}")
    if partitions < 0:
        raise ArgumentError(f"--partitions must not be negative, got {partitions}")
    policy = options.inference(confidence, options.IntervalMethod.bca, test, correction, resamples, seed)
    names = run_names(runs)
    groups = None if same_prefix is None else [Path(name).name[:same_prefix].lower() for name in names]
    with output.working("comparing normalizations ..."):
        table = compare_normalizations(
            qrels,
            dict(zip(names, runs, strict=True)),
            measures or list(_DEFAULT_MEASURES),
            protocol,
            wrappers=wrappers,
            splits=splits,
            partitions=partitions,
            groups=groups,
            seed=seed,
            inference=policy,
        )
    if rows is not None:
        output.write_table(table, rows)
    if as_json:
        settings = {"splits": splits, "partitions": partitions, "inference": policy.to_dict()}
        output.print_json(settings | {"rows": table.to_dicts()})
        return
    for (references, plain), group in table.group_by("references", "plain", maintain_order=True):
        _print_measure(str(references), str(plain), group, confidence)
    output.print_note(
        f"Means over {splits} splits of the queries into halves. A difference is that from the plain measure, with its "
        f"{100 * confidence:g} % jackknife interval over queries. Significant: {numbers.show_policy(policy)}."
    )


_REFERENCES = {
    "all runs": "reference runs of STD, STDU and ECDF: all of them",
    "disjoint halves": "halves of the runs, with the other half as reference runs of STD, STDU and ECDF",
}


def _print_measure(references: str, plain: str, table: pl.DataFrame, confidence: float) -> None:
    from rankbound.evaluation.stability import QUANTITIES

    by_key = {(row["measure"], row["quantity"]): row for row in table.iter_rows(named=True)}
    level = f"{100 * confidence:g} % interval"
    columns = ["measure", "queries"]
    for quantity in QUANTITIES:
        columns += [quantity.removesuffix(" fraction"), "difference", level]
    rows = []
    for measure in table["measure"].unique(maintain_order=True):
        cells = [measure, str(by_key[measure, QUANTITIES[0]]["queries"])]
        for quantity in QUANTITIES:
            row = by_key[measure, quantity]
            cells += [
                numbers.show_number(row["value"]),
                numbers.show_number(row["difference"], sign=True),
                numbers.show_interval(row["ci_low"], row["ci_high"], sign=True),
            ]
        rows.append(cells)
    output.print_table(f"{plain}, {table['systems'][0]} runs; {_REFERENCES[references]}", columns, rows)
