"""Labels of each query as runs of equal values: all that difficulty depends on."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rankbound.lists import Lists
    from rankbound.measures.measure import Measure

_DENSE_LEVELS = 256  # up to this many whole-number labels are counted in a table, more are sorted


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """For each query how often each label occurs, the highest label first; labels below 0 count as 0.

    Run ``r`` (``starts[q] <= r < starts[q + 1]`` for query ``q``) says that ``counts[r]`` items have label
    ``values[r]``. ``depths`` is the number of items that are ranked: any of the query's items can stand there, the
    rest get no rank. ``below_zero`` says how many items of each query have a label below 0, for the few measures that
    distinguish it from 0; None if there are none.

    >>> counts = LabelCounts.from_labels([0, 2, 1, 0, -1, 0], [0, 4, 6])
    >>> counts.values.tolist(), counts.counts.tolist(), counts.starts.tolist()
    ([2, 1, 0, 0], [1, 1, 2, 2], [0, 3, 4])
    >>> counts.relevant(1).tolist()
    [2, 0]
    """

    values: NDArray[Any]
    counts: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    depths: NDArray[np.int64]
    below_zero: NDArray[np.int64] | None = None
    levels: dict[Measure, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)
    """The levels of the runs by measures that have been computed."""
    normalizers: dict[Measure, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)
    """What additive measures that have been computed divide by."""

    @classmethod
    def from_labels(cls, labels: ArrayLike, offsets: ArrayLike, depths: NDArray[np.int64] | None = None) -> LabelCounts:
        """Count flat labels that offsets cut into queries."""
        given, offsets = np.asarray(labels), np.asarray(offsets, dtype=np.int64)
        clipped: NDArray[Any] = np.maximum(given, 0)
        sizes = np.diff(offsets)
        queries = len(sizes)
        query = np.repeat(np.arange(queries), sizes)
        below_zero = np.bincount(query[given < 0], minlength=queries) if given.min(initial=0) < 0 else None
        if clipped.dtype.kind == "i" and (len(clipped) == 0 or clipped.max() < _DENSE_LEVELS):
            levels = int(clipped.max(initial=0)) + 1
            positive = np.flatnonzero(clipped > 0)
            code = query[positive] * levels + (levels - 1)
            code -= clipped[positive]
            table = np.bincount(code, minlength=queries * levels)
            by_query = table.reshape(queries, levels)
            by_query[:, -1] = sizes - by_query.sum(axis=1)
            runs = np.flatnonzero(table)
            counts = table[runs]
            values: NDArray[Any] = levels - 1 - runs % levels
            starts = np.searchsorted(runs, np.arange(queries + 1) * levels)
        else:
            order = np.lexsort((-clipped, query))
            ordered = clipped[order]
            new = np.ones(len(clipped), dtype=bool)
            new[1:] = (ordered[1:] != ordered[:-1]) | (query[1:] != query[:-1])
            first = np.flatnonzero(new)
            counts = np.diff(np.append(first, len(clipped)))
            values = ordered[first]
            starts = np.searchsorted(first, offsets)
        return cls(values, counts, starts, sizes, sizes if depths is None else depths, below_zero)

    @classmethod
    def from_lists(cls, lists: Lists, depth: int | None = None) -> LabelCounts:
        """Count the labels of lists, of which ``depth`` items per query can be ranked.

        What one run happened to return (``lists.depths``) is no part of a query's difficulty and does not count.
        """
        return cls.from_labels(lists.labels, lists.offsets, None if depth is None else np.minimum(lists.sizes, depth))

    @classmethod
    def binary(cls, n: ArrayLike, relevant: ArrayLike, label: int = 1) -> LabelCounts:
        """Queries of ``n`` items of which ``relevant`` have this label, the others 0."""
        sizes, hits = (np.ravel(a).astype(np.int64) for a in np.broadcast_arrays(n, relevant))
        values = np.tile([label, 0], len(sizes))
        counts = np.stack([hits, sizes - hits], axis=1).ravel()
        return cls(values, counts, np.arange(len(sizes) + 1) * 2, sizes, sizes)

    def take(self, queries: NDArray[np.int64]) -> LabelCounts:
        """Those of some queries, which may repeat."""
        runs = np.diff(self.starts)[queries]
        starts = np.concatenate(([0], np.cumsum(runs)))
        at = np.repeat(self.starts[queries] - starts[:-1], runs) + np.arange(starts[-1])
        below_zero = None if self.below_zero is None else self.below_zero[queries]
        return LabelCounts(
            self.values[at], self.counts[at], starts, self.sizes[queries], self.depths[queries], below_zero
        )

    def with_labels_below_zero(self) -> LabelCounts:
        """The same with a run of the label -1 for the items whose labels are below 0, which else count as 0.

        >>> counts = LabelCounts.from_labels([0, 2, -3, -1, 1], [0, 4, 5]).with_labels_below_zero()
        >>> counts.values.tolist(), counts.counts.tolist(), counts.starts.tolist()
        ([2, 0, -1, 1], [1, 1, 2, 1], [0, 3, 4])
        """
        if self.below_zero is None:
            return self
        has = np.flatnonzero(self.below_zero)
        ends = self.starts[1:][has]  # the last run of such a query is that of 0
        counts = self.counts.copy()
        counts[ends - 1] -= self.below_zero[has]
        added = np.concatenate(([0], np.cumsum(self.below_zero > 0)))
        return LabelCounts(
            np.insert(self.values, ends, -1),
            np.insert(counts, ends, self.below_zero[has]),
            self.starts + added,
            self.sizes,
            self.depths,
        )

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def query_of_run(self) -> NDArray[np.int64]:
        """Index of the query that each run belongs to."""
        return np.repeat(np.arange(len(self.sizes)), np.diff(self.starts))

    @cached_property
    def best_ends(self) -> NDArray[np.int64]:
        """Rank at which each run ends when the highest labels come first."""
        total = np.cumsum(self.counts)
        before = np.concatenate(([0], np.cumsum(self.sizes)))[:-1]
        return np.asarray(total - before[self.query_of_run])

    @cached_property
    def worst_ends(self) -> NDArray[np.int64]:
        """Rank at which each run ends when the lowest labels come first."""
        return np.asarray(self.sizes[self.query_of_run] - self.best_ends + self.counts)

    def sum(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """Sum per query of one number per run."""
        return np.bincount(self.query_of_run, weights, minlength=len(self.sizes)).astype(np.float64, copy=False)

    def relevant(self, rel: float) -> NDArray[np.int64]:
        """Items per query with at least this label."""
        return self.sum(self.counts * (self.values >= rel)).astype(np.int64)

    def largest(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The largest of one number per run for each query, where it comes first; 0 for a query without items."""
        largest = np.zeros(len(self))
        has = self.sizes > 0
        largest[has] = values[self.starts[:-1][has]]
        return largest

    def cut(self, cutoff: int | None) -> NDArray[np.int64]:
        """Ranks per query that a measure with this cutoff can see."""
        return self.depths if cutoff is None else np.minimum(self.depths, cutoff)


def ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> NDArray[np.float64]:
    """Numerator over denominator, and 0 where the denominator is not positive."""
    return np.asarray(np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator > 0))
