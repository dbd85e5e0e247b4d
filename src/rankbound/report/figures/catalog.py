"""Every figure by name: its title and caption, the tables it needs, and the function that draws it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rankbound.report.figures import recipes
from rankbound.report.figures.theme import LIMIT

__all__ = ["FIGURES", "PAPERS", "Figure"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: ``draw`` returns its charts by case ("" where there is only one), ``needs`` names tables."""

    name: str
    title: str
    caption: str
    needs: tuple[str, ...]
    draw: Callable[[recipes.Tables], Mapping[str, Any]]


# The papers that captions refer to, by their short names.
PAPERS: Mapping[str, str] = MappingProxyType(
    {
        "Westerborg": "Ties Westerborg, User/Query-wise Metric Bounding in Learning to Rank, MSc thesis, TU "
        "Delft, 2022",
        "Li and Wu": "Wanshan Li and Weichen Wu, Application of Neural Networks in Ranking",
        "Qin et al.": "Tao Qin, Tie-Yan Liu and Hang Li, A General Approximation Framework for Direct Optimization of "
        "Information Retrieval Measures, 2010",
        "Li et al.": "Roger Zhe Li, Julián Urbano and Alan Hanjalic, New Insights into Metric Optimization for "
        "Ranking-based Recommendation, SIGIR 2021",
        "Karmaker and Feng": "Shubhra Kanti Karmaker and Dongji Feng, Joint Upper & Lower Bound Normalization for IR "
        "Evaluation",
    }
)
_SUBSET = (
    f" Shows at most {recipes.DATA_SETS} data sets, the best {recipes.PANELS} systems, and {LIMIT:,} points: the same "
    "fraction of each panel, evenly spread."
)
_LISTED = f" Of more than {recipes.LISTED} systems, the best {recipes.LISTED} are shown."


