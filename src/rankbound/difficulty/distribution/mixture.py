"""Distributions of graded labels as mixtures over the counts on the first ranks.

Given how many documents of each level stand on the first m ranks, their total has the same distribution for all queries
with these levels (see `count_vectors`). With P_q(c) the probability of the counts c in query q,

    F_q(x) = sum over c of P_q(c) F(x | c),

and the conditional distributions F(. | c) are tabulated once. There are two forms:

``grid``
    All ranks that the measure sees are among the first m (cutoffs up to about 12 with five levels). The conditional
    distributions are kept on grids, one for each highest level among the first ranks or, for measures such as ERR, one
    for each sequence of levels on the first few ranks, because these differ in the size of their totals. Every cell
    knows the mean of its totals, so that tails are precise. Arrangements
    that are likely by themselves are kept exactly, as steps of the distribution function. For many queries this is a
    product of two matrices.
``tail``
    The measure is a sum of level * weight(rank) and sees further ranks: see `tilted`.

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

from rankbound.difficulty.distribution.arrangements import condensed, merged
from rankbound.difficulty.distribution.case import Case
from rankbound.difficulty.distribution.count_vectors import (
    FRACTION,
    CountVectors,
    Growth,
    count_vectors,
    number_of_vectors,
)
from rankbound.difficulty.distribution.dynamic import Points
from rankbound.difficulty.distribution.saddlepoint import first_ranks
from rankbound.difficulty.distribution.tilted import LEAST_TAIL, sums_of_weights

TOGETHER = 32  # queries that are computed together
_LEAST_LEVELS, _MOST_LEVELS = 3, 12
_MOST_VECTORS = 4_000  # of the grid form
_MOST_RANKS = 16  # of the first ranks
_GRID = 10240  # points of the table of each highest level
_MOST_SEQUENCES, _SMALL_GRID = 128, 768  # of levels on the first ranks that have a grid of their own, and its points
_LIKELY = 2.5e-4  # probability from which an arrangement is kept exactly
_HEAVIEST = 4e-3  # probability that one point of a grid may have


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
    if case.rank_weights is None or case.n - first_ranks(levels) < LEAST_TAIL:
        return None
    return "tail", case.measure, case.labels, case.ranks, case.n


def mixtures(cases: Sequence[Case], precise: bool = True) -> list[Points | None]:
    """The distributions of cases with the same `mixture_key`; None where the mixture would not be accurate enough.

    Without ``precise`` tails of full rankings may be wrong by a factor, which saves time.
    """
    key = mixture_key(cases[0])
    assert key is not None
    results: list[Points | None] = []
    for start in range(0, len(cases), TOGETHER):
        chunk = cases[start : start + TOGETHER]
        results += _on_grids(chunk, _grid_table) if key[0] == "grid" else sums_of_weights(chunk, precise)
    if key[0] == "grid":
        rough = [index for index, points in enumerate(results) if points is None]
        for start in range(0, len(rough), TOGETHER):
            chunk = [cases[index] for index in rough[start : start + TOGETHER]]
            for index, points in zip(rough[start:], _on_grids(chunk, _fine_grid_table), strict=False):
                results[index] = points
    return results


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
    the group, and ``masses`` has a row for each, see `_conditional`, of totals that are still to be multiplied by
    ``factor`` and moved by ``offset``. ``scores`` are the points of the grid, where they come to stand.
    """

    members: NDArray[np.int64]
    fraction: NDArray[np.float64]
    scores: NDArray[np.float64]
    masses: NDArray[np.float64]
    factor: float = 1.0
    offset: float = 0.0


