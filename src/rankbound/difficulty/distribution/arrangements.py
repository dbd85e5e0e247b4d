"""Distributions from arrangements of the labels: from all of them (`enumerated`) or from a sample (`sampled`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.case import Case
from rankbound.errors import ArgumentError
from rankbound.measures.combinatorics import arrangements
from rankbound.measures.ranked import rank_rows

Points = tuple[NDArray[np.float64], NDArray[np.float64]]  # scores ascending, probabilities
_ROUNDING = 1e-10  # relative difference of scores that rounding explains
_HEAVY = 0.002  # mass of a point that is joined with no other, over what lies beyond
_JOINED, _JOINED_IN_TAIL = 8e-4, 0.008  # mass of points that are joined, in the tails over what lies beyond
_MANY_LEVELS = 12  # from which on whole orders are permuted
_STATEFUL = 8.0  # how much longer a draw takes if what it adds depends on the counts so far
_NUMBERS = 1 << 20  # labels permuted together
_CHUNK = 16_384  # samples drawn together: their counters stay in the processor's cache


def rounding(scores: NDArray[np.float64]) -> tuple[float, float]:
    """The least and the greatest difference of scores that counts as rounding; see `tolerance`."""
    greatest = _ROUNDING * max(float(np.abs(scores).max(initial=0.0)), 1e-3)
    return min(greatest, float(np.diff(scores).min(initial=np.inf)) / 4), greatest


def tolerance(x: Any, least: Any, greatest: Any) -> Any:
    """Scores that differ from x by less than this count as equal; the difference is rounding.

    It is 1e-10 of x, because sums of positive numbers are right relative to their size: an RBP of 1e-30 is not 0. Where
    x is a difference of larger numbers, such as a Tau of 0, it is a quarter of the least difference of two scores.
    """
    return np.clip(_ROUNDING * np.abs(x), least, greatest)


def merged(scores: NDArray[np.float64], probabilities: NDArray[np.float64], relative: bool = False) -> Points:
    """Sort scores in ascending order and merge equal ones; ``relative`` if they are right relative to their size.

    >>> merged(np.array([0.5, 1.0, 0.25 + 0.25]), np.array([0.25, 0.5, 0.25]))
    (array([0.5, 1. ]), array([0.5, 0.5]))
    """
    order = np.argsort(scores, kind="stable")
    scores, probabilities = scores[order], probabilities[order]
    first = np.flatnonzero(_are_new(scores, relative))
    return scores[first], np.add.reduceat(probabilities, first)


def _are_new(scores: NDArray[np.float64], relative: bool) -> NDArray[np.bool_]:
    """Whether each of some ascending scores is more than the one before, by more than rounding."""
    greatest = rounding(scores)[1]
    slack = np.minimum(_ROUNDING * np.abs(scores), greatest) if relative else greatest
    return np.asarray(np.diff(scores, prepend=-np.inf) > slack)


def condensed(scores: NDArray[np.float64], mass: NDArray[np.float64], kept: NDArray[np.bool_] | None = None) -> Points:
    """Join neighboring points, apart from those that are ``kept`` and the ends, at their mean.

    Joined points have about 8e-4 of the mass, in the tails up to 0.8 % of what lies beyond them. So no p-value changes
    by more than that; a point that has more than 0.2 % stays as it is.
    """
    kept = np.zeros(len(scores), dtype=bool) if kept is None else kept
    if not mass.all():  # points without mass have no mean
        scores, mass, kept = scores[mass > 0], mass[mass > 0], kept[mass > 0]
    distinct = _are_new(scores, relative=True)
    if not distinct.all():
        first = np.flatnonzero(distinct)
        scores, mass, kept = scores[first], np.add.reduceat(mass, first), np.logical_or.reduceat(kept, first)
    below = np.cumsum(mass) - mass / 2
    above = np.cumsum(mass[::-1])[::-1] - mass / 2
    side = np.minimum(below, above)
    start = _JOINED / _JOINED_IN_TAIL
    cell = np.where(side < start, start * (1 + np.log(np.maximum(side, 1e-300) / start)), side) / _JOINED
    cell = np.floor(np.where(below <= above, cell, -cell))
    apart = kept | (mass > _HEAVY * side)
    apart[[0, -1]] = True
    new = apart | (np.diff(cell, prepend=np.nan) != 0)
    new[1:] |= apart[:-1]
    first = np.flatnonzero(new)
    total = np.add.reduceat(mass, first)
    return np.add.reduceat(scores * mass, first) / total, total


def enumerated(case: Case) -> Points:
    """The exact distribution from every distinguishable way to fill the ranks, built up rank by rank.

    Arrangements with equal counts and equal totals so far are merged, which keeps measures with few values small.
    """
    if not case.measure.definition.has_walk:
        orders = np.array(arrangements(np.repeat(case.labels, case.counts).tolist()), dtype=np.float64)
        return merged(_values_of_orders(case, orders), np.full(len(orders), 1 / len(orders)))
    levels = len(case.labels)
    so_far = np.zeros((levels, 1), dtype=np.int64)
    total, probability = np.zeros(1), np.ones(1)
    for rank in range(1, case.ranks + 1):
        label_probabilities = case.probabilities(rank - 1, so_far)
        parts: list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]] = []
        for level in range(levels):
            go = np.flatnonzero(label_probabilities[level] > 0)
            grown = so_far[:, go]
            growth = np.broadcast_to(case.growth(rank, level, grown), go.shape)
            grown[level] += 1
            parts.append((grown, total[go] + growth, probability[go] * label_probabilities[level][go]))
        so_far = np.concatenate([part[0] for part in parts], axis=1)
        total = np.concatenate([part[1] for part in parts])
        probability = np.concatenate([part[2] for part in parts])
        if case.rank_weights is None:
            so_far, total, probability = _join(so_far, total, probability)
    scale, shift = case.value(so_far)
    return merged(np.broadcast_to(total * scale + shift, total.shape), probability, relative=not np.any(shift))


def _values_of_orders(case: Case, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values of whole orders, for measures that do not grow rank by rank; such orders are always random."""
    if not case.random:
        raise ArgumentError(
            f"ranker_strength must be 0.5 for {case.measure}, which does not grow rank by rank, "
            f"got {case.ranker_strength}"
        )
    return case.measure.definition.values_in_order(case.measure, rank_rows(orders, case.ranks))


