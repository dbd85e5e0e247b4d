"""Distributions of graded labels as mixtures over the counts on the first ranks: fast, with an error of at most 2e-3.

Given how many documents of each level stand on the first m ranks, their total has the same distribution for all queries
with these levels (see `count_vectors`). With P_q(c) the probability of the counts c in query q,

    F_q(x) = sum over c of P_q(c) F(x | c),

and the conditional distributions F(. | c) are tabulated once. There are two forms:

``grid``
    All ranks that the measure sees are among the first m (cutoffs up to about 12 with five levels). The conditional
    distributions are kept on grids, one for each highest level among the first ranks or, for measures such as ERR, one
    for each sequence of levels on the first few ranks, because these differ in the size of their totals. Arrangements
    that are likely by themselves are kept exactly, as steps of the distribution function. For many queries this is a
    product of two matrices.
``tail``
    The measure is a sum of level * weight(rank) and sees further ranks. Their total given c is nearly normal, because
    their weights are small and similar: it is described by its first four cumulants, which are those of a linear
    permutation statistic, in an Edgeworth expansion of its characteristic function.

Where the expansion does not settle, or a grid is too coarse, there is no mixture and another method is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import merged, tolerance
from rankbound.difficulty.distribution.case import Case
from rankbound.difficulty.distribution.count_vectors import CountVectors, Growth, count_vectors, number_of_vectors
from rankbound.difficulty.distribution.dynamic import Points

__all__ = ["TOGETHER", "mixture_key", "mixtures"]

TOGETHER = 32  # queries that are computed together
_LEAST_LEVELS, _MOST_LEVELS = 3, 12
_MOST_VECTORS = 4_000  # of the grid form
_FEW_VECTORS = 1_100  # of the tail form
_MOST_RANKS = 16  # of the first ranks
_LEAST_TAIL = 4  # ranks after them in the tail form; the fourth cumulant is not defined for fewer
_GRID = 4096  # points of the table of each highest level
_MOST_SEQUENCES, _SMALL_GRID = 128, 384  # of levels on the first ranks that have a grid of their own, and its points
_LIKELY = 2.5e-4  # probability from which an arrangement is kept exactly
_HEAVIEST = 1.5e-3  # probability that one point of a grid may have
_JOINED, _JOINED_IN_TAIL = 8e-4, 0.1  # probability of points that are joined, in the tails over what lies beyond
_LEAST_POINTS, _MOST_POINTS = 512, 16_384
_FREQUENCIES, _MOST_FREQUENCIES = 64, 512  # of the tail form: computed together, at most
_VANISHED = 1e-5  # where the characteristic function is this small, its inversion stops
_SETTLED = 2e-3  # most that the third and fourth cumulants may change the distribution function
_REACH = 7.0  # standard deviations of the tail that fit into the period of the characteristic function
_UNLIKELY = 1e-8  # counts with less than this probability are left out of the tail form


def mixture_key(case: Case) -> tuple[Any, ...] | None:
    """What the tables of a case depend on, or None if it has no mixture."""
    definition, levels = case.measure.definition, len(case.labels)
    if (
        not case.random
        or not definition.grows_by_level
        or definition.scale_varies(case.measure)
        or not _LEAST_LEVELS <= levels <= _MOST_LEVELS
        or case.ranks < 1
    ):
        return None
    if case.ranks < case.n and case.ranks <= _MOST_RANKS and number_of_vectors(levels, case.ranks) <= _MOST_VECTORS:
        return "grid", case.measure, case.labels, case.ranks
    if case.rank_weights is None or case.n - _head(levels) < _LEAST_TAIL:
        return None
    return "tail", case.measure, case.labels, case.ranks, case.n


def mixtures(cases: Sequence[Case]) -> list[Points | None]:
    """The distributions of cases with the same `mixture_key`; None where the mixture would not be accurate enough."""
    key = mixture_key(cases[0])
    assert key is not None
    results: list[Points | None] = []
    for start in range(0, len(cases), TOGETHER):
        chunk = cases[start : start + TOGETHER]
        results += _on_grids(chunk, _grid_table) if key[0] == "grid" else _with_tails(chunk)
    if key[0] == "grid":
        rough = [index for index, points in enumerate(results) if points is None]
        for start in range(0, len(rough), TOGETHER):
            chunk = [cases[index] for index in rough[start : start + TOGETHER]]
            for index, points in zip(rough[start:], _on_grids(chunk, _fine_grid_table), strict=False):
                results[index] = points
    return results


def _head(levels: int) -> int:
    """The number of first ranks of the tail form."""
    ranks = 1
    while ranks < _MOST_RANKS and number_of_vectors(levels, ranks + 1) <= _FEW_VECTORS:
        ranks += 1
    return ranks


# ---- all ranks that are seen, on grids -------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _grid_table(case: Case) -> _GridTable:
    """The table of all cases that differ from this one in their counts only."""
    return _GridTable(case)


@lru_cache(maxsize=2)
def _fine_grid_table(case: Case) -> _GridTable:
    """The same on finer grids, which take more memory and time."""
    return _GridTable(case, finer=4)


class _Group(NamedTuple):
    """A group of arrangements whose totals are of similar size, with a grid of its own.

    ``members`` are rows of the count vectors, ``fraction`` is the fraction of the arrangements of each that belong to
    the group, and ``masses`` has a row of probabilities of the totals ``scores`` for each.
    """

    members: NDArray[np.int64]
    fraction: NDArray[np.float64]
    scores: NDArray[np.float64]
    masses: NDArray[np.float64]


class _GridTable:
    """Conditional distributions of the total of all seen ranks, for the levels and ranks of a case.

    ``scores`` are the totals of the points of all grids, ascending and distinct; ``order`` sorts the joined grids like
    this, and ``first`` are the first of equal ones.
    """

    def __init__(self, case: Case, finer: int = 1) -> None:
        self.case, self.finer = case, finer
        self.vectors = count_vectors(len(case.labels), case.ranks)
        self.arrangements = self.vectors.arrangements()
        self.groups = self._by_first_ranks() if case.rank_weights is None else self._by_highest_level()
        self.sharing = [list(groups) for _, groups in itertools.groupby(self.groups, lambda group: id(group.masses))]
        joined = np.concatenate([group.scores for group in self.groups])
        self.order = np.argsort(joined, kind="stable")
        joined = joined[self.order]
        self.first = np.flatnonzero(np.diff(joined, prepend=-np.inf) > tolerance(joined))
        self.scores = joined[self.first]
        self._totals: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def _by_highest_level(self) -> list[_Group]:
        """Sums of level * weight(rank): totals with and without a document of high gain differ in size."""
        highest = (self.vectors.last > 0).argmax(axis=1)
        groups = []
        for top in range(len(self.case.labels)):
            lower = count_vectors(len(self.case.labels) - top, self.case.ranks)

            def growth(rank: int, level: int, so_far: list[Any], top: int = top) -> Any:
                return self.case.growth(rank, level + top, [np.zeros_like(so_far[0])] * top + so_far)

            members = np.flatnonzero(highest == top)
            scores, masses = _conditional(lower, growth, lower.last[:, 0] > 0, self.finer * _GRID)
            groups.append(_Group(members, np.ones(len(members)), scores, masses))
        return groups

    def _by_first_ranks(self) -> list[_Group]:
        """Measures whose later ranks count less after a document of high level: what follows has a scale of its own.

        Where the growth of later ranks differs from that of a fresh start by a factor, as for a cascade of stop
        probabilities, all sequences of levels on the first ranks share one table.
        """
        levels = len(self.case.labels)
        leading = max(1, min(int(math.log(_MOST_SEQUENCES, levels)), self.case.ranks - 1))
        rest = count_vectors(levels, self.case.ranks - leading)
        everything = np.ones(len(rest.last), dtype=bool)
        arrangements = rest.arrangements()
        fresh = self._growths(rest, leading, np.zeros(levels))
        shared = _conditional(rest, self._growth_after(leading, np.zeros(levels)), everything, self.finer * _SMALL_GRID)
        groups = []
        for sequence in itertools.product(range(levels), repeat=leading):
            above = np.zeros(levels)
            total = 0.0
            for rank, level in enumerate(sequence, 1):
                total += float(np.ravel(self.case.growth(rank, level, list(above[:, None])))[0])
                above[level] += 1
            growths = self._growths(rest, leading, above)
            factor = float(growths @ fresh / (fresh @ fresh))
            if np.abs(growths - factor * fresh).max() <= 1e-12 * np.abs(fresh).max():
                scores, masses = factor * shared[0], shared[1]
            else:
                scores, masses = _conditional(
                    rest, self._growth_after(leading, above), everything, self.finer * _SMALL_GRID
                )
            members = self.vectors.index_of(rest.last + above.astype(np.int64))
            groups.append(_Group(members, arrangements / self.arrangements[members], total + scores, masses))
        return groups

    def _growth_after(self, leading: int, above: NDArray[np.float64]) -> Growth:
        """The growth at the ranks after the first ``leading``, which have the counts ``above``."""

        def growth(rank: int, level: int, so_far: list[Any]) -> Any:
            return self.case.growth(leading + rank, level, [seen + n for seen, n in zip(so_far, above, strict=True)])

        return growth

    def _growths(self, rest: CountVectors, leading: int, above: NDArray[np.float64]) -> NDArray[np.float64]:
        """The growth at every later rank, of every level, after every count vector."""
        growth = self._growth_after(leading, above)
        return np.concatenate(
            [
                np.broadcast_to(growth(rank, level, list(rows.T)), len(rows))
                for rank, rows in enumerate(rest.rows[:-1], 1)
                for level in range(rows.shape[1])
            ]
        )

    def totals(self, counts: tuple[int, ...]) -> NDArray[np.float64]:
        """The totals of all arrangements with these counts."""
        known = self._totals.get(counts)
        if known is None:
            rank = sum(counts)
            parts = []
            for level, count in enumerate(counts):
                if count:
                    above = (*counts[:level], count - 1, *counts[level + 1 :])
                    added = self.case.growth(rank, level, [np.array([float(seen)]) for seen in above])
                    parts.append(self.totals(above) + added)
            known = self._totals[counts] = np.concatenate(parts) if parts else np.zeros(1)
        return known


def _conditional(vectors: CountVectors, growth: Growth, rows: NDArray[np.bool_], points: int) -> Points:
    """Totals on a grid, and a row of probabilities for each of the count vectors that ``rows`` selects.

    A total between two points is split between them, which keeps its mean. This is done on the transform of the grid,
    where a shift by k + f points is a factor exp(-i k omega) (1 - f + f exp(-i omega)).
    """
    lowest, highest = vectors.extremes(growth)
    low, high = float(lowest[rows].min()), float(highest[rows].max())
    if high <= low:
        return np.array([low]), np.ones((int(rows.sum()), 1))
    step = (high - low) / (points - 1)
    lean = len(vectors.rows)  # points by which splits may lean over
    origin = math.floor(low / step) - lean
    columns = points + 2 * lean + 2
    omega = 2 * np.pi / columns * np.arange(columns // 2 + 1, dtype=np.float64)
    one = np.exp(-1j * omega)

    def turn(growth: NDArray[np.float64]) -> NDArray[np.complex128]:
        at = growth[:, None] / step
        whole = np.floor(at)
        split = at - whole
        return np.asarray(_unit(-whole * omega) * (1 - split + split * one))

    transform = vectors.transforms(growth, len(omega), turn)[rows] * _unit(origin * omega)
    masses = np.maximum(np.fft.irfft(transform, columns, axis=1), 0.0)
    scores = (origin + np.arange(columns, dtype=np.float64)) * step
    return scores, masses / masses.sum(axis=1, keepdims=True)


def _mixed(light: NDArray[np.float64], groups: Sequence[_Group]) -> NDArray[np.float64]:
    """The mass on the grids of groups with a common table, next to each other: one product of matrices."""
    members = np.stack([group.members for group in groups])
    weights = light[:, members] * np.stack([group.fraction for group in groups])
    return np.asarray((weights.reshape(-1, members.shape[1]) @ groups[0].masses).reshape(len(light), -1))


def _on_grids(cases: Sequence[Case], table_of: Callable[[Case], _GridTable]) -> list[Points | None]:
    table = table_of(replace(cases[0], counts=(cases[0].ranks,) * len(cases[0].labels)))
    counts = np.array([case.counts for case in cases])
    probability = table.vectors.probabilities(counts)
    likely = probability > _LIKELY * table.arrangements
    light = np.zeros((TOGETHER, probability.shape[1]))  # of fixed size: the order of sums must not depend on the others
    light[: len(cases)] = np.where(likely, 0.0, probability)
    mass = np.concatenate([_mixed(light, groups) for groups in table.sharing], axis=1)
    mass = np.add.reduceat(mass[:, table.order], table.first, axis=1)
    results: list[Points | None] = []
    for index, case in enumerate(cases):
        rows = np.flatnonzero(likely[index])
        totals = [table.totals(tuple(row)) for row in table.vectors.last[rows].tolist()]
        each = [
            np.full(len(exact), weight)
            for exact, weight in zip(totals, (probability[index] / table.arrangements)[rows], strict=True)
        ]
        results.append(_assembled(case, table.scores, mass[index], totals, each))
    return results


def _assembled(
    case: Case,
    totals: NDArray[np.float64],
    mass: NDArray[np.float64],
    exact: list[NDArray[np.float64]],
    probabilities: list[NDArray[np.float64]],
) -> Points | None:
    """Mass on the points of several grids together with arrangements that are kept exactly."""
    if mass.max(initial=0.0) > _HEAVIEST:
        return None
    scale, shift = case.value(case.counts)
    worst, _, best = sorted(case.bounds)
    used = np.flatnonzero(mass > 0)
    scores, mass = totals[used] * scale + shift, mass[used]
    kept = np.zeros(len(scores), dtype=bool)
    if exact:
        joined = merged(np.concatenate(exact) * scale + shift, np.concatenate(probabilities))
        scores, mass = np.concatenate((scores, joined[0])), np.concatenate((mass, joined[1]))
        kept = np.concatenate((kept, np.ones(len(joined[0]), dtype=bool)))
        order = np.argsort(scores, kind="stable")
        scores, mass, kept = scores[order], mass[order], kept[order]
    elif scale < 0:
        scores, mass = scores[::-1], mass[::-1]
    return _condensed(np.clip(scores, worst, best), mass, kept)


def _condensed(scores: NDArray[np.float64], mass: NDArray[np.float64], kept: NDArray[np.bool_]) -> Points:
    """Join neighboring points, apart from those that are ``kept`` and the ends, at their mean.

    Joined points have about 8e-4 of the mass, in the tails up to a tenth of what lies beyond them.
    """
    distinct = np.diff(scores, prepend=-np.inf) > tolerance(scores)
    if not distinct.all():
        first = np.flatnonzero(distinct)
        scores, mass, kept = scores[first], np.add.reduceat(mass, first), np.logical_or.reduceat(kept, first)
    below = np.cumsum(mass) - mass / 2
    above = np.cumsum(mass[::-1])[::-1] - mass / 2
    side = np.minimum(below, above)
    start = _JOINED / _JOINED_IN_TAIL
    cell = np.where(side < start, start * (1 + np.log(np.maximum(side, 1e-300) / start)), side) / _JOINED
    cell = np.floor(np.where(below <= above, cell, -cell))
    apart = kept.copy()
    apart[[0, -1]] = True
    new = apart | (np.diff(cell, prepend=np.nan) != 0)
    new[1:] |= apart[:-1]
    first = np.flatnonzero(new)
    total = np.add.reduceat(mass, first)
    return np.add.reduceat(scores * mass, first) / total, total


# ---- a sum of weights, the last ranks by their cumulants -------------------------------------------------------------


class _HeadTable:
    """Characteristic functions of the total of the first ``ranks`` ranks given their counts, at multiples of a base."""

    def __init__(self, labels: tuple[float, ...], weights: tuple[float, ...], doublings: int) -> None:
        self.vectors = count_vectors(len(labels), len(weights))
        self.labels, self.weights = labels, weights
        self.period = (labels[0] - labels[-1]) * sum(weights) * 2.0**doublings
        self.blocks: list[NDArray[np.complex128]] = []

    def frequencies(self, block: int) -> NDArray[np.float64]:
        """The frequencies of a block."""
        first = block * _FREQUENCIES
        return 2 * np.pi / self.period * np.arange(first, first + _FREQUENCIES, dtype=np.float64)

    def block(self, block: int) -> NDArray[np.complex128]:
        """A row for each count vector, a column for each frequency of the block."""
        while len(self.blocks) <= block:
            self.blocks.append(self._transforms(self.frequencies(len(self.blocks))))
        return self.blocks[block]

    def _transforms(self, t: NDArray[np.float64]) -> NDArray[np.complex128]:
        def growth(rank: int, level: int, so_far: list[Any]) -> float:
            return self.labels[level] * self.weights[rank - 1]

        return self.vectors.transforms(growth, len(t), lambda added: _unit(added[:, None] * t))


@lru_cache(maxsize=32)
def _head_table(labels: tuple[float, ...], weights: tuple[float, ...], doublings: int) -> _HeadTable:
    return _HeadTable(labels, weights, doublings)


def _with_tails(cases: Sequence[Case]) -> list[Points | None]:
    """Distributions of cases that differ in their counts only."""
    case = cases[0]
    levels, n = np.array(case.labels), case.n
    ranks = _head(len(levels))
    weights = np.zeros(n)
    assert case.rank_weights is not None
    weights[: case.ranks] = case.rank_weights
    tail = weights[ranks:]
    mean = float(tail.mean())
    deviations = [float(((tail - mean) ** power).sum()) for power in (2, 3, 4)]
    head = tuple(weights[:ranks].tolist())
    needed = sum(head) - ranks * mean + _REACH * math.sqrt(deviations[0])
    table = _head_table(case.labels, head, max(0, math.ceil(math.log2(needed / sum(head)))))
    rows = table.vectors.last
    counts = np.array([case.counts for case in cases])
    probability = table.vectors.probabilities(counts)
    taken = rows @ levels  # sum of the levels on the first ranks; the others add its complement times their mean weight
    blocks: list[NDArray[np.complex128]] = []

    def centered(block: int) -> NDArray[np.complex128]:
        if len(blocks) <= block:
            blocks.append(table.block(block) * _unit(np.multiply.outer(-mean * taken, table.frequencies(block))))
        return blocks[block]

    results: list[Points | None] = []
    for index, each in enumerate(cases):
        kept = np.flatnonzero(probability[index] > _UNLIKELY)
        cumulants = _cumulants(deviations, counts[index] - rows[kept], levels)
        transforms = _transforms(table, centered, kept, probability[index][kept], cumulants)
        offset = mean * float(counts[index] @ levels)
        results.append(None if transforms is None else _inverted(each, table.period, offset, *transforms))
    return results


def _cumulants(
    weights: Sequence[float], left: NDArray[np.int64], levels: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Second to fourth cumulant of sum w_r g_pi(r), a linear permutation statistic, for each row of documents ``left``.

    ``weights`` are the sums of the second to fourth powers of the centered weights: p2, p3, p4. With q the same of the
    levels, the fourth moment is a sum over the ways in which four ranks can coincide, of products of augmented
    monomials such as p2^2 - p4, over falling factorials of the number of ranks.
    """
    n = int(left[0].sum())
    centered = levels - (left @ levels / n)[:, None]
    p2, p3, p4 = weights
    square = left * centered**2
    q2, q3, q4 = square.sum(axis=1), (square * centered).sum(axis=1), (square * centered**2).sum(axis=1)
    pairs = n * (n - 1)
    triples = pairs * (n - 2)
    second = p2 * q2 / (n - 1)
    third = p3 * q3 * n / ((n - 1) * (n - 2))
    fourth = (
        p4 * q4 * (1 / n + 4 / pairs)
        + 3 * (p2**2 - p4) * (q2**2 - q4) / pairs
        + 6 * (2 * p4 - p2**2) * (2 * q4 - q2**2) / triples
        + 9 * (p2**2 - 2 * p4) * (q2**2 - 2 * q4) / (triples * (n - 3))
    )
    return second, third, fourth - 3 * second**2


