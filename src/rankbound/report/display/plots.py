"""The plot of each result. `Plot` shows it in a notebook; the charts are those of `rankbound.report.figures`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rankbound.difficulty.bounding import Bounds
from rankbound.difficulty.distribution import Distribution
from rankbound.display import TrainingHistory, plot_of
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.comparison import Comparison
from rankbound.evaluation.result import Evaluation, Evaluations
from rankbound.lists import Lists
from rankbound.measures import Measure, parse_measure
from rankbound.report.display.plot import Plot, check_can_plot

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BINS, _SCORE_BINS = 20, 60
_PANELS = 9  # measures, or runs, with a panel of their own
_RUNS = 25  # runs that share one panel
_POINTS, _BARS, _QUERIES = 600, 300, 40  # queries drawn as points, bars and lines: the same fraction everywhere


# ---- evaluations -----------------------------------------------------------------------------------------------------


@plot_of.register(Evaluation)
def plot_evaluation(result: Evaluation, *, measure: str | Measure | None = None) -> Plot:
    """Histograms of all measures, or the queries of one measure."""
    check_can_plot()
    if measure is not None:
        name = _check_measure(measure, result.measures)
        if name in result.bounds:
            return _query_map(result, name)
        return _histograms({name: result.values[name]}, f"{name} of {result.queries:,} queries")
    values = {name: value for name, value in result.values.items() if not np.isnan(value).all()}
    if not values:
        names = " and ".join(result.measures) or "the evaluation"
        raise DataError(f"there is nothing to plot: {names} has no value for any of {result.queries} queries")
    return _histograms(values, f"Evaluation of {result.queries:,} queries")


@plot_of.register(Evaluations)
def plot_evaluations(results: Evaluations, *, measure: str | Measure | None = None) -> Plot:
    """The means of all runs with their intervals, or the queries of one measure."""
    check_can_plot()
    from rankbound.report.figures.systems import system_means

    names = list(dict.fromkeys(name for result in results.values() for name in result.measures))
    if measure is not None:
        name = _check_measure(measure, names)
        values = {run: result.values[name] for run, result in results.items() if name in result.values}
        return _histograms(values, f"{name} of {len(values)} runs")
    rows = [row for run, result in list(results.items())[:_RUNS] for row in _means(run, result)]
    if not rows:
        raise DataError(f"there is nothing to plot: no measure has a value for any of {len(results)} runs")
    whiskers = ", and whiskers over the labels of unjudged documents" if "label_low" in rows[0] else ""
    title = f"Means of {len(results)} runs, with 95 % intervals{whiskers}"
    return Plot(system_means(pl.DataFrame(rows)).properties(title=title), title)


def _means(run: str, result: Evaluation) -> Iterable[dict[str, Any]]:
    means, counts = result.mean(), result.counted_queries()
    over_labels = result.range() if result.ranges else {}
    for name, (low, high) in result.interval().items():
        if counts[name]:
            ends = {"ci_low": low, "ci_high": high} if counts[name] > 1 else dict.fromkeys(("ci_low", "ci_high"))
            row = {"data": "", "variant": "", "measure": name, "system": run, "mean": means[name], **ends}
            if name in over_labels:
                row |= dict(zip(("label_low", "label_high"), over_labels[name], strict=True))
            yield row | {"queries": counts[name]}


def _histograms(values: Mapping[str, NDArray[np.float64]], title: str) -> Plot:
    from rankbound.report.figures.results import value_histograms

    parts = []
    for panel, value in list(values.items())[:_PANELS]:
        counted = value[~np.isnan(value)]
        if not len(counted):
            continue
        count, edges = np.histogram(counted, bins=_edges(counted))
        columns = {"low": edges[:-1], "high": edges[1:], "queries": count, "mean": np.full(len(count), counted.mean())}
        parts.append(pl.DataFrame({"panel": [panel] * len(count)} | columns))
    if not parts:
        raise DataError(f"there is nothing to plot: {' and '.join(values)} has no value for any query")
    if len(values) > _PANELS:
        title = f"{title} (the first {_PANELS} of {len(values)} panels)"
    return Plot(value_histograms(pl.concat(parts), title=title), title)


def _edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bins of equal width; from 0 to 1 where all values are there."""
    if values.min() >= 0 and values.max() <= 1:
        return np.linspace(0, 1, _BINS + 1)
    return np.histogram_bin_edges(values, bins=_BINS)


