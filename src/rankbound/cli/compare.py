"""rankbound compare: is one run better than another, on which queries, and could it be noise?"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.predicted import Predicted, estimate_with_predictions, print_estimates
from rankbound.cli.protocol_options import takes_protocol
from rankbound.cli.report import check_page_path
from rankbound.errors import ArgumentError, CoverageWarning, InferenceWarning
from rankbound.protocol import DEFAULT_MEASURES, MEASURES_OF_UNJUDGED, Protocol
from rankbound.report import numbers

if TYPE_CHECKING:
    from rankbound.evaluation.comparison import Comparison

MOST_RUNS = 40  # rows of the summary of many runs
MOST_COVERED = 5  # runs whose coverage is printed, a line each


@takes_protocol()
def compare(
    qrels: options.Qrels,
    runs: Annotated[list[str], typer.Argument(help="Two or more runs; the first is the baseline.", metavar="RUN")],
    measures: options.Measures = None,
    all_pairs: Annotated[
        bool, typer.Option("--all-pairs", help="Compare every run with every other, not only with the first.")
    ] = False,
    baselines: Annotated[
        int,
        typer.Option(metavar="N", help="The first N runs are baselines, and every other run is compared with each."),
    ] = 1,
    protocol: Protocol = Protocol(),  # noqa: B008  # immutable
    type_quota: options.TypeQuota = None,
    groups: options.Groups = None,
    predicted: Predicted = None,
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
    correction over all rows that have a p-value, the minimum detectable difference, wins and losses, and the same by
    type of query. More runs: a summary, the best run first; runs that share a letter do not differ significantly, and
    for more than 20 runs the ranks that each can have take the place of letters.
    --json and --rows have every pair. Normalized measures are those of evaluate: they do not depend on which runs are
    compared. --groups adds the differences on groups of queries. --baselines 2 compares every other run with the first
    and with the second, all corrected together.

    --predicted adds labels of a model to those of people, as in evaluate, and compares every run with the first.

    A quoted pattern, such as 'run-*.parquet', names the parts of one table, as in evaluate.

    \b
    Example:
      rankbound compare qrels.txt baseline.txt new.txt -m nDCG@10 -m "EM(nDCG@10)"
      rankbound compare baseline.jsonl new.jsonl -m R@5
    """
    from rankbound.data.large import is_in_parts
    from rankbound.data.sources import can_be_dict, to_frame
    from rankbound.evaluation.comparison import compare as compare_runs
    from rankbound.measures.measure import parse_measure

    runs = options.with_own_run(qrels, runs, least=2)
    if baselines != 1 and (not 1 <= baselines < len(runs) or all_pairs):
        raise ArgumentError(
            f"--baselines must be from 1 to the {len(runs)} runs without one, and goes without --all-pairs"
        )
    if predicted is not None:
        others = {"--all-pairs": all_pairs, "--type-quota": type_quota is not None, "--rows": rows is not None}
        others |= {"--per-query": per_query is not None, "--page": page is not None, "--cluster": cluster is not None}
        others |= {"--groups": groups is not None, "--baselines": baselines > 1}
        others |= {"--interval": interval is not options.IntervalMethod.bca, "--test": test is not options.TestName.t}
        others |= {"--correction": correction is not options.CorrectionName.holm}
        estimates = estimate_with_predictions((qrels, predicted), runs, measures, protocol, confidence, others)
        if as_json:
            output.print_json(estimates.to_dict())
        else:
            print_estimates(estimates, with_differences=True)
        return
    output.check_table_path(per_query)
    output.check_table_path(rows)
    check_page_path(page)
    policy = options.inference(confidence, interval, test, correction, resamples, seed)
    names = measures or list(MEASURES_OF_UNJUDGED if protocol.has_unknown_labels else DEFAULT_MEASURES)
    for name in names:
        parse_measure(name)  # an unknown measure is reported before large files are read
    in_parts = cluster is not None or any(map(is_in_parts, (qrels, *runs)))
    with output.working("comparing ..."), warnings.catch_warnings():
        for category in (CoverageWarning, InferenceWarning):
            warnings.simplefilter("ignore", category)  # they are printed below
        comparison = compare_runs(
            *(run if in_parts or can_be_dict(run) else to_frame(run, "score") for run in runs),
            qrels=qrels,
            measures=names,
            names=runs,
            baseline=None if all_pairs else range(baselines),
            protocol=protocol,
            type_quota=type_quota,
            against_random=page is not None,
            groups=groups,
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
        from rankbound.evaluation.alignment import run_names

        titles = run_names(runs)
        scores = replace(comparison.scores, systems=titles, sources=((Path(qrels).name, ""),))
        with output.working("writing the page ..."):
            replace(comparison, scores=scores).page(page, about={"Judgments": qrels, "Runs": ", ".join(runs)})
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
        _print_baselines(comparison)
    _print_groups(comparison)
    if comparison.decisions:
        _print_decisions(comparison)
    for note in comparison.notes:
        output.print_note(f"Note: {note}")
    _print_coverage(comparison)


def _print_groups(comparison: Comparison) -> None:
    """A table for each attribute of queries: the differences on each group, the largest loss of each run first."""
    from rankbound.report.page_tables import group_tables

    tables = group_tables(comparison)
    if tables and len(comparison.pairs) > 1:
        output.print_note("")
    for table in tables:
        output.show_table(replace(table, rows=table.rows[:MOST_RUNS], note=""))
        if len(table.rows) > MOST_RUNS:
            output.print_note(f"{len(table.rows) - MOST_RUNS} more rows: --json has all of them")
        output.print_note("")
    if tables:
        output.print_note(tables[-1].note)
        if not comparison.decisions:
            output.print_note("")


def _print_baselines(comparison: Comparison) -> None:
    """Every run against each of several baselines, by the first measure."""
    if len(comparison.baselines) < 2:
        return
    lead, policy = comparison.measures[0], comparison.inference
    output.print_note("")
    output.print_table(
        f"Runs by {lead}, compared with each baseline",
        ["run", "against", "difference", f"{100 * policy.confidence:g} % interval", "p"],
        [
            [
                row.run,
                row.baseline,
                numbers.show_number(row.difference, sign=True),
                numbers.show_interval(row.ci_low_corrected, row.ci_high_corrected, sign=True),
                numbers.show_p(row.p_corrected),
            ]
            for row in comparison.rows
            if row.measure == lead
        ][:MOST_RUNS],
        text_columns=2,
        note="every other run against every baseline, corrected together; --json has all measures",
    )


def _print_decisions(comparison: Comparison) -> None:
    """Print what the labels of unjudged documents could change, and which documents they are."""
    output.print_note("")
    rows = comparison.decisions[:MOST_RUNS]
    from rankbound.report.unjudged import decisions_table

    output.show_table(decisions_table(rows))
    if len(comparison.decisions) > len(rows):
        output.print_note(f"{len(comparison.decisions) - len(rows)} more rows: --json has all of them")


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
            f"{len(unjudged)} of {len(covered)} runs return documents without a judgment; "
            f"Judged@{unjudged[lowest].cutoff} is lowest for {lowest}, "
            f"{numbers.show_number(unjudged[lowest].judged_at_cutoff)}; --json has the coverage of every run"
        )


