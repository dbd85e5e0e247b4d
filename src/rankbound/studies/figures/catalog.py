"""All figures of studies: those of score tables, and those of the papers' formulas, trials, trainings and images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType

import polars as pl

from rankbound.errors import DataError
from rankbound.evaluation.score_tables import QUERY, systems_of, trial_means
from rankbound.measures import parse_measure
from rankbound.report.figures.catalog import FIGURES as SCORE_FIGURES
from rankbound.report.figures.contrasts import thin_out
from rankbound.report.figures.drawing import Cases, Figure, Tables
from rankbound.report.figures.selection import (
    LISTED,
    MEASURES,
    OF_MANY_LISTED,
    QUANTITIES,
    first_data_sets,
    limit_systems,
    rows_of_systems,
    select_measures,
)
from rankbound.report.figures.theme import LIMIT
from rankbound.studies import curves, image_pairs, learning, marginal_means, meta_evaluation
from rankbound.studies.figures import measures, papers

MODELS = 4  # models whose coefficients and pairs of images are shown
BOOTSTRAPPED = 2000  # up to this many queries, significance levels are bootstrapped


# ---- data that depend on no table: computed once ---------------------------------------------------------------------


def _compute_once(compute: Callable[[], pl.DataFrame]) -> Callable[[Tables], Cases]:
    table = cache(compute)
    return lambda _: {"": (table(),)}


@cache
def _bounded_losses() -> Cases:
    names = ("min-max", "expectation", "expectation-max", "distribution")
    return {name: (curves.bounded_losses(name),) for name in names}


# ---- data from the tables of a study ---------------------------------------------------------------------------------


def _trials(table: pl.DataFrame | None, most: int = MEASURES) -> pl.DataFrame:
    assert table is not None
    if len(systems_of(table)) < 2:
        raise DataError(f"a comparison needs at least 2 systems, the table has one: {systems_of(table)[0]}")
    return trial_means(table, select_measures(table, most))


def _best_counts(tables: Tables) -> Cases:
    counts = marginal_means.best_counts(_trials(tables.scores))
    if counts["system"].n_unique() > LISTED:
        totals = counts.group_by("system", maintain_order=True).agg(pl.col("count").sum())
        winners = totals.filter(pl.col("count") > 0).sort("count", descending=True, maintain_order=True)
        counts = rows_of_systems(counts, winners["system"].to_list()[:LISTED])
    return {"": (counts,)}


def _marginal_means(tables: Tables) -> Cases:
    assert tables.scores is not None
    return {"": (limit_systems(marginal_means.system_marginal_means(_trials(tables.scores)), tables.scores),)}


def _marginal_means_by_data(tables: Tables) -> Cases:
    assert tables.scores is not None
    means = marginal_means.system_marginal_means(_trials(first_data_sets(tables.scores), 4), by_data=True)
    return {"": (limit_systems(means, tables.scores), True)}


def _measure_agreement(tables: Tables) -> Cases:
    assert tables.scores is not None
    return {"": (meta_evaluation.tau_between_measures(tables.scores, select_measures(tables.scores, 2 * MEASURES)),)}


def _asl_curves(tables: Tables) -> Cases:
    assert tables.scores is not None
    queries = tables.scores.select(QUERY).n_unique()
    test = "bootstrap" if queries <= BOOTSTRAPPED else "t"  # with many queries both agree, and the bootstrap is slow
    levels = meta_evaluation.asl_curves(tables.scores, select_measures(tables.scores), test=test)
    return {"": (thin_out(levels, ["measure"], "position", LIMIT),)}


def _meta_table(tables: Tables) -> pl.DataFrame:
    assert tables.scores is not None
    families = meta_evaluation.measure_families(tables.scores)
    few = dict(list(families.items())[: 2 * MEASURES])
    scores = first_data_sets(tables.scores)
    groups = comparison_groups(few) if few else [few]  # without measures, the error names the reason
    return pl.concat([meta_evaluation.meta_evaluation(scores, group) for group in groups])


def comparison_groups(families: Mapping[str, Sequence[str]]) -> list[dict[str, Sequence[str]]]:
    """Families of measures that are compared with each other, the base of each group first.

    A normalized measure is compared with the measure that it normalizes, if that is there; all others with the first.

    >>> comparison_groups({"AP": ["AP"], "nDCG": ["nDCG"], "UL1(SP)": ["UL1(SP)"], "EM(nDCG)": ["EM(nDCG)"]})
    [{'AP': ['AP'], 'UL1(SP)': ['UL1(SP)']}, {'nDCG': ['nDCG'], 'EM(nDCG)': ['EM(nDCG)']}]
    """
    parsed = {family: parse_measure(members[0]) for family, members in families.items()}
    families_of = {measure: family for family, measure in parsed.items()}
    plain = {
        family: families_of[measure.plain]
        for family, measure in parsed.items()
        if measure != measure.plain and measure.plain in families_of
    }
    first = plain.get(next(iter(families)), next(iter(families)))
    groups: dict[str, dict[str, Sequence[str]]] = {first: {first: families[first]}}
    groups |= {base: {base: families[base]} for base in plain.values()}
    for family, members in families.items():
        groups[family if family in groups else plain.get(family, first)][family] = members
    return list(groups.values())


def _swap_rates(tables: Tables) -> Cases:
    table = _meta_table(tables)
    if table.filter(pl.col("quantity") == "swap rate").is_empty():
        raise DataError("swap rates need two data sets, or ideal and uninformative queries")
    return {"": (table,)}


def _training_paths(tables: Tables) -> Cases:
    assert tables.history is not None
    names = tables.history["quantity"].unique(maintain_order=True).to_list()
    is_error, is_weight = "approximation error", learning.COEFFICIENT
    shown = [name for name in names if is_error not in name and not name.startswith(is_weight)]
    return {"": (_paths(tables.history, shown[:QUANTITIES]),)}


def _approximation_error(tables: Tables) -> Cases:
    assert tables.history is not None
    names = tables.history["quantity"].unique(maintain_order=True)
    errors = names.filter(names.str.contains("approximation error")).to_list()[:QUANTITIES]
    return {"": (_paths(tables.history, errors or ["approximation error"]),)}


def _paths(history: pl.DataFrame, quantities: Sequence[str]) -> pl.DataFrame:
    return learning.training_paths(first_data_sets(history), quantities, limit=LIMIT)


def _learned_coefficients(tables: Tables) -> Cases:
    assert tables.history is not None
    images, shape = learning.coefficients_of_history(tables.history)
    return {"": (learning.coefficient_images(dict(list(images.items())[:MODELS]), shape, limit=LIMIT),)}


def _example_pairs(tables: Tables) -> Cases:
    """A case for each model."""
    assert tables.examples is not None
    models = tables.examples.partition_by("table", "data", "system", maintain_order=True)[:MODELS]
    systems = [model["system"][0] for model in models]
    return {
        system if systems.count(system) == 1 else f"{system}, {model['table'][0] or model['data'][0]}": (
            image_pairs.pictures_of(model),
        )
        for system, model in zip(systems, models, strict=True)
    }


# ---- the table -------------------------------------------------------------------------------------------------------

FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        "lower-bounds": Figure(
            "Worst possible scores",
            "The score of the worst ranking of a query, by the fraction of its items that are relevant (Westerborg, "
            "figure 1.1).",
            (),
            _compute_once(curves.lower_bounds),
            papers.lower_bounds,
        ),
        "expected-losses": Figure(
            "Expected loss of a random ranking",
            "By the number of relevant items, with one, two and three irrelevant items for each (Westerborg, figure "
            "3.2).",
            (),
            _compute_once(curves.expectation_curves),
            papers.expected_losses,
        ),
        "bounded-losses": Figure(
            "Effect of bounding on a loss",
            "Bounded against unbounded loss, from the best to the worst ranking of six queries (Westerborg, figures "
            "3.1, 3.3, 3.4, 3.7).",
            (),
            lambda _: _bounded_losses(),
            papers.bounded_losses,
        ),
        "smooth-distributions": Figure(
            "The null distribution, exact and smooth",
            "Distribution of scores under random ranking. A small smoothing gain hides its steps, a large one follows "
            "them (Westerborg, figure 3.5).",
            (),
            _compute_once(curves.smooth_distributions),
            papers.smooth_distributions,
        ),
        "distributions": Figure(
            "Null distributions of six queries",
            "Smooth distributions of scores under random ranking, with the smoothing gain fitted to each query "
            "(Westerborg, figure 3.6).",
            (),
            _compute_once(curves.distribution_curves),
            papers.distributions,
        ),
        **SCORE_FIGURES,
        "best-counts": Figure(
            "How often each system is best",
            "Over data sets, variants, folds and seeds, by measure; ties count for every tied system (Li et al., "
            "figure 2).",
            ("scores",),
            _best_counts,
            measures.best_counts,
            f"Of more than {LISTED} systems, those that are never best are left out.",
        ),
        "marginal-means": Figure(
            "Marginal means of the systems",
            "Scores are standardized within each data set; thick lines are 95 % confidence intervals of the mean, thin "
            "ones 95 % prediction intervals of a single run (Li et al., figure 3).",
            ("scores",),
            _marginal_means,
            measures.marginal_means,
            OF_MANY_LISTED,
        ),
        "marginal-means-by-data": Figure(
            "Marginal means by data set",
            "The marginal means for each data set (Li et al., figure 4).",
            ("scores",),
            _marginal_means_by_data,
            measures.marginal_means,
            OF_MANY_LISTED,
        ),
        "measure-agreement": Figure(
            "Agreement of measures",
            "Kendall's tau between the rankings of the systems by each pair of measures, on the queries that all "
            "systems have (Karmaker and Feng, tables 6 and 16).",
            ("scores",),
            _measure_agreement,
            measures.measure_agreement,
        ),
        "asl-curves": Figure(
            "Discriminative power",
            "Achieved significance level of every pair of systems by Sakai's studentized bootstrap (by Student's t "
            f"test for more than {BOOTSTRAPPED:,} queries), largest first. The lower the curve, the more pairs the "
            "measure distinguishes; the dashed line is 0.05.",
            ("scores",),
            _asl_curves,
            measures.asl_curves,
            f"Shows at most {MEASURES} measures and {LIMIT:,} points, evenly spread.",
        ),
        "meta-evaluation": Figure(
            "Measures by set of queries",
            "Fraction of the pairs of systems that differ significantly, and of those on which a measure and its base "
            "measure disagree, by Student's paired t test at 0.05; percentage absolute difference of means; Kendall's "
            "tau with the base measure. That is the measure that a normalized one normalizes if it is shown, and "
            "otherwise the first. On all queries, and on the tenths with the smallest and the largest gain over a "
            "random ranking (Karmaker and Feng, tables 6 to 9 and 16 to 19).",
            ("scores",),
            lambda tables: {"": (_meta_table(tables),)},
            measures.meta_evaluation,
        ),
        "swap-rates": Figure(
            "Swap rates",
            "Fraction of the pairs of systems that two data sets, or two sets of queries, put in opposite orders "
            "(Karmaker and Feng, tables 10, 11, 20, 21).",
            ("scores",),
            _swap_rates,
            measures.swap_rates,
        ),
        "training-paths": Figure(
            "Training curves",
            "Loss and measures by epoch; bands range from the minimum to the maximum over folds and seeds (Li and Wu, "
            "figures 1, 4, 5).",
            ("history",),
            _training_paths,
            papers.training_paths,
            f"Beyond {LIMIT:,} points, epochs are evenly thinned out.",
        ),
        "approximation-error": Figure(
            "Approximation error during training",
            "Mean distance between the smooth measure and the exact one over the training queries (Qin et al., figures "
            "1 to 3).",
            ("history",),
            _approximation_error,
            papers.approximation_error,
        ),
        "learned-coefficients": Figure(
            "Learned coefficients",
            "Coefficients of linear models, arranged as the images they weight and divided by the largest of each "
            "model (Li and Wu, figure 3).",
            ("history",),
            _learned_coefficients,
            papers.learned_coefficients,
            f"Images are reduced to {LIMIT:,} pixels in total; at most {MODELS} models.",
        ),
        "example-pairs": Figure(
            "Pairs of images as a model orders them",
            "The model ranks the left image of each pair first; labels (ages) and scores are below. The pairs are some "
            "that it orders correctly, some that it orders wrongly, those it is most certain of, and those it can "
            "hardly distinguish (Li and Wu, figures 2, 6, 7). Test images of the first fold.",
            ("examples",),
            _example_pairs,
            papers.example_pairs,
            f"At most {MODELS} models.",
        ),
    }
)
"""Name -> figure, in the order of pages."""
