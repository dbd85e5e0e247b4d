"""Forms of difficulty weights, their effective sample size, and the cap that keeps it large enough.

A weight 1/(B - E) is large where almost every ranking is nearly the best. Without a limit, a few such queries decide
what a trainer learns. Kish's effective sample size measures this: n weights w have the variance of a mean over

    (sum w)^2 / (sum w^2)

queries of equal weight. Divided by n it is the *effective sample fraction*: 1 if all weights are equal, and about 1/n
if one query outweighs all others. `effective_cap` finds the largest cap with which this fraction is not too small.

Source: Kish, Survey Sampling (1965), section 11.2; the fraction is 1 / (1 + CV^2) of the weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import floats, is_between, names_of
from rankbound.errors import ArgumentError, DataError, WeightWarning

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

WEIGHT_FORMS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = MappingProxyType(
    {"plain": lambda weights: weights, "sqrt": np.sqrt}
)
DEFAULT_FORM = "sqrt"
LEAST_EFFECTIVE = 0.5  # default of ``effective``, and the fraction below which a `WeightWarning` is issued
_MARGIN = 1e-9  # relative; the cap aims this much higher, so that rounding errors do not lead below the fraction
_LARGEST = 1e100  # largest weight relative to the least possible cap, so that squares do not overflow


def effective_sample_fraction(weights: ArrayLike) -> float:
    """Effective sample size of query weights, as a fraction of the queries whose weight is not 0.

    It is (sum w)^2 / (n sum w^2) over the n weights that are not 0 (Kish): 1 if they are equal, and about m/n if m of
    the n queries outweigh all others. It does not change if all weights are multiplied by a number. Without any weight
    above 0 it is NaN. Pass one weight per *query*: weights per row would count queries by their number of rows.

    Source: Kish, Survey Sampling (1965), section 11.2.

    >>> effective_sample_fraction([2, 2, 0, 2]), effective_sample_fraction([1, 1, 1, 97])
    (1.0, 0.2656...)
    """
    weights = floats("weights", weights)
    if (weights < 0).any():
        raise DataError(f"weights must not be negative, got {weights[weights < 0][0]}")
    weights = weights[weights > 0]
    if len(weights) == 0:
        return float("nan")
    relative = weights / weights.max()  # squares of very large or very small weights would not be finite or not above 0
    return float(relative.sum() ** 2 / (len(relative) * (relative**2).sum()))


def effective_cap(weights: ArrayLike, effective: float = LEAST_EFFECTIVE) -> float:
    """Return the largest c for which min(w, c) has at least this effective sample fraction; infinity if w itself has.

    Let u = min(w, c), S = sum u, T = sum u^2 over the n weights that are not 0, and m the number of weights above c.
    The fraction f(c) = S^2 / (n T) is continuous, and between two weights

        f'(c) / f(c) = 2 m / S - 2 m c / T = 2 m (T - c S) / (S T) <= 0,

    because T - c S = sum u (u - c) and 0 <= u <= c. So f never increases with c, and the cap exists for every fraction
    up to 1, because f is 1 as soon as c is the smallest weight. If m weights are at least c, then f(c) >= m / n: with
    ``effective=0.5`` the cap is not below the (lower) median, and at least half of the weights stay as they are.

    Sorted weights and their cumulative sums give f at every weight, hence the two neighbors between which f reaches the
    fraction t. With P and Q, the sums of the weights below and of their squares, the cap is the root there of
    (P + m c)^2 = t n (Q + m c^2):

        c = (P + sqrt(t n / m (P^2 - (t n - m) Q))) / (t n - m)

    Sorting takes O(n log n), all else O(n). To be safe from rounding errors, t is ``effective`` times 1 + 1e-9.

    >>> cap = effective_cap([1, 1, 1, 97])
    >>> round(cap, 3), round(effective_sample_fraction([1, 1, 1, cap]), 3)
    (6.464, 0.5)
    >>> effective_cap([1, 2, 3])
    inf
    """
    _check_effective(effective)
    fraction = min(effective * (1 + _MARGIN), 1.0)
    if not effective_sample_fraction(weights) < fraction:  # also if it is NaN
        return float("inf")
    w = np.sort(floats("weights", weights))
    w = w[w > 0]
    n = len(w)
    size = fraction * n  # t n
    first = n - int(np.ceil(size))  # index of the weight that the cap is not below
    scale = w[first]
    with np.errstate(over="ignore"):
        w = np.minimum(w / scale, _LARGEST)
    above = np.arange(n - 1, -1, -1.0)  # number of weights after each, which is m if the cap lies between it and them
    sums, squares = np.cumsum(w), np.cumsum(w**2)
    enough = (sums + above * w) ** 2 >= size * (squares + above * w**2)
    last = max(first, int(np.flatnonzero(enough[first:]).max(initial=0)) + first)
    if last == n - 1:  # with equal weights, or where the limit of the squares suffices
        return float(w[-1] * scale)
    P, Q, m = sums[last], squares[last], above[last]
    root = (P + np.sqrt(size / m * max(P**2 - (size - m) * Q, 0.0))) / (size - m)
    return float(np.clip(root, w[last], w[last + 1]) * scale)


def shape_weights(
    weights: NDArray[np.float64],
    *,
    form: str = DEFAULT_FORM,
    cap: float | None = None,
    effective: float | None = LEAST_EFFECTIVE,
    normalize: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Bring weights 1/(B - E) into a form, cap them and normalize them; also return which ones were capped.

    The parameters are those of `difficulty_weights`. No step changes the order of the weights, except that capped ones
    become equal, and weights of 0 stay 0. An infinite weight (B - E is 0 after rounding, although B is not W) counts as
    the largest finite one.

    >>> weights, capped = shape_weights(np.array([1.0, 0.0, 4.0, 9.0]), cap=1.2)
    >>> weights.tolist(), capped.tolist()
    ([1.0, 0.0, 2.0, 2.4], [False, False, False, True])
    """
    if not isinstance(form, str) or form not in WEIGHT_FORMS:
        raise ArgumentError(f"form must be one of {', '.join(WEIGHT_FORMS)}, got {form!r}")
    if cap is not None and not is_between(cap, 0, np.inf):
        raise ArgumentError(f"cap must be None or a finite number greater than 0, got {cap!r}")
    if effective is not None:
        _check_effective(effective)
    finite = np.isfinite(weights)
    if not finite.all():
        weights = np.where(finite, weights, weights[finite & (weights > 0)].max(initial=0.0) or 1.0)
    uncapped = WEIGHT_FORMS[form](weights)
    weights = uncapped
    positive = weights > 0
    if cap is not None and positive.any():
        with np.errstate(over="ignore"):  # an infinite cap cuts nothing
            weights = np.minimum(weights, cap * np.median(weights[positive]))
    if effective is not None:
        weights = np.minimum(weights, effective_cap(weights, effective))
    capped = weights < uncapped
    if normalize and positive.any():
        relative = weights / weights.max()
        weights = relative / relative[positive].mean()
    return weights, capped


