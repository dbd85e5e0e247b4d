"""RankBoost: boosting of thresholds with the exponential loss of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from rankbound.models.base import FittedState, Queries, Ranker
from rankbound.models.measuring import mean_measure
from rankbound.models.parameters import check_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure

_MAX_EDGE = 1 - 1e-6  # a larger edge would get too large a weight
_MIN_LOSS = 1e-12  # relative to the initial loss


class RankBoost(Ranker):
    """RankBoost (Freund, Iyer, Schapire & Singer, "An efficient boosting algorithm for combining preferences", 2003).

    It minimizes the sum over pairs of exp(f(worse) - f(better)). The pairs are all items of one query with different
    labels, initially with equal weights (times the weight of their query). Round t selects the weak ranker
    h(x) = [x_k > theta] with the largest |r|, r = sum over pairs of D(better, worse) (h(better) - h(worse)), with the
    weight a = 1/2 ln((1 + r) / (1 - r)).

    D is a product of a factor of the better and a factor of the worse item, so that pairs are never stored. With
    potential(d) = exp(-f(d)) * sum over worse items of exp(f) - exp(f(d)) * sum over better items of exp(-f), which
    needs one sum per query and label level, r is the sum of potential(d) h(d): one product of the sparse bins of all
    features with the potential gives r for every feature and threshold. The cost of a round is rows x features,
    independent of the number of pairs.

    Parameters
    ----------
    n_estimators:
        Number of rounds.
    n_thresholds:
        Maximum number of candidate thresholds per feature, spread evenly over its values; None uses all. A small
        number prevents overfitting.
    balance:
        Give every query the same initial weight, as in the mean of a measure. False is as published: every pair has
        the same weight, so that queries with many pairs dominate.
    measure:
        The measure that `score` reports and that selects the round on ``eval_set``; without one all rounds are kept.

    >>> ranker = RankBoost(n_estimators=3).fit([[0.0], [1.0], [2.0], [9.0]], [0, 1, 2, 2], qid=[1, 1, 1, 2])
    >>> ranker.predict([[0.5], [1.5]]).argmax()
    np.int64(1)
    """

    def __init__(
        self,
        *,
        n_estimators: int = 300,
        n_thresholds: int | None = 10,
        balance: bool = False,
        measure: str | Measure = "nDCG",
    ) -> None:
        self.n_estimators = n_estimators
        self.n_thresholds = n_thresholds
        self.balance = balance
        self.measure = measure

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        for name, value in (("n_estimators", self.n_estimators), ("n_thresholds", self.n_thresholds)):
            if value is not None:
                check_count(name, value)
        pairs = _Pairs(queries, self.balance)
        bins = _Bins(queries.features, self.n_thresholds)
        columns, thresholds, alphas, held_values = [], [], [], []
        held_scores = None if held_out is None else np.zeros(len(held_out.features))
        scores = np.zeros(len(queries.features))
        for _ in range(self.n_estimators if len(bins) else 0):
            potential, loss = pairs.potential(scores)
            if loss < _MIN_LOSS:
                break  # every pair is in order with a large margin
            edges = bins.edges(potential)
            pick = int(np.argmax(np.abs(edges)))
            edge = float(np.clip(edges[pick], -_MAX_EDGE, _MAX_EDGE))
            if abs(edge) < 1e-12:
                break  # no threshold is better than random
            column, threshold = bins.column[pick], bins.threshold[pick]
            alpha = 0.5 * np.log((1 + edge) / (1 - edge))
            columns.append(column)
            thresholds.append(threshold)
            alphas.append(alpha)
            scores += alpha * (queries.features[:, column] > threshold)
            if held_out is not None and held_scores is not None:
                held_scores += alpha * (held_out.features[:, column] > threshold)
                held_values.append(mean_measure(held_out.lists, held_scores, self.measure))
        rounds = int(np.argmax(held_values)) + 1 if held_values else len(alphas)
        self.columns_ = np.array(columns[:rounds], dtype=np.int64)
        self.thresholds_ = np.array(thresholds[:rounds], dtype=np.float64)
        self.alphas_ = np.array(alphas[:rounds], dtype=np.float64)

    def _scores(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        scores = np.zeros(len(features))
        for column in np.unique(self.columns_):
            selected = self.columns_ == column
            order = np.argsort(self.thresholds_[selected], kind="stable")
            # sums of the weights of all thresholds below a value
            steps = np.concatenate(([0.0], np.cumsum(self.alphas_[selected][order])))
            scores += steps[np.searchsorted(self.thresholds_[selected][order], features[:, column], side="left")]
        return scores

    def _fitted_state(self) -> FittedState:
        return FittedState({"columns": self.columns_, "thresholds": self.thresholds_, "alphas": self.alphas_})

    def _restore_state(self, state: FittedState) -> None:
        self.columns_, self.thresholds_ = state.arrays["columns"], state.arrays["thresholds"]
        self.alphas_ = state.arrays["alphas"]


class _Pairs:
    """The distribution over pairs, as one potential per item."""

    def __init__(self, queries: Queries, balance: bool) -> None:
        self._query = queries.lists.query_of_item
        self._sizes = queries.lists.sizes
        levels, self._level = np.unique(queries.labels, return_inverse=True)
        self._shape = (len(queries.lists), len(levels))
        self._cell = self._query * len(levels) + self._level
        weights = queries.query_weights
        if balance:
            in_cell = np.bincount(self._cell, minlength=self._shape[0] * self._shape[1]).reshape(self._shape)
            ordered = (self._sizes**2 - (in_cell**2).sum(axis=1)) / 2  # pairs of different labels
            weights = weights / np.maximum(ordered, 1)
        self._weights = weights[self._query]
        self._initial: float | None = None  # weight of all pairs in the first call

    def potential(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Return each item's fraction of the weight as better item, minus that as worse item, and the loss.

        The exponential loss is relative to that of equal scores.
        """
        center = np.bincount(self._query, scores, minlength=self._shape[0]) / np.maximum(self._sizes, 1)
        centered = scores - center[self._query]  # only differences matter; this keeps exp within range
        up, down = np.exp(centered), np.exp(-centered)
        as_better = down * self._weights * self._sums(up, below=True)
        as_worse = up * self._weights * self._sums(down, below=False)
        total = float(as_better.sum())
        self._initial = total if self._initial is None else self._initial
        return (as_better - as_worse) / total, total / self._initial

    def _sums(self, values: NDArray[np.float64], below: bool) -> NDArray[np.float64]:
        """Return for each item the sum of values over the items of its query with lower (or higher) labels."""
        cells = np.bincount(self._cell, values, minlength=self._shape[0] * self._shape[1]).reshape(self._shape)
        if not below:
            cells = cells[:, ::-1]
        sums = np.cumsum(cells, axis=1) - cells
        if not below:
            sums = sums[:, ::-1]
        return np.asarray(sums[self._query, self._level])


