"""Does metric bounding help? A meta-analysis of all differences of bounded and unbounded training in docs/results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from random_effects import RandomEffects, dependent_mean, random_effects

from rankbound.data.catalog import known_sets
from rankbound.report.figures.results import forest_plot
from rankbound.studies.study_files import known_studies, load_study

NORMAL = 1.959964  # half the width of a 95 % interval, in standard errors
AFFINE = ("min-max", "expectation", "expectation-max")
TREES = {  # file -> (method, reference) -> bounding: trees that are trained with and without bounding
    "training": {("ours, bounding", "ours"): "expectation-max"},
    "training-expectation": {("ours, expectation", "ours"): "expectation"},
}
RECOMMENDERS = "bounding-recommenders-differences"
MEAN = "mean over data sets"
VERDICTS = ("helps", "hurts", "no clear effect")
SINGLE = "one data set"
COLUMNS = ("source", "data", "loss", "bounding", "lists", "difference", "low", "high")
SAMPLED, COMPLETE = "sampled", "complete"


@dataclass(frozen=True)
class Pooled:
    """Single differences, pooled effects of each group, the forest plot, and the answer in words."""

    effects: pl.DataFrame
    groups: pl.DataFrame
    chart: Any
    answer: str
    sources: list[str]


@cache
def pooled_effects(folder: Path) -> Pooled:
    """Pool all differences of the tables in a folder."""
    effects = all_effects(folder)
    groups, lines = [], []
    for (group,), rows in effects.group_by("group", maintain_order=True):
        sets = []
        for (data,), own in rows.group_by("data", maintain_order=True):
            mean, error = dependent_mean(own["difference"], (own["high"] - own["low"]) / 2 / NORMAL)
            sets.append((data, mean, error))
        pooled = random_effects([mean for _, mean, _ in sets], [error for *_, error in sets])
        groups.append(_group(str(group), rows.height, pooled))
        lines += [(group, data, mean, mean - NORMAL * error, mean + NORMAL * error) for data, mean, error in sets]
        lines.append((group, MEAN, pooled.mean, pooled.low, pooled.high))
    table = pl.DataFrame(groups)
    forest = pl.DataFrame(lines, schema=["group", "data", "mean", "low", "high"], orient="row")
    sources = effects["source"].unique(maintain_order=True).to_list()
    return Pooled(effects, table, forest_plot(forest, pooled=MEAN), answer(table), sources)


def _group(group: str, rows: int, pooled: RandomEffects) -> dict[str, Any]:
    verdict = VERDICTS[0 if pooled.low > 0 else 1 if pooled.high < 0 else 2] if pooled.studies > 1 else SINGLE
    has_range = pooled.studies > 2
    return {
        "group": group,
        "sets": pooled.studies,
        "rows": rows,
        "mean": pooled.mean,
        "low": pooled.low,
        "high": pooled.high,
        "prediction_low": pooled.prediction_low if has_range else None,
        "prediction_high": pooled.prediction_high if has_range else None,
        "i2": pooled.i2,
        "verdict": verdict,
    }


def answer(groups: pl.DataFrame) -> str:
    """The answer in a few sentences; its numbers are those of the table."""
    helps, hurts, unclear = (groups.filter(pl.col("verdict") == word) for word in VERDICTS)
    count = helps.height + hurts.height + unclear.height
    start = "**Not in general.**" if helps.height < count / 2 else "**Mostly.**"
    sentences = [
        f"{start} Of {count} combinations of loss, bounding and kind of lists that were tried on several data sets, "
        f"bounding helps on average in {helps.height}, hurts in {hurts.height}, and has no clear effect in "
        f"{unclear.height}."
    ]
    sentences += [f"It helps {_list(helps)}."] if helps.height else []
    sentences += [f"It hurts {_list(hurts)}."] if hurts.height else []
    if unclear.height:
        least, most = unclear["mean"].min(), unclear["mean"].max()
        sentences.append(f"The mean effects of the others are between {least:+.4f} and {most:+.4f}.")
    return " ".join(sentences)


def _list(rows: pl.DataFrame) -> str:
    return "; ".join(
        f"*{row['group']}* ({row['mean']:+.4f}, 95 % interval {row['low']:+.4f} to {row['high']:+.4f}, "
        f"{row['sets']} data set{'s' if row['sets'] != 1 else ''})"
        for row in rows.iter_rows(named=True)
    )


# ---- differences -----------------------------------------------------------------------------------------------------


def all_effects(folder: Path) -> pl.DataFrame:
    """All differences between bounded and unbounded training, with the group that each belongs to."""
    parts = [_of_studies(folder), _of_recommenders(folder), _of_trees(folder)]
    rows = pl.concat([part for part in parts if part.height])
    return rows.with_columns(
        pl.struct("source", "loss", "bounding", "lists")
        .map_elements(lambda row: group_of(**row), return_dtype=pl.String)
        .alias("group")
    ).sort("group", "data", maintain_order=True)


def group_of(source: str, loss: str, bounding: str, lists: str) -> str:
    """The group that a difference is pooled in.

    >>> group_of("thesis-5.1", "nRBP", "min-max", "sampled")
    'nRBP: any affine bounding, sampled'
    >>> group_of("thesis-5.1", "AP", "distribution", "complete")
    'nDCG AP RR: distribution, complete'
    """
    if source in TREES:
        return f"trees: {bounding}"
    if loss.startswith(("nRBP", "RBP")):
        affine = bounding in (*AFFINE, "any bounding")
        return f"nRBP: {'any affine bounding' if affine else bounding}, {lists}"
    return f"nDCG AP RR: {bounding}, {lists}"


def _of_studies(folder: Path) -> pl.DataFrame:
    parts = [pl.DataFrame(schema=dict.fromkeys(COLUMNS[:5], pl.String) | dict.fromkeys(COLUMNS[5:], pl.Float64))]
    for path in sorted(folder.glob("*.csv")):
        if path.stem not in known_studies() or load_study(path.stem).trials_of:  # other measures of the same models
            continue
        table = pl.read_csv(path, infer_schema_length=None)
        if not {"bounding", "loss", "versus", "versus_low", "selection"} <= set(table.columns):
            continue
        versus = pl.col("versus").cast(pl.String).fill_null("").str.split(" · ")
        rows = table.filter(
            (pl.col("bounding") != "none")
            & (pl.col("selection") != "test")
            & versus.list.contains("none")
            & (versus.list.first() == pl.col("loss"))
        ).drop_nulls(["versus_low", "versus_high"])
        bounds = pl.col("versus_low").alias("low"), pl.col("versus_high").alias("high")
        is_sampled = pl.col("nsr").cast(pl.String).fill_null("") != "" if "nsr" in rows.columns else pl.lit(False)
        lists = pl.when(is_sampled).then(pl.lit(SAMPLED)).otherwise(pl.lit(COMPLETE)).alias("lists")
        named = pl.lit(path.stem).alias("source"), "data", "loss", "bounding", lists
        parts.append(rows.select(*named, pl.col("versus_difference").alias("difference"), *bounds))
    return pl.concat(parts)


def _of_recommenders(folder: Path) -> pl.DataFrame:
    path = folder / f"{RECOMMENDERS}.csv"
    if not path.is_file():
        return pl.DataFrame()
    numbers = [
        pl.col(name).cast(pl.String).str.strip_prefix("+").cast(pl.Float64)
        for name in ("difference", "ci_low", "ci_high")
    ]
    words = pl.col("comparison").str.split(", ")
    return (
        pl.read_csv(path, infer_schema_length=None)
        .with_columns(*numbers)
        .filter((pl.col("minus") == "none") & ~pl.col("sets").str.contains(" ") & (words.list.len() == 3))
        .select(
            pl.lit(RECOMMENDERS).alias("source"),
            pl.col("sets").alias("data"),
            words.list.get(1).alias("loss"),
            words.list.get(0).alias("bounding"),
            pl.when(words.list.get(2) == "all").then(pl.lit(COMPLETE)).otherwise(pl.lit(SAMPLED)).alias("lists"),
            "difference",
            pl.col("ci_low").alias("low"),
            pl.col("ci_high").alias("high"),
        )
    )


def _of_trees(folder: Path) -> pl.DataFrame:
    parts = []
    for name, pairs in TREES.items():
        path = folder / f"{name}.csv"
        if not path.is_file():
            continue
        table = pl.read_csv(path, infer_schema_length=None).filter(pl.col("set").is_in(list(known_sets())))
        for (method, reference), bounding in pairs.items():
            rows = table.filter((pl.col("method") == method) & (pl.col("reference") == reference))
            parts.append(
                rows.select(
                    pl.lit(name).alias("source"),
                    pl.col("set").alias("data"),
                    pl.lit("lambda").alias("loss"),
                    pl.lit(bounding).alias("bounding"),
                    pl.lit(COMPLETE).alias("lists"),
                    "difference",
                    pl.col("ci_low").alias("low"),
                    pl.col("ci_high").alias("high"),
                )
            )
    return pl.concat(parts) if parts else pl.DataFrame()
