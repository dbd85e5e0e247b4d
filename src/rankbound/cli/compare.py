"""rankbound compare: is one run better than another, on which queries, and could it be noise?"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.report import check_page_path
from rankbound.errors import CoverageWarning, InferenceWarning

if TYPE_CHECKING:
    from rankbound.analysis.comparison import Comparison

__all__ = ["compare", "print_comparison"]

MOST_RUNS = 40  # rows of the summary of many runs
MOST_COVERED = 5  # runs whose coverage is printed, a line each


def compare(
    qrels: options.Qrels,
    runs: Annotated[list[str], typer.Argument(help="Two or more runs; the first is the baseline.", metavar="RUN")],
    measures: options.Measures = None,
    all_pairs: Annotated[
        bool, typer.Option("--all-pairs", help="Compare every run with every other, not only with the first.")
    ] = False,
    ties: options.Ties = options.TiesPolicy.average,
    empty: options.Empty = options.EmptyPolicy.skip,
    missing: options.Missing = options.MissingPolicy.ignore,
    missing_zero: options.MissingZero = False,
    judged_only: options.JudgedOnly = False,
    depth: options.Depth = None,
    candidates: options.Candidates = "judged",
    judged_outside: options.JudgedOutside = options.JudgedOutsidePolicy.error,
    type_quota: options.TypeQuota = None,
    reference: options.References = None,
    confidence: options.Confidence = 0.95,
    interval: options.Interval = options.IntervalMethod.bca,
    test: options.Test = options.TestName.t,
    correction: options.Correction = options.CorrectionName.holm,
    resamples: options.Resamples = 10_000,
    seed: options.Seed = 0,
    per_query: options.PerQuery = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write every row of the comparison to a .parquet, .csv or .json file."),
    ] = None,
    page: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page with figures, an .html file.")] = None,
    cluster: options.Cluster = None,
    shuffle: options.Shuffle = True,
    scratch: options.Scratch = None,
    as_json: options.Json = False,
) -> None:
    """Compare runs on the queries that all of them have.

    Two runs: mean difference with its confidence interval, paired t, Wilcoxon and randomization test with Holm's
    correction over all rows, the minimum detectable difference, wins and losses, and the same by type of query. More
    runs: a summary, the best run first; runs that share a letter do not differ significantly. --json and --rows have
    every pair. Normalized measures are those of evaluate: they do not depend on which runs are compared.

    A quoted pattern, such as 'run-*.parquet', names the parts of one table, as in evaluate.

    \b
    Example:
      rankbound compare qrels.txt baseline.txt new.txt -m nDCG@10 -m "EM(nDCG@10)"
    """
    from rankbound.analysis.comparison import compare as compare_runs
    from rankbound.data.part_work import is_in_parts
    from rankbound.data.sources import to_frame
    from rankbound.measures.measure import parse_measure

    options.check_inputs(qrels, *runs)
    output.check_table_path(per_query)
    output.check_table_path(rows)
    check_page_path(page)
    policy = options.inference(confidence, interval, test, correction, resamples, seed)
    names = measures or list(options.DEFAULT_MEASURES)
    for name in names:
        parse_measure(name)  # an unknown measure is reported before large files are read
    in_parts = cluster is not None or any(map(is_in_parts, (qrels, *runs)))
    with output.working("comparing ..."), warnings.catch_warnings():
        for category in (CoverageWarning, InferenceWarning):
            warnings.simplefilter("ignore", category)  # they are printed below
        comparison = compare_runs(
            *(runs if in_parts else [to_frame(run, "score") for run in runs]),
            qrels=qrels,
            measures=names,
            names=runs,
            baseline=None if all_pairs else 0,
            ties=ties.value,
            empty=empty.value,
            missing="zero" if missing_zero else missing.value,
            judged_only=judged_only,
            depth=depth,
            candidates=candidates,
            judged_outside=judged_outside.value,
            type_quota=type_quota,
            references=options.read_references(reference),
            against_random=page is not None,
            inference=policy,
            cluster=cluster,
            shuffle=shuffle,
            scratch=scratch,
        )
    output.print_warnings(comparison.warnings)
    if per_query is not None:
        output.write_table(comparison.per_query, per_query)
    if rows is not None:
        output.write_table(comparison.table, rows)
    if page is not None:
        from rankbound.analysis.comparison import run_names
        from rankbound.report.page import write_page

        titles = run_names(runs)
        scores = replace(comparison.scores, systems=titles, sources=((Path(qrels).name, ""),))
        with output.working("writing the page ..."):
            write_page(
                page,
                scores=scores,
                title="Comparison of runs",
                about={"Judgments": qrels, "Runs": ", ".join(runs), "Candidates": scores.candidates or ""}
                | output.describe_policy(policy),
                baseline=None if all_pairs else titles[0],
                inference=policy,
            )
    if as_json:
        output.print_json(comparison.to_dict() | ({} if page is None else {"page": page}))
        return
    print_comparison(comparison)
    if page is not None:
        output.print_note(f"Page: {page}")


def print_comparison(comparison: Comparison) -> None:
    """Print two runs in detail, more of them as a summary, the best first."""
    if len(comparison.runs) == 2:
        _print_two_runs(comparison)
    else:
        _print_summary(comparison)
    for note in comparison.notes:
        output.print_note(f"Note: {note}")
    _print_coverage(comparison)


def _print_coverage(comparison: Comparison) -> None:
    """Print the queries that were compared and those that were not, and how far the runs are judged."""
    covered, never_returned = comparison.coverage, comparison.never_returned
    all_judged = any(coverage.judged_queries == comparison.queries for coverage in covered.values())
    parts = [f"{comparison.queries} queries compared", f"{comparison.empty_queries} empty for some measure"]
    if comparison.left_out:
        parts.append(f"{comparison.left_out} left out because some runs lack them")
    if never_returned:
        treated = "counted as 0" if all_judged else "left out"
        parts.append(f"{never_returned} judged but in none of the runs ({treated})")
    if comparison.scores.candidates:
        parts.append(f"candidates: {output.describe_candidates(comparison.scores.candidates)}")
    if comparison.scores.standardized_by:
        parts.append(f"references: {comparison.scores.standardized_by}")
    output.print_note("; ".join(parts))
    if len(covered) <= MOST_COVERED:
        for run, coverage in covered.items():
            if described := output.describe_coverage(coverage, "counted as 0" if all_judged else "left out"):
                output.print_note(f"{run}: {'; '.join(described)}")
        return
    unjudged = {run: coverage for run, coverage in covered.items() if coverage.unjudged_documents}
    if unjudged:
        lowest = min(unjudged, key=lambda run: unjudged[run].judged_at_cutoff)
        output.print_note(
            f"{len(unjudged)} of {len(covered)} runs return documents without a judgment; Judged@"
            f"{unjudged[lowest].cutoff} is lowest for {lowest}, {output.show_number(unjudged[lowest].judged_at_cutoff)}"
            "; --json has the coverage of every run"
        )


def _print_summary(comparison: Comparison) -> None:
    """One row per run: the first measure with interval, letters and test, and the means of the other measures."""
    lead, *others = comparison.measures
    means, policy = comparison.mean(), comparison.inference
    summary = comparison.summary(lead).rows(named=True)
    versus = next((row["versus"] for row in summary if row["versus"] is not None), comparison.runs[0])
    level = f"{100 * policy.confidence:g} % interval"
    output.print_table(
        f"Runs by {lead}, compared with {versus}",
        ["run", "groups", lead, level, "difference", level, "p", *others],
        [
            [
                row["run"],
                _few_letters(row["letters"]),
                output.show_number(row["mean"]),
                output.show_interval(row["ci_low"], row["ci_high"]),
                output.show_number(row["difference"], sign=True),
                output.show_interval(row["difference_low"], row["difference_high"], sign=True),
                output.show_p(row["p_corrected"]),
                *(output.show_number(means[row["run"]][name]) for name in others),
            ]
            for row in summary[:MOST_RUNS]
        ],
        text_columns=2,
        note="difference: run − the run it is compared with; "
        f"p: {output.show_policy(policy)} over the {len(comparison.pairs) * len(comparison.measures):,} comparisons of "
        "all measures; runs that share a letter do not differ significantly (all pairs)",
    )
    if len(summary) > MOST_RUNS:
        output.print_note(f"{len(summary) - MOST_RUNS} more runs: --rows FILE or --json have all of them")
    detectable = comparison.table.filter(measure=lead)["minimum_detectable_difference"].drop_nulls()
    if len(detectable):
        output.print_note(
            f"Minimum detectable difference by {lead}, at a power of {policy.power:g} before correction: "
            f"{output.show_number(detectable.median())} in the median pair"  # type: ignore[arg-type]
        )


def _few_letters(letters: str) -> str:
    """The letters of a run, shortened where there are many.

    >>> _few_letters("abc"), _few_letters("abcdefghijklmnop")
    ('abc', 'abcdefghij…')
    """
    return letters if len(letters) <= 12 else f"{letters[:10]}…"


def _print_two_runs(comparison: Comparison) -> None:
    from rankbound.difficulty import query_type_rule

    first, second = comparison.runs
    output.print_table(
        "Mean over the shared queries",
        ["run", *comparison.measures],
        [[run, *(output.show_number(value) for value in means.values())] for run, means in comparison.mean().items()],
    )
    output.print_note("")
    title = f"Difference: {second} − {first}"
    level = f"{100 * comparison.inference.confidence:g} % interval"
    output.print_table(
        title,
        ["measure", "difference", level, "effect", "p (t)", "p (Wilcoxon)", "p (random.)", "detectable", "+ / = / −"],
        [
            [
                row.measure,
                output.show_number(row.difference, sign=True),
                output.show_interval(row.ci_low, row.ci_high, sign=True),
                output.show_number(row.effect_size, digits=2, sign=True),
                output.show_p(row.p_t_holm),
                output.show_p(row.p_wilcoxon_holm),
                output.show_p(row.p_randomization_holm),
                output.show_number(row.minimum_detectable_difference),
                f"{row.wins} / {row.ties} / {row.losses}",
            ]
            for row in comparison.rows
        ],
        note="p-values are Holm-corrected over all rows; detectable: the smallest true difference that a t test finds "
        f"with a power of {comparison.inference.power:g}; + / = / −: queries on which the run is better, equal, worse",
    )
    output.print_note("")
    if comparison.by_type:
        output.print_table(
            f"{title}, by type of query",
            ["measure", "type", "queries", "difference", level, "+ / = / −"],
            [
                [
                    row.measure,
                    row.type,
                    str(row.queries),
                    output.show_number(row.difference, sign=True),
                    output.show_interval(row.ci_low, row.ci_high, sign=True),
                    f"{row.wins} / {row.ties} / {row.losses}",
                ]
                for row in comparison.by_type
            ],
            text_columns=2,
            note=query_type_rule(comparison.scores.type_quota).replace("systems", "runs"),
        )
        output.print_note("")
