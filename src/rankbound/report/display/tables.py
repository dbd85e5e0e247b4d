"""The table of each result, as notebooks show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rankbound.report.display.html import ROWS, html_table, remaining
from rankbound.report.numbers import show_interval, show_number, show_p, show_policy

if TYPE_CHECKING:
    from rankbound.analysis.comparison import Comparison, Difference
    from rankbound.difficulty.bounding import Bounds
    from rankbound.difficulty.distribution import Distribution
    from rankbound.evaluation.result import Evaluation
    from rankbound.lists import Lists

__all__ = [
    "bounds_table",
    "comparison_table",
    "distribution_table",
    "evaluation_table",
    "evaluations_table",
    "lists_table",
]

_BOUNDS = ("worst", "expected", "best")
_FEW = 10  # queries of Lists and Bounds that are shown
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def evaluation_table(result: Evaluation) -> str:
    """A row per measure: its mean, the queries that count and, where they are known, the bounds in the mean."""
    means, counts, bounds = result.mean(), result.counted_queries(), result.mean_bounds()
    columns = ["measure", "mean", "queries", *(_BOUNDS if bounds else ())]
    rows = []
    for name in result.measures[:ROWS]:
        known = bounds.get(name, {})
        row = [name, show_number(means[name]), f"{counts[name]:,}"]
        rows.append([*row, *(show_number(known.get(side)) for side in _BOUNDS if bounds)])
    notes = [*_policy(result), *result.warnings, *remaining(ROWS, len(result.measures), "in mean()")]
    if bounds:
        notes.insert(0, "Worst, expected and best: over all rankings of the candidates, in the mean over the queries.")
    return html_table(f"Evaluation of {_count(result.queries, 'query')}", columns, rows, notes=notes)


def evaluations_table(results: Mapping[str, Evaluation]) -> str:
    """A row per run, a column per measure."""
    measures = list(dict.fromkeys(name for result in results.values() for name in result.measures))
    means = {run: result.mean() for run, result in list(results.items())[:ROWS]}
    rows = [
        [run, *(show_number(mean.get(name)) for name in measures), f"{results[run].queries:,}"]
        for run, mean in means.items()
    ]
    first = next(iter(results.values()), None)
    notes = [] if first is None else _policy(first, counts=False)
    notes += [f"{run}: {text}" for run, result in results.items() for text in result.warnings][:ROWS]
    notes += remaining(ROWS, len(results), "in table()")
    return html_table(f"Evaluation of {_count(len(results), 'run')}", ["run", *measures, "queries"], rows, notes=notes)


def comparison_table(comparison: Comparison) -> str:
    """A row per measure and pair of runs: the means, their difference with its interval, its p-value, the queries."""
    policy = comparison.inference
    shown = comparison.rows[:ROWS]
    columns = ("measure", "run", "against", "mean", "difference", f"{100 * policy.confidence:g} % interval", "p",
               "+ / = / −")  # fmt: skip
    notes = [
        f"p: {show_policy(policy)}. + / = / −: queries on which the run is better, equal, worse.",
        *comparison.notes,
        *comparison.warnings,
        *remaining(ROWS, len(comparison.rows), "in table"),
    ]
    title = f"Comparison of {_count(len(comparison.runs), 'run')} on {_count(comparison.queries, 'query')}"
    return html_table(title, columns, [_difference(row) for row in shown], notes=notes, text_columns=3)


def _difference(row: Difference) -> list[str]:
    return [
        row.measure,
        row.run,
        row.baseline,
        show_number(row.mean_run),
        show_number(row.difference, sign=True),
        show_interval(row.ci_low, row.ci_high, sign=True),
        show_p(row.p_corrected),
        f"{row.wins} / {row.ties} / {row.losses}",
    ]


def bounds_table(bounds: Bounds) -> str:
    """Worst, expected and best: one row, or one per query."""
    columns = [np.ravel(np.asarray(getattr(bounds, side), dtype=np.float64)) for side in _BOUNDS]
    total = len(columns[0])
    if np.ndim(bounds.worst) == 0:
        return html_table("Bounds", _BOUNDS, [[show_number(column[0]) for column in columns]], text_columns=0)
    rows = [[f"{query}", *(show_number(column[query]) for column in columns)] for query in range(min(_FEW, total))]
    notes = remaining(_FEW, total, "in to_pandas()")
    return html_table(f"Bounds of {_count(total, 'query')}", ("index", *_BOUNDS), rows, notes=notes)


def distribution_table(distribution: Distribution) -> str:
    """Mean, standard deviation, range and quantiles."""
    values = [distribution.mean, distribution.std, distribution.scores[0], distribution.scores[-1]]
    values += [distribution.quantile(q) for q in _QUANTILES]
    columns = ("mean", "std", "least", "greatest", *(f"{100 * q:g} %" for q in _QUANTILES))
    note = (
        f"Scores of random rankings: {_count(len(distribution), 'different score')}; method: {distribution.method}. "
        "Percentages: quantiles."
    )
    title = f"Distribution of {distribution.measure} under random ranking"
    return html_table(title, columns, [[show_number(value) for value in values]], notes=[note], text_columns=0)


def lists_table(lists: Lists) -> str:
    """A row per query: its items, the relevant ones, and its highest label."""
    rows = [[str(lists.query_ids[query]), *_counts_of(lists, query)] for query in range(min(_FEW, len(lists)))]
    relevant = f"{100 * np.mean(lists.labels > 0):.3g} % relevant" if len(lists.labels) else "none relevant"
    kind = "with scores" if lists.scores is not None else "without scores"
    notes = [f"{_count(len(lists.labels), 'item')}, {relevant}, {kind}."]
    notes += remaining(_FEW, len(lists), "in to_pandas()")
    columns = ("query", "items", "relevant", "highest label")
    return html_table(f"Lists of {_count(len(lists), 'query')}", columns, rows, notes=notes)


def _counts_of(lists: Lists, query: int) -> list[str]:
    labels = lists.labels[lists.offsets[query] : lists.offsets[query + 1]]
    return [f"{len(labels):,}", f"{np.count_nonzero(labels > 0):,}", f"{labels.max():g}" if len(labels) else "–"]


def _policy(result: Evaluation, *, counts: bool = True) -> list[str]:
    """How the values were computed, as one sentence."""
    parts = [_count(result.empty_queries, "empty query")] if counts and result.empty_queries else []
    parts += [f"{name}: {value}" for name, value in result.policy.items()]
    text = "; ".join(parts)
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def _count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> _count(1, "query"), _count(1200, "query"), _count(0, "run")
    ('1 query', '1,200 queries', '0 runs')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
