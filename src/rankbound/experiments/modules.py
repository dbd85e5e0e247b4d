"""Modules of users that define measures for a study, imported by the runner and by every worker.

A study file may come from anyone, so it cannot name modules to import: only the caller of `run_study` can
(``modules=["my_measures"]``, on the command line ``--module my_measures``). The digest of each module's source is part
of a trial's identity: when the definition of a measure changes, the trials run again.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.measures.measure import parse_measure

if TYPE_CHECKING:
    from rankbound.experiments.trial_spec import Trial

__all__ = ["import_modules", "module_digests", "own_measures", "unknown_measures"]

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def module_digests(names: Iterable[str]) -> dict[str, str]:
    """Import modules and return the digest of the source of each.

    >>> list(module_digests(["json"]))
    ['json']
    """
    if isinstance(names, str):
        raise ArgumentError(f"modules must be a list of module names, got the string {names!r}")
    digests = {}
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ArgumentError(f"modules must be names as in an import statement, got {name!r}")
        try:
            digests[name] = _digest(importlib.import_module(name))
        except Exception as error:  # a module may raise anything while it is imported
            raise ArgumentError(f"modules: {name} cannot be imported: {type(error).__name__}: {error}") from error
    return digests


def import_modules(modules: Mapping[str, str]) -> None:
    """Import modules in a worker; DataError if one is missing here or has another content than at the runner."""
    for name, digest in modules.items():
        try:
            module = importlib.import_module(name)
        except Exception as error:
            raise DataError(
                f"the module {name} cannot be imported by this worker: {type(error).__name__}: {error}; put it on the "
                "PYTHONPATH of every worker"
            ) from error
        if _digest(module) != digest:
            raise DataError(f"the module {name} of this worker is not the one that the study was started with")


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


def _digest(module: ModuleType) -> str:
    """SHA-256 of the source file; of the name alone where there is no such file, as for compiled modules."""
    path = getattr(module, "__file__", None)
    content = Path(path).read_bytes() if path and path.endswith(".py") else module.__name__.encode()
    return hashlib.sha256(content).hexdigest()[:32]