def _sampled_orders(case: Case, samples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    labels = np.repeat(case.labels, case.counts)
    together = max(1, 4_000_000 // max(len(labels), 1))  # orders that are in memory at a time
    scores = np.empty(samples)
    for start in range(0, samples, together):
        size = min(together, samples - start)
        scores[start : start + size] = _values_of_orders(case, rng.permuted(np.tile(labels, (size, 1)), axis=1))
    return scores


def _join(
    so_far: NDArray[np.int64], total: NDArray[np.float64], probability: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    order = np.lexsort((total, *so_far))
    so_far, total, probability = so_far[:, order], total[order], probability[order]
    new = _are_new(total, relative=bool(total.min() >= 0))
    new[1:] |= (so_far[:, 1:] != so_far[:, :-1]).any(axis=0)
    first = np.flatnonzero(new)
    return so_far[:, first], total[first], np.add.reduceat(probability, first)


def sampled(case: Case, samples: int, seed: int) -> Points:
    """The distribution of ``samples`` independent orders.

    Westerborg (User/query-wise metric bounding in learning to rank) draws 300,000 permutations. Memory grows
    with the number of samples by one score each.
    """
    rng = np.random.default_rng(seed)
    if not case.measure.definition.has_walk:
        return merged(_sampled_orders(case, samples, rng), np.full(samples, 1 / samples))
    if _has_few_hits(case):
        draw = _scores_by_hit_ranks
    else:
        draw = _scores_by_permutation if _is_permuted(case) else _scores_by_rank
    scores = np.empty(samples)
    for start in range(0, samples, _CHUNK):
        part = scores[start : start + _CHUNK]
        part[:] = draw(case, len(part), rng)
    return merged(scores, np.full(samples, 1 / samples))


def _has_few_hits(case: Case) -> bool:
    """Whether the ranks of the relevant items are drawn: few of one level, among others of one or two levels."""
    if not case.random or case.ranks == 0 or case.counts[0] ** 2 >= 2 * case.n:
        return False
    two_others = len(case.labels) == 3 and case.relevant == case.counts[0]
    return len(case.labels) == 2 or (two_others and not case.measure.definition.scale_varies(case.measure))


def _is_permuted(case: Case) -> bool:
    """Whether whole orders are permuted, which takes less time than a draw from very many levels for every rank."""
    varies = case.measure.definition.scale_varies(case.measure)
    return case.random and case.rank_weights is not None and not varies and len(case.labels) > _MANY_LEVELS


def sampling_work(case: Case) -> float:
    """Approximate number of draws for one sampled order, in draws of one label for one rank."""
    if not case.measure.definition.has_walk:
        return 3.0 * case.n
    if _has_few_hits(case):
        return 100.0 * case.counts[0]
    if _is_permuted(case):
        return 60.0 * case.n
    per_draw = 1.0 if case.rank_weights is not None else _STATEFUL
    return per_draw * case.measure.definition.decisive_ranks(case) * len(case.labels)


def _scores_by_permutation(case: Case, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Permute the levels of all documents, and sum them with the weights of the ranks."""
    assert case.rank_weights is not None
    gains = np.repeat(np.array(case.labels), case.counts)
    total = np.empty(size)
    rows = max(1, _NUMBERS // max(1, len(gains)))
    for start in range(0, size, rows):
        part = total[start : start + rows]
        orders = rng.permuted(np.broadcast_to(gains, (len(part), len(gains))), axis=1)
        part[:] = orders[:, : case.ranks] @ case.rank_weights
    scale, shift = case.value(case.counts)
    return np.asarray(total * scale + shift)


def _scores_by_rank(case: Case, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Fill the ranks one by one with a label drawn from those that are left."""
    levels = len(case.labels)
    so_far = np.zeros((levels, size))
    total = np.zeros(size)
    for rank in range(1, case.measure.definition.decisive_ranks(case) + 1):
        draw = rng.random(size)
        free = np.ones(size, dtype=bool)
        below = np.zeros(size)
        picks = []
        for level, label_probability in enumerate(case.probabilities(rank - 1, so_far)):
            below += label_probability
            pick = free & (draw < below) if level < levels - 1 else free.copy()  # the last label takes the rest
            free &= ~pick
            picks.append(pick)
        for level, pick in enumerate(picks):
            if case.rank_weights is not None:
                total += pick * case.growth(rank, level, so_far)
            else:  # it depends on the counts, which takes longer than to select those that need it
                chosen = np.flatnonzero(pick)
                total[chosen] += case.growth(rank, level, so_far[:, chosen])
        so_far += picks
    scale, shift = case.value(so_far)
    return np.asarray(total * scale + shift)


def _scores_by_hit_ranks(case: Case, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the ranks of the relevant items, if they are few in a long list; draws with equal ranks are repeated."""
    few = case.counts[0]
    ranks = np.sort(rng.integers(1, case.n + 1, (size, few)), axis=1)
    while len(twice := np.flatnonzero((ranks[:, 1:] == ranks[:, :-1]).any(axis=1))):
        ranks[twice] = np.sort(rng.integers(1, case.n + 1, (len(twice), few)), axis=1)
    total, hits = np.zeros(size), np.zeros(size)
    last = np.zeros(size, dtype=np.int64)  # of the second level above, if there is a third
    for i in range(few):
        rank = ranks[:, i]
        seen = rank <= case.ranks
        others = [rank - 1 - i]
        if len(case.labels) == 3:
            last += _drawn_others(case, last, rank - 1 - i, rank - 1 - (ranks[:, i - 1] if i else 0), rng)
            others = [last, rank - 1 - i - last]
        total += seen * case.growth(np.minimum(rank, case.ranks), 0, [np.full(size, i), *others])
        hits += seen
    scale, shift = case.value([hits, case.ranks - hits, np.zeros(size)][: len(case.labels)])
    return np.asarray(total * scale + shift)


def _drawn_others(
    case: Case, above: NDArray[np.int64], others: NDArray[np.int64], gap: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many of the ``gap`` items between two relevant ones are of the second level.

    ``above`` items of this level stand above the gap, and ``others`` of any level but the first above its end.
    """
    left = case.counts[1] - above
    return rng.hypergeometric(left, case.counts[2] - (others - gap - above), gap)
