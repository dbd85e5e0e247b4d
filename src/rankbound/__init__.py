"""rankbound: learning to rank that knows how hard each query is.

>>> import rankbound as rb
>>> rb.evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 0.9, "b": 0.1}}, ["nDCG@10"]).mean()
{'nDCG@10': 1.0}
>>> rb.bounds("AP", n=2, relevant=1)
Bounds(worst=0.5, expected=0.75, best=1.0)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rankbound import losses as losses
    from rankbound import models as models
    from rankbound.analysis.comparison import Comparison, compare
    from rankbound.difficulty.bounding import Bounding, Bounds, get_bounding
    from rankbound.difficulty.bounds import bounds
    from rankbound.difficulty.distribution import Distribution, distribution
    from rankbound.difficulty.queries import difficulty_weights, query_types
    from rankbound.errors import ArgumentError, DataError, FileFormatError, MeasureError, RankboundError
    from rankbound.evaluation import Evaluation, evaluate
    from rankbound.lists import Lists
    from rankbound.measures.names import Measure, parse_measure

# Public name -> module that has it. Loaded on first use, so that `import rankbound` costs next to nothing.
_HOME = {
    "ArgumentError": "errors",
    "Bounding": "difficulty.bounding",
    "Bounds": "difficulty.bounding",
    "Comparison": "analysis.comparison",
    "DataError": "errors",
    "Distribution": "difficulty.distribution",
    "Evaluation": "evaluation",
    "FileFormatError": "errors",
    "Lists": "lists",
    "Measure": "measures.names",
    "MeasureError": "errors",
    "RankboundError": "errors",
    "bounds": "difficulty.bounds",
    "compare": "analysis.comparison",
    "difficulty_weights": "difficulty.queries",
    "distribution": "difficulty.distribution",
    "evaluate": "evaluation",
    "get_bounding": "difficulty.bounding",
    "parse_measure": "measures.names",
    "query_types": "difficulty.queries",
}
_ROOMS = ("losses", "models")

__all__ = [
    "ArgumentError",
    "Bounding",
    "Bounds",
    "Comparison",
    "DataError",
    "Distribution",
    "Evaluation",
    "FileFormatError",
    "Lists",
    "Measure",
    "MeasureError",
    "RankboundError",
    "__version__",
    "bounds",
    "compare",
    "difficulty_weights",
    "distribution",
    "evaluate",
    "get_bounding",
    "losses",
    "models",
    "parse_measure",
    "query_types",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"rankbound.{_HOME[name]}"), name)
    if name in _ROOMS:
        return importlib.import_module(f"rankbound.{name}")
    raise AttributeError(f"module 'rankbound' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
