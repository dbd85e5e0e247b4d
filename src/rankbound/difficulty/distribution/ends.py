"""The exact probabilities of the worst and the best value, whatever method gave the distribution between them.

All orders of the labels on the ranks are equally likely. Sums of level times weight are greatest, by the rearrangement
inequality, for exactly the orders in which higher levels never stand at ranks of lower weight; among ranks of equal
weight, and among those that are not seen, any order is as good. The ranks that a cascade or a sum of precisions sees
have a single best and a single worst order. For other measures the orders are counted rank by rank: for each vector of
counts so far, the least and the greatest total, and the probability of the orders that have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import rounding
from rankbound.difficulty.distribution.case import Case
from rankbound.measures.additive import Additive
from rankbound.measures.cascade import Cascade, FirstHit
from rankbound.measures.precision_sum import PrecisionSum

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
_MOST_STEPS = 300_000  # count vectors times ranks of the walk
_ROUNDING = 4e-10  # relative difference of scores that are the end itself
_EQUAL = 1e-12  # relative difference of equal weights and totals


def exact_ends(case: Case) -> tuple[float, float] | None:
    """Probabilities of the least and the greatest value; None where they would take too long to count."""
    definition = case.measure.definition
    if not definition.has_walk:
        return None
    if case.random and not definition.scale_varies(case.measure) and not isinstance(definition, FirstHit):
        if isinstance(definition, Additive):
            return _of_sorted_levels(case, _equal_weights(case))
        if isinstance(definition, (Cascade, PrecisionSum)):
            return _of_sorted_levels(case, [*[1] * case.ranks, case.n - case.ranks])
    return _of_walk(case)


def _equal_weights(case: Case) -> list[int]:
    """Sizes of the groups of ranks with the same weight, in descending order of the weight."""
    assert case.rank_weights is not None
    weights = np.concatenate((case.rank_weights, np.zeros(case.n - case.ranks)))
    new = np.diff(weights, prepend=np.inf) < -_EQUAL * weights
    new[1:] |= (weights[1:] == 0) & (weights[:-1] > 0)
    return np.diff(np.append(np.flatnonzero(new), case.n)).tolist()  # type: ignore[no-any-return]


def _of_sorted_levels(case: Case, groups: Sequence[int]) -> tuple[float, float]:
    """Fractions of the orders that have the levels ascending and descending over these groups of ranks."""
    return _fraction_of_orders(case.counts[::-1], groups), _fraction_of_orders(case.counts, groups)


def _fraction_of_orders(counts: Sequence[int], groups: Sequence[int]) -> float:
    """prod over groups of (size! / prod of the counts in it!) over n! / prod of all counts!."""
    left, level = list(counts), 0
    log = sum(math.lgamma(count + 1) for count in counts) - math.lgamma(sum(counts) + 1)
    for size in groups:
        log += math.lgamma(size + 1)
        while size > 0:
            taken = min(size, left[level])
            log -= math.lgamma(taken + 1)
            left[level] -= taken
            size -= taken
            if left[level] == 0:
                level += 1
    return math.exp(log)


def _of_walk(case: Case) -> tuple[float, float] | None:
    """The walk over all vectors of counts; see the head of the module."""
    sizes = [min(count, case.ranks) + 1 for count in case.counts[:-1]]
    if math.prod(sizes) * case.ranks > _MOST_STEPS:
        return None
    so_far = np.array(list(product(*map(range, sizes))), dtype=np.int64).reshape(-1, len(sizes)).T
    index = np.arange(so_far.shape[1]).reshape(sizes)
    least, most = (np.full(so_far.shape[1], end) for end in (np.inf, -np.inf))
    least[0] = most[0] = 0.0
    masses = np.zeros((2, so_far.shape[1]))
    masses[:, 0] = 1.0
    for rank in range(1, case.ranks + 1):
        counts = [*so_far, rank - 1 - so_far.sum(axis=0)]
        ends = [least, most]
        steps = _steps(case, rank, counts, index)
        for end, sign in ((0, 1.0), (1, -1.0)):
            ends[end], masses[end] = _extremes(steps, sign * ends[end], sign, masses[end])
            ends[end] = sign * ends[end]
        least, most = ends
    counts = [*so_far, case.ranks - so_far.sum(axis=0)]
    scale, shift = case.value(counts)
    low, high = (np.where(np.isfinite(end), end, 0.0) * scale + shift for end in (least, most))
    if np.min(scale) < 0:
        low, high, masses = high, low, masses[::-1]
    slack = rounding(np.array([case.bounds[0], case.bounds[2]]))[1]
    at_worst = (masses[0] > 0) & (low <= low[masses[0] > 0].min() + slack)
    at_best = (masses[1] > 0) & (high >= high[masses[1] > 0].max() - slack)
    return float(masses[0][at_worst].sum()), float(masses[1][at_best].sum())


def _steps(case: Case, rank: int, counts: list[Any], index: NDArray[np.int64]) -> list[Any]:
    """Per level: which vectors can take one more document of it, which they lead to, what it adds, its probability."""
    steps = []
    within = [(seen >= 0) & (seen <= count) for seen, count in zip(counts, case.counts, strict=True)]
    possible = np.logical_and.reduce(within)
    for level, probability in enumerate(case.probabilities(rank - 1, counts)):
        source = np.flatnonzero(possible & (counts[level] < case.counts[level]))
        chosen = [seen[source] for seen in counts]
        ahead = 0 if level == len(case.counts) - 1 else index.strides[level] // index.itemsize
        added = np.broadcast_to(case.growth(rank, level, chosen), source.shape)
        steps.append((source, source + ahead, added, np.broadcast_to(probability, possible.shape)[source]))
    return steps


def _extremes(
    steps: list[Any], total: NDArray[np.float64], sign: float, mass: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least totals after a rank and the probabilities of the orders that have them."""
    least, probability = np.full(len(total), np.inf), np.zeros(len(mass))
    for source, target, added, _ in steps:
        np.minimum.at(least, target, total[source] + sign * added)
    for source, target, added, each in steps:
        reached = total[source] + sign * added
        equal = np.isfinite(reached) & (reached <= least[target] + _EQUAL * np.maximum(np.abs(least[target]), 1e-300))
        np.add.at(probability, target[equal], (mass[source] * each)[equal])
    return least, probability


