"""Packages that import their modules on first use, so that ``import rankbound`` and ``rankbound --help`` stay fast.

The public names of such a package are listed once, in its stub ``__init__.pyi``, which type checkers read as well.
`lazy_loader.attach_stub` does the same for stubs of any form; reading one form by hand needs no import of ``ast``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def lazy_exports(package: str, *defined: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Parameters
    ----------
    package:
        ``__name__`` of the package. Each public name has one line ``from MODULE import NAME as NAME`` in its stub.
    defined:
        Public names that the package defines itself.

    >>> get, names, public = lazy_exports("rankbound")
    >>> get("Lists").__module__, "Lists" in names(), "Lists" in public
    ('rankbound.lists', True, True)
    """
    modules = _read_stub(package)
    public = sorted({*modules, *defined})

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:  # a subpackage
            return importlib.import_module(f"{package}.{name}")
        found = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, found)  # which is found at once the next time
        return found

    return get, lambda: list(public), public


def _read_stub(package: str) -> dict[str, str]:
    """Return the module of each name that the stub of a package re-exports."""
    spec: Any = sys.modules[package].__spec__
    lines = spec.loader.get_data(f"{spec.origin}i").decode().splitlines()  # also from a zip archive
    words = (line.split() for line in lines)
    return {line[3]: line[1] for line in words if len(line) == 6 and line[0] == "from"}
