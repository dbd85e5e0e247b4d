"""Modules and functions of users that the command line imports; the current folder is searched first."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rankbound.errors import ArgumentError


def import_module(name: str, option: str = "--module") -> ModuleType:
    """Import a user's module by name, as ``python -m`` does, or from a file; errors name the option or argument."""
    if name.endswith(".py"):
        return _import_file(Path(name))
    _search_first(os.getcwd())  # noqa: PTH109 - sys.path has text
    return _import(lambda: importlib.import_module(name), f"{option} {name}")


def name_modules(modules: list[str] | None) -> list[str]:
    """Return the names under which workers import modules, each given by its name or file.

    >>> name_modules(["json"])
    ['json']
    """
    return [import_module(name).__name__ for name in modules or []]


def load_function(target: str) -> Callable[..., Any]:
    """The function of ``package.module:function`` or ``path/to/file.py:function``.

    >>> load_function("math:sqrt")(4)
    2.0
    >>> load_function("math:root")
    Traceback (most recent call last):
    rankbound.errors.ArgumentError: math:root: the module has no function 'root'
    """
    where, colon, attribute = target.rpartition(":")
    if not colon or not where or not attribute:
        raise ArgumentError(f"the function must be MODULE:FUNCTION, such as my_metrics:ndcg, got {target!r}")
    module = import_module(where, "module")
    value: Any = module
    for name in attribute.split("."):
        value = getattr(value, name, None)
        if value is None:
            raise ArgumentError(f"{target}: the module has no function {attribute!r}")
    if not callable(value):
        raise ArgumentError(f"{target}: must be a function, got {type(value).__name__}")
    return value  # type: ignore[no-any-return]


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ArgumentError(f"{path}: no such file")
    _search_first(os.getcwd())  # noqa: PTH109
    _search_first(str(path.resolve().parent))  # as if the file were run
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader

    def run() -> ModuleType:
        known = sys.modules.get(path.stem)
        sys.modules[path.stem] = module  # dataclasses and pickle look there
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[path.stem]
            if known is not None:
                sys.modules[path.stem] = known
            raise
        return module

    return _import(run, str(path))


def _import(load: Callable[[], ModuleType], what: str) -> ModuleType:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for our own output
            return load()
    except (Exception, SystemExit) as error:  # the user's own code can fail in any way
        raise ArgumentError(f"{what}: cannot be imported: {type(error).__name__}: {error}") from error


def _search_first(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