def _query_map(result: Evaluation, name: str) -> Plot:
    from rankbound.evaluation.query_sets import types_of
    from rankbound.report.figures.contrasts import thin_out
    from rankbound.report.figures.difficulty import query_map

    bounds, value = result.bounds[name], result.complete.get(name, result.values[name])
    types = types_of(parse_measure(name), value, bounds.expected, bounds.best, bounds.worst)
    columns = {"data": "", "variant": "", "qid": [str(qid) for qid in result.query_ids], "type": types.astype(np.str_)}
    table = pl.DataFrame(columns | {"value": value, "expected": bounds.expected})
    table = table.filter(pl.Series(~np.isnan(result.values[name])))
    if table.is_empty():
        raise DataError(f"there is nothing to plot: {name} has no value for any of {result.queries} queries")
    title = f"{name} of {table.height:,} queries, compared with random ranking"
    table = thin_out(table, ["data", "variant"], "expected", _POINTS)
    return Plot(query_map(table, name, title=f"{name} of the run").properties(title=title), title)


# ---- comparisons -----------------------------------------------------------------------------------------------------


@plot_of.register(Comparison)
def plot_comparison(comparison: Comparison, *, measure: str | Measure | None = None) -> Plot:
    """The differences of all measures with their intervals, or those of the queries by one measure."""
    check_can_plot()
    if measure is not None:
        return _query_differences(comparison, _check_measure(measure, comparison.measures))
    from rankbound.report.figures.results import differences

    shown = comparison.measures[:_PANELS]
    table = comparison.table.filter(pl.col("measure").is_in(shown) & pl.col("difference").is_not_null())
    if table.is_empty():
        raise DataError("there is nothing to plot: no query counts for any measure of the comparison")
    if comparison.baseline is None:
        table = table.with_columns(pl.format("{} − {}", "run", "baseline").alias("run"))
        title = f"Differences between {len(comparison.runs)} runs"
    else:
        title = f"Differences from {comparison.baseline}"
    table = table.filter(pl.col("run").is_in(table["run"].unique(maintain_order=True).head(_RUNS).to_list()))
    level = f"{100 * comparison.inference.confidence:g} %"
    return Plot(differences(table, title=title, level=level), title)


def _query_differences(comparison: Comparison, name: str) -> Plot:
    from rankbound.evaluation.scores import is_lower_better
    from rankbound.report.figures.results import differences_by_query

    scores, counted = comparison.scores, comparison.scores.counted(name)
    if not counted.any():
        raise DataError(f"there is nothing to plot: {name} has no value for any query that all runs have")
    qids = np.array([str(qid) for qid in scores.query_ids])[counted]
    better = -1 if is_lower_better(name) else 1
    parts = []
    for baseline, run in comparison.pairs[:_PANELS]:
        difference = scores.differences(name, np.array([run]), np.array([baseline]))[counted, 0]
        order = np.argsort(-difference, kind="stable")
        order = order[_evenly(len(order), _BARS)]
        outcome = np.array(["worse", "equal", "better"])[1 + np.sign(better * difference[order]).astype(np.int64)]
        positions = np.linspace(0, len(difference), len(order) + 1)
        columns = {"position": positions[:-1], "end": positions[1:], "qid": qids[order], "outcome": outcome}
        pair = f"{comparison.runs[run]} − {comparison.runs[baseline]}"
        parts.append(pl.DataFrame({"run": [pair] * len(order)} | columns | {"difference": difference[order]}))
    title = f"Differences of {name} on {int(counted.sum()):,} queries"
    return Plot(differences_by_query(pl.concat(parts), title=title, measure=name), title)


# ---- bounds and distributions ----------------------------------------------------------------------------------------


@plot_of.register(Bounds)
def plot_bounds(bounds: Bounds) -> Plot:
    """From the worst to the best value of each query, with the expected one."""
    check_can_plot()
    from rankbound.report.figures.results import bounds_of_queries

    sides = {side: np.ravel(getattr(bounds, side)).astype(np.float64) for side in ("worst", "expected", "best")}
    table = pl.DataFrame({"position": np.arange(len(sides["worst"]))} | sides).sort("expected", maintain_order=True)
    if table.is_empty():
        raise DataError("there is nothing to plot: the bounds are those of 0 queries")
    total = table.height
    table = table[_evenly(total, _QUERIES)]
    title = "Bounds of a query" if np.ndim(bounds.worst) == 0 else f"Bounds of {total:,} queries"
    if table.height < total:
        title = f"{title} ({table.height} of them, evenly spread)"
    return Plot(bounds_of_queries(table, title=title), title)


