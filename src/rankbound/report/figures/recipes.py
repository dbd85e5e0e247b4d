"""From the tables of a store to charts: what is computed for each figure, and how much of a large table is drawn.

A recipe gives its charts by case: "" where there is only one, the loss where there is one for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import polars as pl

from rankbound.analysis import curves, image_pairs, instances, learning, query_sets
from rankbound.analysis import marginal_means as marginal
from rankbound.analysis import meta_evaluation as meta
from rankbound.analysis.score_tables import (
    QUERY,
    Contrast,
    contrasts,
    mean_scores,
    measures_of,
    systems_of,
    trial_means,
)
from rankbound.errors import DataError
from rankbound.measures import parse_measure
from rankbound.report.figures import difficulty as difficulty_figures
from rankbound.report.figures import instances as instance_figures
from rankbound.report.figures import measures as measure_figures
from rankbound.report.figures import systems as system_figures
from rankbound.report.figures import training as training_figures
from rankbound.report.figures.theme import LIMIT

Charts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tables:
    """What figures are drawn from: scores per query, results per setting, histories of training, pairs of images."""

    scores: pl.DataFrame
    results: pl.DataFrame | None = None
    history: pl.DataFrame | None = None
    examples: pl.DataFrame | None = None


# ---- what is drawn of large tables -----------------------------------------------------------------------------------

PLACES, SYSTEMS, MEASURES, QUANTITIES = 6, 6, 6, 4  # rows and columns of panels that a page or a sheet can hold
LEARNED = 4  # models whose coefficients and pairs of images are shown
BOOTSTRAPPED = 2000  # queries up to which significance levels are bootstrapped


def _few_places(table: pl.DataFrame) -> pl.DataFrame:
    first = table.select("data", "variant").unique(maintain_order=True).head(PLACES)
    return table.join(first, on=["data", "variant"], how="semi", maintain_order="left")


def _few_measures(table: pl.DataFrame, most: int = MEASURES) -> list[str]:
    """One measure of each family and bounding before a second, plain before bounded, whole lists before cutoffs."""
    names = measures_of(table)
    if not names:
        raise DataError("the table has no column that is a measure")
    seen: dict[tuple[str, str], int] = {}
    ranks = []
    for place, name in enumerate(names):
        measure = parse_measure(name)
        key = (measure.family, measure.bounding)
        seen[key] = seen.get(key, -1) + 1
        ranks.append((seen[key] > 0, measure.bounding != "none", measure.cutoff is not None, place))
    chosen = sorted(range(len(names)), key=ranks.__getitem__)[:most]
    return [names[place] for place in sorted(chosen)]


def _few_systems(contrast: Contrast) -> Contrast:
    return replace(contrast, systems=contrast.systems[:SYSTEMS], labels=contrast.labels[:SYSTEMS])


def _each_contrast(draw: Callable[[pl.DataFrame, Contrast], Any]) -> Callable[[Tables], Charts]:
    def charts(tables: Tables) -> Charts:
        table = _few_places(tables.scores)
        return {contrast.case: draw(table, _few_systems(contrast)) for contrast in contrasts(tables.scores)}

    return charts


# These need no tables, so they are the same every time.
_bounded_losses = cache(curves.bounded_losses)
_smooth_distributions = cache(curves.smooth_distributions)
_distribution_curves = cache(curves.distribution_curves)


# ---- one function per figure: tables in, charts by case out ----------------------------------------------------------


def bounded_losses(tables: Tables) -> Charts:
    """Thesis, figures 3.1, 3.3, 3.4, 3.7."""
    names = ("min-max", "expectation", "expectation-max", "distribution")
    return {name: difficulty_figures.bounded_losses(_bounded_losses(name)) for name in names}


def expected_histogram(tables: Tables) -> Charts:
    """Upper & lower bound paper, figures 2 and 3."""
    table = _few_places(tables.scores)
    plain = [name for name in _few_measures(table) if parse_measure(name).bounding == "none"][:3]
    found = {name: curves.expected_histogram(table, name) for name in plain}
    return {name: difficulty_figures.expected_histogram(bars, name) for name, bars in found.items()}


def query_map(tables: Tables) -> Charts:
    """Upper & lower bound paper, figure 1, with the queries at hand."""
    table = _few_places(tables.scores)
    measure = _few_measures(table, 1)[0]
    found = instances.thinned(query_sets.query_map(table, measure), ["data", "variant"], "expected", LIMIT)
    shown = found.select("data", "variant", "qid", "items", "relevant", "value", "expected", "type")
    return {"": difficulty_figures.query_map(shown, measure)}


def system_means(tables: Tables) -> Charts:
    """Recommendation paper, figure 1."""
    table = _few_places(tables.scores)
    return {"": system_figures.system_means(mean_scores(table, _few_measures(table, 4)))}


def _score_distributions(table: pl.DataFrame, contrast: Contrast) -> Any:
    panels = len(contrast.systems) * table.select("data", "variant").n_unique()
    lines, intervals = instances.score_distributions(table, contrast, points=min(100, LIMIT // (3 * panels)))
    return instance_figures.score_distributions(lines, intervals, contrast)


def _instance_scatter(table: pl.DataFrame, contrast: Contrast) -> Any:
    points = instances.instance_scores(table, contrast, limit=LIMIT)
    return instance_figures.instance_scatter(_typed(points, table, contrast), contrast)


def _gain_by_activity(table: pl.DataFrame, contrast: Contrast) -> Any:
    lines = instances.activity_curves(table, contrast)
    points = instances.instance_scores(table, contrast, limit=LIMIT - len(lines))
    return instance_figures.gain_by_activity(_typed(points, table, contrast), lines, contrast)


def _typed(points: pl.DataFrame, table: pl.DataFrame, contrast: Contrast) -> pl.DataFrame:
    """The points with the type of their query, which pages can filter by, where the table tells it."""
    try:
        types = query_sets.type_queries(table, [contrast.measure])
    except DataError:  # the plain measure is not in the table
        return points.drop("fold")
    return points.join(types, on=list(QUERY), how="left", maintain_order="left").drop("fold")


def _trials(table: pl.DataFrame, most: int = MEASURES) -> pl.DataFrame:
    if len(systems_of(table)) < 2:
        raise DataError(f"a comparison needs at least 2 systems, the table has one: {systems_of(table)[0]}")
    return trial_means(table, _few_measures(table, most))


def marginal_means(tables: Tables) -> Charts:
    """Recommendation paper, figure 3."""
    return {"": system_figures.marginal_means(marginal.system_marginal_means(_trials(tables.scores)))}


def marginal_means_by_data(tables: Tables) -> Charts:
    """Recommendation paper, figure 4."""
    means = marginal.system_marginal_means(_trials(_few_places(tables.scores), 4), by_data=True)
    return {"": system_figures.marginal_means(means, by_data=True)}


def meta_evaluation(tables: Tables) -> Charts:
    """Upper & lower bound paper, tables 6 to 9 and 16 to 19."""
    return {"": measure_figures.meta_evaluation(_meta_evaluation(tables))}


def _meta_evaluation(tables: Tables) -> pl.DataFrame:
    families = meta.measure_families(tables.scores)
    few = dict(list(families.items())[: 2 * MEASURES])
    return meta.meta_evaluation(_few_places(tables.scores), few)


def swap_rates(tables: Tables) -> Charts:
    """Upper & lower bound paper, tables 10, 11, 20, 21."""
    found = _meta_evaluation(tables)
    if found.filter(pl.col("quantity") == "swap rate").is_empty():
        raise DataError("swap rates need two data sets, or ideal and uninformative queries")
    return {"": measure_figures.swap_rates(found)}


def training_paths(tables: Tables) -> Charts:
    """Neural ranking paper, figures 1, 4, 5."""
    assert tables.history is not None
    shown = _learning_quantities(tables.history)[:QUANTITIES]
    return {"": training_figures.training_paths(_few_paths(tables.history, shown))}


def approximation_error(tables: Tables) -> Charts:
    """Direct optimization paper, figures 1 to 3."""
    assert tables.history is not None
    names = tables.history["quantity"].unique(maintain_order=True)
    errors = names.filter(names.str.contains("approximation error")).to_list()[:QUANTITIES]
    return {"": training_figures.approximation_error(_few_paths(tables.history, errors or ["approximation error"]))}


def _few_paths(history: pl.DataFrame, quantities: Sequence[str]) -> pl.DataFrame:
    return learning.training_paths(_few_places(history), quantities, limit=LIMIT)


def _learning_quantities(history: pl.DataFrame) -> list[str]:
    names = list(history["quantity"].unique(maintain_order=True))
    return [name for name in names if "approximation error" not in name and not name.startswith(learning.COEFFICIENT)]


def learned_coefficients(tables: Tables) -> Charts:
    """Neural ranking paper, figure 3."""
    assert tables.history is not None
    images, shape = learning.coefficients_of_history(tables.history)
    first = dict(list(images.items())[:LEARNED])
    return {"": training_figures.learned_coefficients(learning.coefficient_images(first, shape, limit=LIMIT))}


def example_pairs(tables: Tables) -> Charts:
    """Neural ranking paper, figures 2, 6, 7: a figure for each model."""
    assert tables.examples is not None
    parts = tables.examples.partition_by("table", "data", "system", maintain_order=True)[:LEARNED]
    systems = [part["system"][0] for part in parts]
    return {
        system if systems.count(system) == 1 else f"{system}, {part['table'][0] or part['data'][0]}": (
            training_figures.example_pairs(image_pairs.pictures_of(part))
        )
        for system, part in zip(systems, parts, strict=True)
    }


score_distributions = _each_contrast(_score_distributions)
instance_scatter = _each_contrast(_instance_scatter)
gain_by_activity = _each_contrast(_gain_by_activity)


def cutoff_curves(tables: Tables) -> Charts:
    """Thesis, figure 5.1: a row of panels for each loss."""
    table, parts = _few_places(tables.scores), []
    cases = contrasts(tables.scores)
    for case in map(_few_systems, cases):
        labels = {case.baseline: "none" if case.case else case.baseline} | dict(
            zip(case.systems, case.labels, strict=True)
        )
        chosen = table.filter(pl.col("system").is_in(list(labels))).with_columns(pl.col("system").replace(labels))
        lines = curves.cutoff_curves(chosen)
        parts.append(lines.with_columns(pl.lit(f"{case.case} loss").alias("case")) if case.case else lines)
    return {"": system_figures.cutoff_curves(pl.concat(parts), "nDCG")}


def best_counts(tables: Tables) -> Charts:
    """Recommendation paper, figure 2."""
    return {"": system_figures.best_counts(marginal.best_counts(_trials(tables.scores)))}


def measure_agreement(tables: Tables) -> Charts:
    """Upper & lower bound paper, tables 6 and 16."""
    taus = meta.tau_between_measures(tables.scores, _few_measures(tables.scores, 2 * MEASURES))
    return {"": measure_figures.measure_agreement(taus)}


def asl_curves(tables: Tables) -> Charts:
    """Sakai's curves of achieved significance levels."""
    queries = tables.scores.select(QUERY).n_unique()
    test = "bootstrap" if queries <= BOOTSTRAPPED else "t"  # with many queries both give the same, one at a cost
    levels = meta.asl_curves(tables.scores, _few_measures(tables.scores), test=test)
    return {"": measure_figures.asl_curves(levels)}


