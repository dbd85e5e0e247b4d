"""The figures of score tables and results: for each its words, the computation of its data, and its drawing.

Captions name the figure of the paper that a chart corresponds to; `PAPERS` has the authors and titles.
`rankbound.studies.figures` has the figures that are about studies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import polars as pl

from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import query_sets
from rankbound.evaluation.score_tables import QUERY, Contrast, mean_scores, measures_of
from rankbound.measures import parse_measure
from rankbound.report.figures import contrasts, difficulty, instances, systems
from rankbound.report.figures.drawing import Cases, Figure, Tables
from rankbound.report.figures.selection import (
    DATA_SETS,
    MEASURES,
    OF_MANY_LISTED,
    PANELS,
    first_data_sets,
    limit_systems,
    limited_contrasts,
    plain_measure_of_first,
    select_measures,
)
from rankbound.report.figures.theme import LIMIT

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
"""The papers that captions refer to, by their short names."""

_SUBSET = (
    f"Shows at most {DATA_SETS} data sets, the best {PANELS} systems, and {LIMIT:,} points: the same fraction of each "
    "panel, evenly spread."
)


# ---- data of figures -------------------------------------------------------------------------------------------------


def cutoff_curves(table: pl.DataFrame, family: str = "nDCG", *, confidence: float = 0.95) -> pl.DataFrame:
    """Mean of a measure over its cutoff k (Westerborg 2022, figure 5.1).

    Columns: data, variant, system, k, mean, ci_low, ci_high, queries.
    """
    cutoffs = {
        name: measure.cutoff
        for name, measure in ((name, parse_measure(name)) for name in measures_of(table))
        if measure.name == family and measure.bounding == "none" and measure.cutoff is not None
    }
    if len(cutoffs) < 2:
        raise DataError(f"a curve over cutoffs needs {family} at two cutoffs at least, the table has {list(cutoffs)}")
    k = pl.col("measure").replace_strict(cutoffs, return_dtype=pl.Int64).alias("k")
    means = mean_scores(table, list(cutoffs), confidence=confidence).with_columns(k).drop("measure")
    return means.select("data", "variant", "system", "k", "mean", "ci_low", "ci_high", "queries")


def expected_histogram(table: pl.DataFrame, measure: str, *, bins: int = 20) -> pl.DataFrame:
    """Number of queries by the expected score of a random ranking (Karmaker and Feng, figures 2 and 3).

    Columns: data, variant, low, high, queries, fraction. A query counts once, whatever the number of systems.
    """
    if bins < 1:
        raise ArgumentError(f"bins must be a positive integer, got {bins}")
    scores = query_sets.expected_scores(table, measure)
    values = scores["expected"].to_numpy()
    edges = np.histogram_bin_edges(values, bins, (min(0.0, float(values.min())), max(1.0, float(values.max()))))
    parts = []
    for (data, variant), rows in scores.group_by("data", "variant", maintain_order=True):
        counts = np.histogram(rows["expected"].to_numpy(), edges)[0]
        bars = {"low": edges[:-1], "high": edges[1:], "queries": counts, "fraction": counts / counts.sum()}
        parts.append(pl.DataFrame(bars).select(pl.lit(data).alias("data"), pl.lit(variant).alias("variant"), pl.all()))
    return pl.concat(parts)


# ---- data of figures from tables, within limits ----------------------------------------------------------------------


def _published_and_ours(tables: Tables) -> Cases:
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
    return {"": (rows.filter(pl.col("measure").is_in(first.to_list())).select(shown).head(LIMIT),)}


def _expected_histograms(tables: Tables) -> Cases:
    table = first_data_sets(_scores_of(tables))
    plain = [name for name in select_measures(table) if parse_measure(name).bounding == "none"][:3]
    return {name: (expected_histogram(table, name), name) for name in plain}


def _query_map(tables: Tables) -> Cases:
    table = first_data_sets(_scores_of(tables))
    measure = plain_measure_of_first(table)
    queries = contrasts.thin_out(query_sets.query_map(table, measure), ["data", "variant"], "expected", LIMIT)
    return {"": (queries.select("data", "variant", "qid", "items", "relevant", "value", "expected", "type"), measure)}


def _system_means(tables: Tables) -> Cases:
    table = first_data_sets(_scores_of(tables))
    means = limit_systems(mean_scores(table, select_measures(table, 4)), table)
    if tables.label_ranges is not None:
        means = means.join(tables.label_ranges, on=["system", "measure"], how="left", maintain_order="left")
    return {"": (means,)}


def _cutoff_curves(tables: Tables) -> Cases:
    """A row of panels for each loss."""
    scores = _scores_of(tables)
    table, panels = first_data_sets(scores), []
    for case in limited_contrasts(scores):
        labels = {case.baseline: "none" if case.case else case.baseline} | dict(
            zip(case.systems, case.labels, strict=True)
        )
        selected = table.filter(pl.col("system").is_in(list(labels))).with_columns(pl.col("system").replace(labels))
        lines = cutoff_curves(selected)
        panels.append(lines.with_columns(pl.lit(f"{case.case} loss").alias("case")) if case.case else lines)
    return {"": (pl.concat(panels), "nDCG")}


def _for_each_contrast(compute: Callable[[pl.DataFrame, Contrast], tuple[object, ...]]) -> Callable[[Tables], Cases]:
    def compute_cases(tables: Tables) -> Cases:
        scores = _scores_of(tables)
        table = first_data_sets(scores)
        return {contrast.case: (*compute(table, contrast), contrast) for contrast in limited_contrasts(scores)}

    return compute_cases


def _score_distributions(table: pl.DataFrame, contrast: Contrast) -> tuple[object, ...]:
    panels = len(contrast.systems) * table.select("data", "variant").n_unique()
    return contrasts.score_distributions(table, contrast, points=min(100, LIMIT // (3 * panels)))


def _instance_scores(table: pl.DataFrame, contrast: Contrast) -> tuple[object, ...]:
    return (_with_types(contrasts.instance_scores(table, contrast, limit=LIMIT), table, contrast),)


def _gain_by_activity(table: pl.DataFrame, contrast: Contrast) -> tuple[object, ...]:
    lines = contrasts.activity_curves(table, contrast)
    points = contrasts.instance_scores(table, contrast, limit=LIMIT - len(lines))
    return _with_types(points, table, contrast), lines


def _with_types(points: pl.DataFrame, table: pl.DataFrame, contrast: Contrast) -> pl.DataFrame:
    """Add the type of each point's query, by which pages filter, where the table allows it."""
    try:
        types = query_sets.type_queries(table, [contrast.measure])
    except DataError:  # the plain measure is not in the table
        return points.drop("fold")
    return points.join(types, on=list(QUERY), how="left", maintain_order="left").drop("fold")


