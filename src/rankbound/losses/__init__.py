"""Losses on flat scores and offsets: value and gradient in one pass, bounded by what each query allows.

=====================================  ==============================================================================
any measure with a loss                SmoothMeasureLoss LambdaRankLoss
smooth measures                        NDCGLoss APLoss RRLoss ERRLoss NRBPLoss PrecisionLoss KendallTauLoss SoftRankLoss
pairs                                  RankNetLoss DirectRankerLoss LambdaLoss
lists and points                       SoftmaxLoss XENDCGLoss ListNetLoss ListMLELoss PointwiseLoss
a teacher's scores                     DistillationLoss
objectives of boosting libraries       gradient_and_hessian lightgbm_objective xgboost_objective
settings                               set_threads set_pair_memory vectorized
=====================================  ==============================================================================
"""

from __future__ import annotations

from rankbound.losses.base import LOSS_BOUNDINGS, MeasureLoss, RankingLoss
from rankbound.losses.catalog import get_loss, loss_names, warm_up
from rankbound.losses.device_settings import pair_memory, set_pair_memory, vectorized
from rankbound.losses.listwise import (
    DistillationLoss,
    ListMLELoss,
    ListNetLoss,
    PointwiseLoss,
    SoftmaxLoss,
    XENDCGLoss,
)
from rankbound.losses.objectives import gradient_and_hessian, lightgbm_objective, xgboost_objective
from rankbound.losses.pairwise import DirectRankerLoss, LambdaLoss, LambdaRankLoss, RankNetLoss
from rankbound.losses.smooth import (
    APLoss,
    ERRLoss,
    KendallTauLoss,
    NDCGLoss,
    NRBPLoss,
    PrecisionLoss,
    RRLoss,
    SmoothLoss,
    SmoothMeasureLoss,
    SoftRankLoss,
)
from rankbound.losses.stochastic import StochasticLoss
from rankbound.parallel import set_threads, threads

__all__ = [
    "LOSS_BOUNDINGS",
    "APLoss",
    "DirectRankerLoss",
    "DistillationLoss",
    "ERRLoss",
    "KendallTauLoss",
    "LambdaLoss",
    "LambdaRankLoss",
    "ListMLELoss",
    "ListNetLoss",
    "MeasureLoss",
    "NDCGLoss",
    "NRBPLoss",
    "PointwiseLoss",
    "PrecisionLoss",
    "RRLoss",
    "RankNetLoss",
    "RankingLoss",
    "SmoothLoss",
    "SmoothMeasureLoss",
    "SoftRankLoss",
    "SoftmaxLoss",
    "StochasticLoss",
    "XENDCGLoss",
    "get_loss",
    "gradient_and_hessian",
    "lightgbm_objective",
    "loss_names",
    "pair_memory",
    "set_pair_memory",
    "set_threads",
    "threads",
    "vectorized",
    "warm_up",
    "xgboost_objective",
]
