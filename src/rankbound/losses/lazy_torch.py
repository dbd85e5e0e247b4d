"""torch, imported when a loss first needs it: boosting objectives work on arrays and run where torch is missing."""

from __future__ import annotations

from typing import Any

from rankbound.packages import import_package


class _LazyTorch:
    """Stands for the module torch; the first use of a name imports it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # tools that look at every object must not import torch
            raise AttributeError(name)
        value = getattr(import_package("torch", "a loss of tensors"), name)
        setattr(self, name, value)  # the next use finds the name without this method
        return value


torch: Any = _LazyTorch()
