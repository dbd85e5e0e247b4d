"""Comparison of two result files: the change of our own amounts, row by row, whatever the peers took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.curves import OURS
from benchmarks.tables import TextTable, show_amount
from rankbound.errors import ArgumentError

__all__ = ["Change", "compare_results", "comparison_table", "read_results"]

TOLERANCE = 0.1


@dataclass(frozen=True)
class Change:
    """Our amount in the old and the new results."""

    part: str
    name: str
    unit: str
    old: float
    new: float

    @property
    def ratio(self) -> float:
        """New divided by old: above 1 is worse."""
        return self.new / self.old

    def is_worse(self, tolerance: float = TOLERANCE) -> bool:
        """Whether the new amount exceeds the old one by more than the tolerance, a fraction of it."""
        return self.ratio > 1 + tolerance


def read_results(path: Path) -> dict[str, Any]:
    """Read a bench.json."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ArgumentError(f"{path}: not JSON: {error}") from None
    if not isinstance(results, dict) or not {"rows", "growth"} <= set(results):
        raise ArgumentError(f"{path}: not a bench.json, which holds rows and growth")
    return results


def compare_results(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[list[Change], list[str]]:
    """Return a change for each measurement of ours in both files, and the names of those in one file only.

    A row with several peers counts once, unless it was timed anew for each of them. Of a growth curve the largest size
    counts.
    """
    before, after = dict(_amounts(old)), dict(_amounts(new))
    changes = dict.fromkeys(Change(*key[:3], before[key], after[key]) for key in before if key in after)
    compared = {(change.part, change.name) for change in changes}
    unmatched = dict.fromkeys(f"{key[0]}: {key[1]}" for key in before | after if key[:2] not in compared)
    return list(changes), list(unmatched)


def _amounts(results: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str, str], float]]:
    """Yield part, name, unit and peer of each measurement, and our amount."""
    for row in results["rows"]:
        yield (row["part"], row["name"], row["unit"], row["peer"]), row["ours"]
    for line in results["growth"]:
        if line["way"].startswith(OURS):
            name = f"{line['curve']}, {line['sizes'][-1]:,} {line['over']} ({line['way']})"
            yield (line["part"], name, "s", ""), line["seconds"][-1]


def comparison_table(changes: list[Change], tolerance: float = TOLERANCE) -> TextTable:
    """Return a line per change, with a flag on those that are worse by more than the tolerance."""
    rows = tuple(
        (
            change.part,
            change.name,
            show_amount(change.old, change.unit),
            show_amount(change.new, change.unit),
            f"{change.ratio:.2f}",
            ("SLOWER" if change.unit == "s" else "LARGER") if change.is_worse(tolerance) else "",
        )
        for change in changes
    )
    return TextTable("rankbound, new against old", ("part", "benchmark", "old", "new", "new / old", "flag"), rows)
