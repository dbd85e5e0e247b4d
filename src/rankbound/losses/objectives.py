"""The losses as objectives of LightGBM and XGBoost: gradient and hessian per item. torch is not needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import floats, numbers, offsets_of_groups, offsets_of_matrix, weights_of
from rankbound.difficulty.weights import warn_of_two_weightings
from rankbound.errors import DataError
from rankbound.losses.base import RankingLoss
from rankbound.losses.catalog import get_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.plans import Plan

DEFAULT_OBJECTIVE = "noisy-lambda-nDCG"  # chosen by the study in docs/results/training.md
_LEAST_HESSIAN = 1e-9  # an item without pairs must not lead to a division by zero


def gradient_and_hessian(
    loss: RankingLoss, scores: Any, labels: Any, offsets: Any, weights: Any = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradient and a positive hessian diagonal of the *summed* loss, one entry per item.

    Pairwise and listwise losses have their own hessian (DirectRanker the Gauss-Newton approximation). A smooth measure
    is not convex. The hessian of each of its pairs is alpha (1 - p) / 3 times its gradient, where p is the smooth step
    that counts the pair as wrongly ordered: as for a logistic loss, a Newton step has the least size (3/alpha) for a
    pair in the right order, and is the larger the more wrong the order is.

    >>> from rankbound.losses import RankNetLoss
    >>> gradient, hessian = gradient_and_hessian(RankNetLoss(), [0.0, 0.0], [1, 0], [0, 2])
    >>> gradient.tolist(), hessian.tolist()
    ([-0.5, 0.5], [0.25, 0.25])
    """
    scores = numbers("scores", scores)
    if scores.dtype != np.float32:
        scores = floats("scores", scores, finite=False)
    plan = loss.plan(labels, offsets, scores.shape)
    gradient, hessian = (array.astype(np.float64) for array in loss.gradient_and_hessian(scores, plan))
    if weights is not None:
        checked = weights_of("weights", weights)
        if len(checked) != len(plan.rows):
            raise DataError(f"weights must have one entry per query, {len(plan.rows)}, got {len(checked)}")
        per_item = plan.per_item(checked)
        gradient, hessian = gradient * per_item, hessian * per_item
    return gradient, np.maximum(hessian, _LEAST_HESSIAN)


@dataclass(frozen=True)
class _Objective:
    """The common part of both objectives: scores in float32 (the fast path of the kernels) and weights per item.

    Gradient and hessian are multiplied by one number per training set, such that the mean hessian of items in queries
    that count is ``typical_hessian`` at equal scores. Without regularization this number changes nothing; with it, the
    defaults of a library suit a certain size.
    """

    loss: RankingLoss
    scale: float | None = None  # that number, where the labels of a call are only a part of the training set
    typical_hessian: ClassVar[float]
    _scale: list[tuple[Plan, float]] = field(default_factory=list, init=False, repr=False, compare=False)

    def _gradient_and_hessian(self, scores: Any, labels: Any, offsets: Any, weight: Any) -> tuple[Any, Any]:
        with np.errstate(over="ignore"):  # infinite scores raise DataError in the loss
            scores = floats("scores", scores).astype(np.float32)
        plan = self.loss.plan(labels, offsets, scores.shape)
        gradient, hessian = self.loss.gradient_and_hessian(scores, plan)
        factor: Any = np.float32(self._scale_of(plan))
        if weight is not None and len(weight := weights_of("weight", weight)):
            if len(weight) != len(scores):
                raise DataError(f"weight must have one entry per item, {len(scores)}, got {len(weight)}")
            if plan.active.any() and (bounding := getattr(self.loss, "bounding", "none")) != "none":
                warn_of_two_weightings(bounding, weight[plan.offsets[:-1][plan.active]])
            factor = (factor * weight).astype(np.float32)
        return gradient * factor, np.maximum(hessian * factor, np.float32(_LEAST_HESSIAN))

    def _scale_of(self, plan: Plan) -> float:
        """Return the factor that gives items their typical hessian; it depends on the labels alone."""
        if self.scale is not None:
            return self.scale
        if not self._scale or self._scale[0][0] is not plan:
            self._scale[:] = [(plan, self.scale_for(*self.hessian_at_equal_scores(plan)))]
        return self._scale[0][1]

    def hessian_at_equal_scores(self, plan: Plan) -> tuple[float, int]:
        """Return the sum of the hessians of items in queries that count, at equal scores, and their number."""
        _, hessian = self.loss.gradient_and_hessian(np.zeros(len(plan.labels), np.float32), plan)
        counts = plan.per_item(plan.active)
        return float(hessian[counts].sum(dtype=np.float64)), int(counts.sum())

    def scale_for(self, total: float, count: int) -> float:
        """Return the factor that gives hessians of this sum and number their typical mean."""
        return self.typical_hessian * count / total if total > 0 else 1.0


