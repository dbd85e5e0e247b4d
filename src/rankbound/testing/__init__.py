"""Tools for tests: `check_measure`, `assert_no_regression` for rankings, slow oracles, and Hypothesis strategies.

`rankbound.testing.oracles` and `rankbound.testing.strategies` are modules to import; the latter needs hypothesis.
"""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