@dataclass(frozen=True, eq=False)
class QueryWeights:
    """Weights of queries, and how uneven they are.

    ``weights`` has one entry per query of ``qids``, in order of first appearance, and ``capped`` marks those that
    would be larger without a cap. `rankbound.difficulty.query_weights` computes them.
    """

    qids: NDArray[Any]
    weights: NDArray[np.float64]
    capped: NDArray[np.bool_]

    @property
    def effective_sample_fraction(self) -> float:
        """Effective sample size as a fraction of the queries with a weight, see `effective_sample_fraction`."""
        return effective_sample_fraction(self.weights)

    @property
    def median(self) -> float:
        """Median of the weights that are not 0; NaN if all are 0."""
        positive = self.weights[self.weights > 0]
        return float(np.median(positive)) if len(positive) else float("nan")

    @property
    def maximum(self) -> float:
        """Largest weight; NaN if all are 0."""
        return float(self.weights.max()) if (self.weights > 0).any() else float("nan")

    def summary(self) -> dict[str, float | int]:
        """Effective sample fraction, median, maximum and the number of capped weights."""
        return {
            "effective_sample_fraction": self.effective_sample_fraction,
            "median": self.median,
            "maximum": self.maximum,
            "capped": int(self.capped.sum()),
        }

    @property
    def warning(self) -> str | None:
        """The sentence of a `WeightWarning`; None if the effective sample fraction is at least 0.5."""
        fraction = self.effective_sample_fraction
        if not fraction < LEAST_EFFECTIVE:  # also if it is NaN
            return None
        return (
            f"the weights have an effective sample fraction of {fraction:.2g} (median {self.median:.3g}, maximum "
            f"{self.maximum:.3g}), so that few queries decide what is learned; effective={LEAST_EFFECTIVE:g} caps them"
        )

    def warn(self, stacklevel: int) -> None:
        """Issue a `WeightWarning` if the effective sample fraction is below 0.5."""
        if self.warning is not None:
            warnings.warn(self.warning, WeightWarning, stacklevel=stacklevel + 1)

    def per_row(self, qid: ArrayLike) -> NDArray[np.float64]:
        """Return the weight of its query for each row."""
        names, qid = self.qids, names_of("qid", qid)
        order = np.argsort(names, kind="stable")
        index = np.minimum(np.searchsorted(names, qid, sorter=order), len(names) - 1)
        unknown = names[order[index]] != qid
        if unknown.any():
            raise DataError(f"qid must be one of the queries that have a weight, got {qid[unknown][0]!r}")
        return self.weights[order[index]]


def _check_effective(effective: Any) -> None:
    if not is_between(effective, 0, np.inf) or effective > 1:
        raise ArgumentError(f"effective must be None, or greater than 0 and at most 1, got {effective!r}")


def warn_of_two_weightings(bounding: str, weights: NDArray[np.float64], stacklevel: int = 4) -> None:
    """Warn if queries that have a bounding also have different weights: difficulty may count twice.

    ``weights`` are those of queries with a choice, one per query.
    """
    if len(weights) and not np.allclose(weights, weights[0], rtol=1e-6):
        warnings.warn(
            f"the loss has bounding={bounding!r} and the queries have different weights: if these are difficulty "
            "weights, difficulty counts twice; use one of the two",
            WeightWarning,
            stacklevel=stacklevel,
        )
