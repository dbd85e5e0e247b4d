"""All studies that come with rankbound: what they need, and running them one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from rankbound.studies.progress import ProgressCallback
from rankbound.studies.sources import can_be_read
from rankbound.studies.spec import Study
from rankbound.studies.study import StudyPlan, StudyResult, data_folder, plan_study, run_study
from rankbound.studies.study_files import known_studies, load_study


@dataclass(frozen=True)
class AllStudies:
    """What running all studies would do.

    Attributes
    ----------
    plans:
        The plans of the studies whose data are present, the shortest first.
    left_out:
        Name of each other study -> the reason.
    """

    plans: tuple[StudyPlan, ...]
    left_out: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """The expected duration of all plans together; studies of one store share their trials."""
        stores: dict[Path, float] = {}
        for plan in self.plans:
            stores[plan.store] = max(plan.seconds, stores.get(plan.store, 0.0))
        return sum(stores.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, as ``rankbound reproduce --all --dry-run --json`` prints them."""
        return {
            "studies": [plan.to_dict() for plan in self.plans],
            "left_out": dict(self.left_out),
            "seconds": round(self.seconds),
        }


def plan_all_studies(
    *,
    quick: bool = False,
    data: str | PathLike[str] | None = None,
    store: str | PathLike[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    progress: ProgressCallback | None = None,
) -> AllStudies:
    """Plan all studies that come with rankbound, without running any.

    The parameters are those of `run_study`; each study has a folder of its own in ``store``. Studies whose data are
    neither here nor to be downloaded are left out, with the reason; optional tables are no such reason.
    """
    plans, left_out = [], {}
    with data_folder(data):
        for name in known_studies():
            study = load_study(name)
            missing = _missing_data(study)
            if missing:
                left_out[name] = f"{', '.join(missing)} cannot be downloaded by a program and is not here"
                continue
            folder = None if store is None else Path(store) / (study.store_name + ("-quick" if quick else ""))
            plans.append(plan_study(study, quick=quick, store=folder, jobs=jobs, cluster=cluster, progress=progress))
    return AllStudies(tuple(sorted(plans, key=lambda plan: (plan.seconds, plan.study.name))), left_out)


def run_all_studies(
    planned: AllStudies | None = None,
    *,
    quick: bool = False,
    data: str | PathLike[str] | None = None,
    store: str | PathLike[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    run: bool = True,
    results: str | PathLike[str] | None = None,
    page: bool = False,
    progress: ProgressCallback | None = None,
) -> Iterator[StudyResult]:
    """Run all studies of `plan_all_studies` and yield the result of each as soon as it is finished.

    Finished trials are kept, so that the same call resumes after an interruption. ``planned`` is the plan, if there is
    one for the same parameters. For the others see `run_study`; with ``run=False``, studies that have no store yet are
    passed over.
    """
    with data_folder(data):
        planned = planned or plan_all_studies(quick=quick, store=store, jobs=jobs, cluster=cluster)
        for plan in planned.plans:
            if not run and not (plan.store / "trials.sqlite").exists():
                continue
            yield run_study(
                plan.study.path.stem,
                quick=quick,
                store=plan.store,
                jobs=jobs,
                cluster=cluster,
                retry_failed=retry_failed,
                run=run,
                results=results,
                page=page,
                progress=progress,
            )


def _missing_data(study: Study) -> list[str]:
    """The data sets without which a study cannot be run, and which are not to be had."""
    tables = [table for table in study.tables if not table.optional]
    names = dict.fromkeys(table.data for table in tables if isinstance(table.data, str))
    return [name for name in names if not can_be_read(name)]
