"""Studies: experiments that a TOML file describes, run in parallel, stored, and compared with published numbers.

=====================  ================================================================================================
the entry              study (`run_study`, `plan_study`), all_studies, progress
what a study is        spec (its keys), study_files, expansion (its trials), claims, derived (additional tables)
what a trial is        trial_spec (the types), sources (data), trial (running one), trial_users, trial_faces
where trials run       runner (processes), cluster (Dask), worker, modules (users' own measures)
where results go       store (SQLite and Parquet), results (selection, means, intervals), writing (files), exchange
=====================  ================================================================================================
"""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