def _print_summary(comparison: Comparison) -> None:
    """One row per run: the first measure with interval, letters or ranks, and test, and the means of other measures."""
    from rankbound.report.system_tests import MOST_LETTERS

    lead, *others = comparison.measures
    means, policy = comparison.mean(), comparison.inference
    summary = comparison.summary(lead).rows(named=True)
    versus = next((row["versus"] for row in summary if row["versus"] is not None), comparison.runs[0])
    level = f"{100 * policy.confidence:g} % interval"
    if len(summary) > MOST_LETTERS:
        column = "ranks"
        cells = {row.system: row.show() for row in comparison.rank_intervals[lead]}
        meaning = (
            f"ranks: those that a run can have by {lead}, by tests of all pairs; a run whose ranks begin at 1 is not "
            "separable from the best"
        )
    else:
        column, cells = "groups", comparison.letters[lead]
        meaning = "runs that share a letter do not differ significantly (all pairs)"
    output.print_table(
        f"Runs by {lead}, compared with {versus}",
        ["run", column, lead, level, "difference", level, "p", *others],
        [
            [
                row["run"],
                cells[row["run"]],
                numbers.show_number(row["mean"]),
                numbers.show_interval(row["ci_low"], row["ci_high"]),
                numbers.show_number(row["difference"], sign=True),
                numbers.show_interval(row["difference_low"], row["difference_high"], sign=True),
                numbers.show_p(row["p_corrected"]),
                *(numbers.show_number(means[row["run"]][name]) for name in others),
            ]
            for row in summary[:MOST_RUNS]
        ],
        text_columns=2,
        note="difference: run − the run it is compared with; "
        f"p: {numbers.show_policy(policy)} over the {comparison.table['p_corrected'].count():,} tests of all "
        f"measures; {numbers.describe_intervals(policy, 'interval of the difference')}{meaning}",
    )
    if len(summary) > MOST_RUNS:
        output.print_note(f"{len(summary) - MOST_RUNS} more runs: --rows FILE or --json have all of them")
    detectable = comparison.table.filter(measure=lead)["minimum_detectable_difference"].drop_nulls()
    if len(detectable):
        output.print_note(
            f"Minimum detectable difference by {lead}, at a power of {policy.power:g} before correction: "
            f"{numbers.show_number(detectable.median())} in the median pair"  # type: ignore[arg-type]
        )


def _print_two_runs(comparison: Comparison) -> None:
    from rankbound.difficulty import query_type_rule
    from rankbound.evaluation.inference import caution_about_wilcoxon

    first, second = comparison.runs
    output.print_table(
        "Mean over the shared queries",
        ["run", *comparison.measures],
        [[run, *(numbers.show_number(value) for value in means.values())] for run, means in comparison.mean().items()],
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
                numbers.show_number(row.difference, sign=True),
                numbers.show_interval(row.ci_low_corrected, row.ci_high_corrected, sign=True),
                numbers.show_number(row.effect_size, digits=2, sign=True),
                numbers.show_p(row.p_t_holm),
                numbers.show_p(row.p_wilcoxon_holm),
                numbers.show_p(row.p_randomization_holm),
                numbers.show_number(row.minimum_detectable_difference),
                f"{row.wins} / {row.ties} / {row.losses}",
            ]
            for row in comparison.rows
        ],
        note="p-values are Holm-corrected over all rows that have one; intervals: "
        f"{numbers.show_correction(comparison.inference)}; detectable: the smallest true difference that a "
        f"t test finds with a power of {comparison.inference.power:g}; + / = / −: queries on which the run is better, "
        "equal, worse",
    )
    if (caution := caution_about_wilcoxon(row.queries for row in comparison.rows)) not in ("", *comparison.notes):
        output.print_note(caution)  # the table has its p-values whatever the policy is
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
                    numbers.show_number(row.difference, sign=True),
                    numbers.show_interval(row.ci_low, row.ci_high, sign=True),
                    f"{row.wins} / {row.ties} / {row.losses}",
                ]
                for row in comparison.by_type
            ],
            text_columns=2,
            note=query_type_rule(comparison.scores.type_quota).replace("systems", "runs"),
        )
        output.print_note("")
