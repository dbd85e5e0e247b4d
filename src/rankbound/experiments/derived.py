"""Tables of a study's own, beside its results: functions that a study names under ``derived``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from rankbound.experiments.store import Placed, Store

__all__ = ["DERIVED", "derived_table"]

DERIVED: dict[str, str] = {
    "approximation-error": "rankbound.experiments.approximation:error_along_training",
    "meta-evaluation": "rankbound.experiments.meta_tables:meta_tables",
}
"""Name -> "module:function" of (store, places of the study's trials, its results table) that gives a table."""


def derived_table(name: str, store: Store, placed: Sequence[Placed], results: pl.DataFrame) -> pl.DataFrame:
    """Make one of the tables."""
    module, _, function = DERIVED[name].partition(":")
    table: pl.DataFrame = getattr(importlib.import_module(module), function)(store, placed, results)
    return table
