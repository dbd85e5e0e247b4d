"""Evaluate runs: measures of rankings, per query and averaged over queries, and what differences between runs mean."""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
