"""One function per figure from the tables of a store to charts, and the limits on what is drawn of large tables.

A recipe returns its charts by case: "" where there is only one, the loss where there is one for each. Docstrings name
the figure or table of the paper that a chart corresponds to; `catalog.PAPERS` has the authors and titles.
"""

from __future__ import annotations

import re
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
from rankbound.analysis.scores import is_lower_better
from rankbound.errors import DataError
from rankbound.measures import Measure, parse_measure
from rankbound.report.figures import difficulty as difficulty_figures
from rankbound.report.figures import instances as instance_figures
from rankbound.report.figures import measures as measure_figures
from rankbound.report.figures import systems as system_figures
from rankbound.report.figures import training as training_figures
from rankbound.report.figures.theme import LIMIT

Charts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tables:
    """The data of figures: scores per query, results per setting, histories of training, pairs of images."""

    scores: pl.DataFrame
    results: pl.DataFrame | None = None
    history: pl.DataFrame | None = None
    examples: pl.DataFrame | None = None


# ---- limits for large tables -----------------------------------------------------------------------------------------

DATA_SETS, PANELS, MEASURES, QUANTITIES = 6, 6, 6, 4  # rows and columns of panels that fit on a page
LISTED = 25  # systems that share one panel
MODELS = 4  # models whose coefficients and pairs of images are shown
BOOTSTRAPPED = 2000  # up to this many queries, significance levels are bootstrapped


def _first_data_sets(table: pl.DataFrame) -> pl.DataFrame:
    first = table.select("data", "variant").unique(maintain_order=True).head(DATA_SETS)
    return table.join(first, on=["data", "variant"], how="semi", maintain_order="left")


def _select_measures(table: pl.DataFrame, most: int = MEASURES) -> list[str]:
    """Prefer measures that differ in more than their parameters; plain to bounded ones, whole lists to cutoffs."""
    names = measures_of(table)
    if not names:
        raise DataError("the table has no column that is a measure")
    seen: dict[tuple[str, str], int] = {}
    ranks = []
    for index, name in enumerate(names):
        measure = parse_measure(name)
        key = (_base_name(measure), measure.bounding)
        seen[key] = seen.get(key, -1) + 1
        ranks.append((seen[key] > 0, measure.bounding != "none", measure.cutoff is not None, index))
    selected = sorted(range(len(names)), key=ranks.__getitem__)[:most]
    return [names[index] for index in sorted(selected)]


def _plain_of_first(table: pl.DataFrame) -> str:
    """The first measure without its bounding, by which queries are typed; another one if the table lacks it."""
    names = measures_of(table)
    plain = parse_measure(names[0]).plain if names else None
    return next((name for name in names if parse_measure(name) == plain), None) or _select_measures(table, 1)[0]


def _base_name(measure: Measure) -> str:
    """The name without wrapper, parameters and cutoff: nDCG for ``EM(nDCG(dcg='exp-log2')@10)``."""
    return re.split(r"[(@]", str(measure.plain), maxsplit=1)[0]


def _best_systems(table: pl.DataFrame, measure: str, most: int) -> list[str]:
    """At most so many systems, those with the best mean of a measure, best first; all in their order if they fit."""
    names = systems_of(table)
    if len(names) <= most:
        return names
    means = table.group_by("system", maintain_order=True).agg(pl.col(measure).fill_nan(None).mean())
    lower_first = is_lower_better(measure)
    return means.sort(measure, descending=not lower_first, nulls_last=True, maintain_order=True)["system"].to_list()[
        :most
    ]


def _contrasts(table: pl.DataFrame) -> list[Contrast]:
    """The comparisons of a table with at most PANELS systems each.

    Of more systems without a common setting (loss and bounding), the best are compared with the very best.
    """
    limited = []
    for contrast in contrasts(table):
        if not contrast.case and len(contrast.systems) > PANELS:
            baseline, *systems = _best_systems(table, contrast.measure, PANELS + 1)
            limited.append(replace(contrast, baseline=baseline, systems=tuple(systems), labels=tuple(systems)))
        else:
            limited.append(replace(contrast, systems=contrast.systems[:PANELS], labels=contrast.labels[:PANELS]))
    return limited


def _each_contrast(draw: Callable[[pl.DataFrame, Contrast], Any]) -> Callable[[Tables], Charts]:
    def charts(tables: Tables) -> Charts:
        table = _first_data_sets(tables.scores)
        return {contrast.case: draw(table, contrast) for contrast in _contrasts(tables.scores)}

    return charts


def _listed(table: pl.DataFrame, systems: Sequence[str]) -> pl.DataFrame:
    """The rows of these systems, in their order."""
    order = pl.col("system").replace_strict({name: rank for rank, name in enumerate(systems)}, return_dtype=pl.Int64)
    return table.filter(pl.col("system").is_in(list(systems))).sort(order, maintain_order=True)


