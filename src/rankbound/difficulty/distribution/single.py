"""The distribution of a measure for one query under random ranking."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankbound.arrays import floats
from rankbound.difficulty.bounds import MOST_ITEMS, check_depth, one_query, plain_measure
from rankbound.difficulty.distribution.arrangements import rounding, tolerance
from rankbound.difficulty.distribution.case import case_of
from rankbound.difficulty.distribution.choice import METHODS, SAMPLES, distribution_of
from rankbound.difficulty.distribution.smoothing import SmoothTable, look_up, smooth_table
from rankbound.display import pandas_frame, plain_values, plot_of, table_of
from rankbound.errors import ArgumentError
from rankbound.measures import Measure

if TYPE_CHECKING:
    from rankbound.report.display.plot import Plot

MOST_SAMPLES = 100_000_000  # rankings; the value of each is kept in memory


@dataclass(frozen=True, eq=False, repr=False)
class Distribution:
    """A distribution: scores in ascending order, their probabilities, and the method that gave them.

    Scores that differ by less than rounding can explain (1e-10 of their size) count as equal in `cdf` and `survival`.
    """

    measure: str
    scores: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    method: str
    _below: NDArray[np.float64] = field(init=False)
    _above: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        sums = np.cumsum(self.probabilities)
        object.__setattr__(self, "_below", np.concatenate(([0.0], np.minimum(sums[:-1], 1.0), [1.0])))
        tail = np.cumsum(self.probabilities[::-1])[::-1]  # from the right: small tails keep their digits
        object.__setattr__(self, "_above", np.concatenate(([1.0], np.minimum(tail[1:], 1.0), [0.0])))

    def __repr__(self) -> str:
        return (
            f"Distribution({self.measure}, mean={self.mean:.4f}, std={self.std:.4f}, "
            f"scores={len(self.scores)} in [{self.scores[0]:.4g}, {self.scores[-1]:.4g}], method={self.method!r})"
        )

    def __len__(self) -> int:
        return len(self.scores)

    @cached_property
    def mean(self) -> float:
        """Expected score of a random order."""
        return math.fsum(self.scores * self.probabilities)

    @cached_property
    def std(self) -> float:
        """Standard deviation of the score of a random order."""
        return math.sqrt(math.fsum((self.scores - self.mean) ** 2 * self.probabilities))

    @cached_property
    def _rounding(self) -> tuple[float, float]:
        return rounding(self.scores)

    def _slack(self, x: NDArray[np.float64]) -> Any:
        return tolerance(x, *self._rounding)

    def cdf(self, x: ArrayLike) -> Any:
        """F(x) = P(score <= x), NaN for NaN. Source: algorithm 1 of Westerborg, see `smooth_cdf`."""
        x = _points(x)
        at = np.searchsorted(self.scores, x + self._slack(x), side="right")
        return _plain(np.where(np.isnan(x), np.nan, self._below[at]))

    def survival(self, x: ArrayLike) -> Any:
        """P(score >= x): the p-value of "no better than a random order". For an x that is a score, 1 - F(x) + P(x)."""
        x = _points(x)
        at = np.searchsorted(self.scores, x - self._slack(x), side="left")
        return _plain(np.where(np.isnan(x), np.nan, self._above[at]))

    def quantile(self, q: ArrayLike) -> Any:
        """The least score x with F(x) >= q."""
        q = floats("q", q, ndim=None)
        if not ((q >= 0) & (q <= 1)).all():
            raise ArgumentError(f"q must lie between 0 and 1, got {q}")
        at = np.searchsorted(self._below[1:], q - 1e-12, side="left")
        return _plain(self.scores[np.minimum(at, len(self.scores) - 1)])

    @cached_property
    def _table(self) -> SmoothTable:
        return smooth_table(self.scores, self.probabilities)

    def _smooth(self, x: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        t = self._table
        return look_up(_points(x), t.start, t.spacing, t.gain, 0, len(t.values), t.values, t.slopes)

    def smooth_cdf(self, x: ArrayLike) -> Any:
        """F~(x) = sum_k p_k sigma(a (x - x_k)), a = number of scores / (greatest - least).

        Source: algorithm 2 and equation 3.13 of Westerborg, User/query-wise metric bounding in learning to rank. The
        value comes from a table and is within 1e-6 of the sum; it is smooth and increases everywhere. A distribution
        with a single score has a = 1.
        """
        return _plain(self._smooth(x)[0])

    def smooth_slope(self, x: ArrayLike) -> Any:
        """The derivative of `smooth_cdf`."""
        return _plain(self._smooth(x)[1])

    # ---- for notebooks -----------------------------------------------------------------------------------------------

    def to_pandas(self) -> Any:
        """A pandas frame with the columns score and probability."""
        return pandas_frame({"score": self.scores, "probability": self.probabilities})

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        names = ("measure", "method", "mean", "std", "scores", "probabilities")
        return plain_values({name: getattr(self, name) for name in names})  # type: ignore[no-any-return]

    def plot(self, score: float | None = None) -> Plot:
        """Plot the probabilities, and where a ``score`` lies among them; needs the extra ``report``."""
        return plot_of(self, score=score)

    def _repr_html_(self) -> str:
        return table_of(self).to_html()


def _points(x: ArrayLike) -> NDArray[np.float64]:
    return floats("x", x, ndim=None, finite=False)


def _plain(array: NDArray[np.float64]) -> Any:
    return float(array) if array.ndim == 0 else array


def distribution(
    measure: str | Measure,
    *,
    n: int | None = None,
    relevant: int | None = None,
    labels: ArrayLike | None = None,
    depth: int | None = None,
    ranker_strength: float = 0.5,
    method: str = "auto",
    samples: int = SAMPLES,
    seed: int = 0,
    grid: int | None = None,
    cache: bool = True,
) -> Distribution:
    """The distribution of a measure when the items of a query are ranked at random.

    Parameters
    ----------
    n, relevant, labels:
        ``n`` items of which ``relevant`` are relevant, or the ``labels`` of all items.
    depth:
        Only so many ranks are filled, as when a run returns its first items; unlike a cutoff this does not change what
        the measure divides by.
    ranker_strength:
        Probability that a relevant item is preferred to another when the next rank is filled; 0.5 is random ranking.
        At each rank an item is drawn from those that are left, with weight ``ranker_strength`` if it is relevant and
        ``1 - ranker_strength`` if not.
    method:
        ``closed`` (P, R, Success, Rprec, RR, U, PairAcc, Tau), ``enumeration`` of all arrangements, ``approximate`` (a
        mixture over the counts of graded labels on the first ranks, tilted into the tails of full rankings),
        ``dynamic`` program, or ``sampled`` orders; ``auto`` takes the first that is feasible, and `Distribution.method`
        names it.
    samples, seed:
        For sampled distributions.
    grid:
        Points of a dynamic program; by default from 2,048 to 65,536, as many as take little time.
    cache:
        Keep the distribution in memory and, if it took long, on disk.

    Additive measures on lists of 5,000 ranks and more, or with more than 12 levels where samples would take long, have
    a limit distribution, also ``approximate``: independent draws with centered weights of the ranks. Its mean and
    variance are exact, its distribution function is within 3e-3 of the exact one, and probabilities of 1e-4 in the
    upper tail are right within a third. Where no fast method exists, ArgumentError names the largest feasible size.

    Where no program resolves the tails, as of ERR of graded labels, orders are drawn with a preference for high or for
    low values and weighted, also ``approximate``; this takes seconds, and keeps the mean within its error.

    Closed distributions and enumeration are exact. Other methods, but for samples, keep the mean and, where they can be
    counted, the probabilities of the worst and the best value. Other P(score >= x) and P(score <= x) of 1e-6 and more
    have a relative error of at most 2 % at the values x that rankings have, in tests against enumeration, brackets, and
    importance sampling on up to 400 documents. Exceptions:

    - the limit distribution above;
    - measures of graded labels with a cutoff beyond about 16 on lists for which a dynamic program would take more than
      a second. They have an approximation whose distribution function is within 2e-3 of the exact one, and whose tail
      probabilities below 1e-3 may be wrong by a factor;
    - dynamic programs on few points (`grid`), which many levels make necessary: with five levels and 2,048 points the
      error reaches 10 % in tails. Values of infAP that differ by its 1e-5 fall together: ``method="dynamic"`` is off by
      up to 12 % for nine documents, which ``auto`` enumerates;
    - sampled probabilities p, with a standard error of sqrt(p (1 - p) / samples): with the default samples 2 % of p at
      p = 0.008. Those below 1 / samples are not resolved.

    >>> null = distribution("P@2", n=4, relevant=2)
    >>> null.scores.tolist(), null.probabilities.round(4).tolist(), null.method
    ([0.0, 0.5, 1.0], [0.1667, 0.6667, 0.1667], 'closed')
    >>> distribution("nDCG", n=15, relevant=5)
    Distribution(nDCG, mean=0.6626, std=0.1230, scores=3003 in [0.4469, 1], method='enumeration')
    >>> distribution("AP", n=100, relevant=25, cache=False).method
    'dynamic'
    """
    measure = plain_measure(measure)
    if method not in METHODS:
        raise ArgumentError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    _whole("samples", samples, 1)
    if samples > MOST_SAMPLES:
        raise ArgumentError(f"samples must be at most {MOST_SAMPLES:,}, got {samples}")
    _whole("seed", seed, 0)
    if grid is not None:
        _whole("grid", grid, 16)
    depth = check_depth(depth)
    if (
        isinstance(ranker_strength, bool)
        or not isinstance(ranker_strength, (int, float))
        or not 0 < ranker_strength < 1
    ):
        raise ArgumentError(f"ranker_strength must lie between 0 and 1, got {ranker_strength!r}")
    if labels is not None:
        if n is not None or relevant is not None:
            raise ArgumentError("pass either labels or n and relevant, got both")
        known = np.maximum(one_query(labels)[0], measure.definition.lowest_label)
        values, counts = np.unique(known, return_counts=True)
    else:
        _whole("n", n, 0)
        _whole("relevant", relevant, 0)
        assert n is not None
        assert relevant is not None
        if n > MOST_ITEMS:
            raise ArgumentError(f"n must be at most {MOST_ITEMS:,}, got {n}")
        if relevant > n:
            raise ArgumentError(f"relevant must not exceed n, {n}, got {relevant}")
        values, counts = np.array([max(1, math.ceil(measure.rel)), 0]), np.array([relevant, n - relevant])
    levels = measure.definition.levels(measure, values[counts > 0])
    total = int(counts.sum())
    case = case_of(
        measure, levels.tolist(), counts[counts > 0].tolist(), total if depth is None else depth, float(ranker_strength)
    )
    scores, probabilities, how = distribution_of(case, method, grid, samples, seed, cache)
    return Distribution(str(measure), scores, probabilities, how)


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise ArgumentError(f"{name} must be an integer of at least {least}, got {value!r}")
