"""rankbound compare: is one run better than another, on which queries, and could it be noise?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.report import check_page_path
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from rankbound.analysis.comparison import Comparison

__all__ = ["compare", "print_comparison"]


def compare(
    qrels: options.Qrels,
    runs: Annotated[list[str], typer.Argument(help="Two or more runs; the first is the baseline.", metavar="RUN")],
    measures: options.Measures = None,
    all_pairs: Annotated[
        bool, typer.Option("--all-pairs", help="Every run with every other, not only with the first.")
    ] = False,
    ties: options.Ties = options.TiesPolicy.average,
    empty: options.Empty = options.EmptyPolicy.skip,
    missing: options.Missing = options.MissingPolicy.ignore,
    missing_zero: options.MissingZero = False,
    judged_only: options.JudgedOnly = False,
    depth: options.Depth = None,
    confidence: Annotated[float, typer.Option(metavar="C", help="Level of the intervals.")] = 0.95,
    resamples: Annotated[int, typer.Option(metavar="N", help="Draws of bootstrap and randomization.")] = 10_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Of these draws.")] = 0,
    per_query: options.PerQuery = None,
    page: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page with figures, an .html file.")] = None,
    as_json: options.Json = False,
) -> None:
    """Compare runs on the queries that all of them have.

    Mean difference with bootstrap interval, paired t, Wilcoxon and randomization test with Holm's correction over all
    rows, wins and losses, and the same by type of query. All runs are measured against the same candidates: what was
    judged or returned by any of them.

    \b
    Example:
      rankbound compare qrels.txt baseline.txt new.txt -m nDCG@10 -m "UL2(nDCG@10)"
    """
    from rankbound.analysis.comparison import compare as compare_runs
    from rankbound.evaluation import to_frame
    from rankbound.measures.measure import parse_measure

    options.check_inputs(qrels, *runs)
    output.check_table_path(per_query)
    check_page_path(page)
    if seed < 0:
        raise ArgumentError(f"--seed must not be negative, got {seed}")
    names = measures or list(options.DEFAULT_MEASURES)
    for name in names:
        parse_measure(name)  # a slip in a name is told before large files are read
    with output.working("comparing ..."):
        judged, returned = to_frame(qrels, "label"), [to_frame(run, "score") for run in runs]
        comparison = compare_runs(
            *returned,
            qrels=judged,
            measures=names,
            names=runs,
            baseline=None if all_pairs else 0,
            ties=ties.value,
            empty=empty.value,
            missing="zero" if missing_zero else missing.value,
            judged_only=judged_only,
            depth=depth,
            confidence=confidence,
            resamples=resamples,
            seed=seed,
        )
    if per_query is not None:
        output.write_table(comparison.per_query, per_query)
    if page is not None:
        from rankbound.analysis.comparison import run_names
        from rankbound.report.page import write_page

        titles = run_names(runs)
        scores = replace(comparison.scores, systems=titles, sources=((Path(qrels).name, ""),))
        with output.working("writing the page ..."):
            write_page(
                page,
                scores=scores.to_table(),
                title="Comparison of runs",
                about={"Judgments": qrels, "Runs": ", ".join(runs)},
                baseline=None if all_pairs else titles[0],
            )
    if as_json:
        output.print_json(comparison.to_dict() | ({} if page is None else {"page": page}))
        return
    print_comparison(comparison)
    if page is not None:
        output.print_note(f"Page: {page}")


def print_comparison(comparison: Comparison) -> None:
    """Tables: means of the runs, differences with tests, differences by type of query."""
    output.print_table(
        "Mean over the shared queries",
        ["run", *comparison.measures],
        [[run, *(output.show_number(value) for value in means.values())] for run, means in comparison.mean().items()],
    )
    output.print_note("")
    # two runs are named once, in the title
    pair = [] if len(comparison.runs) == 2 else ["run", "against"]
    title = f"Difference: {comparison.runs[1]} − {comparison.runs[0]}" if not pair else "Difference: run − against"
    level = f"{100 * comparison.confidence:g} % interval"
    output.print_table(
        title,
        ["measure", *pair, "difference", level, "effect", "p (t)", "p (Wilcoxon)", "p (random.)", "+ / = / −"],
        [
            [
                row.measure,
                *([row.run, row.baseline] if pair else []),
                output.show_number(row.difference, sign=True),
                output.show_interval(row.ci_low, row.ci_high, sign=True),
                output.show_number(row.effect_size, digits=2, sign=True),
                output.show_p(row.p_t_holm),
                output.show_p(row.p_wilcoxon_holm),
                output.show_p(row.p_randomization_holm),
                f"{row.wins} / {row.ties} / {row.losses}",
            ]
            for row in comparison.rows
        ],
        text_columns=1 + len(pair),
        note="p-values are Holm-corrected over all rows; + / = / −: queries on which the run is better, equal, worse",
    )
    output.print_note("")
    if comparison.by_type:
        output.print_table(
            f"{title}, by type of query",
            ["measure", *pair, "type", "queries", "difference", level, "+ / = / −"],
            [
                [
                    row.measure,
                    *([row.run, row.baseline] if pair else []),
                    row.type,
                    str(row.queries),
                    output.show_number(row.difference, sign=True),
                    output.show_interval(row.ci_low, row.ci_high, sign=True),
                    f"{row.wins} / {row.ties} / {row.losses}",
                ]
                for row in comparison.by_type
            ],
            text_columns=2 + len(pair),
            note="ideal: the runs gain most over a random ranking; uninformative: they gain least "
            "(hard where both score low, easy where both score high)",
        )
        output.print_note("")
    output.print_note(
        f"{comparison.queries} shared queries; {comparison.empty_queries} empty for some measure; "
        f"{comparison.left_out} left out because a run lacks them"
    )
