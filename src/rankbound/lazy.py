"""Rooms that load their modules when a name is first asked for: `import rankbound` costs next to nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["front_door"]


def front_door(
    package: str, home: Mapping[str, str], public: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package; ``home`` has name -> module below the package.

    >>> get, names = front_door("rankbound", {"Lists": "lists"}, ["Lists"])
    >>> get("Lists").__module__, names()
    ('rankbound.lists', ['Lists'])
    """

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{home[name]}")
        return module if home[name] == name else getattr(module, name)  # a room itself, or a name in it

    return get, lambda: sorted(public)
