"""rankbound inside other tools: one thin module per tool, imported when one of its names is first used.

=====================================  ==============================================================================
measures for early stopping            lightgbm_metric xgboost_metric
=====================================  ==============================================================================

The objectives of boosting libraries are `rankbound.losses.lightgbm_objective` and `xgboost_objective`.
"""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
