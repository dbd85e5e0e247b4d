"""Tables that a study has in addition to its results: functions that it names under ``derived``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rankbound.studies import approximation, meta_tables, training_targets

if TYPE_CHECKING:
    import polars as pl

    from rankbound.studies.store import Store
    from rankbound.studies.trial_spec import TrialSlot

DERIVED: dict[str, Callable[[Store, Sequence[TrialSlot], pl.DataFrame], pl.DataFrame]] = {
    "approximation-error": approximation.error_along_training,
    "evaluators": training_targets.evaluators,
    "train-evaluate": training_targets.train_evaluate,
    "meta-evaluation": meta_tables.meta_tables,
    "real-systems": meta_tables.real_systems,
}
"""Name -> function of (store, slots of the study, its results table) that returns a table."""