class LightGBMObjective(_Objective):
    """Objective for ``lightgbm.train`` (params["objective"]) and for ``LGBMRanker(objective=...)``."""

    typical_hessian: ClassVar[float] = 1 / 4  # that of logistic regression: far above LightGBM's least sum of a leaf

    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[Any, Any]:
        """Accept (scores, Dataset) from lightgbm.train, or (labels, scores, weight, group) from LGBMRanker."""
        if hasattr(second, "get_label"):
            scores, labels, weight, group = first, second.get_label(), second.get_weight(), second.get_group()
        else:
            labels, scores = first, second
        scores = numbers("scores", scores)
        offsets = offsets_of_groups(group, len(scores), "the objective")
        return self._gradient_and_hessian(scores, labels, offsets, weight)


class XGBoostObjective(_Objective):
    """Objective for ``xgboost.train(obj=...)`` on a DMatrix with groups or qid."""

    # XGBoost's lambda = 1 and min_child_weight = 1 are meant to restrict trees. Hessians of this size let them do so as
    # those of its own rank:ndcg do; larger ones overfit (chosen on the development sets of the study).
    typical_hessian: ClassVar[float] = 0.01

    def __call__(self, scores: Any, matrix: Any) -> tuple[Any, Any]:
        """Compute gradient and hessian for the scores of a DMatrix."""
        offsets = offsets_of_matrix(matrix, "the objective")
        weight = floats("weight", matrix.get_weight())
        if len(weight) == len(offsets) - 1:  # XGBoost has one weight per group in ranking
            weight = np.repeat(weight, np.diff(offsets))
        return self._gradient_and_hessian(scores, matrix.get_label(), offsets, weight)


def lightgbm_objective(loss: str | RankingLoss = DEFAULT_OBJECTIVE, **options: Any) -> LightGBMObjective:
    """Make a LightGBM objective of a loss, given by name (see `get_loss`) or as an object.

    The default is LambdaRank for nDCG with noisy ranks, see `LambdaRankLoss`. In the study of training methods
    (docs/results/training.md) it was, tuned alike, better than LightGBM's own lambdarank on average over seven
    confirmation sets, and significantly worse on none.

    >>> objective = lightgbm_objective(bounding="expectation-max")
    >>> gradient, hessian = objective([1.0, 0.0, 0.0], [0.0, 0.0, 0.0], None, [3])  # labels, scores, weights, groups
    >>> bool(gradient[0] < 0), bool((hessian > 0).all())
    (True, True)
    """
    return LightGBMObjective(get_loss(loss, **options))


def xgboost_objective(loss: str | RankingLoss = DEFAULT_OBJECTIVE, **options: Any) -> XGBoostObjective:
    """Make an XGBoost objective of a loss, given by name (see `get_loss`) or as an object.

    ``xgboost.train(parameters, matrix, obj=xgboost_objective())`` trains with it. XGBRanker refuses objectives that
    are functions, because XGBoost's scikit-learn interface passes no queries to them.
    """
    return XGBoostObjective(get_loss(loss, **options))
