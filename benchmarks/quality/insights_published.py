"""Figures 1 to 4 of the paper on metric optimization for recommendation, from its published result tables.

    python -m benchmarks.quality.insights_published LISTWISE.csv PAIRWISE.csv

The CSV files are the authors' tables of best results (columns metric_optim, fold, NSR, dataset, metric_eval, y). The
command writes docs/results/insights-published.md and .csv: how often each loss is best, and the estimated marginal
means of the losses with confidence and prediction intervals, by the paper's own linear model; and the figures. Those of
our own study are written by `rankbound reproduce insights-fig1 --results docs/results`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankbound.io import atomic_write
from rankbound.studies import marginal_means as marginal

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SETS = {
    "citeulike": "CiteULike", "Epinions": "Epinions", "Sports_and_Outdoors": "Sports & Outdoors",
    "Home_and_Kitchen": "Home & Kitchen",
}  # fmt: skip
LOSSES = {
    "rr": "RR", "ap": "AP", "dcg": "nDCG", "rbp_80": "nRBP(p=0.8)", "rbp_90": "nRBP(p=0.9)", "rbp_95": "nRBP(p=0.95)",
}  # fmt: skip
MEASURES = {
    "RR": "RR", "AP": "AP", "NDCG": "nDCG", "RBP_80": "RBP(p=0.8)", "RBP_90": "RBP(p=0.9)", "RBP_95": "RBP(p=0.95)",
}  # fmt: skip
KINDS = ("listwise", "pairwise")
ABOUT = """# Published results of Li et al. (2021), analyzed again

Roger Zhe Li, Julián Urbano and Alan Hanjalic published the values of their best models for splits 0 and 1 of four data
sets ("New Insights into Metric Optimization for Ranking-based Recommendation", SIGIR 2021); their figures average over
three splits. This page repeats their figures 2 and 3 from these values, with the paper's own linear model: scores are
standardized within each data set and negative sampling ratio, and explained by the loss, the data set, the ratio, and
the interactions of the loss with both. Their figure 5 needs the values of single users, which the tables do not have.

