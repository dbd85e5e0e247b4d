"""Choose how to compute a distribution, and compute those of many queries at once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.bounds import plain_measure
from rankbound.difficulty.distribution import cache as distribution_cache
from rankbound.difficulty.distribution.arrangements import (
    condensed,
    enumerated,
    rounding,
    sampled,
    sampling_work,
    tolerance,
)
from rankbound.difficulty.distribution.branching import branched, is_branched
from rankbound.difficulty.distribution.case import Case, case_of
from rankbound.difficulty.distribution.closed_form import closed
from rankbound.difficulty.distribution.dynamic import Points, dynamic, dynamic_work
from rankbound.difficulty.distribution.ends import with_exact_ends
from rankbound.difficulty.distribution.hit_ranks import (
    has_few_hits,
    is_largest_precision,
    of_few_hits,
    of_largest_precision,
)
from rankbound.difficulty.distribution.importance import has_weighted_samples, of_weighted_samples
from rankbound.difficulty.distribution.limit import limit, limit_applies
from rankbound.difficulty.distribution.mixture import TOGETHER, mixture_key, mixtures
from rankbound.difficulty.distribution.smoothing import look_up, smooth_table
from rankbound.difficulty.distribution.spectral import spectral
from rankbound.difficulty.distribution.tilted import has_smooth_tails
from rankbound.difficulty.distribution.walk import Walk
from rankbound.errors import ArgumentError
from rankbound.io import report_progress
from rankbound.measures import LabelCounts, Measure
from rankbound.measures.cascade import Cascade

METHODS = ("auto", "closed", "enumeration", "approximate", "dynamic", "sampled")
SAMPLES = 300_000  # as in Westerborg, User/query-wise metric bounding in learning to rank
_RESOLUTIONS = {"sampled": 1 / SAMPLES, "approximate": 1e-8, "dynamic": 1e-10}
_WITH_ENDS = ("approximate", "dynamic")  # methods whose ends are made exact afterwards
_MOST_POINTS = 4_096  # of a distribution from a dynamic program; where it has more, points are joined
_FEW_ARRANGEMENTS = 25_000  # enumerated by method='auto'
_MOST_ARRANGEMENTS = 5_000_000  # enumerated by method='enumeration'
_ENUMERATION_WORK = 3e6  # arrangements times ranks
_MOST_RANKS = 3_000  # of an enumeration
_LONG_LIST = 5_000  # ranks from which an additive measure has its limit distribution
_MOST_STEPS = 20_000  # ranks that a dynamic program walks over
_MOST_LEVELS = 400  # of measures that compare every level with every other
_MANY_LEVELS = 12  # more than the mixture takes
_SAMPLING_WORK = 4e9  # samples times ranks times levels that method='auto' draws, in about 10 seconds
_LONGEST_SAMPLING = 4e11  # that method='sampled' draws, in about 15 minutes
_PRECISE_WORK = 8e9  # grid points that a spectral program touches in about a second
_QUICK_WORK = 1e7  # grid points that a dynamic program touches in the time of a few approximations
_MOST_WORK = 2e9  # grid points that a dynamic program may touch
_MOST_CELLS = 2e7  # grid points that it may hold
_MOST_STATES = 5e6  # states times ranks of the spectral one; ten times as many where only one label is counted
_FINE = 4096  # points of a spectral program
_GRIDS = (65_536, 32_768, 16_384, 8_192, 4_096, 2_048)  # of a dynamic program: the first that takes no longer than this
_PRECISE, _FAST = (1.2e8, 1e-8), (1e7, 1e-2)  # grid points that it touches; probability that a grid may not resolve
_SLOW = 0.005  # seconds of computation from which a distribution is stored on disk

ComputedDistribution = tuple[NDArray[np.float64], NDArray[np.float64], str]  # scores, probabilities, method


def distribution_of(
    case: Case,
    method: str = "auto",
    grid: int | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    cache: bool = True,
) -> ComputedDistribution:
    """Scores, probabilities and the method that gave them; from memory or disk if they are there.

    ``method="fast"`` is ``"auto"`` without precise tails.
    """
    if method not in ("sampled", "auto", "fast"):
        samples, seed = SAMPLES, 0  # without influence: keep them out of the key
    key = (case, method, grid, samples, seed)
    return _remembered(*key) if cache else _compute(*key)


@lru_cache(maxsize=2048)
def _remembered(case: Case, method: str, grid: int | None, samples: int, seed: int) -> ComputedDistribution:
    quick = case.bounds[0] == case.bounds[2] or (method in ("auto", "fast", "closed") and closed(case) is not None)
    if quick or not case.measure.definition.built_in:  # a file could be of another measure with the same name
        return _compute(case, method, grid, samples, seed)
    key = (str(case.measure), case.labels, case.counts, case.ranks, case.ranker_strength, method, grid, samples, seed)
    distribution = distribution_cache.load(key)
    if distribution is None:
        start = time.perf_counter()
        distribution = _compute(case, method, grid, samples, seed)
        if time.perf_counter() - start > _SLOW:
            distribution_cache.store(key, distribution)
    for array in distribution[:2]:
        array.flags.writeable = False
    return distribution


def _compute(case: Case, method: str, grid: int | None, samples: int, seed: int) -> ComputedDistribution:
    scores, probabilities, how = _choose(case, method, grid, samples, seed)
    if how == "dynamic" and len(scores) > _MOST_POINTS:
        scores, probabilities = condensed(scores, probabilities)
    if how in _WITH_ENDS and len(scores) > 1:
        scores, probabilities = with_exact_ends(scores, probabilities, case)
    return _normalized(scores, probabilities, how)


def _normalized(scores: NDArray[np.float64], probabilities: NDArray[np.float64], how: str) -> ComputedDistribution:
    """Probabilities that sum to 1, and arrays that nobody changes."""
    probabilities = probabilities / probabilities.sum()
    for array in (scores, probabilities):
        array.flags.writeable = False
    return scores, probabilities, how


def _choose(case: Case, method: str, grid: int | None, samples: int, seed: int) -> ComputedDistribution:
    precise, method = method != "fast", "auto" if method == "fast" else method
    worst, _, best = case.bounds
    if worst == best:  # all orders have the same value
        return np.array([best]), np.ones(1), "closed" if method == "auto" else method
    if case.rank_weights is None and len(case.labels) > _MOST_LEVELS:
        raise ArgumentError(
            f"the distribution of {case.measure} takes up to {_MOST_LEVELS} different labels, got "
            f"{len(case.labels):,}; round the labels"
        )
    if method in ("auto", "closed"):
        distribution = closed(case)
        if distribution is not None:
            return *distribution, "closed"
        if method == "closed":
            raise ArgumentError(
                f"method='closed' needs a measure with a closed-form distribution, got {case.measure}; "
                "choose method='auto'"
            )
    if method in ("auto", "enumeration"):
        if method == "enumeration" and case.ranks > _MOST_RANKS:
            raise ArgumentError(
                f"enumeration takes up to {_MOST_RANKS:,} ranks, got {case.ranks:,}; choose method='auto'"
            )
        if _is_enumerated(case) or (method == "enumeration" and case.log_arrangements <= math.log(_MOST_ARRANGEMENTS)):
            return *enumerated(case), "enumeration"
        if method == "enumeration":
            raise ArgumentError(
                f"enumeration takes up to {_MOST_ARRANGEMENTS:,} arrangements, got about "
                f"10^{case.log_arrangements / math.log(10):.1f}; choose method='dynamic'"
            )
    if method in ("auto", "approximate") and _has_limit(case):
        distribution = limit(case)
        if distribution is not None:
            return *distribution, "approximate"
    if method == "approximate" or (method == "auto" and _prefers_mixture(case, precise)):
        distribution = mixtures([case], precise)[0] if mixture_key(case) is not None else None
        if distribution is None and method == "approximate" and mixture_key(case) is not None:
            distribution = mixtures([case], precise=False)[0]
        if distribution is not None:
            return *distribution, "approximate"
        if method == "approximate":
            raise ArgumentError(
                "method='approximate' needs random ranking and 3 to 12 levels, of which several are not rare, got "
                f"{case.measure} with {len(case.counts)} levels of {', '.join(map(str, case.counts))} documents; "
                "choose method='auto'"
            )
    if method == "auto" and precise and _needs_weighted_samples(case):
        return *of_weighted_samples(case, seed), "approximate"
    if method in ("auto", "dynamic"):
        distribution = _dynamic(case, grid, precise)
        if distribution is not None:
            return *distribution, "dynamic"
        if method == "dynamic":
            raise ArgumentError("the dynamic program has too many states for these labels; choose method='sampled'")
        if mixture_key(case) is not None:
            distribution = mixtures([case], precise=False)[0]
            if distribution is not None:
                return *distribution, "approximate"
    if method == "auto" and precise and has_weighted_samples(case):
        return *of_weighted_samples(case, seed), "approximate"
    _check_sampling(case, samples, _SAMPLING_WORK if method == "auto" else _LONGEST_SAMPLING)
    return *sampled(case, samples, seed), "sampled"


def _needs_weighted_samples(case: Case) -> bool:
    """Whether the first documents decide on which scale the others count, which no grid resolves."""
    return isinstance(case.measure.definition, Cascade) and len(case.labels) > 2 and has_weighted_samples(case)


def _has_limit(case: Case) -> bool:
    """Whether the list is so long, or has so many levels, that its limit distribution is used."""
    is_long = case.ranks >= _LONG_LIST
    has_many_levels = len(case.labels) > _MANY_LEVELS and SAMPLES * sampling_work(case) > _SAMPLING_WORK
    return (is_long or has_many_levels) and limit_applies(case)


def _check_sampling(case: Case, samples: int, most: float) -> None:
    """Raise ArgumentError for orders that would take too long to draw."""
    work = sampling_work(case)
    ranks = case.measure.definition.decisive_ranks(case)
    if samples * work > most:
        raise ArgumentError(
            f"the distribution of {case.measure} on {case.n:,} documents with {len(case.labels):,} levels, "
            f"{case.n - max(case.counts):,} of them outside the commonest one, has no fast method, and {samples:,} "
            f"samples would take too long; choose method='sampled' with at most {int(_LONGEST_SAMPLING / work):,} "
            f"samples, or a query or a cutoff of at most {int(ranks * most / (samples * work)):,} documents"
        )


def _prefers_mixture(case: Case, precise: bool) -> bool:
    """Whether the mixture over counts on the first ranks goes before the dynamic program.

    Where its tails are not precise, it is preferred if they need not be, or would take long. It does not depend on the
    other queries, so that a query has the same distribution alone and among others.
    """
    key = mixture_key(case)
    if key is None or key[0] == "grid":
        return key is not None
    return dynamic_work(case, _FINE) > (_PRECISE_WORK if precise and not has_smooth_tails(case) else _QUICK_WORK)


def _is_enumerated(case: Case) -> bool:
    """Whether there are few enough arrangements to take all of them."""
    if case.ranks**2 > _ENUMERATION_WORK:  # labels that differ have at least as many arrangements as ranks
        return False
    log_work = case.log_arrangements + math.log(max(case.ranks, 1))
    return case.log_arrangements <= math.log(_FEW_ARRANGEMENTS) and log_work <= math.log(_ENUMERATION_WORK)


def _dynamic(case: Case, grid: int | None, precise: bool) -> Points | None:
    """By sets of ranks, a tree, the spectral program for smooth distributions or the one on a grid for others.

    None if all of them would take too long.
    """
    if is_largest_precision(case):
        return of_largest_precision(case)
    if not case.measure.definition.has_walk:
        return None
    most, rare = _PRECISE if precise else _FAST
    if grid is None:
        points = branched(case, rare) if is_branched(case, rare) else None
        if points is not None:
            return points
        if has_few_hits(case):
            return of_few_hits(case)
    walk = Walk.of(case)
    if len(walk.ranks) > _MOST_STEPS:
        return None
    states = math.prod(walk.shape)
    few_states = states * len(walk.ranks) <= _MOST_STATES * (10 if len(walk.axes) == 1 else 1)
    if few_states and case.counts[walk.base] > 0:
        distribution = spectral(case, grid or _FINE)
        if distribution is not None:
            return distribution
    sizes = (size for size in _GRIDS if dynamic_work(case, size) <= most and states * size <= _MOST_CELLS)
    on_grid = grid or next(sizes, _GRIDS[-1])
    if dynamic_work(case, on_grid) > _MOST_WORK or states * on_grid > _MOST_CELLS:
        return None
    return dynamic(case, on_grid)


# ---- many queries ----------------------------------------------------------------------------------------------------


class Distributions:
    """The distributions of one measure for many queries: tables of the distinct ones, looked up with one x per query.

    ``class_of[q]`` is the index in ``distributions`` of query q's distribution.
    """

    def __init__(self, distributions: Sequence[ComputedDistribution], class_of: NDArray[np.int64]) -> None:
        self.distributions = list(distributions)
        self.class_of = class_of
        sizes = np.array([len(distribution[0]) for distribution in self.distributions], dtype=np.int64)
        self._first = (np.cumsum(sizes) - sizes)[class_of]
        self._size = sizes[class_of]
        self._scores = (
            np.concatenate([distribution[0] for distribution in self.distributions])
            if self.distributions
            else np.zeros(0)
        )
        # P(score <= the first i) and P(score >= those from i on), one number more than there are scores
        self._below = _joined([_running(distribution[1]) for distribution in self.distributions])
        self._above = _joined([_running(distribution[1][::-1])[::-1] for distribution in self.distributions])
        ends = np.array([rounding(distribution[0]) for distribution in self.distributions]).reshape(-1, 2)
        self._least_slack, self._greatest_slack = ends[class_of].T

    def __len__(self) -> int:
        return len(self.class_of)

    def __repr__(self) -> str:
        return f"Distributions(queries={len(self)}, distinct={len(self.distributions)})"

    def cdf(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """P(score of a random ranking <= x), one x per query."""
        x = self._checked(x)
        return np.where(np.isnan(x), np.nan, self._below[self._first + self.class_of + self._count(x + self._slack(x))])

    def survival(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """P(score of a random ranking >= x), one x per query."""
        x = self._checked(x)
        count = self._count(np.nextafter(x - self._slack(x), -np.inf))
        return np.where(np.isnan(x), np.nan, self._above[self._first + self.class_of + count])

    def _slack(self, x: NDArray[np.float64]) -> Any:
        return tolerance(x, self._least_slack, self._greatest_slack)

    @property
    def resolution(self) -> NDArray[np.float64]:
        """Probability that the tails of each query's distribution do not resolve.

        It is 1 / the number of samples of a sampled distribution, 1e-8 for an approximate one, 1e-10 for a dynamic
        program, and 0 for all others.
        """
        resolutions = [_RESOLUTIONS.get(distribution[2], 0.0) for distribution in self.distributions]
        return np.array(resolutions, dtype=np.float64)[self.class_of]

    def smooth_cdf(self, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Smooth P(score of a random ranking <= x) (algorithm 2 of Westerborg 2022) and its slope, one x per query."""
        x = self._checked(x)
        if not self.distributions:
            return np.zeros(0), np.zeros(0)
        return look_up(x, *self._smooth)

    def take(self, queries: NDArray[np.int64]) -> Distributions:
        """The distributions of some queries, which may repeat."""
        taken = copy(self)
        taken.__dict__.pop("_smooth", None)
        for name in ("class_of", "_first", "_size", "_least_slack", "_greatest_slack"):
            setattr(taken, name, getattr(self, name)[queries])
        return taken

    def expectation(
        self, function: Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Mean of ``function(scores, query)`` over random rankings, for each query.

        It is computed once for the queries that share a distribution, with the first of them as ``query``.
        """
        classes, first, back = np.unique(self.class_of, return_index=True, return_inverse=True)
        distinct = [self.distributions[index] for index in classes]
        index = np.repeat(np.arange(len(classes)), [len(distribution[0]) for distribution in distinct])
        values = function(_joined([distribution[0] for distribution in distinct]), first[index])
        weighted = _joined([distribution[1] for distribution in distinct]) * values
        return np.bincount(index, weighted, minlength=len(classes)).astype(np.float64)[back.ravel()]

    def _checked(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        x = np.asarray(x, dtype=np.float64)
        if x.shape != self.class_of.shape:
            raise ArgumentError(f"x must hold one number per query, {len(self)}, got shape {x.shape}")
        return x

    def _count(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """Scores <= x of each query's distribution: one bisection for all queries side by side."""
        low = np.zeros(len(x), dtype=np.int64)
        high = self._size.copy()
        for _ in range(int(self._size.max(initial=1)).bit_length()):
            middle = (low + high) // 2
            open_ = low < high
            right = open_ & (self._scores[self._first + np.minimum(middle, self._size - 1)] <= x)
            low = np.where(right, middle + 1, low)
            high = np.where(open_ & ~right, middle, high)
        return low

    @cached_property
    def _smooth(self) -> tuple[NDArray[np.float64], ...]:
        tables = [smooth_table(distribution[0], distribution[1]) for distribution in self.distributions]
        sizes = np.array([len(table.values) for table in tables])
        per_class = [
            np.array([table.start for table in tables]),
            np.array([table.spacing for table in tables]),
            np.array([table.gain for table in tables]),
            np.cumsum(sizes) - sizes,
            sizes,
        ]
        values, slopes = _joined([table.values for table in tables]), _joined([table.slopes for table in tables])
        return *(column[self.class_of] for column in per_class), values, slopes


def _running(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """0, the running sums of the probabilities, and exactly 1 at the end."""
    sums = np.cumsum(probabilities)
    sums[-1] = 1.0
    return np.concatenate(([0.0], np.minimum(sums, 1.0)))


def _joined(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate(parts) if parts else np.zeros(0)


def _report_distribution(done: int, total: int) -> None:
    report_progress("distribution", done, total)


def distributions_of(
    measure: Measure,
    counts: LabelCounts,
    *,
    ranker_strength: float = 0.5,
    precise: bool = False,
    cache: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Distributions:
    """The distributions of a plain measure for the queries that the counts describe.

    Queries that differ in nothing the measure sees share one distribution. ``precise`` is for p-values: tails of full
    rankings with graded labels are then precise, too, which takes longer.
    ``progress(done, all)`` is called after each distribution.

    >>> from rankbound.measures import parse_measure
    >>> distributions = distributions_of(parse_measure("P@2"), LabelCounts.binary([4, 3, 4], [2, 1, 2]))
    >>> distributions, distributions.survival(np.array([1.0, 0.5, 0.5])).round(3).tolist()
    (Distributions(queries=3, distinct=2), [0.167, 0.667, 0.833])
    """
    if not 0 < ranker_strength < 1:
        raise ArgumentError(f"ranker_strength must lie between 0 and 1, got {ranker_strength}")
    cases, class_of = _cases(plain_measure(measure), counts, ranker_strength)
    method = "auto" if precise else "fast"
    return Distributions(_computed(cases, method, cache, progress or _report_distribution), class_of)


def _computed(
    cases: Sequence[Case], method: str, cache: bool, progress: Callable[[int, int], None] | None
) -> list[ComputedDistribution]:
    """The distribution of each case: approximations of cases with the same tables together, the others one by one."""
    distributions: list[ComputedDistribution | None] = [None] * len(cases)
    together: dict[Any, list[int]] = {}
    for index, case in enumerate(cases):
        if _is_approximated(case, precise=method == "auto"):
            distributions[index] = _recent.get((case, method)) if cache else None
            if distributions[index] is None:
                together.setdefault(mixture_key(case), []).append(index)
    done = sum(distribution is not None for distribution in distributions)

    def finish(index: int, distribution: ComputedDistribution) -> None:
        nonlocal done
        distributions[index] = distribution
        done += 1
        if progress is not None:
            progress(done, len(cases))

    for members in together.values():
        for start in range(0, len(members), TOGETHER):
            chunk = members[start : start + TOGETHER]
            for index, points in zip(chunk, mixtures([cases[index] for index in chunk], method == "auto"), strict=True):
                if points is not None:
                    distribution = _normalized(*with_exact_ends(*points, cases[index]), "approximate")
                    finish(index, distribution)
                    if cache:
                        _recent.put((cases[index], method), distribution)
    for index, case in enumerate(cases):
        if distributions[index] is None:
            finish(index, distribution_of(case, method, cache=cache))
    return [distribution for distribution in distributions if distribution is not None]


def _is_approximated(case: Case, precise: bool) -> bool:
    """Whether the approximation is tried."""
    worst, _, best = case.bounds
    return _prefers_mixture(case, precise) and worst != best and not _is_enumerated(case) and closed(case) is None


class _Recent:
    """The approximations that were used last, up to a total number of points."""

    def __init__(self, most_points: int) -> None:
        self.most_points = most_points
        self.points = 0
        self.kept: dict[tuple[Case, str], ComputedDistribution] = {}
        self.lock = threading.Lock()

    def get(self, key: tuple[Case, str]) -> ComputedDistribution | None:
        """The distribution of a case by a method if it is here."""
        with self.lock:
            distribution = self.kept.pop(key, None)
            if distribution is not None:
                self.kept[key] = distribution  # the last to be removed
            return distribution

    def put(self, key: tuple[Case, str], distribution: ComputedDistribution) -> None:
        """Keep a distribution, and remove those that were not used for longest if there are too many points."""
        with self.lock:
            if key not in self.kept:
                self.kept[key] = distribution
                self.points += len(distribution[0])
            while self.points > self.most_points:
                oldest = next(iter(self.kept))
                self.points -= len(self.kept.pop(oldest)[0])

    def clear(self) -> None:
        """Remove all."""
        with self.lock:
            self.kept.clear()
            self.points = 0


_recent = _Recent(10_000_000)


def _cases(measure: Measure, counts: LabelCounts, ranker_strength: float) -> tuple[list[Case], NDArray[np.int64]]:
    """The distinct cases, and which of them each query is."""
    counts = measure.definition.distinguished_counts(counts)
    labels = measure.definition.levels(measure, counts.values)
    if measure.definition.is_binary(measure):
        levels = np.array([1.0, 0.0])
        code = (labels == 0).astype(np.int64)
    else:
        levels, code = np.unique(labels, return_inverse=True)
    table = np.bincount(
        counts.query_of_run * len(levels) + code, counts.counts, minlength=len(counts) * len(levels)
    ).reshape(len(counts), len(levels))
    rows = np.column_stack((table, counts.cut(measure.cutoff))).astype(np.int64)
    distinct, back = np.unique(rows, axis=0, return_inverse=True)
    index: dict[Case, int] = {}
    case_at = np.zeros(len(distinct), dtype=np.int64)
    for at, row in enumerate(distinct.tolist()):
        case = case_of(measure, levels.tolist(), row[:-1], row[-1], ranker_strength)
        case_at[at] = index.setdefault(case, len(index))
    return list(index), case_at[back.ravel()] if len(distinct) else np.zeros(0, dtype=np.int64)
