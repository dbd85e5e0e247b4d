"""rankbound inside other tools: one thin module per tool, imported when one of its names is first used.

=====================================  ==============================================================================
measures for early stopping            lightgbm_metric xgboost_metric catboost_metric CatBoostMetric
values of every query in every round   LightGBMRecorder xgboost_recorder QueryHistory
LambdaMART on a Dask cluster           fit_on_dask
scikit-learn                           ranking_scorer RankingScorer QueryRanker
Optuna                                 lightgbm_pruning xgboost_pruning ranker_pruning
measures of ir_measures, PyTerrier     ir_measure
sentence-transformers                  CrossEncoderRankingLoss RankingEvaluator
torchmetrics, Lightning                RankingMetric RankingCallback
MLflow and other trackers              log_to_mlflow log_to
=====================================  ==============================================================================

The objectives of boosting libraries are `rankbound.losses.lightgbm_objective` and `xgboost_objective`.
"""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
