"""Data: readers, known data sets, preparation, splits, sampling, and generated data."""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