@plot_of.register(Distribution)
def plot_distribution(distribution: Distribution, *, score: float | None = None) -> Plot:
    """The probability of each score, and where a score lies among them."""
    check_can_plot()
    from rankbound.report.figures.results import distribution_of_scores

    marks = [{"score": distribution.mean, "mark": "mean"}]
    subtitle = f"mean {distribution.mean:.4f}, standard deviation {distribution.std:.4f}"
    if score is not None:
        if isinstance(score, bool) or not isinstance(score, (int, float, np.number)) or not np.isfinite(score):
            raise ArgumentError(f"score must be a finite number or None, got {score!r}")
        marks.append({"score": float(score), "mark": f"score {score:.4g}"})
        subtitle = f"probability of a score of {score:.4g} or more: {distribution.survival(score):.3g}"
    title = f"Distribution of {distribution.measure} under random ranking"
    low, high, probability = _score_bars(distribution.scores, distribution.probabilities)
    table = pl.DataFrame({"low": low, "high": high, "probability": probability})
    return Plot(distribution_of_scores(table, pl.DataFrame(marks), title=title, subtitle=subtitle), title)


def _score_bars(scores: NDArray[np.float64], probabilities: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """A bar for each of a few scores, or the sums over bins of equal width."""
    span = float(scores[-1] - scores[0]) or 1.0
    if len(scores) > _SCORE_BINS:
        sums, edges = np.histogram(scores, bins=_SCORE_BINS, weights=probabilities)
        return edges[:-1], edges[1:], sums
    gap = float(np.diff(scores).min()) if len(scores) > 1 else 0.05
    half = 0.5 * max(0.8 * gap, span / 150)
    return scores - half, scores + half, probabilities


# ---- lists and rankers -----------------------------------------------------------------------------------------------


@plot_of.register(Lists)
def plot_lists(lists: Lists) -> Plot:
    """Queries by their number of items, and items by their label."""
    check_can_plot()
    from rankbound.report.figures.results import list_contents

    if not len(lists.labels):
        raise DataError(f"there is nothing to plot: the lists have {len(lists)} queries and no item")
    sizes = lists.sizes
    width = max(1, int(np.ceil((sizes.max() - sizes.min() + 1) / _BINS)))
    queries, edges = np.histogram(sizes, bins=np.arange(sizes.min(), sizes.max() + width + 1, width))
    names, items = _labels(lists.labels)
    title = f"{len(lists):,} queries, {len(lists.labels):,} items"
    shape = pl.DataFrame({"low": edges[:-1], "high": edges[1:], "queries": queries})
    return Plot(list_contents(shape, pl.DataFrame({"label": names, "items": items}), title=title), title)


def _labels(labels: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """Labels, or intervals of labels where there are many different ones, with the number of their items."""
    values, counts = np.unique(labels, return_counts=True)
    if len(values) <= _BINS:
        return [f"{value:g}" for value in values], counts
    counts, edges = np.histogram(labels, bins=10)
    return [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)], counts


@plot_of.register(TrainingHistory)
def plot_history(training: TrainingHistory) -> Plot:
    """Loss and measures of a ranker by epoch."""
    check_can_plot()
    from rankbound.report.figures.results import training_history

    if training.history is None:
        raise ArgumentError(
            f"plot shows history_, the loss and the measures of each epoch, and {training.ranker} has none; rankers "
            "that are trained in epochs, such as MLPRanker and MatrixFactorization, have one"
        )
    rows = [
        {"quantity": quantity, "epoch": entry["epoch"], "value": float(value)}
        for entry in training.history
        for quantity, value in entry.items()
        if quantity != "epoch" and value is not None and np.isfinite(value)
    ]
    if not rows:
        raise DataError(f"there is nothing to plot: the history of {training.ranker} has no epoch")
    table = pl.DataFrame(rows)
    quantities = table["quantity"].unique(maintain_order=True).head(_PANELS)
    table = table.filter(pl.col("quantity").is_in(quantities.to_list())).sort("epoch", maintain_order=True)
    title = f"Training of {training.ranker}"
    return Plot(training_history(table, training.kept_epoch, title=title), title)


# ---- shared ----------------------------------------------------------------------------------------------------------


def _check_measure(measure: str | Measure, measures: Sequence[str]) -> str:
    name = str(measure)
    if name not in measures:
        raise ArgumentError(f"measure must be one of {', '.join(measures)}, got {name!r}")
    return name


def _evenly(total: int, most: int) -> NDArray[np.int64]:
    """The indices of at most ``most`` entries of ``total``, evenly spread, with the first and the last."""
    return np.arange(total) if total <= most else np.linspace(0, total - 1, most).round().astype(np.int64)