def _transforms(
    table: _HeadTable,
    centered: Callable[[int], NDArray[np.complex128]],
    kept: NDArray[np.int64],
    probability: NDArray[np.float64],
    cumulants: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]] | None:
    """The characteristic function with a normal tail and with an Edgeworth expansion of it, up to where it vanishes."""
    second, third, fourth = cumulants
    weighted = probability * np.stack((np.ones(len(kept)), third / 6, fourth / 24, third**2 / 72))
    parts: list[tuple[NDArray[np.complex128], NDArray[np.complex128]]] = []
    for block in range(_MOST_FREQUENCIES // _FREQUENCIES):
        t = table.frequencies(block)
        normal = centered(block)[kept] * np.exp(np.multiply.outer(-second / 2, t**2))
        sums = np.einsum("kc,ct->kt", weighted, normal.view(np.float64)).view(np.complex128)  # too small for threads
        parts.append((sums[0], sums[0] - 1j * t**3 * sums[1] + t**4 * sums[2] - t**6 * sums[3]))
        if all(np.abs(part[-8:]).max() < _VANISHED for part in parts[-1]):
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    return None


def _inverted(
    case: Case,
    period: float,
    offset: float,
    normal: NDArray[np.complex128],
    expanded: NDArray[np.complex128],
) -> Points | None:
    """The distribution between worst and best, unless the expansion changes it by too much to be trusted."""
    scale, shift = case.value(case.counts)
    worst, expected, best = case.bounds
    base = 2 * np.pi / period
    t = base * np.arange(len(normal))
    middle = (expected - shift) / scale
    variance = (
        -2 * (expanded[1] * np.exp(1j * t[1] * (offset - middle))).real + 2
    )  # 2 - 2 Re phi(t) = var t^2 for small t
    spread = math.sqrt(max(float(variance), 0.0)) / t[1]
    points = int(np.clip(0.5 * period / max(spread * _HEAVIEST, 1e-300), _LEAST_POINTS, _MOST_POINTS))
    points = max(64 * math.ceil(points / 64), 2 * len(normal))
    start = middle - period / 2
    turn = _unit(t * (offset - start)).conj()
    change = np.fft.irfft((expanded - normal).conj() * turn, points)
    if np.abs(np.cumsum(change)).max() > _SETTLED:
        return None
    mass = np.fft.irfft(expanded.conj() * turn, points)
    while mass.max() > _HEAVIEST and points < _MOST_POINTS:  # it has more than one peak
        points *= 2
        mass = np.fft.irfft(expanded.conj() * turn, points)
    if mass.max() > _HEAVIEST:
        return None
    noise = max(4 * float(-mass.min()), 1e-19)
    scores = (start + period / points * np.arange(points)) * scale + shift
    real = np.flatnonzero((mass > noise) & (scores > worst) & (scores < best))
    bulk = slice(real[0], real[-1] + 1)
    scores, mass = scores[bulk], np.maximum(mass[bulk], 0.0)
    mass = mass / mass.sum()
    scores = np.clip(scores + (expected - float(scores @ mass)), worst, best)
    least = math.exp(-case.log_arrangements)  # worst and best are possible, too
    scores, mass = np.concatenate(([worst], scores, [best])), np.concatenate(([least], mass, [least]))
    real = np.flatnonzero(mass > 0)
    return _condensed(scores[real], mass[real], np.zeros(len(real), dtype=bool))


def _unit(angle: NDArray[np.float64]) -> NDArray[np.complex128]:
    """exp(i angle); real sines and cosines are several times faster than a complex exponential."""
    unit = np.empty(angle.shape, dtype=np.complex128)
    np.cos(angle, out=unit.real)
    np.sin(angle, out=unit.imag)
    return unit
