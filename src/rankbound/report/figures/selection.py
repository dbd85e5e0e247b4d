"""Which data sets, measures and systems of large tables figures show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from rankbound.errors import DataError
from rankbound.evaluation.score_tables import Contrast, contrasts, measures_of, systems_of
from rankbound.evaluation.scores import is_lower_better
from rankbound.measures import parse_measure

if TYPE_CHECKING:
    from rankbound.measures import Measure

DATA_SETS, PANELS, MEASURES, QUANTITIES = 6, 6, 6, 4  # rows and columns of panels that fit on a page
LISTED = 25  # systems that share one panel
OF_MANY_LISTED = f"Of more than {LISTED} systems, the best {LISTED} are shown."


def first_data_sets(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of the first data sets, as many as a page has room for."""
    first = table.select("data", "variant").unique(maintain_order=True).head(DATA_SETS)
    return table.join(first, on=["data", "variant"], how="semi", maintain_order="left")


def select_measures(table: pl.DataFrame, most: int = MEASURES) -> list[str]:
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


def plain_measure_of_first(table: pl.DataFrame) -> str:
    """The first measure without its bounding, by which queries are typed; another one if the table lacks it."""
    names = measures_of(table)
    plain = parse_measure(names[0]).plain if names else None
    return next((name for name in names if parse_measure(name) == plain), None) or select_measures(table, 1)[0]


def best_systems(table: pl.DataFrame, measure: str, most: int) -> list[str]:
    """At most so many systems, those with the best mean of a measure, best first; all in their order if they fit."""
    names = systems_of(table)
    if len(names) <= most:
        return names
    means = table.group_by("system", maintain_order=True).agg(pl.col(measure).fill_nan(None).mean())
    lower_first = is_lower_better(measure)
    best_first = means.sort(measure, descending=not lower_first, nulls_last=True, maintain_order=True)
    return best_first["system"].to_list()[:most]


def limited_contrasts(table: pl.DataFrame) -> list[Contrast]:
    """The comparisons of a table with at most PANELS systems each.

    Of more systems without a common setting (loss and bounding), the best are compared with the very best.
    """
    limited = []
    for contrast in contrasts(table):
        if not contrast.case and len(contrast.systems) > PANELS:
            baseline, *systems = best_systems(table, contrast.measure, PANELS + 1)
            limited.append(replace(contrast, baseline=baseline, systems=tuple(systems), labels=tuple(systems)))
        else:
            limited.append(replace(contrast, systems=contrast.systems[:PANELS], labels=contrast.labels[:PANELS]))
    return limited


def rows_of_systems(table: pl.DataFrame, systems: Sequence[str]) -> pl.DataFrame:
    """The rows of these systems, in their order."""
    order = pl.col("system").replace_strict({name: rank for rank, name in enumerate(systems)}, return_dtype=pl.Int64)
    return table.filter(pl.col("system").is_in(list(systems))).sort(order, maintain_order=True)


def limit_systems(table: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The rows of the best LISTED systems by the first measure, if there are more."""
    if table["system"].n_unique() <= LISTED:
        return table
    return rows_of_systems(table, best_systems(scores, measures_of(scores)[0], LISTED))


def _base_name(measure: Measure) -> str:
    """The name without wrapper, parameters and cutoff: nDCG for ``EM(nDCG(dcg='exp-log2')@10)``."""
    return re.split(r"[(@]", str(measure.plain), maxsplit=1)[0]
