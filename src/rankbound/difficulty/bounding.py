"""Boundings: normalize a value by what any ranking of the same query could score.

The same objects are used for measures (``UL2(nDCG@10)``) and for losses (``NDCGLoss(bounding="min-max")``). W, E and B
are the worst, expected and best value of the query, and F is the cumulative distribution of the measure under random
ranking:

=================  =======================================================  ==============================
name               bounded value of x                                       affine in x
=================  =======================================================  ==============================
none               x                                                        yes
min-max            (x - W) / (B - W)                                        yes, weight 1 / (B - W)
expectation        x / E                                                    yes, weight 1 / E
expectation-max    (x - E) / (B - E)                                        yes, weight 1 / (B - E)
z-score            (x - E) / s, s the standard deviation over random        yes, weight 1 / s
                   rankings
distribution       F(x), the fraction of random rankings that are no better  no
log-distribution   -log(1 - F(x)), the surprise of doing that well          no
UL1                (x / B) * x / (x + E)                                    no
UL2                (x - E) / (B - E) from E on, (x - E) / |E - floor| below   on each side of E
UL2-centered       (u - m) / (1 - m), u = UL2 of x, m its mean over random   on each side of E
                   rankings
=================  =======================================================  ==============================

Sources: equations 3.1, 3.6, 3.11 and 3.12 of Westerborg, User/query-wise metric bounding in learning to rank. UL1 and
UL2 are equations 5 and 6 of Karmaker & Feng, Joint upper & lower bound normalization for IR evaluation, where the floor
is 0. They say that a UL2 of 0 means a random ranking. That holds for the score E, but the mean m of UL2 over random
rankings is not 0, because the slope of UL2 below E is not the one above; UL2-centered has the mean 0. For a measure
where lower is better (U), "no better" and "below E" are reversed, so that a good ranking always has a high F and a
positive UL2 and z-score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rankbound.arrays import floats
from rankbound.display import pandas_frame, plain_values, plot_of, table_of
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.report.display.plot import Plot


@dataclass(frozen=True, slots=True)
class Bounds:
    """Worst, expected (mean over all orders) and best value of a measure: numbers, or arrays over queries."""

    worst: Any
    expected: Any
    best: Any
    variance_of: Callable[[], Any] | None = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def variance(self) -> Any:
        """The variance over all orders, computed when it is asked for; `rankbound.bounds` knows how.

        >>> from rankbound import bounds
        >>> round(bounds("RR", n=3, relevant=1).variance, 4)  # of 1, 1/2 and 1/3
        0.0802
        """
        if self.variance_of is None:
            raise ArgumentError("bounds must be those of rankbound.bounds to have a variance, got others")
        return self.variance_of()

    def to_pandas(self) -> Any:
        """A pandas frame with the columns worst, expected and best, a row per query."""
        return pandas_frame({side: np.ravel(getattr(self, side)) for side in ("worst", "expected", "best")})

    def to_dict(self) -> dict[str, Any]:
        """Numbers, or lists of numbers, ready for JSON."""
        return plain_values({"worst": self.worst, "expected": self.expected, "best": self.best})  # type: ignore[no-any-return]

    def plot(self) -> Plot:
        """Plot the range from worst to best of each query, with the expected value; needs the extra ``report``."""
        return plot_of(self)

    def _repr_html_(self) -> str:
        return table_of(self).to_html()


class NullDistributions(Protocol):
    """Distributions of one measure for many queries; `distribution.many.Distributions` implements it."""

    @property
    def resolution(self) -> NDArray[np.float64]:
        """Probability that the tails of each query's distribution do not resolve; 0 where it is exact."""

    def cdf(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Exact P(score of a random ranking <= x), one x per query."""

    def survival(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Exact P(score of a random ranking >= x), one x per query."""

    def smooth_cdf(self, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Smooth approximation of P(score of a random ranking <= x) and its slope, one x per query."""

    def take(self, queries: NDArray[np.int64]) -> NullDistributions:
        """The distributions of some queries, which may repeat."""

    def expectation(
        self, function: Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Mean of ``function(scores, query)`` over random rankings, for each query."""


@dataclass(frozen=True, eq=False)
class Difficulty:
    """What any ranking of each query could score under one measure, as arrays with one entry per query.

    ``distributions`` is a function, because distributions are expensive and only some boundings need them.
    """

    worst: NDArray[np.float64]
    expected: NDArray[np.float64]
    best: NDArray[np.float64]
    distributions: Callable[[], NullDistributions] | None = None
    lower_is_better: bool = False
    floor: float = 0.0
    precise_distributions: Callable[[], NullDistributions] | None = None  # with precise tails, where that takes longer
    variances: Callable[[], NDArray[np.float64]] | None = None  # over random rankings

    @property
    def informative(self) -> NDArray[np.bool_]:
        """Queries for which some rankings are better than others."""
        return np.asarray(self.best != self.worst)

    def distribution(self) -> NullDistributions:
        """Compute and return the distributions."""
        if self.distributions is None:
            raise ArgumentError("difficulty must have distributions for distribution bounding, got None")
        return self.distributions()

    @cached_property
    def deviation(self) -> NDArray[np.float64]:
        """Standard deviation over random rankings, for each query."""
        if self.variances is None:
            raise ArgumentError("difficulty must have variances for z-score bounding, got None")
        return np.sqrt(self.variances())

    def precise_distribution(self) -> NullDistributions:
        """The distributions for p-values, whose tails are precise."""
        return self.distribution() if self.precise_distributions is None else self.precise_distributions()

    def take(self, queries: NDArray[np.int64]) -> Difficulty:
        """The difficulty of some queries, which may repeat."""
        distributions = None if self.distributions is None else lambda: self.distribution().take(queries)
        worst, expected, best = (bound[queries] for bound in (self.worst, self.expected, self.best))
        precise = None if self.precise_distributions is None else lambda: self.precise_distribution().take(queries)
        taken = Difficulty(worst, expected, best, distributions, self.lower_is_better, self.floor, precise)
        if self.variances is not None:
            taken = replace(taken, variances=lambda: self.deviation[queries] ** 2)
        if "distance_to_one" in self.__dict__:
            taken.__dict__["distance_to_one"] = self.distance_to_one[queries]
        return taken

    @cached_property
    def distance_to_one(self) -> NDArray[np.float64]:
        """Mean of 1 - UL2 over random rankings, for each query; 0 for queries with best == worst."""

        def distance(scores: NDArray[np.float64], query: NDArray[np.int64]) -> NDArray[np.float64]:
            return 1 - get_bounding("UL2").apply(scores, self.take(query))[0]

        return np.where(self.informative, self.distribution().expectation(distance), 0.0)


def difficulty_of(measure: Measure, counts: LabelCounts, ranker_strength: float | None = None) -> Difficulty:
    """What any ranking of each query could score under the plain measure, without its bounding.

    With ``ranker_strength`` the distributions are those of a ranker that prefers a relevant item to another with this
    probability, instead of those of random ranking. They are computed when they are first used.
    """
    plain = measure if measure.bounding == "none" else measure.plain
    worst, expected, best = plain.definition.bounds(plain, counts)

    @lru_cache(maxsize=2)
    def distributions(precise: bool = False) -> NullDistributions:
        from rankbound.difficulty.distribution.many import distributions_of

        strength = 0.5 if ranker_strength is None else ranker_strength
        return distributions_of(plain, counts, ranker_strength=strength, precise=precise)

    def variances() -> NDArray[np.float64]:
        from rankbound.difficulty.bounds import variances_of

        return variances_of(plain, counts)

    return Difficulty(
        np.asarray(worst, np.float64),
        np.asarray(expected, np.float64),
        np.asarray(best, np.float64),
        distributions,
        plain.definition.lower_is_better,
        plain.definition.floor,
        lambda: distributions(precise=True),
        variances,
    )


@dataclass(frozen=True, slots=True)
class Bounding:
    """A normalization of values by the difficulty of their queries.

    ``apply(x, difficulty, smooth)`` returns the bounded value and its slope in x for each query.
    ``defined(difficulty)`` marks the queries for which they exist; elsewhere both are 0. An ``affine`` bounding
    multiplies by a weight and adds a constant; an ``affine_on_each_side`` one does so above and below E. The slope of
    a ``convex`` one does not decrease with x.
    """

    name: str
    affine: bool
    defined: Callable[[Difficulty], NDArray[np.bool_]]
    _apply: Callable[[NDArray[np.float64], Difficulty, bool], tuple[NDArray[np.float64], NDArray[np.float64]]]
    affine_on_each_side: bool = False
    convex: bool = False
    needs_distribution: bool = False

    def apply(
        self, x: NDArray[np.float64], difficulty: Difficulty, smooth: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bounded value and slope; ``smooth`` selects the differentiable distribution, which losses need."""
        defined = self.defined(difficulty)
        if type(x) is not np.ndarray or x.dtype != np.float64 or x.shape != defined.shape:
            x = floats("x", x, length=len(defined), finite=False)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value, slope = self._apply(x, difficulty, smooth)
        return np.where(defined, value, 0.0), np.where(defined, slope, 0.0)

    def weight(self, difficulty: Difficulty) -> NDArray[np.float64]:
        """The factor by which an affine bounding scales the loss of each query; 0 for queries without a choice."""
        if not self.affine:
            raise ArgumentError(
                "bounding must be affine to have a weight per query, one of "
                + ", ".join(name for name, bounding in _BOUNDINGS.items() if bounding.affine)
                + f"; got {self.name!r}"
            )
        slope = self.apply(np.zeros(len(difficulty.best)), difficulty)[1]
        return np.where(difficulty.informative, np.abs(slope), 0.0)


def get_bounding(name: str | Bounding) -> Bounding:
    """Return the bounding with this name.

    >>> get_bounding("min-max").affine, get_bounding("distribution").affine
    (True, False)
    """
    if isinstance(name, Bounding):
        return name
    if not isinstance(name, str) or name not in _BOUNDINGS:
        raise ArgumentError(f"bounding must be one of {', '.join(_BOUNDINGS)}, got {name!r}")
    return _BOUNDINGS[name]


# ---- the formulas ----------------------------------------------------------------------------------------------------


def _affine(x: Any, shift: Any, scale: Any) -> Any:
    slope = 1 / scale
    return (x - shift) * slope, slope + np.zeros_like(x)


def _none(x: Any, d: Difficulty, smooth: bool) -> Any:
    return x, np.ones_like(x)


def _min_max(x: Any, d: Difficulty, smooth: bool) -> Any:
    return _affine(x, d.worst, d.best - d.worst)


def _expectation(x: Any, d: Difficulty, smooth: bool) -> Any:
    return _affine(x, 0.0, d.expected)


def _expectation_max(x: Any, d: Difficulty, smooth: bool) -> Any:
    return _affine(x, d.expected, d.best - d.expected)


def _z_score(x: Any, d: Difficulty, smooth: bool) -> Any:
    return _affine(x, d.expected, np.sign(d.best - d.worst) * d.deviation)


def _distribution(x: Any, d: Difficulty, smooth: bool) -> Any:
    distribution = d.distribution()
    if smooth:
        value, slope = distribution.smooth_cdf(x)
        return (1 - value, -slope) if d.lower_is_better else (value, slope)
    return (distribution.survival(x) if d.lower_is_better else distribution.cdf(x)), np.zeros_like(x)


_LEAST_TAIL = 1e-12  # keeps -log(1 - F) finite beyond the last point of the distribution


def _log_distribution(x: Any, d: Difficulty, smooth: bool) -> Any:
    value, slope = _distribution(x, d, smooth)
    tail = np.maximum(1 - value, _LEAST_TAIL)
    return -np.log(tail), slope / tail


def _ul1(x: Any, d: Difficulty, smooth: bool) -> Any:
    total = x + d.expected
    fraction = np.divide(x, total, out=np.zeros_like(x), where=total > 0)
    slope = np.divide(x * (x + 2 * d.expected), total**2, out=np.zeros_like(x), where=total > 0)
    return x / d.best * fraction, slope / d.best


def _ul2(x: Any, d: Difficulty, smooth: bool) -> Any:
    above = d.best - d.expected  # negative where lower is better
    below = np.abs(d.expected - (d.worst if d.lower_is_better else d.floor)) * np.sign(above)
    scale = np.where((x - d.expected) * np.sign(above) >= 0, above, below)
    return (x - d.expected) / scale, 1 / scale


def _ul2_centered(x: Any, d: Difficulty, smooth: bool) -> Any:
    value, slope = _ul2(x, d, smooth)
    return 1 - (1 - value) / d.distance_to_one, slope / d.distance_to_one


def _always(d: Difficulty) -> NDArray[np.bool_]:
    return np.ones(len(d.best), dtype=bool)


def _informative(d: Difficulty) -> NDArray[np.bool_]:
    return np.asarray(d.best != d.worst)


_BOUNDINGS: Mapping[str, Bounding] = MappingProxyType(
    {
        bounding.name: bounding
        for bounding in (
            Bounding("none", True, _always, _none),
            Bounding("min-max", True, _informative, _min_max),
            Bounding("expectation", True, lambda d: np.asarray(d.expected != 0), _expectation),
            Bounding("expectation-max", True, _informative, _expectation_max),
            Bounding("z-score", True, _informative, _z_score),
            Bounding("distribution", False, _informative, _distribution, needs_distribution=True),
            Bounding("log-distribution", False, _informative, _log_distribution, needs_distribution=True),
            Bounding("UL1", False, lambda d: np.asarray(d.best > 0), _ul1, convex=True),
            Bounding("UL2", False, _informative, _ul2, affine_on_each_side=True),
            Bounding(
                "UL2-centered",
                False,
                _informative,
                _ul2_centered,
                affine_on_each_side=True,
                needs_distribution=True,
            ),
        )
    }
)
BOUNDING_NAMES = tuple(_BOUNDINGS)
