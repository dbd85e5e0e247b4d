"""Who runs what: studies as TOML files, their trials, where results are kept, and who computes them.

=====================================  ==============================================================================
what a study is                        spec (the file), expansion (its trials), published (numbers to compare with)
what a trial is                        sources (data), trial_rows, trial_users, trial_faces
who runs and keeps trials              runner (processes), cluster (Dask), store (SQLite + Parquet)
what comes out                         results (choice, means, intervals), derived (tables of a study's own)
=====================================  ==============================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.lazy import front_door

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

__getattr__, __dir__ = front_door(__name__, _HOME, __all__)
