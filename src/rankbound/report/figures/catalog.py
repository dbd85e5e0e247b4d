"""Every figure by name: what it shows, which tables it needs, how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rankbound.report.figures import recipes
from rankbound.report.figures.theme import LIMIT

__all__ = ["FIGURES", "Figure"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: ``draw`` gives its charts by case ("" where there is only one), ``needs`` names tables."""

    name: str
    title: str
    caption: str
    needs: tuple[str, ...]
    draw: Callable[[recipes.Tables], Mapping[str, Any]]


_SOME = (
    f" At most {recipes.PLACES} data sets and {recipes.SYSTEMS} systems are shown, and at most {LIMIT:,} points: the "
    "same share of each panel, evenly spread."
)


_ALL = (
    Figure(
        "lower-bounds",
        "Worst possible scores",
        "What the worst ranking of a query still scores, by the share of its items that are relevant (thesis, figure "
        "1.1). Needs no data.",
        (),
        recipes.lower_bounds,
    ),
    Figure(
        "expected-losses",
        "Expected loss of a random order",
        "By the number of relevant items, with one, two and three other items for each (thesis, figure 3.2). Needs no "
        "data.",
        (),
        recipes.expected_losses,
    ),
    Figure(
        "bounded-losses",
        "What bounding does to a loss",
        "Bounded over unbounded loss from the best to the worst ranking of six queries (thesis, figures 3.1, 3.3, 3.4, "
        "3.7). Needs no data.",
        (),
        recipes.bounded_losses,
    ),
    Figure(
        "smooth-distributions",
        "The distribution of a random order, exact and smooth",
        "A small gain smooths the distribution away, a large one follows its steps (thesis, figure 3.5). "
        "Needs no data.",
        (),
        recipes.smooth_distributions,
    ),
    Figure(
        "distributions",
        "Distributions of six queries",
        "Smooth distributions of scores of random orders with the gain that fits each query (thesis, figure 3.6). "
        "Needs no data.",
        (),
        recipes.distributions,
    ),
    Figure(
        "published-and-ours",
        "Published and our results",
        "On the dashed line they agree; vertical lines are our 95 % intervals. At most six measures are shown.",
        ("results",),
        recipes.published_and_ours,
    ),
    Figure(
        "expected-histogram",
        "What random orders score on these queries",
        "Queries by the expected score of a random order (upper & lower bound paper, figures 2 and 3). A wide "
        "histogram means that the same score says different things of different queries.",
        ("scores",),
        recipes.expected_histogram,
    ),
    Figure(
        "query-map",
        "Types of queries",
        "Mean score of the systems against that of a random order; on the dashed line systems do no better than "
        "probability. "
        f"Ideal and uninformative are the tenth with the largest and smallest gain. At most {LIMIT:,} queries "
        "are drawn.",
        ("scores",),
        recipes.query_map,
    ),
    Figure(
        "system-means",
        "Mean of every system",
        "With Student's 95 % interval over queries (recommendation paper, figure 1); axes differ from panel to panel. "
        f"At most four measures and {recipes.PLACES} data sets are shown.",
        ("scores",),
        recipes.system_means,
    ),
    Figure(
        "cutoff-curves",
        "Mean nDCG@k over the cutoff",
        "Bands are 95 % intervals over queries (thesis, figure 5.1). Click the legend to bring out one system.",
        ("scores",),
        recipes.cutoff_curves,
    ),
    Figure(
        "score-distributions",
        "Distributions of scores",
        "Share of queries with at most each score; shaded where the compared system has fewer low scores than the "
        "baseline (thesis, figures 5.2 to 5.4). Drawn at no more than 100 scores per panel.",
        ("scores",),
        recipes.score_distributions,
    ),
    Figure(
        "instance-scatter",
        "Query by query against the baseline",
        "Above the dashed line the compared system is higher (thesis, figures 5.5 to 5.7)." + _SOME,
        ("scores",),
        recipes.instance_scatter,
    ),
    Figure(
        "gain-by-activity",
        "Who gains: difference to the baseline over relevant items",
        "With a penalized spline and its pointwise 95 % band, fitted to all queries (thesis, figures 5.8 to 5.10; "
        "recommendation paper, figure 5)." + _SOME,
        ("scores",),
        recipes.gain_by_activity,
    ),
    Figure(
        "best-counts",
        "How often each system is the best",
        "Over data sets, variants, folds and seeds, by measure; ties count for each (recommendation paper, figure 2).",
        ("scores",),
        recipes.best_counts,
    ),
    Figure(
        "marginal-means",
        "Marginal means of the systems",
        "Scores standardized within each data set; thick lines are 95 % confidence intervals of the mean, thin "
        "ones 95 % "
        "prediction intervals of a single run (recommendation paper, figure 3).",
        ("scores",),
        recipes.marginal_means,
    ),
    Figure(
        "marginal-means-by-data",
        "Marginal means by data set",
        "As before, for each data set (recommendation paper, figure 4).",
        ("scores",),
        recipes.marginal_means_by_data,
    ),
    Figure(
        "measure-agreement",
        "Agreement of measures",
        "Kendall's tau between the rankings of the systems by every two measures, on the queries that all have "
        "(upper & "
        "lower bound paper, tables 6 and 16).",
        ("scores",),
        recipes.measure_agreement,
    ),
    Figure(
        "asl-curves",
        "Discriminative power",
        "Achieved significance level of every pair of systems by Sakai's studentized bootstrap (beyond "
        f"{recipes.BOOTSTRAPPED:,} queries by Student's t test), largest first; the lower the curve, the more pairs a "
        f"measure tells apart. The dashed line is 0.05. At most {recipes.MEASURES} measures.",
        ("scores",),
        recipes.asl_curves,
    ),
    Figure(
        "meta-evaluation",
        "Measures by set of queries",
        "Shares of the pairs of systems that differ significantly, and of those on which a measure and the first one "
        "disagree, by Student's paired t test at 0.05; percentage absolute difference of means; Kendall's tau with the "
        "first measure. On all queries, and on the tenth with the smallest and the tenth with the largest gain over a "
        "random order (upper & lower bound paper, tables 6 to 9 and 16 to 19).",
        ("scores",),
        recipes.meta_evaluation,
    ),
    Figure(
        "swap-rates",
        "Swap rates",
        "Share of the pairs of systems that two data sets, or two sets of queries, put in opposite orders "
        "(upper & lower "
        "bound paper, tables 10, 11, 20, 21).",
        ("scores",),
        recipes.swap_rates,
    ),
    Figure(
        "training-paths",
        "Along training",
        "Loss and measures by epoch; bands reach from the least to the greatest of folds and seeds (neural "
        "ranking paper, "
        f"figures 1, 4, 5). Epochs are left out evenly beyond {LIMIT:,} points.",
        ("history",),
        recipes.training_paths,
    ),
    Figure(
        "approximation-error",
        "Approximation error along training",
        "Mean distance between the smooth measure and the true one over the training queries (direct "
        "optimization paper, "
        "figures 1 to 3).",
        ("history",),
        recipes.approximation_error,
    ),
    Figure(
        "learned-coefficients",
        "Learned coefficients",
        "Coefficients of linear models, laid out as the images they weigh, over the largest of each model "
        "(neural ranking "
        f"paper, figure 3). Images are shrunk to {LIMIT:,} pixels together; at most {recipes.LEARNED} models.",
        ("history",),
        recipes.learned_coefficients,
    ),
    Figure(
        "example-pairs",
        "Pairs of images as a model orders them",
        "The left one of a pair is the one that the model puts first, with their labels (ages) and scores: some that "
        "it has right and some that it has wrong, those it is surest of, and those it can hardly tell apart (neural "
        f"ranking paper, figures 2, 6, 7). Test images of the first fold; at most {recipes.LEARNED} models.",
        ("examples",),
        recipes.example_pairs,
    ),
)
FIGURES: Mapping[str, Figure] = MappingProxyType({figure.name: figure for figure in _ALL})