class _GridTable:
    """Conditional distributions of the total of all seen ranks, for the levels and ranks of a case.

    ``factor`` and ``offset`` turn the mean total of each cell of the joined grids into the total of the case.
    """

    def __init__(self, case: Case, finer: int = 1) -> None:
        self.case, self.finer = case, finer
        self.vectors = count_vectors(len(case.labels), case.ranks)
        self.arrangements = self.vectors.arrangements()
        self.groups = self._by_first_ranks() if case.rank_weights is None else self._by_highest_level()
        self.sharing = [list(groups) for _, groups in itertools.groupby(self.groups, lambda group: id(group.masses))]
        sizes = [len(group.scores) for group in self.groups]
        self.factor = np.repeat([group.factor for group in self.groups], sizes)
        self.offset = np.repeat([group.offset for group in self.groups], sizes)
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
            scores, masses = shared
            if np.abs(growths - factor * fresh).max() > 1e-12 * np.abs(fresh).max():
                after, factor = self._growth_after(leading, above), 1.0
                scores, masses = _conditional(rest, after, everything, self.finer * _SMALL_GRID)
            members = self.vectors.index_of(rest.last + above.astype(np.int64))
            fraction = arrangements / self.arrangements[members]
            groups.append(_Group(members, fraction, total + factor * scores, masses, factor, total))
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
    """Points of a grid, and the mass and the mean total of each cell for the count vectors that ``rows`` selects.

    The masses stand before the products of masses and means. A value that is alone in its cell is exact.
    """
    lowest, highest = vectors.extremes(growth)
    low, high = float(lowest[rows].min()), float(highest[rows].max())
    if high <= low:
        return np.array([low]), np.tile([1.0, low], (int(rows.sum()), 1))
    step = (high - low) / (points - 1)
    cells = vectors.cells(growth, step)[rows]
    used = np.flatnonzero((cells.real > 0).any(axis=0))
    cells = cells[:, used[0] : used[-1] + 1]
    scores = np.arange(used[0], used[-1] + 1) * step
    return scores, np.concatenate((cells.real, cells.real * scores + cells.imag * (step / FRACTION)), axis=1)


def _mixed(light: NDArray[np.float64], groups: Sequence[_Group]) -> NDArray[np.float64]:
    """The masses and moments on the grids of groups with a common table: one product of matrices, a layer for each."""
    members = np.stack([group.members for group in groups])
    weights = light[:, members] * np.stack([group.fraction for group in groups])
    product = (weights.reshape(-1, members.shape[1]) @ groups[0].masses).reshape(len(light), len(groups), 2, -1)
    return np.asarray(product)


def _on_grids(cases: Sequence[Case], table_of: Callable[[Case], _GridTable]) -> list[Points | None]:
    table = table_of(replace(cases[0], counts=(cases[0].ranks,) * len(cases[0].labels)))
    counts = np.array([case.counts for case in cases])
    probability = table.vectors.probabilities(counts)
    likely = probability > _LIKELY * table.arrangements
    light = np.zeros((TOGETHER, probability.shape[1]))  # of fixed size: the order of sums must not depend on the others
    light[: len(cases)] = np.where(likely, 0.0, probability)
    parts = [_mixed(light, groups) for groups in table.sharing]
    mass, moment = (np.concatenate([part[:, :, i].reshape(TOGETHER, -1) for part in parts], axis=1) for i in (0, 1))
    results: list[Points | None] = []
    for index, case in enumerate(cases):
        rows = np.flatnonzero(likely[index])
        totals = [table.totals(tuple(row)) for row in table.vectors.last[rows].tolist()]
        each = [
            np.full(len(exact), weight)
            for exact, weight in zip(totals, (probability[index] / table.arrangements)[rows], strict=True)
        ]
        used = np.flatnonzero(mass[index] > 0)
        mean = moment[index, used] / mass[index, used] * table.factor[used] + table.offset[used]
        results.append(_assembled(case, mean, mass[index, used], totals, each))
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
    scores = totals * scale + shift
    kept = np.zeros(len(scores), dtype=bool)
    if exact:
        joined = merged(np.concatenate(exact) * scale + shift, np.concatenate(probabilities))
        scores, mass = np.concatenate((scores, joined[0])), np.concatenate((mass, joined[1]))
        kept = np.concatenate((kept, np.ones(len(joined[0]), dtype=bool)))
    order = np.argsort(scores, kind="stable")
    scores, mass, kept = scores[order], mass[order], kept[order]
    return condensed(np.clip(scores, worst, best), mass, kept)
