"""Studies: experiments that a TOML file describes, run in parallel, stored, and compared with published numbers.

=====================  ================================================================================================
the entry              study (`run_study`, `plan_study`), progress
what a study is        spec (the file), expansion (its trials), claims, derived (additional tables)
what a trial is        trial_spec (the types), sources (data), trial (running one), trial_rows, trial_users, trial_faces
where trials run       runner (processes), cluster (Dask), worker, modules (users' own measures)
where results go       store (SQLite and Parquet), results (selection, means, intervals), writing (files)
=====================  ================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.lazy import front_door

if TYPE_CHECKING:
    from rankbound.experiments.expansion import expand
    from rankbound.experiments.progress import StudyProgress, show_progress
    from rankbound.experiments.results import results_table
    from rankbound.experiments.runner import run_trials
    from rankbound.experiments.spec import Study, known_studies, load_study
    from rankbound.experiments.store import Store, open_store
    from rankbound.experiments.study import StudyPlan, StudyResult, plan_study, run_study
    from rankbound.experiments.trial import Outcome, run_trial
    from rankbound.experiments.trial_spec import Trial, TrialSlot, TrialSpec

_HOME = {
    "Outcome": "trial",
    "Store": "store",
    "Study": "spec",
    "StudyPlan": "study",
    "StudyProgress": "progress",
    "StudyResult": "study",
    "Trial": "trial_spec",
    "TrialSlot": "trial_spec",
    "TrialSpec": "trial_spec",
    "expand": "expansion",
    "known_studies": "spec",
    "load_study": "spec",
    "open_store": "store",
    "plan_study": "study",
    "results_table": "results",
    "run_study": "study",
    "run_trial": "trial",
    "run_trials": "runner",
    "show_progress": "progress",
}

__all__ = [
    "Outcome",
    "Store",
    "Study",
    "StudyPlan",
    "StudyProgress",
    "StudyResult",
    "Trial",
    "TrialSlot",
    "TrialSpec",
    "expand",
    "known_studies",
    "load_study",
    "open_store",
    "plan_study",
    "results_table",
    "run_study",
    "run_trial",
    "run_trials",
    "show_progress",
]

__getattr__, __dir__ = front_door(__name__, _HOME, __all__)
