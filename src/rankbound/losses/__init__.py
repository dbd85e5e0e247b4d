"""Losses: what training minimizes. Flat scores + offsets, one pass, bounded by what each query allows.

=====================================  ==============================================================================
smooth measures                        NDCGLoss APLoss RRLoss NRBPLoss PrecisionLoss KendallTauLoss SoftRankLoss
pairs                                  LambdaLoss RankNetLoss DirectRankerLoss
lists and points                       ListNetLoss ListMLELoss PointwiseLoss
outside our own trainer                gradient_and_hessian lightgbm_objective xgboost_objective
=====================================  ==============================================================================
"""

from __future__ import annotations

try:
    import numba  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"rankbound.losses needs torch and numba, and {error.name} is missing: pip install 'rankbound[train]'"
    ) from error

from rankbound.losses.base import LOSS_BOUNDINGS, MeasureLoss, RankingLoss
from rankbound.losses.catalog import LOSS_NAMES, get_loss, warm_up
from rankbound.losses.compiling import set_threads, threads
from rankbound.losses.listwise import ListMLELoss, ListNetLoss, PointwiseLoss
from rankbound.losses.objectives import gradient_and_hessian, lightgbm_objective, xgboost_objective
from rankbound.losses.pairwise import DirectRankerLoss, LambdaLoss, RankNetLoss
from rankbound.losses.smooth import (
    APLoss,
    KendallTauLoss,
    NDCGLoss,
    NRBPLoss,
    PrecisionLoss,
    RRLoss,
    SmoothLoss,
    SoftRankLoss,
)

__all__ = [
    "LOSS_BOUNDINGS",
    "LOSS_NAMES",
    "APLoss",
    "DirectRankerLoss",
    "KendallTauLoss",
    "LambdaLoss",
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
    "SoftRankLoss",
    "get_loss",
    "gradient_and_hessian",
    "lightgbm_objective",
    "set_threads",
    "threads",
    "warm_up",
    "xgboost_objective",
]
