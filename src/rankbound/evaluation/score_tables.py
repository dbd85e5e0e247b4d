"""Tables of scores per query: what they must hold, and the same queries of several systems side by side.

A score table has a row per trial and query: ``data``, ``variant``, ``system``, ``fold``, ``seed``, ``qid``, ``items``,
``relevant``, and a column of numbers for each measure. A query is known by data, variant, fold and qid; repeats with
other seeds are averaged before systems are compared, so that a query counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.measures import parse_measure

QUERY = ("data", "variant", "fold", "qid")
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)  # that NumPy has too
_LARGEST = 1e100
_MOST_ITEMS = 10_000_000  # the value of a random order takes time and memory in proportion to them
_REQUIRED = ("data", "variant", "system", "fold", "seed", "qid", "items", "relevant")


def measures_of(table: pl.DataFrame) -> list[str]:
    """Names of the table's measures, in the order of its columns."""
    check_frame("a score table", table)
    return [name for name, kind in table.schema.items() if kind.is_float() and _is_measure(name)]


def without_unmeasured(table: pl.DataFrame) -> pl.DataFrame:
    """The table without data sets on which no measure has a value, such as pairs of images; as it is if none has."""
    measures = measures_of(table)
    if not measures:
        return table
    check_scores(table)
    has_a_value = pl.any_horizontal(pl.col(*measures).is_finite().fill_null(value=False))
    kept = table.filter(has_a_value.any().over("data", "variant"))
    return kept if kept.height else table


def systems_of(table: pl.DataFrame) -> list[str]:
    """Names of the table's systems, in the order of their first rows."""
    check_scores(table)
    return list(table["system"].unique(maintain_order=True))


def data_label() -> pl.Expr:
    """Data set and variant as one label, ``"ml-latest-small · NSR 2"``: what a panel of a figure shows."""
    both = pl.concat_str("data", "variant", separator=" · ")
    return pl.when(pl.col("variant") == "").then(pl.col("data")).otherwise(both).alias("data_label")


def query_scores(table: pl.DataFrame, measures: Sequence[str], systems: Iterable[str] | None = None) -> pl.DataFrame:
    """One row per query and system, seeds averaged; queries that do not count for a measure are null there."""
    check_scores(table, measures)
    if not measures:
        raise DataError("the table has no column that is a measure")
    if systems is not None:
        table = table.filter(pl.col("system").is_in(list(systems)))
    return table.group_by(*QUERY, "system", maintain_order=True).agg(
        pl.col("items", "relevant").max(), pl.col(*measures).fill_nan(None).mean()
    )


def trial_means(table: pl.DataFrame, measures: Sequence[str] | None = None) -> pl.DataFrame:
    """Mean over queries of every measure in every trial: data, variant, system, fold, seed, measure, value."""
    measures = measures_of(table) if measures is None else list(measures)
    check_scores(table, measures)
    if not measures:
        raise DataError("the table has no column that is a measure")
    trial = ["data", "variant", "system", "fold", "seed"]
    means = table.group_by(*trial, maintain_order=True).agg(pl.col(*measures).fill_nan(None).mean())
    long = means.unpivot(measures, index=trial, variable_name="measure", value_name="value")
    return long.drop_nulls("value")


@dataclass(frozen=True, slots=True)
class Contrast:
    """Systems that are compared with one baseline under one measure; ``labels`` are their short names."""

    case: str
    measure: str
    baseline: str
    systems: tuple[str, ...]
    labels: tuple[str, ...]


def contrasts(table: pl.DataFrame) -> list[Contrast]:
    """What to compare in a table: per loss, each bounding with none under the loss's own measure.

    Tables without columns ``loss`` and ``bounding`` (or with nothing unbounded) give one contrast: the first system
    against all others under the first measure.
    """
    measures = measures_of(table)
    systems = systems_of(table)
    if len(systems) < 2:
        raise DataError(f"a comparison needs at least 2 systems, the table has {len(systems)}: {', '.join(systems)}")
    if not measures:
        raise DataError("the table has no column that is a measure")
    result = []
    if {"loss", "bounding"} <= set(table.columns):
        group = ["loss"]
        if "model" in table.columns and table["model"].n_unique() > 1:
            pairs = table.select("model", "system").n_unique()
            if pairs == len(systems):  # otherwise models of different data share names: they are panels of one contrast
                group = ["model", "loss"]
        words = pl.col(*group, "bounding").cast(pl.String)
        settings = table.select(words, "system").unique(maintain_order=True)
        for case, rows in settings.group_by(group, maintain_order=True):
            plain = rows.filter(pl.col("bounding") == "none")["system"].to_list()
            bounded = rows.filter(pl.col("bounding") != "none")
            if plain and len(bounded):
                own = _measure_of_loss(str(case[-1]), measures)
                labels = tuple(bounded["bounding"].cast(pl.String))
                name = " · ".join(str(part) for part in case)
                result.append(Contrast(name, own, plain[0], tuple(bounded["system"]), labels))
    return result or [Contrast("", measures[0], systems[0], tuple(systems[1:]), tuple(systems[1:]))]