def with_exact_ends(scores: NDArray[np.float64], mass: NDArray[np.float64], case: Case) -> Points:
    """The distribution with the exact probabilities at its ends; what was there beyond them stays next to them.

    The mass of the end and its moment are taken from the outermost points, whose rest keeps its mean.
    """
    probabilities = exact_ends(case)
    if probabilities is None:
        return scores, mass
    worst, _, best = case.bounds
    low, high = min(worst, best), max(worst, best)
    scores, mass = _with_end(scores, mass / mass.sum(), low, probabilities[0])
    scores, mass = _with_end(-scores[::-1], mass[::-1], -high, probabilities[1])
    return -scores[::-1], mass[::-1]


def _with_end(scores: NDArray[np.float64], mass: NDArray[np.float64], end: float, probability: float) -> Points:
    """The same for the lower end; all other mass is put above it."""
    slack = _ROUNDING * abs(end)
    outside = np.flatnonzero(scores <= end + slack)
    taken = int(np.searchsorted(np.cumsum(mass), probability * (1 - 1e-9))) + 1
    taken = max(taken, len(outside))
    rest = float(mass[:taken].sum()) - probability
    if rest <= 1e-9 * probability or taken >= len(scores):
        return np.append(end, scores[taken:]), np.append(probability, mass[taken:])
    mean = (float(scores[:taken] @ mass[:taken]) - probability * end) / rest
    following = float(scores[taken])
    if not end + slack < mean < following:  # no single point between can keep the mean
        mean = (end + following) / 2
    return np.concatenate(([end, mean], scores[taken:])), np.concatenate(([probability, rest], mass[taken:]))