`python -m benchmarks.quality.insights_published LISTWISE.csv PAIRWISE.csv` makes this page and draws figures 1 to 4;
`rankbound reproduce insights-fig1 --results docs/results` draws those of our own study, figure 5 among them.
"""


def read(path: str) -> pl.DataFrame:
    """The published values as `rankbound.evaluation.score_tables.trial_means` has those of a study."""
    table = pl.read_csv(path)
    return table.select(
        pl.col("dataset").replace_strict(SETS).alias("data"),
        ("NSR " + pl.col("NSR").cast(pl.Int64).cast(pl.String)).alias("variant"),
        pl.col("metric_optim").replace_strict(LOSSES).alias("system"),
        pl.col("fold").cast(pl.Int64),
        pl.lit(0).alias("seed"),
        pl.col("metric_eval").replace_strict(MEASURES).alias("measure"),
        pl.col("y").alias("value"),
    ).sort(
        *(pl.col(name).cast(pl.Enum(list(order.values()))) for name, order in _ORDERS.items()), "variant", "fold"
    )  # fmt: skip


_ORDERS = {"measure": MEASURES, "data": SETS, "system": LOSSES}


def effects(trials: pl.DataFrame, by_data: bool = False) -> pl.DataFrame:
    """Estimated marginal means of the losses by measure, in the linear model of the paper."""
    parts = []
    for (measure,), rows in trials.group_by("measure", maintain_order=True):
        means = marginal.marginal_means(
            marginal.standardize(rows, "value", ["data", "variant"]),
            "value",
            "system",
            by=["data"] if by_data else [],
            others=["variant"] if by_data else ["data", "variant"],
            interactions=[("system", "data"), ("system", "variant")],
        )
        parts.append(means.select(pl.lit(measure).alias("measure"), pl.all()))
    return pl.concat(parts)


def page(tables: dict[str, pl.DataFrame]) -> str:
    """The page in Markdown."""
    lines = [ABOUT]
    for kind, trials in tables.items():
        counts = marginal.best_counts(trials)
        cases = trials.select("data", "variant", "fold").n_unique()
        title = f"**How often each {kind} loss is best**, of {cases} cases; ties count for each"
        cells = {(row["measure"], row["system"]): str(row["count"]) for row in counts.iter_rows(named=True)}
        lines += _markdown(title, cells)
        means = effects(trials)
        title = (
            f"**Estimated marginal means of the {kind} losses** in standard deviations, with 95 % confidence intervals"
        )
        shown = {(row["measure"], row["system"]): _interval(row) for row in means.iter_rows(named=True)}
        lines += _markdown(title, shown)
        lines += [_verdict(kind, means), ""]
    return "\n".join(lines)


def _interval(row: dict[str, Any]) -> str:
    return f"{row['mean']:+.2f} ({row['ci_low']:+.2f} to {row['ci_high']:+.2f})"


def _markdown(title: str, cells: dict[tuple[str, str], str]) -> list[str]:
    losses = [loss for loss in LOSSES.values() if any(system == loss for _, system in cells)]
    rows = [
        f"| {measure} | " + " | ".join(cells.get((measure, loss), "") for loss in losses) + " |"
        for measure in MEASURES.values()
    ]
    return [title + ":", "", f"| evaluated by | {' | '.join(losses)} |", "| --- |" + " --- |" * len(losses), *rows, ""]


def _verdict(kind: str, means: pl.DataFrame) -> str:
    """By how many measures the nRBP(p=0.95) loss is above nDCG and AP, with the intervals of the differences."""
    rows = {(row["measure"], row["system"]): row for row in means.iter_rows(named=True)}
    above, least = [], []
    for measure in MEASURES.values():
        first = rows[measure, "nRBP(p=0.95)"]
        lows = [_difference(first, rows[measure, other])[1] for other in ("nDCG", "AP")]
        least.append(min(_difference(first, rows[measure, other])[0] for other in ("nDCG", "AP")))
        above += [measure] if min(lows) > 0 else []
    verdict = "confirmed" if len(above) == len(MEASURES) else f"confirmed for {', '.join(above) or 'none'} only"
    return (
        f"Claim: optimizing nRBP(p=0.95) is significantly better than optimizing nDCG or AP by all measures, {kind}: "
        f"{verdict}. The least difference of a marginal mean to that of nDCG or AP is {min(least):+.3f}; the "
        f"difference is above zero at 95 % by {len(above)} of {len(MEASURES)} measures."
    )


def _difference(first: dict[str, Any], second: dict[str, Any]) -> tuple[float, float]:
    """Difference of two marginal means and its lower limit; losses share no row of the table, so errors add up."""
    width = (first["ci_high"] - first["mean"]) / first["std_error"]
    difference = first["mean"] - second["mean"]
    return difference, difference - width * float(np.hypot(first["std_error"], second["std_error"]))


def draw(tables: dict[str, pl.DataFrame]) -> list[Path]:
    """Draw figures 1 to 4 of both kinds of losses, 3 and 4 without RR, which is far below the others."""
    from rankbound.report.figures.saving import save_chart
    from rankbound.report.figures.systems import system_means
    from rankbound.studies.figures import measures as figures

    files = []
    for kind, trials in tables.items():
        means = trials.group_by("data", "variant", "measure", "system", maintain_order=True).agg(
            pl.col("value").mean().alias("mean"), pl.col("value").min().alias("ci_low"),
            pl.col("value").max().alias("ci_high"), pl.lit(None, pl.Int64).alias("queries"),
        )  # fmt: skip
        without_rr = pl.col("system") != "RR"
        by_data = effects(trials, by_data=True).rename({"data": "data_label"})
        charts = {
            "system-means": system_means(means),
            "best-counts": figures.best_counts(marginal.best_counts(trials)),
            "marginal-means": figures.marginal_means(effects(trials).filter(without_rr)),
            "marginal-means-by-data": figures.marginal_means(by_data.filter(without_rr), by_data=True),
        }
        files += [
            save_chart(chart, RESULTS / f"insights-published--{name}-{kind}.svg") for name, chart in charts.items()
        ]
    return files


def main(words: list[str]) -> int:
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tables = dict(zip(KINDS, map(read, words), strict=True))
    means = pl.concat(
        [effects(trials).select(pl.lit(kind).alias("table"), pl.all()) for kind, trials in tables.items()]
    )
    numbers = pl.selectors.float()
    texts = {"md": page(tables), "csv": means.with_columns(numbers.round(4)).rename({"system": "loss"}).write_csv()}
    for suffix, text in texts.items():
        with atomic_write(RESULTS / f"insights-published.{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8")
    print("\n".join(path.name for path in draw(tables)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
