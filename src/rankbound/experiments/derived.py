"""Tables that a study has in addition to its results: functions that it names under ``derived``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from rankbound.experiments.store import Store
    from rankbound.experiments.trial_spec import TrialSlot

__all__ = ["DERIVED", "derived_table"]

DERIVED: dict[str, str] = {
    "approximation-error": "rankbound.experiments.approximation:error_along_training",
    "evaluators": "rankbound.experiments.training_targets:evaluators",
    "train-evaluate": "rankbound.experiments.training_targets:train_evaluate",
    "meta-evaluation": "rankbound.experiments.meta_tables:meta_tables",
    "real-systems": "rankbound.experiments.meta_tables:real_systems",
}
"""Name -> "module:function" of (store, slots of the study, its results table) that returns a table."""


def derived_table(name: str, store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """Compute one of these tables."""
    module, _, function = DERIVED[name].partition(":")
    table: pl.DataFrame = getattr(importlib.import_module(module), function)(store, slots, results)
    return table
