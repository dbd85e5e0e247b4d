"""SVMmap: a structured support vector machine for average precision, trained by cutting planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.measures.average_precision import AveragePrecision
from rankbound.models.base import Queries
from rankbound.models.measuring import informative_queries, score_measure
from rankbound.models.rankers.weighted_features import WeightedFeatures, center_and_spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure


class SVMmap(WeightedFeatures):
    """SVMmap (Yue, Finley, Radlinski & Joachims, "A support vector method for optimizing average precision", 2007).

    It is trained in its one-slack form (Joachims, Finley & Yu, "Cutting-plane training of structural SVMs", 2009).

    It minimizes 1/2 |w|² + C * mean over queries of max over rankings r of (1 - AP(r)) - w · (psi(best) - psi(r)), an
    upper bound of 1 - AP, where psi(r) = 1/(P (N - P)) * sum over pairs (relevant i, other j) of +-(x_i - x_j), + if r
    has i before j. The ranking that attains the maximum is found exactly for each query (`find_most_violated`).
    Together they give one cutting plane, and the dual over the planes is a small quadratic program.

    Parameters
    ----------
    measure:
        ``"AP"``, or for example ``"AP(rel=2)"``, which defines the relevant labels.
    C:
        Weight of the loss relative to |w|², for features of standard deviation 1.
    tolerance:
        Training ends when no plane is violated by more than this.
    max_planes:
        Maximum number of planes.

    >>> ranker = SVMmap().fit([[0, 1], [1, 0], [2, 1]], [0, 1, 1])
    >>> ranker.score([[0, 1], [1, 0], [2, 1]], [0, 1, 1])
    1.0
    """

    def __init__(
        self, measure: str | Measure = "AP", *, C: float = 10.0, tolerance: float = 1e-3, max_planes: int = 300
    ) -> None:
        self.measure = measure
        self.C = C
        self.tolerance = tolerance
        self.max_planes = max_planes

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:  # noqa: ARG002 - there are no steps to select
        measure = score_measure(self.measure)
        is_average_precision = isinstance(measure.definition, AveragePrecision) and measure["div"] == "R"
        if not is_average_precision or measure.cutoff is not None or measure.bounding != "none":
            raise ArgumentError(f"measure of SVMmap must be AP or AP(rel=...), got {self.measure}")
        if not self.C > 0 or not self.tolerance > 0 or not self.max_planes > 0:
            raise ArgumentError(
                f"C, tolerance and max_planes must be above 0, got {self.C}, {self.tolerance} and {self.max_planes}"
            )
        relevant = queries.labels >= measure.rel
        informative = np.flatnonzero(informative_queries(queries.lists, measure))
        importance = queries.query_weights[informative] / queries.query_weights[informative].sum()
        _, scale = center_and_spread(queries.features)
        features = queries.features / scale
        dual = _Dual(features.shape[1], float(self.C))
        for _ in range(self.max_planes):
            scores = features @ dual.weights
            item_weights = np.zeros(len(scores))  # coefficients of the items in psi(best) - psi(most violated ranking)
            loss = 0.0
            for query, weight in zip(informative, importance, strict=True):
                rows = slice(queries.lists.offsets[query], queries.lists.offsets[query + 1])
                coefficients, query_loss = find_most_violated(scores[rows], relevant[rows])
                item_weights[rows] = weight * coefficients
                loss += weight * query_loss
            plane = item_weights @ features
            if loss - plane @ dual.weights <= dual.slack + self.tolerance:
                break
            dual.add(plane, loss)
        self.coef_ = dual.weights / scale


def find_most_violated(scores: NDArray[np.float64], relevant: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """Find the ranking r of one query that maximizes 1 - AP(r) + w · psi(r).

    Returns the weights of the items in psi(best) - psi(r), and 1 - AP(r). In r, relevant items and other items are each
    in descending order of score. Placing the j-th other item before the k-th relevant one costs
    2 (s_k - s_j) / (P (N - P)) and reduces AP by k / (P (j + k) (j + k - 1)). Each other item takes the position with
    the best sum of these over the relevant items behind it; these positions are always consistent.

    >>> weights, loss = find_most_violated(np.array([0.0, 0.0]), np.array([True, False]))
    >>> weights.tolist(), loss
    ([2.0, -2.0], 0.5)
    """
    good, other = np.flatnonzero(relevant), np.flatnonzero(~relevant)
    good = good[np.argsort(-scores[good], kind="stable")]
    other = other[np.argsort(-scores[other], kind="stable")]
    pairs = len(good) * len(other)
    k, j = np.arange(1, len(good) + 1)[:, None], np.arange(1, len(other) + 1)
    gain = k / ((j + k) * (j + k - 1) * len(good)) - 2 * (scores[good][:, None] - scores[other]) / pairs
    # total[i, j]: sum for other item j before the relevant items i, i + 1, ...
    total = np.concatenate((np.cumsum(gain[::-1], axis=0)[::-1], np.zeros((1, len(other)))))
    position = len(good) - np.argmax(total[::-1], axis=0)  # among equal positions the last
    overtaken = np.cumsum(np.bincount(position, minlength=len(good) + 1))[
        : len(good)
    ]  # other items before each relevant one
    weights = np.zeros(len(scores))
    weights[good] = 2 * overtaken / pairs
    weights[other] = -2 * (len(good) - position) / pairs
    precision = k[:, 0] / (k[:, 0] + overtaken)
    return weights, float(1 - precision.mean())


@dataclass
class _Dual:
    """min 1/2 |w|² + C slack over the planes so far: w = sum of alpha_c plane_c with alpha >= 0, sum alpha = C.

    A plane of zeros without loss takes the rest of C.
    """

    width: int
    C: float

    def __post_init__(self) -> None:
        self._planes = np.zeros((1, self.width))
        self._losses = np.zeros(1)
        self._gram = np.zeros((1, 1))
        self._alpha = np.array([self.C])
        self.weights = np.zeros(self.width)
        self.slack = 0.0

    def add(self, plane: NDArray[np.float64], loss: float) -> None:
        self._planes = np.vstack((self._planes, plane))
        self._losses = np.append(self._losses, loss)
        self._gram = self._planes @ self._planes.T
        self._alpha = np.append(self._alpha, 0.0)
        self._solve()
        self.weights = self._alpha @ self._planes
        self.slack = float((self._losses - self._planes @ self.weights).max())

    def _solve(self) -> None:
        """Move weight from the plane with the smallest gradient to that with the largest, until they are equal."""
        alpha, gram = self._alpha, self._gram
        gradient = self._losses - gram @ alpha
        for _ in range(20_000):
            receiver = int(np.argmax(gradient))
            held = np.flatnonzero(alpha > 0)
            giver = int(held[np.argmin(gradient[held])])
            violation = gradient[receiver] - gradient[giver]
            if violation < 1e-6:
                break
            curvature = gram[receiver, receiver] + gram[giver, giver] - 2 * gram[receiver, giver]
            step = alpha[giver] if curvature <= 0 else min(alpha[giver], violation / curvature)
            alpha[receiver] += step
            alpha[giver] -= step
            gradient -= step * (gram[:, receiver] - gram[:, giver])
