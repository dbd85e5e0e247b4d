"""Describe data sets: counts, labels, list sizes, and how hard the queries are."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from rankbound.data.catalog import Entry, find_entry, known_sets
from rankbound.data.describe import describe, read_any
from rankbound.difficulty import bounds_of
from rankbound.measures import LabelCounts, parse_measure

__all__ = ["describe_data"]

_NO_CHOICE = 1e-12  # best - worst of a query on which all rankings score the same


def describe_data(source: str | PathLike[str]) -> dict[str, Any]:
    """Describe a data set of the catalog by its name, or a file or folder, as plain Python values.

    The difficulty is that of nDCG: a histogram of the expected value of a random ranking over the queries on which
    rankings can differ, and the number and fraction of the other queries, which have no choice. For interactions, which
    have no lists, one negative item per interaction is assumed. ``notes`` say what a data set of the catalog lacks.
    """
    name = str(source)
    is_known = name in known_sets()
    if not is_known and not Path(name).exists() and not set(name) & set("./\\"):
        find_entry(name)  # raises an error that suggests similar names
    if is_known:
        from rankbound.data.loading import load_set

        data = load_set(name)
    else:
        data = read_any(name)
    difficulty = _difficulty(data)
    summary = describe(data) | ({} if difficulty is None else {"difficulty": difficulty})
    if is_known:
        summary["notes"] += _missing(find_entry(name), summary)
    return summary


def _missing(entry: Entry, summary: dict[str, Any]) -> list[str]:
    """Return what the copy on this machine lacks of a complete one, and what is known to be missing."""
    notes = [
        f"the copy on this machine has {summary[what]:,} of {count:,} {what} ({summary[what] / count:.0%})"
        for what, count in entry.counts.items()
        if summary.get(what, count) != count
    ]
    return [*notes, *([entry.missing] if entry.missing else [])]


def _difficulty(data: Any) -> dict[str, Any] | None:
    lists = getattr(data, "lists", data)
    if hasattr(data, "per_user"):
        positives = data.per_user[data.per_user > 0]
        counts = LabelCounts.binary(2 * positives, positives)
    elif hasattr(lists, "offsets"):
        counts = LabelCounts.from_lists(lists)
    else:
        return None
    bounds = bounds_of(parse_measure("nDCG"), counts)
    has_choice = bounds.best - bounds.worst > _NO_CHOICE
    expected = bounds.expected[has_choice]
    heights, edges = np.histogram(expected, bins=10, range=(0.0, 1.0))
    return {
        "measure": "nDCG",
        "no_choice_queries": int((~has_choice).sum()),
        "no_choice_fraction": float((~has_choice).mean()) if len(has_choice) else 0.0,
        "mean_expected": float(expected.mean()) if len(expected) else None,
        "histogram": [
            {"from": round(float(low), 10), "to": round(float(high), 10), "count": int(height)}
            for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True)
        ],
    }