def _limit_listed(table: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The rows of the best LISTED systems by the first measure, if there are more."""
    if table["system"].n_unique() <= LISTED:
        return table
    return _listed(table, _best_systems(scores, measures_of(scores)[0], LISTED))


# These depend on no tables, so they are computed once.
_bounded_losses = cache(curves.bounded_losses)
_smooth_distributions = cache(curves.smooth_distributions)
_distribution_curves = cache(curves.distribution_curves)


# ---- one function per figure: tables in, charts by case out ----------------------------------------------------------


def bounded_losses(tables: Tables) -> Charts:
    """Westerborg, figures 3.1, 3.3, 3.4, 3.7."""
    names = ("min-max", "expectation", "expectation-max", "distribution")
    return {name: difficulty_figures.bounded_losses(_bounded_losses(name)) for name in names}


def expected_histogram(tables: Tables) -> Charts:
    """Karmaker and Feng, figures 2 and 3."""
    table = _first_data_sets(tables.scores)
    plain = [name for name in _select_measures(table) if parse_measure(name).bounding == "none"][:3]
    histograms = {name: curves.expected_histogram(table, name) for name in plain}
    return {name: difficulty_figures.expected_histogram(bars, name) for name, bars in histograms.items()}


def query_map(tables: Tables) -> Charts:
    """Karmaker and Feng, figure 1, with the queries at hand."""
    table = _first_data_sets(tables.scores)
    measure = _plain_of_first(table)
    queries = instances.thinned(query_sets.query_map(table, measure), ["data", "variant"], "expected", LIMIT)
    shown = queries.select("data", "variant", "qid", "items", "relevant", "value", "expected", "type")
    return {"": difficulty_figures.query_map(shown, measure)}


def system_means(tables: Tables) -> Charts:
    """Li et al., figure 1."""
    table = _first_data_sets(tables.scores)
    return {"": system_figures.system_means(_limit_listed(mean_scores(table, _select_measures(table, 4)), table))}


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
    """Add the type of each point's query, by which pages filter, where the table allows it."""
    try:
        types = query_sets.type_queries(table, [contrast.measure])
    except DataError:  # the plain measure is not in the table
        return points.drop("fold")
    return points.join(types, on=list(QUERY), how="left", maintain_order="left").drop("fold")


def _trials(table: pl.DataFrame, most: int = MEASURES) -> pl.DataFrame:
    if len(systems_of(table)) < 2:
        raise DataError(f"a comparison needs at least 2 systems, the table has one: {systems_of(table)[0]}")
    return trial_means(table, _select_measures(table, most))


def marginal_means(tables: Tables) -> Charts:
    """Li et al., figure 3."""
    means = marginal.system_marginal_means(_trials(tables.scores))
    return {"": system_figures.marginal_means(_limit_listed(means, tables.scores))}


def marginal_means_by_data(tables: Tables) -> Charts:
    """Li et al., figure 4."""
    means = marginal.system_marginal_means(_trials(_first_data_sets(tables.scores), 4), by_data=True)
    return {"": system_figures.marginal_means(_limit_listed(means, tables.scores), by_data=True)}


def meta_evaluation(tables: Tables) -> Charts:
    """Karmaker and Feng, tables 6 to 9 and 16 to 19."""
    return {"": measure_figures.meta_evaluation(_meta_evaluation(tables))}


def _meta_evaluation(tables: Tables) -> pl.DataFrame:
    families = meta.measure_families(tables.scores)
    few = dict(list(families.items())[: 2 * MEASURES])
    scores = _first_data_sets(tables.scores)
    groups = comparison_groups(few) if few else [few]  # without measures, the error names the reason
    return pl.concat([meta.meta_evaluation(scores, group) for group in groups])


def comparison_groups(families: Mapping[str, Sequence[str]]) -> list[dict[str, Sequence[str]]]:
    """Families of measures that are compared with each other, the base of each group first.

    A normalized measure is compared with the measure that it normalizes, if that is there; all others with the first.

    >>> comparison_groups({"AP": ["AP"], "nDCG": ["nDCG"], "UL1(SP)": ["UL1(SP)"], "EM(nDCG)": ["EM(nDCG)"]})
    [{'AP': ['AP'], 'UL1(SP)': ['UL1(SP)']}, {'nDCG': ['nDCG'], 'EM(nDCG)': ['EM(nDCG)']}]
    """
    measures = {family: parse_measure(members[0]) for family, members in families.items()}
    families_of = {measure: family for family, measure in measures.items()}
    plain = {
        family: families_of[measure.plain]
        for family, measure in measures.items()
        if measure != measure.plain and measure.plain in families_of
    }
    first = plain.get(next(iter(families)), next(iter(families)))
    groups: dict[str, dict[str, Sequence[str]]] = {first: {first: families[first]}}
    groups |= {base: {base: families[base]} for base in plain.values()}
    for family, members in families.items():
        groups[family if family in groups else plain.get(family, first)][family] = members
    return list(groups.values())


def swap_rates(tables: Tables) -> Charts:
    """Karmaker and Feng, tables 10, 11, 20, 21."""
    evaluation = _meta_evaluation(tables)
    if evaluation.filter(pl.col("quantity") == "swap rate").is_empty():
        raise DataError("swap rates need two data sets, or ideal and uninformative queries")
    return {"": measure_figures.swap_rates(evaluation)}


def training_paths(tables: Tables) -> Charts:
    """Li and Wu, figures 1, 4, 5."""
    assert tables.history is not None
    shown = _learning_quantities(tables.history)[:QUANTITIES]
    return {"": training_figures.training_paths(_training_paths(tables.history, shown))}


def approximation_error(tables: Tables) -> Charts:
    """Qin et al., figures 1 to 3."""
    assert tables.history is not None
    names = tables.history["quantity"].unique(maintain_order=True)
    errors = names.filter(names.str.contains("approximation error")).to_list()[:QUANTITIES]
    return {
        "": training_figures.approximation_error(_training_paths(tables.history, errors or ["approximation error"]))
    }


def _training_paths(history: pl.DataFrame, quantities: Sequence[str]) -> pl.DataFrame:
    return learning.training_paths(_first_data_sets(history), quantities, limit=LIMIT)


def _learning_quantities(history: pl.DataFrame) -> list[str]:
    names = list(history["quantity"].unique(maintain_order=True))
    return [name for name in names if "approximation error" not in name and not name.startswith(learning.COEFFICIENT)]


def learned_coefficients(tables: Tables) -> Charts:
    """Li and Wu, figure 3."""
    assert tables.history is not None
    images, shape = learning.coefficients_of_history(tables.history)
    first = dict(list(images.items())[:MODELS])
    return {"": training_figures.learned_coefficients(learning.coefficient_images(first, shape, limit=LIMIT))}


def example_pairs(tables: Tables) -> Charts:
    """Li and Wu, figures 2, 6, 7: a figure for each model."""
    assert tables.examples is not None
    models = tables.examples.partition_by("table", "data", "system", maintain_order=True)[:MODELS]
    systems = [model["system"][0] for model in models]
    return {
        system if systems.count(system) == 1 else f"{system}, {model['table'][0] or model['data'][0]}": (
            training_figures.example_pairs(image_pairs.pictures_of(model))
        )
        for system, model in zip(systems, models, strict=True)
    }


score_distributions = _each_contrast(_score_distributions)
instance_scatter = _each_contrast(_instance_scatter)
gain_by_activity = _each_contrast(_gain_by_activity)


def cutoff_curves(tables: Tables) -> Charts:
    """Westerborg, figure 5.1: a row of panels for each loss."""
    table, panels = _first_data_sets(tables.scores), []
    for case in _contrasts(tables.scores):
        labels = {case.baseline: "none" if case.case else case.baseline} | dict(
            zip(case.systems, case.labels, strict=True)
        )
        selected = table.filter(pl.col("system").is_in(list(labels))).with_columns(pl.col("system").replace(labels))
        lines = curves.cutoff_curves(selected)
        panels.append(lines.with_columns(pl.lit(f"{case.case} loss").alias("case")) if case.case else lines)
    return {"": system_figures.cutoff_curves(pl.concat(panels), "nDCG")}


def best_counts(tables: Tables) -> Charts:
    """Li et al., figure 2."""
    counts = marginal.best_counts(_trials(tables.scores))
    if counts["system"].n_unique() > LISTED:
        totals = counts.group_by("system", maintain_order=True).agg(pl.col("count").sum())
        winners = totals.filter(pl.col("count") > 0).sort("count", descending=True, maintain_order=True)
        counts = _listed(counts, winners["system"].to_list()[:LISTED])
    return {"": system_figures.best_counts(counts)}


def measure_agreement(tables: Tables) -> Charts:
    """Karmaker and Feng, tables 6 and 16."""
    taus = meta.tau_between_measures(tables.scores, _select_measures(tables.scores, 2 * MEASURES))
    return {"": measure_figures.measure_agreement(taus)}


def asl_curves(tables: Tables) -> Charts:
    """Sakai's curves of achieved significance levels."""
    queries = tables.scores.select(QUERY).n_unique()
    test = "bootstrap" if queries <= BOOTSTRAPPED else "t"  # with many queries both agree, and the bootstrap is slow
    levels = meta.asl_curves(tables.scores, _select_measures(tables.scores), test=test)
    levels = instances.thinned(levels, ["measure"], "position", LIMIT)
    return {"": measure_figures.asl_curves(levels)}


def lower_bounds(tables: Tables) -> Charts:
    """Westerborg, figure 1.1."""
    return {"": difficulty_figures.lower_bounds(curves.lower_bounds())}


def expected_losses(tables: Tables) -> Charts:
    """Westerborg, figure 3.2."""
    return {"": difficulty_figures.expected_losses(curves.expectation_curves())}


def smooth_distributions(tables: Tables) -> Charts:
    """Westerborg, figure 3.5."""
    return {"": difficulty_figures.smooth_distributions(_smooth_distributions())}


def distributions(tables: Tables) -> Charts:
    """Westerborg, figure 3.6."""
    return {"": difficulty_figures.distributions(_distribution_curves())}


def published_and_ours(tables: Tables) -> Charts:
    """Results compared with published ones."""
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
