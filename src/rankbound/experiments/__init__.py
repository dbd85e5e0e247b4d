"""Who runs what: studies as TOML files, their trials, where results are kept, and who computes them.

=====================================  ==============================================================================
what a study is                        spec (the file), expansion (its trials), published (numbers to compare with)
what a trial is                        sources (data), rankers, trial_rows, trial_users, trial_faces
who runs and keeps trials              runner (processes), cluster (Dask), store (SQLite + Parquet)
what comes out                         results (choice, means, intervals), derived (tables of a study's own)
=====================================  ==============================================================================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankbound.experiments.expansion import expand
    from rankbound.experiments.results import results_table
    from rankbound.experiments.runner import run_trials
    from rankbound.experiments.spec import Study, known_studies, load_study
    from rankbound.experiments.store import Store, open_store
    from rankbound.experiments.trial import Outcome, Trial, run_trial

_HOME = {
    "Outcome": "trial",
    "Store": "store",
    "Study": "spec",
    "Trial": "trial",
    "expand": "expansion",
    "known_studies": "spec",
    "load_study": "spec",
    "open_store": "store",
    "results_table": "results",
    "run_trial": "trial",
    "run_trials": "runner",
}

__all__ = [
    "Outcome",
    "Store",
    "Study",
    "Trial",
    "expand",
    "known_studies",
    "load_study",
    "open_store",
    "results_table",
    "run_trial",
    "run_trials",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
