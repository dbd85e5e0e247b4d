"""LogisticRanker: logistic regression of the labels with an L1 or L2 penalty."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import expit

from rankbound.errors import ArgumentError
from rankbound.models.base import FittedState, Queries, Ranker
from rankbound.models.rankers.levels import expected_label, label_levels
from rankbound.models.rankers.weighted_features import center_and_spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure


class LogisticRanker(Ranker):
    """Logistic regression of the label of each row.

    It is "Class LR" of the neural ranking paper (Köppel et al. 2019) and "L2LR" of the upper-and-lower-bounds paper.
    One logistic model per label level predicts whether the label is at least this; the score is the expected label, see
    `rankbound.models.rankers.levels`. With two levels it is the probability of the higher one.

    Parameters
    ----------
    penalty:
        ``"l2"`` or ``"l1"``, which sets the weights of unhelpful features to 0.
    C:
        Inverse strength of the penalty on features of mean 0 and standard deviation 1.
    max_iter:
        Maximum number of solver iterations.
    measure:
        The measure that `score` reports.

    >>> ranker = LogisticRanker().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 2])
    >>> bool((np.diff(ranker.predict([[0.0], [1.5], [3.0]])) > 0).all())
    True
    """

    _learns_from: ClassVar[str] = "rows"

    def __init__(
        self, penalty: str = "l2", *, C: float = 1.0, max_iter: int = 1000, measure: str | Measure = "nDCG"
    ) -> None:
        self.penalty = penalty
        self.C = C
        self.max_iter = max_iter
        self.measure = measure

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:  # noqa: ARG002 - there are no steps to select
        from sklearn.linear_model import LogisticRegression

        if self.penalty not in ("l1", "l2"):
            raise ArgumentError(f"penalty must be 'l1' or 'l2', got {self.penalty!r}")
        if not self.C > 0:
            raise ArgumentError(f"C must be above 0, got {self.C!r}")
        # liblinear finds exact zeros; it penalizes the intercept, which a large scaling compensates
        special = {"l1_ratio": 1.0, "solver": "liblinear", "intercept_scaling": 100.0, "random_state": 0}
        labels, levels = queries.labels, label_levels(queries.labels)
        mean, scale = center_and_spread(queries.features, queries.weights)
        scaled = (queries.features - mean) / scale
        coef, intercept = [], []
        for level in levels[1:]:
            model = LogisticRegression(C=self.C, max_iter=self.max_iter, **(special if self.penalty == "l1" else {}))
            model.fit(scaled, labels >= level, sample_weight=queries.weights)
            coef.append(model.coef_[0] / scale)
            intercept.append(model.intercept_[0] - coef[-1] @ mean)
        self.levels_, self.coef_, self.intercept_ = levels, np.stack(coef), np.array(intercept)

    def _scores(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
            logits = features.astype(np.float64, copy=False) @ self.coef_.T + self.intercept_
        return expected_label(expit(logits), self.levels_)

    def _fitted_state(self) -> FittedState:
        return FittedState({"levels": self.levels_, "coef": self.coef_, "intercept": self.intercept_})

    def _restore_state(self, state: FittedState) -> None:
        self.levels_, self.coef_ = state.arrays["levels"], state.arrays["coef"]
        self.intercept_ = state.arrays["intercept"]