def lower_bounds(tables: Tables) -> Charts:
    """Thesis, figure 1.1."""
    return {"": difficulty_figures.lower_bounds(curves.lower_bounds())}


def expected_losses(tables: Tables) -> Charts:
    """Thesis, figure 3.2."""
    return {"": difficulty_figures.expected_losses(curves.expectation_curves())}


def smooth_distributions(tables: Tables) -> Charts:
    """Thesis, figure 3.5."""
    return {"": difficulty_figures.smooth_distributions(_smooth_distributions())}


def distributions(tables: Tables) -> Charts:
    """Thesis, figure 3.6."""
    return {"": difficulty_figures.distributions(_distribution_curves())}


def published_and_ours(tables: Tables) -> Charts:
    """Results beside those that were published."""
    assert tables.results is not None
    missing = [name for name in ("measure", "published", "ours") if name not in tables.results.columns]
    if missing:
        raise DataError(f"a table of results needs the columns measure, published, ours; missing: {', '.join(missing)}")
    rows = tables.results.filter(pl.col("published").is_not_null(), pl.col("ours").is_not_null())
    if rows.is_empty():
        raise DataError("no result has a published counterpart")
    numbers = {name: pl.Float64 for name in ("ci_low", "ci_high", "difference") if name not in rows.columns}
    settings = [name for name, kind in rows.schema.items() if kind == pl.String and name not in ("measure", "note")]
    label = pl.concat_str([pl.col(name).fill_null("") for name in settings] or [pl.lit("")], separator=" · ")
    rows = rows.with_columns(
        label.str.replace_all(r"( · )+", " · ").alias("setting"),
        *(pl.lit(None, dtype=kind).alias(name) for name, kind in numbers.items()),
        *([] if "data" in rows.columns else [pl.lit("results").alias("data")]),
    )
    first = rows["measure"].unique(maintain_order=True).head(MEASURES)
    shown = ("setting", "data", "measure", "published", "ours", "difference", "ci_low", "ci_high")
    rows = rows.filter(pl.col("measure").is_in(first.to_list())).select(shown).head(LIMIT)
    return {"": system_figures.published_and_ours(rows)}
