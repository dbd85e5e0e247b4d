"""rankbound: learning to rank that knows how hard each query is.

>>> import rankbound as rb
>>> rb.evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 0.9, "b": 0.1}}, ["nDCG@10"]).mean()
{'nDCG@10': 1.0}
>>> rb.bounds("AP", n=2, relevant=1)
Bounds(worst=0.5, expected=0.75, best=1.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.lazy import front_door

__version__ = "0.2.0"

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
    from rankbound.experiments.study import run_study
    from rankbound.lists import Lists
    from rankbound.measures.names import Measure, parse_measure

# Public name -> module that has it, loaded on first use.
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
    "losses": "losses",
    "models": "models",
    "parse_measure": "measures.names",
    "query_types": "difficulty.queries",
    "run_study": "experiments.study",
}

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
    "run_study",
]

__getattr__, __dir__ = front_door(__name__, _HOME, __all__)
