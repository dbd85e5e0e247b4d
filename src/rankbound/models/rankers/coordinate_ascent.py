"""Coordinate ascent: a line search per feature by the measure itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.models.base import Queries, seed_of
from rankbound.models.measuring import informative_queries, mean_measure, measure_candidates, score_measure
from rankbound.models.parameters import check_count
from rankbound.models.rankers.weighted_features import WeightedFeatures, center_and_spread, vary_within_queries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure


class CoordinateAscent(WeightedFeatures):
    """Coordinate ascent (Metzler & Croft, "Linear feature-based models for information retrieval", 2007).

    It maximizes the measure over the weights of a linear model, one feature at a time. A sweep visits the features in
    random order. For each it tries the weight 0 and changes of ``step * (2^j - 1)`` times the weight in both
    directions, j = 1..``n_steps``, in one evaluation, and keeps the best. Weights are then scaled to sum |w| = 1,
    which changes no ranking. Sweeps end when one improves the measure by less than ``tolerance``. The search starts
    ``n_restarts`` times, first from equal and then from random weights, and the best result is kept: on ``eval_set``
    if there is one, otherwise on the training queries.

    Parameters
    ----------
    measure:
        The measure to maximize, which `score` reports; it may be bounded, such as ``"EM(nDCG@10)"``.
    n_restarts, max_sweeps, n_steps, step, tolerance:
        See above.
    standardize:
        Divide features by their standard deviation, so that steps are comparable.
    random_state:
        Seed of the orders and of the restarts; None is 0.

    >>> ranker = CoordinateAscent("AP", n_restarts=1).fit([[0, 1], [1, 0], [2, 1]], [0, 1, 0])
    >>> ranker.score([[0, 1], [1, 0], [2, 1]], [0, 1, 0])
    1.0
    """

    def __init__(
        self,
        measure: str | Measure = "nDCG",
        *,
        n_restarts: int = 3,
        max_sweeps: int = 25,
        n_steps: int = 10,
        step: float = 0.05,
        tolerance: float = 1e-3,
        standardize: bool = True,
        random_state: int | None = 0,
    ) -> None:
        self.measure = measure
        self.n_restarts = n_restarts
        self.max_sweeps = max_sweeps
        self.n_steps = n_steps
        self.step = step
        self.tolerance = tolerance
        self.standardize = standardize
        self.random_state = random_state

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        for name in ("n_restarts", "max_sweeps", "n_steps"):
            check_count(name, getattr(self, name))
        if not self.step > 0 or not self.tolerance >= 0:
            raise ArgumentError(f"step must be above 0 and tolerance at least 0, got {self.step} and {self.tolerance}")
        measure = score_measure(self.measure)
        informative_queries(queries.lists, measure)  # raises an error if there are none
        scale = np.ones(queries.features.shape[1])
        if self.standardize:
            _, scale = center_and_spread(queries.features)
        useful = np.flatnonzero(vary_within_queries(queries.features, queries.lists))
        self.coef_ = np.zeros(queries.features.shape[1])
        if len(useful) == 0:  # no feature distinguishes items: all scores are equal
            return
        columns = np.asfortranarray(queries.features[:, useful] / scale[useful])
        search = _Search(columns, queries, measure, self)
        rng = np.random.default_rng(seed_of(self.random_state))
        best = -np.inf
        for restart in range(self.n_restarts):
            start = np.ones(len(useful)) if restart == 0 else rng.normal(size=len(useful))
            weights, value = search.climb(start / np.abs(start).sum(), rng)
            coef = np.zeros(len(scale))
            coef[useful] = weights / scale[useful]
            if held_out is not None:
                value = mean_measure(held_out.lists, held_out.features.astype(np.float64) @ coef, self.measure)
            if value > best:
                best, self.coef_ = value, coef


class _Search:
    """The search from given initial weights."""

    def __init__(
        self, columns: NDArray[np.floating], queries: Queries, measure: Measure, settings: CoordinateAscent
    ) -> None:
        self._columns, self._lists, self._measure, self._settings = columns, queries.lists, measure, settings
        self._query_weights = queries.query_weights
        ladder = settings.step * (np.exp2(np.arange(1, settings.n_steps + 1)) - 1)
        self._ladder = np.concatenate((ladder, -ladder))

    def climb(self, weights: NDArray[np.float64], rng: np.random.Generator) -> tuple[NDArray[np.float64], float]:
        scores = self._columns @ weights
        value = float(self._values(scores[:, None])[0])
        for _ in range(self._settings.max_sweeps):
            before = value
            for k in rng.permutation(len(weights)):
                # for a weight of 0, steps are relative to the mean weight
                size = abs(weights[k]) if weights[k] != 0 else 1 / len(weights)
                moves = np.append(size * self._ladder, -weights[k])
                values = self._values(scores[:, None] + self._columns[:, k, None] * moves)
                pick = int(np.argmax(values))
                if values[pick] > value:
                    value = float(values[pick])
                    weights = weights.copy()
                    weights[k] += moves[pick]
                    if not weights.any():
                        weights[k] = 1e-3
                    weights /= np.abs(weights).sum()
                    scores = self._columns @ weights
            if value - before < self._settings.tolerance:
                break
        return weights, value

    def _values(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted mean of the measure for each column of scores."""
        values = measure_candidates(self._lists, scores, self._measure)
        counted = ~np.isnan(values[:, 0])
        return np.asarray(np.average(values[counted], axis=0, weights=self._query_weights[counted]))
