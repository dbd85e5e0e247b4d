"""rankbound: learning to rank that knows how hard each query is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> module that has it. Loaded on first use, so that `import rankbound` costs next to nothing.
_HOME = {
    "Lists": "rankbound.lists",
}

if TYPE_CHECKING:
    from rankbound.lists import Lists

__all__ = ["Lists", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'rankbound' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