def mean_scores(table: pl.DataFrame, measures: Sequence[str], *, confidence: float = 0.95) -> pl.DataFrame:
    """Mean over queries with Student's interval: data, variant, system, measure, mean, ci_low, ci_high, queries.

    Seeds are averaged first. A single query has no interval: null.
    """
    from scipy.special import stdtrit

    keys = ["data", "variant", "system"]
    long = query_scores(table, measures).unpivot(list(measures), index=keys, variable_name="measure")
    means = (
        long.drop_nulls("value")
        .group_by(*keys, "measure", maintain_order=True)
        .agg(pl.col("value").mean().alias("mean"), pl.col("value").std().alias("std"), pl.len().alias("queries"))
    )
    queries = means["queries"].to_numpy()
    width = stdtrit(np.maximum(queries - 1, 1), 0.5 + confidence / 2) / np.sqrt(queries)
    half = pl.col("std") * pl.Series(width)
    return means.select(
        *keys,
        "measure",
        "mean",
        (pl.col("mean") - half).alias("ci_low"),
        (pl.col("mean") + half).alias("ci_high"),
        pl.col("queries").cast(pl.Int64),
    )


def _measure_of_loss(loss: str, measures: Sequence[str]) -> str:
    """The plain measure without cutoff that a loss optimizes, or the nearest thing in the table."""
    base = loss.split("(")[0].split("@")[0].lower()
    same = [name for name in measures if parse_measure(name).name.lower() == base]
    plain = [name for name in same if parse_measure(name).bounding == "none"]
    whole = [name for name in plain if parse_measure(name).cutoff is None]
    # of nRBP the largest p: it sees most of the list, and is what the papers report
    return max(whole) if whole else (plain or same or list(measures))[0]


def _is_measure(name: str) -> bool:
    try:
        parse_measure(name)
    except MeasureError:
        return False
    return True


def check_scores(table: pl.DataFrame, measures: Iterable[str] = ()) -> None:
    """Refuse a table that lacks columns of a score table, or these measures, or any rows."""
    check_frame("a score table", table)
    missing = [name for name in _REQUIRED if name not in table.columns]
    if missing:
        raise DataError(f"a score table needs the columns {', '.join(_REQUIRED)}; missing: {', '.join(missing)}")
    unknown = [name for name in measures if name not in table.columns]
    if unknown:
        raise ArgumentError(f"the score table has no {', '.join(unknown)}; its measures are {measures_of(table)}")
    if table.is_empty():
        raise DataError("the score table has no rows")
    for name in measures:
        if not table[name].dtype.is_numeric():
            raise DataError(f"column {name!r} of a score table must hold numbers, got {table[name].dtype}")
        if (table[name].cast(pl.Float64).fill_nan(None).abs() > _LARGEST).any():  # their squares would be infinite
            raise DataError(f"column {name!r} of a score table must hold numbers up to {_LARGEST:g}, got larger ones")
    for name in _REQUIRED:
        if table[name].null_count():
            raise DataError(f"column {name!r} of a score table must be filled in every row, got an empty one")
        if name in ("data", "variant", "system") and table[name].dtype != pl.String:
            raise DataError(f"column {name!r} of a score table must hold text, got {table[name].dtype}")
        if name in ("items", "relevant") and table[name].dtype not in _INTEGERS:
            raise DataError(f"column {name!r} of a score table must hold integers, got {table[name].dtype}")
        if name in ("items", "relevant") and (most := int(table[name].max())) > _MOST_ITEMS:  # type: ignore[arg-type]
            raise DataError(f"column {name!r} of a score table must hold numbers up to {_MOST_ITEMS:,}, got {most:,}")


def check_frame(what: str, table: pl.DataFrame) -> None:
    """Refuse what is no polars frame, and names of columns that polars would take for patterns."""
    if not isinstance(table, pl.DataFrame):
        raise DataError(f"{what} must be a polars DataFrame, got {type(table).__name__}")
    for name in table.columns:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise DataError(f"columns of {what} must not have names like patterns, got {name!r}")
