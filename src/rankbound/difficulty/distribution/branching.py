"""Distributions of measures whose first ranks decide, such as RBP: a tree of the first ranks.

A node is a set of orders that agree in the counts of their first ranks and nearly in their total. Its children are the
labels that may come next. What is still to come lies between two bounds, and these come together quickly. A node is a
leaf as soon as the mass of all nodes that lie between its bounds is a small part of both tails: then it hardly matters
where between them it stands. So the far tails, and clusters of scores around some first hits, are resolved as finely as
the middle, on any scale, which no even grid does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import merged
from rankbound.difficulty.distribution.case import Case

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
_UNCERTAIN = 0.02  # mass between the bounds of a leaf, relative to the tails
_NEGLIGIBLE = 0.1  # mass that is not divided further, relative to what is rare
_FINEST = 2.0**-12  # relative weight that a grid resolves well
_ROUNDING = 1e-12  # relative difference of equal totals
_LIGHT = 0.002  # mass of nodes that may be joined, relative to the tails
_CELL = 1 / 2  # totals that differ by less than this part of what is still to come are joined
_MOST_NODES = 200_000
_MOST_VISITED = 2_000_000


class _Nodes(NamedTuple):
    """Counts so far (a row per level), totals, probabilities, and the bounds of the final totals."""

    so_far: NDArray[np.int64]
    total: NDArray[np.float64]
    probability: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def take(self, chosen: NDArray[Any]) -> _Nodes:
        return _Nodes(self.so_far[:, chosen], *(array[chosen] for array in self[1:]))


def is_branched(case: Case, rare: float) -> bool:
    """Whether the weights of the ranks fall so fast that scores cluster on scales finer than a grid.

    They do if with more than a ``rare`` probability no document of a positive level comes before the weights are finer
    than the cells.
    """
    weights = case.rank_weights
    definition = case.measure.definition
    if weights is None or not definition.is_concentrated(case.measure) or definition.scale_varies(case.measure):
        return False
    seen = min(int(np.count_nonzero(weights > _FINEST * weights[:1])), case.n)
    others = case.n - case.relevant
    if case.random:
        return bool(np.prod(np.maximum(others - np.arange(seen), 0) / (case.n - np.arange(seen))) > rare)
    return others > 0


def branched(case: Case, rare: float) -> Points | None:
    """The distribution, or None if there are too many nodes; tails are precise down to ``rare`` probabilities."""
    negligible = _NEGLIGIBLE * rare
    start = np.zeros((len(case.labels), 1), dtype=np.int64)
    nodes = _Nodes(start, np.zeros(1), np.ones(1), np.zeros(1), np.ones(1))
    bounds = _Bounds(case)
    leaves: list[_Nodes] = []
    ended = np.zeros((2, 0))  # middles and probabilities of the leaves, ascending
    visited = 0
    for rank in range(1, case.ranks + 1):
        nodes = bounds.of(_grown(case, nodes, rank), rank)
        nodes = _joined(nodes, np.maximum(_tails(nodes, ended)[0], negligible / _LIGHT))
        visited += len(nodes.total) + ended.shape[1] // 8
        if len(nodes.total) > _MOST_NODES or visited > _MOST_VISITED:
            return None
        is_leaf = _are_leaves(nodes, ended, negligible) if rank < case.ranks else np.ones(len(nodes.total), dtype=bool)
        if is_leaf.any():
            leaves.append(nodes.take(is_leaf))
            ended = np.concatenate((ended, [(leaves[-1].low + leaves[-1].high) / 2, leaves[-1].probability]), axis=1)
            ended = ended[:, np.argsort(ended[0], kind="stable")]
            nodes = nodes.take(~is_leaf)
        if len(nodes.total) == 0:
            break
    return _placed(case, leaves)


def _grown(case: Case, nodes: _Nodes, rank: int) -> _Nodes:
    """The children of the nodes."""
    parts = []
    for level, probability in enumerate(case.probabilities(rank - 1, nodes.so_far)):
        possible = np.flatnonzero(probability > 0)
        so_far = nodes.so_far[:, possible]
        total = nodes.total[possible] + case.growth(rank, level, so_far)
        so_far[level] += 1
        parts.append((so_far, total, nodes.probability[possible] * probability[possible]))
    so_far = np.concatenate([part[0] for part in parts], axis=1)
    total, mass = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    return _Nodes(so_far, total, mass, total, total)


class _Bounds:
    """Bounds of what the ranks to come add."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.levels = np.array(case.labels)
        assert case.rank_weights is not None
        from_end = np.cumsum(case.rank_weights[::-1])[::-1]  # sums of the light weights keep their digits
        self.rest = np.concatenate((from_end, np.zeros(case.n + 1 - len(from_end))))

    def of(self, nodes: _Nodes, rank: int) -> _Nodes:
        """The nodes with their bounds after this rank."""
        left = np.array(self.case.counts)[:, None] - nodes.so_far
        low, high = self._filled(left[::-1], self.levels[::-1], rank), self._filled(left, self.levels, rank)
        return nodes._replace(low=nodes.total + low, high=nodes.total + high)

    def _filled(self, left: NDArray[np.int64], levels: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
        """Sum of level times weight when the levels fill the next ranks in this order."""
        ends = rank + np.cumsum(left, axis=0)
        starts = ends - left
        return np.asarray((levels[:, None] * (self.rest[starts] - self.rest[ends])).sum(axis=0))


def _joined(nodes: _Nodes, tails: NDArray[np.float64]) -> _Nodes:
    """Join nodes with equal counts and little mass whose totals differ by little of what is to come."""
    order = np.lexsort((nodes.total, *nodes.so_far))
    total, width = nodes.total[order], (nodes.high - nodes.low)[order] * _CELL
    rounding = _ROUNDING * total
    cell = np.floor(total / np.maximum(width, rounding + 1e-300))
    apart = np.diff(total, prepend=-np.inf) > rounding
    heavy = (nodes.probability > _LIGHT * tails)[order]
    heavy[1:] |= heavy[:-1]
    new = np.where((width > rounding) & ~heavy, np.diff(cell, prepend=np.nan) != 0, apart)
    new[1:] |= (np.diff(nodes.so_far[:, order], axis=1) != 0).any(axis=0)
    if new.all():
        return nodes
    first = np.flatnonzero(new)
    ordered = nodes.take(order)
    probability = np.add.reduceat(ordered.probability, first)
    moved = ordered.total - ordered.total[first].repeat(np.diff(first, append=len(order)))
    shift = np.add.reduceat(moved * ordered.probability, first) / probability
    kept = ordered.take(first)
    total = kept.total + shift
    return _Nodes(kept.so_far, total, probability, kept.low + shift, kept.high + shift)


def _tails(nodes: _Nodes, ended: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lesser of the two tails that a node belongs to, and the mass of all nodes between its bounds."""
    middle = np.concatenate((ended[0], (nodes.low + nodes.high) / 2))
    order = np.argsort(middle, kind="stable")
    middle = middle[order]
    mass = np.concatenate((ended[1], nodes.probability))[order]
    below = np.concatenate(([0.0], np.cumsum(mass)))
    above = np.concatenate((np.cumsum(mass[::-1])[::-1], [0.0]))
    first, last = np.searchsorted(middle, nodes.low), np.searchsorted(middle, nodes.high, side="right")
    between = np.minimum(below[last] - below[first], above[first] - above[last])  # the smaller numbers are more precise
    return np.minimum(below[last], above[first]), np.maximum(between, nodes.probability)


def _are_leaves(nodes: _Nodes, ended: NDArray[np.float64], negligible: float) -> NDArray[np.bool_]:
    """Whether little of the tails lies between the bounds of a node."""
    tails, between = _tails(nodes, ended)
    certain = nodes.high - nodes.low <= _ROUNDING * nodes.total
    return np.asarray(certain | (between <= np.maximum(_UNCERTAIN * tails, negligible)))


def _placed(case: Case, leaves: list[_Nodes]) -> Points:
    """Leaves stand at the same fraction of the way between their bounds, where the mean of all is right."""
    low, high = (np.concatenate([getattr(part, name) for part in leaves]) for name in ("low", "high"))
    probability = np.concatenate([part.probability for part in leaves])
    scale, shift = case.value(case.counts)
    width = high - low
    missing = (case.bounds[1] - shift) / scale - float(probability @ low)
    uncertain = float(probability @ width)
    fraction = min(max(missing / uncertain, 0.0), 1.0) if uncertain > 0 else 0.0
    return merged((low + fraction * width) * scale + shift, probability, relative=True)
