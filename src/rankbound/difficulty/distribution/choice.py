"""Choose how to compute the distribution of a case, and compute it."""

from __future__ import annotations

import math
import time
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution import cache as distribution_cache
from rankbound.difficulty.distribution.arrangements import (
    condensed,
    enumerated,
    sampled,
    sampling_work,
)
from rankbound.difficulty.distribution.branching import branched, is_branched
from rankbound.difficulty.distribution.case import Case
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
from rankbound.difficulty.distribution.mixture import mixture_key, mixtures
from rankbound.difficulty.distribution.spectral import spectral
from rankbound.difficulty.distribution.tilted import has_smooth_tails
from rankbound.difficulty.distribution.walk import Walk
from rankbound.errors import ArgumentError
from rankbound.measures.cascade import Cascade

METHODS = ("auto", "closed", "enumeration", "approximate", "dynamic", "sampled")
SAMPLES = 300_000  # as in Westerborg, User/query-wise metric bounding in learning to rank
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
    return normalized(scores, probabilities, how)


def normalized(scores: NDArray[np.float64], probabilities: NDArray[np.float64], how: str) -> ComputedDistribution:
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
        if is_enumerated(case) or (method == "enumeration" and case.log_arrangements <= math.log(_MOST_ARRANGEMENTS)):
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
    if method == "approximate" or (method == "auto" and prefers_mixture(case, precise)):
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
        if precise and has_weighted_samples(case):
            return *of_weighted_samples(case, seed), "approximate"
        if mixture_key(case) is not None:
            distribution = mixtures([case], precise=False)[0]
            if distribution is not None:
                return *distribution, "approximate"
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


def prefers_mixture(case: Case, precise: bool) -> bool:
    """Whether the mixture over counts on the first ranks goes before the dynamic program.

    Where its tails are not precise, it is preferred if they need not be, or would take long. It does not depend on the
    other queries, so that a query has the same distribution alone and among others.
    """
    key = mixture_key(case)
    if key is None or key[0] == "grid":
        return key is not None
    return dynamic_work(case, _FINE) > (_PRECISE_WORK if precise and not has_smooth_tails(case) else _QUICK_WORK)


def is_enumerated(case: Case) -> bool:
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
