"""Models that compute scores, all with the interface of scikit-learn.

=====================================  ==============================================================================
networks                               LinearRanker MLPRanker RankNet DirectRanker ListNet RankCNN
trees                                  LambdaMART RandomForestRanker BoostingRanker
pointwise                              LogisticRanker RegressionRanker
users and items                        MatrixFactorization ImplicitALS EASE ItemKNN Popularity Blend
direct optimization of a measure       AdaRank RankBoost CoordinateAscent SVMmap
options of rankers                     Network ImageNetwork NetworkOptimizer Comparisons TreeOptions Monitoring
options of MatrixFactorization         Optimizer Negatives VectorModel Monitoring
base classes, folds, files             Ranker NeuralRanker Recommender QueryKFold load_ranker backbone_features
files for other programs               export_ranker export_formats export_onnx
evaluation of recommenders             evaluate_recommender evaluate_full_ranking
=====================================  ==============================================================================
"""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, "RANKERS", "RECOMMENDERS")

# The only classes that `load_ranker` creates, whatever a file names.
RANKERS = (
    "AdaRank",
    "Blend",
    "BoostingRanker",
    "CoordinateAscent",
    "DirectRanker",
    "EASE",
    "ImplicitALS",
    "ItemKNN",
    "LambdaMART",
    "LinearRanker",
    "ListNet",
    "LogisticRanker",
    "MLPRanker",
    "MatrixFactorization",
    "Popularity",
    "RandomForestRanker",
    "RankBoost",
    "RankCNN",
    "RankNet",
    "RegressionRanker",
    "SVMmap",
)

# Those of them that are trained on interactions of users with items.
RECOMMENDERS = ("Blend", "EASE", "ImplicitALS", "ItemKNN", "MatrixFactorization", "Popularity")