class _Bins:
    """Candidate thresholds of all features, and the rows above each as one sparse matrix."""

    def __init__(self, features: NDArray[np.floating], limit: int | None) -> None:
        thresholds, positions = [], []
        for column in range(features.shape[1]):
            values = np.unique(features[:, column])
            cuts = values[:-1]  # no row is above the largest value
            if limit is not None and len(cuts) > limit:
                cuts = cuts[np.linspace(0, len(cuts) - 1, limit).round().astype(np.int64)]
            thresholds.append(cuts)
            positions.append(np.searchsorted(cuts, features[:, column], side="left"))  # thresholds below the value
        counts = np.array([len(cuts) for cuts in thresholds])
        self.column = np.repeat(np.arange(len(counts)), counts)
        self.threshold = np.concatenate(thresholds).astype(np.float64)
        # every feature has one more bin than thresholds: the lowest bin is above none of them
        self._first = np.concatenate(([0], np.cumsum(counts + 1)))
        rows, width = features.shape
        bin_of = np.stack(positions, axis=1) + self._first[:-1]
        one_hot = scipy.sparse.csr_array(
            (np.ones(rows * width), bin_of.ravel(), np.arange(0, rows * width + 1, width)),
            shape=(rows, int(self._first[-1])),
        )
        self._rows_in_bin = one_hot.T.tocsr()
        self._is_threshold = np.ones(int(self._first[-1]), dtype=bool)
        self._is_threshold[self._first[:-1]] = False

    def __len__(self) -> int:
        return len(self.threshold)

    def edges(self, potential: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the potential above each threshold."""
        in_bin = self._rows_in_bin @ potential
        above = np.cumsum(in_bin[::-1])[::-1]  # to the end of all features; the sum over each later feature is 0
        return np.asarray(above[self._is_threshold])
