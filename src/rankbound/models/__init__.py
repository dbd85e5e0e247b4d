"""Models: what gives scores. One interface, scikit-learn's, for every ranker.

=====================================  ==============================================================================
networks                               LinearRanker MLPRanker RankNet DirectRanker ListNet RankCNN
trees                                  LambdaMART RandomForestRanker BoostingRanker
points                                 LogisticRanker RegressionRanker
users and items                        MatrixFactorization
boosted and searched on the measure    AdaRank RankBoost CoordinateAscent SVMmap
around them                            Ranker QueryKFold load_ranker export_ranklib export_xgboost_json export_onnx
                                       backbone_features
=====================================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from rankbound.lazy import front_door

if TYPE_CHECKING:
    from rankbound.models.adarank import AdaRank
    from rankbound.models.backbone import backbone_features
    from rankbound.models.base import Ranker
    from rankbound.models.convolution import RankCNN
    from rankbound.models.coordinate_ascent import CoordinateAscent
    from rankbound.models.export import export_ranklib, export_xgboost_json
    from rankbound.models.factorization import MatrixFactorization
    from rankbound.models.linear import LinearRanker
    from rankbound.models.logistic import LogisticRanker
    from rankbound.models.neural import DirectRanker, ListNet, MLPRanker, RankNet
    from rankbound.models.onnx import export_onnx
    from rankbound.models.rankboost import RankBoost
    from rankbound.models.regression import RegressionRanker
    from rankbound.models.saving import load_ranker
    from rankbound.models.splitting import QueryKFold
    from rankbound.models.structured import SVMmap
    from rankbound.models.trees import BoostingRanker, LambdaMART, RandomForestRanker

# Class name -> module of this room that has it: the front door loads from here on first use, and `load_ranker` accepts
# these classes and no others.
RANKERS: Mapping[str, str] = MappingProxyType(
    {
        "AdaRank": "adarank",
        "BoostingRanker": "trees",
        "CoordinateAscent": "coordinate_ascent",
        "DirectRanker": "neural",
        "LambdaMART": "trees",
        "LinearRanker": "linear",
        "ListNet": "neural",
        "LogisticRanker": "logistic",
        "MLPRanker": "neural",
        "MatrixFactorization": "factorization",
        "RandomForestRanker": "trees",
        "RankBoost": "rankboost",
        "RankCNN": "convolution",
        "RankNet": "neural",
        "RegressionRanker": "regression",
        "SVMmap": "structured",
    }
)
_HOME = {
    **RANKERS,
    "QueryKFold": "splitting",
    "Ranker": "base",
    "backbone_features": "backbone",
    "export_onnx": "onnx",
    "export_ranklib": "export",
    "export_xgboost_json": "export",
    "load_ranker": "saving",
}

__all__ = [
    "RANKERS",
    "AdaRank",
    "BoostingRanker",
    "CoordinateAscent",
    "DirectRanker",
    "LambdaMART",
    "LinearRanker",
    "ListNet",
    "LogisticRanker",
    "MLPRanker",
    "MatrixFactorization",
    "QueryKFold",
    "RandomForestRanker",
    "RankBoost",
    "RankCNN",
    "RankNet",
    "Ranker",
    "RegressionRanker",
    "SVMmap",
    "backbone_features",
    "export_onnx",
    "export_ranklib",
    "export_xgboost_json",
    "load_ranker",
]

__getattr__, __dir__ = front_door(__name__, _HOME, __all__)
