"""The losses as objectives of LightGBM and XGBoost: gradient and hessian per item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import floats, integers, numbers, weights_of
from rankbound.errors import ArgumentError, DataError
from rankbound.losses.base import RankingLoss
from rankbound.losses.catalog import get_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["gradient_and_hessian", "lightgbm_objective", "xgboost_objective"]

_LEAST_HESSIAN = 1e-9  # an item without pairs must not lead to a division by zero


def gradient_and_hessian(
    loss: RankingLoss, scores: Any, labels: Any, offsets: Any, weights: Any = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradient and a positive hessian diagonal of the *summed* loss, one entry per item.

    Pairwise and listwise losses have their own hessian (DirectRanker the Gauss-Newton approximation). A smooth measure
    is not convex; its hessian is alpha times the sum of |contribution to the gradient| over the pairs of an item, an
    upper bound of the curvature of the sigmoids, so that a Newton step moves scores by at most 1/alpha.

    >>> from rankbound.losses import RankNetLoss
    >>> gradient, hessian = gradient_and_hessian(RankNetLoss(), [0.0, 0.0], [1, 0], [0, 2])
    >>> gradient.tolist(), hessian.tolist()
    ([-0.5, 0.5], [0.25, 0.25])
    """
    scores = numbers("scores", scores)
    if scores.dtype != np.float32:
        scores = floats("scores", scores, finite=False)
    plan = loss.plan(labels, offsets, scores.shape)
    result = loss.value_and_gradient(scores, plan, with_hessian=True)
    gradient, hessian = result.gradient.astype(np.float64), result.hessian.astype(np.float64)
    if weights is not None:
        checked = weights_of("weights", weights)
        if len(checked) != len(plan.rows):
            raise DataError(f"weights must have one entry per query, {len(plan.rows)}, got {len(checked)}")
        per_item = plan.per_item(checked)
        gradient, hessian = gradient * per_item, hessian * per_item
    return gradient, np.maximum(hessian, _LEAST_HESSIAN)


@dataclass(frozen=True)
class _Objective:
    """The common part of both objectives: scores in float32 (the fast path of the kernels) and weights per item."""

    loss: RankingLoss

    def _gradient_and_hessian(self, scores: Any, labels: Any, offsets: Any, weight: Any) -> tuple[Any, Any]:
        with np.errstate(over="ignore"):  # infinite scores raise DataError in the loss
            scores = floats("scores", scores).astype(np.float32)
        gradient, hessian = gradient_and_hessian(self.loss, scores, labels, offsets)
        if weight is not None and len(weight := weights_of("weight", weight)):
            if len(weight) != len(gradient):
                raise DataError(f"weight must have one entry per item, {len(gradient)}, got {len(weight)}")
            gradient, hessian = gradient * weight, hessian * weight
        return gradient, hessian


class LightGBMObjective(_Objective):
    """Objective for ``lightgbm.train`` (params["objective"]) and for ``LGBMRanker(objective=...)``."""

    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[Any, Any]:
        """Accept (scores, Dataset) from lightgbm.train, or (labels, scores, weight, group) from LGBMRanker."""
        if hasattr(second, "get_label"):
            scores, labels, weight, group = first, second.get_label(), second.get_weight(), second.get_group()
        else:
            labels, scores = first, second
        if group is None:
            raise ArgumentError("the objective needs the group sizes of the training data: pass group=, got None")
        scores, sizes = numbers("scores", scores), integers("group", group, least=0)
        if sizes.sum(dtype=np.float64) != len(scores):
            raise DataError(f"group must add up to the number of scores, {len(scores)}, got {sizes.tolist()}")
        return self._gradient_and_hessian(scores, labels, np.concatenate(([0], np.cumsum(sizes))), weight)


class XGBoostObjective(_Objective):
    """Objective for ``xgboost.train(obj=...)`` on a DMatrix with groups or qid."""

    def __call__(self, scores: Any, matrix: Any) -> tuple[Any, Any]:
        """Compute gradient and hessian for the scores of a DMatrix."""
        offsets = np.asarray(matrix.get_uint_info("group_ptr"), dtype=np.int64)
        if len(offsets) == 0:
            raise ArgumentError("the objective needs a DMatrix with group= or qid=")
        weight = floats("weight", matrix.get_weight())
        if len(weight) == len(offsets) - 1:  # XGBoost has one weight per group in ranking
            weight = np.repeat(weight, np.diff(offsets))
        return self._gradient_and_hessian(scores, matrix.get_label(), offsets, weight)


def lightgbm_objective(loss: str | RankingLoss = "nDCG", **options: Any) -> LightGBMObjective:
    """Make a LightGBM objective of a loss, given by name (see `get_loss`) or as an object.

    >>> objective = lightgbm_objective("nDCG", bounding="expectation-max")
    >>> gradient, hessian = objective([1.0, 0.0, 0.0], [0.0, 0.0, 0.0], None, [3])  # labels, scores, weights, groups
    >>> bool(gradient[0] < 0), bool((hessian > 0).all())
    (True, True)
    """
    return LightGBMObjective(get_loss(loss, **options))


def xgboost_objective(loss: str | RankingLoss = "nDCG", **options: Any) -> XGBoostObjective:
    """Make an XGBoost objective of a loss, given by name (see `get_loss`) or as an object."""
    return XGBoostObjective(get_loss(loss, **options))
