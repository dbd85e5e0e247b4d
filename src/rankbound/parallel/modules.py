"""Modules of users, such as those that define measures, imported by whoever starts work and by every worker."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from rankbound.errors import ArgumentError, DataError

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


def _digest(module: ModuleType) -> str:
    """SHA-256 of the source file; of the name alone where there is no such file, as for compiled modules."""
    path = getattr(module, "__file__", None)
    content = Path(path).read_bytes() if path and path.endswith(".py") else module.__name__.encode()
    return hashlib.sha256(content).hexdigest()[:32]