def _scores_of(tables: Tables) -> pl.DataFrame:
    assert tables.scores is not None
    return tables.scores


# ---- the table -------------------------------------------------------------------------------------------------------

FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        "published-and-ours": Figure(
            "Published results and ours",
            "They agree on the dashed line; vertical lines are our 95 % intervals.",
            ("results",),
            _published_and_ours,
            systems.published_and_ours,
            "Shows at most six measures.",
        ),
        "expected-histogram": Figure(
            "Scores of random rankings on these queries",
            "Queries by the expected score of a random ranking (Karmaker and Feng, figures 2 and 3). In a wide "
            "histogram the same score means different things on different queries.",
            ("scores",),
            _expected_histograms,
            difficulty.expected_histogram,
        ),
        "query-map": Figure(
            "Types of queries",
            "Mean score of the systems, as complete rankings of the candidates, against the expected score of a random "
            "ranking; on the dashed line the systems do no better than random (after Karmaker and Feng, figure 1). The "
            "section on single queries explains the types.",
            ("scores",),
            _query_map,
            difficulty.query_map,
            f"Shows at most {LIMIT:,} queries.",
        ),
        "system-means": Figure(
            "Mean of every system",
            "With Student's 95 % interval over queries (Li et al., figure 1); each panel has its own axis. Whiskers, "
            "where there are any: the smallest and largest mean over all labels of unjudged documents.",
            ("scores",),
            _system_means,
            systems.system_means,
            f"Shows at most four measures and {DATA_SETS} data sets. {OF_MANY_LISTED}",
        ),
        "cutoff-curves": Figure(
            "Mean nDCG@k by cutoff",
            "Bands are 95 % intervals over queries (Westerborg, figure 5.1). Click the legend to highlight one system.",
            ("scores",),
            _cutoff_curves,
            systems.cutoff_curves,
        ),
        "score-distributions": Figure(
            "Distributions of scores",
            "Fraction of queries with at most each score; shaded where the system has fewer low scores than the "
            "baseline (Westerborg, figures 5.2 to 5.4).",
            ("scores",),
            _for_each_contrast(_score_distributions),
            instances.score_distributions,
            f"Shows at most {DATA_SETS} data sets, the best {PANELS} systems, and 100 scores per panel.",
        ),
        "instance-scatter": Figure(
            "Query by query against the baseline",
            "Above the dashed line the system scores higher than the baseline (Westerborg, figures 5.5 to 5.7).",
            ("scores",),
            _for_each_contrast(_instance_scores),
            instances.instance_scatter,
            _SUBSET,
        ),
        "gain-by-activity": Figure(
            "Difference from the baseline by number of relevant items",
            "With a penalized spline and its pointwise 95 % band, fitted to all queries (Westerborg, figures 5.8 to "
            "5.10; Li et al., figure 5).",
            ("scores",),
            _for_each_contrast(_gain_by_activity),
            instances.gain_by_activity,
            _SUBSET,
        ),
    }
)
"""Name -> figure, in the order of pages."""