_ALL = (
    Figure(
        "lower-bounds",
        "Worst possible scores",
        "The score of the worst ranking of a query, by the fraction of its items that are relevant (Westerborg, figure "
        "1.1).",
        (),
        recipes.lower_bounds,
    ),
    Figure(
        "expected-losses",
        "Expected loss of a random ranking",
        "By the number of relevant items, with one, two and three irrelevant items for each (Westerborg, figure 3.2).",
        (),
        recipes.expected_losses,
    ),
    Figure(
        "bounded-losses",
        "Effect of bounding on a loss",
        "Bounded against unbounded loss, from the best to the worst ranking of six queries (Westerborg, figures 3.1, "
        "3.3, 3.4, 3.7).",
        (),
        recipes.bounded_losses,
    ),
    Figure(
        "smooth-distributions",
        "The null distribution, exact and smooth",
        "Distribution of scores under random ranking. A small smoothing gain hides its steps, a large one follows them "
        "(Westerborg, figure 3.5).",
        (),
        recipes.smooth_distributions,
    ),
    Figure(
        "distributions",
        "Null distributions of six queries",
        "Smooth distributions of scores under random ranking, with the smoothing gain fitted to each query "
        "(Westerborg, figure 3.6).",
        (),
        recipes.distributions,
    ),
    Figure(
        "published-and-ours",
        "Published results and ours",
        "They agree on the dashed line; vertical lines are our 95 % intervals. Shows at most six measures.",
        ("results",),
        recipes.published_and_ours,
    ),
    Figure(
        "expected-histogram",
        "Scores of random rankings on these queries",
        "Queries by the expected score of a random ranking (Karmaker and Feng, figures 2 and 3). In a wide histogram "
        "the same score means different things on different queries.",
        ("scores",),
        recipes.expected_histogram,
    ),
    Figure(
        "query-map",
        "Types of queries",
        "Mean score of the systems, as complete rankings of the candidates, against the expected score of a random "
        "ranking; on the dashed line the systems do no better than random (after Karmaker and Feng, figure 1). The "
        f"section on single queries explains the types. Shows at most {LIMIT:,} queries.",
        ("scores",),
        recipes.query_map,
    ),
    Figure(
        "system-means",
        "Mean of every system",
        "With Student's 95 % interval over queries (Li et al., figure 1); each panel has its own axis. Shows at most "
        f"four measures and {recipes.DATA_SETS} data sets." + _LISTED,
        ("scores",),
        recipes.system_means,
    ),
    Figure(
        "cutoff-curves",
        "Mean nDCG@k by cutoff",
        "Bands are 95 % intervals over queries (Westerborg, figure 5.1). Click the legend to highlight one system.",
        ("scores",),
        recipes.cutoff_curves,
    ),
    Figure(
        "score-distributions",
        "Distributions of scores",
        "Fraction of queries with at most each score; shaded where the system has fewer low scores than the baseline "
        f"(Westerborg, figures 5.2 to 5.4). Shows at most {recipes.DATA_SETS} data sets, the best {recipes.PANELS} "
        "systems, and 100 scores per panel.",
        ("scores",),
        recipes.score_distributions,
    ),
    Figure(
        "instance-scatter",
        "Query by query against the baseline",
        "Above the dashed line the system scores higher than the baseline (Westerborg, figures 5.5 to 5.7)." + _SUBSET,
        ("scores",),
        recipes.instance_scatter,
    ),
    Figure(
        "gain-by-activity",
        "Difference from the baseline by number of relevant items",
        "With a penalized spline and its pointwise 95 % band, fitted to all queries (Westerborg, figures 5.8 to 5.10; "
        "Li et al., figure 5)." + _SUBSET,
        ("scores",),
        recipes.gain_by_activity,
    ),
    Figure(
        "best-counts",
        "How often each system is best",
        "Over data sets, variants, folds and seeds, by measure; ties count for every tied system (Li et al., figure 2)."
        f" Of more than {recipes.LISTED} systems, those that are never best are left out.",
        ("scores",),
        recipes.best_counts,
    ),
    Figure(
        "marginal-means",
        "Marginal means of the systems",
        "Scores are standardized within each data set; thick lines are 95 % confidence intervals of the mean, thin "
        "ones 95 % prediction intervals of a single run (Li et al., figure 3)." + _LISTED,
        ("scores",),
        recipes.marginal_means,
    ),
    Figure(
        "marginal-means-by-data",
        "Marginal means by data set",
        "The marginal means for each data set (Li et al., figure 4)." + _LISTED,
        ("scores",),
        recipes.marginal_means_by_data,
    ),
    Figure(
        "measure-agreement",
        "Agreement of measures",
        "Kendall's tau between the rankings of the systems by each pair of measures, on the queries that all systems "
        "have (Karmaker and Feng, tables 6 and 16).",
        ("scores",),
        recipes.measure_agreement,
    ),
    Figure(
        "asl-curves",
        "Discriminative power",
        "Achieved significance level of every pair of systems by Sakai's studentized bootstrap (by Student's t test "
        f"for more than {recipes.BOOTSTRAPPED:,} queries), largest first. The lower the curve, the more pairs the "
        f"measure distinguishes; the dashed line is 0.05. Shows at most {recipes.MEASURES} measures and {LIMIT:,} "
        "points, evenly spread.",
        ("scores",),
        recipes.asl_curves,
    ),
    Figure(
        "meta-evaluation",
        "Measures by set of queries",
        "Fraction of the pairs of systems that differ significantly, and of those on which a measure and its base "
        "measure disagree, by Student's paired t test at 0.05; percentage absolute difference of means; Kendall's tau "
        "with the base measure. That is the measure that a normalized one normalizes if it is shown, and otherwise "
        "the first. On all queries, and on the tenths with the smallest and the largest gain over a random ranking "
        "(Karmaker and Feng, tables 6 to 9 and 16 to 19).",
        ("scores",),
        recipes.meta_evaluation,
    ),
    Figure(
        "swap-rates",
        "Swap rates",
        "Fraction of the pairs of systems that two data sets, or two sets of queries, put in opposite orders (Karmaker "
        "and Feng, tables 10, 11, 20, 21).",
        ("scores",),
        recipes.swap_rates,
    ),
    Figure(
        "training-paths",
        "Training curves",
        "Loss and measures by epoch; bands range from the minimum to the maximum over folds and seeds (Li and Wu, "
        f"figures 1, 4, 5). Beyond {LIMIT:,} points, epochs are evenly thinned out.",
        ("history",),
        recipes.training_paths,
    ),
    Figure(
        "approximation-error",
        "Approximation error during training",
        "Mean distance between the smooth measure and the exact one over the training queries (Qin et al., figures 1 "
        "to 3).",
        ("history",),
        recipes.approximation_error,
    ),
    Figure(
        "learned-coefficients",
        "Learned coefficients",
        "Coefficients of linear models, arranged as the images they weight and divided by the largest of each model "
        f"(Li and Wu, figure 3). Images are reduced to {LIMIT:,} pixels in total; at most {recipes.MODELS} models.",
        ("history",),
        recipes.learned_coefficients,
    ),
    Figure(
        "example-pairs",
        "Pairs of images as a model orders them",
        "The model ranks the left image of each pair first; labels (ages) and scores are below. The pairs are some "
        "that it orders correctly, some that it orders wrongly, those it is most certain of, and those it can hardly "
        f"distinguish (Li and Wu, figures 2, 6, 7). Test images of the first fold; at most {recipes.MODELS} models.",
        ("examples",),
        recipes.example_pairs,
    ),
)
FIGURES: Mapping[str, Figure] = MappingProxyType({figure.name: figure for figure in _ALL})
