"""The table of each result, and the pages of comparisons and audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from os import PathLike
from pathlib import Path

import numpy as np

from rankbound.difficulty.bounding import Bounds
from rankbound.difficulty.distribution import Distribution
from rankbound.display import page_of, plural, table_of
from rankbound.evaluation.audit import Audit
from rankbound.evaluation.comparison import Comparison
from rankbound.evaluation.differences import Difference
from rankbound.evaluation.leaderboards import Leaderboard
from rankbound.evaluation.result import Evaluation, Evaluations
from rankbound.evaluation.unjudged import Decision
from rankbound.lists import Lists
from rankbound.report.audit import write_audit_page
from rankbound.report.numbers import (
    describe_inference,
    describe_intervals,
    show_interval,
    show_number,
    show_p,
    show_policy,
)
from rankbound.report.page_tables import group_tables, leaderboard_table
from rankbound.report.tables import Table

ROWS = 20  # rows of a table that is not complete; a note names how many there are in all

_BOUNDS = ("worst", "expected", "best")
_FEW = 10  # queries of Lists and Bounds that are shown
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@table_of.register(Evaluation)
def evaluation_table(result: Evaluation, *, complete: bool = False) -> Table:
    """A row per measure: its mean, the queries that count and, where they are known, the bounds in the mean."""
    means, counts, bounds = result.mean(), result.counted_queries(), result.mean_bounds()
    ranges = result.range() if result.ranges or result.label_draws else {}
    columns = ["measure", "mean", *(["over labels"] if ranges else []), "queries", *(_BOUNDS if bounds else ())]
    names = list(result.measures) if complete else list(result.measures[:ROWS])
    rows = []
    for name in names:
        known = bounds.get(name, {})
        over_labels = [show_interval(*ranges[name])] if name in ranges else []
        row = [name, show_number(means[name]), *over_labels, f"{counts[name]:,}"]
        rows.append([*row, *(show_number(known.get(side)) for side in _BOUNDS if bounds)])
    notes = [*_policy(result), *result.warnings, *describe_rest(len(rows), len(result.measures), "in mean()")]
    if ranges:
        notes.insert(0, f"Over labels: {_describe_range(result)}")
    if bounds:
        notes.insert(0, "Worst, expected and best: over all rankings of the candidates, in the mean over the queries.")
    return Table.of_texts(f"Evaluation of {plural(result.queries, 'query')}", columns, rows, notes=notes)


def _describe_range(result: Evaluation) -> str:
    if result.ranges:
        return "the smallest and largest mean, whatever the labels of unjudged documents are."
    return "the 95 % interval of the mean, by the probabilities of the labels of unjudged documents."


@table_of.register(Evaluations)
def evaluations_table(results: Evaluations, *, complete: bool = False) -> Table:
    """A row per run, a column per measure."""
    measures = list(dict.fromkeys(name for result in results.values() for name in result.measures))
    means = {run: result.mean() for run, result in islice(results.items(), None if complete else ROWS)}
    ranges = {run: results[run].range() for run in means if results[run].ranges or results[run].label_draws}
    rows = [
        [
            run,
            *(_number_with_range(mean.get(name), ranges.get(run, {}).get(name)) for name in measures),
            f"{results[run].queries:,}",
        ]
        for run, mean in means.items()
    ]
    first = next(iter(results.values()), None)
    notes = [] if first is None else _policy(first, counts=False)
    if first is not None and ranges:
        notes.append(f"In brackets: {_describe_range(first)}")
    notes += [f"{run}: {text}" for run, result in results.items() for text in result.warnings][:ROWS]
    notes += describe_rest(len(rows), len(results), "in table()")
    title = f"Evaluation of {plural(len(results), 'run')}"
    return Table.of_texts(title, ["run", *measures, "queries"], rows, notes=notes)


def _number_with_range(mean: float | None, ends: tuple[float, float] | None) -> str:
    return show_number(mean) if ends is None else f"{show_number(mean)} ({show_interval(*ends)})"


@table_of.register(Comparison)
def comparison_table(comparison: Comparison, *, complete: bool = False) -> Table:
    """A row per measure and pair of runs: the means, their difference with its interval, its p-value, the queries."""
    policy = comparison.inference
    shown = comparison.rows if complete else comparison.rows[:ROWS]
    level = f"{100 * policy.confidence:g} % interval"
    decisions = comparison.decisions
    over_labels = ["over labels"] if decisions else []
    columns = ("measure", "run", "against", "mean", "difference", level, *over_labels, "p", "+ / = / −")
    notes = [
        f"p: {show_policy(policy)}; {describe_intervals(policy)}+ / = / −: queries on which the run is better, equal, "
        "worse.",
        *comparison.notes,
        *comparison.warnings,
        *describe_rest(len(shown), len(comparison.rows), "in table"),
    ]
    title = f"Comparison of {plural(len(comparison.runs), 'run')} on {plural(comparison.queries, 'query')}"
    if decisions:
        notes.insert(1, "Over labels: the smallest and largest difference, whatever the unjudged documents are.")
    rows = [_difference(row, decisions[at] if decisions else None) for at, row in enumerate(shown)]
    return Table.of_texts(title, columns, rows, notes=notes, text_columns=3)


def _difference(row: Difference, decision: Decision | None) -> list[str]:
    return [
        row.measure,
        row.run,
        row.baseline,
        show_number(row.mean_run),
        show_number(row.difference, sign=True),
        show_interval(row.ci_low_corrected, row.ci_high_corrected, sign=True),
        *([] if decision is None else [show_interval(decision.low, decision.high, sign=True)]),
        show_p(row.p_corrected),
        f"{row.wins} / {row.ties} / {row.losses}",
    ]


@table_of.register(Leaderboard)
def board_table(board: Leaderboard, *, complete: bool = False) -> Table:
    """A row per system with its ranks, and a column per data set."""
    table = leaderboard_table(board)
    rows = table.rows if complete else table.rows[:ROWS]
    note = "\n".join([table.note, *describe_rest(len(rows), len(table.rows), "in table")])
    return replace(table, rows=rows, note=note)


@table_of.register(Bounds)
def bounds_table(bounds: Bounds, *, complete: bool = False) -> Table:
    """Worst, expected and best: one row, or one per query."""
    columns = [np.ravel(np.asarray(getattr(bounds, side), dtype=np.float64)) for side in _BOUNDS]
    total = len(columns[0])
    if np.ndim(bounds.worst) == 0:
        return Table.of_texts("Bounds", _BOUNDS, [[show_number(column[0]) for column in columns]], text_columns=0)
    shown = total if complete else min(_FEW, total)
    rows = [[f"{query}", *(show_number(column[query]) for column in columns)] for query in range(shown)]
    notes = describe_rest(shown, total, "in to_pandas()")
    return Table.of_texts(f"Bounds of {plural(total, 'query')}", ("index", *_BOUNDS), rows, notes=notes)


@table_of.register(Distribution)
def distribution_table(distribution: Distribution, *, complete: bool = False) -> Table:
    """Mean, standard deviation, range and quantiles."""
    values = [distribution.mean, distribution.std, distribution.scores[0], distribution.scores[-1]]
    values += [distribution.quantile(q) for q in _QUANTILES]
    columns = ("mean", "std", "least", "greatest", *(f"{100 * q:g} %" for q in _QUANTILES))
    note = (
        f"Scores of random rankings: {plural(len(distribution), 'different score')}; method: {distribution.method}. "
        "Percentages: quantiles."
    )
    title = f"Distribution of {distribution.measure} under random ranking"
    return Table.of_texts(title, columns, [[show_number(value) for value in values]], notes=[note], text_columns=0)


@table_of.register(Lists)
def lists_table(lists: Lists, *, complete: bool = False) -> Table:
    """A row per query: its items, the relevant ones, and its highest label."""
    shown = len(lists) if complete else min(_FEW, len(lists))
    rows = [[str(lists.query_ids[query]), *_counts_of(lists, query)] for query in range(shown)]
    relevant = f"{100 * np.mean(lists.labels > 0):.3g} % relevant" if len(lists.labels) else "none relevant"
    kind = "with scores" if lists.scores is not None else "without scores"
    notes = [f"{plural(len(lists.labels), 'item')}, {relevant}, {kind}."]
    notes += describe_rest(shown, len(lists), "in to_pandas()")
    columns = ("query", "items", "relevant", "highest label")
    return Table.of_texts(f"Lists of {plural(len(lists), 'query')}", columns, rows, notes=notes)


# ---- pages -----------------------------------------------------------------------------------------------------------


@page_of.register(Comparison)
def write_comparison_page(
    comparison: Comparison, path: str | PathLike[str], *, title: str, about: Mapping[str, str] | None = None
) -> Path:
    """Write what the comparison found in words, its tables, figures, and a list of all queries."""
    from rankbound.report.figures.drawing import Tables, draw_figures
    from rankbound.report.findings import describe_worst_groups
    from rankbound.report.page import make_report, write_report
    from rankbound.report.unjudged import decisions_table, ranges_of_means

    report = make_report(comparison.scores, baseline=comparison.baselines or None, inference=comparison.inference)
    sentences = (*report.findings.sentences, *describe_worst_groups(comparison))
    report = replace(report, findings=replace(report.findings, sentences=sentences))
    ranges = ranges_of_means(comparison.label_ranges) if comparison.label_ranges else None
    decisions = (decisions_table(comparison.decisions),) if comparison.decisions else ()
    table = comparison.scores.to_table()
    candidates = {} if comparison.scores.candidates is None else {"Candidates": comparison.scores.candidates}
    signatures = {f"Signature of {name}": signature for name, signature in comparison.signature.items()}
    return write_report(
        path,
        replace(report, tables=(*report.tables, *group_tables(comparison), *decisions)),
        figures={} if table.is_empty() else draw_figures(Tables(table, label_ranges=ranges)),
        title=title,
        about={**(about or {}), **candidates, **signatures, **describe_inference(comparison.inference)},
    )


@page_of.register(Audit)
def write_page_of_audit(
    result: Audit, path: str | PathLike[str], *, title: str, about: Mapping[str, str] | None = None
) -> Path:
    """Write the findings and tables of an audit; it says all that there is to say about itself."""
    del about
    return write_audit_page(result, path, title)


# ---- shared ----------------------------------------------------------------------------------------------------------


def describe_rest(shown: int, total: int, rest: str) -> Sequence[str]:
    """The note on rows that are not shown, if there are any; ``rest`` says where they are.

    >>> describe_rest(20, 50, "in per_query"), describe_rest(5, 5, "in per_query")
    (['The first 20 of 50 rows; all of them are in per_query.'], [])
    """
    return [f"The first {shown:,} of {total:,} rows; all of them are {rest}."] if total > shown else []


def _counts_of(lists: Lists, query: int) -> list[str]:
    labels = lists.labels[lists.offsets[query] : lists.offsets[query + 1]]
    return [f"{len(labels):,}", f"{np.count_nonzero(labels > 0):,}", f"{labels.max():g}" if len(labels) else "–"]


def _policy(result: Evaluation, *, counts: bool = True) -> list[str]:
    """How the values were computed, as one sentence."""
    parts = [plural(result.empty_queries, "empty query")] if counts and result.empty_queries else []
    parts += [f"{name}: {value}" for name, value in result.policy.items()]
    text = "; ".join(parts)
    return [f"{text[0].upper()}{text[1:]}."] if text else []
