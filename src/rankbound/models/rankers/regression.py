"""RegressionRanker: ranking by a regression of the labels, linear or with trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.models.base import FittedState, Queries, Ranker
from rankbound.models.parameters import check_choice
from rankbound.models.rankers.weighted_features import WeightedFeatures, center_and_spread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure


class _LinearRegression(WeightedFeatures):
    """Least squares with an L1 or L2 penalty on the weights of standardized features."""

    def __init__(
        self, penalty: str, alpha: float = 1e-3, max_iter: int = 10_000, measure: str | Measure = "nDCG"
    ) -> None:
        self.penalty = penalty
        self.alpha = alpha
        self.max_iter = max_iter
        self.measure = measure

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:  # noqa: ARG002 - there are no steps to select
        from sklearn.linear_model import Lasso, Ridge

        if not self.alpha > 0:
            raise ArgumentError(f"alpha must be above 0, got {self.alpha!r}")
        mean, scale = center_and_spread(queries.features, queries.weights)
        scaled = (queries.features - mean) / scale
        weights = queries.row_weights
        if self.penalty == "l1":  # 1/(2n) |y - Xw|² + alpha |w|
            model = Lasso(alpha=self.alpha, max_iter=self.max_iter)
        else:  # the same with alpha/2 w²: scikit-learn's Ridge does not divide by n
            model = Ridge(alpha=self.alpha * weights.sum())
        model.fit(scaled, queries.labels.astype(np.float64), sample_weight=weights)
        self.coef_ = model.coef_ / scale
        self.intercept_ = float(model.intercept_ - self.coef_ @ mean)


REGRESSIONS = ("linear-l1", "linear-l2", "forest", "boosting")


class RegressionRanker(Ranker):
    """Ranking by predicted labels: "Reg. LR-l1", "Reg. RF" and "Reg. Boost" of the neural ranking paper.

    Parameters
    ----------
    kind:
        ``"linear-l1"`` (lasso), ``"linear-l2"`` (ridge), ``"forest"`` or ``"boosting"``.
    options:
        Parameters of the regression: ``alpha`` and ``max_iter`` of the linear ones, those of `RandomForestRanker` and
        `BoostingRanker` for the others. alpha is the factor of sum |w| (or of w²/2), which is added to half the mean
        squared error, for features of mean 0 and standard deviation 1.
    measure:
        The measure that `score` reports and that selects among steps on ``eval_set``.

    >>> ranker = RegressionRanker("linear-l1", options={"alpha": 0.01}).fit([[0, 3], [1, 3], [2, 4]], [0, 1, 2])
    >>> bool((np.diff(ranker.predict([[0, 3], [5, 3]])) > 0).all())
    True
    """

    _learns_from: ClassVar[str] = "rows"

    def __init__(
        self, kind: str = "linear-l1", *, options: Mapping[str, Any] | None = None, measure: str | Measure = "nDCG"
    ) -> None:
        self.kind = kind
        self.options = options
        self.measure = measure

    def _make_model(self) -> Ranker:
        check_choice("kind", self.kind, REGRESSIONS)
        kind, _, penalty = self.kind.partition("-")
        options = dict(self.options or {})
        try:
            if kind == "linear":
                return _LinearRegression(penalty, **options, measure=self.measure)
            from rankbound.models.rankers.trees import BoostingRanker, RandomForestRanker  # needs LightGBM

            make: type[Ranker] = RandomForestRanker if kind == "forest" else BoostingRanker
            return make(task="regression", **options, measure=self.measure)
        except TypeError as error:
            raise ArgumentError(f"options must be parameters of {self.kind!r}: {error}") from error

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        self.model_ = self._make_model()
        self.model_._fit(queries, held_out)

    def _scores(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        return self.model_._scores(features)

    def _fitted_state(self) -> FittedState:
        return self.model_._fitted_state()

    def _restore_state(self, state: FittedState) -> None:
        self.model_ = self._make_model()
        self.model_.n_features_in_ = self.n_features_in_
        self.model_._restore_state(state)
