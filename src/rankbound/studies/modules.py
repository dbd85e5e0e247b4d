"""Measures of users in studies: which trials need them, and whether workers know them.

A study file may come from anyone, so it cannot name modules to import: only the caller of `run_study` can
(``modules=["my_measures"]``, on the command line ``--module my_measures``). The digest of each module's source is part
of a trial's identity: when the definition of a measure changes, the trials run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rankbound.errors import DataError, MeasureError
from rankbound.measures.measure import parse_measure
from rankbound.parallel import import_modules

if TYPE_CHECKING:
    from rankbound.studies.trial_spec import Trial


def own_measures(trials: Iterable[Trial]) -> list[str]:
    """Names of the measures and losses of trials that are not built in, sorted."""
    names = set()
    for spec in (trial.spec for trial in trials if trial.spec.kind != "faces"):
        names |= {*spec.measures, spec.select_by}
        names |= {spec.loss.removeprefix("lambda-")} if spec.loss else set()
    return sorted(name for name in names if _is_own(name))


def _is_own(name: str) -> bool:
    try:
        return not parse_measure(name).definition.built_in
    except MeasureError:  # a loss that is not named after a measure
        return False


def unknown_measures(modules: Mapping[str, str], names: Iterable[str]) -> str:
    """Run by a worker before a study: why it cannot run trials with these modules and measures, or ""."""
    try:
        import_modules(modules)
    except DataError as error:
        return str(error)
    unknown = [name for name in names if not _is_own(name)]
    if not unknown:
        return ""
    return (
        f"workers do not know {', '.join(unknown)}, which {'is' if len(unknown) == 1 else 'are'} registered in this "
        "process only: define your measures in a module and name it in modules (--module), or set jobs=0"
    )
