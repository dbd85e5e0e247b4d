"""AdaRank: boosting of single features by the measure itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.models.base import Queries
from rankbound.models.measuring import informative_queries, measure_candidates, score_measure
from rankbound.models.parameters import check_count, check_in_range
from rankbound.models.rankers.weighted_features import WeightedFeatures, center_and_spread, vary_within_queries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure

_MAX_EDGE = 1 - 1e-9  # a perfect weak ranker would get infinite weight


class AdaRank(WeightedFeatures):
    """AdaRank (Xu & Li, "AdaRank: a boosting algorithm for information retrieval", 2007).

    The model is a weighted sum of features, each selected for the queries that the current sum ranks badly.

    With E_q(f) the measure of query q under the scores f and a distribution P over queries, round t takes the feature
    and direction h with the largest sum_q P_q E_q(h), gives it the weight

        a = 1/2 ln( sum_q P_q (1 + E_q(h)) / sum_q P_q (1 - E_q(h)) ),

    adds a·h to f, and sets P_q proportional to exp(-E_q(f)). The measure of every feature on every query is computed
    once, so that the selection of a round is one product of a matrix and a vector.

    As published, AdaRank can select the same feature forever without changing the ranking. Here a feature that changes
    the training measure by less than ``tolerance`` is not selected again until another one has changed it, and the
    round with the best measure is kept: on ``eval_set`` if there is one, otherwise on the training queries.

    Parameters
    ----------
    measure:
        The measure to boost, which `score` reports: any measure with values in [-1, 1], such as ``"AP"`` (AdaRank.MAP),
        ``"nDCG"`` (AdaRank.NDCG), or a bounded one like ``"UL2(nDCG)"``.
    n_estimators:
        Maximum number of rounds.
    tolerance:
        Smallest change of the training measure that counts.
    standardize:
        Divide features by their standard deviation, so that their weights are comparable. False is as published, for
        features that are already normalized.

    >>> ranker = AdaRank("RR").fit([[0, 5], [1, 5], [3, 2], [2, 9]], [0, 1, 1, 0], qid=["a", "a", "b", "b"])
    >>> ranker.coef_[0] > 0, ranker.predict([[4, 0], [3, 0]]).argmax()
    (np.True_, np.int64(0))
    """

    def __init__(
        self,
        measure: str | Measure = "nDCG",
        *,
        n_estimators: int = 200,
        tolerance: float = 1e-4,
        standardize: bool = True,
    ) -> None:
        self.measure = measure
        self.n_estimators = n_estimators
        self.tolerance = tolerance
        self.standardize = standardize

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        check_count("n_estimators", self.n_estimators)
        check_in_range("tolerance", self.tolerance, 0, np.inf)
        measure = score_measure(self.measure)
        lists, scale = queries.lists, np.ones(queries.features.shape[1])
        if self.standardize:
            _, scale = center_and_spread(queries.features)
        counts = informative_queries(lists, measure)
        weak = np.flatnonzero(vary_within_queries(queries.features, lists))
        coef = np.zeros(queries.features.shape[1])
        if len(weak) == 0:  # no feature distinguishes items: all scores are equal
            self.coef_, self.feature_order_ = coef, np.zeros(0, np.int64)
            return
        columns = np.concatenate((queries.features[:, weak], -queries.features[:, weak]), axis=1) / np.tile(
            scale[weak], 2
        )
        of_weak = measure_candidates(lists, columns, measure)[counts]  # queries x weak rankers
        if np.abs(of_weak).max() > 1 + 1e-9:
            raise ArgumentError(f"measure of AdaRank must have values in [-1, 1], got {self.measure}")
        base_weights = queries.query_weights[counts]
        evaluate = _Evaluator(held_out, measure) if held_out is not None else None

        distribution = base_weights / base_weights.sum()
        scores = np.zeros(len(lists.labels))
        free = np.ones(of_weak.shape[1], dtype=bool)
        best, before = -np.inf, -np.inf
        chosen: list[int] = []
        kept = 0
        for _ in range(self.n_estimators):
            strength = np.where(free, distribution @ of_weak, -np.inf)
            pick = int(np.argmax(strength))
            if strength[pick] == -np.inf:
                break  # no weak ranker changes the measure any more
            edge = min(float(strength[pick]), _MAX_EDGE)
            alpha = 0.5 * np.log((1 + edge) / (1 - edge))
            column, sign = weak[pick % len(weak)], 1.0 if pick < len(weak) else -1.0
            chosen.append(int(column))
            coef[column] += sign * alpha / scale[column]
            scores += alpha * columns[:, pick]
            reached = measure_candidates(lists, scores[:, None], measure)[counts, 0]
            now = float(np.average(reached, weights=base_weights))
            if abs(now - before) < self.tolerance:
                free[pick] = False
            else:
                free[:] = True
            before = now
            value = now if evaluate is None else evaluate(coef)
            if value > best:
                best, kept, self.coef_ = value, len(chosen), coef.copy()
            if edge == _MAX_EDGE:
                break
            distribution = base_weights * np.exp(-reached)
            distribution /= distribution.sum()
        self.feature_order_ = np.array(chosen[:kept], dtype=np.int64)


class _Evaluator:
    """Mean measure of the held-out queries for a vector of weights."""

    def __init__(self, held_out: Queries, measure: Measure) -> None:
        self._queries, self._measure = held_out, measure
        self._features = held_out.features.astype(np.float64, copy=False)

    def __call__(self, coef: NDArray[np.float64]) -> float:
        scores = self._features @ coef
        return float(np.nanmean(measure_candidates(self._queries.lists, scores[:, None], self._measure)))
